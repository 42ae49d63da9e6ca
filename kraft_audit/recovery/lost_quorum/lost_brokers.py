"""Brokers that cannot go on as the rescued state says: their disks are lost, or they fell behind in the lost part."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kraft_audit.recovery.lost_quorum.rescue_plan import RescuePlan
from kraft_audit.replay.cluster_state import ClusterState


@dataclass(frozen=True, slots=True)
class LostBrokers:
    """The brokers, and the partitions that had every replica in ISR and ELR on them.

    `lagging`: other replicas are left, which may lack acknowledged records. `unreplicated`: no replica is left.
    """

    brokers: tuple[int, ...]
    lagging: tuple[str, ...]
    unreplicated: tuple[str, ...]


def lost_brokers(
    plan: RescuePlan, registered: Collection[int], partitions: Iterable[Mapping[str, Any]], node_id: int
) -> LostBrokers:
    """Which voters that are registered as brokers have no disk among the copies. `node_id`: the rescued node."""
    left = {o.copy.node_id for o in plan.outcomes if o.copy.archived_ms is None} - set(plan.gone)
    lost = (set(registered) & set(plan.voters)) - left - {node_id}
    lagging, unreplicated = [], []
    for row in partitions:
        name = f"{row['topic']}-{row['partition']}"
        if set(row["replicas"]) <= lost:
            unreplicated.append(name)
        elif not {*row["isr"], *row["elr"]} - lost:
            lagging.append(name)
    return LostBrokers(tuple(sorted(lost)), tuple(sorted(lagging)), tuple(sorted(unreplicated)))


def dropped_replicas(at_cut: ClusterState, newest: ClusterState) -> dict[int, tuple[str, ...]]:
    """By broker, the partitions whose ISR it left in the lost part, as far as copies show it.

    The rescued state has it in the ISR again: it may lead there, and the others then truncate acknowledged records.
    """
    later = {(row["topic_id"], row["partition"]): row for row in newest.rows("partition_changes") if row["exists"]}
    found: dict[int, list[str]] = {}
    for row in at_cut.rows("partition_changes"):
        ended = later.get((row["topic_id"], row["partition"]))
        if not row["exists"] or ended is None:
            continue
        in_sync = {*ended["isr"], *ended["elr"]}
        for broker in {*row["isr"], *row["elr"]} & set(ended["replicas"]) - in_sync if in_sync else ():
            found.setdefault(broker, []).append(f"{row['topic']}-{row['partition']}")
    return {broker: tuple(sorted(names)) for broker, names in sorted(found.items())}
