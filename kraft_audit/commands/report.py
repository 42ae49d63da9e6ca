"""`report`: static pages, or findings and figures as files, of log dirs or of a lake."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kraft_audit.commands.arguments import (
    LAKE_PACKAGES,
    JudgedLogsOrLake,
    need_jinja,
    need_packages,
    refuse_within,
    thresholds_of,
    waivers_of,
)
from kraft_audit.commands.ending import UsageError
from kraft_audit.commands.results import Results, looks_like_a_lake
from kraft_audit.text.output import Format, Output

if TYPE_CHECKING:
    from kraft_audit.report.report_source import ReportSource


def report(
    logs: JudgedLogsOrLake,
    out: Annotated[
        FilePath,
        typer.Option(
            "--out",
            metavar="DIR",
            show_default=False,
            help="Folder for html, file for the other formats.",
        ),
    ],
    output: Annotated[
        Literal["html", "csv", "parquet", "openmetrics", "ocsf"],
        typer.Option("--output", help="html is for people, the others are for programs."),
    ] = "html",
) -> int:
    """Write a report: a static HTML site that needs no server, or findings and metrics as files.

    If PATH holds logs, the report shows what `check` finds. If PATH is a lake, the report shows the lake as its last
    closed plan left it, with the version of every table. `report` needs no Spark. It overwrites a folder only if the
    folder holds an earlier report. It always replaces a file. If nothing can be read, the earlier report stays as it
    is.

    --output ocsf writes OCSF Compliance Findings, one JSON object per line.

    \b
    Examples:
      kraft-audit report samples --out site
      kraft-audit report samples/divergence.tgz --output openmetrics --out kraft.prom
    """
    if output == "html":
        need_jinja("report")
    refuse_within(out, logs.path)
    pages = _source(logs, has_pages=output == "html")
    lines = Output()
    if output == "html":
        from kraft_audit.report.site import write_site

        site = write_site(pages, out)
        lines.text(
            f"{site.index}: {_clusters(site.clusters)}{_not_read(site.not_read)}, {site.open_findings} open findings, "
            f"{site.files} files, {site.size_bytes:,} bytes"
        )
        return 0
    from kraft_audit.report.report_files import write_file

    count = write_file(pages, output, out)
    lines.text(f"{out}: {_clusters(count)}{_not_read(len(pages.as_of().not_read))}")
    return 0


def _clusters(count: int) -> str:
    return "1 cluster" if count == 1 else f"{count} clusters"


def _not_read(count: int) -> str:
    return f", {count} could not be read whole" if count else ""


def _source(logs: JudgedLogsOrLake, *, has_pages: bool) -> ReportSource:
    if all(find_spec(name) is not None for name in LAKE_PACKAGES):
        from kraft_audit.report.lake_source import LakeSource, is_lake

        if is_lake(logs.path):
            if logs != JudgedLogsOrLake(logs.path):
                raise UsageError(
                    "PATH is a lake, whose rules ran when it was written: leave out the options that are for logs"
                )
            return LakeSource(logs.path, has_pages=has_pages)
    elif looks_like_a_lake(logs.path):
        need_packages("a report of a lake", LAKE_PACKAGES, "lake")
    from kraft_audit.report.report_source import PathSource

    clusters = Results(Format.TABLE, is_spaced=False).each_history(logs)
    histories = ((cluster.history, cluster.permissions() if has_pages else None) for cluster in clusters)
    return PathSource(logs.path, histories, thresholds_of(logs.settings), waivers_of(logs.waivers))
