"""The lake's days of each control beside the findings that a reading of the same log dirs gives."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from kraft_audit.commands.cli import run_command
from kraft_audit.lake.delta import DeltaLake
from tests.builders.lakes import write_fleet
from tests.builders.report_sources import path_source

SAMPLES = ("dynamic-quorum", "divergence", "torn-write")
"""Logs of some minutes, each within one day."""


@pytest.mark.slow
def test_what_lasts_because_a_cluster_was_stopped_counts_against_no_control(samples: Path, tmp_path: Path) -> None:
    paths = [samples / f"{name}.tgz" for name in SAMPLES]
    fleet = write_fleet(tmp_path, {path.stem: [path] for path in paths})
    assert run_command(["run", str(tmp_path / "fleet.yaml"), "--engine", "local"]) == 0
    rows = DeltaLake(fleet.lake).query(
        "SELECT cluster_id, not_met_by, weakened_by FROM cluster_compliance", "cluster_compliance"
    )
    reported = defaultdict(set)
    for row in rows.to_pylist():
        reported[row["cluster_id"]] |= {*row["not_met_by"], *row["weakened_by"]}
    found, stopped = defaultdict(set), set()
    for path in paths:
        for given in path_source(path).clusters():
            for finding in given.findings:
                counts = finding["status"] == "raised" and finding["severity"] != "low"
                if counts and finding["state"] == "folded":
                    stopped.add(finding["rule"])
                elif counts:
                    found[given.cluster_id].add(finding["rule"])
    assert reported == {cluster_id: found[cluster_id] for cluster_id in reported}
    assert len(reported) == len(SAMPLES)
    assert stopped
