"""One large cluster, judged by several tasks: each for the partitions of a share of the topics, and a last one joins.

Each task reads and replays the whole log, which is the smaller part of the work, and makes a share of the rows: bronze
tables are dealt out, partitions go by topics, the first task makes what is left. Rules about partitions judge a share's
own topics; all other rules, incidents and the state for the next plan follow once, from what the first task's history
says and what all tasks found. The rows are those that one task would make: no rule knows of shares.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

import numpy as np
import pyarrow as pa

from kraft_audit.capture.bronze_rows import TableRows
from kraft_audit.capture.plan import ClusterPlan
from kraft_audit.findings.analysis import (
    JUDGMENTS,
    TABLES,
    Continuation,
    analyze,
    folded,
    incident_rows,
    is_settled,
    keepable,
    lost_rows,
    with_rules,
)
from kraft_audit.findings.finding_formats import findings_batch, findings_in
from kraft_audit.findings.kept_state import KeptState
from kraft_audit.incidents.folding import Folding, known_incidents
from kraft_audit.reading import ReadingSettings
from kraft_audit.rules import judging, registry
from kraft_audit.rules.carried.carried_rows import log_rows, logs_of, normal_rows
from kraft_audit.rules.carried.carrying import Carrying, as_carried
from kraft_audit.rules.carried.continued_history import until
from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.partition_parts import PARTS_SCHEMA, PartitionParts
from kraft_audit.rules.rule_model import Finding, Rule, Scope
from kraft_audit.tables.bronze import RECORDS
from kraft_audit.tables.gold import JUDGED_FINDINGS
from kraft_audit.tables.kept_parts import (
    KeptPartsError,
    columns_from_bytes,
    columns_to_bytes,
    pack,
    unpack,
)
from kraft_audit.tables.silver import EXPOSURE_CHANGES, PARTITION_CHANGES

FIRST: Final = 0
_OF_PARTITIONS: Final = frozenset({PARTITION_CHANGES.name, EXPOSURE_CHANGES.name})
_ROW_NUMBERS: Final = pa.schema([pa.field("row", pa.int64())])
_CARRIED: Final = normal_rows(PARTITION_CHANGES.name, PARTS_SCHEMA.empty_table()).schema


def tables_of_share(share: int, shares: int) -> frozenset[str]:
    """The tables whose rows a task makes: `records` are as much work as all others of bronze."""
    if share == FIRST:
        return TABLES - ({RECORDS.name} if shares > 1 else frozenset())
    own = _OF_PARTITIONS | JUDGMENTS
    return own | {RECORDS.name} if share == shares - 1 else own


@dataclass(slots=True)
class PartsFound:
    """What the rules about partitions found in some parts.

    `open_findings` have no texts; `of_cluster` are findings about the whole cluster, which come again with every part.
    `folded` is what incidents explain of all others. `carrying` has the rows that the next judgement needs of these
    parts.
    """

    rules: set[str] = field(default_factory=set)
    rows_across: dict[str, pa.Table] = field(default_factory=dict)
    open_findings: list[pa.RecordBatch] = field(default_factory=list)
    of_cluster: list[Finding] = field(default_factory=list)
    folded: bytes = b""
    carrying: Carrying = field(default_factory=Carrying)

    def judge(self, history: ClusterHistory, plan: int) -> Iterator[TableRows]:
        """Judges the parts of a history; their findings, as rows."""
        judge = judging.PartsJudge(_rules_by_part(), history, {})
        folding = Folding(known_incidents(history), keeps_ids=True)
        folding.see(history)
        for part in history.histories_by_part():
            for batch in folded(self._of_partitions(judge.findings(part, self.carrying)), folding):
                yield JUDGED_FINDINGS.name, findings_batch(batch, seen_ms=history.seen_ms, plan=plan)
                bare = [as_carried(finding)._replace(evidence=()) for finding in batch if finding.is_open]
                self.open_findings.append(findings_batch(bare))
        self.rules, self.rows_across, self.folded = judge.ids_with_case, judge.rows_across(), folding.to_bytes()

    def _of_partitions(self, findings: Iterator[Finding]) -> Iterator[Finding]:
        """Findings without those about the whole cluster, which are noted."""
        for finding in findings:
            if finding.subject == Scope.CLUSTER:
                self.of_cluster.append(finding)
            else:
                yield finding

    def to_bytes(self) -> bytes:
        facts = {
            "rules": sorted(self.rules),
            "across": sorted(self.rows_across),
            "wanted": sorted(self.carrying.wanted),
            "logs": log_rows(self.carrying.logs),
        }
        open_findings = pa.Table.from_batches(self.open_findings, JUDGED_FINDINGS.schema)
        parts = {
            "facts": json.dumps(facts).encode(),
            "open_findings": columns_to_bytes(open_findings),
            "folded": self.folded,
            "of_cluster": columns_to_bytes(findings_batch(self.of_cluster)),
            "carried": columns_to_bytes(pa.concat_tables([_CARRIED.empty_table(), *self._carried()])),
        }
        parts |= {f"across.{rule}": columns_to_bytes(rows) for rule, rows in self.rows_across.items()}
        for table, rows in self.carrying.wanted.items():
            numbers = np.unique(np.concatenate([np.zeros(0, np.int64), *rows]))
            parts[f"wanted.{table}"] = columns_to_bytes(pa.record_batch([pa.array(numbers)], schema=_ROW_NUMBERS))
        return pack(parts)

    def _carried(self) -> Iterator[pa.Table]:
        return (rows.cast(_CARRIED) for rows in self.carrying.partitions)

    @classmethod
    def from_bytes(cls, content: bytes) -> PartsFound:
        """Raises KeptPartsError where the bytes are not what `to_bytes` gave."""
        parts = unpack(content)
        try:
            facts = json.loads(parts["facts"])
            parts_found = cls(set(facts["rules"]))
            for rule in facts["across"]:
                parts_found.rows_across[rule] = pa.Table.from_batches(
                    [columns_from_bytes(parts[f"across.{rule}"], PARTS_SCHEMA)]
                )
            parts_found.open_findings = [columns_from_bytes(parts["open_findings"], JUDGED_FINDINGS.schema)]
            parts_found.folded = parts["folded"]
            parts_found.of_cluster = list(findings_in(columns_from_bytes(parts["of_cluster"], JUDGED_FINDINGS.schema)))
            parts_found.carrying.partitions = [pa.Table.from_batches([columns_from_bytes(parts["carried"], _CARRIED)])]
            parts_found.carrying.logs = dict(logs_of(facts["logs"]))
            for table in facts["wanted"]:
                rows = columns_from_bytes(parts[f"wanted.{table}"], _ROW_NUMBERS)
                parts_found.carrying.wanted[table] = [rows.column("row").to_numpy()]
        except (ValueError, LookupError) as error:
            raise KeptPartsError(f"what a share found cannot be read: {error}") from None
        return parts_found


@dataclass(slots=True)
class ShareFound:
    """What one task leaves for the last: what it found at the log's end, and as of what is settled where that differs.

    The first task also leaves the history, and the state without what rules need.
    """

    at_end: PartsFound = field(default_factory=PartsFound)
    settled: PartsFound | None = None
    history: ClusterHistory | None = None
    state: KeptState | None = None

    def analyze(self, plan: ClusterPlan, settings: ReadingSettings) -> Iterator[TableRows]:
        """The rows of one share of a plan. Raises OSError where the temporary folder cannot hold its partitions."""
        if plan.share is None:
            raise ValueError("the plan is not of one share")
        continuation = Continuation() if plan.keeps_state else None
        yield from analyze(plan, settings, tables_of_share(plan.share, plan.shares), continuation, self._judged)
        if plan.share == FIRST and continuation is not None:
            self.state = continuation.next_state

    def _judged(
        self, history: ClusterHistory, plan: ClusterPlan, tables: frozenset[str], continuation: Continuation | None
    ) -> Iterator[TableRows]:
        history = _by_parts(history)
        self.history = history if plan.share == FIRST else None
        yield from self.at_end.judge(history, plan.number)
        yield from lost_rows(history, plan.number, self.at_end.carrying.logs)
        state = None if continuation is None else continuation.next_state
        if state is not None and not is_settled(history, state):
            self.settled = PartsFound()
            before = until(history, state.settled.settled_offset, state.settled.fed_to)
            for _ in self.settled.judge(before, plan.number):
                pass


def joined(
    plan: ClusterPlan,
    history: ClusterHistory,
    state: KeptState | None,
    shares: Sequence[ShareFound],
    continuation: Continuation,
) -> Iterator[TableRows]:
    """The rows that are left when all shares were judged; `history` and `state` are the first one's.

    The continuation gets the whole state.
    """
    state = keepable(history, state)
    is_end = state is not None and is_settled(history, state)
    carrying, open_findings = Carrying(), list[Finding]()
    at_end = [each.at_end for each in shares]
    folding = Folding(known_incidents(history), keeps_ids=True)
    for each in at_end:
        folding.take(each.folded)
        carrying.logs |= each.carrying.logs
    for batch in folded(_findings_left(history, at_end, carrying if is_end else None), folding):
        yield JUDGED_FINDINGS.name, findings_batch(batch, seen_ms=history.seen_ms, plan=plan.number)
        open_findings += [finding for finding in batch if finding.is_open]
    yield from incident_rows(folding, history, plan.number)
    settled = [each.at_end if each.settled is None else each.settled for each in shares]

    def judge_again(before: ClusterHistory) -> Iterator[Finding]:
        return chain(_findings_left(before, settled, carrying), _open_in(settled))

    if state is not None:
        state = with_rules(state, history, carrying, chain(open_findings, _open_in(at_end)), judge_again)
    continuation.next_state = state


def _open_in(parts: Sequence[PartsFound]) -> Iterator[Finding]:
    return (finding for each in parts for batch in each.open_findings for finding in findings_in(batch))


def _findings_left(
    history: ClusterHistory, parts: Sequence[PartsFound], carrying: Carrying | None
) -> Iterator[Finding]:
    """The findings of a cluster that no share gave: of other rules, about the whole cluster, across topics."""
    by_part = _rules_by_part()
    judge = judging.PartsJudge(by_part, history, {})
    yield from judging.with_declared(
        history, chain(judging.check_others(registry.rules().values(), by_part, history, {}), judge.not_applicable)
    )
    of_cluster: dict[tuple[str, str, int | None], Finding] = {}
    for each in parts:
        for finding in each.of_cluster:
            of_cluster.setdefault((finding.rule, finding.finding_id, finding.from_offset), finding)
        judge.take(each.rules, each.rows_across)
        if carrying is not None:
            carrying.take(each.carrying)
    yield from of_cluster.values()
    yield from judging.with_declared(history, judge.end(history, carrying))


def _rules_by_part() -> list[Rule]:
    return [each for each in registry.rules().values() if each.is_by_part]


def _by_parts(history: ClusterHistory) -> ClusterHistory:
    """A history whose partitions are in parts. Raises OSError where nothing could hold them."""
    if history.parts is not None:
        return history
    if not history.has(PARTITION_CHANGES.name):
        raise OSError("the temporary folder cannot hold the partitions")
    parts = PartitionParts()
    for batch in history.chunked_table(PARTITION_CHANGES.name).to_batches():
        parts.add(batch)
    tables = {name: table for name, table in history.tables.items() if name != PARTITION_CHANGES.name}
    return replace(history, tables=tables, parts=parts)
