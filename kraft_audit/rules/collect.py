"""From a planned cluster to its history: what `check` reads, in one go, without a ledger.

The log is surveyed (branches, epochs, voters, the committed interval), replayed along the canonical branch, and every
snapshot on the way is compared with the replayed state.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from kraft_audit.replay.analyze import analyze
from kraft_audit.replay.cluster import OpenStorage
from kraft_audit.replay.plan import ClusterPlan
from kraft_audit.replay.proven_plan import in_proven_order
from kraft_audit.replay.records import RecordColumns
from kraft_audit.replay.replay import ClusterReplay
from kraft_audit.replay.resume import Start
from kraft_audit.replay.silver import silver
from kraft_audit.replay.state import Undecoded
from kraft_audit.replay.survey import RecordWindow, Survey, SurveyedSnapshot, snapshot_windows, unread_by_now
from kraft_audit.replay.tables import PARTITION_CHANGES, SILVER, silver_batch
from kraft_audit.replay.voters import BOOTSTRAP_OFFSET, VoterSet, checkpoint_voters, voter_history, voter_set_rows
from kraft_audit.rules.history import CONTRACTS, INPUTS, ClusterHistory, Contradiction
from kraft_audit.rules.parts import PartitionParts
from kraft_audit.rules.snapshot_checks import StateComparison
from kraft_codec.redaction import Redactor
from kraft_codec.schemas import Dialect
from kraft_codec.tables import BATCHES, build_rows

BRONZE: Final = frozenset({"captures", "batches", "decode_errors"})
JUDGED_COLUMNS: Final = (
    *("node_id", "directory_id", "root", "path", "captured_at_ms", "capture_number", "source", "file_name", "position"),
    *("base_offset", "last_offset", "leader_epoch", "crc", "is_control", "max_timestamp_ms", "record_count"),
    *("size_bytes", "valid", "status"),
)
TRANSACTION_RECORDS: Final = {
    "BeginTransactionRecord": "BEGIN_TRANSACTION_RECORD",
    "EndTransactionRecord": "END_TRANSACTION_RECORD",
    "AbortTransactionRecord": "ABORT_TRANSACTION_RECORD",
}


class HistoryCollector:
    """Gathers what a reading of one cluster gives into the history that rules judge."""

    def __init__(
        self,
        plan: ClusterPlan,
        *,
        open_storage: OpenStorage,
        redactor: Redactor,
        compare_snapshots: bool = True,
        history_bytes_max: int | None = None,
        partition_bytes_max: int | None = None,
    ):
        self._plan = plan
        self._open_storage = open_storage
        self._redactor = redactor
        self._history_bytes_max = history_bytes_max
        self._partition_bytes_max = partition_bytes_max
        self._partition_bytes = 0
        self._parts: PartitionParts | None = None
        self._tables: dict[str, list[pa.RecordBatch]] = defaultdict(list)
        self._comparison = StateComparison(plan) if compare_snapshots else None
        self._later: list[SurveyedSnapshot] = []
        self._kept_bytes = 0
        self._dropped: set[str] = set()
        self._contradictions: tuple[Contradiction, ...] = ()
        self._is_complete = True
        self._states_from = 0
        self._undecoded = Undecoded()
        self._holes: tuple[tuple[int, int], ...] = ()
        self._is_read = False
        self._is_replayed = False

    def told(self, table: str, batch: pa.RecordBatch) -> None:
        """Rows of a table, the bronze ones of BRONZE among them.

        Beyond `partition_bytes_max` the partitions' history goes to disk. Beyond `history_bytes_max` the largest of
        what is held is let go: rules that need it say that they could not decide.
        """
        if table in self._dropped or table not in INPUTS:
            return
        if table == PARTITION_CHANGES.name and self._is_on_disk(batch):
            return
        if table == BATCHES.name and self._history_bytes_max is not None:
            batch = _as_judged(batch)
        self._tables[table].append(batch)
        self._kept_bytes += batch.nbytes
        if self._history_bytes_max is not None and self._kept_bytes > self._history_bytes_max:
            sizes = {name: sum(part.nbytes for part in parts) for name, parts in self._tables.items()}
            largest = max(sizes, key=lambda name: sizes[name])
            self._kept_bytes -= sizes[largest]
            self._dropped.add(largest)
            self._comparison = None
            del self._tables[largest]

    def _is_on_disk(self, batch: pa.RecordBatch) -> bool:
        """Puts a batch of the partitions' history to disk, if that is where it goes by now."""
        name = PARTITION_CHANGES.name
        self._partition_bytes += batch.nbytes
        if self._partition_bytes_max is None or self._partition_bytes <= self._partition_bytes_max:
            return False
        try:
            if self._parts is None:
                self._parts = PartitionParts()
            for earlier in self._tables.pop(name, []):
                self._kept_bytes -= earlier.nbytes
                self._parts.add(earlier)
            self._parts.add(batch)
        except OSError:
            self._parts = None
            self._dropped.add(name)
        return True

    def surveyed(self, shape: Survey, rows: Mapping[str, list[dict[str, Any]]]) -> None:
        """Raises ChangedError where a file that was read for the decoded tables can be read no more."""
        self._require_same_files(shape)
        self._is_read = shape.holds_anything
        others = _other_first_sets(shape, rows["voter_sets"], Dialect(self._plan.dialect))
        for name, small in {**rows, "voter_sets": rows["voter_sets"] + others}.items():
            self.told(name, silver_batch(SILVER[name], self._plan.cluster_id, self._plan.number, small))

    def _require_same_files(self, shape: Survey) -> None:
        if "decode_errors" in self._dropped:
            return
        columns = ["root", "path", "file_name", "reason"]
        told = {
            tuple(row.values()) for part in self._tables["decode_errors"] for row in part.select(columns).to_pylist()
        }
        for root, path, name, reason in sorted(shape.unread - told, key=str):
            raise unread_by_now((root, path, name), reason, "try again")

    def begins(self, start: Start, windows: Sequence[RecordColumns], shape: Survey) -> None:
        self._is_complete, self._states_from = start.is_complete, start.from_offset
        self._holes = tuple(start.holes(shape, start.from_offset, start.end_offset))
        self._is_replayed = bool(start.path) or start.snapshot is not None
        if start.snapshot is not None and self._comparison is not None:
            self._comparison.start(windows, start.snapshot)
        self._later = [s for s in shape.snapshots if start.from_offset < s.end_offset <= start.end_offset]

    def replayed(self, window: RecordWindow) -> None:
        self._undecoded.add(window.undecoded)
        self.told("records", _transaction_marks(self._plan, window.records))
        if self._comparison is not None and self._later:
            self._later = self._comparison.feed(window.records, window.to_offset, self._later, self._snapshot)

    def ended(self, replay: ClusterReplay) -> None:
        self._contradictions = tuple(Contradiction(one.offset, one.problem) for one in replay.problems)

    def history(self) -> ClusterHistory:
        """The cluster's history, when everything has been told."""
        plan = self._plan
        return ClusterHistory(
            plan.cluster_id,
            {
                name: _table(name, self._tables[name])
                for name in INPUTS
                if name not in self._dropped and not (name == PARTITION_CHANGES.name and self._parts is not None)
            },
            Dialect(plan.dialect),
            dict(plan.defaults),
            self._contradictions,
            None if self._comparison is None else tuple(self._comparison.checks),
            self._is_complete,
            self._states_from,
            self._undecoded.first_offset,
            self._is_read,
            self._is_replayed,
            self._parts,
            self._holes,
        )

    def _snapshot(self, source: str) -> Iterator[RecordColumns]:
        found = snapshot_windows(self._plan, source, open_storage=self._open_storage, redactor=self._redactor)
        return (window.records for window in found)


def read_history(
    plan: ClusterPlan,
    *,
    open_storage: OpenStorage,
    redactor: Redactor,
    compare_snapshots: bool = True,
    shape: Survey | None = None,
) -> ClusterHistory:
    """Reads a planned cluster whole, its captures in the order that they prove.

    `shape` is its survey where that has been made already: then the plan stands as it is. Raises InputError where a
    storage cannot be opened any more.
    """
    if shape is None:
        proven = in_proven_order(plan, open_storage=open_storage, redactor=redactor)
        plan, shape = proven.plan, proven.shape
    collector = HistoryCollector(
        plan, open_storage=open_storage, redactor=redactor, compare_snapshots=compare_snapshots
    )
    for name, batch in analyze(plan, BRONZE, open_storage=open_storage, redactor=redactor):
        collector.told(name, batch)
    for _ in silver(plan, open_storage=open_storage, redactor=redactor, observer=collector, shape=shape):
        pass
    return collector.history()


def _table(name: str, batches: Sequence[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(batches, batches[0].schema if batches else CONTRACTS[name].schema)


def _as_judged(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of `batches` in a third of the room: the columns that rules ask for, each text once.

    A quiet cluster writes two batches a second, and five voters hold each.
    """
    columns = [batch.column(name) for name in JUDGED_COLUMNS]
    columns = [column.dictionary_encode() if pa.types.is_string(column.type) else column for column in columns]
    return pa.RecordBatch.from_arrays(columns, JUDGED_COLUMNS)


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
