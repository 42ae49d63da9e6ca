"""What to do with a rescued node dir, in order, with the real ids, hosts and paths.

Each step stands here because leaving it out was seen to lose data or to split the quorum on real clusters.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from kraft_audit.recovery.lost_quorum.broker_steps import before_the_start, broker_starts
from kraft_audit.recovery.lost_quorum.config_steps import brokers_config, first_start, other_combined
from kraft_audit.recovery.lost_quorum.lost_part import INTERNAL_TOPIC
from kraft_audit.recovery.lost_quorum.majority_steps import dynamic_majority, static_majority
from kraft_audit.recovery.lost_quorum.procedure_step import (
    ProcedureStep,
    Steps,
    brokers_left,
    combined_nodes,
    controller_option,
    is_combined,
    loses_nothing,
    shortened,
)
from kraft_audit.recovery.lost_quorum.rescue import Rescue
from kraft_audit.recovery.restore.restore_commands import acl_text, command_texts
from kraft_audit.recovery.restore.state_differences import Operation
from kraft_audit.recovery.start_order import StartOrder
from kraft_audit.text.readable import any_of, listed, nouns, offset_span
from kraft_codec.schemas.releases import KRAFT_VERSION_FEATURE

MOVE_OLD_METADATA: Final = 'mv "$DATA_DIR"/__cluster_metadata-0 "$DATA_DIR"-old-metadata'
RIGHTS: Final = ("SCRAM credential", "delegation token", "client quota")


def procedure(rescue: Rescue, order: StartOrder) -> Steps:
    """The steps, the first one first. `order` is that in which brokers have to start, by the rescued state."""
    yield from _before(rescue)
    yield from _start(rescue, order)
    yield from _after(rescue)
    yield from _later(rescue)


def what_is_lost(rescue: Rescue) -> str:
    """In one line, what the rescued state lacks of what was committed, and what it has that was undone."""
    source = rescue.source
    lost = [operation.text for operation in (*source.loses, *rescue.lost_after_cut)]
    if source.lost_from < source.lost_to:
        without = "" if source.loses else ", without an operation in them"
        lost.append(f"{offset_span(source.lost_from, source.lost_to)}, already committed{without}")
    if source.unknown_from is not None:
        lost.append(f"whatever only disks held that were not read, from offset {source.unknown_from} on")
    back = shortened([operation.text for operation in source.brings_back])
    return f"Lost: {shortened(lost) or 'nothing'}.{f' Undone: {back}.' if back else ''}"


def _before(rescue: Rescue) -> Steps:
    controllers = sorted(set(rescue.plan.voters) | set(rescue.ghosts))
    best = rescue.plan.best
    if best is not None and best.copy.end > rescue.source.copy.end:
        yield ProcedureStep(
            f"A better copy is that of {best.copy.name}: epoch {best.copy.last_epoch}, end offset "
            f"{best.copy.end_offset}. Go on with this dir only where that one cannot be used."
        )
    own = rescue.dropped.get(rescue.node.node_id, ())
    if own:
        yield ProcedureStep(
            "Build the dir again with --node-id and --endpoint, for a controller of its own with an id that no broker "
            f"has: node {rescue.node.node_id} is a broker too, and left the ISR of {shortened(own)} in the lost part. "
            "It may lead them, and the others then truncate acknowledged records."
        )
    combined = combined_nodes(rescue)
    are = "is a broker" if len(combined) == 1 else "are brokers"
    both = f" {nouns('Node', combined)} {are} too: the data goes on, the old metadata log does not."
    detached = " Detach the disks that are left of them, so that nothing starts from these."
    yield ProcedureStep(
        f"Power off every old controller ({listed(controllers)}), and {_old_majority(rescue)} Power off those too that "
        f"are said to be gone: they may come back.{both if combined else detached} {_copies_here(rescue)}"
    )
    yield from before_the_start(rescue)
    if _needs_kit(rescue):
        yield ProcedureStep(
            "Before anything is moved, write down what brings the lost part back:",
            commands=(_write_kit(rescue, shlex.quote(rescue.out), _internal(rescue)),),
        )
    if rescue.moved_logs:
        yield ProcedureStep(
            f"Reassigned in the lost part: {shortened([log.text for log in rescue.moved_logs])}. The old replicas "
            "lead again, and their logs are gone. While all brokers are stopped, copy the full logs back.",
            commands=tuple(command for log in rescue.moved_logs for command in log.commands),
        )
    if combined:
        yield ProcedureStep(
            f"Before node {any_of(combined)} starts again, move its old metadata log out of its data dirs: Kafka does "
            "not start beside it, or goes on with the old quorum. DATA_DIR is the data dir that holds it.",
            commands=(MOVE_OLD_METADATA,),
        )
    yield from brokers_config(rescue)


def _old_majority(rescue: Rescue) -> str:
    """What an old majority does that starts again. It is fenced where it finds the rescued node, and only there."""
    name = f"node {rescue.node.node_id}"
    disk = "its old metadata log" if combined_nodes(rescue) else "its old disk"
    disk += " or a wiped disk" if rescue.plan.kraft_version == 0 else ""
    when = f" while {name} is down" if rescue.keeps_endpoint else f", as it does not find {name} where that is now"
    return (
        f"never start one from {disk} again: a majority of them elects itself{when}. That is a second "
        "cluster of the same id, and a broker that finds it may follow it."
    )


def _copies_here(rescue: Rescue) -> str:
    paths = [f"{o.copy.name}: {o.copy.path}" for o in rescue.plan.outcomes]
    return f"Copies here: {'; '.join(paths)}."


def _strays(rescue: Rescue) -> ProcedureStep:
    """Every log that the rescued state does not know: acknowledged records stay in it until it is moved back."""
    groups: dict[str, list[str]] = {}
    for stray in rescue.strays:
        groups.setdefault(stray.kind, []).append(stray.text)
    known = "".join(f" {kind.capitalize()}: {shortened(texts)}." for kind, texts in groups.items())
    unknown = "" if known else " No copy shows which these are."
    return ProcedureStep(
        "Keep clients away, list the folders that end in -stray in each log dir of every broker, and never remove one. "
        "A broker gives that name to the log of a partition that the rescued state does not know. "
        f"Acknowledged records are in them.{known}{unknown} Each needs its "
        "topic and partition again, and is then moved back as the end of restore.sh says.",
        commands=('find "$DATA_DIR" -maxdepth 1 -name "*-stray"',),
    )


def _unknown_strays(rescue: Rescue) -> ProcedureStep:
    """No copy that was read shows the lost part, but brokers' copies do: those of before they started."""
    return ProcedureStep(
        "If there are any, put what was read and the brokers' backed-up dirs into one folder, OLD_DISKS, and let the "
        "brokers' copies of the metadata log say what brings these topics back. RESCUED_DIR is the rescued dir where "
        "it is now, or a copy of it. Read the head of the script before you run it: it names topics to delete first. "
        "Then do what its end says of old logs and of rights, and only then let clients come back. Paths in it are "
        "those of the backups: the logs lie in the brokers' own data dirs.",
        commands=(
            _write_kit(rescue, '"$RESCUED_DIR" --old-disks "$OLD_DISKS"', " --internal-topics"),
            _run_kit(rescue),
        ),
    )


def _write_kit(rescue: Rescue, rescued_dir: str, internal: str) -> str:
    return f"kraft-audit restore-kit {rescued_dir} --only-lost{internal} --out {shlex.quote(_kit(rescue))}"


def _run_kit(rescue: Rescue) -> str:
    return f"BOOTSTRAP_SERVER={shlex.quote(_server(rescue))} bash {shlex.quote(_kit(rescue) + '/restore.sh')}"


def _kit(rescue: Rescue) -> str:
    return f"{rescue.out}-kit"


def _internal(rescue: Rescue) -> str:
    """Kafka makes its own topics again by itself, but empty, and their logs of before stay strays."""
    return " --internal-topics" if any(stray.kind == INTERNAL_TOPIC for stray in rescue.strays) else ""


def _needs_kit(rescue: Rescue) -> bool:
    return bool(rescue.source.loses or rescue.lost_after_cut)


def _start(rescue: Rescue, order: StartOrder) -> Steps:
    node = rescue.node
    yield from first_start(rescue)
    yield ProcedureStep(
        f"Check it: LeaderId is {node.node_id}, LeaderEpoch above {rescue.epoch}, HighWatermark above {rescue.offset}, "
        f"CurrentVoters node {node.node_id} alone; if not, stop here and start no broker:",
        commands=(f"kafka-metadata-quorum {controller_option(rescue)} describe --status",),
    )
    left = sorted(set(combined_nodes(rescue)) - set(rescue.lost_brokers.brokers) - {node.node_id})
    if left and is_combined(rescue):
        yield other_combined(rescue, left)
    yield from broker_starts(rescue, order)
    if rescue.lost_brokers.brokers:
        yield _elections(rescue)
    for broker, names in rescue.dropped.items():
        if broker not in brokers_left(rescue):
            continue
        yield ProcedureStep(
            f"Start broker {broker} last, once others lead {shortened(names)}: it left their ISR in the lost part. If "
            "it led, the others would truncate acknowledged records."
        )


def _elections(rescue: Rescue) -> ProcedureStep:
    """Partitions that wait for brokers which never return, and would follow one that returned empty.

    A broker that was killed leaves ISR and ELR when it returns, where ELR is on (ReplicationControlManager, Kafka 4.3).
    """
    lost, ask = rescue.lost_brokers, f"--bootstrap-server {shlex.quote(_server(rescue))}"
    lagging = f" Only they had in sync, so records may be lost: {shortened(lost.lagging)}." if lost.lagging else ""
    none = f" No replica is left of {shortened(lost.unreplicated)}." if lost.unreplicated else ""
    return ProcedureStep(
        f"{nouns('Broker', lost.brokers)} lost all data. Partitions that wait for that have no leader, once sessions "
        "have timed out (broker.session.timeout.ms). Elect what is left, before such an id returns empty: an empty "
        f"leader empties the others.{lagging}{none}",
        commands=(
            f"kafka-topics {ask} --describe --unavailable-partitions",
            f"kafka-leader-election {ask} --election-type unclean --all-topic-partitions",
        ),
    )


def _server(rescue: Rescue) -> str:
    """Where a broker listens that is left, and not one that starts last."""
    left = [each for each in rescue.brokers if each[0] not in rescue.lost_brokers.brokers]
    return min(left, key=lambda each: each[0] in rescue.dropped)[1] if left else "HOST:PORT"


def _after(rescue: Rescue) -> Steps:
    source = rescue.source
    lost = [*source.loses, *rescue.lost_after_cut]
    server = _server(rescue)
    deleted = [o.subject.split(" ")[0] for o in [*source.brings_back, *lost] if _is_deleted(o, "topic")]
    ask = f"--bootstrap-server {shlex.quote(server)}"
    if not loses_nothing(rescue):
        yield _strays(rescue)
    if deleted:
        yield ProcedureStep(
            f"Topics that come back empty: {shortened(deleted)}. Delete them again, before the lost part is back: one "
            "of them may have been made again under its name.",
            commands=tuple(f"kafka-topics {ask} --delete --topic {shlex.quote(topic)}" for topic in deleted),
        )
    if _needs_kit(rescue):
        yield ProcedureStep(
            "Bring the lost part back, then do what the end of the script says of old logs. Only then let clients come "
            "back.",
            commands=(_run_kit(rescue),),
        )
    elif source.unknown_from is not None:
        yield _unknown_strays(rescue)
    yield from _revoked(rescue, lost)
    yield from _notes(rescue)


def _revoked(rescue: Rescue, lost: Sequence[Operation]) -> Steps:
    """Rights that the lost part took away or changed."""
    rights = [o.subject for o in [*rescue.source.brings_back, *lost] if o.kind in RIGHTS and o.change != "created"]
    revoked = [*map(acl_text, rescue.revoked.acls), *rights]
    if revoked:
        steps = rescue.revoked.removal_steps(("--bootstrap-server", _server(rescue)))
        yield ProcedureStep(
            f"Revoked or changed in the lost part, valid again: {shortened(revoked)}. Take them back and rotate.",
            commands=tuple(command_texts(steps)),
        )
    elif not loses_nothing(rescue):
        yield ProcedureStep(
            "What was revoked in the lost part is valid again (ACL, SCRAM, tokens, quotas): rotate what matters.",
            is_note=True,
        )


def _notes(rescue: Rescue) -> Steps:
    """What there is to know beside the steps."""
    if not loses_nothing(rescue):
        yield ProcedureStep(
            "ISR and ELR are those of the rescued state: a replica that was dropped in the lost part may lead and "
            "truncate acknowledged data without an unclean election. Compare the partitions' log ends first.",
            is_note=True,
        )
    if rescue.brokers_with_login:
        want = "wants" if len(rescue.brokers_with_login) == 1 else "want"
        yield ProcedureStep(
            f"{nouns('Broker', rescue.brokers_with_login)} {want} a login or TLS at every listener. Add "
            "--command-config FILE to each command above that asks a broker, restore-kit too. For "
            "kafka-leader-election the option is --admin.config.",
            is_note=True,
        )
    levels = {**rescue.features, KRAFT_VERSION_FEATURE: 0 if rescue.node.is_static else 1}
    shown = ", ".join(f"{name}={level}" for name, level in sorted(levels.items()))
    yield ProcedureStep(f"Feature levels are those of the rescued state: {shown}.", is_note=True)
    if rescue.ghosts:
        yield ProcedureStep(
            f"Registrations of old controllers stay: {listed(rescue.ghosts)}. Where such a node is gone, "
            "metadata.version 4.4-IV2 cannot be reached until one was started once with its id (KAFKA-20295).",
            is_note=True,
        )


def _later(rescue: Rescue) -> Steps:
    """How one controller becomes a majority again."""
    if not rescue.node.is_static:
        steps = dynamic_majority(rescue)
    else:
        steps = static_majority(rescue) if rescue.others else iter(())
    yield from (replace(step, is_later=True) for step in steps)


def _is_deleted(operation: Operation, kind: str) -> bool:
    return operation.kind == kind and operation.change == "deleted"
