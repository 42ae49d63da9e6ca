"""An audit says the same of a log whose neighbouring operations stand in one batch (what Kafka's linger does)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import kraft_audit
from kraft_engine import simulate
from tests.witness.merging import merged_copy
from tests.witness.runs import seed_count

POSITIONED = {"KQ009"}
"""Rules whose subject is a byte position, which a merge moves."""
OPEN = {("isr_shrunk", "fenced"), ("isr_shrunk", "registered")}
"""What merging within 400 ms, more than the audit takes for one operation, leaves open: who took the broker out."""

Causes = dict[tuple[Any, ...], str]


def stated(folder: Path) -> tuple[set[tuple[str, str]], Causes]:
    """Findings as (rule, subject), and the cause of every change of a partition."""
    findings: set[tuple[str, str]] = set()
    causes: Causes = {}
    with kraft_audit.open(str(folder)) as clusters:
        for cluster in clusters:
            for row in cluster.findings().to_pylist():
                name = str(row["subject"])
                findings.add((row["rule"], name.split(" at byte")[0] if row["rule"] in POSITIONED else name))
            for row in cluster.partitions().to_pylist():
                causes[row["from_offset"], row["topic_id"], row["partition"]] = row["cause"]
    return findings, causes


@pytest.mark.parametrize(
    ("scenario", "seed"),
    [
        ("random", 5),
        ("random", 11),
        ("last-replica-standing-elr", 1),
        *(pytest.param("random", seed, marks=pytest.mark.ci) for seed in range(12, 12 + seed_count(4))),
        *(pytest.param("random-wide", seed, marks=pytest.mark.ci) for seed in range(seed_count(2))),
    ],
)
def test_merging_changes_no_finding_and_no_cause(scenario: str, seed: int, tmp_path: Path) -> None:
    run = tmp_path / "run"
    simulate(scenario, seed, run)
    source = sorted(path for path in run.iterdir() if path.is_dir())[-1]
    findings, causes = stated(source)
    for within_ms in (25, 400):
        merged_copy(source, tmp_path / str(within_ms), within_ms)
        same_findings, merged_causes = stated(tmp_path / str(within_ms))
        assert same_findings == findings
        assert merged_causes.keys() == causes.keys()
        changed = Counter((cause, merged_causes[key]) for key, cause in causes.items() if merged_causes[key] != cause)
        assert changed.keys() <= (OPEN if within_ms == 400 else set())


def test_a_merge_keeps_records_and_takes_batches(tmp_path: Path) -> None:
    simulate("last-replica-standing-elr", 1, tmp_path / "run")
    source = tmp_path / "run" / "recovered"
    assert merged_copy(source, tmp_path / "merged", 400) > 20
    findings, causes = stated(source)
    assert findings
    assert causes
