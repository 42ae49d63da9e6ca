"""A quorum without clocks: messages wait until they are delivered, timers until they are ended.

The nodes run the engine's own code; only the world around them waits for somebody to choose what happens next. Traces
are played in it, and the small models choose everything in it.
"""

from __future__ import annotations

from typing import Any

from kraft_engine.consensus.leader import append
from kraft_engine.consensus.membership import Kip853
from kraft_engine.consensus.messages import AddRaftVoterRequest, RemoveRaftVoterRequest
from kraft_engine.consensus.raft import CANDIDATE, LEADER, RaftNode
from kraft_engine.invariants.run_invariants import RaftInvariants
from kraft_engine.runs.schedule import clean, make_snapshot
from kraft_engine.traces.trace import TraceEvent
from kraft_engine.world.network import Network
from kraft_engine.world.processes import Cluster
from kraft_engine.world.world import Chance, World

Message = tuple[int, int, int, Any]
"""Source slot, destination slot, correlation, body."""


class WaitingNetwork(Network):
    """Keeps every message until it is delivered, oldest first."""

    __slots__ = ("delivered", "waiting")

    def __init__(self, world: World) -> None:
        super().__init__(world, _nowhere)
        self.waiting: list[Message] = []
        self.delivered: list[Message] = []

    def send(self, source: int, destination: int, correlation: int, body: Any) -> None:
        self.waiting.append((source, destination, correlation, body))


def _nowhere(slot: int, envelope: tuple[int, int, Any]) -> None:
    """Messages are handed over one by one, never by the clock."""


class EventChance(Chance):
    """Draws that depend on the event alone, so that leaving another event out does not change them.

    `asks` is the slot that is chosen wherever it can be; `lost_tail` the number of batches that outlive a crash.
    """

    __slots__ = ("asks", "lost_tail")

    def __init__(self, seed: int, asks: int = -1, lost_tail: int = -1) -> None:
        super().__init__(seed)
        self.asks = asks
        self.lost_tail = lost_tail

    def below(self, limit: int) -> int:
        if self.lost_tail >= 0:
            number, self.lost_tail = min(self.lost_tail, limit - 1), 0
            return number
        return super().below(limit)

    def choose(self, items: Any) -> Any:
        return self.asks if self.asks in items else super().choose(items)


class FirstChance(EventChance):
    """No draws at all, for models: the first of what could be chosen, the one new directory id.

    A candidate backs off for as long as it may: it stands again when its timer is ended, never by itself.
    """

    __slots__ = ()

    def __init__(self, seed: int, asks: int = -1, lost_tail: int = -1) -> None:
        self.asks = asks
        self.lost_tail = lost_tail
        self.random = _zero

    def below(self, limit: int) -> int:
        return super().below(limit) if self.lost_tail >= 0 else limit - 1

    def choose(self, items: Any) -> Any:
        return self.asks if self.asks in items else items[0]

    def uuid(self) -> bytes:
        return b"one-new-disk-id-"


def _zero() -> float:
    return 0.0


class UntimedQuorum:
    """The cluster of a run that has not begun, taken off its clock. Events that cannot happen are passed over."""

    def __init__(
        self, cluster: Cluster, invariants: RaftInvariants, chance_of: type[EventChance] = EventChance
    ) -> None:
        self.cluster = cluster
        self._chance_of = chance_of
        self.world = cluster.world
        self.invariants = invariants
        self.network = WaitingNetwork(self.world)
        cluster.network = self.network
        # By slot: the log end that the death in the next write leaves.
        self._keeps: dict[int, int] = {}
        self._died = cluster.died
        cluster.died = self._dies  # type: ignore[method-assign]
        self.event_count = 0
        self._forget_timers()

    def _forget_timers(self) -> None:
        self.world._queue.clear()

    def node(self, node_id: int) -> RaftNode | None:
        slot = self.cluster.slot_of(node_id)
        return self.cluster.processes[slot].node if slot >= 0 else None

    def play(self, event: TraceEvent) -> bool:
        """Lets the event happen; false where it cannot. Raises InvariantViolationError where an invariant breaks."""
        self.event_count += 1
        self.world.event_count = self.event_count
        # A later event has a later time, and no timer ends by itself.
        self.world.now_us += 1
        asks = self.cluster.slot_of(event.asks) if event.asks >= 0 else -1
        self.world.chance = self._chance_of(self.event_count, asks)
        self._wait(event)
        happened: bool = getattr(self, f"_{event.kind.replace('-', '_')}")(event)
        self._forget_timers()
        return happened

    # Messages

    def find(self, event: TraceEvent) -> int:
        """The place among the waiting (or delivered) messages of the one that the event delivers; -1 for none."""
        link = (self.cluster.slot_of(event.source), self.cluster.slot_of(event.node))
        messages = self.network.delivered if event.again else self.network.waiting
        fitting = [
            place
            for place, (source, destination, _, body) in enumerate(messages)
            if (source, destination) == link and type(body).__name__ == event.message
        ]
        if not fitting:
            return -1
        if event.correlation:
            exact = [place for place in fitting if messages[place][2] == event.correlation]
            return exact[-1] if exact else fitting[-1]
        return fitting[max(len(fitting) - max(event.place, 1), 0)]

    def place_of(self, event: TraceEvent) -> int:
        """How far from the newest such message the one is that the event delivers: what `place` says."""
        place = self.find(event)
        messages = self.network.delivered if event.again else self.network.waiting
        later = [
            message
            for message in messages[place + 1 :]
            if message[:2] == messages[place][:2] and type(message[3]) is type(messages[place][3])
        ]
        return len(later) + 1 if later else -1

    def _deliver(self, event: TraceEvent) -> bool:
        node, place = self.node(event.node), self.find(event)
        if node is None or place < 0:
            return False
        if event.again:
            source, _, correlation, body = self.network.delivered[place]
            node.receive((source, correlation, body))
        else:
            self.deliver(place)
        return True

    def deliver(self, place: int) -> None:
        """Hands the message at this place over; it is gone where the receiver is down."""
        message = self.network.waiting.pop(place)
        self.network.delivered.append(message)
        node = self.cluster.processes[message[1]].node
        if node is not None:
            node.receive((message[0], message[2], message[3]))

    # Timers

    def _timeout(self, event: TraceEvent) -> bool:
        """The election, fetch or resignation timer ends, or a candidate's back-off: it stands again."""
        node = self.node(event.node)
        if node is None or node.role == LEADER:
            return False
        node.deadline_us = self.world.now_us
        if node.role == CANDIDATE:
            node.backing_off_until_us = self.world.now_us
        node.poll()
        return True

    def _retry(self, event: TraceEvent) -> bool:
        """Requests that got no answer are sent again, parked fetches answered: `_wait` has ended the waiting."""
        node = self.node(event.node)
        if node is None:
            return False
        node.poll()
        return True

    def _wait(self, event: TraceEvent) -> None:
        """What the node has waited for long enough before the event."""
        node = self.node(event.node)
        if node is None:
            return
        for node_id in event.resends:
            node.in_flight.pop(self.cluster.slot_of(node_id), None)
        if node.leader is not None:
            for key, state in node.leader.replicas.items():
                if key[0] in event.resends:
                    state.next_begin_us = 0
            slots = [self.cluster.slot_of(node_id) for node_id in event.answers]
            node.leader.parked = [
                (source, correlation, request, 0 if source in slots else deadline_us)
                for source, correlation, request, deadline_us in node.leader.parked
            ]

    def _resign(self, event: TraceEvent) -> bool:
        """A leader has heard from no majority for too long."""
        node = self.node(event.node)
        if node is None or node.role != LEADER:
            return False
        node.resign()
        node.poll()
        return True

    def _give_up(self, event: TraceEvent) -> bool:
        """A leader's voter change has waited too long: REQUEST_TIMED_OUT, its record stays."""
        node = self.node(event.node)
        if node is None or node.leader is None or node.leader.pending is None:
            return False
        node.leader.pending.deadline_us = self.world.now_us
        node.poll()
        return True

    # Processes and disks

    def _start(self, event: TraceEvent) -> bool:
        if self.node(event.node) is not None:
            return False
        self.cluster.restart(self.cluster.slot_of(event.node))
        return True

    def _stop(self, event: TraceEvent) -> bool:
        if self.node(event.node) is None:
            return False
        self.cluster.stop(self.cluster.slot_of(event.node))
        return True

    def _crash(self, event: TraceEvent) -> bool:
        node = self.node(event.node)
        if node is None:
            return False
        if event.number >= 0:
            self._keep_tail(node, event.number)
        self.cluster.crash(node.slot, power_cut=event.number >= 0)
        return True

    def _keep_tail(self, node: RaftNode, end_offset: int) -> None:
        """The next power cut leaves unsynced batches up to this offset."""
        log = node.log
        batches = [batch for batch in log.batches if log.synced_end < batch.end_offset <= end_offset]
        self.world.chance = self._chance_of(self.event_count, lost_tail=len(batches))

    def _dies(self, slot: int) -> None:
        node = self.cluster.processes[slot].node
        if node is not None:
            self._keep_tail(node, self._keeps.pop(slot, 0))
        self._died(slot)

    def _die_in_next_write(self, event: TraceEvent) -> bool:
        node = self.node(event.node)
        if node is None:
            return False
        node.disk.dies_before_sync = True
        self._keeps[node.slot] = event.number
        return True

    def _replace_disk(self, event: TraceEvent) -> bool:
        slot = self.cluster.slot_of(event.node)
        process = self.cluster.processes[slot]
        key, end_offset = (process.id, process.disk.directory), process.disk.log.end_offset
        self.cluster.replace_disk(slot)
        self.invariants.forget(slot, replaced=key, end_offset=end_offset)
        return True

    # The state machine and administrators

    def _append(self, event: TraceEvent) -> bool:
        node = self.node(event.node)
        leader = node.leader if node is not None else None
        if node is None or leader is None or not leader.writable or not node.membership.data_allowed(node, leader):
            return False
        append(node, tuple(("NoOpRecord", 0, {}) for _ in range(event.number)), is_control=False)
        return True

    def _add_voter(self, event: TraceEvent) -> bool:
        process = self.cluster.processes[self.cluster.slot_of(event.number)]
        body = AddRaftVoterRequest(self.cluster.settings.cluster_id, self.cluster.voter_of(process))
        return self._asked(event.node, body)

    def _remove_voter(self, event: TraceEvent) -> bool:
        node = self.node(event.node)
        voters = node.voters if node is not None else None
        process = self.cluster.processes[self.cluster.slot_of(event.number)]
        current = (process.id, process.disk.directory)
        keys = [key for key in voters.keys if key[0] == event.number] if voters is not None else []
        key = next((key for key in keys if (key != current) == event.old_directory), current)
        return self._asked(event.node, RemoveRaftVoterRequest(self.cluster.settings.cluster_id, key))

    def _ask(self, event: TraceEvent) -> bool:
        return event.body is not None and self._asked(event.node, event.body)

    def _asked(self, node_id: int, body: Any) -> bool:
        if self.node(node_id) is None:
            return False
        self.cluster.ask(self.cluster.slot_of(node_id), body)
        return True

    def _upgrade(self, event: TraceEvent) -> bool:
        node = self.node(event.node)
        rules = self.cluster.membership
        if node is None or node.leader is None or not isinstance(rules, Kip853):
            return False
        rules.upgrade_kraft_version(node)
        return True

    def _snapshot(self, event: TraceEvent) -> bool:
        node = self.node(event.node)
        return node is not None and make_snapshot(node) is not None

    def _clean(self, event: TraceEvent) -> bool:
        node = self.node(event.node)
        return node is not None and clean(node)
