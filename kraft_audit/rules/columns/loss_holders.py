"""Who still holds what a loss event passed over, and since when nobody does; how sure the loss is.

A replica that comes back follows the elected leader and truncates its log to that one's before it is in service again
(ReplicaFetcherThread, Kafka 4.3). So a holder is worth something as long as it stays down.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kraft_audit.losses.disk_proofs import PossibleHolder
from kraft_audit.rules.cluster_history import ClusterHistory, once_per_history
from kraft_audit.rules.columns.broker_returns import is_stopped_cleanly
from kraft_audit.rules.columns.log_batches import operation_ends
from kraft_audit.rules.columns.loss_proofs import NO_DISKS, DiskProof, disk_proofs
from kraft_audit.rules.columns.nodes import broker_states, is_active
from kraft_audit.rules.columns.partition_states import partition_states
from kraft_audit.rules.columns.witnesses import Label, LossEvent, Reason, loss_events
from kraft_audit.rules.rule_model import Severity


class HolderState(enum.StrEnum):
    """What became of a replica that holds lost records.

    stopped: in order, so that its disk surely has them; down: it has what it had flushed; gone: it came back and
    truncated; deleted: it is no replica any more; wiped: its directory was replaced; back: a later election of it
    brought its records back.
    """

    STOPPED = "stopped"
    DOWN = "down"
    GONE = "gone"
    DELETED = "deleted"
    WIPED = "wiped"
    BACK = "back"

    @property
    def is_intact(self) -> bool:
        return self in (HolderState.STOPPED, HolderState.DOWN)


class Grade(enum.StrEnum):
    """How sure a loss is: `possible` where another replica held more, `unflushed` where only a power cut can have lost
    something. Brokers' own disks make it `proven`, or `ruled_out`."""

    PROVEN = "proven"
    POSSIBLE = "possible"
    UNFLUSHED = "unflushed"
    RULED_OUT = "ruled_out"

    @property
    def is_reported(self) -> bool:
        """Whether somebody has to acknowledge it."""
        return self in (Grade.PROVEN, Grade.POSSIBLE)


@dataclass(frozen=True, slots=True)
class LossHolder:
    """A replica that held what the elected leader may lack.

    `is_witness`: it was a witness until the event; else it had left after the leader did. `then` is its state at the
    end of the event's operation, `now` at the end of the log, and `until_offset` when it ceased to be intact.
    """

    broker_id: int
    directory_id: str
    is_witness: bool
    then: HolderState
    now: HolderState
    until_offset: int | None


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss event with its grade, its severity as of the event, and who holds what was lost."""

    event: LossEvent
    grade: Grade
    severity: Severity
    holders: tuple[LossHolder, ...]
    proof: DiskProof = NO_DISKS

    @property
    def intact(self) -> tuple[LossHolder, ...]:
        """The holders that are worth something now."""
        return tuple(holder for holder in self.holders if holder.now.is_intact)

    @property
    def saved_until(self) -> int | None:
        """The offset at which the last intact holder ceased to be one; None while one is, or where none ever was."""
        were_intact = [holder for holder in self.holders if holder.then.is_intact]
        offsets = [holder.until_offset for holder in were_intact]
        known = [offset for offset in offsets if offset is not None]
        return max(known) if known and len(known) == len(offsets) else None

    @property
    def severity_now(self) -> Severity:
        """The severity with the holders as they are at the end of the log."""
        return _severity(self.event, self.grade, any(holder.now.is_intact for holder in self.holders))


@once_per_history
def losses(history: ClusterHistory) -> list[Loss]:
    """Every loss event with what became of it, in the order of the log; of grade unflushed and ruled_out, too."""
    return list(_losses(history))


def _losses(history: ClusterHistory) -> Iterator[Loss]:
    events = loss_events(history)
    if not events:
        return
    ends = _operation_ends(history)
    of_events = [tuple(_holders(history, event, end)) for event, end in zip(events, ends, strict=True)]
    proofs = disk_proofs(history, events, [tuple(map(_as_possible, holders)) for holders in of_events])
    for event, end, holders, proof in zip(events, ends, of_events, proofs, strict=True):
        grade = _grade(history, event, end)
        if proof.ranges:
            grade = Grade.PROVEN
        elif proof.is_ruled_out:
            grade = Grade.RULED_OUT
        was_intact = any(holder.then.is_intact for holder in holders)
        yield Loss(event, grade, _severity(event, grade, was_intact), holders if grade.is_reported else (), proof)


def _as_possible(holder: LossHolder) -> PossibleHolder:
    """The holder as disks are asked about it: a witness that ran at the event may have been read before it followed."""
    state = "running" if holder.then is HolderState.GONE else holder.now.value
    return PossibleHolder(holder.broker_id, holder.directory_id or None, state, holder.is_witness)


def _grade(history: ClusterHistory, event: LossEvent, end: int) -> Grade:
    """A crash of the only sure copy is no loss that the log could show, unless others were passed over for it."""
    if not event.is_own_crash or event.label is Label.EMPTIED_REPLICA:
        return Grade.POSSIBLE
    others = event.witnesses - {event.leader_id}
    chosen = (Label.UNCLEAN_ELECTION, Label.LAST_KNOWN_LEADER, Label.STALE_ELIGIBLE)
    if others and event.label in chosen:
        return Grade.POSSIBLE
    if any(is_active(states.at(end - 1)) for b, states in broker_states(history).items() if b in others):
        return Grade.POSSIBLE
    if event.label is Label.LAST_KNOWN_LEADER and len(event.replicas) > 1 and event.min_isr >= 2:
        return Grade.POSSIBLE
    return Grade.UNFLUSHED


def _severity(event: LossEvent, grade: Grade, is_intact: bool) -> Severity:
    if grade is Grade.PROVEN or event.label is Label.EMPTIED_REPLICA:
        return Severity.CRITICAL
    if not event.is_own_crash and is_intact:
        return Severity.CRITICAL
    return Severity.HIGH


def _holders(history: ClusterHistory, event: LossEvent, end: int) -> Iterator[LossHolder]:
    """Witnesses first, then replicas that had left after the leader did: of an own crash any that left."""
    witnesses = sorted(event.witnesses - {event.leader_id})
    own_offset = -1 if event.own is None or event.is_own_crash else event.own.offset
    left = [
        leaving.broker_id
        for leaving in sorted(event.leavings.values(), key=lambda leaving: -leaving.offset)
        if leaving.reason is Reason.LEFT and leaving.offset > own_offset and leaving.broker_id not in witnesses
    ]
    for broker in (*witnesses, *left):
        then = _state_at(history, broker, end - 1)
        now, until = (then, None)
        if then.is_intact and broker in broker_states(history):
            now, until = _state_since(history, event, broker, end, then)
        yield LossHolder(broker, event.directories.get(broker, ""), broker in witnesses, then, now, until)


def _state_at(history: ClusterHistory, broker: int, offset: int) -> HolderState:
    known = broker_states(history).get(broker)
    row = None if known is None else known.at(offset)
    if row is not None and row["exists"] and not row["fenced"]:
        return HolderState.GONE
    return HolderState.STOPPED if row is not None and is_stopped_cleanly(history, row) else HolderState.DOWN


def _state_since(
    history: ClusterHistory, event: LossEvent, broker: int, end: int, then: HolderState
) -> tuple[HolderState, int | None]:
    """What became of an intact holder after the event, and at which offset: it truncates once it runs while another
    replica leads."""
    states = partition_states(history)
    runs = list(_runs_since(history, broker, end))
    for row in range(event.row, states.newest_row(event.row) + 1):
        offset, until = max(int(states.from_offset[row]), end), int(states.next_offset[row])
        if row > event.row and (not states.exists[row] or broker not in states.nodes("replicas", row)):
            return HolderState.DELETED, offset
        if row > event.row and states.leader[row] == broker:
            return HolderState.BACK, offset
        if states.leader[row] == -1:
            continue
        truncated = [max(start, offset) for start, stop in runs if max(start, offset) < min(stop, until)]
        if truncated:
            return HolderState.GONE, truncated[0]
    return then, None


def _runs_since(history: ClusterHistory, broker: int, end: int) -> Iterator[tuple[int, int]]:
    """The offsets between which a broker runs, from `end` on: since it registered anew or was unfenced, until it is
    fenced or unregistered."""
    known = broker_states(history)[broker]
    before, start = known.at(end - 1), None
    for row in known.rows[int(np.searchsorted(known.offsets, end)) :]:
        is_new = before is not None and row["incarnation_id"] != before["incarnation_id"]
        if not row["exists"] or (row["fenced"] and not is_new and before is not None and not before["fenced"]):
            if start is not None:
                yield start, int(row["from_offset"])
            start = None
        elif start is None and (is_new or not row["fenced"]):
            start = int(row["from_offset"])
        before = row
    if start is not None:
        yield start, np.iinfo(np.int64).max


def losses_beside(history: ClusterHistory, broker: int) -> list[Loss]:
    """The losses, of any grade, while whose leaders were elected this replica lay still, if it has not run under
    another leader since: it may have some of what they lack, whoever the sure holders were."""
    known = broker_states(history).get(broker)
    if known is None or (known.newest["exists"] and not known.newest["fenced"]):
        return []
    return history.known(f"losses beside {broker}", lambda: _losses_beside(history, broker))


def _losses_beside(history: ClusterHistory, broker: int) -> list[Loss]:
    found = []
    for loss, end in zip(losses(history), _operation_ends(history), strict=True):
        event = loss.event
        if broker == event.leader_id or broker not in event.replicas:
            continue
        then = _state_at(history, broker, end - 1)
        if then.is_intact and _state_since(history, event, broker, end, then)[0].is_intact:
            found.append(loss)
    return found


def _operation_ends(history: ClusterHistory) -> list[int]:
    """Where the operation of each loss event ends."""
    offsets = np.array([event.offset for event in loss_events(history)], np.int64)
    return list(operation_ends(history, offsets).tolist()) if len(offsets) else []
