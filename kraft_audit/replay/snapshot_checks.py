"""Snapshot ≡ replay: the state replayed up to a snapshot's offset against the state that the snapshot holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kraft_audit.replay.partition_events import ELR_FEATURE
from kraft_audit.replay.replay import ClusterReplay
from kraft_audit.replay.state import Sources, log_windows, snapshot_batches, usable_snapshots
from kraft_audit.replay.survey import SurveyedSnapshot
from kraft_audit.replay.tables import SILVER

MAX_DIFFERENCES: Final = 20
_NOT_STATE: Final = frozenset(
    {"plan", "from_offset", "from_epoch", "timestamp_ms", "cause", "cause_broker_id", "election", "expected_elr"}
    # The acting controller's own min.insync.replicas may differ, and no snapshot tells who that is.
    | {"effective_min_isr", "high_watermark_can_advance"}
)
_ELR: Final = frozenset({"elr", "last_known_elr"})


@dataclass(frozen=True, slots=True)
class SnapshotComparison:
    """One snapshot; `differences` are lines of "table key: column is X in the snapshot, Y replayed", at most 20."""

    source: str
    end_offset: int
    epoch: int
    differences: tuple[str, ...]


def snapshot_comparisons(sources: Sources) -> Iterator[SnapshotComparison]:
    """Compares every complete snapshot that lies within the branch's log, in the order of offsets.

    Left out are producer ids, of which a snapshot tells less, and, once ELR was switched off, the ELR fields: memory
    keeps them until the next change, snapshots do not (facts of Kafka 4.3.0).
    """
    epochs = sources.survey.epochs_to(sources.branch)
    if not epochs:
        return
    start, end = epochs[0].from_offset, epochs[-1].to_offset
    snapshots = usable_snapshots(sources, end)
    replay = _new_replay(sources)
    at = start
    for snapshot in snapshots:
        if snapshot.end_offset < start:
            continue
        if snapshot.end_offset == start and start > 0:
            _load(sources, replay, snapshot)  # nothing below it to compare with
            continue
        for window in log_windows(sources, at, snapshot.end_offset):
            below = {n: b.filter(pc.less(b.column("offset"), snapshot.end_offset)) for n, b in window.records.items()}
            for _ in replay.replay(below, min(window.to_offset, snapshot.end_offset)):
                pass
        for _ in replay.finish(at_end=True):
            pass
        at = snapshot.end_offset
        loaded = _new_replay(sources)
        _load(sources, loaded, snapshot)
        yield SnapshotComparison(snapshot.source, snapshot.end_offset, snapshot.epoch, _differences(replay, loaded))


def _new_replay(sources: Sources) -> ClusterReplay:
    return ClusterReplay(
        cluster_id=sources.plan.cluster_id, defaults=dict(sources.plan.defaults), emit_from_offset=1 << 62
    )


def _load(sources: Sources, replay: ClusterReplay, snapshot: SurveyedSnapshot) -> None:
    batches = snapshot_batches(sources, snapshot)
    for _ in replay.load_snapshot(batches, end_offset=snapshot.end_offset, epoch=snapshot.epoch, timestamp_ms=0):
        pass


def _differences(replayed: ClusterReplay, loaded: ClusterReplay) -> tuple[str, ...]:
    mine, theirs = _tables(replayed), _tables(loaded)
    elr_on = ELR_FEATURE in replayed.histories["feature_changes"].state
    found: list[str] = []
    for name in sorted(mine.keys() | theirs.keys()):
        columns = [
            column
            for column in SILVER[name].column_names
            if column not in _NOT_STATE and (elr_on or column not in _ELR)
        ]
        first, second = (_sorted(tables.get(name), name, columns) for tables in (mine, theirs))
        if not first.equals(second):
            found += _row_differences(name, first.to_pylist(), second.to_pylist())
    return tuple(found[:MAX_DIFFERENCES])


def _tables(replay: ClusterReplay) -> dict[str, pa.Table]:
    found: dict[str, list[pa.RecordBatch]] = {}
    for name, batch in replay.state(0, 0, 0):
        found.setdefault(name, []).append(batch)
    return {name: pa.Table.from_batches(batches) for name, batches in found.items()}


def _sorted(table: pa.Table | None, name: str, columns: list[str]) -> pa.Table:
    if table is None:
        table = SILVER[name].schema.empty_table()
    if name == "security_changes":
        table = table.filter(pc.not_equal(table.column("kind"), "PRODUCER_IDS"))
    keys = [(column, "ascending") for column in SILVER[name].key if column in columns]
    return table.select(columns).sort_by(keys).combine_chunks()


def _row_differences(name: str, replayed: list[dict[str, Any]], loaded: list[dict[str, Any]]) -> list[str]:
    keys = [column for column in SILVER[name].key if column not in ("cluster_id", "from_offset")]
    mine, theirs = ({tuple(row[key] for key in keys): row for row in rows} for rows in (replayed, loaded))
    found = []
    for key in sorted(mine.keys() | theirs.keys(), key=str):
        subject = f"{name} {' '.join(map(str, key))}"
        if key not in theirs:
            found.append(f"{subject}: missing in the snapshot")
        elif key not in mine:
            found.append(f"{subject}: only in the snapshot")
        else:
            found += [
                f"{subject}: {column} is {theirs[key][column]} in the snapshot, {value} replayed"
                for column, value in mine[key].items()
                if theirs[key][column] != value
            ]
        if len(found) >= MAX_DIFFERENCES:
            break
    return found
