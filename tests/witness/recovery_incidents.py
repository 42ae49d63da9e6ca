"""Random incidents of a controller quorum that the engine plays, and what then happens: by chance, or by a schedule."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kraft_audit.recovery.may_i.permission import Action, Permission, Question
from kraft_engine.brokers.controller_admin import broker_config
from kraft_engine.consensus.log_batches import Batch
from kraft_engine.consensus.messages import AddRaftVoterRequest, RemoveRaftVoterRequest
from kraft_engine.consensus.raft import LEADER, RaftNode
from kraft_engine.runs.scenario_stage import Stage
from kraft_engine.world import disk_accidents
from kraft_engine.world.world import MS

SCHEDULE = re.compile(r"^Node (\d+) could be elected by ([0-9, and]+), and lacks committed records from offset (\d+)")
AHEAD_MS = (3_000, 0, 1_000, 6_000, 10_000, 20_000)
"""How long before the others the candidate starts: which voter stands first is chance, so it gets several tries."""
STEPS = 8


@dataclass(frozen=True, slots=True)
class Schedule:
    """The election that a no names: who wins it, with whose votes, and the first committed offset that it loses."""

    candidate: int
    voters: tuple[int, ...]
    offset: int

    @classmethod
    def printed(cls, answer: Permission) -> Schedule | None:
        found = SCHEDULE.match(answer.reason)
        if found is None:
            return None
        voters = tuple(int(voter) for voter in re.findall(r"\d+", found[2]))
        return cls(int(found[1]), voters, int(found[3]))


class Incident:
    """A quorum whose nodes crashed, were cut off or wiped: `down` do not run, and chance said what was captured.

    The same seed gives the same incident, as often as it is asked for.
    """

    def __init__(self, seed: int, out: Path) -> None:
        self.seed = seed
        self.chance = random.Random(seed)  # noqa: S311
        self.is_at_rest = seed % 3 == 0
        self.out = out
        self.stage = Stage(seed, out, release=self.chance.choice(["4.3.1", "4.3.1", "4.4.0"]))
        self.ids = list(range(1, self.chance.choice([3, 3, 3, 4, 5]) + 1))
        self.is_static = self.chance.random() < 0.5
        if not self.is_static and self.chance.random() < 0.2:
            self._grow()
        else:
            self.stage.controllers(*self.ids, static=self.is_static)
        self.stage.run_ms(self.chance.choice([500, 2_000]))
        if not self.is_static and self.chance.random() < 0.3:
            self.ids.append(9)
            self.stage.spare_controller(9)
        self.down: list[int] = []
        for _ in range(self.chance.randint(1, 5)):
            self._event()
            self.stage.run_ms(self.chance.choice([0, 20, 500, 3_000, 8_000]))
        self._stop()
        self.committed = list(self.stage.invariants.ledger.batches)
        self.led = frozenset(self.stage.invariants.ledger.epochs)

    @property
    def up(self) -> list[int]:
        return [node for node in self.ids if node not in self.down]

    def capture(self) -> list[int]:
        """Captures the disks; returns whose."""
        read = [node for node in self.ids if self.is_at_rest or self.chance.random() < 0.9] or self.ids[:1]
        self.stage.capture("then", *read)
        return read

    # What happens before the question

    def _grow(self) -> None:
        """One controller is formatted alone, and the others are added to it."""
        self.stage.controllers(*self.ids[:1])
        for node in self.ids[1:]:
            self.stage.spare_controller(node)
            self.stage.add_voter(node)

    def _event(self) -> None:
        drawn = self.chance.random()
        if drawn < 0.35:
            node = self.chance.choice(self.ids)
            if node in self.down:
                self.down.remove(node)
                self.stage.start(node)
            elif len(self.up) - 1 > len(self.ids) // 2:
                self.down.append(node)
                self.stage.crash(node)
        elif drawn < 0.55:
            self.stage.isolate(*self.chance.sample(self.ids, self.chance.randint(1, len(self.ids) // 2)))
        elif drawn < 0.7:
            self.stage.heal()
        elif drawn < 0.8 and not self.is_static:
            change_voters(self.stage, self.chance, self.ids)
        write(self.stage, self.chance)

    def _end_in_an_election(self) -> None:
        """The leader crashes, and the others do as soon as one of them is elected: who voted in that epoch matters."""
        leader = self.stage.cluster.ready_leader()
        if leader is None or leader.id not in self.up or len(self.up) - 1 <= len(self.ids) // 2:
            return
        self.down.append(leader.id)
        self.stage.crash(leader.id)
        self.stage.world.run_until(lambda: bool(self.stage.leaders()), limit_us=20_000 * MS)

    def _stop(self) -> None:
        if not self.is_at_rest and self.chance.random() < 0.3:
            self._end_in_an_election()
        up = self.up
        count = len(up) if self.is_at_rest else self.chance.randint(1, len(up))
        for node in self.chance.sample(up, count):
            self.down.append(node)
            self.stage.crash(node)
            if self.chance.random() < 0.3:
                self.stage.run_ms(self.chance.choice([5, 200, 3_000]))
        for node in () if self.is_at_rest else tuple(self.down):
            drawn = self.chance.random()
            if drawn < 0.4:
                self.stage.wipe_disk(node)
            elif drawn < 0.6:
                self.stage.disk_accident("quorum-state lost", node, change=disk_accidents.lose_quorum_state)
            elif drawn < 0.7:
                self.stage.disk_accident("segments emptied", node, change=disk_accidents.empty_segments)
        self.stage.heal()
        self.stage.run_ms(self.chance.choice([0, 0, 2_000]))

    # What is asked

    def questions(self) -> Iterator[Question]:
        """Whatever may be asked of each node, with others said to be stopped or gone.

        Every second static quorum says what its configurations name: a disk without a quorum-state does not show it.
        """
        voters = frozenset(self.ids) if self.is_static and self.seed % 2 else frozenset()
        for node in self.ids:
            others = [each for each in self.down if each != node]
            for _ in range(2):
                away = [each for each in others if self.chance.random() < 0.4]
                gone = frozenset(each for each in away if self.chance.random() < 0.3)
                stopped = frozenset(away) - gone
                actions = [Action.START, Action.WIPE, Action.DELETE_VOLUME] if node in self.down else [Action.RESTART]
                if not self.is_static and node not in self.down:
                    actions.append(Action.SCALE_IN)
                for action in actions:
                    yield Question(action, node, str(self.out), gone=gone, stopped=stopped, voters=voters)

    # What then happens

    def prepare(self, question: Question) -> list[int]:
        """Does what was asked for; returns the nodes that may run from then on."""
        away = question.gone | question.stopped
        node = question.node_id
        if question.action is Action.WIPE:
            self.stage.wipe_disk(node)
        elif question.action is Action.RESTART:
            self.stage.crash(node)
        elif question.action is Action.DELETE_VOLUME:
            away |= {node}
        return [each for each in self.ids if each not in away]

    def loss(self) -> Callable[[], bool]:
        """Whether a leader lacks what was committed when the disks were read, or an epoch is led a second time."""
        leading = {node.epoch: node for node in self.stage.leaders()}
        led: dict[int, RaftNode | None] = {epoch: leading.get(epoch) for epoch in self.led}

        def is_lost() -> bool:
            for node in self.stage.cluster.nodes():
                if node.role == LEADER:
                    if node.epoch not in led:
                        led[node.epoch] = node
                        if self.lacks(node):
                            return True
                    elif led[node.epoch] is not node:
                        return True
            return False

        return is_lost

    def lacks(self, node: RaftNode) -> list[Batch]:
        """The committed batches that a node's log does not hold."""
        log = node.log
        return [
            batch
            for batch in self.committed
            if batch.base_offset >= log.start_offset and log.batch_at(batch.base_offset) is not batch
        ]

    def loses_by_chance(self, question: Question, *, is_observer: bool) -> bool:
        """All that may run do, and chance stops, cuts off and starts them; whether that ever lost a batch.

        An observer loses nothing, whatever voters that are down may lose without it: these stay down.
        """
        nodes, is_lost, chance = self.prepare(question), self.loss(), self.chance
        if is_observer:
            nodes = [node for node in nodes if node in self.up or node == question.node_id]
        chance.shuffle(nodes)
        if chance.random() < 0.4:
            self.stage.isolate(chance.choice(self.ids))
        for node in nodes:
            if self.stage.cluster.processes[self.stage.slot(node)].node is None:
                self.stage.start(node)
                if self._runs_into(is_lost, chance.choice([0, 0, 3_000, 20_000])):
                    return True
        if question.action is Action.SCALE_IN:
            leader = self.stage.cluster.ready_leader()
            if leader is not None:
                ask_removal(self.stage, leader, question.node_id)
        for _ in range(STEPS):
            if self._runs_into(is_lost, chance.choice([500, 4_000, 15_000])):
                return True
            drawn = chance.random()
            if drawn < 0.2:
                self.stage.isolate(chance.choice(self.ids))
            elif drawn < 0.35:
                self.stage.heal()
            elif drawn < 0.45 and not self.is_static:
                change_voters(self.stage, chance, nodes)
            elif nodes:
                node = chance.choice(nodes)
                if self.stage.cluster.processes[self.stage.slot(node)].node is None:
                    self.stage.start(node)
                else:
                    self.stage.crash(node)
            write(self.stage, chance)
        return False

    def loses_by(self, schedule: Schedule, question: Question, ahead_ms: int) -> bool:
        """Only the voters that the schedule names run, its candidate first; whether a leader lacks the record."""
        # First, and what is under way is lost: what runs while a disk is wiped is not as it was read any more.
        for node in self.ids:
            self.stage.crash(node)
        self.stage.run_ms(1_000)
        self.prepare(question)
        self.stage.start(schedule.candidate)
        self.stage.run_ms(ahead_ms)
        for node in schedule.voters:
            if node != schedule.candidate:
                self.stage.start(node)
        if not self.stage.world.run_until(lambda: bool(self.stage.leaders()), limit_us=120_000 * MS):
            return False
        (leader,) = self.stage.leaders()
        return any(batch.base_offset <= schedule.offset < batch.end_offset for batch in self.lacks(leader))

    def _runs_into(self, condition: Callable[[], bool], milliseconds: int) -> bool:
        return self.stage.world.run_until(condition, limit_us=milliseconds * MS)


def write(stage: Stage, chance: random.Random) -> None:
    """A record, where there is a controller to write it."""
    controller = stage.machine.active_controller()
    if controller is not None:
        broker_config(controller, "", "log.cleaner.threads", str(chance.randint(1, 9)))


def change_voters(stage: Stage, chance: random.Random, ids: list[int]) -> None:
    """Asks for a voter to be added or removed, and waits for nothing."""
    leader = stage.cluster.ready_leader()
    if leader is None or leader.voters is None:
        return
    node = chance.choice(ids)
    if any(key[0] == node for key in leader.voters.keys):
        ask_removal(stage, leader, node)
    else:
        process = stage.cluster.processes[stage.slot(node)]
        request = AddRaftVoterRequest(stage.settings.cluster_id, stage.cluster.voter_of(process))
        stage.cluster.ask(leader.slot, request)


def ask_removal(stage: Stage, leader: RaftNode, node: int) -> None:
    keys = leader.voters.keys if leader.voters is not None else ()
    directory = next((key[1] for key in keys if key[0] == node), None)
    if directory is not None:
        stage.cluster.ask(leader.slot, RemoveRaftVoterRequest(stage.settings.cluster_id, (node, directory)))
