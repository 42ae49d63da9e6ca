"""The state of the rules: of all rows that were judged, those that still matter.

`carry` takes a history that was judged up to an offset, and what is open of it, and keeps of each table the newest row
of every subject that exists, where open findings began, and what rules say they need besides (`carries` in `@rule`).
`continued_history` puts these rows before new ones: the same rules then judge a history of that size, and `check` gives
what is open, and what began or ended at or after that offset. So judging an hour costs what is new in it.

Of captures the rounds are carried that rules still ask for, and of batches runs (`carried_captures`, `merged_batches`).
`voter_sets` and `leader_epochs` are carried whole, as an hour has few of them: a survey of later disks may not reach
those whose records Kafka has deleted.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kraft_audit.capture.plan import ReplicaPlan
from kraft_audit.rules.carried_captures import (
    carried_captures,
    carried_marks,
    carried_watermarks,
    names_captures,
    offsets_of_interest,
    taken,
)
from kraft_audit.rules.cluster_history import (
    CONTRACTS,
    ClusterHistory,
    Contradiction,
    OpenEpisodes,
    SnapshotCheck,
    newest_append_ms,
)
from kraft_audit.rules.columns.batch_copies import BATCH_COPIES, every_row
from kraft_audit.rules.columns.carried_partitions import as_table_rows, begins_of, with_previous
from kraft_audit.rules.columns.frame import Mask, Rows, coded, distinct, numbered
from kraft_audit.rules.columns.log_batches import CANONICAL_LOG, LOG_BATCHES, canonical_log
from kraft_audit.rules.columns.nodes import carried_registrations
from kraft_audit.rules.columns.open_episodes import begin_of
from kraft_audit.rules.columns.partition_parts import PARTS_SCHEMA
from kraft_audit.rules.columns.partition_states import partition_states
from kraft_audit.rules.columns.subjects import topic_of
from kraft_audit.rules.merged_batches import merged_batches, merged_to, split
from kraft_audit.rules.registry import rules
from kraft_audit.rules.rule_model import Finding, Rule, RuleSettings, Scope, TableRows
from kraft_audit.tables.bronze import DECODE_ERRORS
from kraft_audit.tables.kept_parts import KeptPartsError, columns_from_bytes, columns_to_bytes, pack, unpack
from kraft_audit.tables.silver import PARTITION_CHANGES, SILVER, TOPIC_CHANGES

CHANGES: Final = tuple(name for name in SILVER if name.endswith("_changes") and name != "exposure_changes")
"""The tables where a subject's newest row says what holds."""
SMALL_CHANGES: Final = tuple(name for name in CHANGES if name != PARTITION_CHANGES.name)
OF_CAPTURES: Final = ("captures", "batches", BATCH_COPIES.name, "decode_errors", "watermarks", "records")
"""Tables of what disks held."""
WHOLE: Final = ("decode_errors", "feature_changes")
"""Features are few, and which level was in effect at an offset is asked of old ones, too. Each damage is open."""
FROM_THE_SURVEY: Final = {"voter_sets": ("from_offset", "from_epoch"), "leader_epochs": ("from_offset", "epoch")}
"""What a survey says, by what makes a row's key. Rows that a later survey does not have are added to it."""
STAYS_KNOWN: Final = frozenset({"broker_changes", "controller_changes"})
"""Of these a subject's newest row matters after it is gone: a broker that was registered once is no unknown one."""


READS_EVIDENCE: Final = frozenset({"KP007"})
"""Rules whose `carries` reads the evidence of open findings."""
FORMAT: Final = 8
"""Raised where a rule begins to need other rows, or says something else of the same ones."""


def as_carried(finding: Finding) -> Finding:
    """An open finding without what `carry` does not read: its texts are most of it, and evidence may hold partitions in
    memory."""
    reads_evidence = finding.rule in READS_EVIDENCE or names_captures(finding)
    evidence = finding.evidence if reads_evidence else ()
    return finding._replace(evidence=evidence, summary="", reason=None, why="", what_to_do="")


def rules_key(settings: Mapping[str, RuleSettings], defaults: Mapping[str, str]) -> str:
    """What carried rows are good for: a judgement by other rules, thresholds or static configs begins again."""
    limits = {rule_id: {**rule.defaults, **settings.get(rule_id, {})} for rule_id, rule in rules().items()}
    text = json.dumps([FORMAT, limits, dict(defaults)], sort_keys=True)
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
            )
        except (ValueError, TypeError, LookupError) as error:
            raise KeptPartsError(f"its carried rows cannot be read: {error}") from None


_FACTS: Final = "facts"
_TABLE: Final = "table."


_OF_HOLDER: Final = tuple(
    each.name for each in fields(ReplicaPlan) if each.name not in ("files", "gone_files", "missing_segments")
)


def holder_fields(holder: ReplicaPlan) -> dict[str, Any]:
    """A replica as JSON has it: which one it is."""
    return {name: getattr(holder, name) for name in _OF_HOLDER}


def holder_of(fields_: Mapping[str, Any]) -> ReplicaPlan:
    """The replica that `holder_fields` was given, without its files."""
    newest = fields_["newest_snapshot"]
    return ReplicaPlan(**{**fields_, "newest_snapshot": newest and tuple(newest)}, files=())


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


def until(history: ClusterHistory, to_offset: int, waiting_to: int | None = None) -> ClusterHistory:
    """A history without the records from an offset on, as of the log's time there. The captures stay.

    `waiting_to` is up to where records wait for the end of their transaction: its marks are not read again.
    """
    tables = dict(history.tables)
    for name in (*CHANGES, "records"):
        if name in tables:
            table, column = tables[name], "offset" if name == "records" else "from_offset"
            end = to_offset if name != "records" or waiting_to is None else max(to_offset, waiting_to)
            tables[name] = table.filter(pc.less(table[column], end))
    return replace(
        history,
        tables=tables,
        contradictions=history.contradictions
        and tuple(each for each in history.contradictions if each.offset < to_offset),
        parts_to=to_offset if history.parts_to is None else min(to_offset, history.parts_to),
        as_of_ms=canonical_log(history).time_at(to_offset - 1) if to_offset else None,
        # Their tables stay as they are.
        _shared={name: history.shared[name] for name in (LOG_BATCHES, CANONICAL_LOG) if name in history.shared},
    )


def begins_below(history: ClusterHistory, offset: int) -> bool:
    """Whether something changed before an offset."""
    tables = [history.tables[name]["from_offset"] for name in CHANGES if name in history.tables]
    return history.parts is not None or any(pc.min(rows).as_py() < offset for rows in tables if len(rows))


def ends_at(history: ClusterHistory, to_offset: int) -> bool:
    """Whether a history has nothing from an offset on, so that `until` says the same of it at the same time."""
    tables = [history.tables[name]["from_offset"] for name in CHANGES if name in history.tables]
    last = max((pc.max(offsets).as_py() for offsets in tables if len(offsets)), default=-1)
    last = max(last, -1 if history.parts is None else history.parts.last_offset)
    last = max([last, *(each.offset for each in history.contradictions or ())])
    return last < to_offset and history.end_ms == _time_at_end(history, to_offset)


def as_until(history: ClusterHistory, to_offset: int, waiting_to: int | None = None) -> ClusterHistory:
    """`until` of a history that ends there: with what was derived from it, as its rows are the same."""
    ended = until(history, to_offset, waiting_to)
    same = replace(ended, tables={**history.tables, "records": ended.tables["records"]}, _shared=history.shared)
    same.share_partitions(history)
    return same


def _time_at_end(history: ClusterHistory, to_offset: int) -> int | None:
    """The time of the log at which records before an offset are judged."""
    if to_offset and (time_ms := canonical_log(history).time_at(to_offset - 1)) is not None:
        return time_ms
    return history.known("newest append", lambda: newest_append_ms(history.rows("captures")))


class Carrying:
    """Gathers the rows that the rules need of a history, where that is read back by parts while it is judged.

    It is the `seen` of that judgement (`registry.check`).
    """

    def __init__(self) -> None:
        self.wanted: dict[str, list[Rows]] = defaultdict(list)
        """Rows of tables, by number, that parts need."""
        self.partitions: list[pa.Table] = []
        """Their rows of `partition_changes`; and those of what rules across topics looked at, which may be the same."""
        self._across: list[pa.Table] = []

    def take_part(self, part: ClusterHistory, open_findings: Sequence[Finding]) -> None:
        """A part that was judged, and what is open of it."""
        self.partitions.append(self._gathered(part, _needed_of_partitions(part, open_findings)))

    def take_across(self, each: Rule, across: ClusterHistory, open_findings: Sequence[Finding]) -> None:
        """The rows that a rule across topics looked at, and what is open of it."""
        if each.carries is not None:
            self._across.append(self._gathered(across, each.carries(across, open_findings)))

    def take(self, found: Carrying) -> None:
        """What was gathered of parts that were judged elsewhere."""
        self.partitions += found.partitions
        for table, rows in found.wanted.items():
            self.wanted[table] += rows

    def rows(
        self, history: ClusterHistory, findings: Iterable[Finding], to_offset: int, waiting_to: int | None = None
    ) -> CarriedRows:
        """What the rules need of a history that was judged up to an offset, the end of a whole operation.

        `findings` are all of that judgement, with the settings of the next one: the parts, if there are any, are taken
        with the last of them. Up to `waiting_to` records wait for the end of their transaction.
        """
        open_findings = [as_carried(each) for each in findings if each.is_open]
        begins: dict[str, list[int]] = defaultdict(list)
        for each in open_findings:
            if (begin := begin_of(each)) is not None:
                begins[each.finding_id].append(begin)
        wanted = self.wanted
        wanted[TOPIC_CHANGES.name].append(_of_topics(history, open_findings))
        for table, rows in _needed(history, open_findings):
            wanted[table].append(rows)
        if history.parts is None:
            of_partitions = _needed_of_partitions(history, open_findings, is_whole=True)
            self.partitions.append(self._gathered(history, of_partitions))
        tables = {name: _rows_of(history, name, wanted[name]) for name in SMALL_CHANGES if name not in WHOLE}
        tables[PARTITION_CHANGES.name] = _joined_once(self.partitions, self._across)
        of_whole = (*WHOLE, *FROM_THE_SURVEY)
        tables |= {name: normal_rows(name, history.chunked_table(name)) for name in of_whole if history.has(name)}
        tables |= {
            name: normal_rows(name, table)
            for name, table in _of_captures(history, open_findings, wanted, (to_offset, waiting_to))
        }
        if DECODE_ERRORS.name in tables:
            tables[DECODE_ERRORS.name] = once_each(tables[DECODE_ERRORS.name])
        return CarriedRows(
            OpenEpisodes(to_offset, history.end_ms, {id_: tuple(sorted(each)) for id_, each in begins.items()}),
            tables,
            history.contradictions or (),
            history.is_complete,
            history.states_from,
            history.undecoded_from,
            history.gaps,
            history.snapshot_checks or (),
            history.is_read,
            history.is_replayed,
        )

    def _gathered(self, history: ClusterHistory, needed: Iterable[TableRows]) -> pa.Table:
        """The rows of `partition_changes` among those that are needed; the others are noted."""
        of_partitions: list[Rows] = []
        for table, rows in needed:
            (of_partitions if table == PARTITION_CHANGES.name else self.wanted[table]).append(rows)
        return _rows_of(history, PARTITION_CHANGES.name, of_partitions)


def carry(
    history: ClusterHistory, findings: Iterable[Finding], to_offset: int, waiting_to: int | None = None
) -> CarriedRows:
    """What the rules need of a history that is in memory, as `Carrying.rows` says."""
    return Carrying().rows(history, findings, to_offset, waiting_to)


_OF_A_CHANGE: Final = ("topic_id", "partition", "from_offset")


def _joined_once(parts: Sequence[pa.Table], across: Sequence[pa.Table]) -> pa.Table:
    """The rows of all parts, and after them those of `across` that are not there yet."""
    none = normal_rows(PARTITION_CHANGES.name, PARTS_SCHEMA.empty_table())
    found = pa.concat_tables([none, *(part.cast(none.schema) for part in parts)]).combine_chunks()
    for more in across:
        near = found.filter(pc.is_in(found["from_offset"], more["from_offset"].combine_chunks()))
        known = {tuple(row.values()) for row in near.select(_OF_A_CHANGE).to_pylist()}
        is_new = [tuple(row.values()) not in known for row in more.select(_OF_A_CHANGE).to_pylist()]
        added = more.filter(pa.array(is_new, pa.bool_())).cast(none.schema)
        found = pa.concat_tables([found, added]).combine_chunks()
    return found


def _of_captures(
    history: ClusterHistory,
    open_findings: Sequence[Finding],
    wanted: Mapping[str, Sequence[Rows]],
    waiting: tuple[int, int | None],
) -> Iterator[tuple[str, pa.Table]]:
    """The tables of what disks held, without what no rule asks for any more."""
    watermarks, captures = history.chunked_table("watermarks"), history.chunked_table("captures")
    if history.has("watermarks"):
        watermarks = taken(watermarks, carried_watermarks(history, open_findings))
        yield "watermarks", watermarks
    if history.has("captures"):
        captures = taken(captures, carried_captures(history, open_findings, watermarks.to_pylist()))
        yield "captures", captures
    if history.has("records"):
        yield "records", taken(history.chunked_table("records"), carried_marks(history))
    if history.has("batches"):
        rows, proofs = captures.to_pylist(), watermarks.to_pylist()
        offsets = offsets_of_interest(history, open_findings, rows, proofs)
        single = np.concatenate([np.zeros(0, np.int64), *wanted.get("batches", ())])
        batches, copies = merged_batches(history, rows, offsets, single, *waiting)
        yield "batches", batches
        yield BATCH_COPIES.name, copies


_DAMAGE: Final = ("node_id", "directory_id", "root", "path", "file_name", "position", "reason", "detail")


def once_each(damage: pa.Table) -> pa.Table:
    """The rows of `decode_errors` without those that say again of a disk what an earlier one says."""
    rows: dict[tuple[Any, ...], int] = {}
    for number, row in enumerate(damage.select(_DAMAGE).to_pylist()):
        rows.setdefault(tuple(row.values()), number)
    return damage.take(pa.array(list(rows.values()), pa.int64()))


def _needed(history: ClusterHistory, open_findings: Sequence[Finding]) -> Iterator[TableRows]:
    """The rows that every rule gets, and those that rules ask for which look at no partition."""
    for name in SMALL_CHANGES:
        yield name, _newest(history, name)
        yield name, _where_findings_began(history, name, open_findings)
    yield from carried_registrations(history)
    yield from _asked_for((rule for rule in rules().values() if not rule.is_by_part), history, open_findings)


def _needed_of_partitions(
    part: ClusterHistory, open_findings: Sequence[Finding], *, is_whole: bool = False
) -> Iterator[TableRows]:
    """The rows that every rule gets of a part's partitions, and those that rules about partitions ask for.

    Rules across topics ask for theirs elsewhere, unless the part is the whole.
    """
    states = partition_states(part)
    yield as_table_rows(states, states.last_rows[states.exists[states.last_rows]])
    of_partitions = (each for each in open_findings if each.scope is Scope.PARTITION)
    begins = np.array(sorted(set(begins_of(part, of_partitions))), np.int64)
    yield as_table_rows(states, with_previous(states, begins))
    asking = (rule for rule in rules().values() if rule.is_by_part and (is_whole or rule.across is None))
    yield from _asked_for(asking, part, open_findings)


def _asked_for(
    asking: Iterable[Rule], history: ClusterHistory, open_findings: Sequence[Finding]
) -> Iterator[TableRows]:
    by_rule: dict[str, list[Finding]] = defaultdict(list)
    for each in open_findings:
        by_rule[each.rule].append(each)
    for rule in asking:
        if rule.carries is not None and all(history.has(name) for name in rule.needs):
            yield from rule.carries(history, by_rule[rule.id])


def _of_topics(history: ClusterHistory, open_findings: Sequence[Finding]) -> Rows:
    """The rows of topics that findings are about, also of deleted ones: a finding is known by its topic's id."""
    topics = history.chunked_table(TOPIC_CHANGES.name)["topic"]
    names = {topic_of(each.subject)[0] for each in open_findings if each.scope is Scope.PARTITION}
    return np.flatnonzero(pc.is_in(topics, pa.array(sorted(names), pa.string())).to_numpy())


def _keys(history: ClusterHistory, name: str) -> Rows:
    """A number for each row's subject."""
    table = history.chunked_table(name)
    columns = [table[column] for column in SILVER[name].key[1:-1]]
    return numbered(*(coded(c)[0] if pa.types.is_string(c.type) else c.to_numpy().astype(np.int64) for c in columns))


def _newest(history: ClusterHistory, name: str) -> Rows:
    """The newest row of each subject that exists, and of the others where STAYS_KNOWN; settings of brokers, too."""
    table = history.chunked_table(name)
    if not table.num_rows:
        return np.zeros(0, np.int64)
    order = np.lexsort((np.arange(table.num_rows), table["from_offset"].to_numpy()))
    keys = _keys(history, name)[order]
    newest: Rows = np.sort(order[len(keys) - 1 - np.unique(keys[::-1], return_index=True)[1]])
    if name in STAYS_KNOWN:
        return newest
    matters: Mask = table["exists"].to_numpy()
    if name == "config_changes":
        matters = matters | pc.equal(table["resource_type"], "BROKER").to_numpy()
    existing: Rows = newest[matters[newest]]
    return existing


def _where_findings_began(history: ClusterHistory, name: str, open_findings: Sequence[Finding]) -> Rows:
    """The rows that stand where open findings began, each with the one of its subject before it."""
    table = history.chunked_table(name)
    begins = {each.from_offset for each in open_findings if each.from_offset is not None}
    rows = np.flatnonzero(np.isin(table["from_offset"].to_numpy(), np.array(sorted(begins), np.int64)))
    if not len(rows):
        return rows
    keys = _keys(history, name)
    order = np.lexsort((np.arange(len(keys)), table["from_offset"].to_numpy(), keys))
    place_of = np.empty(len(order), np.int64)
    place_of[order] = np.arange(len(order))
    before = place_of[rows] - 1
    before = order[before[before >= 0]]
    return distinct(np.concatenate([rows, before[np.isin(keys[before], keys[rows])]]))


def _rows_of(history: ClusterHistory, name: str, wanted: Sequence[Rows]) -> pa.Table:
    rows = distinct(np.concatenate([np.zeros(0, np.int64), *wanted]))
    return normal_rows(name, history.chunked_table(name).take(pa.array(rows)))


def normal_rows(name: str, table: pa.Table) -> pa.Table:
    """A table without the columns that no rule reads, and texts as texts: the same whichever way it came."""
    if name == PARTITION_CHANGES.name:
        table = table.select(PARTS_SCHEMA.names)
    columns = [
        column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column for column in table.itercolumns()
    ]
    schema = pa.schema([pa.field(field.name, column.type) for field, column in zip(table.schema, columns, strict=True)])
    return pa.Table.from_arrays(columns, schema=schema).combine_chunks()


def sizes(carried: CarriedRows) -> dict[str, Any]:
    """How many rows of each table there are, for logs and tests."""
    return {name: table.num_rows for name, table in sorted(carried.tables.items())}
