"""From a plan to every table of one cluster: bronze, silver and findings, one stream.

`analyze` is what a Spark task calls on a worker and what a notebook reads through `format("kraft")`. The rules stand on
the replay, so the two meet here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

import pyarrow as pa

from kraft_audit.replay import analyze as bronze
from kraft_audit.replay.cluster import Clock, OpenStorage, wall_clock_ms
from kraft_audit.replay.emit import TableRows
from kraft_audit.replay.plan import ClusterPlan, KnownBatches, Selection
from kraft_audit.replay.proven_plan import in_proven_order
from kraft_audit.replay.silver import SILVER_TABLES, silver
from kraft_audit.rules import registry
from kraft_audit.rules.collect import BRONZE as JUDGED_BRONZE
from kraft_audit.rules.collect import HistoryCollector
from kraft_audit.rules.tables import FINDINGS, findings_batch
from kraft_codec.redaction import Redactor
from kraft_codec.tables import ARCHIVE, RECORDS, slices

HISTORY_BYTES_MAX: Final = 128 << 20
"""The most of one cluster's history that a task holds while rules judge it; `check` on a laptop has no limit."""
PARTITION_BYTES_MAX: Final = 16 << 20
"""The most of the partitions' changes in memory: of more, all go to disk and are judged by parts."""
FINDINGS_AT_ONCE: Final = 5_000
WITHOUT_CAPTURES: Final = frozenset({RECORDS.name, ARCHIVE.name})
"""Tables that do not tell which capture showed a row: they need no order of the captures."""
TABLES: Final = bronze.TABLES | SILVER_TABLES | {FINDINGS.name}


def analyze(
    plan: ClusterPlan,
    tables: frozenset[str] = TABLES,
    *,
    open_storage: OpenStorage,
    redactor: Redactor,
    known: KnownBatches | None = None,
    selection: Selection = bronze.EVERYTHING,
    clock_ms: Clock = wall_clock_ms,
    stop_on_change: bool = False,
) -> Iterator[TableRows]:
    """The rows of `tables`, in batches of at most 65,000 rows: the arguments are those of `replay.analyze.analyze`.

    Bronze and silver rows are those that `plan` adds to earlier plans; findings are judged over everything that the
    captures hold, all of them, clear ones included. Bronze comes first: short secrets are numbered as they are met.
    Captures are numbered in the order that they prove.
    """
    shape = None
    if tables - WITHOUT_CAPTURES:
        proven = in_proven_order(plan, open_storage=open_storage, redactor=redactor)
        plan, shape = proven.plan, proven.shape
    collector = None
    if FINDINGS.name in tables:
        collector = HistoryCollector(
            plan.whole(),
            open_storage=open_storage,
            redactor=redactor,
            history_bytes_max=HISTORY_BYTES_MAX,
            partition_bytes_max=PARTITION_BYTES_MAX,
        )
    wanted = tables & bronze.TABLES
    if wanted:
        asked = wanted | JUDGED_BRONZE if collector is not None and plan.is_whole else wanted
        for name, batch in bronze.analyze(
            plan,
            asked,
            open_storage=open_storage,
            redactor=redactor,
            known=known,
            selection=selection,
            clock_ms=clock_ms,
            stop_on_change=stop_on_change,
        ):
            if collector is not None and plan.is_whole and name in JUDGED_BRONZE:
                collector.told(name, batch)
            if name in wanted:
                yield name, batch
    if collector is not None and not (wanted and plan.is_whole):
        for name, batch in bronze.analyze(
            plan.whole(), JUDGED_BRONZE, open_storage=open_storage, redactor=redactor, clock_ms=clock_ms
        ):
            collector.told(name, batch)
    if collector is not None or tables & SILVER_TABLES:
        told = tables & SILVER_TABLES
        found = silver(plan, told, open_storage=open_storage, redactor=redactor, observer=collector, shape=shape)
        yield from ((name, part) for name, batch in found for part in slices(batch))
    if collector is not None:
        yield from ((FINDINGS.name, part) for part in _findings(collector, plan.number))


def reanalyze(
    plan: ClusterPlan,
    told: Iterable[TableRows],
    tables: frozenset[str],
    *,
    open_storage: OpenStorage,
    redactor: Redactor,
) -> Iterator[TableRows]:
    """The silver rows in `tables`, and all findings, of captures whose bronze rows are there already.

    `told` are the rows of `captures`, `batches` and `decode_errors` that the findings are judged by.
    """
    collector = HistoryCollector(
        plan,
        open_storage=open_storage,
        redactor=redactor,
        history_bytes_max=HISTORY_BYTES_MAX,
        partition_bytes_max=PARTITION_BYTES_MAX,
    )
    for name, batch in told:
        collector.told(name, batch)
    found = silver(plan, tables & SILVER_TABLES, open_storage=open_storage, redactor=redactor, observer=collector)
    yield from ((name, part) for name, batch in found for part in slices(batch))
    yield from ((FINDINGS.name, part) for part in _findings(collector, plan.number))


def _findings(collector: HistoryCollector, plan: int) -> Iterator[pa.RecordBatch]:
    history = collector.history()
    findings = registry.check(history)
    while some := list(islice(findings, FINDINGS_AT_ONCE)):
        yield findings_batch(some, seen_ms=history.seen_ms, plan=plan)
