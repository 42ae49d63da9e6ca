"""An audit says the same of a log whose neighbouring operations stand in one batch (what Kafka's linger does)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kraft_audit
from kraft_engine import simulate
from tests.witness.merging import merged_copy
from tests.witness.runs import seed_count

POSITIONED = {"KQ009"}
"""Rules whose subject is a byte position, which a merge moves."""
OPEN_SHARE = {25: 0.0, 400: 0.12}
"""By how far apart in ms merged batches are: of the stated causes, at most so many become open."""

Causes = dict[tuple[Any, ...], frozenset[str]]
"""What each change may be: one cause where it is stated."""


def stated(folder: Path) -> tuple[set[tuple[str, str]], Causes]:
    """Findings as (rule, subject), and what each change of a partition may be."""
    findings: set[tuple[str, str]] = set()
    causes: Causes = {}
    with kraft_audit.open(str(folder)) as clusters:
        for cluster in clusters:
            for row in cluster.findings().to_pylist():
                name = str(row["subject"])
                findings.add((row["rule"], name.split(" at byte")[0] if row["rule"] in POSITIONED else name))
            for row in cluster.partitions().to_pylist():
                place = row["from_offset"], row["topic_id"], row["partition"]
                causes[place] = frozenset(row["possible_causes"] or [row["cause"]])
    return findings, causes


@pytest.mark.slow
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
    for within_ms, share in OPEN_SHARE.items():
        merged_copy(source, tmp_path / str(within_ms), within_ms)
        same_findings, merged_causes = stated(tmp_path / str(within_ms))
        assert findings == same_findings
        assert merged_causes.keys() == causes.keys()
        # No stated cause becomes another one, and no open one loses what it may be.
        for key, possible in causes.items():
            assert possible <= merged_causes[key], key
        opened = [key for key, possible in causes.items() if len(possible) == 1 < len(merged_causes[key])]
        assert len(opened) <= share * len(causes)


def test_a_merge_keeps_records_and_takes_batches(tmp_path: Path) -> None:
    simulate("last-replica-standing-elr", 1, tmp_path / "run")
    source = tmp_path / "run" / "recovered"
    assert merged_copy(source, tmp_path / "merged", 400) > 20
    findings, causes = stated(source)
    assert findings
    assert causes
