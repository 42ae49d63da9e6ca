"""The state of the rules as bytes: of all rows that were judged, those that still matter.

`carrying` gathers them of a history that was judged up to an offset. `continued_history` puts these rows before new
ones: the same rules then judge a history of that size, and `check` gives what is open, and what began or ended at or
after that offset. So judging an hour costs what is new in it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Final

import pyarrow as pa

from kraft_audit.capture.log_facts import BATCH_COPIES
from kraft_audit.capture.plan import ReplicaPlan
from kraft_audit.losses.replica_disks import ReplicaLog, ReplicaLogs
from kraft_audit.rules.carried.merged_batches import merged_to, split
from kraft_audit.rules.cluster_history import CONTRACTS, JUDGED_CHANGES, Contradiction, OpenEpisodes, SnapshotCheck
from kraft_audit.rules.columns.batch_copies import every_row
from kraft_audit.rules.registry import rules
from kraft_audit.rules.rule_model import RuleSettings
from kraft_audit.tables.kept_parts import KeptPartsError, columns_from_bytes, columns_to_bytes, pack, unpack
from kraft_audit.tables.silver import PARTITION_CHANGES, STATE_TABLES

SMALL_CHANGES: Final = tuple(name for name in STATE_TABLES if name != PARTITION_CHANGES.name)
OF_CAPTURES: Final = ("captures", "batches", BATCH_COPIES.name, "decode_errors", "watermarks", "records")
"""Tables of what disks held."""
WHOLE: Final = ("decode_errors", "feature_changes")
"""Features are few, and which level was in effect at an offset is asked of old ones, too. Each damage is open."""
FROM_THE_SURVEY: Final = {"voter_sets": ("from_offset", "from_epoch"), "leader_epochs": ("from_offset", "epoch")}
"""What a survey says, by what makes a row's key. Rows that a later survey does not have are added to it."""
RULE_STATE_FORMAT: Final = 11
"""Raised where a rule begins to need other rows, or says something else of the same ones."""


def rules_key(settings: Mapping[str, RuleSettings], defaults: Mapping[str, str]) -> str:
    """What carried rows are good for: a judgement by other rules, thresholds or static configs begins again."""
    limits = {rule_id: {**rule.defaults, **settings.get(rule_id, {})} for rule_id, rule in rules().items()}
    text = json.dumps([RULE_STATE_FORMAT, limits, dict(defaults)], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class CarriedRows:
    """What rules need of all records before an offset. `tables` are rows as in the history, in their order there.

    Its size grows with partitions, disks, epochs, voter sets and open episodes, not with the length of the log.
    """

    episodes: OpenEpisodes
    tables: Mapping[str, pa.Table]
    contradictions: tuple[Contradiction, ...] = ()
    is_complete: bool = True
    states_from: int = 0
    undecoded_from: int | None = None
    gaps: tuple[tuple[int, int], ...] = ()
    snapshot_checks: tuple[SnapshotCheck, ...] = ()
    is_read: bool = True
    is_replayed: bool = True
    replica_logs: ReplicaLogs = field(default_factory=dict)

    def checks_of(self, end_offset: int, epoch: int) -> list[SnapshotCheck]:
        """How a snapshot was compared: one check for each version of it."""
        return [each for each in self.snapshot_checks if (each.end_offset, each.epoch) == (end_offset, epoch)]

    @property
    def merged_to(self) -> int:
        """Up to which offset batches may stand in runs; 0 where none does."""
        return merged_to(self.tables["batches"]) if "batches" in self.tables else 0

    def with_single_batches(self, known: pa.Table, from_offset: int = 0) -> CarriedRows:
        """The same with `known`, the batches in [from_offset, merged_to) that a lake has, in the places of runs."""
        batches = normal_rows("batches", every_row(self.tables["batches"], self.tables[BATCH_COPIES.name]))
        copies = BATCH_COPIES.schema.empty_table()
        single = {"batches": split(batches, known, from_offset), BATCH_COPIES.name: copies}
        return replace(self, tables={**self.tables, **single})

    def to_bytes(self) -> bytes:
        """Kept parts: `facts` and each table. Equal rows give equal bytes."""
        facts = {
            "to_offset": self.episodes.to_offset,
            "to_ms": self.episodes.to_ms,
            "begins": {id_: list(begins) for id_, begins in sorted(self.episodes.begins.items())},
            "contradictions": [asdict(each) for each in self.contradictions],
            "is_complete": self.is_complete,
            "states_from": self.states_from,
            "undecoded_from": self.undecoded_from,
            "gaps": self.gaps,
            "snapshot_checks": [check_fields(each) for each in self.snapshot_checks],
            "is_read": self.is_read,
            "is_replayed": self.is_replayed,
            "replica_logs": log_rows(self.replica_logs),
            "columns": {name: _columns_of(table) for name, table in sorted(self.tables.items())},
        }
        tables = {_TABLE + name: columns_to_bytes(_plain(name, table)) for name, table in self.tables.items()}
        return pack({_FACTS: json.dumps(facts).encode(), **tables})

    @classmethod
    def from_bytes(cls, octets: bytes) -> CarriedRows:
        """Raises KeptPartsError where the bytes are not what `to_bytes` gave."""
        parts = unpack(octets)
        try:
            facts = json.loads(parts[_FACTS])
            begins = {id_: tuple(each) for id_, each in facts["begins"].items()}
            return cls(
                OpenEpisodes(facts["to_offset"], facts["to_ms"], begins),
                {name: _table_of(name, columns, parts[_TABLE + name]) for name, columns in facts["columns"].items()},
                tuple(Contradiction(**each) for each in facts["contradictions"]),
                facts["is_complete"],
                facts["states_from"],
                facts["undecoded_from"],
                tuple((start, end) for start, end in facts["gaps"]),
                tuple(check_of(each) for each in facts["snapshot_checks"]),
                facts["is_read"],
                facts["is_replayed"],
                logs_of(facts["replica_logs"]),
            )
        except (ValueError, TypeError, LookupError) as error:
            raise KeptPartsError(f"its carried rows cannot be read: {error}") from None


_FACTS: Final = "facts"
_TABLE: Final = "table."


_NOT_OF_HOLDER: Final = ("files", "gone_files", "missing_segments", "further_directory_ids")
_OF_HOLDER: Final = tuple(each.name for each in fields(ReplicaPlan) if each.name not in _NOT_OF_HOLDER)


def holder_fields(holder: ReplicaPlan) -> dict[str, Any]:
    """A replica as JSON has it: which one it is."""
    return {name: getattr(holder, name) for name in _OF_HOLDER}


def holder_of(fields_: Mapping[str, Any]) -> ReplicaPlan:
    """The replica that `holder_fields` was given, without its files."""
    newest = fields_["newest_snapshot"]
    return ReplicaPlan(**{**fields_, "newest_snapshot": newest and tuple(newest)}, files=())


def log_rows(logs: ReplicaLogs) -> list[list[Any]]:
    """What was read of brokers' disks as JSON has it: topic, partition and each log, in order."""
    return [[*place, [asdict(log) for log in each]] for place, each in sorted(logs.items())]


def logs_of(rows: Sequence[Sequence[Any]]) -> ReplicaLogs:
    """What `log_rows` was given."""
    return {(topic, partition): tuple(map(_log_of, each)) for topic, partition, each in rows}


def _log_of(fields_: Mapping[str, Any]) -> ReplicaLog:
    return ReplicaLog(**{**fields_, "epochs": tuple((epoch, start) for epoch, start in fields_["epochs"])})


def check_fields(check: SnapshotCheck) -> dict[str, Any]:
    """A check as JSON has it: of the replicas that hold the snapshot, which they are."""
    holders = [holder_fields(holder) for holder in check.holders]
    return {**{each.name: getattr(check, each.name) for each in fields(SnapshotCheck)}, "holders": holders}


def check_of(fields_: Mapping[str, Any]) -> SnapshotCheck:
    """The check that `check_fields` was given."""
    holders = tuple(map(holder_of, fields_["holders"]))
    return SnapshotCheck(**{**fields_, "differences": tuple(fields_["differences"]), "holders": holders})


def _columns_of(table: pa.Table) -> dict[str, bool]:
    """The names of the columns in their order, and whether each text stands there once."""
    return {field.name: pa.types.is_dictionary(field.type) for field in table.schema}


def _plain(name: str, table: pa.Table) -> pa.Table:
    """The table with every column as its contract has it."""
    return table.cast(pa.schema([CONTRACTS[name].schema.field(column) for column in table.column_names]))


def _table_of(name: str, columns: Mapping[str, bool], content: bytes) -> pa.Table:
    schema = pa.schema([CONTRACTS[name].schema.field(column) for column in columns])
    table = pa.Table.from_batches([columns_from_bytes(content, schema)])
    for place, (column, is_dictionary) in enumerate(columns.items()):
        if is_dictionary:
            table = table.set_column(place, column, table.column(column).dictionary_encode())
    return table


_DAMAGE: Final = ("node_id", "directory_id", "root", "path", "file_name", "position", "reason", "detail")


def once_each(damage: pa.Table) -> pa.Table:
    """The rows of `decode_errors` without those that say again of a disk what an earlier one says."""
    rows: dict[tuple[Any, ...], int] = {}
    for number, row in enumerate(damage.select(_DAMAGE).to_pylist()):
        rows.setdefault(tuple(row.values()), number)
    return damage.take(pa.array(list(rows.values()), pa.int64()))


def normal_rows(name: str, table: pa.Table) -> pa.Table:
    """A table without the columns that no rule reads, and texts as texts: the same whichever way it came."""
    if name == PARTITION_CHANGES.name:
        table = table.select(JUDGED_CHANGES.names)
    columns = [
        column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column for column in table.itercolumns()
    ]
    schema = pa.schema([pa.field(field.name, column.type) for field, column in zip(table.schema, columns, strict=True)])
    return pa.Table.from_arrays(columns, schema=schema).combine_chunks()


def sizes(carried: CarriedRows) -> dict[str, Any]:
    """How many rows of each table there are, for logs and tests."""
    return {name: table.num_rows for name, table in sorted(carried.tables.items())}
