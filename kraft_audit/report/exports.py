"""Findings as files: CSV that no spreadsheet takes for formulas, and Parquet by the contract of the table."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from kraft_audit.output import to_csv_cell
from kraft_audit.report.source import ClusterInput, Row, state_of
from kraft_audit.rules.tables import FINDINGS
from kraft_audit.times import time_text
from kraft_codec.tables import build_rows

COLUMNS: Final = (
    *("cluster_id", "finding_id", "rule", "name", "severity", "scope", "state", "subject", "summary", "reason"),
    *("from_offset", "to_offset", "from_ms", "to_ms", "from_time_utc", "to_time_utc", "epoch", "evidence", "why"),
    *("what_to_do", "waived_by", "waived_until", "waived_why", "seen_ms", "plan"),
)
"""The columns of findings.csv, in order: part of the public interface."""


class CsvFile:
    """findings.csv, cluster by cluster: raised and undecided findings of any state."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> CsvFile:
        self._file = self._path.open("w", encoding="utf-8", newline="")
        self._writer = csv.writer(self._file, lineterminator="\r\n")
        self._writer.writerow(COLUMNS)
        return self

    def add(self, findings: Iterable[Row]) -> None:
        for finding in findings:
            if finding["status"] != "clear":
                self._writer.writerow([to_csv_cell(value) for value in _flat(finding).values()])

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def _flat(finding: Row) -> Row:
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
    return {name: flat[name] for name in COLUMNS}


def _fact(fact: Row) -> str:
    change = "" if fact["before"] is None and fact["after"] is None else f": {fact['before']} → {fact['after']}"
    where = "" if fact["offset"] is None else f" (offset {fact['offset']})"
    return f"{fact['text']}{change}{where}"


def write_csv(clusters: Iterable[ClusterInput], path: Path) -> int:
    """All findings as CSV; how many clusters there were."""
    count = 0
    with CsvFile(path) as file:
        for given in clusters:
            file.add(given.findings)
            count += 1
    return count


def write_parquet(clusters: Iterable[ClusterInput], path: Path) -> int:
    """All findings as Parquet with the columns of the table `findings`; how many clusters there were."""
    count = 0
    with pq.ParquetWriter(path, FINDINGS.schema, compression="zstd") as writer:
        for given in clusters:
            writer.write_table(_table(given.findings))
            count += 1
    return count


def _table(findings: Sequence[Row]) -> pa.Table:
    rows = [{name: finding[name] for name in FINDINGS.column_names} for finding in findings]
    return pa.Table.from_batches([build_rows(FINDINGS, rows)])
