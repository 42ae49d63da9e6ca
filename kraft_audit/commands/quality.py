"""`lake quality`: the gate between the tables and what is published."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from kraft_audit.commands.arguments import QUALITY_PACKAGES, LakePath, OutputFormat, need_packages
from kraft_audit.commands.ending import UsageError, remark
from kraft_audit.commands.terminal_options import prints_tables
from kraft_audit.text.exit_codes import EXIT_FINDINGS
from kraft_audit.text.output import Format, Output, table_columns

HOURS_MAX: Final = 1_000_000
"""More than a century: older than any lake, and still a time."""
COLUMNS: Final = table_columns(
    "status table clause worst cluster_count promise",
    {"status": "", "cluster_count": "clusters"},
    wide="promise",
    dropped="cluster_count worst",
)


@prints_tables
def quality(
    lake: LakePath,
    docs: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            show_default=False,
            help="Folder for the page of results; '' writes no page. Default: LAKE/_quality/plan-N.",
        ),
    ] = None,
    fresh_hours: Annotated[
        float,
        typer.Option(metavar="HOURS", min=0, max=HOURS_MAX, help="Warn if a cluster was not read for this many hours."),
    ] = 26.0,
    new: Annotated[
        bool,
        typer.Option(
            "--new",
            help="Check only the rows since the last check that passed, and once a day the whole lake.",
        ),
    ] = False,
    output: OutputFormat = Format.TABLE,
) -> int:
    """Check a lake's tables: keys, nulls, values, offsets, epochs, the ledger and freshness.

    Exit code 1 if a critical check fails. Then publish nothing from the lake until it is repaired. Warnings are shown,
    but do not change the exit code.

    \b
    Examples:
      kraft-audit lake quality .demo/lake
      kraft-audit lake quality .demo/lake --docs site/quality --output json
      kraft-audit lake quality .demo/lake --new
    """
    if math.isnan(fresh_hours):
        expected = f"expected {HOURS_MAX} or less (see `kraft-audit lake quality --help`)"
        raise UsageError(f"'--fresh-hours': 'nan': {expected}")
    need_packages("lake quality", QUALITY_PACKAGES, "lake,quality")
    from kraft_audit.lake.delta import DeltaLake
    from kraft_audit.lake.lake_paths import absolute
    from kraft_audit.lake.quality.quality_gate import judge_lake

    here = Path.cwd()
    docs_folder = absolute(docs, here) if docs else docs
    result = judge_lake(DeltaLake(absolute(lake, here)), fresh_hours=fresh_hours, only_new=new, docs=docs_folder)
    rows: list[dict[str, Any]] = [
        {
            "status": "ok" if verdict.passed else verdict.severity,
            "table": verdict.table,
            "clause": verdict.clause,
            "worst": verdict.worst,
            "cluster_count": verdict.cluster_count,
            "promise": verdict.promise,
            "clusters": list(verdict.clusters),
            "plan": result.plan,
            "docs": result.docs,
        }
        for verdict in result.verdicts
    ]
    Output(output).rows(rows, COLUMNS, (*(column.name for column in COLUMNS), "clusters", "plan", "docs"))
    for row in rows:
        if row["status"] != "ok" and row["clusters"] != [""]:
            remark(f"{row['status']}: {row['table']}.{row['clause']}: {', '.join(row['clusters'])}")
    if result.docs:
        remark(f"results: {result.docs}/index.html")
    return 0 if result.is_open else EXIT_FINDINGS
