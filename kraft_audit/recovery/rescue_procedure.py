"""What to do with a rescued node dir, in order, with the real ids, hosts and paths.

Each step stands here because leaving it out was seen to lose data or to split the quorum on real clusters.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Final

from kraft_audit.quorum.controller_commands import add_controller, format_disk
from kraft_audit.recovery.rescue import Rescue, all_nodes
from kraft_audit.recovery.state_differences import Operation
from kraft_audit.text.readable import listed

BROKER_STOP_S: Final = 90
"""SIGTERM does not end a broker without a quorum within this time (Kafka 4.3)."""
RIGHTS: Final = ("ACL", "SCRAM credential", "delegation token", "client quota")
NAMED: Final = 8


def loses_nothing(found: Rescue) -> bool:
    """Whether all that can have been committed is in the rescued dir."""
    source = found.source
    is_whole = source.unknown_from is None and source.lost_from >= source.lost_to and not found.lost_after_cut
    return is_whole and not source.loses and not source.brings_back


def procedure(found: Rescue) -> Iterator[str]:
    """The steps, the first one first."""
    yield from _before(found)
    yield from _start(found)
    yield from _after(found)
    yield from _never(found)


def _before(found: Rescue) -> Iterator[str]:
    node, controllers = found.node, sorted(set(found.plan.voters) | set(found.ghosts))
    best = found.plan.best
    if best is not None and best.copy.end > found.source.copy.end:
        yield (
            f"{best.copy.name} has a better copy (epoch {best.copy.last_epoch}, end offset {best.copy.end_offset}): "
            "go on with this dir only where that one cannot be used."
        )
    paths = [f"{o.copy.name}: {o.copy.path}" for o in found.plan.outcomes]
    yield (
        f"Power off every old controller ({listed(controllers)}), detach their disks, and copy them. Copies here: "
        f"{'; '.join(paths)}."
    )
    if found.plan.kraft_version == 0:
        yield (
            "No epoch fences an old majority of this static quorum: if two of them start again while node "
            f"{node.node_id} is down, they elect themselves, and with wiped disks they make node {node.node_id} "
            "truncate everything."
        )
    else:
        yield (
            "If a majority of the old controllers starts again, with another id or endpoint of the rescued node they "
            "form a second cluster, and a broker with an old disk may follow it."
        )
    brokers = ", ".join(f"{broker} ({place})" for broker, place in found.brokers) or "none is registered"
    if loses_nothing(found) and found.keeps_endpoint:
        yield f"Nothing is lost, and id and endpoint stay: brokers may go on running. Brokers: {brokers}."
    else:
        yield (
            f"Stop all brokers ({brokers}); without a quorum a broker does not stop by itself: kill -9 after "
            f"{BROKER_STOP_S} s. Back up their data dirs: a broker that runs while the rescued state loads deletes the "
            "logs of lost topics."
        )
    yield f"In every broker's config: controller.quorum.bootstrap.servers={node.host}:{node.port}, and no other server."


def _start(found: Rescue) -> Iterator[str]:
    node = found.node
    if found.source.loses or found.lost_after_cut:
        kit = shlex.quote(f"{found.out}-kit")
        yield (
            "Before the dir is moved, write down what brings the lost part back, and run it once the brokers are back: "
            f"kraft-audit restore-kit {shlex.quote(found.out)} --only-lost --out {kit}"
        )
    yield (
        f"Move {found.out} to the controller's host as its log dir. Its config: process.roles=controller, "
        f"node.id={node.node_id}, listeners={node.listener}://{node.host}:{node.port}, "
        f"controller.listener.names={node.listener}, controller.quorum.bootstrap.servers={node.host}:{node.port}, "
        "no controller.quorum.voters. Do not format it. Then start it."
    )
    place = shlex.quote(f"{node.host}:{node.port}")
    yield (
        f"Check it: kafka-metadata-quorum --bootstrap-controller {place} describe --status   leader "
        f"{node.node_id}, epoch above {found.epoch}, log end offset above {found.offset}"
    )
    yield (
        "Start all brokers. Until they are back every broker is fenced and partitions have no leader: that is to be "
        "expected. Never remove a folder that ends in -stray."
    )


def _after(found: Rescue) -> Iterator[str]:
    source = found.source
    lost = [*source.loses, *found.lost_after_cut]
    by_kind = {
        "Topics that are lost": [o for o in lost if o.kind == "topic" and o.change == "created"],
        "Topics that come back empty": [o for o in [*source.brings_back, *lost] if _is_deleted(o, "topic")],
        "Reassigned in the lost part": [o for o in lost if o.kind == "assignment"],
    }
    for what, found_here in by_kind.items():
        if found_here:
            yield f"{what}: {_named(found_here)}. {_DATA[what]}"
    revoked = [o for o in [*source.brings_back, *lost] if o.kind in RIGHTS and o.change != "created"]
    if revoked:
        yield f"Revoked or changed in the lost part, valid again: {_named(revoked)}. Remove them again and rotate."
    elif not loses_nothing(found):
        yield "What was revoked in the lost part is valid again (ACL, SCRAM, tokens, quotas): rotate what matters."
    if not loses_nothing(found):
        yield (
            "ISR and ELR are those of the rescued state: a replica that was dropped in the lost part may lead and "
            "truncate acknowledged data without an unclean election. Compare the partitions' log ends first."
        )
    levels = ", ".join(f"{name}={level}" for name, level in sorted(found.features.items()))
    yield f"Feature levels are those of the rescued state: {levels}; kraft.version=1."
    if found.ghosts:
        yield (
            f"Registrations of controllers {listed(found.ghosts)} stay. Where they are gone, metadata.version 4.4-IV2 "
            "cannot be reached until each was started once with its id (KAFKA-20295)."
        )


def _never(found: Rescue) -> Iterator[str]:
    node = found.node
    old = listed(sorted({each for each in all_nodes(found.plan) if each in found.plan.voters} - {node.node_id}))
    place = shlex.quote(f"{node.host}:{node.port}")
    yield (
        f"Back to a majority: on fresh disks {format_disk(node.cluster_id, joins=True)}, start, then "
        f"{add_controller(f'--bootstrap-controller {place}')}. "
        f"Old ids ({old or 'none'}) return only this way."
    )
    yield "Never rescue twice from different disks: both would have one cluster id."


_DATA: Final = {
    "Topics that are lost": (
        "Their brokers rename the logs to -stray: create the topic, stop the brokers, move the folder back and write "
        "the new topic id into partition.metadata."
    ),
    "Topics that come back empty": "Delete them again.",
    "Reassigned in the lost part": (
        "The old replicas lead, maybe empty, and the full copies become -stray: copy them back with brokers stopped."
    ),
}


def _is_deleted(operation: Operation, kind: str) -> bool:
    return operation.kind == kind and operation.change == "deleted"


def _named(operations: Sequence[Operation]) -> str:
    texts = [operation.subject for operation in operations[:NAMED]]
    more = len(operations) - len(texts)
    return "; ".join(texts) + (f"; {more} more in rescue.json" if more else "")
