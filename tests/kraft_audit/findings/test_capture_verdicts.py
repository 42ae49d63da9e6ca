"""What `check` says of every capture at hand, compared with `tests/data/verdicts.yaml`, which was judged by hand.

The captures are real: scenarios of Kafka (their stories are in `scenario.json`) and log dirs that strangers wrote. The
same must hold after ids, times and offsets are rewritten; the healthy captures bound how often a rule may alarm in
vain.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.builders.capture_verdicts import FindingFact, Verdict, verdict_of
from tests.builders.captures import DATA, wild_folder
from tests.builders.renaming import Renaming
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
    "undecided": {"UNDECIDED"},
}
"""The word that opens the answer, by the quorum's state."""
QUICK = ("w", "divergence", "uncommitted-voter-change", "mini-4.4.0", "phantom", "split")
"""Of these, ids, times and offsets are rewritten in `make test` too, but of LARGE."""
LARGE = ("w07", "w08")
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
    assert verdict.contradictions == ()


def renamed(fact: FindingFact, renamings: Mapping[str, Renaming]) -> FindingFact:
    """A finding as it must be after the rewriting. The folder is left out: an empty disk beside two histories goes to
    either."""
    renaming = renamings[fact.folder]
    from_offset, to_offset = (
        None if offset is None else renaming.offset(offset) for offset in (fact.from_offset, fact.to_offset)
    )
    subject = renaming.subject(fact.subject)
    return fact._replace(folder="", subject=subject, from_offset=from_offset, to_offset=to_offset)


@pytest.mark.parametrize(
    "name",
    [
        name if name.startswith(QUICK) and not name.startswith(LARGE) else pytest.param(name, marks=pytest.mark.ci)
        for name in TABLE
    ],
)
def test_verdict_without_the_names(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """No id, no offset, and no time but the spans between times, decides anything; findings have the same subjects."""
    folder = folder_of(name, request)
    count = rewrite_captures(folder, tmp_path / "rewritten")
    verdict = verdict_of(tmp_path / "rewritten")
    assert facts_of(verdict) == expected_of(name), TABLE[name]["why"]
    as_they_are = {path: Renaming(is_identity=True) for path in count.renamings}
    assert Counter(renamed(fact, as_they_are) for fact in verdict.findings) == Counter(
        renamed(fact, count.renamings) for fact in verdict_of(folder).findings
    )
    assert any(count.cluster_ids) or name.startswith("w10")


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
