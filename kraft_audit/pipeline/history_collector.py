"""From a planned cluster to the history that rules judge: what `check` reads, in one go, without a ledger.

The log is surveyed (branches, epochs, voters, the committed interval) and replayed along the canonical branch. Every
snapshot on the way is compared with the replayed state at its offset; one kind of replay makes both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from kraft_audit.capture.altered_batches import AlteredBatches
from kraft_audit.capture.decoded_records import RecordColumns, RecordWindow
from kraft_audit.capture.log_facts import BATCH_COPIES, LOG_RUNS, LogFacts
from kraft_audit.capture.replica import copied_times_ms, written_times_ms
from kraft_audit.capture.set_aside import SetAsideLog
from kraft_audit.capture.survey import Survey, SurveyedSnapshot
from kraft_audit.losses.replica_disks import ReplicaLog, ReplicaLogs, replica_logs
from kraft_audit.quorum.proven_order import stated_captures
from kraft_audit.quorum.quorum_tables import voter_set_rows
from kraft_audit.quorum.rounds import proven_rounds
from kraft_audit.quorum.voter_history import BOOTSTRAP_OFFSET, VoterSet, checkpoint_voters, voter_history
from kraft_audit.reading import ClusterReading
from kraft_audit.replay.branch_choice import PartedLog, parted_logs
from kraft_audit.replay.cluster_replay import ClusterReplay
from kraft_audit.replay.driver import BranchLog, ReplayStart, UndecodedRecords, replay_canonical
from kraft_audit.rules.cluster_history import CONTRACTS, INPUTS, ClusterHistory, Contradiction, OperatorWord
from kraft_audit.rules.columns.voter_sets import keys_of
from kraft_audit.rules.state_comparison import StateComparison
from kraft_audit.tables.bronze import BATCHES, RECORDS
from kraft_audit.tables.contract import silver_batch
from kraft_audit.tables.silver import SILVER
from kraft_codec.schemas import Dialect

JUDGED_TABLES: Final = frozenset({"captures", "decode_errors"})
"""The bronze tables that rules judge, beside the batches, of which `HistoryCollector.facts` learn."""
TOPIC_TABLES: Final = frozenset({"topic_changes"})
JUDGED_COLUMNS: Final = (
    *("node_id", "directory_id", "root", "path", "captured_at_ms", "capture_number", "source", "file_name", "position"),
    *("base_offset", "last_offset", "leader_epoch", "crc", "is_control", "base_timestamp_ms", "max_timestamp_ms"),
    *("record_count", "size_bytes", "valid", "status"),
)
TRANSACTION_RECORDS: Final = {
    "BeginTransactionRecord": "BEGIN_TRANSACTION_RECORD",
    "EndTransactionRecord": "END_TRANSACTION_RECORD",
    "AbortTransactionRecord": "ABORT_TRANSACTION_RECORD",
}
MARK_SCHEMA: Final = pa.schema(
    list(map(RECORDS.schema.field, ("source", "offset", "leader_epoch", "timestamp_ms", "record_type", "record")))
)


class HistoryCollector:
    """Gathers what a reading of one cluster gives into the history that rules judge."""

    def __init__(self, reading: ClusterReading) -> None:
        self._plan = reading.plan
        self._reading = reading
        self._tables: dict[str, list[pa.RecordBatch]] = defaultdict(list)
        self.facts = LogFacts(self._take_batches)
        self._comparison = StateComparison(reading.plan)
        self._later: list[SurveyedSnapshot] = []
        self._several: list[SurveyedSnapshot] = []
        self._contradictions: tuple[Contradiction, ...] = ()
        self._is_complete = True
        self._states_from = 0
        self._undecoded = UndecodedRecords()
        self._gaps: tuple[tuple[int, int], ...] = ()
        self._altered: tuple[AlteredBatches, ...] = ()
        self._parted: tuple[PartedLog, ...] = ()
        self._set_aside: tuple[SetAsideLog, ...] = ()
        self._snapshot_times_ms: dict[int, int] = {}
        self._written_ms: dict[tuple[str, str], int] = {}
        self._copied_ms: dict[tuple[str, str], int] = {}
        self._stated_earlier: dict[int, frozenset[int]] = {}
        self._is_read = self._is_unstarted = False
        self._is_replayed = False

    def take_rows(self, table: str, batch: pa.RecordBatch) -> None:
        """Rows of a table, the bronze ones of JUDGED_TABLES among them."""
        if table not in INPUTS:
            return
        if table == BATCHES.name:
            self.facts.add_rows(batch)
        else:
            self._tables[table].append(batch)

    def _take_batches(self, rows: pa.RecordBatch) -> None:
        self._tables[BATCHES.name].append(_as_judged(rows))

    def surveyed(self, survey: Survey, rows: Mapping[str, list[dict[str, Any]]]) -> None:
        """The survey, and the rows of the small silver tables."""
        self._is_unstarted = survey.is_unstarted
        self._is_read = survey.holds_anything or survey.is_unstarted
        plans = [replica.plan for replica in survey.replicas]
        self._comparison.plans = plans
        self._written_ms = written_times_ms(survey.replicas)
        self._copied_ms = copied_times_ms(survey.replicas)
        self._stated_earlier = stated_captures(replica for replica in survey.replicas if replica.is_accepted)
        self._set_aside = tuple(each.set_aside for each in survey.replicas if each.set_aside is not None)
        self._altered = tuple(AlteredBatches.of(run, plans) for run in survey.altered)
        self._tables[LOG_RUNS.name] = [log_runs(survey)]
        self._snapshot_times_ms = {
            snapshot.end_offset: time_ms for snapshot in survey.snapshots if (time_ms := snapshot.timestamp_ms)
        }
        self._parted = self._parted_logs(survey, rows)
        others = _other_first_sets(survey, rows["voter_sets"], self._plan.known_dialect)
        for name, small in {**rows, "voter_sets": rows["voter_sets"] + others}.items():
            self.take_rows(name, silver_batch(SILVER[name], self._plan.cluster_id, self._plan.number, small))

    def _parted_logs(self, survey: Survey, rows: Mapping[str, list[dict[str, Any]]]) -> tuple[PartedLog, ...]:
        """The logs that contradict each other, where none is canonical or two led one epoch, if all is read here."""
        watermarks, led = rows["watermarks"], defaultdict(set)
        for row in rows["leader_epochs"]:
            if row["leader_change_offset"] is not None:
                led[row["epoch"]].add(row["leader_id"])
        is_canonical = not watermarks or watermarks[-1]["canonical_end_offset"] is not None
        is_clear = is_canonical and all(len(leaders) == 1 for leaders in led.values())
        if is_clear or not watermarks:
            return ()
        return parted_logs(self._reading, proven_rounds(survey, self._plan)[-1], TOPIC_TABLES)

    def begins(self, log: BranchLog, start: ReplayStart, windows: Sequence[RecordColumns]) -> None:
        self._is_complete, self._states_from = start.is_complete, start.from_offset
        self._gaps = tuple(log.gaps(start.from_offset, start.end_offset))
        self._is_replayed = log.branch is not None or start.snapshot is not None
        if start.snapshot is not None:
            self._comparison.start(windows, start.snapshot)
        self._several = [snapshot for snapshot in log.survey.snapshots if len(snapshot.versions) > 1]
        self._later = [s for s in log.survey.snapshots if start.from_offset < s.end_offset <= start.end_offset]

    def replayed(self, window: RecordWindow) -> None:
        self._undecoded.add(window.undecoded)
        self.take_rows("records", _transaction_marks(window.records))
        if self._later:
            self._later = self._comparison.feed(window.records, window.to_offset, self._later, self._snapshot)

    def ended(self, replay: ClusterReplay) -> None:
        for snapshot in self._several:
            self._comparison.compare_versions(snapshot, self._snapshot)
        self._contradictions = tuple(Contradiction(problem.offset, problem.problem) for problem in replay.problems)

    def history(self) -> ClusterHistory:
        """The cluster's history, when everything has been taken."""
        return ClusterHistory(
            self._plan.cluster_id,
            {name: self._table(name) for name in INPUTS},
            self._plan.known_dialect,
            dict(self._plan.defaults),
            self._contradictions,
            tuple(self._comparison.checks),
            self._is_complete,
            self._states_from,
            self._undecoded.first_offset,
            self._is_read,
            self._is_replayed or self._is_unstarted,  # without a record there is nothing to replay
            self._gaps,
            self._altered,
            snapshot_times_ms=self._snapshot_times_ms,
            written_ms=self._written_ms,
            copied_ms=self._copied_ms,
            stated_earlier=self._stated_earlier,
            set_aside=self._set_aside,
            history_of=self._plan.history_of,
            history_id=self._plan.key,
            operator=OperatorWord(self._plan.is_running, frozenset(self._plan.gone)),
            read_disks=self._read_disks,
            parted=self._parted,
        )

    def _read_disks(self, wanted: Collection[tuple[str, int]], times_ms: Mapping[int, int]) -> ReplicaLogs:
        """What brokers' disks hold of some partitions, in all captures of all roots."""
        logs: dict[tuple[str, int], tuple[ReplicaLog, ...]] = {}
        for root in dict.fromkeys(replica.root for replica in self._plan.replicas if not replica.is_archived):
            own = replace(self._plan, replicas=tuple(r for r in self._plan.replicas if r.root == root))
            with self._reading.settings.open_storage(root) as storage:
                read = replica_logs(storage, own, wanted, every_capture=True, read_not_before_ms=times_ms)
            for place, found in read.items():
                logs[place] = (*logs.get(place, ()), *found)
        return logs

    def _table(self, name: str) -> pa.Table:
        if name == BATCH_COPIES.name:
            return self.facts.copies()
        batches = self._tables[name]
        return pa.Table.from_batches(batches, batches[0].schema if batches else CONTRACTS[name].schema)

    def _snapshot(self, source: str, version: int) -> Iterator[RecordColumns]:
        return (window.records for window in self._reading.snapshot(source, version))


def read_history(readings: Iterable[ClusterReading]) -> ClusterHistory:
    """The history of a whole plan from the last of some readings of it, none of which has begun: an `OrderedReading`.

    Raises InputError where a storage cannot be opened.
    """
    for reading in readings:
        collector = HistoryCollector(reading)
        for name, batch in reading.bronze(JUDGED_TABLES, collector.facts):
            collector.take_rows(name, batch)
    replay_canonical(reading, collector)
    return collector.history()


def log_runs(survey: Survey) -> pa.RecordBatch:
    """What each captured log holds, in the columns of LOG_RUNS."""
    rows = []
    for replica, end in zip(survey.replicas, survey.ends, strict=True):
        columns = replica.source_columns()
        of_capture = {name: columns[name] for name in LOG_RUNS.column_names if name in columns}
        for epoch in survey.epochs_to(end.branch, end.end_offset):
            gaps = survey.gaps_to(end.branch, epoch.from_offset, epoch.to_offset)
            starts = [epoch.from_offset, *(gap_end for _, gap_end in gaps)]
            ends = [*(gap_start for gap_start, _ in gaps), epoch.to_offset]
            runs = ((start, to_offset) for start, to_offset in zip(starts, ends, strict=True) if start < to_offset)
            rows += [
                {**of_capture, "leader_epoch": epoch.epoch, "from_offset": start, "to_offset": to_offset}
                for start, to_offset in runs
            ]
    return pa.RecordBatch.from_pylist(rows, LOG_RUNS.schema)


def _as_judged(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of `batches` in a third of the room: the columns that rules ask for, each text once.

    A quiet cluster writes two batches a second.
    """
    columns = [batch.column(name) for name in JUDGED_COLUMNS]
    columns = [column.dictionary_encode() if pa.types.is_string(column.type) else column for column in columns]
    return pa.RecordBatch.from_arrays(columns, JUDGED_COLUMNS)


def _other_first_sets(survey: Survey, known: Sequence[dict[str, Any]], dialect: Dialect | None) -> list[dict[str, Any]]:
    """First voter sets of other quorums under this cluster id: two nodes that were formatted standalone."""
    if dialect is None:
        return []
    sets: list[VoterSet] = []
    for snapshot in survey.snapshots:
        if snapshot.end_offset == 0:
            recorded = checkpoint_voters(snapshot.controls, 0, snapshot.epoch, dialect=dialect)
            sets += [recorded] if recorded is not None else []
    for branch in survey.branches:
        if branch.parent is None and branch.from_offset == 0 and dialect is Dialect.KIP853:
            logged = voter_history(survey.controls_to(branch.number), dialect=dialect)
            recorded = next((voter_set for voter_set in logged if voter_set.source == "log"), None)
            sets += [] if recorded is None else [replace(recorded, from_offset=BOOTSTRAP_OFFSET, source="bootstrap")]
    first = next((row for row in known if row["source"] == "bootstrap"), None) or next(
        (row for row in known if row["source"] == "log" and not row["added"] and not row["removed"]), None
    )
    rows = {} if first is None else {keys_of(first["voters"]): first}
    for voter_set in sets:
        (row,) = voter_set_rows([voter_set], canonical_to=BOOTSTRAP_OFFSET)
        rows.setdefault(keys_of(row["voters"]), row)
    if survey.is_unstarted:
        return list(rows.values())
    # Without a first set of its own the cluster has no other.
    return list(rows.values())[1:] if first is not None else []


def _transaction_marks(records: RecordColumns) -> pa.RecordBatch:
    """Begin, End and Abort as rows of `records`, in the columns of MARK_SCHEMA."""
    rows = [
        {**row, "source": "log", "record_type": record_type}
        for message, record_type in TRANSACTION_RECORDS.items()
        for row in (records[message].to_pylist() if message in records else ())
    ]
    rows.sort(key=lambda row: row["offset"])
    return pa.RecordBatch.from_pylist(
        [{name: row.get(name) for name in MARK_SCHEMA.names} for row in rows], MARK_SCHEMA
    )
