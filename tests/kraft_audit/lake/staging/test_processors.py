"""How many processes a run starts in a container: as many as its CPU limit allows, however many the node has."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kraft_audit.lake.staging.staging_tasks import processors

NODE = 64


@pytest.mark.parametrize(
    ("files", "count"),
    [
        ({}, NODE),
        ({"cpu.max": "max 100000"}, NODE),
        ({"cpu.max": "200000 100000"}, 2),
        ({"cpu.max": "250000 100000"}, 3),
        ({"cpu.max": "50000 100000"}, 1),
        ({"cpu.max": "9900000 100000"}, NODE),
        ({"cpu.max": ""}, NODE),
        ({"cpu/cpu.cfs_quota_us": "400000", "cpu/cpu.cfs_period_us": "100000"}, 4),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, NODE),
        ({"cpu/cpu.cfs_quota_us": "400000"}, NODE),
    ],
)
def test_the_limit_of_a_container_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], count: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(NODE)), raising=False)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    assert processors(tmp_path) == count
