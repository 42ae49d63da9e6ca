"""min.insync.replicas as the log sets it: of topics, of nodes, and of all brokers."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kraft_audit.replay.partitions.window_events import MIN_ISR
from kraft_audit.rules.cluster_history import ClusterHistory, once_per_history


@dataclass(frozen=True, slots=True)
class MinIsrChange:
    """A record that sets or removes min.insync.replicas."""

    offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class MinIsrSettings:
    """min.insync.replicas as the log has it. `is_other`: a node has its own or the caller gave a default, so that the
    replayed minimum may be another one. `times_ms` are those of the changes by offset."""

    is_other: bool
    by_resource: Mapping[tuple[str, str], tuple[Sequence[int], Sequence[int | None]]]
    times_ms: Mapping[int, int]

    def of(self, topic: str, leader: int, offset: int) -> int:
        """The topic's value, else the leader's, else that of all brokers; 1 where the log has none."""
        for resource in _resources(topic, leader):
            offsets, values = self.by_resource.get(resource, ((), ()))
            place = bisect_right(offsets, offset) - 1
            value = values[place] if place >= 0 else None
            if value is not None:
                return value
        return 1

    def changes(self, topic: str, leader: int, after: int, before: int) -> list[MinIsrChange]:
        """What was set after an offset and before another one, as far as it may matter to a topic and its leader."""
        found = set[int]()
        for resource in _resources(topic, leader):
            offsets = self.by_resource.get(resource, ((), ()))[0]
            found.update(offsets[bisect_right(offsets, after) : bisect_left(offsets, before)])
        return [MinIsrChange(offset, self.times_ms[offset]) for offset in sorted(found)]


def _resources(topic: str, leader: int) -> tuple[tuple[str, str], ...]:
    return ("TOPIC", topic), ("BROKER", str(leader)), ("BROKER", "")


@once_per_history
def min_isr_settings(history: ClusterHistory) -> MinIsrSettings:
    rows = [row for row in history.rows_by_offset("config_changes") if row["name"] == MIN_ISR]
    has_own = any(row["resource_type"] == "BROKER" and row["resource_name"] for row in rows)
    found: dict[tuple[str, str], tuple[list[int], list[int | None]]] = {}
    for row in rows:
        offsets, values = found.setdefault((row["resource_type"], row["resource_name"]), ([], []))
        offsets.append(row["from_offset"])
        text = row["value"] if row["exists"] else None
        values.append(int(text) if text and text.strip().isdigit() else None)
    times_ms = {row["from_offset"]: row["timestamp_ms"] for row in rows}
    return MinIsrSettings(has_own or MIN_ISR in history.defaults, found, times_ms)
