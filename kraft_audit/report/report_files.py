"""Findings and metrics as files: CSV that no spreadsheet takes for formulas, Parquet, OpenMetrics, and a security lake.

A file appears whole or not at all, as collectors read it at any moment. A security lake gets OCSF events by region,
account and day, as Amazon Security Lake takes them from a custom source:

    region=REGION/accountId=ACCOUNT/eventDay=YYYYMMDD/NAME.parquet

A file holds one cluster's events of one day (UTC, by the event's time), the earliest first. Its name comes from the
cluster, so that an export of the same lake has the same files, byte for byte.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import re
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from kraft_audit.findings.finding_formats import state_of
from kraft_audit.findings.ocsf import OCSF_SCHEMA, observed_ms, ocsf_events
from kraft_audit.report.openmetrics import Metrics
from kraft_audit.report.report_source import AsOf, ClusterInput, ReportSource
from kraft_audit.rules.cluster_history import TableRow
from kraft_audit.tables.contract import build_rows
from kraft_audit.tables.gold import JUDGED_FINDINGS
from kraft_audit.text.output import to_csv_cell
from kraft_audit.text.readable import moment_of, time_text
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
        "state": state_of(finding),
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


WRITERS: Final[dict[str, FileWriter]] = {"csv": csv_file, "parquet": parquet_file, "openmetrics": openmetrics_file}


def write_file(source: ReportSource, format_: str, out: Path) -> int:
    """Write csv, parquet or openmetrics to `out`; returns the number of clusters. Raises InputError."""
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


EXTERNAL: Final = "external"
"""What Security Lake's guide recommends as accountId of a source outside of AWS."""
PARTITION_VALUE: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""What may be the value of a partition's folder, as region=VALUE."""
NO_DAY: Final = "19700101"


@dataclass(frozen=True, slots=True)
class WrittenEvents:
    """How much was written."""

    clusters: int
    events: int
    files: int


def write_security_lake(
    source: ReportSource, out: Path, *, region: str = EXTERNAL, account: str = EXTERNAL
) -> WrittenEvents:
    """Write the events of all clusters into a new or empty folder. Raises ChoiceError, InputError.

    The folder appears whole or not at all.
    """
    for option, value in (("--region", region), ("--account", account)):
        if not PARTITION_VALUE.fullmatch(value):
            raise ChoiceError(option, f"{value!r}: expected letters, digits, dots, dashes or underscores, at most 64")
    if out.is_dir() and any(out.iterdir()):
        raise ChoiceError(str(out), "expected a new or empty folder")
    clusters = events = files = 0
    with created_folders(out), writing(out), tempfile.TemporaryDirectory(dir=out, prefix=".unfinished-") as unfinished:
        folder = Path(unfinished) / f"region={region}" / f"accountId={account}"
        folder.mkdir(parents=True)
        version = source.as_of().tool_version
        for given in source.clusters():
            clusters += 1
            for day, of_day in _by_day(given, version).items():
                target = folder / f"eventDay={day}" / _file_name(given)
                target.parent.mkdir(exist_ok=True)
                rows = pa.Table.from_pylist(of_day, OCSF_SCHEMA)
                pq.write_table(rows, target, compression="zstd")
                events, files = events + len(of_day), files + 1
        shutil.move(str(folder.parent), str(out))
    return WrittenEvents(clusters, events, files)


def _by_day(given: ClusterInput, version: str) -> dict[str, list[dict[str, Any]]]:
    """Raised and undecided findings of any state as events, by the day of their time; a lake's plans say when."""
    seen_ms = observed_ms(given.history)
    findings: Iterable[dict[str, Any]] = (
        row if "last_seen_ms" in row else {**row, "seen_ms": seen_ms}
        for row in given.findings
        if row["status"] != "clear"
    )
    days: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for event in ocsf_events(findings, version):
        moment = moment_of(event["time"])
        days[NO_DAY if moment is None else moment.strftime("%Y%m%d")].append(event)
    return days


def _file_name(given: ClusterInput) -> str:
    page = given.page_id.encode("utf-8", "surrogatepass")
    return f"kraft-audit-{hashlib.blake2b(page, digest_size=12).hexdigest()}.parquet"
