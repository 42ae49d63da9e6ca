"""Findings and metrics as files: CSV that no spreadsheet takes for formulas, Parquet, OpenMetrics and OCSF events.

A file appears whole or not at all, as collectors read it at any moment.
"""

from __future__ import annotations

import contextlib
import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq

from kraft_audit.findings.ocsf import observed_ms, ocsf_events, without_nulls
from kraft_audit.report.openmetrics import Metrics
from kraft_audit.report.report_source import AsOf, ClusterInput, ReportSource
from kraft_audit.rules.cluster_history import TableRow
from kraft_audit.tables.contract import build_rows
from kraft_audit.tables.gold import JUDGED_FINDINGS
from kraft_audit.text.output import to_csv_cell, to_json
from kraft_audit.text.readable import time_text
from kraft_audit.text.text_files import whole_file
from kraft_codec.errors import ChoiceError, InputError

FINDINGS_CSV_COLUMNS: Final = (
    *("cluster_id", "finding_id", "rule", "name", "severity", "scope", "state", "subject", "summary", "reason"),
    *("from_offset", "to_offset", "from_ms", "to_ms", "from_time_utc", "to_time_utc", "epoch", "evidence", "why"),
    *("what_to_do", "waived_by", "waived_until", "waived_why", "seen_ms", "plan"),
)
"""The columns of findings.csv, in order: part of the public interface."""


AddCluster = Callable[[ClusterInput], None]
FileWriter = Callable[[Path, AsOf], contextlib.AbstractContextManager[AddCluster]]


@contextlib.contextmanager
def csv_file(path: Path, _: AsOf) -> Iterator[AddCluster]:
    """findings.csv, cluster by cluster: raised and undecided findings of any state."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\r\n")
        writer.writerow(FINDINGS_CSV_COLUMNS)

        def add(given: ClusterInput) -> None:
            flat = (_flat(finding) for finding in given.findings if finding["status"] != "clear")
            writer.writerows([to_csv_cell(value) for value in row.values()] for row in flat)

        yield add


def _flat(finding: TableRow) -> TableRow:
    waiver = finding["waiver"] or {}
    flat = {
        **finding,
        "from_time_utc": time_text(finding["from_ms"]),
        "to_time_utc": time_text(finding["to_ms"]),
        "evidence": " | ".join(_fact(fact) for fact in finding["evidence"]),
        "waived_by": waiver.get("who"),
        "waived_until": waiver.get("until"),
        "waived_why": waiver.get("why"),
    }
    return {name: flat[name] for name in FINDINGS_CSV_COLUMNS}


def _fact(fact: TableRow) -> str:
    change = "" if fact["before"] is None and fact["after"] is None else f": {fact['before']} → {fact['after']}"
    where = "" if fact["offset"] is None else f" (offset {fact['offset']})"
    return f"{fact['text']}{change}{where}"


@contextlib.contextmanager
def parquet_file(path: Path, _: AsOf) -> Iterator[AddCluster]:
    """All findings, clear ones included, with the columns of the table `findings`."""
    names = JUDGED_FINDINGS.column_names
    with pq.ParquetWriter(path, JUDGED_FINDINGS.schema, compression="zstd") as writer:

        def add(given: ClusterInput) -> None:
            rows = [{name: finding[name] for name in names} for finding in given.findings]
            writer.write_batch(build_rows(JUDGED_FINDINGS, rows))

        yield add


@contextlib.contextmanager
def openmetrics_file(path: Path, as_of: AsOf) -> Iterator[AddCluster]:
    """The metrics of all clusters: written at the end, as the text has each family in one place."""
    metrics = Metrics(as_of)
    yield metrics.add
    path.write_text("".join(metrics.lines()), encoding="utf-8", newline="\n")


@contextlib.contextmanager
def ocsf_file(path: Path, as_of: AsOf) -> Iterator[AddCluster]:
    """Raised and undecided findings of any state as OCSF events, a JSON object a line; a lake's plans say when."""
    with path.open("w", encoding="utf-8", newline="\n") as file:

        def add(given: ClusterInput) -> None:
            seen_ms = observed_ms(given.history)
            findings = (
                row if "last_seen_ms" in row else {**row, "seen_ms": seen_ms}
                for row in given.findings
                if row["status"] != "clear"
            )
            for event in ocsf_events(findings, as_of.tool_version):
                file.write(to_json(without_nulls(event)) + "\n")

        yield add


WRITERS: Final[dict[str, FileWriter]] = {
    "csv": csv_file,
    "parquet": parquet_file,
    "openmetrics": openmetrics_file,
    "ocsf": ocsf_file,
}


def write_file(source: ReportSource, format_: str, out: Path) -> int:
    """Write one of the formats of WRITERS to `out`; returns the number of clusters. Raises InputError."""
    if out.is_dir():
        raise ChoiceError(str(out), "is a folder; a file is needed")
    count = 0
    with (
        writing(out),
        created_folders(out.parent),
        whole_file(out) as unfinished,
        WRITERS[format_](unfinished, source.as_of()) as add,
    ):
        for given in source.clusters():
            add(given)
            count += 1
    return count


@contextlib.contextmanager
def writing(target: Path) -> Iterator[None]:
    """Says of an OSError in the block that the target cannot be written. Raises InputError."""
    try:
        yield
    except OSError as problem:
        raise InputError(str(target), f"cannot be written: {problem.strerror or problem}") from None


@contextlib.contextmanager
def created_folders(folder: Path) -> Iterator[None]:
    """Create the folder with its parents; remove those that were created if the block fails.

    Raises ChoiceError, InputError.
    """
    if folder.exists() and not folder.is_dir():
        raise ChoiceError(str(folder), "expected a new or empty folder, or an earlier report")
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for created in missing:  # the innermost first; one that is not empty stays
            with contextlib.suppress(OSError):
                created.rmdir()
        raise
