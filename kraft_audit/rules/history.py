"""One cluster's whole history as the rules read it: Arrow tables, and the few values that are no table."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kraft_audit.replay.state import missing_records
from kraft_audit.replay.tables import EXPOSURE_CHANGES, PARTITION_CHANGES, SILVER
from kraft_audit.rules.parts import PartitionParts
from kraft_audit.times import LAST_TIME_MS
from kraft_codec.contract import Table
from kraft_codec.schemas import Dialect
from kraft_codec.tables import BRONZE

CONTRACTS: Final[Mapping[str, Table]] = {**{table.name: table for table in BRONZE}, **SILVER}
INPUTS: Final = (
    "captures",
    "batches",
    "decode_errors",
    "records",
    *(name for name in SILVER if name != EXPOSURE_CHANGES.name),
)
"""The tables that rules read; of `records` only the rows of RECORD_TYPES are needed. Exposures they find in
`partition_changes`, among whatever else happened."""
RECORD_TYPES: Final = ("BEGIN_TRANSACTION_RECORD", "END_TRANSACTION_RECORD", "ABORT_TRANSACTION_RECORD")

BEGUN_BY: Final = (
    *("leader_epochs", "voter_sets", "feature_changes", "broker_changes", "config_changes"),
    PARTITION_CHANGES.name,
)
"""The tables that tell when a log begins; a report of a lake reads them, too, but no batches."""

PARTITION_STATES: Final = "partition states"

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Contradiction:
    """A record that contradicts the log before it: what the replay could not apply."""

    offset: int
    problem: str
    subject: str = ""


@dataclass(frozen=True, slots=True)
class SnapshotCheck:
    """A snapshot compared with the replayed state at its offset; `differences` is empty where they are equal."""

    end_offset: int
    epoch: int
    differences: tuple[str, ...] = ()
    path: str | None = None


class _SharedValues(dict[str, Any]):
    """Derived values of which only those about partitions are its own."""

    OWN = frozenset({f"table {PARTITION_CHANGES.name}", f"rows {PARTITION_CHANGES.name}", PARTITION_STATES})

    def __init__(self, shared: dict[str, Any]) -> None:
        super().__init__()
        self._shared = shared

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or (key not in self.OWN and key in self._shared)

    def __getitem__(self, key: str) -> Any:
        return super().__getitem__(key) if key in self.OWN else self._shared[key]

    def __setitem__(self, key: str, value: Any) -> None:
        if key in self.OWN:
            super().__setitem__(key, value)
        else:
            self._shared[key] = value


@dataclass(frozen=True, slots=True, eq=False)
class ClusterHistory:
    """Tables of one cluster by name; a table that was not made is absent, which is not the same as empty.

    `is_complete` is False where the log begins after offset 0 without a snapshot, so that subjects may be unknown for
    no fault of the log; `states_from` is the offset that the replay began at, a snapshot's end where it is not 0: what
    captures of before a gap held is not judged. `undecoded_from` is the first offset at which a record could not be
    decoded, so that what it said is not known behind it; `holes` are the offsets [from, to) that the replay passed and
    nobody holds. `is_read` is False where no batch of the log and no snapshot
    behind offset 0 could be read, `is_replayed` where there was no canonical log or snapshot to replay: then that a
    rule found nothing says nothing. `defaults` are the static broker configs that the log cannot know. `parts` holds
    `partition_changes` where that table is too large to be one of `tables`; `histories_by_part` then gives it.
    """

    cluster_id: str
    tables: Mapping[str, pa.Table]
    dialect: Dialect = Dialect.KIP853
    defaults: Mapping[str, str] = field(default_factory=dict)
    contradictions: tuple[Contradiction, ...] | None = None
    snapshot_checks: tuple[SnapshotCheck, ...] | None = None
    is_complete: bool = True
    states_from: int = 0
    undecoded_from: int | None = None
    is_read: bool = True
    is_replayed: bool = True
    parts: PartitionParts | None = None
    holes: tuple[tuple[int, int], ...] = ()
    _known: dict[str, Any] = field(default_factory=dict, repr=False)

    def has(self, name: str) -> bool:
        """Whether the table (or `contradictions`, `snapshot_checks`) was made."""
        if name in ("contradictions", "snapshot_checks"):
            return getattr(self, name) is not None
        return name in self.tables or (name == PARTITION_CHANGES.name and self.parts is not None)

    def histories_by_part(self) -> Iterator[ClusterHistory]:
        """This history with some topics' partitions at a time: each topic in just one of them."""
        for table in () if self.parts is None else self.parts.tables():
            yield self.with_partitions(table)

    def with_partitions(self, table: pa.Table) -> ClusterHistory:
        """This history with these partitions; what is derived of all other tables is shared."""
        known = _SharedValues(self._known)
        return replace(self, tables={**self.tables, PARTITION_CHANGES.name: table}, parts=None, _known=known)

    def as_told(self, name: str) -> pa.Table:
        """A table in the pieces in which it was told; empty where it was not made."""
        return self.tables[name] if name in self.tables else CONTRACTS[name].schema.empty_table()

    def table(self, name: str) -> pa.Table:
        """A table; empty where it was not made. List columns stand in one chunk."""
        return self.known(f"table {name}", lambda: self.as_told(name).combine_chunks())

    def rows(self, name: str) -> list[dict[str, Any]]:
        """The rows of a small table as values."""
        return self.known(f"rows {name}", lambda: self.table(name).to_pylist())

    def known(self, key: str, make: Callable[[], _Value]) -> _Value:
        """A value derived once: rules of one family share it."""
        if key not in self._known:
            self._known[key] = make()
        value: _Value = self._known[key]
        return value

    @property
    def unknown_from(self) -> int | None:
        """The first offset of which it is not known what was said there: a replayed state behind it may be wrong."""
        hole = self.holes[0][0] if self.holes else None
        return min((one for one in (hole, self.undecoded_from) if one is not None), default=None)

    def unknown_before(self, offset: int) -> str | None:
        """Why the state as after the record at `offset` may be wrong; None where nothing before it is unknown."""
        if self.unknown_from is None or offset < self.unknown_from:
            return None
        if self.unknown_from == self.undecoded_from:
            return f"the record at offset {self.undecoded_from} could not be decoded"
        count = bisect_right(self.holes, offset, key=lambda hole: hole[0])
        return self.known(f"first {count} holes", lambda: missing_records(self.holes[:count]))

    @property
    def begin_ms(self) -> int | None:
        """The first time that the log tells of: of what was replayed, what disks were formatted with included; of any
        batch where nothing was. None where no time is known.
        """
        return self.known("begin_ms", self._begin_ms)

    def _begin_ms(self) -> int | None:
        replayed = np.concatenate([self._times(name, "timestamp_ms") for name in BEGUN_BY])
        times = replayed if len(replayed) else self._times("batches", "base_timestamp_ms")
        return int(times.min()) if len(times) else None

    def _times(self, name: str, column: str) -> npt.NDArray[np.int64]:
        """The times of a table; 0 stands for none, and what lies outside any calendar is none."""
        times: npt.NDArray[np.int64] = self.as_told(name)[column].drop_null().to_numpy()
        return times[(times > 0) & (times < LAST_TIME_MS)]

    @property
    def end_ms(self) -> int | None:
        """The append time of the last batch that any capture held: how long what lasts has lasted."""
        return self.known(
            "end_ms",
            lambda: max(
                (row["last_timestamp_ms"] for row in self.rows("captures") if row["last_timestamp_ms"] is not None),
                default=None,
            ),
        )

    @property
    def seen_ms(self) -> int | None:
        """When the newest capture had been read."""
        return max((row["read_to_ms"] for row in self.rows("captures")), default=None)
