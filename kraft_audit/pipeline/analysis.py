"""From a plan to every table of one cluster: bronze, silver and findings, one stream.

`analyze` is what a Spark task calls on a worker and what a notebook reads through `format("kraft")`. The rules stand on
the replay, so the two meet here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kraft_audit.capture.bronze_rows import TableRows
from kraft_audit.capture.plan import ClusterPlan, Selection
from kraft_audit.capture.presence import PRESENT
from kraft_audit.findings.finding_formats import findings_batch
from kraft_audit.findings.loss_rows import loss_rows
from kraft_audit.incidents.folding import Folding, known_incidents
from kraft_audit.losses.replica_disks import NO_LOGS, ReplicaLog, ReplicaLogs
from kraft_audit.pipeline.earlier_captures import EarlierCaptures
from kraft_audit.pipeline.history_collector import JUDGED_TABLES, HistoryCollector
from kraft_audit.pipeline.joined_captures import with_earlier_captures
from kraft_audit.pipeline.joined_surveys import new_survey_rows
from kraft_audit.pipeline.kept_captures import names_captures
from kraft_audit.quorum.ordered_reading import OrderedReading, has_several_captures
from kraft_audit.reading import BRONZE_TABLES, ClusterReading, ReadingSettings
from kraft_audit.replay.silver_rows import SILVER_TABLES, silver
from kraft_audit.rules import judging
from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.kept_logs import with_earlier_logs
from kraft_audit.rules.rule_model import Finding
from kraft_audit.tables.bronze import ARCHIVE, BATCHES, RECORDS
from kraft_audit.tables.contract import build_rows, silver_batch, slices
from kraft_audit.tables.gold import JUDGED_FINDINGS, JUDGED_INCIDENTS
from kraft_audit.tables.losses import LOSSES
from kraft_audit.tables.silver import SILVER

FINDINGS_AT_ONCE: Final = 5_000
WITHOUT_CAPTURES: Final = frozenset({RECORDS.name, ARCHIVE.name})
"""Tables that do not tell which capture showed a row: they need no order of the captures."""
JUDGMENTS: Final = frozenset({JUDGED_FINDINGS.name, JUDGED_INCIDENTS.name, LOSSES.name})
TABLES: Final = BRONZE_TABLES | SILVER_TABLES | JUDGMENTS


@dataclass(slots=True)
class CaptureMemory:
    """What earlier plans of a cluster kept (`earlier`), and what this plan keeps for the next one (`kept`)."""

    earlier: EarlierCaptures | None = None
    kept: EarlierCaptures | None = None


def analyze(
    plan: ClusterPlan,
    settings: ReadingSettings,
    tables: frozenset[str] = TABLES,
    memory: CaptureMemory | None = None,
) -> Iterator[TableRows]:
    """The rows of `tables`, in batches of at most 65,000 rows.

    Bronze and silver rows are those that `plan` adds to earlier plans. Findings are judged over everything that the
    captures hold, those of `memory` included; rules that found nothing have a row, too. Bronze comes first: short
    secrets are numbered as they are met. Captures are numbered in the order that they prove. Raises InputError where a
    storage cannot be opened.
    """
    wanted, replayed, judgments = tables & BRONZE_TABLES, tables & SILVER_TABLES, tables & JUDGMENTS
    has_several = has_several_captures(plan)
    if not (replayed or judgments or (has_several and tables - WITHOUT_CAPTURES)):
        with ClusterReading(plan, settings, keeps_records=False) as bronze:
            yield from bronze.bronze(wanted)
        return
    # All captures of such a plan are read again.
    earlier = None if memory is None or has_several else memory.earlier
    # Bronze rows leave while the cluster is read, if what is read is what they are of and their order is known.
    leaving = wanted if plan.is_whole and not (has_several and tables - WITHOUT_CAPTURES) else frozenset()
    whole = settings if leaving else replace(settings, known=None, selection=Selection())
    if not plan.is_whole:
        whole = replace(whole, stop_on_change=False)
    survey = None if earlier is None else earlier.survey
    with OrderedReading(plan, whole, keeps_records=bool(replayed or judgments), earlier=survey) as ordered:
        for reading in ordered:
            collector, missed = HistoryCollector(reading) if judgments else None, [BATCHES.schema.empty_table()]
            facts, read = (None, leaving) if collector is None else (collector.facts, leaving | JUDGED_TABLES)
            for name, batch in reading.bronze(read, facts):
                if collector is not None and name in JUDGED_TABLES:
                    collector.take_rows(name, batch)
                if name in leaving:
                    missed += [_missed(batch)] if name == BATCHES.name else []
                    yield name, batch
        if wanted and not leaving:
            with ordered.once_more(settings) as bronze:
                for name, batch in bronze.bronze(wanted):
                    missed += [_missed(batch)] if name == BATCHES.name else []
                    yield name, batch
        joined = None if earlier is None else _Joined(earlier, pa.concat_tables(missed))
        yield from _replayed(ordered.plan, ordered.reading, replayed | judgments, collector, memory, joined)


@dataclass(frozen=True, slots=True)
class _Joined:
    """What a history is joined to: `earlier` captures, and the batches that they held and a disk has no more."""

    earlier: EarlierCaptures
    missed: pa.Table


def _missed(batches: pa.RecordBatch) -> pa.Table:
    """The rows that say that a batch is gone from a disk."""
    table = pa.Table.from_batches([batches])
    return table.filter(pc.not_equal(table["status"], PRESENT))


def reanalyze(
    plan: ClusterPlan,
    settings: ReadingSettings,
    judged_rows: Iterable[TableRows],
    tables: frozenset[str],
    replica_logs: ReplicaLogs,
) -> Iterator[TableRows]:
    """The silver rows in `tables`, and all findings, of captures whose bronze rows are there already.

    `judged_rows` are the rows of `captures`, `batches` and `decode_errors` that the findings are judged by,
    `replica_logs` what brokers' disks held once.
    """
    with ClusterReading(plan, settings) as reading:
        collector = HistoryCollector(reading)
        for name, batch in judged_rows:
            collector.take_rows(name, batch)
        yield from _replayed(plan, reading, (tables & SILVER_TABLES) | JUDGMENTS, collector, replica_logs=replica_logs)


def _replayed(
    plan: ClusterPlan,
    reading: ClusterReading,
    tables: frozenset[str],
    collector: HistoryCollector | None,
    memory: CaptureMemory | None = None,
    joined: _Joined | None = None,
    replica_logs: ReplicaLogs = NO_LOGS,
) -> Iterator[TableRows]:
    """The silver rows, and what is judged of the whole history."""
    if not tables:
        return
    for name, batch in silver(plan, reading, tables & SILVER_TABLES, fold=collector, lists_all=joined is None):
        yield from ((name, part) for part in slices(batch))
    if collector is None:
        return
    history = collector.history()
    if replica_logs:
        history = replace(history, read_disks=with_earlier_logs(history.read_disks, replica_logs, 0))
    if joined is not None:
        history = with_earlier_captures(joined.earlier, history, joined.missed)
        for name, rows in new_survey_rows(joined.earlier.tables, history.tables).items():
            if name in tables and rows:
                batch = silver_batch(SILVER[name], plan.cluster_id, plan.number, rows)
                yield from ((name, part) for part in slices(batch))
    open_findings: list[Finding] = []
    logs: dict[tuple[str, int], tuple[ReplicaLog, ...]] = {}
    yield from ((name, part) for name, part in _judged(history, plan, open_findings, logs) if name in tables)
    if memory is not None:
        earlier = None if joined is None else joined.earlier
        memory.kept = EarlierCaptures.of(history, reading.survey, open_findings, logs, earlier)


def _judged(
    history: ClusterHistory,
    plan: ClusterPlan,
    open_findings: list[Finding],
    logs: dict[tuple[str, int], tuple[ReplicaLog, ...]],
) -> Iterator[TableRows]:
    """The findings, the incidents that they are folded into, and the losses.

    `open_findings` gets those that last and name captures, `logs` what was read of brokers' disks.
    """
    folding = Folding(known_incidents(history), keeps_ids=True)
    folding.see(history)
    for findings in _folded(judging.check(history), folding):
        yield JUDGED_FINDINGS.name, findings_batch(findings, seen_ms=history.seen_ms, plan=plan.number)
        open_findings += [finding for finding in findings if finding.lasts and names_captures(finding)]
    rows = [{**row, "plan": plan.number} for row in folding.rows(history.cluster_id)]
    yield from ((JUDGED_INCIDENTS.name, batch) for batch in slices(build_rows(JUDGED_INCIDENTS, rows)))
    # Loss events that are new to the lake, or of which more is known.
    since = 0 if plan.silver is None else plan.silver.settled_offset
    rows = list(loss_rows(history, plan.number, logs, since))
    yield from ((LOSSES.name, batch) for batch in slices(build_rows(LOSSES, rows)) if rows)


def _folded(findings: Iterator[Finding], folding: Folding) -> Iterator[list[Finding]]:
    """Findings in lists, raised ones folded into incidents. A log of many partitions may have millions: one list is
    held at a time."""
    while batch := list(islice(findings, FINDINGS_AT_ONCE)):
        yield [folding.add(finding)[0] for finding in batch]
