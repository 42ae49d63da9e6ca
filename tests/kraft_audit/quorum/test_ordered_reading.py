"""Captures are numbered as the logs prove their order, where sizes and names say another one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kraft_audit.capture.plan import ClusterPlan
from kraft_audit.quorum.ordered_reading import OrderedReading
from kraft_audit.reading import ReadingSettings
from kraft_codec.records.batch import Batch, read_batches
from kraft_codec.records.redaction import Redactor
from kraft_codec.storage.opener import open_storage
from tests.builders.readings import history_of, plan_of

REDACTOR = Redactor(bytes(32))
SETTINGS = ReadingSettings(open_storage, REDACTOR)


def names_in_time(plan: ClusterPlan) -> list[str]:
    return [name for _, name in sorted({(replica.capture_number, replica.capture) for replica in plan.replicas})]


@pytest.fixture
def misleading(small_corpus: Path, tmp_path: Path) -> Path:
    """A capture, and under a later name what its logs held before: fewer batches, and zeros up to a larger size."""
    late = small_corpus / "elr" / "29-stopped"
    for log in late.rglob("__cluster_metadata-0/00000000000000000000.log"):
        node = log.parents[1].relative_to(late)
        shutil.copytree(late / node, tmp_path / "a" / node)
        shutil.copytree(late / node, tmp_path / "b" / node)
        earlier = tmp_path / "b" / node / log.relative_to(late / node)
        earlier.chmod(0o644)
        for snapshot in earlier.parent.glob("*.checkpoint"):
            snapshot.unlink()
        content = log.read_bytes()
        batches = [batch for batch in read_batches(content) if isinstance(batch, Batch)]
        earlier.write_bytes(content[: batches[-20].header.position] + bytes(len(content)))
    return tmp_path


def test_captures_are_numbered_as_their_logs_prove(misleading: Path) -> None:
    plan = plan_of(misleading)
    assert names_in_time(plan) == ["a", "b"]
    with OrderedReading(plan, SETTINGS) as ordered:
        assert len([reading.survey for reading in ordered]) == 2
        proven = ordered.plan
    assert names_in_time(proven) == ["b", "a"]
    assert {(replica.path, replica.files) for replica in proven.replicas} == {
        (replica.path, replica.files) for replica in plan.replicas
    }
    with OrderedReading(proven, SETTINGS) as again:
        assert len([reading.survey for reading in again]) == 1
        assert again.plan is proven


def test_every_table_carries_the_proven_numbers(misleading: Path) -> None:
    history = history_of(plan_of(misleading), open_storage=open_storage, redactor=REDACTOR)
    for table in ("captures", "watermarks"):
        rows = history.rows(table)
        assert {(row["capture_number"], row["capture"]) for row in rows} == {(0, "b"), (1, "a")}, table
    lows = {row["capture_number"]: row["low"] for row in history.rows("watermarks")}
    assert lows[0] < lows[1]


def test_one_capture_is_not_read_for_its_order(small_corpus: Path) -> None:
    plan = plan_of(small_corpus / "mini-4.4.0")
    ordered = OrderedReading(plan, ReadingSettings(None, REDACTOR))  # type: ignore[arg-type]
    assert list(ordered) == [ordered.reading]
    assert ordered.plan is plan
