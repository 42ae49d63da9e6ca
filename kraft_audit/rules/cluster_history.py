"""One cluster's whole history as the rules read it: Arrow tables, and the few values that are no table."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from operator import itemgetter
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kraft_audit.capture.altered_batches import AlteredBatches
from kraft_audit.capture.log_facts import BATCH_COPIES, LOG_RUNS
from kraft_audit.capture.plan import ONLY_HISTORY, HistoryOf, ReplicaPlan
from kraft_audit.capture.set_aside import SetAsideLog
from kraft_audit.losses.replica_disks import ReplicaLogs
from kraft_audit.replay.branch_choice import PartedLog
from kraft_audit.replay.cluster_state import missing_records
from kraft_audit.tables.bronze import BRONZE
from kraft_audit.tables.contract import Table
from kraft_audit.tables.silver import EXPOSURE_CHANGES, PARTITION_CHANGES, SILVER
from kraft_audit.text.readable import LAST_TIME_MS
from kraft_codec.schemas import Dialect
from kraft_codec.schemas.releases import ELR_FEATURE

CONTRACTS: Final[Mapping[str, Table]] = {
    **BRONZE,
    **{table.name: table for table in (BATCH_COPIES, LOG_RUNS)},
    **SILVER,
}
INPUTS: Final = (
    "captures",
    "batches",
    BATCH_COPIES.name,
    LOG_RUNS.name,
    "decode_errors",
    "records",
    *(name for name in SILVER if name != EXPOSURE_CHANGES.name),
)
"""The tables that rules read; of `records` only those of transactions are needed. Exposures they find in
`partition_changes`, among whatever else happened. What several disks hold alike stands once in `batches`."""
UNCLEAN_ELECTION: Final = "unclean.leader.election.enable"

BEGUN_BY: Final = (
    *("leader_epochs", "voter_sets", "feature_changes", "broker_changes", "config_changes"),
    PARTITION_CHANGES.name,
)
"""The tables whose first time is the log's; a report from a lake reads them too, but no batches."""

UNREAD_COLUMNS: Final = ("cluster_id", "from_epoch", "high_watermark_can_advance", "plan")
"""Columns of `partition_changes` that no rule reads."""
JUDGED_CHANGES: Final = PARTITION_CHANGES.schema.empty_table().drop_columns(UNREAD_COLUMNS).schema
"""The others."""

TableRow = dict[str, Any]
ReadDisks = Callable[[Collection[tuple[str, int]], Mapping[int, int]], ReplicaLogs]
"""Reads (topic, partition)s from the brokers' disks of all captures; with when each capture was taken at the earliest,
in milliseconds by its number."""


def no_disks(_: Collection[tuple[str, int]], __: Mapping[int, int]) -> ReplicaLogs:
    """Where no broker's disk was captured."""
    return {}


_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class OperatorWord:
    """What whoever runs the cluster says that no disk shows: `is_running` that its nodes run, `gone` which are lost."""

    is_running: bool = False
    gone: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Contradiction:
    """A record that contradicts the log before it: what the replay could not apply."""

    offset: int
    problem: str
    subject: str = ""


@dataclass(frozen=True, slots=True)
class SnapshotCheck:
    """What some copies of a snapshot say, compared; `differences` is empty where it is equal.

    It is compared with the replayed state at its offset, or, where no replay reaches it (`is_replayed` is False), with
    what most copies of that snapshot say. `holders` are the replicas that hold it, each disk once.
    """

    end_offset: int
    epoch: int
    differences: tuple[str, ...] = ()
    path: str | None = None
    holders: tuple[ReplicaPlan, ...] = ()
    is_replayed: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class ClusterHistory:
    """Tables of one cluster by name; a table that was not made is absent, which is not the same as empty.

    * `dialect` is None where control records disagree about the membership protocol that wrote the log.
    * `is_complete` is False where the log begins after offset 0 without a snapshot: subjects may be unknown for no
      fault of the log.
    * `states_from` is the offset that the replay began at, a snapshot's end where it is not 0: captures from before a
      gap are not judged.
    * `undecoded_from` is the first offset whose record could not be decoded: states after it may be wrong.
    * `altered` are batches that disks hold in several versions; None where disks were not compared.
    * `snapshot_times_ms` are the times of the last records that snapshots contain, by end offset, where they say so.
    * `written_ms` is when something on a disk was last surely written, by root and path of the newest captures.
    * `copied_ms` is when the newest copy of a disk was made, where all its files have the time of the copy.
    * `stated_earlier` are, by number of a capture, those of which something other than content says they are earlier.
    * `set_aside` are the ends of logs that are no evidence, as their bytes say.
    * `gaps` are the offsets [from, to) that the replay passed and no replica holds.
    * `is_read` is False where no batch of the log and no snapshot past offset 0 could be read, `is_replayed` where
      there was no canonical log or snapshot to replay: then a rule without a case proves nothing.
    * `defaults` are the static broker configs that the log cannot know.
    * `history_id` names the history among those of its cluster id in ids of findings; empty: as the cluster id.
    * `captured_from`: captures with lower numbers were judged before.
    * `read_disks` reads what the captures hold of brokers' disks, for the partitions that are asked for.
    * `as_of_ms` is the log's time as of which it is judged, where that is not the newest append time of any capture.
    """

    cluster_id: str
    tables: Mapping[str, pa.Table]
    dialect: Dialect | None = Dialect.KIP853
    defaults: Mapping[str, str] = field(default_factory=dict)
    contradictions: tuple[Contradiction, ...] | None = None
    snapshot_checks: tuple[SnapshotCheck, ...] | None = None
    is_complete: bool = True
    states_from: int = 0
    undecoded_from: int | None = None
    is_read: bool = True
    is_replayed: bool = True
    gaps: tuple[tuple[int, int], ...] = ()
    altered: tuple[AlteredBatches, ...] | None = None
    operator: OperatorWord = OperatorWord()
    written_ms: Mapping[tuple[str, str], int] = field(default_factory=dict)
    copied_ms: Mapping[tuple[str, str], int] = field(default_factory=dict)
    stated_earlier: Mapping[int, frozenset[int]] = field(default_factory=dict)
    set_aside: tuple[SetAsideLog, ...] = ()
    history_of: HistoryOf = ONLY_HISTORY
    snapshot_times_ms: Mapping[int, int] = field(default_factory=dict)
    history_id: str = ""
    as_of_ms: int | None = None
    captured_from: int = 0
    read_disks: ReadDisks = no_disks
    parted: tuple[PartedLog, ...] = ()
    _shared: dict[Any, Any] = field(default_factory=dict, repr=False)

    @property
    def title(self) -> str:
        """What headers call it: the cluster id, and which of several histories it is."""
        return self.history_of.title(self.cluster_id)

    def has(self, name: str) -> bool:
        """Whether the table (or `contradictions`, `snapshot_checks`) was made."""
        if name in ("contradictions", "snapshot_checks", "altered"):
            return getattr(self, name) is not None
        return name in self.tables

    def lacking(self, names: Iterable[str]) -> list[str]:
        """The names among these that were not made."""
        return [name for name in names if not self.has(name)]

    def chunked_table(self, name: str) -> pa.Table:
        """A table in the chunks in which it came; empty where it was not made."""
        return self.tables[name] if name in self.tables else CONTRACTS[name].schema.empty_table()

    def table(self, name: str) -> pa.Table:
        """A table; empty where it was not made. List columns stand in one chunk."""
        return self.known(f"table {name}", lambda: self.chunked_table(name).combine_chunks())

    def rows(self, name: str) -> list[TableRow]:
        """The rows of a small table as values."""
        return self.known(f"rows {name}", lambda: self.table(name).to_pylist())

    def rows_by_offset(self, name: str) -> list[TableRow]:
        """The rows of a small table of changes, ascending by offset."""
        return self.known(f"rows by offset {name}", lambda: sorted(self.rows(name), key=itemgetter("from_offset")))

    def newest_rows(self, name: str, *key: str) -> dict[Any, TableRow]:
        """The newest row of each key of a small table of changes."""
        key_of = itemgetter(*key)
        return {key_of(row): row for row in self.rows_by_offset(name)}

    def known(self, key: str, make: Callable[[], _Value]) -> _Value:
        """A value that is derived once and shared by the rules."""
        if key not in self._shared:
            self._shared[key] = make()
        value: _Value = self._shared[key]
        return value

    @property
    def unknown_from(self) -> int | None:
        """The first offset whose record is not known: a state that is replayed past it may be wrong."""
        gap_from = self.gaps[0][0] if self.gaps else None
        return min((offset for offset in (gap_from, self.undecoded_from) if offset is not None), default=None)

    def unknown_before(self, offset: int) -> str | None:
        """Why the state as after the record at `offset` may be wrong; None where nothing before it is unknown."""
        if self.unknown_from is None or offset < self.unknown_from:
            return None
        if self.unknown_from == self.undecoded_from:
            return f"the record at offset {self.undecoded_from} could not be decoded"
        count = bisect_right(self.gaps, offset, key=lambda gap: gap[0])
        return self.known(f"first {count} gaps", lambda: missing_records(self.gaps[:count]))

    @property
    def begin_ms(self) -> int | None:
        """The first time in what was replayed, what disks were formatted with included; in any batch where nothing was
        replayed. None where no time is known.
        """
        return self.known("begin_ms", self._begin_ms)

    def _begin_ms(self) -> int | None:
        replayed = np.concatenate([self._times(name, "timestamp_ms") for name in BEGUN_BY])
        times = replayed if len(replayed) else self._times("batches", "base_timestamp_ms")
        return int(times.min()) if len(times) else None

    def _times(self, name: str, column: str) -> npt.NDArray[np.int64]:
        """The times of a table; 0 stands for none, and what lies outside any calendar is none."""
        times: npt.NDArray[np.int64] = self.chunked_table(name)[column].drop_null().to_numpy()
        return times[(times > 0) & (times < LAST_TIME_MS)]

    @property
    def end_ms(self) -> int | None:
        """The append time of the last batch that any capture held: how long what lasts has lasted."""
        if self.as_of_ms is not None:
            return self.as_of_ms
        return self.known("end_ms", lambda: newest_append_ms(self.rows("captures")))

    @property
    def seen_ms(self) -> int | None:
        """When the newest capture had been read."""
        return max((row["read_to_ms"] for row in self.rows("captures")), default=None)


def newest_append_ms(captures: Iterable[TableRow]) -> int | None:
    """The newest append time in captures: copies are made later than what they show."""
    return max((row["last_timestamp_ms"] for row in captures if row["last_timestamp_ms"] is not None), default=None)


def feature_row(history: ClusterHistory, name: str) -> TableRow | None:
    """The newest row of one feature."""
    return history.newest_rows("feature_changes", "name").get(name)


def feature_level(history: ClusterHistory, name: str) -> int | None:
    """The finalized level; None where the log never set it."""
    row = feature_row(history, name)
    return None if row is None else int(row["feature_level"]) if row["exists"] else 0


def elr_level(history: ClusterHistory) -> int:
    """0 where the ELR is off or was never set."""
    return feature_level(history, ELR_FEATURE) or 0


def once_per_history(make: Callable[[ClusterHistory], _Value]) -> Callable[[ClusterHistory], _Value]:
    """Decorator: compute the value once per history and keep it there. `make` must depend on nothing else."""

    @wraps(make)
    def answer(history: ClusterHistory) -> _Value:
        shared = history._shared
        if make not in shared:
            shared[make] = make(history)
        value: _Value = shared[make]
        return value

    return answer


def unclean_election_enabled(history: ClusterHistory, topic: str) -> bool:
    """unclean.leader.election.enable in effect: of the topic, else of all brokers, else the static default."""
    keys = ("resource_type", "resource_name", "name")
    newest = history.known("newest configs", lambda: history.newest_rows("config_changes", *keys))
    rows = (newest.get((*resource, UNCLEAN_ELECTION)) for resource in (("TOPIC", topic), ("BROKER", "")))
    value = next((row["value"] for row in rows if row is not None and row["exists"] and row["value"]), None)
    value = value or history.defaults.get(UNCLEAN_ELECTION, "false")
    return bool(value.strip().lower() == "true")
