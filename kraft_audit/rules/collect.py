"""From a planned cluster to its history: what `check` reads, in one go, without a ledger.

The log is surveyed (branches, epochs, voters, the committed interval), replayed along the canonical branch, and every
snapshot on the way is compared with the replayed state.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa

from kraft_audit.replay.analyze import analyze
from kraft_audit.replay.cluster import OpenStorage
from kraft_audit.replay.plan import ClusterPlan
from kraft_audit.replay.records import RecordColumns
from kraft_audit.replay.replay import ClusterReplay
from kraft_audit.replay.rounds import RoundInterval, committed_intervals, quorum_rows
from kraft_audit.replay.survey import Survey, SurveyedSnapshot, canonical_windows, snapshot_windows, survey
from kraft_audit.replay.tables import SILVER, silver_batch
from kraft_audit.replay.voters import BOOTSTRAP_OFFSET, VoterSet, checkpoint_voters, voter_history, voter_set_rows
from kraft_audit.rules.history import CONTRACTS, INPUTS, ClusterHistory, Contradiction, SnapshotCheck
from kraft_audit.rules.snapshot_checks import StateComparison
from kraft_codec.redaction import Redactor
from kraft_codec.schemas import Dialect
from kraft_codec.tables import build_rows

BRONZE: Final = frozenset({"captures", "batches", "decode_errors"})
TRANSACTION_RECORDS: Final = {
    "BeginTransactionRecord": "BEGIN_TRANSACTION_RECORD",
    "EndTransactionRecord": "END_TRANSACTION_RECORD",
    "AbortTransactionRecord": "ABORT_TRANSACTION_RECORD",
}


@dataclass(slots=True)
class _Collected:
    tables: dict[str, list[pa.RecordBatch]] = field(default_factory=lambda: defaultdict(list))
    contradictions: tuple[Contradiction, ...] = ()
    snapshot_checks: tuple[SnapshotCheck, ...] = ()
    is_complete: bool = True


def read_history(
    plan: ClusterPlan,
    *,
    open_storage: OpenStorage,
    redactor: Redactor,
    compare_snapshots: bool = True,
    shape: Survey | None = None,
) -> ClusterHistory:
    """Reads a planned cluster whole; `shape` is its survey, where that has been made already.

    Raises InputError where a storage cannot be opened any more.
    """
    found = _Collected()
    for name, batch in analyze(plan, BRONZE, open_storage=open_storage, redactor=redactor):
        found.tables[name].append(batch)
    shape = shape or survey(plan, open_storage=open_storage, redactor=redactor)
    rows = quorum_rows(shape, plan)
    rows["voter_sets"] += _other_first_sets(shape, rows["voter_sets"], Dialect(plan.dialect))
    for name, small in rows.items():
        found.tables[name].append(silver_batch(SILVER[name], plan.cluster_id, plan.number, small))
    newest = next((one for one in reversed(committed_intervals(shape, plan)) if one.interval.canonical), None)
    _replay(plan, shape, newest, found, open_storage, redactor, compare_snapshots)
    tables = {name: pa.Table.from_batches(found.tables[name], CONTRACTS[name].schema) for name in INPUTS}
    return ClusterHistory(
        plan.cluster_id,
        tables,
        Dialect(plan.dialect),
        dict(plan.defaults),
        found.contradictions,
        found.snapshot_checks if compare_snapshots else None,
        found.is_complete,
    )


def _replay(
    plan: ClusterPlan,
    shape: Survey,
    newest: RoundInterval | None,
    found: _Collected,
    open_storage: OpenStorage,
    redactor: Redactor,
    compare_snapshots: bool,
) -> None:
    """Replays the canonical branch from its start, or from the first snapshot that the log goes on from."""
    canonical = None if newest is None else newest.interval.canonical
    path = [] if canonical is None else shape.path(canonical.number)
    start = shape.branches[path[0]].from_offset if path else 0
    end = 0 if canonical is None else canonical.end[1]
    first = _first_snapshot(shape, start, has_log=bool(path))
    replay = ClusterReplay(cluster_id=plan.cluster_id, plan=plan.number, defaults=dict(plan.defaults))
    comparison = StateComparison(plan) if compare_snapshots else None

    def windows(source: str) -> Iterator[RecordColumns]:
        for window in snapshot_windows(plan, source, open_storage=open_storage, redactor=redactor):
            yield window.records

    from_offset = start
    if first is not None:
        loaded = list(windows(first.source))
        from_offset = first.end_offset
        where = {"end_offset": first.end_offset, "epoch": first.epoch, "timestamp_ms": _snapshot_time(first)}
        _add(found, replay.load_snapshot(loaded, **where))
        if comparison is not None:
            comparison.start(loaded, first)
    found.is_complete = first is not None or start == 0
    later = [s for s in shape.snapshots if from_offset < s.end_offset <= end]
    cuts = sorted({snapshot.end_offset for snapshot in later})
    for window in canonical_windows(plan, path, open_storage=open_storage, redactor=redactor, from_offset=from_offset):
        if not path:
            break
        _add(found, replay.replay(window.records, window.to_offset))
        found.tables["records"].append(_transaction_marks(plan, window.records))
        if comparison is not None and cuts:
            comparison.feed(window.records, window.to_offset, later, windows)
    _add(found, replay.finish(at_end=True))
    found.contradictions = tuple(Contradiction(one.offset, one.problem) for one in replay.problems)
    found.snapshot_checks = tuple(comparison.checks) if comparison is not None else ()


def _add(found: _Collected, rows: Iterator[tuple[str, pa.RecordBatch]]) -> None:
    for name, batch in rows:
        found.tables[name].append(batch)


def _first_snapshot(shape: Survey, start: int, *, has_log: bool) -> SurveyedSnapshot | None:
    """The snapshot that the log goes on from; without a log the newest one there is."""
    real = [snapshot for snapshot in shape.snapshots if snapshot.end_offset > 0]
    if not has_log:
        return max(real, key=lambda one: (one.end_offset, one.epoch), default=None)
    if start == 0:
        return None
    return min((one for one in real if one.end_offset >= start), key=lambda one: one.end_offset, default=None)


def _snapshot_time(snapshot: SurveyedSnapshot) -> int:
    for record in snapshot.controls:
        if record.name == "SNAPSHOT_HEADER":
            return int(record.fields["last_contained_log_timestamp"])
    return 0


def _other_first_sets(shape: Survey, known: Sequence[dict[str, Any]], dialect: Dialect) -> list[dict[str, Any]]:
    """First voter sets of other quorums under this cluster id: two nodes that were formatted standalone."""
    sets: list[VoterSet] = []
    for snapshot in shape.snapshots:
        if snapshot.end_offset == 0:
            told = checkpoint_voters(snapshot.controls, 0, snapshot.epoch, dialect=dialect)
            sets += [told] if told is not None else []
    for branch in shape.branches:
        if branch.parent is None and branch.from_offset == 0 and dialect is Dialect.KIP853:
            told_by_log = voter_history(shape.controls_to(branch.number), dialect=dialect)
            sets += [replace(one, from_offset=BOOTSTRAP_OFFSET, source="bootstrap") for one in told_by_log[:1]]
    firsts = [row for row in known if row["source"] == "bootstrap"] or [
        row for row in known if row["source"] == "log" and not row["added"] and not row["removed"]
    ]
    seen = {_keys(row) for row in firsts[:1]}
    rows = []
    for each in sets:
        (row,) = voter_set_rows([each], canonical_to=BOOTSTRAP_OFFSET)
        if seen and _keys(row) not in seen:
            seen.add(_keys(row))
            rows.append(row)
    return rows


def _keys(row: dict[str, Any]) -> frozenset[tuple[int, str | None]]:
    return frozenset((voter["voter_id"], voter["directory_id"]) for voter in row["voters"])


def _transaction_marks(plan: ClusterPlan, records: RecordColumns) -> pa.RecordBatch:
    """Begin, End and Abort as rows of `records`."""
    contract = CONTRACTS["records"]
    rows = []
    for message, record_type in TRANSACTION_RECORDS.items():
        batch = records.get(message)
        for row in batch.to_pylist() if batch is not None else ():
            rows.append(
                {
                    **{column.name: None if column.nullable else 0 for column in contract.columns},
                    "cluster_id": plan.cluster_id,
                    "source": "log",
                    "offset": row["offset"],
                    "leader_epoch": row["leader_epoch"],
                    "timestamp_ms": row["timestamp_ms"],
                    "is_control": False,
                    "record_type": record_type,
                    "is_redacted": False,
                    "plan": plan.number,
                }
            )
    return build_rows(contract, sorted(rows, key=lambda row: row["offset"]))
