"""`quality`: the gate between the tables and what is published."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from kraft_audit.commands.arguments import OutputFormat
from kraft_audit.commands.ending import EXIT_FINDINGS, UsageError, remark
from kraft_audit.output import Column, Format, Output

HOURS_MAX: Final = 1_000_000
"""More than a century: older than any lake, and still a time."""
COLUMNS: Final = (
    Column("status", ""),
    Column("table", "table"),
    Column("clause", "clause"),
    Column("worst", "worst", is_number=True),
    Column("cluster_count", "clusters", is_number=True),
    Column("promise", "promise", is_wide=True),
)


def quality(
    lake: Annotated[str, typer.Argument(metavar="LAKE", show_default=False, help="Folder or URI of the Delta tables.")],
    docs: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            show_default=False,
            help="Where the Data Docs go; default: LAKE/_quality/plan-N; '' for none.",
        ),
    ] = None,
    fresh_hours: Annotated[
        float, typer.Option(min=0, max=HOURS_MAX, help="A cluster without news for longer is a warning.")
    ] = 26.0,
    new: Annotated[
        bool, typer.Option("--new", help="Only what came since such a look last passed; all of the lake once a day.")
    ] = False,
    output: OutputFormat = Format.TABLE,
) -> int:
    """Hold a lake's tables against their contracts: keys, offsets, epochs, counts of the ledger, freshness.

    Exit code 1 where a critical promise is broken: then nothing should be published from it. Warnings are shown.

    \b
    Examples:
      kraft-audit quality .demo/lake
      kraft-audit quality .demo/lake --docs site/quality --output json
      kraft-audit quality .demo/lake --new
    """
    missing = [name for name in ("great_expectations", "deltalake") if find_spec(name) is None]
    if missing:
        raise UsageError(f"quality needs {', '.join(missing)}: pip install 'kraft-audit[spark,quality]'")
    from kraft_audit.settings import absolute
    from kraft_audit.spark.lake import DeltaLake
    from kraft_audit.spark.quality import judge_lake

    here = Path.cwd()
    kept = absolute(docs, here) if docs else docs
    result = judge_lake(DeltaLake(absolute(lake, here)), fresh_hours=fresh_hours, only_new=new, docs=kept)
    rows: list[dict[str, Any]] = [
        {
            "status": "ok" if one.passed else one.severity,
            "table": one.table,
            "clause": one.clause,
            "worst": one.worst,
            "cluster_count": one.cluster_count,
            "promise": one.promise,
            "clusters": list(one.clusters),
            "plan": result.plan,
            "docs": result.docs,
        }
        for one in result.verdicts
    ]
    Output(output).rows(rows, COLUMNS, (*(column.name for column in COLUMNS), "clusters", "plan", "docs"))
    for row in rows:
        if row["status"] != "ok" and row["clusters"] != [""]:
            remark(f"{row['status']}: {row['table']}.{row['clause']}: {', '.join(row['clusters'])}")
    if result.docs:
        remark(f"Data Docs: {result.docs}/index.html")
    return 0 if result.is_open else EXIT_FINDINGS
