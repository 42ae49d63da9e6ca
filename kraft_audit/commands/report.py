"""`report`: static pages, or findings and figures as files, of log dirs or of a lake."""

from __future__ import annotations

import enum
import os
from importlib.util import find_spec
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Annotated

import typer

from kraft_audit.commands.arguments import Capture, Defaults, DialectOption
from kraft_audit.commands.ending import UsageError
from kraft_audit.commands.histories import histories
from kraft_audit.commands.judging import SettingsFile, WaiversFile, thresholds_of, waivers_of
from kraft_audit.commands.reading import looks_like_a_lake
from kraft_audit.output import Output
from kraft_codec.file_uris import file_path
from kraft_codec.schemas import Dialect

if TYPE_CHECKING:
    from kraft_audit.report.source import Source


class ReportFormat(enum.StrEnum):
    """What a report can be."""

    HTML = "html"
    CSV = "csv"
    PARQUET = "parquet"
    OPENMETRICS = "openmetrics"


def report(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", show_default=False, help="A lake, or a PATH as check takes it.")
    ],
    out: Annotated[
        FilePath,
        typer.Option(
            "--out",
            "-o",
            metavar="DIR",
            show_default=False,
            help="html: a folder. The others: a file, replaced whole where there is one.",
        ),
    ],
    format_: Annotated[ReportFormat, typer.Option("--format", help="Pages, or a file for other programs.")] = (
        ReportFormat.HTML
    ),
    settings: SettingsFile = None,
    waivers: WaiversFile = None,
    capture: Capture = None,
    default: Defaults = None,
    dialect: DialectOption = Dialect.KIP853,
) -> int:
    """Write a report: a static site that needs no server, or findings and figures as one file.

    Of a lake it tells what the last closed plan left there, with the version of every table; of a PATH what check
    finds, without Spark. A folder is written over only where an earlier report lies; a file is replaced, as collectors
    read it at any moment. Where nothing can be read nothing is left, and an earlier report stays as it was.

    \b
    Examples:
      kraft-audit report samples -o site
      kraft-audit report samples/divergence --format openmetrics -o kraft.prom
    """
    if format_ is ReportFormat.HTML and find_spec("jinja2") is None:
        raise UsageError("report needs jinja2: pip install jinja2")
    _check_target(source, out)
    told = _source(source, settings, waivers, capture, default, dialect)
    lines = Output()
    if format_ is ReportFormat.HTML:
        from kraft_audit.report.site import write_site

        site = write_site(told, out)
        lines.text(
            f"{site.index}: {_clusters(site.clusters)}{_not_read(site.not_read)}, {site.open_findings} open findings, "
            f"{site.files} files, {site.size_bytes:,} bytes"
        )
        return 0
    from kraft_audit.report.publish import write_file

    count = write_file(told, format_.value, out)
    lines.text(f"{out}: {_clusters(count)}{_not_read(len(told.as_of().not_read))}")
    return 0


def _clusters(count: int) -> str:
    return "1 cluster" if count == 1 else f"{count} clusters"


def _not_read(count: int) -> str:
    return f", {count} could not be read, or not wholly" if count else ""


def _source(
    source: str,
    settings: FilePath | None,
    waivers: FilePath | None,
    capture: str | None,
    default: list[str] | None,
    dialect: Dialect,
) -> Source:
    if find_spec("deltalake") is not None:
        from kraft_audit.report.lake_source import LakeSource, is_lake

        if is_lake(source):
            if settings or waivers or capture or default or dialect is not Dialect.KIP853:
                raise UsageError(
                    "a lake was judged when it was written: --settings, --waivers, --capture, --default and "
                    "--dialect are for log dirs"
                )
            return LakeSource(source)
    elif looks_like_a_lake(source):
        raise UsageError("a report of a lake needs deltalake: pip install 'kraft-audit[spark]'")
    from kraft_audit.report.path_source import PathSource

    found = histories(source, dialect=dialect, capture=capture, defaults=default)
    return PathSource(source, found, thresholds_of(settings), waivers_of(waivers))


def _check_target(source: str, out: FilePath) -> None:
    """Nothing is written among the logs or into the lake. Raises UsageError."""
    target, among = os.path.realpath(out), os.path.realpath(file_path(source) or source)
    if target == among or target.startswith(among.rstrip("/") + "/"):
        raise UsageError(f"--out: {out}: lies in {source}, where nothing is ever written")
