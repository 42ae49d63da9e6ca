"""What `check` says of every capture at hand, compared with `tests/data/verdicts.yaml`, which was judged by hand.

The captures are real: scenarios of Kafka (their stories are in `scenario.json`) and log dirs that strangers wrote. The
same must hold after ids and times are rewritten, and the healthy captures bound how often a rule may alarm in vain.
"""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.builders.capture_verdicts import Verdict, verdict_of
from tests.builders.captures import DATA, wild_folder
from tests.builders.rewritten_captures import rewrite_captures

pytestmark = pytest.mark.slow

TABLE: dict[str, dict[str, Any]] = yaml.safe_load((DATA / "verdicts.yaml").read_text(encoding="utf-8"))
WORDS = {
    "healthy": {"OK", "QUORUM"},
    "at rest": {"AT REST", "QUORUM"},  # QUORUM where a disk lost records
    "no leader": {"QUORUM"},
    "empty": {"EMPTY"},
    "not judged": {"NOT JUDGED", "UNREADABLE"},
    "no log": {"UNREADABLE"},
}
"""The word that opens the answer, by the quorum's state."""
QUICK = ("w", "divergence", "uncommitted-voter-change", "mini-4.4.0", "phantom", "split")
"""Of these, ids and times are rewritten in `make test` too."""
HEALTHY_SHARE_MAX = 0.05


def is_wild(name: str) -> bool:
    return name.startswith("w") and name[1:3].isdigit()


def folder_of(name: str, request: pytest.FixtureRequest) -> Path:
    """Where a capture, or a set of them, lies; skips where it is not at hand."""
    if is_wild(name):
        wild: Path = request.getfixturevalue("wild")
        if "+" in name:
            together: Path = request.getfixturevalue("tmp_path") / name
            for part in name.split("+"):
                shutil.copytree(wild / part, together / part)
            return together
        return wild / name
    captured_logs: Path = request.getfixturevalue("captured_logs")
    return captured_logs / name


def expected_of(name: str) -> tuple[tuple[str, ...], int, tuple[str, ...]]:
    line = TABLE[name]
    states = (line["state"],) if isinstance(line["state"], str) else tuple(line["state"])
    return states, line["exit"], tuple(line["open"])


def facts_of(verdict: Verdict) -> tuple[tuple[str, ...], int, tuple[str, ...]]:
    return verdict.states, verdict.exit_code, verdict.open_rules


@pytest.mark.parametrize("name", TABLE)
def test_verdict(name: str, request: pytest.FixtureRequest) -> None:
    verdict = verdict_of(folder_of(name, request))
    assert facts_of(verdict) == expected_of(name), TABLE[name]["why"]
    assert all(word in WORDS[state] for state, word in zip(verdict.states, verdict.words, strict=True))


@pytest.mark.parametrize(
    "name", [name if name.startswith(QUICK) else pytest.param(name, marks=pytest.mark.ci) for name in TABLE]
)
def test_verdict_without_the_ids_and_times(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """No id, and no time but the spans between times, decides anything."""
    rewritten = tmp_path / "rewritten"
    count = rewrite_captures(folder_of(name, request), rewritten)
    assert count.cluster_ids or name.startswith("w10")
    assert facts_of(verdict_of(rewritten)) == expected_of(name), TABLE[name]["why"]


def test_every_capture_has_a_verdict(captured_logs: Path) -> None:
    roots = [root for root in (captured_logs, wild_folder()) if root is not None]
    there = {"/".join(folder.parts[-2:]) for root in roots for folder in root.glob("*/*") if folder.is_dir()}
    judged = {name for name in there if name.split("/")[0] not in ("crafted", "volume")}
    assert judged == {name for name in TABLE if "/" in name and (not is_wild(name) or wild_folder() is not None)}


def test_alarms_on_healthy_captures(captured_logs: Path) -> None:
    """On no more than a twentieth of what is healthy may a rule be open at high or above."""
    wild = wild_folder()
    healthy = [name for name, line in TABLE.items() if line["healthy"] and "/" in name]
    healthy = [name for name in healthy if not is_wild(name) or wild is not None]
    folders = [(wild if wild is not None and is_wild(name) else captured_logs) / name for name in healthy]
    alarms = Counter(rule for folder in folders for rule in verdict_of(folder).open_rules)
    assert len(healthy) > 50
    assert {rule: count for rule, count in alarms.items() if count > HEALTHY_SHARE_MAX * len(healthy)} == {}
