"""The gate over a lake in an object store, whose files DuckDB reads through Arrow."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from kraft_audit.commands.cli import run_command
from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.quality.quality_gate import judge_lake
from tests.builders.s3_server import s3_server

CAPTURES = ("06-kill-13-last-replica", "29-stopped")
LAKE = "s3://kraft/lake"


@pytest.fixture(autouse=True)
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with s3_server(monkeypatch, "kraft"):
        yield


@pytest.mark.ci
def test_the_second_hour_is_judged_by_its_new_rows(small_corpus: Path, tmp_path: Path) -> None:
    """And what Arrow cannot compare is no reason to end: filters of texts came to it in a type of DuckDB's own."""
    fleet, live = tmp_path / "fleet.yaml", tmp_path / "live"
    clusters = [{"name": "elr", "paths": [str(live)]}]
    fleet.write_text(yaml.safe_dump({"lake": LAKE, "redaction_key_file": "key", "clusters": clusters}))
    for number, capture in enumerate(CAPTURES):
        shutil.rmtree(live, ignore_errors=True)
        shutil.copytree(small_corpus / "elr" / capture, live)
        for file in live.rglob("*"):
            os.utime(file, (1_700_000_000.5 + number,) * 2)
        assert run_command(["run", str(fleet), "--engine", "local", "--then", "quality,findings"]) == 0
    whole = judge_lake(DeltaLake(LAKE), docs="")
    assert [verdict for verdict in whole.verdicts if not verdict.passed and verdict.severity == "critical"] == []
