"""A log that goes on hour by hour, and an hour's copy that is torn in its new part: that hour does not count.

The logs are Kafka's own, with a longer suffix: node 2 of the corpus before and after it was truncated. The witness is
the same chain of hours without the torn copy.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

from kraft_audit.pipeline.analysis import BRONZE_TABLES, analyze
from kraft_audit.reading import ReadingSettings
from kraft_codec.records.redaction import Redactor
from tests.builders.hourly_disks import CountedBytes
from tests.builders.judged_hours import JudgedHours
from tests.builders.memory_lake import KEY
from tests.builders.torn_logs import (
    AFTER,
    BEFORE,
    EPOCHS,
    SEGMENT,
    boundaries,
    copies,
    logs,
    long_logs,
    tear,
)

ACCUSERS: Final = {"KQ001", "KQ002", "KQ005", "KQ022"}
NEVER_LEFT: Final = ("batches", "archive", "records")


class Hours:
    """The hours of one cluster's copies, judged one after the other."""

    def __init__(self, reading: Any, folder: Path) -> None:
        self.folder = folder
        disks: Any = SimpleNamespace(root=folder / "disks", kind="random")
        self.judged = JudgedHours(reading, disks)
        self.count = 0

    def pass_hour(self) -> None:
        """Judges the copies as they are; what is new of node 2 was written an hour later."""
        self.count += 1
        root = self.judged.disks.root
        for file in root.rglob("*") if self.count == 1 else [root / "node-2" / name for name in (SEGMENT, EPOCHS)]:
            os.utime(file, ns=(self.count * 3_600 * 10**9,) * 2)
        self.judged.pass_hour()

    @property
    def raised(self) -> set[tuple[str, str]]:
        return {
            (row["rule"], row["subject"]) for row in self.judged.rows["staged_findings"] if row["status"] == "raised"
        }

    def lake_rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of all hours, without what says when they were read."""
        times = {"plan", "root", "captured_at_ms", "captured_at", "capture_number"}
        rows = [
            {name: value for name, value in row.items() if name not in times} for row in self.judged.lake.rows[table]
        ]
        return sorted(rows, key=repr)


@pytest.fixture
def scenario(small_corpus: Path, tmp_path: Path) -> Path:
    target = tmp_path / "scenario"
    shutil.copytree(small_corpus / "divergence", target)
    long_logs(target, target)
    shutil.copy(target / AFTER / "node-2" / SEGMENT, target / AFTER / "node-1" / SEGMENT)
    return target


def ends_of_known_part(scenario: Path) -> list[int]:
    """Where the first hour's copy of node 2 ends: where its logs part, and in what was truncated later."""
    old, new = logs(scenario)
    start = max(a.end_offset for a, b in zip(old, new, strict=False) if a == b)
    return [start, start + 3]


def first_copy(scenario: Path, disks: Path, end: int) -> None:
    """Node 2 before it was truncated, up to an offset."""
    old, _ = logs(scenario)
    (disks / "node-2" / SEGMENT).write_bytes(b"".join(batch.data for batch in old if batch.end_offset <= end))
    shutil.copy(scenario / BEFORE / "node-2" / EPOCHS, disks / "node-2" / EPOCHS)


def sound_copy(scenario: Path, disks: Path) -> None:
    """Node 2 after it was truncated and had caught up."""
    for name in (SEGMENT, EPOCHS):
        shutil.copy(scenario / AFTER / "node-2" / name, disks / "node-2" / name)


def tears(scenario: Path) -> Iterator[tuple[int, int]]:
    """(end of the known part, where the new part is torn)."""
    for end in ends_of_known_part(scenario):
        for offset in boundaries(*logs(scenario)):
            if offset > end:
                yield end, offset


@pytest.mark.slow
def test_an_hour_torn_in_its_new_part_does_not_count(reading: Any, scenario: Path, tmp_path: Path) -> None:
    judged_count = 0
    for end in ends_of_known_part(scenario):
        witness = chain(reading, scenario, tmp_path / f"witness-{end}", end, None)
        for offset in (offset for known, offset in tears(scenario) if known == end):
            for is_file_newer in (True, False):
                folder = tmp_path / f"torn-{end}-{offset}-{is_file_newer}"
                found = chain(reading, scenario, folder, end, (offset, is_file_newer))
                assert found.raised == witness.raised
                for table in NEVER_LEFT:
                    if table in found.judged.lake.rows:
                        assert found.lake_rows(table) == witness.lake_rows(table), (end, offset, table)
                judged_count += 1
    assert judged_count >= 12


def chain(reading: Any, scenario: Path, folder: Path, end: int, torn: tuple[int, bool] | None) -> Hours:
    """A first hour, one whose copy of node 2 is torn, where one is, and a sound one."""
    hours = Hours(reading, folder)
    disks = copies(scenario, folder / "disks", (1, 2))
    first_copy(scenario, disks, end)
    hours.pass_hour()
    if torn is not None:
        before, held = hours.raised, {table: hours.lake_rows(table) for table in NEVER_LEFT[:1]}
        offset, is_file_newer = torn
        tear(disks / "node-2", scenario, offset, is_file_newer=is_file_newer)
        hours.pass_hour()
        assert ("KQ013", "node 2") in hours.raised
        assert not {rule for rule, _ in hours.raised - before} & ACCUSERS
        assert {table: hours.lake_rows(table) for table in held} == held
    sound_copy(scenario, disks)
    hours.pass_hour()
    assert ("KQ013", "node 2") not in hours.raised
    return hours


def test_a_tear_is_found_without_reading_again_and_compared_once(reading: Any, scenario: Path, tmp_path: Path) -> None:
    end, offset = max(tears(scenario))
    hours = Hours(reading, tmp_path / "chain")
    disks = copies(scenario, tmp_path / "chain" / "disks", (1, 2))
    first_copy(scenario, disks, end)
    hours.pass_hour()
    known_bytes = (disks / "node-2" / SEGMENT).stat().st_size
    tear(disks / "node-2", scenario, offset, is_file_newer=True)
    plan = hours.judged.lake.next_plan(disks)
    assert plan is not None
    counted = CountedBytes()
    settings = ReadingSettings(counted.open, Redactor(KEY, {}), known=hours.judged.lake)
    found = {name: batch.to_pylist() for name, batch in analyze(plan, settings, BRONZE_TABLES)}
    (row,) = [row for row in found["captures"] if row["node_id"] == 2]
    new_bytes = (disks / "node-2" / SEGMENT).stat().st_size - known_bytes
    assert (row["log_end_offset"], row["bytes_unread"]) == (None, new_bytes)
    ordering = 61 + 27 + 8  # the batch that was last, and what orders the segments
    compared = known_bytes + new_bytes  # a log that is set aside is compared: its end, here all of it
    assert 0 < sum(counted.read.values()) <= 2 * new_bytes + ordering + compared
