"""Findings as Parquet laid out for a security lake: OCSF events by region, account and day, as Amazon Security Lake
takes them from a custom source.

    region=REGION/accountId=ACCOUNT/eventDay=YYYYMMDD/NAME.parquet

A file holds one cluster's events of one day (UTC, by the event's time), the earliest first. Its name comes from the
cluster, so that an export of the same lake has the same files, byte for byte.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from kraft_audit.findings.ocsf import OCSF_SCHEMA, observed_ms, ocsf_events
from kraft_audit.report.report_files import created_folders, writing
from kraft_audit.report.report_source import ClusterInput, ReportSource
from kraft_audit.text.readable import moment_of
from kraft_codec.errors import ChoiceError

EXTERNAL: Final = "external"
"""What Security Lake's guide recommends as accountId of a source outside of AWS."""
PARTITION: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
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
        if not PARTITION.fullmatch(value):
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
