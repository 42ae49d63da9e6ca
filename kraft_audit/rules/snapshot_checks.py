"""Is a snapshot's state the replayed state at its offset? Both go through the same replay, so both have its columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from kraft_audit.replay.plan import ClusterPlan
from kraft_audit.replay.records import RecordColumns, between, end_of
from kraft_audit.replay.replay import ClusterReplay, drain
from kraft_audit.replay.survey import SurveyedSnapshot
from kraft_audit.rules.history import CONTRACTS, SnapshotCheck

NEVER: Final = (1 << 62) - 1
SUBJECTS: Final = {
    "partition_changes": ("topic_id", "partition"),
    "broker_changes": ("broker_id",),
    "controller_changes": ("controller_id",),
    "topic_changes": ("topic_id",),
    "config_changes": ("resource_type", "resource_name", "name"),
    "feature_changes": ("name",),
    "security_changes": ("kind", "subject"),
}
NOT_STATE: Final = {
    "cluster_id",
    "plan",
    "from_offset",
    "from_epoch",
    "timestamp_ms",
    "cause",
    "cause_broker_id",
    "election",
}
NOT_IN_SNAPSHOTS: Final = {"expected_elr", "effective_min_isr", "high_watermark_can_advance"}
"""Columns that no snapshot holds: the replay computes them from settings that may differ with the active controller."""
ELR_COLUMNS: Final = {"elr", "last_known_elr"}
COMPARED: Final = {
    name: [column.name for column in CONTRACTS[name].columns if column.name not in NOT_STATE | NOT_IN_SNAPSHOTS]
    for name in SUBJECTS
}
DIFFERENCES_MAX: Final = 50


class StateComparison:
    """A second replay beside the first, stopped at every snapshot's end."""

    def __init__(self, plan: ClusterPlan) -> None:
        self._plan = plan
        self._replay = self._new()
        self._done: set[str] = set()
        self._fed_to = 0
        self.checks: list[SnapshotCheck] = []

    def _new(self) -> ClusterReplay:
        return ClusterReplay(
            cluster_id=self._plan.cluster_id,
            tables=frozenset(SUBJECTS),
            defaults=dict(self._plan.defaults),
            emit_from_offset=NEVER,
        )

    def start(self, windows: Iterable[RecordColumns], snapshot: SurveyedSnapshot) -> None:
        """Begins at a snapshot's state instead of an empty one."""
        self._fed_to = snapshot.end_offset
        drain(self._replay.load_snapshot(windows, end_offset=snapshot.end_offset, epoch=snapshot.epoch, timestamp_ms=0))

    def feed(
        self,
        records: RecordColumns,
        window_end: int,
        snapshots: Sequence[SurveyedSnapshot],
        windows: Callable[[str], Iterator[RecordColumns]],
    ) -> list[SurveyedSnapshot]:
        """Applies a window and compares at each snapshot's end in it; those that are yet to come.

        Behind the last of them nothing needs to be fed, and the state is let go. A window ends where its last batch
        begins, so its records may reach beyond `window_end`.
        """
        end = end_of(records, window_end)
        position = self._fed_to
        for snapshot in sorted(snapshots, key=lambda one: (one.end_offset, one.epoch)):
            if snapshot.source in self._done or not position <= snapshot.end_offset <= end:
                continue
            self._done.add(snapshot.source)
            drain(self._replay.replay(between(records, position, snapshot.end_offset), snapshot.end_offset))
            drain(self._replay.finish(at_end=True))
            position = snapshot.end_offset
            other = self._new()
            loaded = windows(snapshot.source)
            drain(other.load_snapshot(loaded, end_offset=snapshot.end_offset, epoch=snapshot.epoch, timestamp_ms=0))
            differences = tuple(_differences(self._replay, other))
            self.checks.append(SnapshotCheck(snapshot.end_offset, snapshot.epoch, differences))
        later = [snapshot for snapshot in snapshots if snapshot.end_offset > end]
        if later:
            drain(self._replay.replay(between(records, position, end), end))
        else:
            self._replay = self._new()
        self._fed_to = end
        return later


def _differences(replayed: ClusterReplay, loaded: ClusterReplay) -> Iterator[str]:
    """What differs, one line a subject; the ELR only while its feature is on, as snapshots leave it out otherwise."""
    left, right = _state(replayed), _state(loaded)
    count = 0
    has_elr = any(
        row["name"] == "eligible.leader.replicas.version" and row["feature_level"] > 0
        for row in left["feature_changes"].to_pylist()
    )
    for name, subject in SUBJECTS.items():
        columns = [column for column in COMPARED[name] if has_elr or column not in ELR_COLUMNS]
        mine, theirs = left[name].select(columns), right[name].select(columns)
        if mine.equals(theirs):
            continue
        rows = [_comparable(row) for row in mine.to_pylist()], [_comparable(row) for row in theirs.to_pylist()]
        for text in _rows_that_differ(name, subject, *rows):
            count += 1
            if count > DIFFERENCES_MAX:
                return
            yield text


def _state(replay: ClusterReplay) -> dict[str, pa.Table]:
    """What is compared of everything that exists, each table in the order of its subjects."""
    batches: dict[str, list[pa.RecordBatch]] = {name: [] for name in SUBJECTS}
    for name, batch in replay.state(0, 0, 0):
        batches[name].append(batch.select(COMPARED[name]))  # the other columns' memory is let go
    return {name: _sorted(name, batches.pop(name)) for name in SUBJECTS}


def _sorted(name: str, batches: Sequence[pa.RecordBatch]) -> pa.Table:
    schema = pa.schema([CONTRACTS[name].schema.field(column) for column in COMPARED[name]])
    table = pa.Table.from_batches(batches, schema)
    return table.sort_by([(column, "ascending") for column in SUBJECTS[name]]).combine_chunks()


def _comparable(row: dict[str, Any]) -> dict[str, Any]:
    """A snapshot keeps no more of producer ids than the next one (facts 5.9)."""
    if row.get("kind") != "PRODUCER_IDS" or row["state"] is None:
        return row
    return {**row, "state": json.loads(row["state"]).get("next_producer_id")}


def _rows_that_differ(
    name: str, subject: Sequence[str], mine: list[dict[str, Any]], theirs: list[dict[str, Any]]
) -> Iterator[str]:
    left = {tuple(row[column] for column in subject): row for row in mine}
    right = {tuple(row[column] for column in subject): row for row in theirs}
    for key in sorted(left.keys() | right.keys()):
        before, after = left.get(key), right.get(key)
        if before == after:
            continue
        what = f"{name.removesuffix('_changes')} {' '.join(map(str, key))}"
        if before is None or after is None:
            yield f"{what}: {'only in the snapshot' if before is None else 'not in the snapshot'}"
            continue
        changed = [column for column in before if before[column] != after[column]]
        shown = ", ".join(f"{column} {before[column]} → {after[column]}" for column in changed[:4])
        yield f"{what}: replayed → snapshot: {shown}"
