"""With one file of one disk changed, no answer is more confident than without the lie, or without that disk.

The other disks are a majority of the voters, and honest. A positive claim is judged by the more confident of two
captures: the honest one, and the one without the liar's folder. And no *yes* may stand that either of them denies.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import kraft_audit
from kraft_audit.cluster import Cluster
from kraft_audit.commands.check import _exit_code
from kraft_audit.incidents.folding import open_findings
from kraft_audit.recovery.may_i.permission import Action, Question, Verdict
from kraft_audit.rules.columns.quorum_standing import BROKEN
from kraft_engine.runs.scenario_stage import Stage
from tests.builders.lies import tell

COUNT = int(os.environ.get("KRAFT_AUDIT_LIES", "200"))
"""How many lies are told in CI; a drill asks for more."""
QUICK = 12
ASKED = (Action.START, Action.RESTART, Action.DELETE_VOLUME)
Asked = tuple[str, int, frozenset[int]]


@dataclass(frozen=True)
class Claims:
    """What is claimed of a capture: by `check`, and by `may-i` of each voter. `low` is the committed end."""

    exit_code: int
    is_broken: bool
    low: int
    answers: dict[Asked, Verdict]

    @property
    def yes(self) -> frozenset[Asked]:
        return frozenset(asked for asked, verdict in self.answers.items() if verdict is Verdict.YES)

    @property
    def denied(self) -> frozenset[Asked]:
        return frozenset(asked for asked, verdict in self.answers.items() if verdict is Verdict.NO)


def claims_of(path: Path, voters: tuple[int, ...]) -> Claims:
    with kraft_audit.open(str(path)) as clusters:
        judged = [(cluster, cluster.incidents(cluster.check())) for cluster in clusters]
        codes = [_exit_code(cluster, open_findings(folded), "high") for cluster, folded in judged]
        code = max(codes, key=(0, 3, 1).index)
        largest = max((cluster for cluster, _ in judged), key=lambda cluster: len(cluster.plan.replicas))
        standing = largest.standing()
        answers = {} if len(judged) > 1 else dict(_answers(largest, path, voters))
        return Claims(code, standing.standing in BROKEN, standing.committed_to or 0, answers)


def _answers(cluster: Cluster, path: Path, voters: tuple[int, ...]) -> Iterator[tuple[Asked, Verdict]]:
    for node in voters:
        for action in ASKED:
            for stopped in (frozenset[int](), *(frozenset({other}) for other in voters if other != node)):
                question = Question(action, node, str(path), stopped=stopped)
                yield (action.value, node, stopped), cluster.may_i(question).verdict


@dataclass(frozen=True)
class Honest:
    """An honest capture, and what is claimed of it."""

    path: Path
    voters: tuple[int, ...]

    @cache  # noqa: B019
    def claims(self) -> Claims:
        return claims_of(self.path, self.voters)

    @cache  # noqa: B019
    def without(self, node: int) -> Claims:
        rest = self.path.parent / f"{self.path.name}-without-{node}"
        shutil.copytree(self.path, rest, ignore=lambda _, names: {f"node-{node}"} & set(names))
        return claims_of(rest, self.voters)


def quorum(out: Path, seed: int, controllers: int) -> Honest:
    """A quorum with a broker that changed its leader, wrote topics, and was copied at one moment."""
    stage = Stage(seed, out / f"played-{seed}")
    voters = tuple(range(1, controllers + 1))
    stage.controllers(*voters)
    stage.brokers(11)
    stage.topic("orders", [11])
    if seed % 2:
        leader = stage.leader().id
        stage.crash(leader)
        stage.run_ms(6_000)
        stage.start(leader)
        stage.settle()
    for number in range(seed % 4):
        stage.topic(f"late-{number}", [11])
    stage.run_ms(3_000)
    stage.capture("whole")
    return Honest(out / f"played-{seed}" / "whole", voters)


@pytest.fixture(scope="module")
def quorums(tmp_path_factory: pytest.TempPathFactory) -> list[Honest]:
    out = tmp_path_factory.mktemp("quorums")
    return [quorum(out, seed, controllers) for seed, controllers in ((4, 3), (5, 3), (6, 5), (7, 5))]


def overclaims(honest: Honest, seed: int, folder: Path) -> list[str]:
    """What is claimed beyond both captures once a lie is told; nothing where all is well."""
    chance = random.Random(seed)  # noqa: S311
    node, other = chance.sample(honest.voters, 2)
    lied = folder / f"lie-{seed}"
    shutil.copytree(honest.path, lied)
    told = tell(seed, lied / f"node-{node}", lied / f"node-{other}")
    found, both = claims_of(lied, honest.voters), (honest.claims(), honest.without(node))
    shutil.rmtree(lied)
    wrong = []
    if found.exit_code == 0 and all(each.exit_code for each in both):
        wrong.append("exit 0")
    if found.low > max(each.low for each in both):
        wrong.append(f"committed to {found.low}")
    if found.is_broken and not any(each.is_broken for each in both):
        wrong.append("a broken quorum")
    for asked in found.yes:
        if any(asked in each.denied for each in both) or not any(asked in each.yes for each in both):
            wrong.append(f"yes: {asked}")
    return [f"seed {seed}, {told}: {what}" for what in wrong]


@pytest.mark.slow
def test_a_few_lies(quorums: list[Honest], tmp_path: Path) -> None:
    wrong = [text for seed in range(QUICK) for text in overclaims(quorums[seed % len(quorums)], seed, tmp_path)]
    assert wrong == []


@pytest.mark.ci
@pytest.mark.timeout(3_600)
def test_no_lie_makes_an_answer_more_confident(quorums: list[Honest], tmp_path: Path) -> None:
    wrong: Counter[str] = Counter()
    for seed in range(QUICK, QUICK + COUNT):
        wrong.update(overclaims(quorums[seed % len(quorums)], seed, tmp_path))
    assert dict(wrong) == {}


@pytest.mark.slow
def test_the_honest_captures_are_claimed_in_full(quorums: list[Honest]) -> None:
    """The property means something only where there is something to claim."""
    for honest in quorums:
        claims = honest.claims()
        assert claims.low > 0
        assert any(action == "start" for action, _, _ in claims.yes)
        assert not claims.is_broken
