"""Where logs contradict each other, no answer goes in a circle: the printed commands lead to one that decides.

Every command of `check` and of what it leads to is run as printed. The witness is the graph of these commands alone: a
command is an answer where `may-i` says yes or no, or what to copy or to do on Kafka, `quorum` leaves no node undecided,
`rescue --plan` has a plan, or `state` shows one. From every other command a way of printed commands leads to an answer,
and none of them is refused.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kraft_audit.replay.branch_choice import ChosenBranch
from kraft_engine.scenarios.scenario import load

COMMAND = re.compile(r"kraft-audit (?:check|quorum|may-i|rescue --plan|state|timeline)\b[^`;)\n]*")
UNDECIDED_ROW = re.compile(r"^(?:controller|broker) \d+ .*\bundecided\b", re.MULTILINE)
CASES = (
    ("controllers-emptied", "2-controllers-up-broker-11-running"),
    ("controllers-emptied", "3-all-up"),
    ("static-scale-out-may-i", "2-new-pair-leads"),
)
SCENARIOS = sorted(name for name, scenario in load().items() if {"KQ002", "KQ003"} & set(scenario.raises))
FIRST = ("check", "quorum", "rescue --plan", "may-i start 1", "state", "quorum --diverge")
COMMANDS_MAX = 80


def commands_of(text: str, quoted: str) -> list[str]:
    """The commands that a text prints about what was read, in order; not the examples with blanks in them."""
    found = (match.group().strip().rstrip(".,:") for match in COMMAND.finditer(text))
    lines = (re.split(r"(?:,| or) (?:2|or|1)\b", line)[0].strip() for line in found)
    return [line for line in dict.fromkeys(lines) if quoted in line and not re.search(r" [A-Z]{4,}\b", line)]


def graph_of(run: Callable[..., Any], path: Path) -> tuple[dict[str, list[str]], set[str]]:
    """The commands that are reached from those that are asked first, by what each prints; and those that answer."""
    leads_to: dict[str, list[str]] = {}
    answers: set[str] = set()
    quoted = shlex.quote(str(path))
    waiting = [f"kraft-audit {asked} {quoted}" for asked in FIRST]
    while waiting and len(leads_to) < COMMANDS_MAX:
        line = waiting.pop(0)
        if line in leads_to:
            continue
        _, name, *words = shlex.split(line)
        ended = run(name, *words)
        said = ended.out + ended.err
        # Without a canonical log `state` has none to show, and names the branches.
        assert ended.code in (0, 1, 4) or (line == f"kraft-audit state {quoted}" and ended.code == 3), (line, ended)
        leads_to[line] = commands_of(said, quoted)
        waiting += leads_to[line]
        is_decided = ended.code in (0, 1) or re.search(r"Copy |kafka-metadata-quorum|kafka-storage", said)
        if name != "may-i":
            is_decided = name == "quorum" and "--diverge" not in words and not UNDECIDED_ROW.search(said)
        is_decided = is_decided or "no two captured logs differ" in said
        if is_decided or (name in ("rescue", "state") and ended.code == 0):
            answers.add(line)
    assert len(leads_to) < COMMANDS_MAX, sorted(leads_to)
    return leads_to, answers


def without_answer(leads_to: dict[str, list[str]], answers: set[str]) -> list[str]:
    """The commands from which no way leads to an answer; that no logs differ, as `quorum --diverge` says, is one."""
    reaching = set(answers)
    while more := {line for line, following in leads_to.items() if line not in reaching and reaching & set(following)}:
        reaching |= more
    return sorted(leads_to.keys() - reaching)


@pytest.fixture
def contradicting(cases: Path, tmp_path: Path) -> Callable[[str, str], Path]:
    """The folder of a case's capture, or of all captures of a scenario."""

    def path(kind: str, capture: str) -> Path:
        if kind in SCENARIOS:
            load()[kind].play(1, tmp_path / "run")
            return tmp_path / "run"
        shutil.unpack_archive(cases / kind / "in.tgz", tmp_path / "in")
        return tmp_path / "in" / capture

    return path


@pytest.mark.parametrize(("kind", "capture"), [*CASES, *((name, "") for name in SCENARIOS)])
def test_every_way_on_ends_in_an_answer(
    kraft_audit: Any, contradicting: Callable[[str, str], Path], kind: str, capture: str
) -> None:
    leads_to, answers = graph_of(kraft_audit, contradicting(kind, capture))
    assert answers
    assert without_answer(leads_to, answers) == []


def test_check_names_what_lives_on_which_disks(kraft_audit: Any, cases: Path) -> None:
    """Brokers 11 and 12 hold the topics; the formatted controllers began again."""
    shown = kraft_audit("check", cases / "controllers-emptied" / "in.tgz", "--capture", "3-all-up").out
    assert (
        "Offsets 0–33 of epoch 2 (topics audit, billing and orders) live only on nodes 11 and 12: keep these " in shown
    )
    assert "Offsets 0–40 of epoch 2 (no topic) live only on nodes 1, 2 and 3" in shown


def test_a_branch_leads_to_a_rescue_without_the_disks_of_the_other(
    kraft_audit: Any, cases: Path, tmp_path: Path
) -> None:
    """The plan and the rescue by --branch are those by --gone; what the new log holds is no part of them."""
    shutil.unpack_archive(cases / "controllers-emptied" / "in.tgz", tmp_path / "in")
    path = tmp_path / "in" / "3-all-up"
    named = kraft_audit("rescue", "--plan", path, "--branch", "2@0:11")
    gone = kraft_audit("rescue", "--plan", path, "--gone", "1,2,3")
    assert (named.code, gone.code) == (0, 0)
    copies = [line for line in named.out.splitlines() if line.startswith("COPY")]
    assert copies == [line for line in gone.out.splitlines() if line.startswith("COPY")]
    assert "Left out: nodes 1, 2 and 3" in named.out
    options = ("--from", "11", "--node-id", "1", "--endpoint", "c1.example:9093")
    built = kraft_audit("rescue", path, "--branch", "2@0:11", *options, "--out", tmp_path / "rescued")
    assert built.code == 0, built.err
    state = kraft_audit("state", tmp_path / "rescued", "--only", "topics").out
    assert all(topic in state for topic in ("audit", "billing", "orders"))


def test_a_node_of_another_log_stays_stopped(kraft_audit: Any, cases: Path) -> None:
    path = cases / "controllers-emptied" / "in.tgz"
    options = ("--capture", "3-all-up", "--branch")
    other = kraft_audit("may-i", "start", 1, path, *options, "2@0:11")
    own = kraft_audit("may-i", "start", 1, path, *options, "2@0:1")
    assert (other.code, own.code) == (1, 0)
    assert "Node 1 holds another log than branch 2@0:11" in other.out
    assert "Left out: nodes 11 and 12, which hold another log and must stay stopped." in own.out
    unknown = kraft_audit("may-i", "start", 1, path, *options, "2@7")
    assert unknown.code in (2, 3)
    assert "2@0:11" in unknown.err


@pytest.mark.parametrize(
    ("step", "named"),
    [
        ("kraft-audit may-i start 1 logs --stopped 2", "kraft-audit may-i start 1 logs --branch 2@0:1 --stopped 2"),
        ("Ask: kraft-audit rescue --plan logs", "Ask: kraft-audit rescue --plan logs --branch 2@0:1"),
        ("kraft-audit quorum --diverge logs", "kraft-audit quorum --diverge logs"),
        ("kraft-audit rescue --plan logs --branch 2@0:9", "kraft-audit rescue --plan logs --branch 2@0:9"),
        ("Copy it below logs, then: kraft-audit may-i wipe 1 logs", None),
        ("kraft-audit may-i start 1 logs-2", "kraft-audit may-i start 1 logs-2"),
    ],
)
def test_commands_of_a_branch_name_it(step: str, named: str | None) -> None:
    branch = ChosenBranch("2@0:1", (1,), 4, (2,))
    assert branch.with_branch(step, "logs") == (named or f"{step} --branch 2@0:1")
