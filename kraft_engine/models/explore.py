"""Explores a small quorum completely: every order of deliveries, timers, restarts, lost disks and voter changes.

The nodes run the engine's own code and every invariant is checked in every state. Timers are choices: a timer may end
at any time. A message may wait for ever, which is how it is lost. Symmetry: while nothing distinguishes two voters,
only the lower id takes the next step. What replicas ask that know no leader is lost: they learn of it from the leader.
"""

from __future__ import annotations

import gc
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from kraft_engine.consensus.messages import FetchRequest
from kraft_engine.consensus.raft import FOLLOWER, LEADER
from kraft_engine.models.small_quorum import freeze, is_awaited, key_of, small_quorum, thaw
from kraft_engine.runs.chronicle import InvariantViolationError
from kraft_engine.traces.trace import Trace, TraceEvent
from kraft_engine.traces.untimed import Message, UntimedQuorum

FIRST_EPOCH = 1
HEALING_ROUNDS = 12


@dataclass(frozen=True, slots=True)
class Bounds:
    """How small the quorum is: what may happen how often.

    `elections` counts the timers that may end, `epochs` the epochs above the first, `disks` lost ones.
    """

    voters: int = 3
    spares: int = 0
    static: bool = False
    pre_vote: bool = False
    dialect: str = "kip853"
    elections: int = 2
    epochs: int = 1
    records: int = 1
    restarts: int = 0
    disks: int = 0
    changes: int = 0

    def quorum(self) -> tuple[tuple[str, Any], ...]:
        names = ("voters", "spares", "static", "pre_vote", "dialect")
        return tuple((name, value) for name, value in asdict(self).items() if name in names)

    def text(self) -> str:
        kind = "static" if self.static else "dynamic"
        counts = [f"{self.voters} voters", f"{self.spares} spares", f"{self.elections} elections"]
        counts += [f"{self.epochs} epochs above the first"]
        counts += [f"{self.records} records", f"{self.restarts} restarts", f"{self.disks} lost disks"]
        counts += [f"{self.changes} voter changes"]
        votes = ", pre-vote" if self.pre_vote else ""
        return f"{self.dialect} {kind}{votes}: {', '.join(count for count in counts if not count.startswith('0 '))}"


@dataclass(frozen=True, slots=True)
class Explored:
    """What was visited. `complete`: the frontier was empty. `ends` are states in which nothing more may happen."""

    bounds: Bounds
    states: int
    transitions: int
    ends: int
    depth: int
    seconds: float
    complete: bool
    violation: str = ""
    trace: Trace | None = None

    def text(self) -> str:
        rate = int(self.states / self.seconds) if self.seconds else 0
        end = f"BROKEN {self.violation}" if self.violation else "complete" if self.complete else "NOT complete"
        size = f"{self.states} states, {self.transitions} transitions, depth {self.depth}, {self.ends} ends"
        return f"{self.bounds.text()}: {end}: {size}, {self.seconds:.0f} s, {rate} states/s"


@dataclass(frozen=True, slots=True)
class _Spent:
    """What of the bounds is used up on the way to a state, and the voters that nothing has distinguished yet."""

    elections: int = 0
    records: int = 0
    restarts: int = 0
    disks: int = 0
    changes: int = 0
    touched: int = 0


Choice = tuple[tuple[TraceEvent, ...], _Spent]
"""Events that happen together, and what is used up after them."""


class Explorer:
    """A search through all states. Breadth first finds shortest counterexamples, depth first needs little memory."""

    def __init__(
        self, bounds: Bounds, without: tuple[str, ...] = (), *, breadth_first: bool = False, check_ends: bool = True
    ) -> None:
        self.bounds = bounds
        self.without = without
        self.breadth_first = breadth_first
        # Where lost disks may leave no majority, no healing can help.
        self.check_ends = check_ends and 2 * (bounds.voters - bounds.disks) > bounds.voters
        self.visited: set[int] = set()
        # By state: the state before it and the event between them.
        self.steps: list[tuple[int, tuple[TraceEvent, ...], int]] = []
        self.transitions = self.ends = self.depth = 0

    def run(
        self, *, seconds: float = 3_600, state_limit: int = 1 << 60, say: Callable[[str], None] = lambda text: None
    ) -> Explored:
        """Until nothing is left, or the time or the number of states is used up."""
        gc.set_threshold(200_000)  # states are many small cycles: looked for less often
        began = time.monotonic()
        frontier: deque[tuple[bytes, _Spent, int]] = deque()
        quorum = small_quorum(dict(self.bounds.quorum()), self.without)
        starts = tuple(TraceEvent("start", process.id) for process in quorum.cluster.processes)
        for event in starts:
            self._play(quorum, event)
        self._add(quorum, _Spent(), -1, starts, frontier)
        said = began
        while frontier and time.monotonic() - began < seconds and len(self.steps) < state_limit:
            frozen, spent, state = frontier.popleft() if self.breadth_first else frontier.pop()
            try:
                self._expand(frozen, spent, state, frontier)
            except _BrokenError as broken:
                return self._result(began, complete=False, violation=broken.violation, trace=broken.trace)
            if time.monotonic() - said > 10:
                said = time.monotonic()
                say(self._result(began, complete=False).text())
        return self._result(began, complete=not frontier)

    def _result(self, began: float, *, complete: bool, violation: str = "", trace: Trace | None = None) -> Explored:
        seconds = time.monotonic() - began
        return Explored(self.bounds, len(self.steps), self.transitions, self.ends, self.depth, seconds, complete,
                        violation, trace)  # fmt: skip

    # States

    def _play(self, quorum: UntimedQuorum, event: TraceEvent) -> None:
        quorum.play(event)
        quorum.network.waiting[:] = [message for message in quorum.network.waiting if self._matters(quorum, message)]

    def _matters(self, quorum: UntimedQuorum, message: Message) -> bool:
        """Nothing comes of an answer that is not awaited, nor of a request of an old epoch whose answer is not.

        With a rule off an old request may do what it must not. What replicas ask that know no leader is always lost.
        """
        body, process = message[3], quorum.cluster.processes[message[1]]
        sender = quorum.cluster.processes[message[0]].node
        if isinstance(body, FetchRequest) and (sender is None or sender.role != FOLLOWER):
            return False
        if is_awaited(quorum, message):
            return True
        if message[2] < 0 or self.without:
            return message[2] > 0
        epoch = next((getattr(body, name) for name in EPOCHS if hasattr(body, name)), None)
        state = process.disk.visible_state
        known = process.node.epoch if process.node is not None else state.epoch if state is not None else 0
        return epoch is None or epoch >= known

    def _add(
        self,
        quorum: UntimedQuorum,
        spent: _Spent,
        before: int,
        events: tuple[TraceEvent, ...],
        frontier: deque[tuple[bytes, _Spent, int]],
    ) -> None:
        """Puts a state that was not seen yet on the frontier."""
        key = hash((key_of(quorum), spent))
        if key in self.visited:
            return
        self.visited.add(key)
        depth = self.steps[before][2] + len(events) if before >= 0 else len(events)
        self.depth = max(self.depth, depth)
        self.steps.append((before, events, depth))
        frontier.append((freeze(quorum), spent, len(self.steps) - 1))

    def _expand(self, frozen: bytes, spent: _Spent, state: int, frontier: deque[tuple[bytes, _Spent, int]]) -> None:
        quorum = thaw(frozen)
        choices = self._choices(quorum, spent)
        for number, (events, after) in enumerate(choices):
            if number:
                quorum = thaw(frozen)
            self.transitions += 1
            try:
                for event in events:
                    self._play(quorum, event)
            except InvariantViolationError as violation:
                raise self._broken(violation.name, violation.detail, state, events) from violation
            self._add(quorum, after, state, events, frontier)
        if not choices:
            self.ends += 1
            self._check_end(quorum, state)

    def _check_end(self, quorum: UntimedQuorum, state: int) -> None:
        """Liveness: from every end, healing elects a leader that all follow; and no invariant breaks meanwhile."""
        if not self.check_ends:
            return
        try:
            healed = heal(quorum)
        except InvariantViolationError as violation:
            raise self._broken(violation.name, f"{violation.detail}, while healing", state, ()) from violation
        if healed:
            raise self._broken("EventuallyLeaderElected", healed, state, ())

    def _broken(self, name: str, detail: str, state: int, events: tuple[TraceEvent, ...]) -> _BrokenError:
        path = [events]
        while state >= 0:
            state, step, _ = self.steps[state]
            path.append(step)
        flat = tuple(event for step in reversed(path) for event in step)
        trace = Trace("model", 0, self.without, flat, name, detail, self.bounds.quorum())
        return _BrokenError(f"{name}: {detail}", trace)

    # What may happen

    def _choices(self, quorum: UntimedQuorum, spent: _Spent) -> list[Choice]:
        choices = [*self._deliveries(quorum, spent), *self._timeouts(quorum, spent)]
        choices += self._restarts(quorum, spent)
        choices += self._requests(quorum, spent)
        return choices

    def _touch(self, spent: _Spent, node_id: int, **used: int) -> _Spent | None:
        """None where a lower id could take this step as well: the voters from `touched` on are still alike."""
        touched = spent.touched
        if node_id <= self.bounds.voters:
            if node_id > touched + 1:
                return None
            touched = max(touched, node_id)
        counts = {name: getattr(spent, name) + used.get(name, 0) for name in USED}
        return _Spent(**counts, touched=touched)

    def _deliveries(self, quorum: UntimedQuorum, spent: _Spent) -> list[Choice]:
        choices: list[Choice] = []
        seen = set()
        processes = quorum.cluster.processes
        for source, destination, correlation, body in quorum.network.waiting:
            link = (source, destination, correlation, type(body).__name__)
            after = self._touch(spent, processes[destination].id)
            if link in seen or processes[destination].node is None or after is None:
                continue
            seen.add(link)
            name = type(body).__name__
            event = TraceEvent(
                "deliver", processes[destination].id, processes[source].id, name, correlation=correlation
            )
            choices.append(((event,), after))
        return choices

    def _timeouts(self, quorum: UntimedQuorum, spent: _Spent) -> list[Choice]:
        choices: list[Choice] = []
        for node in quorum.cluster.nodes():
            after = self._touch(spent, node.id, elections=1)
            if spent.elections >= self.bounds.elections:
                return []
            grows = node.epoch < FIRST_EPOCH + self.bounds.epochs
            if node.is_voter and node.role != LEADER and grows and after is not None:
                choices.append(((TraceEvent("timeout", node.id),), after))
        return choices

    def _restarts(self, quorum: UntimedQuorum, spent: _Spent) -> list[Choice]:
        choices: list[Choice] = []
        for process in quorum.cluster.processes:
            crash, start = TraceEvent("crash", process.id), TraceEvent("start", process.id)
            after = self._touch(spent, process.id, restarts=1)
            if spent.restarts < self.bounds.restarts and after is not None:
                choices.append(((crash, start), after))
            after = self._touch(spent, process.id, disks=1)
            if spent.disks < self.bounds.disks and after is not None and process.id <= self.bounds.voters:
                choices.append(((TraceEvent("replace-disk", process.id), start), after))
        return choices

    def _requests(self, quorum: UntimedQuorum, spent: _Spent) -> list[Choice]:
        """Appends of the leaders' state machines, and voter changes that administrators ask them for."""
        choices: list[Choice] = []
        for node in quorum.cluster.nodes():
            leader = node.leader
            if leader is None:
                continue
            after = self._touch(spent, node.id, records=1)
            if spent.records < self.bounds.records and leader.writable and after is not None:
                choices.append(((TraceEvent("append", node.id, number=1),), after))
            after = self._touch(spent, node.id, changes=1)
            if spent.changes >= self.bounds.changes or after is None:
                continue
            for process in quorum.cluster.processes:
                is_voter = leader.voters.contains((process.id, process.disk.directory))
                kind = "remove-voter" if is_voter else "add-voter"
                choices.append(((TraceEvent(kind, node.id, number=process.id),), after))
        return choices


EPOCHS = ("replica_epoch", "leader_epoch", "current_leader_epoch")
USED = ("elections", "records", "restarts", "disks", "changes")


class _BrokenError(Exception):
    def __init__(self, violation: str, trace: Trace) -> None:
        super().__init__(violation)
        self.violation = violation
        self.trace = trace


def heal(quorum: UntimedQuorum) -> str:
    """Faults end: what is wrong where no leader is elected and no replica catches up; "" where all is well.

    Each round ends one voter's timer, delivers every message, and lets every node ask again.
    """
    nodes = quorum.cluster.nodes()
    for number in range(HEALING_ROUNDS):
        _settle(quorum)
        leader = quorum.cluster.ready_leader()
        if leader is not None:
            end = leader.log.end_offset
            voters = [node for node in nodes if leader.voters is not None and leader.voters.contains(node.key)]
            if all(node.log.end_offset == end for node in voters):
                return ""
        waiting = [node for node in nodes if node.is_voter and node.role != LEADER]
        if leader is not None:
            # A voter that stands beside a leader goes back to following it when its timer ends.
            waiting = [node for node in waiting if node.role != FOLLOWER]
        if waiting:
            quorum.play(TraceEvent("timeout", waiting[number % len(waiting)].id))
        ids = tuple(node.id for node in nodes)
        for node in nodes:
            quorum.play(TraceEvent("retry", node.id, resends=ids))
    return "no leader, or a replica that stays away from its log's end, after every fault has ended"


def _settle(quorum: UntimedQuorum) -> None:
    """Delivers everything, oldest first, until nothing waits or only parked fetches go round."""
    for _ in range(400):
        if not quorum.network.waiting:
            return
        quorum.deliver(0)
        quorum.network.waiting[:] = [
            message for message in quorum.network.waiting if message[2] > 0 or is_awaited(quorum, message)
        ]
