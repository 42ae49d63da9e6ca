"""A trace played back frame by frame: after each event every node's state, and the messages that wait."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kraft_engine.consensus.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    Response,
    VoteRequest,
    VoteResponse,
)
from kraft_engine.consensus.raft import ROLE_NAMES
from kraft_engine.runs.chronicle import InvariantViolationError
from kraft_engine.traces.shrinking import quorum_of
from kraft_engine.traces.trace import Trace, TraceEvent
from kraft_engine.traces.untimed import UntimedQuorum


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node as its operator sees it; `role` is "down" where it does not run. -1 is none."""

    id: int
    role: str
    epoch: int
    leader: int
    voted_for: int
    end_offset: int
    high_watermark: int
    voters: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WaitingMessage:
    """A message that was sent and has not arrived; `frame` is the event that sent it."""

    source: int
    destination: int
    name: str
    text: str
    frame: int


@dataclass(frozen=True, slots=True)
class Frame:
    """What one event did. `number` counts from 1; frame 0 is the beginning, without an event."""

    number: int
    event: TraceEvent | None
    nodes: tuple[NodeView, ...]
    waiting: tuple[WaitingMessage, ...]
    delivered: WaitingMessage | None
    notes: tuple[str, ...]
    violation: str


class Playback:
    """Plays a trace one event at a time and describes what it sees."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.quorum: UntimedQuorum = quorum_of(trace)
        self.number = 0
        self._sent_in: dict[int, int] = {}
        self._messages: list[Any] = []
        self.violation = ""

    def beginning(self) -> Frame:
        return Frame(0, None, self._nodes(), (), None, (), "")

    def play(self, event: TraceEvent) -> Frame:
        """The next event; after a violation nothing happens any more."""
        self.number += 1
        network = self.quorum.network
        place = self.quorum.find(event) if event.kind == "deliver" else -1
        source = network.delivered if event.again else network.waiting
        delivered = self._waiting(source[place]) if place >= 0 else None
        before, noted = self._nodes(), len(self.quorum.invariants.timeline)
        if not self.violation:
            try:
                self.quorum.play(event)
            except InvariantViolationError as error:
                self.violation = f"{error.name}: {error.detail}"
        for message in network.waiting:
            if id(message) not in self._sent_in:
                self._sent_in[id(message)] = self.number
                self._messages.append(message)
        nodes = self._nodes()
        notes = [*_changes(before, nodes), *self._cuts(noted)]
        waiting = tuple(self._waiting(message) for message in network.waiting)
        return Frame(self.number, event, nodes, waiting, delivered, tuple(notes), self.violation)

    def frames(self) -> Iterator[Frame]:
        yield self.beginning()
        for event in self.trace.events:
            yield self.play(event)

    def _cuts(self, noted: int) -> list[str]:
        lines = self.quorum.invariants.timeline[noted:]
        return [line.split("] ", 1)[1] for line in lines if "cuts its log" in line or "installs a snapshot" in line]

    def _waiting(self, message: tuple[int, int, int, Any]) -> WaitingMessage:
        processes = self.quorum.cluster.processes
        source, destination, _, body = message
        frame = self._sent_in.get(id(message), self.number)
        return WaitingMessage(
            processes[source].id, processes[destination].id, type(body).__name__, describe_message(body), frame
        )

    def _nodes(self) -> tuple[NodeView, ...]:
        views = []
        for process in self.quorum.cluster.processes:
            node, log = process.node, process.disk.log
            if node is None:
                state = process.disk.visible_state
                epoch, voted = (state.epoch, state.voted) if state is not None else (0, None)
                views.append(NodeView(process.id, "down", epoch, -1, voted[0] if voted else -1, log.end_offset, -1, ()))
            else:
                voters = node.voters.ids if node.voters is not None else ()
                voted_for = node.voted[0] if node.voted is not None else -1
                mark = node.leader.high_watermark if node.leader is not None else node.high_watermark
                views.append(NodeView(process.id, ROLE_NAMES[node.role].lower(), node.epoch, node.leader_id, voted_for,
                                      log.end_offset, mark, voters))  # fmt: skip
        return tuple(views)


def _changes(before: tuple[NodeView, ...], after: tuple[NodeView, ...]) -> list[str]:
    """What changed at the nodes, in words."""
    notes = []
    for old, new in zip(before, after, strict=True):
        name = f"node {new.id}"
        if new.role == "down":
            continue
        if new.role == "leader" and old.role != "leader":
            notes.append(f"{name} leads epoch {new.epoch}")
        elif new.role == "candidate" and (old.role, old.epoch) != (new.role, new.epoch):
            notes.append(f"{name} stands for epoch {new.epoch}")
        elif new.role == "resigned" and old.role == "leader":
            notes.append(f"{name} resigns")
        elif new.role == "prospective" and old.role != "prospective":
            notes.append(f"{name} asks for pre-votes")
        elif new.voted_for >= 0 and (new.voted_for, new.epoch) != (old.voted_for, old.epoch):
            notes.append(f"{name} votes for {new.voted_for} in epoch {new.epoch}")
        elif new.epoch > old.epoch and old.role != "down":
            notes.append(f"{name} moves to epoch {new.epoch}")
        if new.voters and old.voters and new.voters != old.voters:
            notes.append(f"{name} has voters {list(new.voters)}")
        if new.end_offset > old.end_offset and new.role == "follower":
            notes.append(f"{name} holds the log up to {new.end_offset}")
        if new.role == "leader" and new.high_watermark > max(old.high_watermark, -1):
            notes.append(f"committed up to {new.high_watermark}")
    return notes


def describe_message(body: Any) -> str:
    """A message in a few words."""
    if isinstance(body, VoteRequest):
        return f"{'pre-vote' if body.pre_vote else 'vote'} for {body.replica[0]} in epoch {body.replica_epoch}?"
    if isinstance(body, VoteResponse):
        what = "pre-vote" if body.pre_vote else "vote"
        return body.error or f"{what} {'granted' if body.granted else 'refused'}"
    if isinstance(body, BeginQuorumEpochRequest):
        return f"{body.leader_id} leads epoch {body.leader_epoch}"
    if isinstance(body, EndQuorumEpochRequest):
        return f"{body.leader_id} ends epoch {body.leader_epoch}"
    if isinstance(body, FetchRequest):
        return f"fetch from {body.fetch_offset}"
    if isinstance(body, FetchResponse) and not body.error:
        if body.diverging is not None:
            return f"diverging: epoch {body.diverging[0]} ends at {body.diverging[1]}"
        if body.snapshot_id is not None:
            return f"take the snapshot at {body.snapshot_id[0]}"
        if body.batches:
            return f"records {body.batches[0].base_offset} to {body.batches[-1].end_offset - 1}"
        return f"nothing new, high watermark {body.high_watermark}"
    if isinstance(body, Response) and body.error:
        return str(body.error)
    name = type(body).__name__
    return "ok" if name.endswith("Response") else name.removesuffix("Request")
