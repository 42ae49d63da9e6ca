"""What is grouped by default, and what --all gives: partitions, timeline, whatif, recover-plan; many clusters."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from kraft_engine.runs.fleet_logs import simulate_fleet

STOPPED = "samples/elr-29-stopped.tgz"


def test_partitions_are_runs_of_one_cause_unless_all_are_asked_for(kraft_audit) -> None:
    rows = json.loads(kraft_audit("partitions", STOPPED, "-o", "json").out)
    every = kraft_audit("partitions", STOPPED, "--all").out.splitlines()
    short = kraft_audit("partitions", STOPPED).out.splitlines()
    assert len(every) == len(rows) + 2
    assert len(short) < len(every) / 3
    fenced = [row for row in rows if row["cause"] == "fenced" and 174 <= row["from_offset"] <= 186]
    (line,) = [line for line in short if line.split()[:2] == ["174", "186"]]
    leaderless = {(row["topic"], row["partition"]) for row in fenced if row["leader"] == -1}
    assert line.split()[4:8] == ["fenced", "13", str(len(fenced)), str(len(leaderless))]


def test_a_recovery_plan_shows_partitions_of_one_story_together(kraft_audit) -> None:
    every = kraft_audit("recover-plan", STOPPED, "--all").out.splitlines()
    short = kraft_audit("recover-plan", STOPPED).out.splitlines()
    count = len(json.loads(kraft_audit("recover-plan", STOPPED, "-o", "json").out))
    assert sum(line.startswith("  Kafka") for line in every) == count
    assert sum(line.startswith("  Kafka") for line in short) < count
    assert any(line.startswith("elr-c-0 elr-m1-0 elr-m1-1 ") for line in short)


def test_a_crash_shows_partitions_of_one_outcome_together(kraft_audit) -> None:
    command = ["whatif", "samples/elr-06-kill-13-last-replica.tgz", "--lose", "14"]
    outcomes = json.loads(kraft_audit(*command, "-o", "json").out)["outcomes"]
    every = [line for line in kraft_audit(*command, "--all").out.splitlines() if "→" in line]
    short = [line for line in kraft_audit(*command).out.splitlines() if "→" in line]
    assert len(every) == len(outcomes)
    assert 0 < len(short) <= len(every)
    assert sum(name in " ".join(short) for name in ("elr-4-0", "elr-c-1", "pre-elr-1")) == 3


def test_the_timeline_folds_runs_of_one_kind(kraft_audit) -> None:
    every = kraft_audit("timeline", "samples/divergence.tgz", "--all").out.splitlines()
    short = kraft_audit("timeline", "samples/divergence.tgz").out.splitlines()
    assert len(short) < len(every)
    folded = [line for line in short if "more topic events up to offset" in line or "more feature events" in line]
    assert folded


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    simulate_fleet(tmp_path / "fleet", clusters=9, partitions=3, changes=5, seed=1)
    return tmp_path / "fleet"


def test_of_many_clusters_there_is_a_line_each(kraft_audit, fleet: Path) -> None:
    ended = kraft_audit("check", fleet)
    lines = ended.out.splitlines()
    ids = [line.split()[0] for line in lines[1:-1]]
    assert len(set(ids)) == 9
    assert lines[0].split()[:3] == ["cluster", "state", "open"]
    assert "--cluster" in lines[-1]
    alone = kraft_audit("check", fleet, "--cluster", ids[0]).out.splitlines()
    assert alone[0].startswith(ids[0])
    assert alone[1].startswith("OK")
    assert kraft_audit("check", fleet, "--cluster", "nowhere").code == 2


@pytest.mark.parametrize("format_", ["table", "json", "jsonl", "csv"])
def test_incidents_are_given_in_every_format(kraft_audit, format_: str) -> None:
    ended = kraft_audit("check", "--incidents", "samples/elr-06-kill-13-last-replica.tgz", "-o", format_)
    assert ended.code == 1, "as `check` without it"
    if format_ == "table":
        title, heading, newest, *_ = ended.out.splitlines()
        assert title == "SPA6Lw-19VaaSAxl6jMkhw"
        assert heading.split()[:3] == ["severity", "state", "from"]
        assert newest.split()[:2] == ["critical", "open"]
        assert "KP001 KP002 KP005" in newest
        return
    rows = {
        "json": lambda: json.loads(ended.out),
        "jsonl": lambda: [json.loads(line) for line in ended.out.splitlines()],
        "csv": lambda: list(csv.DictReader(io.StringIO(ended.out))),
    }[format_]()
    assert list(rows[0])[:5] == ["cluster_id", "kind", "severity", "subject", "headline"]
    assert rows[0]["kind"] == "broker_loss"
    if format_ == "json":
        assert (rows[0]["is_open"], rows[0]["is_clean"], rows[0]["to_ms"]) == (True, False, None)
        steps = [event["text"].split(":")[0] for event in rows[0]["events"]]
        assert steps == [f"broker {n} fenced" for n in (11, 12, 13)]
        checked = json.loads(kraft_audit("check", "samples/elr-06-kill-13-last-replica.tgz", "-o", "json").out)
        ids = {row["finding_id"] for row in checked if row["rule"] in ("KP001", "KP002") and not row["is_over"]}
        assert ids & set(rows[0]["finding_ids"])


@pytest.mark.parametrize("options", [["--findings"], ["--rule", "KP001"], ["-o", "sarif"], ["-o", "ocsf"]])
def test_incidents_are_no_findings(kraft_audit, options: list[str]) -> None:
    ended = kraft_audit("check", "--incidents", "samples/divergence.tgz", *options)
    assert (ended.code, ended.out, len(ended.error_lines)) == (2, "", 1)
