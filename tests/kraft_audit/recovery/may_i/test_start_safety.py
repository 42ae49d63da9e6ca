"""What elections can lose, against every election played by brute force on random disks, wiped ones among them."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from kraft_audit.quorum.committed_interval import committed_interval
from kraft_audit.quorum.voter_history import VoterSet, in_effect
from kraft_audit.recovery.may_i.durability import durability
from kraft_audit.recovery.may_i.electorate import NO_EPOCH
from kraft_audit.recovery.may_i.start_safety import StartSafety, start_safety
from tests.builders.election_model import loss_within, moment_of
from tests.builders.small_raft import SmallRaft, capture

STEPS = 60


class Case:
    """Random disks of a quorum at rest: some wiped, some without quorum-state, some not running, some not read."""

    def __init__(self, seed: int, *, accidents: bool = True, reads_all: bool = False) -> None:
        self.chance = random.Random(seed)  # noqa: S311
        self.raft = SmallRaft(seed, static=self.chance.random() < 0.5)
        for _ in range(self.chance.choice([STEPS, 2 * STEPS, 4 * STEPS])):
            self.raft.step()
        voters = {node for log in self.raft.nodes.values() for node in self.raft.voters_of(log.log)}
        self.voterless: set[int] = set()
        for node_id in sorted(voters) if accidents else ():
            drawn = self.chance.random()
            if drawn < 0.25:
                self.wipe(node_id, keeps_log=drawn > 0.15)
        self.running = {node for node in voters if self.chance.random() < 0.8}
        read = [node for node in sorted(voters) if reads_all or self.chance.random() < 0.9]
        self.evidence = capture(self.raft, read, at_rest=True).evidence
        self.interval = committed_interval(self.evidence)
        self.safety = start_safety(self.evidence, self.interval, self.voter_sets())

    def wipe(self, node_id: int, *, keeps_log: bool) -> None:
        node = self.raft.nodes[node_id]
        node.epoch, node.leader, node.voted, node.leads = 0, -1, -1, False
        if not keeps_log:
            node.log, node.snapshot, node.start = [], 0, 0
            if not self.raft.static:  # its 0-0 checkpoint is gone with its log
                self.voterless.add(node_id)

    def voter_sets(self) -> dict[int, VoterSet | None]:
        sets: dict[int, VoterSet | None] = {}
        for place, replica in enumerate(self.evidence.replicas):
            chain = replica.chain
            known = chain is not None and replica.node_id not in self.voterless
            sets[place] = in_effect(chain.voter_sets, 1 << 60) if known and chain is not None else None
        return sets

    def running_disks(self, safety: StartSafety) -> list[Any]:
        return [disk for disk in safety.disks if disk.node_id in self.running]

    def loses(self, steps: int) -> bool:
        return loss_within(moment_of(self.raft, self.running, self.voterless), steps)


def verdict_of(case: Case) -> str:
    safety = case.safety
    if safety is None:
        return "undecided"
    running = case.running_disks(safety)
    if safety.playable(running) is not None:
        return "no"
    if safety.losing(running) is None and safety.second_leader(running) is None:
        return "yes"
    return "undecided"


def judge(seeds: range, steps: int) -> Counter[str]:
    """Counts of verdicts; a wrong one fails."""
    counts: Counter[str] = Counter()
    for seed in seeds:
        case = Case(seed)
        verdict = verdict_of(case)
        counts[verdict] += 1
        if verdict == "no":
            assert case.loses(1), (seed, "no election loses a committed record")
        elif verdict == "yes":
            assert not case.loses(steps), (seed, "an election loses a committed record")
    return counts


@pytest.mark.slow
def test_answers_agree_with_every_election_that_can_be_held() -> None:
    counts = judge(range(400), 2)
    assert counts["yes"] >= 80, counts
    assert counts["no"] >= 10, counts


@pytest.mark.slow
def test_answers_agree_with_longer_schedules() -> None:
    judge(range(1_000, 1_150), 3)


@pytest.mark.slow
def test_a_quorum_at_rest_whose_disks_are_all_there_is_decided() -> None:
    """Where all disks were read, none forgot, and what is committed is known to the record."""
    counts: Counter[str] = Counter()
    for seed in range(2_000, 2_400):
        case = Case(seed, accidents=False, reads_all=True)
        safety = case.safety
        if safety is None or safety.low != safety.high or any(disk.forgotten_to != NO_EPOCH for disk in safety.disks):
            continue
        verdict = verdict_of(case)
        counts[verdict] += 1
        assert verdict != "no", seed  # nothing that Raft does by itself loses a committed record
        assert verdict != "yes" or not case.loses(2), seed
    assert counts.total() >= 100
    assert counts["undecided"] <= 0.05 * counts.total(), counts


@pytest.mark.slow
def test_no_election_loses_what_cannot_be_lost() -> None:
    """All voters run. What stands one record further is lost by some election, or by none that is won at once."""
    held = lost = 0
    for seed in range(3_000, 3_150):
        case = Case(seed, accidents=False, reads_all=True)
        safety = case.safety
        if safety is None or not safety.chain.runs:
            continue
        case.running = {disk.node_id for disk in safety.disks}
        found = durability(safety)
        longest = max(
            (node.log for node in case.raft.nodes.values() if node.log), key=lambda log: (log[-1][0], len(log))
        )
        moment = moment_of(case.raft, case.running, case.voterless)
        assert found.safe_to <= len(longest)
        assert not loss_within(replace(moment, committed=tuple(longest[: found.safe_to])), 2), seed
        held += 1
        lost += found.safe_to < len(longest) and loss_within(
            replace(moment, committed=tuple(longest[: found.safe_to + 1])), 2
        )
        if found.emptied is not None and len(found.emptied) > 1:
            case.wipe(found.emptied[0], keeps_log=False)
            proven = replace(moment_of(case.raft, case.running, case.voterless), committed=tuple(longest[: safety.low]))
            assert not loss_within(proven, 2), (seed, found.emptied)
    assert held >= 50
    assert lost >= 20
