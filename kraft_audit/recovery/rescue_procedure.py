"""What to do with a rescued node dir, in order, with the real ids, hosts and paths.

Each step stands here because leaving it out was seen to lose data or to split the quorum on real clusters.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kraft_audit.quorum.controller_commands import add_controller, format_disk
from kraft_audit.recovery.rescue import Rescue, all_nodes
from kraft_audit.recovery.rescued_dir import new_directory_id
from kraft_audit.recovery.restore_commands import Restored, RestoreSteps, acl_steps, acl_text
from kraft_audit.recovery.state_differences import Operation
from kraft_audit.text.readable import listed
from kraft_audit.text.shell_commands import UnwritableError

BROKER_STOP_S: Final = 90
"""SIGTERM does not end a broker without a quorum within this time (Kafka 4.3)."""
FORGET_VOTERS: Final = 'rm -f "$BROKER_DIR"/__cluster_metadata-0/quorum-state'
RIGHTS: Final = ("SCRAM credential", "delegation token", "client quota")
NAMED: Final = 8


def loses_nothing(found: Rescue) -> bool:
    """Whether all that can have been committed is in the rescued dir."""
    source = found.source
    is_whole = source.unknown_from is None and source.lost_from >= source.lost_to and not found.lost_after_cut
    return is_whole and not source.loses and not source.brings_back


@dataclass(frozen=True, slots=True)
class ProcedureStep:
    """A step: what to do, the lines that go into a config file, and the commands, as they can be pasted."""

    text: str
    settings: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()


Steps = Iterator[ProcedureStep]


def procedure(found: Rescue) -> Steps:
    """The steps, the first one first."""
    yield from _before(found)
    yield from _start(found)
    yield from _after(found)
    yield from _never(found)


def _before(found: Rescue) -> Steps:
    controllers = sorted(set(found.plan.voters) | set(found.ghosts))
    best = found.plan.best
    if best is not None and best.copy.end > found.source.copy.end:
        yield ProcedureStep(
            f"A better copy is that of {best.copy.name}: epoch {best.copy.last_epoch}, end offset "
            f"{best.copy.end_offset}. Go on with this dir only where that one cannot be used."
        )
    combined = sorted({broker for broker, _ in found.brokers} & set(found.plan.voters))
    if combined:
        yield ProcedureStep(
            f"Nodes {listed(combined)} are controllers and brokers in one process. No drill followed this way. Build "
            "the dir with --node-id and --endpoint for a controller of its own, with an id that no broker has. Before "
            "an old node starts, as a broker only (process.roles=broker), move __cluster_metadata-0 out of its data "
            "dirs: with it the node still takes itself for a voter."
        )
    paths = [f"{o.copy.name}: {o.copy.path}" for o in found.plan.outcomes]
    yield ProcedureStep(
        f"Power off every old controller ({listed(controllers)}), detach their disks, and copy them. Copies here: "
        f"{'; '.join(paths)}."
    )
    yield ProcedureStep(_old_majority(found))
    brokers = ", ".join(f"{broker} ({place})" for broker, place in found.brokers) or "none is registered"
    if loses_nothing(found) and found.keeps_endpoint and not combined:
        yield ProcedureStep(
            f"Nothing is lost, and id and endpoint stay: brokers may go on running. Brokers: {brokers}."
        )
    else:
        yield ProcedureStep(
            f"Stop all brokers ({brokers}); without a quorum a broker does not stop by itself: kill -9 after "
            f"{BROKER_STOP_S} s. Back up their data dirs: a broker that runs while the rescued state loads deletes the "
            "logs of lost topics."
        )
    if found.moved_logs:
        yield ProcedureStep(
            f"Reassigned in the lost part: {_shortened([log.text for log in found.moved_logs])}. The old replicas lead "
            "again, and their logs are gone. While all brokers are stopped, copy the full logs back.",
            commands=tuple(command for log in found.moved_logs for command in log.commands),
        )
    yield _brokers_config(found)


def _brokers_config(found: Rescue) -> ProcedureStep:
    text = "Set this in every broker's config, and no other controller:"
    if not found.node.is_static:
        return ProcedureStep(text, settings=(_quorum_setting(found),))
    # A node below 3.9 does not start where its quorum-state names other voters than its config (QuorumState, 3.8).
    return ProcedureStep(
        f"On every broker remove what names the old voters; BROKER_DIR is its metadata log dir. {text}",
        settings=(_quorum_setting(found),),
        commands=(FORGET_VOTERS,),
    )


def _quorum_setting(found: Rescue) -> str:
    """The line of a config that says where the quorum is."""
    node = found.node
    if node.is_static:
        return f"controller.quorum.voters={node.node_id}@{node.host}:{node.port}"
    return f"controller.quorum.bootstrap.servers={node.host}:{node.port}"


def _old_majority(found: Rescue) -> str:
    """What an old majority does that starts again. It is fenced where it finds the rescued node, and only there."""
    node = found.node
    name = f"node {node.node_id}"
    when = f"while {name} is down" if found.keeps_endpoint else f"as they do not find {name} where it is now,"
    disks = ", with old disks or wiped ones" if found.plan.kraft_version == 0 else ""
    return (
        f"Never start a majority of the old controllers again: {when} they elect themselves{disks}. That is a second "
        "cluster of the same id, and a broker that finds it may follow it."
    )


def _kit(found: Rescue) -> str:
    return f"{found.out}-kit"


def _needs_kit(found: Rescue) -> bool:
    return bool(found.source.loses or found.lost_after_cut)


def _start(found: Rescue) -> Steps:
    node = found.node
    if _needs_kit(found):
        yield ProcedureStep(
            "Before the dir is moved, write down what brings the lost part back:",
            commands=(
                f"kraft-audit restore-kit {shlex.quote(found.out)} --only-lost --out {shlex.quote(_kit(found))}",
            ),
        )
    yield ProcedureStep(
        f"Move {found.out} to the controller's host as its log dir, do not format it, and start it with this config, "
        f"without controller.quorum.{'bootstrap.servers' if node.is_static else 'voters'}:",
        settings=(
            "process.roles=controller",
            f"node.id={node.node_id}",
            f"listeners={node.listener}://{node.host}:{node.port}",
            f"controller.listener.names={node.listener}",
            _quorum_setting(found),
        ),
    )
    yield ProcedureStep(
        f"Check it: leader {node.node_id}, epoch above {found.epoch}, log end offset above {found.offset}.",
        commands=(f"kafka-metadata-quorum --bootstrap-controller {_place(found)} describe --status",),
    )
    yield ProcedureStep(
        "Start all brokers. Until they are back every broker is fenced and partitions have no leader: that is to be "
        "expected. Never remove a folder that ends in -stray."
    )


def _place(found: Rescue) -> str:
    return shlex.quote(f"{found.node.host}:{found.node.port}")


def _after(found: Rescue) -> Steps:
    source = found.source
    lost = [*source.loses, *found.lost_after_cut]
    server = found.brokers[0][1] if found.brokers else "HOST:PORT"
    created = [o.subject for o in lost if o.kind == "topic" and o.change == "created"]
    deleted = [o.subject.split(" ")[0] for o in [*source.brings_back, *lost] if _is_deleted(o, "topic")]
    ask = f"--bootstrap-server {shlex.quote(server)}"
    if _needs_kit(found):
        topics = (
            f" Topics that are lost: {_shortened(created)}. Their brokers rename the logs to -stray." if created else ""
        )
        yield ProcedureStep(
            f"Bring the lost part back, then do what the end of the script says of old logs.{topics}",
            commands=(f"BOOTSTRAP_SERVER={shlex.quote(server)} bash {shlex.quote(_kit(found) + '/restore.sh')}",),
        )
    if deleted:
        yield ProcedureStep(
            f"Topics that come back empty: {_shortened(deleted)}. Delete them again.",
            commands=tuple(f"kafka-topics {ask} --delete --topic {shlex.quote(topic)}" for topic in deleted),
        )
    rights = [o.subject for o in [*source.brings_back, *lost] if o.kind in RIGHTS and o.change != "created"]
    revoked = [*map(acl_text, found.revoked_acls), *rights]
    if revoked:
        steps = acl_steps(found.revoked_acls, ("--bootstrap-server", server), ("--remove", "--force"))
        yield ProcedureStep(
            f"Revoked or changed in the lost part, valid again: {_shortened(revoked)}. Take them back and rotate.",
            commands=tuple(_texts(steps)),
        )
    elif not loses_nothing(found):
        yield ProcedureStep(
            "What was revoked in the lost part is valid again (ACL, SCRAM, tokens, quotas): rotate what matters."
        )
    if not loses_nothing(found):
        yield ProcedureStep(
            "ISR and ELR are those of the rescued state: a replica that was dropped in the lost part may lead and "
            "truncate acknowledged data without an unclean election. Compare the partitions' log ends first."
        )
    levels = ", ".join(f"{name}={level}" for name, level in sorted(found.features.items()))
    kraft_version = 0 if found.node.is_static else 1
    yield ProcedureStep(f"Feature levels are those of the rescued state: {levels}; kraft.version={kraft_version}.")
    if found.ghosts:
        yield ProcedureStep(
            f"Registrations of controllers {listed(found.ghosts)} stay. Where they are gone, metadata.version 4.4-IV2 "
            "cannot be reached until each was started once with its id (KAFKA-20295)."
        )


def _never(found: Rescue) -> Steps:
    yield from _static_majority(found) if found.node.is_static else _dynamic_majority(found)
    yield ProcedureStep("Never rescue twice from different disks: both would have one cluster id.")


def _static_majority(found: Rescue) -> Steps:
    """Voters of a static quorum begin with the same log, or the new ones could elect themselves without it."""
    node = found.node
    voters = ",".join(
        f"{each}@{place}" for each, place in sorted([*found.others, (node.node_id, f"{node.host}:{node.port}")])
    )
    others = [each for each, _ in found.others]
    yield ProcedureStep(
        f"Back to a majority: stop node {node.node_id} and all brokers. Give {listed(others)} a copy of its log dir, "
        "never an empty one: two empty disks elect themselves and make it truncate everything. "
        "BROKER_DIR is each broker's metadata log dir, RESCUED_DIR the rescued one, NEW_DIR_N that of node N.",
        commands=(
            FORGET_VOTERS,
            'rm -f "$RESCUED_DIR"/__cluster_metadata-0/quorum-state "$RESCUED_DIR"/.lock',
            *(command for each, _ in found.others for command in _copied(node.cluster_id, each)),
        ),
    )
    yield ProcedureStep(
        "Set this in every controller's and every broker's config, then start all controllers, then the brokers:",
        settings=(f"controller.quorum.voters={voters}",),
    )


def _copied(cluster_id: str, node_id: int) -> tuple[str, str]:
    new = f'"$NEW_DIR_{node_id}"'
    meta = f"version=1\\ncluster.id={cluster_id}\\nnode.id={node_id}\\ndirectory.id={new_directory_id()}\\n"
    return f'cp -a "$RESCUED_DIR" {new}', f"printf {shlex.quote(meta)} > {new}/meta.properties"


def _dynamic_majority(found: Rescue) -> Steps:
    node = found.node
    old = listed(sorted({each for each in all_nodes(found.plan) if each in found.plan.voters} - {node.node_id}))
    yield ProcedureStep(
        "Back to a majority: for each new controller, with a fresh disk and controller.quorum.bootstrap.servers="
        f"{node.host}:{node.port}, format, start, and add it. Old ids ({old or 'none'}) return only this way.",
        commands=(
            format_disk(node.cluster_id, joins=True),
            add_controller(f"--bootstrap-controller {_place(found)}"),
        ),
    )


def _is_deleted(operation: Operation, kind: str) -> bool:
    return operation.kind == kind and operation.change == "deleted"


def _texts(steps: RestoreSteps) -> Iterator[str]:
    """The commands that a shell can pass on."""
    for step in steps:
        with contextlib.suppress(UnwritableError):
            if isinstance(step, Restored):
                yield step.command.text


def _shortened(texts: Sequence[str]) -> str:
    more = len(texts) - NAMED
    return "; ".join(texts[:NAMED]) + (f"; {more} more in rescue.json" if more > 0 else "")
