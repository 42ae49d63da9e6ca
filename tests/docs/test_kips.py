"""The page of KIPs is true: each command in it runs, each rule and metric in it is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kraft_audit.commands.cli import run_command
from kraft_audit.report.openmetrics import METRIC_FAMILIES
from kraft_audit.rules.registry import rules

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "kips.md").read_text(encoding="utf-8")
STATUSES = ("served", "half", "never shipped", "not offline")
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" |")]
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith(("| ---", "| what", "| word"))
][len(STATUSES) :]
COMMANDS = sorted({" then ".join(re.findall("`(kraft-audit [^`]+)`", row[2])) for row in ROWS} - {""})


def test_each_row_says_how_much_is_served_and_what_shows_it() -> None:
    assert len(ROWS) > 50
    for what, status, where in ROWS:
        assert status.startswith(STATUSES), what
        assert "`kraft-audit " in where or status == "not offline", what
    assert re.findall(r"^## (KIP-\d+)", PAGE, re.MULTILINE) == ["KIP-595", "KIP-642", "KIP-853", "KIP-856", "KIP-966"]


def test_rules_and_metrics_that_are_named_are_there() -> None:
    known = set(rules())
    assert set(re.findall(r"\bK[A-Z]\d{3}\b", PAGE)) <= known
    of_us = {"high_watermark_low", "election_latency_high_seconds", "number_of_observers_low"}
    assert of_us <= METRIC_FAMILIES.keys()
    for row in ROWS:
        if "openmetrics" not in row[2] or not row[1].startswith("served"):
            continue
        for name in re.split(r", | as ", row[0]):
            assert any(
                family.startswith(re.sub("[ -]", "_", name)) for family in (*METRIC_FAMILIES, "electable_leaders")
            )


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_shows_something(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "samples").symlink_to(ROOT / "samples")
    monkeypatch.chdir(tmp_path)
    for command in line.split(" then "):
        code = run_command(command.split()[1:])
        ended = capsys.readouterr()
        assert code in (0, 1), ended.err
        assert ended.out or (tmp_path / "metrics.txt").stat().st_size
