"""What `may-i start` says of stopped controllers, some of them wiped, against what the engine then does to the log.

After yes no committed batch is ever missing in a leader's log, whatever happens. After no the schedule that is named
loses one: only its voters run, and one of them leads without it.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import kraft_audit
from kraft_audit.recovery.permission import Action, Question, Verdict
from kraft_audit.recovery.quorum_disks import quorum_disks
from kraft_audit.recovery.start_safety import Election
from kraft_engine.runs.scenario_stage import Stage
from kraft_engine.world import disk_accidents
from tests.witness.runs import seed_count


class Incident:
    """Some controllers stopped at different times, some emptied, and what was committed by then."""

    def __init__(self, seed: int, out: Path) -> None:
        self.chance = random.Random(seed)  # noqa: S311
        self.out = out
        self.stage = Stage(seed, out)
        self.ids = list(range(1, self.chance.choice([3, 3, 3, 5]) + 1))
        self.stage.controllers(*self.ids, static=self.chance.random() < 0.5)
        self.stage.run_ms(2_000)
        down: list[int] = []
        for _ in range(self.chance.randint(1, 3)):
            node = self.chance.choice(self.ids)
            if node in down:
                down.remove(node)
                self.stage.start(node)
            elif len(self.ids) - len(down) - 1 > len(self.ids) // 2:
                down.append(node)
                self.stage.crash(node)
            self.stage.run_ms(self.chance.choice([500, 3_000, 8_000]))
        more = [node for node in self.ids if node not in down]
        for node in self.chance.sample(more, self.chance.randint(1, len(more))):
            down.append(node)
            self.stage.crash(node)
        for node in down:
            drawn = self.chance.random()
            if drawn < 0.5:
                self.stage.wipe_disk(node)
            elif drawn < 0.6:
                self.stage.disk_accident("quorum-state lost", node, change=disk_accidents.lose_quorum_state)
            elif drawn < 0.75:
                self.stage.disk_accident("segments emptied", node, change=disk_accidents.empty_segments)
        self.stage.run_ms(self.chance.choice([0, 2_000]))
        self.down = sorted(down)
        self.asked = self.chance.choice(self.down)
        self.stopped = frozenset(node for node in self.down if node != self.asked and self.chance.random() < 0.4)
        self.committed = list(self.stage.invariants.ledger.batches)
        self.stage.capture("down")

    def loses(self) -> bool:
        """Whether a leader is without what was committed when the disks were read."""
        for leader in self.stage.leaders():
            for batch in self.committed:
                if batch.base_offset >= leader.log.start_offset and leader.log.batch_at(batch.base_offset) is not batch:
                    return True
        return False

    def plays_yes(self) -> bool:
        """All but the stopped nodes run, and chance stops and starts them; whether that ever lost a batch."""
        up = [node for node in self.ids if node not in self.stopped]
        self.chance.shuffle(up)
        for node in up:
            self.stage.start(node)
            self.stage.run_ms(self.chance.choice([0, 0, 20_000]))
        for _ in range(8):
            self.stage.run_ms(self.chance.choice([500, 4_000, 15_000]))
            if self.loses():
                return True
            node = self.chance.choice(up)
            if self.stage.cluster.processes[self.stage.slot(node)].node is None:
                self.stage.start(node)
            else:
                self.stage.crash(node)
        return False

    def plays_no(self, election: Election) -> bool:
        for node in self.ids:
            if node not in self.down and node not in election.voters:
                self.stage.crash(node)
        for node in election.voters:
            self.stage.start(node)
        self.stage.until(lambda: bool(self.stage.leaders()), "an election")
        self.stage.run_ms(60_000)
        return self.loses()


def test_yes_loses_nothing_and_no_names_a_schedule_that_loses(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    for seed in range(seed_count(60)):
        incident = Incident(seed, tmp_path / str(seed))
        question = Question(Action.START, incident.asked, str(incident.out), stopped=incident.stopped)
        with kraft_audit.open(str(incident.out)) as clusters:
            (cluster,) = clusters
            answer = cluster.may_i(question)
            safety, _ = quorum_disks(cluster.survey, cluster.plan)
        counts[answer.verdict] += 1
        if answer.verdict is Verdict.YES:
            assert not incident.plays_yes(), (seed, answer)
        elif answer.verdict is Verdict.NO:
            assert safety is not None
            running = [disk for disk in safety.disks if disk.node_id not in incident.stopped]
            election = safety.playable(running)
            assert election is not None
            assert incident.plays_no(election), (seed, answer)
    assert counts["yes"] >= counts.total() // 4, counts
    assert counts["no"] >= 2, counts
