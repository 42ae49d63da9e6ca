"""Whether snapshots say what the log says: a second replay beside the first, compared at every snapshot's end."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

import pyarrow as pa

from kraft_audit.capture.decoded_records import RecordColumns, between, end_of
from kraft_audit.capture.plan import ClusterPlan, ReplicaPlan
from kraft_audit.capture.survey import SurveyedSnapshot
from kraft_audit.replay.cluster_replay import ClusterReplay, drain
from kraft_audit.rules.cluster_history import SnapshotCheck
from kraft_audit.tables.contract import Table
from kraft_audit.tables.silver import STATE_TABLES
from kraft_codec.schemas.releases import ELR_FEATURE

NOT_STATE: Final = {
    *("cluster_id", "plan", "from_offset", "from_epoch", "timestamp_ms"),
    *("cause", "possible_causes", "cause_broker_id", "election"),
}
NOT_IN_SNAPSHOTS: Final = {"expected_elr", "effective_min_isr", "high_watermark_can_advance"}
"""Columns that no snapshot holds: the replay computes them from settings that may differ with the active controller."""
ELR_COLUMNS: Final = {"elr", "last_known_elr"}
COMPARED_COLUMNS: Final = {
    name: [column for column in table.column_names if column not in NOT_STATE | NOT_IN_SNAPSHOTS]
    for name, table in STATE_TABLES.items()
}
STATE_DIFFERENCES_MAX: Final = 50
SnapshotRecords = Callable[[str, int], Iterator[RecordColumns]]
"""The records of a snapshot by its source, and by the number of one of its versions."""


class StateComparison:
    """A second replay beside the first, stopped at every snapshot's end."""

    def __init__(self, plan: ClusterPlan) -> None:
        self._plan = plan
        self._replay = self._new()
        self._done: set[str] = set()
        self._fed_to = 0
        self.plans: Sequence[ReplicaPlan] = ()
        self.checks: list[SnapshotCheck] = []

    def _new(self) -> ClusterReplay:
        return ClusterReplay(
            cluster_id=self._plan.cluster_id,
            tables=frozenset(STATE_TABLES),
            defaults=dict(self._plan.defaults),
            emit_from_offset=(1 << 62) - 1,  # emits no row: only the state is asked for
        )

    def start(self, windows: Iterable[RecordColumns], snapshot: SurveyedSnapshot) -> None:
        """Begins at a snapshot's state instead of an empty one."""
        self._fed_to = snapshot.end_offset
        _load(self._replay, windows, snapshot)

    def feed(
        self,
        records: RecordColumns,
        window_end: int,
        snapshots: Sequence[SurveyedSnapshot],
        windows: SnapshotRecords,
    ) -> list[SurveyedSnapshot]:
        """Applies a window and compares at each snapshot's end in it; returns the snapshots that are yet to come.

        After the last of them nothing needs to be fed, and the state is let go. A window ends where its last batch
        begins, so its records may reach beyond `window_end`.
        """
        end = end_of(records, window_end)
        position = self._fed_to
        for snapshot in sorted(snapshots, key=lambda snapshot: (snapshot.end_offset, snapshot.epoch)):
            if snapshot.source in self._done or not position <= snapshot.end_offset <= end:
                continue
            self._done.add(snapshot.source)
            drain(self._replay.replay(between(records, position, snapshot.end_offset), snapshot.end_offset))
            drain(self._replay.finish())
            position = snapshot.end_offset
            for number in range(max(len(snapshot.versions), 1)):
                self._compare(self._replay, snapshot, number, windows)
        later = [snapshot for snapshot in snapshots if snapshot.end_offset > end]
        if later:
            drain(self._replay.replay(between(records, position, end), end))
        else:
            self._replay = self._new()
        self._fed_to = end
        return later

    def compare_versions(self, snapshot: SurveyedSnapshot, windows: SnapshotRecords) -> None:
        """Compares what copies of a snapshot say with what most of them say, where no replay was compared with it."""
        if snapshot.source in self._done:
            return
        self._done.add(snapshot.source)
        first = self._new()
        _load(first, windows(snapshot.source, 0), snapshot)
        for number in range(len(snapshot.versions)):
            self._compare(first, snapshot, number, windows, is_replayed=False)

    def _compare(
        self,
        known: ClusterReplay,
        snapshot: SurveyedSnapshot,
        number: int,
        windows: SnapshotRecords,
        *,
        is_replayed: bool = True,
    ) -> None:
        loaded = self._new()
        _load(loaded, windows(snapshot.source, number), snapshot)
        differences = tuple(islice(_differences(known, loaded), STATE_DIFFERENCES_MAX))
        held = snapshot.versions[number] if snapshot.versions else ()
        holders = {self.plans[own].identity: self.plans[own] for own in held if own < len(self.plans)}
        self.checks.append(
            SnapshotCheck(
                snapshot.end_offset,
                snapshot.epoch,
                differences,
                holders=tuple(holders.values()),
                is_replayed=is_replayed,
            )
        )


def _load(replay: ClusterReplay, windows: Iterable[RecordColumns], snapshot: SurveyedSnapshot) -> None:
    drain(replay.load_snapshot(windows, end_offset=snapshot.end_offset, epoch=snapshot.epoch, timestamp_ms=0))


def _differences(replayed: ClusterReplay, loaded: ClusterReplay) -> Iterator[str]:
    """What differs, one line a subject; the ELR only while its feature is on, as snapshots leave it out otherwise."""
    left, right = _state(replayed), _state(loaded)
    has_elr = any(
        row["name"] == ELR_FEATURE and row["feature_level"] > 0 for row in left["feature_changes"].to_pylist()
    )
    for name, table in STATE_TABLES.items():
        columns = [column for column in COMPARED_COLUMNS[name] if has_elr or column not in ELR_COLUMNS]
        mine, theirs = left[name].select(columns), right[name].select(columns)
        if mine.equals(theirs):
            continue
        rows = [_comparable(row) for row in mine.to_pylist()], [_comparable(row) for row in theirs.to_pylist()]
        yield from _rows_that_differ(table, *rows)


def _state(replay: ClusterReplay) -> dict[str, pa.Table]:
    """What is compared of everything that exists, each table in the order of its subjects."""
    batches: dict[str, list[pa.RecordBatch]] = {name: [] for name in STATE_TABLES}
    for name, batch in replay.state(0, 0, 0):
        batches[name].append(batch.select(COMPARED_COLUMNS[name]))  # the other columns' memory is let go
    return {name: _sorted(table, batches.pop(name)) for name, table in STATE_TABLES.items()}


def _sorted(table: Table, batches: Sequence[pa.RecordBatch]) -> pa.Table:
    schema = pa.schema([table.schema.field(column) for column in COMPARED_COLUMNS[table.name]])
    rows = pa.Table.from_batches(batches, schema)
    return rows.sort_by([(column, "ascending") for column in table.subject]).combine_chunks()


def _comparable(row: dict[str, Any]) -> dict[str, Any]:
    """A snapshot keeps no more of producer ids than the next one (ProducerIdsImage.write)."""
    if row.get("kind") != "PRODUCER_IDS" or row["state"] is None:
        return row
    return {**row, "state": json.loads(row["state"]).get("next_producer_id")}


def _rows_that_differ(table: Table, mine: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> Iterator[str]:
    left = {tuple(row[column] for column in table.subject): row for row in mine}
    right = {tuple(row[column] for column in table.subject): row for row in theirs}
    for key in sorted(left.keys() | right.keys()):
        before, after = left.get(key), right.get(key)
        if before == after:
            continue
        what = f"{table.subject_noun} {' '.join(map(str, key))}"
        if before is None or after is None:
            yield f"{what}: {'only in the snapshot' if before is None else 'not in the snapshot'}"
            continue
        changed = [column for column in before if before[column] != after[column]]
        shown = ", ".join(f"{column} {before[column]} → {after[column]}" for column in changed[:4])
        yield f"{what}: replayed → snapshot: {shown}"
