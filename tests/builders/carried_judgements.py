"""A log judged in several steps, beside the same log judged as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kraft_audit.capture.log_facts import BATCH_COPIES
from kraft_audit.rules.carried.carried_rows import OF_CAPTURES, CarriedRows
from kraft_audit.rules.carried.carrying import carry
from kraft_audit.rules.carried.continued_history import history_of, until
from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.batch_copies import every_row
from kraft_audit.rules.columns.log_batches import canonical_log
from kraft_audit.rules.columns.open_episodes import begin_of
from kraft_audit.rules.judging import check
from kraft_audit.rules.rule_model import Finding, Status
from kraft_audit.tables.silver import STATE_TABLES

_TIMES: Final = frozenset({"timestamp_ms", "base_timestamp_ms", "max_timestamp_ms", "last_timestamp_ms"})
Episode = tuple[str, str, int | None]


@dataclass(frozen=True, slots=True)
class Difference:
    """An episode that one of two judgements does not have, or says something else about."""

    rule: str
    whole: Finding | None
    carried: Finding | None


def judged(history: ClusterHistory, only: Collection[str] | None = None) -> list[Finding]:
    """What is raised, and what is undecided; by some rules only."""
    return [finding for finding in check(history, only=only) if finding.status is not Status.CLEAR]


def said(finding: Finding) -> tuple[Any, ...]:
    """What two judgements of one log must agree in: places on disk may differ."""
    facts = [(e.offset, e.epoch, e.timestamp_ms, e.node_id, e.text, e.before, e.after) for e in finding.evidence]
    span = (finding.from_offset, finding.to_offset, finding.from_ms, finding.to_ms, finding.is_over)
    return finding.status, *span, finding.epoch, finding.severity, finding.summary, facts


def differences(whole: Iterable[Finding], before: Iterable[Finding], carried: Iterable[Finding]) -> list[Difference]:
    """Where a judgement that was carried on differs from that of the whole. What was over before is not said again, but
    where it began among the new records."""
    given = {_episode(finding): finding for finding in carried}
    over = {_episode(finding) for finding in before if finding.is_over} - given.keys()
    wanted = {_episode(finding): finding for finding in whole if _episode(finding) not in over}
    return [
        Difference((wanted.get(key) or given[key]).rule, wanted.get(key), given.get(key))
        for key in sorted(wanted.keys() | given.keys(), key=str)
        if key not in wanted or key not in given or said(wanted[key]) != said(given[key])
    ]


def _episode(finding: Finding) -> Episode:
    return finding.rule, finding.finding_id, begin_of(finding)


def new_rows(whole: ClusterHistory, before: ClusterHistory, to_offset: int) -> ClusterHistory:
    """What a history has that an earlier one, judged up to an offset, has not."""
    tables = dict(whole.tables)
    for name in STATE_TABLES:
        tables[name] = tables[name].filter(pc.greater_equal(tables[name]["from_offset"], to_offset))
    tables["records"] = tables["records"].filter(pc.greater_equal(tables["records"]["offset"], to_offset))
    for name in (each for each in OF_CAPTURES[:-1] if each != BATCH_COPIES.name):
        is_same = tables[name] is before.tables[name]
        tables[name] = tables[name].slice(0, 0) if is_same else _without(_rows(whole, name), _rows(before, name))
    tables[BATCH_COPIES.name] = BATCH_COPIES.schema.empty_table()
    problems = whole.contradictions and tuple(each for each in whole.contradictions if each.offset >= to_offset)
    return replace(whole, tables=tables, contradictions=problems, _shared={})


def _rows(history: ClusterHistory, name: str) -> pa.Table:
    table = history.chunked_table(name)
    return every_row(table, history.chunked_table(BATCH_COPIES.name)) if name == "batches" else table


def _without(table: pa.Table, earlier: pa.Table) -> pa.Table:
    counts = Counter(map(repr, earlier.to_pylist()))
    rows = []
    for number, row in enumerate(map(repr, table.to_pylist())):
        counts[row] -= 1
        rows += [number] if counts[row] < 0 else []
    return table.take(pa.array(rows, pa.int64()))


def operation_ends_of(history: ClusterHistory) -> list[int]:
    """Where a log may be cut: after each of its batches, or where changes begin in a history without batches."""
    log = canonical_log(history)
    if len(log.last_offset):
        return [offset + 1 for offset in log.last_offset.tolist()]
    offsets = {offset for name in STATE_TABLES for offset in history.chunked_table(name)["from_offset"].to_pylist()}
    return sorted({*offsets, max(offsets, default=0) + 1})


def slowed(history: ClusterHistory, factor: int, begin_ms: int | None = None) -> ClusterHistory:
    """The same log written so many times as slowly: an hour then holds little, and only what matters is carried."""
    begin_ms = begin_ms or history.begin_ms or 0
    tables = dict(history.tables)
    for name, table in tables.items():
        for column in _TIMES.intersection(table.column_names):
            slow = pc.add(pc.multiply(pc.subtract(table[column], begin_ms), factor), begin_ms)
            tables[name] = table = table.set_column(table.column_names.index(column), table.schema.field(column), slow)
    return replace(history, tables=tables, _shared={})


@dataclass
class Chain:
    """A history judged in steps, each from what the one before left. `state` is None before the first step."""

    whole: ClusterHistory
    only: Collection[str] | None = None
    state: CarriedRows | None = None

    def step(self, to_offset: int) -> CarriedRows:
        """Judges up to an offset, and keeps what the next step needs, as bytes would keep it."""
        history = self.continued(until(self.whole, to_offset))
        octets = carry(history, judged(history, self.only), to_offset).to_bytes()
        self.state = CarriedRows.from_bytes(octets)
        assert self.state.to_bytes() == octets
        return self.state

    def differences(self, to_offset: int | None = None) -> list[Difference]:
        """Where what the last step left and the rest of the log, or a part of it, say something else than the whole."""
        assert self.state is not None, "no step yet"
        whole = self.whole if to_offset is None else until(self.whole, to_offset)
        before = judged(until(self.whole, self.state.episodes.to_offset), self.only)
        return differences(judged(whole, self.only), before, judged(self.continued(whole), self.only))

    def continued(self, whole: ClusterHistory) -> ClusterHistory:
        """The history that the next step judges: what the last one left, and what is new."""
        if self.state is None:
            return whole
        # All captures were there at the first step: none is new.
        new = new_rows(whole, whole, self.state.episodes.to_offset)
        return history_of(self.state, replace(new, as_of_ms=whole.as_of_ms))


def carried_between(rounds: Sequence[ClusterHistory]) -> Iterator[list[Difference]]:
    """A log as rounds of captures showed it, each round judged from what the one before left below what it proved.

    Rounds whose replay began elsewhere are left out: Kafka deleted segments between them.
    """
    for earlier, later in pairwise(rounds):
        if earlier.states_from != later.states_from or not earlier.is_replayed:
            continue
        to_offset = max((row["low"] for row in earlier.rows("watermarks")), default=0)
        before = until(earlier, to_offset)
        found = judged(before)
        state = CarriedRows.from_bytes(carry(before, found, to_offset).to_bytes())
        carried = judged(history_of(state, new_rows(later, earlier, to_offset)))
        yield differences(judged(later), found, carried)
