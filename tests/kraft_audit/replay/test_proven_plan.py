"""Captures are numbered as the logs prove their order, where sizes and names say another one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kraft_audit.replay.plan import ClusterPlan
from kraft_audit.replay.planning import plan_path
from kraft_audit.replay.proven_plan import in_proven_order
from kraft_audit.rules.collect import read_history
from kraft_codec.batch import Batch, read_batches
from kraft_codec.redaction import Redactor
from kraft_codec.storage import open_storage

REDACTOR = Redactor(bytes(32))


def planned(root: Path) -> ClusterPlan:
    (plan,) = plan_path(str(root), open_storage=open_storage, captured_at_ms=0)
    return plan


def names_in_time(plan: ClusterPlan) -> list[str]:
    return [name for _, name in sorted({(one.capture_number, one.capture) for one in plan.replicas})]


@pytest.fixture
def misleading(samples: Path, tmp_path: Path) -> Path:
    """A capture, and under a later name what its logs held before: fewer batches, and zeros up to a larger size."""
    late = samples / "elr" / "29-stopped"
    for log in late.rglob("__cluster_metadata-0/00000000000000000000.log"):
        node = log.parents[1].relative_to(late)
        shutil.copytree(late / node, tmp_path / "a" / node)
        shutil.copytree(late / node, tmp_path / "b" / node)
        earlier = tmp_path / "b" / node / log.relative_to(late / node)
        earlier.chmod(0o644)
        for snapshot in earlier.parent.glob("*.checkpoint"):
            snapshot.unlink()
        content = log.read_bytes()
        batches = [one for one in read_batches(content) if isinstance(one, Batch)]
        earlier.write_bytes(content[: batches[-20].header.position] + bytes(len(content)))
    return tmp_path


def test_captures_are_numbered_as_their_logs_prove(misleading: Path) -> None:
    plan = planned(misleading)
    assert names_in_time(plan) == ["a", "b"]
    proven = in_proven_order(plan, open_storage=open_storage, redactor=REDACTOR)
    assert names_in_time(proven.plan) == ["b", "a"]
    assert {(one.path, one.files) for one in proven.plan.replicas} == {(one.path, one.files) for one in plan.replicas}
    again = in_proven_order(proven.plan, open_storage=open_storage, redactor=REDACTOR)
    assert again.plan is proven.plan
    assert again.shape is not None


def test_every_table_carries_the_proven_numbers(misleading: Path) -> None:
    history = read_history(planned(misleading), open_storage=open_storage, redactor=REDACTOR)
    for table in ("captures", "watermarks"):
        rows = history.rows(table)
        assert {(row["capture_number"], row["capture"]) for row in rows} == {(0, "b"), (1, "a")}, table
    lows = {row["capture_number"]: row["low"] for row in history.rows("watermarks")}
    assert lows[0] < lows[1]


def test_one_capture_is_not_read_for_its_order(samples: Path) -> None:
    plan = planned(samples / "mini-4.4.0")
    proven = in_proven_order(plan, open_storage=None, redactor=REDACTOR)  # type: ignore[arg-type]
    assert proven.plan is plan
    assert proven.shape is None
