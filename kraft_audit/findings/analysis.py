"""From a plan to every table of one cluster: bronze, silver and findings, one stream.

`analyze` is what a Spark task calls on a worker and what a notebook reads through `format("kraft")`. The rules stand on
the replay, so the two meet here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from kraft_audit.capture.bronze_rows import TableRows
from kraft_audit.capture.kept_log import NotResumableError
from kraft_audit.capture.plan import ClusterPlan, Selection
from kraft_audit.findings.finding_formats import findings_batch
from kraft_audit.findings.kept_state import KeptState, state_versions
from kraft_audit.incidents.folding import fold
from kraft_audit.incidents.incident import incident_row
from kraft_audit.quorum.ordered_reading import OrderedReading, has_several_captures
from kraft_audit.reading import BRONZE_TABLES, ClusterReading, ReadingSettings
from kraft_audit.replay.replay_base import ReplayBase
from kraft_audit.replay.silver_rows import SILVER_TABLES, silver
from kraft_audit.rules import registry
from kraft_audit.rules.history_collector import JUDGED_TABLES, HistoryCollector
from kraft_audit.rules.rule_model import Finding, Status
from kraft_audit.tables.bronze import ARCHIVE, RECORDS
from kraft_audit.tables.contract import build_rows, slices
from kraft_audit.tables.gold import JUDGED_FINDINGS, JUDGED_INCIDENTS

HISTORY_BYTES_MAX: Final = 128 << 20
"""The most of one cluster's history that a task holds while rules judge it; `check` on a laptop has no limit."""
PARTITION_BYTES_MAX: Final = 16 << 20
"""The most of the partitions' changes in memory: of more, all go to disk and are judged by parts."""
FINDINGS_AT_ONCE: Final = 5_000
WITHOUT_CAPTURES: Final = frozenset({RECORDS.name, ARCHIVE.name})
"""Tables that do not tell which capture showed a row: they need no order of the captures."""
JUDGMENTS: Final = frozenset({JUDGED_FINDINGS.name, JUDGED_INCIDENTS.name})
TABLES: Final = BRONZE_TABLES | SILVER_TABLES | JUDGMENTS


@dataclass(slots=True)
class Continuation:
    """What a plan goes on from, and what it leaves for the next one.

    `earlier` is what the plan before it kept, None where there is nothing. Afterwards `next_state` is what this plan
    keeps, None where it can keep nothing, and `why_whole` says why everything was read, None where it was not.
    """

    earlier: KeptState | None = None
    next_state: KeptState | None = None
    why_whole: str | None = None


def analyze(
    plan: ClusterPlan,
    settings: ReadingSettings,
    tables: frozenset[str] = TABLES,
    continuation: Continuation | None = None,
) -> Iterator[TableRows]:
    """The rows of `tables`, in batches of at most 65,000 rows.

    Bronze and silver rows are those that `plan` adds to earlier plans; findings are judged over everything that the
    captures hold, all of them, clear ones included. Bronze comes first: short secrets are numbered as they are met.
    Captures are numbered in the order that they prove. With a continuation bronze and silver rows come from new bytes
    and lag alone, where that can be. Raises InputError where a storage cannot be opened.
    """
    if continuation is None or not tables & SILVER_TABLES:
        yield from _analyze(plan, settings, tables)
        return
    earlier, needs = continuation.earlier, tables
    if earlier is None:
        continuation.why_whole = "nothing was kept"
    elif tables & JUDGMENTS or has_several_captures(plan):
        continuation.why_whole = "findings, and the order of captures, are judged over all records"
    else:
        with _going_on(plan, settings, earlier) as reading:
            try:
                rows = reading.begin(tables & BRONZE_TABLES)
                yield from rows
                needs -= BRONZE_TABLES
                yield from _silver(plan, reading, tables, continuation, earlier.settled)
                return
            except NotResumableError as error:
                continuation.why_whole = str(error)
    yield from _analyze(plan, settings, needs, continuation)


def _going_on(plan: ClusterPlan, settings: ReadingSettings, earlier: KeptState) -> ClusterReading:
    base = earlier.settled
    return ClusterReading(plan, settings, earlier=earlier.survey, records_from=(base.fed_to, base.epoch))


def _silver(
    plan: ClusterPlan,
    reading: ClusterReading,
    tables: frozenset[str],
    continuation: Continuation | None,
    base: ReplayBase | None = None,
    collector: HistoryCollector | None = None,
) -> Iterator[TableRows]:
    """The silver rows, and what is kept after them."""
    bases: list[ReplayBase] = []
    keep = None if continuation is None else bases.append
    for name, batch in silver(plan, reading, tables & SILVER_TABLES, fold=collector, base=base, keep=keep):
        yield from ((name, part) for part in slices(batch))
    if continuation is not None and bases:
        continuation.next_state = KeptState(state_versions(plan), reading.kept_survey(), bases[0])


def _analyze(
    plan: ClusterPlan, settings: ReadingSettings, tables: frozenset[str], continuation: Continuation | None = None
) -> Iterator[TableRows]:
    wanted, replayed = tables & BRONZE_TABLES, tables & SILVER_TABLES
    judgments = tables & JUDGMENTS
    is_judged = bool(judgments)
    needs_order = bool(tables - WITHOUT_CAPTURES) and has_several_captures(plan)
    if not (replayed or is_judged or needs_order):
        with ClusterReading(plan, settings, keeps_records=False) as bronze:
            yield from bronze.bronze(wanted)
        return
    # Bronze rows leave while the cluster is read, if what is read is what they are of and their order is known.
    leaving = wanted if plan.is_whole and not needs_order else frozenset()
    whole = settings if leaving else replace(settings, known=None, selection=Selection())
    if not plan.is_whole:
        whole = replace(whole, stop_on_change=False)
    with OrderedReading(plan, whole, keeps_records=bool(replayed or is_judged)) as ordered:
        collector = None
        for reading in ordered:
            collector = _collector(reading) if is_judged else None
            for name, batch in reading.bronze(leaving | JUDGED_TABLES if is_judged else leaving):
                if collector is not None and name in JUDGED_TABLES:
                    collector.take_rows(name, batch)
                if name in leaving:
                    yield name, batch
        if wanted and not leaving:
            with ordered.once_more(settings) as bronze:
                yield from bronze.bronze(wanted)
        if replayed or is_judged:
            yield from _replayed(ordered.plan, ordered.reading, replayed | judgments, collector, continuation)


def reanalyze(
    plan: ClusterPlan, settings: ReadingSettings, judged_rows: Iterable[TableRows], tables: frozenset[str]
) -> Iterator[TableRows]:
    """The silver rows in `tables`, and all findings, of captures whose bronze rows are there already.

    `judged_rows` are the rows of `captures`, `batches` and `decode_errors` that the findings are judged by.
    """
    with ClusterReading(plan, settings) as reading:
        collector = _collector(reading)
        for name, batch in judged_rows:
            collector.take_rows(name, batch)
        yield from _replayed(plan, reading, (tables & SILVER_TABLES) | JUDGMENTS, collector)


def _collector(reading: ClusterReading) -> HistoryCollector:
    return HistoryCollector(reading, history_bytes_max=HISTORY_BYTES_MAX, partition_bytes_max=PARTITION_BYTES_MAX)


def _replayed(
    plan: ClusterPlan,
    reading: ClusterReading,
    tables: frozenset[str],
    collector: HistoryCollector | None,
    continuation: Continuation | None = None,
) -> Iterator[TableRows]:
    yield from _silver(plan, reading, tables, continuation, collector=collector)
    if collector is not None:
        yield from ((name, part) for name, part in _judged(collector, plan.number) if name in tables)


def _judged(collector: HistoryCollector, plan: int) -> Iterator[TableRows]:
    """The findings, and the incidents that they are folded into."""
    history = collector.history()
    findings = registry.check(history)
    raised: list[Finding] = []
    while part := list(islice(findings, FINDINGS_AT_ONCE)):
        yield JUDGED_FINDINGS.name, findings_batch(part, seen_ms=history.seen_ms, plan=plan)
        # Evidence may hold partitions in memory, and no incident asks for it.
        raised += [finding._replace(evidence=()) for finding in part if finding.status is Status.RAISED]
    incidents = fold(history, raised).incidents
    rows = [{**incident_row(history.cluster_id, incident), "plan": plan} for incident in incidents]
    yield from ((JUDGED_INCIDENTS.name, batch) for batch in slices(build_rows(JUDGED_INCIDENTS, rows)))
