"""Records a random run of a quorum as a trace, event by event, from outside: the run does not notice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kraft_engine.consensus.messages import AddRaftVoterRequest, FetchRequest, RemoveRaftVoterRequest
from kraft_engine.consensus.raft import FOLLOWER, LEADER, RESIGNED, RaftNode
from kraft_engine.runs.schedule import RandomRun
from kraft_engine.traces.trace import TraceEvent
from kraft_engine.world.world import MS


class TraceRecorder:
    """Runs a random run and notes what happened. `events` is complete also where an invariant ended the run."""

    def __init__(self, run: RandomRun) -> None:
        self.run = run
        self.cluster = run.cluster
        self.world = run.world
        self.events: list[TraceEvent] = []
        self._depth = 0
        self._asked_slots: list[tuple[int, int]] = []
        # Every envelope that arrived, so that no id is used twice.
        self._arrived: dict[int, Any] = {}
        for kind, method in (("crash", "crash"), ("stop", "stop"), ("start", "restart"),
                             ("replace-disk", "replace_disk")):  # fmt: skip
            self._watch(kind, method)
        # It was given the method before it was watched.
        run.faults._restart_slot = self.cluster.restart
        self._watch_requests()
        self._watch_deaths()
        self._watch_resume()
        self._watch_sends()

    def run_events(self, count: int) -> None:
        """As `run.run(count)`. Raises what it raises."""
        last = self.world.event_count + count
        while self.world.event_count < last and self._step():
            pass

    def _step(self) -> bool:
        queue = self.world._queue
        if not queue:
            return False
        _, _, action, first, second = queue[0]
        owner, name = getattr(action, "__self__", None), getattr(action, "__name__", "")
        self._asked_slots.clear()
        if owner is self.cluster and name == "_deliver":
            self._delivery(first, second)
        elif isinstance(owner, RaftNode) and name == "_wake":
            self._wake(owner, first)
        else:
            self._from_outside()
        return True

    def _note(self, kind: str, slot: int, **fields: Any) -> None:
        node_id = self.cluster.processes[slot].id
        self.events.append(TraceEvent(kind, node_id, time_ms=self.world.now_us // MS, **fields))

    def _id(self, slot: int) -> int:
        return self.cluster.processes[slot].id if slot >= 0 else -1

    # Messages

    def _delivery(self, slot: int, envelope: tuple[int, int, Any]) -> None:
        process = self.cluster.processes[slot]
        node, time_us = process.node, self.world._queue[0][0]
        if node is None or process.paused or time_us < node.busy_until_us:
            self._inside()
            return
        place = len(self.events)
        self._arrival(slot, envelope)
        waiting = self._waited(node, time_us)
        try:
            self._inside()
        finally:
            self._add(place, slot, *waiting)

    def _arrival(self, slot: int, envelope: tuple[int, int, Any]) -> None:
        """A duplicate is the same envelope once more: all are held, so that none is mistaken for another."""
        again = id(envelope) in self._arrived
        self._arrived[id(envelope)] = envelope
        source, correlation, body = envelope
        self._note("deliver", slot, source=self._id(source), message=type(body).__name__, correlation=correlation,
                   again=again)  # fmt: skip

    def _inside(self) -> None:
        """An event of the nodes' own: what they do to the cluster meanwhile is its effect."""
        self._depth += 1
        try:
            self.world.step()
        finally:
            self._depth -= 1

    def _waited(self, node: RaftNode, time_us: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The nodes whose answers, and whose parked fetches, this node has waited for long enough at this time."""
        resends = [self._id(slot) for slot, flight in node.in_flight.items() if flight[1] <= time_us]
        leader = node.leader
        if leader is None:
            return tuple(resends), ()
        for key, state in leader.replicas.items():
            quiet_until_us = max(state.next_begin_us, state.last_fetch_us + node.settings.begin_epoch_us)
            if state.next_begin_us and quiet_until_us <= time_us and not leader.is_own(key) and key[0] not in resends:
                resends.append(key[0])
        answers = {self._id(entry[0]) for entry in leader.parked if entry[3] <= time_us}
        return tuple(resends), tuple(sorted(answers))

    def _add(self, place: int, slot: int, resends: tuple[int, ...], answers: tuple[int, ...]) -> None:
        """What the node had waited for, and which node it asked where it knew no leader: that was a draw."""
        asked = [destination for source, destination in self._asked_slots if source == slot]
        asks = self._id(asked[-1]) if asked else -1
        self.events[place] = replace(self.events[place], asks=asks, resends=resends, answers=answers)

    def _watch_sends(self) -> None:
        send = self.cluster.network.send

        def noted(source: int, destination: int, correlation: int, body: Any) -> None:
            node = self.cluster.processes[source].node
            if isinstance(body, FetchRequest) and node is not None and node.role != FOLLOWER:
                self._asked_slots.append((source, destination))
            self._sent += 1
            send(source, destination, correlation, body)

        self._sent = 0
        network = self.cluster.network
        network.__class__ = _watched(type(network), noted)

    # Timers

    def _wake(self, node: RaftNode, wake_at_us: int) -> None:
        is_due = node.wake_at_us == wake_at_us and node.running and not self.cluster.processes[node.slot].paused
        before = (node.role, node.epoch)
        had_pending = node.leader is not None and node.leader.pending is not None
        sent, time_us, place = self._sent, self.world._queue[0][0], len(self.events)
        waiting = self._waited(node, time_us)
        failed = True
        try:
            self._inside()
            failed = False
        finally:
            after = (node.role, node.epoch)
            kind = ""
            if before[0] == LEADER and after[0] == RESIGNED:
                kind = "resign"
            elif after != before or failed:
                kind = "timeout"
            elif had_pending and node.leader is not None and node.leader.pending is None:
                kind = "give-up"
            elif self._sent > sent:
                kind = "retry"
            if is_due and kind:
                self.events.insert(place, TraceEvent(kind, node.id, time_ms=time_us // MS))
                self._add(place, node.slot, *waiting)

    # From outside

    def _watch(self, kind: str, method: str) -> None:
        call = getattr(self.cluster, method)

        def noted(slot: int, **arguments: Any) -> None:
            process = self.cluster.processes[slot]
            is_real = (process.node is None) == (kind == "start") or kind == "replace-disk"
            place = len(self.events)
            if self._depth == 0 and is_real:
                self._note(kind, slot)
            self._depth += 1
            try:
                call(slot, **arguments)
            finally:
                self._depth -= 1
            if kind == "start" and self._depth == 0 and is_real:
                self._add(place, slot, (), ())
            if kind == "crash" and self._depth == 0 and is_real and arguments.get("power_cut", True):
                event = self.events[place]
                end = process.disk.log.end_offset
                self.events[place] = TraceEvent(kind, event.node, number=end, time_ms=event.time_ms)

        setattr(self.cluster, method, noted)

    def _watch_deaths(self) -> None:
        """A node that dies inside an event: of its next write, as was prepared, or because the disk refuses it."""
        died = self.cluster.died

        def noted(slot: int) -> None:
            process = self.cluster.processes[slot]
            was_prepared = process.disk.dies_before_sync
            died(slot)
            end_offset = process.disk.log.end_offset
            if not was_prepared:
                self._note("crash", slot, number=end_offset)
                return
            for place in range(len(self.events) - 1, -1, -1):
                if (self.events[place].kind, self.events[place].node) == ("die-in-next-write", process.id):
                    self.events[place] = replace(self.events[place], number=end_offset)
                    return

        self.cluster.died = noted  # type: ignore[method-assign]

    def _watch_requests(self) -> None:
        ask = self.cluster.ask

        def noted(slot: int, body: Any) -> int:
            process = self.cluster.processes[slot]
            if self._depth == 0 and process.node is not None and not process.paused:
                self._request(slot, body)
            self._depth += 1
            try:
                return ask(slot, body)
            finally:
                self._depth -= 1

        self.cluster.ask = noted  # type: ignore[method-assign]

    def _request(self, slot: int, body: Any) -> None:
        if isinstance(body, (AddRaftVoterRequest, RemoveRaftVoterRequest)):
            is_add = isinstance(body, AddRaftVoterRequest)
            key = body.voter.key if isinstance(body, AddRaftVoterRequest) else body.voter
            target = self.cluster.slot_of(key[0])
            if target >= 0 and body.cluster_id == self.cluster.settings.cluster_id:
                is_old = key[1] != self.cluster.processes[target].disk.directory
                if not (is_add and is_old):
                    kind = "add-voter" if is_add else "remove-voter"
                    self._note(kind, slot, number=key[0], old_directory=is_old)
                    return
        self._note("ask", slot, body=body)

    def _watch_resume(self) -> None:
        """A process that goes on receives at once what came meanwhile."""
        resume = self.cluster.resume

        def noted(slot: int) -> None:
            process = self.cluster.processes[slot]
            if process.node is not None and process.paused:
                for envelope in process.backlog:
                    self._arrival(slot, envelope)
            self._depth += 1
            try:
                resume(slot)
            finally:
                self._depth -= 1

        self.cluster.resume = noted  # type: ignore[method-assign]

    def _from_outside(self) -> None:
        """A driver of the run: its calls are noted as they come, its appends and snapshots by what they leave."""
        before = [self._seen(slot) for slot in range(len(self.cluster.processes))]
        flags = [process.disk.dies_before_sync for process in self.cluster.processes]
        count = len(self.events)
        try:
            self.world.step()
        finally:
            for slot, process in enumerate(self.cluster.processes):
                if process.disk.dies_before_sync and not flags[slot]:
                    self._note("die-in-next-write", slot)
            if len(self.events) == count:
                for slot, seen in enumerate(before):
                    self._compare(slot, seen)

    def _seen(self, slot: int) -> tuple[RaftNode | None, int, int, int, int, int]:
        process = self.cluster.processes[slot]
        node, log = process.node, process.disk.log
        role, epoch = (node.role, node.epoch) if node is not None else (-1, -1)
        return node, role, epoch, log.end_offset, len(log.snapshots), log.start_offset

    def _compare(self, slot: int, before: tuple[RaftNode | None, int, int, int, int, int]) -> None:
        node, role, epoch, end_offset, snapshots, start_offset = before
        log = self.cluster.processes[slot].disk.log
        now = self._seen(slot)
        if node is not None and node.leader is not None and log.end_offset > end_offset and log.last_batch is not None:
            is_upgrade = log.last_batch.is_control
            count = log.last_batch.end_offset - log.last_batch.base_offset
            self._note("upgrade" if is_upgrade else "append", slot, number=-1 if is_upgrade else count)
        elif len(log.snapshots) > snapshots:
            self._note("snapshot", slot)
        elif log.start_offset > start_offset:
            self._note("clean", slot)
        elif now[0] is node and node is not None and (now[1], now[2]) != (role, epoch):
            self._note("timeout", slot)


def _watched(network: type, send: Callable[[int, int, int, Any], None]) -> type:
    """The network's class with `send` replaced: the class has slots, so its objects take no method of their own."""
    return type("WatchedNetwork", (network,), {"__slots__": (), "send": lambda self, *message: send(*message)})
