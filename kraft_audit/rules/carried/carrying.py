"""Which rows the rules need of a history that was judged up to an offset, to go on from there.

Of each table these are the newest row of every subject that exists, where open findings began, and what rules say they
need besides (`carries` in `@rule`). Of captures the rounds are carried that rules still ask for, and of batches runs
(`carried_captures`, `merged_batches`). `voter_sets` and `leader_epochs` are carried whole, as an hour has few of them:
a survey of later disks may not reach those whose records Kafka has deleted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kraft_audit.capture.log_facts import BATCH_COPIES
from kraft_audit.losses.replica_disks import ReplicaLogs
from kraft_audit.rules.carried.carried_captures import (
    carried_captures,
    carried_marks,
    carried_watermarks,
    names_captures,
    offsets_of_interest,
    taken,
)
from kraft_audit.rules.carried.carried_rows import (
    FROM_THE_SURVEY,
    SMALL_CHANGES,
    WHOLE,
    CarriedRows,
    normal_rows,
    once_each,
)
from kraft_audit.rules.carried.merged_batches import merged_batches
from kraft_audit.rules.cluster_history import ClusterHistory, OpenEpisodes
from kraft_audit.rules.columns.frame import coded, distinct, numbered
from kraft_audit.rules.columns.nodes import carried_registrations
from kraft_audit.rules.columns.open_episodes import as_table_rows, begin_of, begins_of, with_previous
from kraft_audit.rules.columns.partition_states import partition_states
from kraft_audit.rules.finding_keys import topic_of
from kraft_audit.rules.registry import rules
from kraft_audit.rules.rule_model import Finding, RowNumbers, Scope
from kraft_audit.tables.bronze import DECODE_ERRORS
from kraft_audit.tables.number_arrays import Mask, Rows
from kraft_audit.tables.silver import STATE_TABLES, TOPIC_CHANGES

STAYS_KNOWN: Final = frozenset({"broker_changes", "controller_changes"})
"""Of these a subject's newest row matters after it is gone: a broker that was registered once is no unknown one."""
READS_EVIDENCE: Final = frozenset({"KP007"})
"""Rules whose `carries` reads the evidence of open findings."""


def as_carried(finding: Finding) -> Finding:
    """An open finding without what `carry` does not read: its texts are most of it, and evidence may hold partitions in
    memory."""
    reads_evidence = finding.rule in READS_EVIDENCE or names_captures(finding)
    evidence = finding.evidence if reads_evidence else ()
    return finding._replace(evidence=evidence, summary="", reason=None, why="", what_to_do="")


def carry(
    history: ClusterHistory,
    findings: Iterable[Finding],
    to_offset: int,
    waiting_to: int | None = None,
    replica_logs: ReplicaLogs = MappingProxyType({}),
) -> CarriedRows:
    """What the rules need of a history that was judged up to an offset, the end of a whole operation.

    Args:
        history: the history that was judged.
        findings: all of that judgement, with the settings of the next one.
        to_offset: the end of what was judged.
        waiting_to: up to where records wait for the end of their transaction.
        replica_logs: what brokers' disks hold of partitions with a loss.
    """
    open_findings = [as_carried(each) for each in findings if each.is_open]
    begins: dict[str, list[int]] = defaultdict(list)
    for each in open_findings:
        if (begin := begin_of(each)) is not None:
            begins[each.finding_id].append(begin)
    wanted: dict[str, list[Rows]] = defaultdict(list)
    wanted[TOPIC_CHANGES.name].append(_of_topics(history, open_findings))
    for table, rows in _needed(history, open_findings):
        wanted[table].append(rows)
    tables = {
        name: normal_rows(name, table)
        for name, table in _of_captures(history, open_findings, wanted, (to_offset, waiting_to))
    }
    # What was derived of partitions takes as much as their rows do, and has been asked for all that it is needed for.
    history.forget()
    of_whole = (*WHOLE, *FROM_THE_SURVEY)
    tables |= {name: normal_rows(name, history.chunked_table(name)) for name in of_whole if history.has(name)}
    tables |= {name: _rows_of(history, name, wanted[name]) for name in STATE_TABLES if name not in WHOLE}
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
        replica_logs,
    )


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


def _needed(history: ClusterHistory, open_findings: Sequence[Finding]) -> Iterator[RowNumbers]:
    """The rows that every rule gets, and those that rules ask for."""
    for name in SMALL_CHANGES:
        yield name, _newest(history, name)
        yield name, _where_findings_began(history, name, open_findings)
    yield from carried_registrations(history)
    states = partition_states(history)
    yield as_table_rows(states, states.last_rows[states.exists[states.last_rows]])
    of_partitions = (each for each in open_findings if each.scope is Scope.PARTITION)
    begins = np.array(sorted(set(begins_of(history, of_partitions))), np.int64)
    yield as_table_rows(states, with_previous(states, begins))
    by_rule: dict[str, list[Finding]] = defaultdict(list)
    for each in open_findings:
        by_rule[each.rule].append(each)
    for rule in rules().values():
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
    columns = [table[column] for column in STATE_TABLES[name].subject]
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
