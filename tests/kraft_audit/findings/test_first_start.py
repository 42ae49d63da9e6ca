"""Which broker to start first: `check`, `recover-plan` and `may-i start` say one thing, whatever was captured."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import dropwhile, takewhile
from pathlib import Path

import pytest

import kraft_audit
from kraft_audit.cluster import Cluster
from kraft_audit.findings.answer import answer_lines
from kraft_audit.recovery.may_i.permission import Action, Question, Verdict
from kraft_audit.recovery.start_order import start_lines
from tests.builders.captures import DATA, SAMPLES

STARTED = re.compile(r"(?<!not )[Ss]tart broker (\d+)")
UNCLEAN_OFF = re.compile("Turn unclean election off for .*? before any start, and copy the disks")
SCENARIOS = sorted(archive.name.removesuffix(".tar.xz") for archive in (DATA / "captures").glob("*.tar.xz"))
LARGE = ("volume",)
FIRST = {
    "elr-06-kill-13-last-replica.tgz": (13, True),
    "elr-29-stopped.tgz": (11, False),
    "mini-3.9.2.tgz": (12, False),
    "static-to-dynamic-upgrade.tgz": (3, False),
}
"""By sample: the broker that starts first, and whether unclean election has to be turned off before."""


def next_lines(cluster: Cluster, path: str) -> list[str]:
    """What `check` says to do next."""
    lines = dropwhile(lambda line: line.word != "NEXT", answer_lines(cluster.history, cluster.incidents(), path))
    return [line.text for line in takewhile(lambda line: line.text and line.word in ("NEXT", ""), lines)]


def plan_lines(cluster: Cluster, path: str) -> list[str]:
    return list(start_lines(cluster.recover_plan(), cluster.history, path, cluster.may_i))


def first_starts(path: Path) -> Iterator[tuple[int, bool]]:
    """Of each cluster below a path whose `check` names a broker to start: that broker, and whether unclean election
    goes off before. Fails where another answer differs."""
    with kraft_audit.open(path) as clusters:
        for cluster in clusters:
            said, planned = (" ".join(lines(cluster, str(path))) for lines in (next_lines, plan_lines))
            started, off = STARTED.findall(said), UNCLEAN_OFF.findall(said)
            assert len(set(started)) <= 1, said
            if not started:
                continue
            assert STARTED.findall(planned)[:1] == started, (said, planned)
            assert off == UNCLEAN_OFF.findall(planned), (said, planned)
            answer = cluster.may_i(Question(Action.START, int(started[0]), str(path)))
            assert answer.verdict is not Verdict.NO, (said, answer)
            assert UNCLEAN_OFF.findall(" ".join(answer.next_steps)) == off, (said, answer)
            yield int(started[0]), bool(off)


@pytest.mark.slow
@pytest.mark.parametrize("sample", sorted(SAMPLES.glob("*.tgz")), ids=lambda sample: sample.name)
def test_every_answer_about_a_sample_starts_the_same_broker(sample: Path) -> None:
    assert list(first_starts(sample)) == ([FIRST[sample.name]] if sample.name in FIRST else [])


@pytest.mark.slow
@pytest.mark.parametrize("scenario", [name for name in SCENARIOS if name not in LARGE])
def test_every_answer_about_a_capture_starts_the_same_broker(captured_logs: Path, scenario: str) -> None:
    captures = sorted(folder for folder in (captured_logs / scenario).iterdir() if folder.is_dir())
    named = {capture.name: list(first_starts(capture)) for capture in captures}
    if scenario == "elr":
        assert len([name for name, starts in named.items() if starts]) >= 5
