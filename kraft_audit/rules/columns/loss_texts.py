"""What people read of a loss: one sentence, and what became of each replica that held the records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kraft_audit.rules.columns.loss_holders import Grade, HolderState, Loss, LossHolder
from kraft_audit.rules.columns.witnesses import Label, Reason
from kraft_audit.text.readable import any_of, nouns, plural, when

SAME_RESTART_MS: Final = 60_000
"""Brokers that lead again within this time of each other belong to one restart."""
LABEL_TEXTS: Final[Mapping[Label, str]] = {
    Label.UNCLEAN_ELECTION: "elected uncleanly, from outside ISR and ELR",
    Label.LAST_KNOWN_LEADER: "elected as the last known leader, with ISR and ELR empty",
    Label.CAME_BACK_ALONE: "led again after a crash, as the last member of the ISR",
    Label.STALE_ELIGIBLE: "elected from the ELR, which it should have left",
    Label.EMPTIED_REPLICA: "leads from another log dir, because its own was replaced",
    Label.OUTSIDE_ELIGIBLE: "elected from outside ISR and ELR",
    Label.BEFORE_THE_LOG: "elected uncleanly before the log begins",
}
"""How the leader came to lead."""
REASON_TEXTS: Final[Mapping[Reason, str]] = {
    Reason.LEFT: "fell out of sync",
    Reason.CRASHED: "came back from a crash",
    Reason.REMOVED: "was no replica any more",
    Reason.EMPTIED: "lost its log dir",
    Reason.PASSED: "was passed over by an earlier election",
}
"""Why a replica does not surely hold everything any more."""
_HOLDER_TEXTS: Final[Mapping[HolderState, str]] = {
    HolderState.STOPPED: "stopped in order, so its disk has them",
    HolderState.DOWN: "down, so its disk has what it had flushed",
    HolderState.GONE: "came back and truncated its log",
    HolderState.DELETED: "is no replica any more",
    HolderState.WIPED: "its log dir was replaced",
    HolderState.BACK: "was elected later and brought its records back",
}


def holder_text(holder: LossHolder) -> str:
    """What became of a replica that held the records."""
    return _HOLDER_TEXTS[holder.now]


def loss_text(loss: Loss) -> str:
    """What may be lost, since when, and who still has it."""
    if loss.grade is Grade.PROVEN:
        return f"readable records are lost, offsets {_offsets_text(loss)}: {loss_cause(loss)}"
    return f"acknowledged or readable records may be lost: {loss_cause(loss)}"


def proof_text(loss: Loss) -> str | None:
    """What brokers' disks say of a loss; None where none was captured."""
    proof = loss.proof
    parts = []
    if proof.ranges:
        shared = ", by this election or another one" if proof.is_shared else ""
        parts.append(
            f"disks held offsets {_offsets_text(loss)} below their high watermark, and the leader lacks them{shared}"
        )
    if proof.from_offset is not None:
        parts.append(f"nothing below offset {proof.from_offset} is lost")
    if proof.to_offset is not None:
        parts.append(f"nothing from offset {proof.to_offset} on was there")
    if proof.vanished_epochs:
        parts.append(f"the leader's log has nothing of {nouns('leader epoch', proof.vanished_epochs)}")
    return "; ".join(parts) or None


def _offsets_text(loss: Loss) -> str:
    return ", ".join(
        f"{each.from_offset}–{each.to_offset - 1} of leader epoch {each.leader_epoch}" for each in loss.proof.ranges
    )


def loss_cause(loss: Loss) -> str:
    """Who leads without the records since when, and who still has them."""
    event = loss.event
    leader, since = f"broker {event.leader_id}", when(event.timestamp_ms)
    if event.label is Label.EMPTIED_REPLICA:
        return f"{leader} leads with an empty log since {since}, because its log dir was replaced{_held_text(loss)}"
    if event.is_own_crash:
        what = "without what it had not flushed when it crashed"
    elif event.own is not None:
        epochs = f"leader epoch {event.own.leader_epoch}"
        what = f"and may lack what was written since {when(event.own.timestamp_ms, event.timestamp_ms)} ({epochs} on)"
    else:
        what = "and never surely held everything"
    return f"{leader} leads since {since}, {LABEL_TEXTS[event.label]}, {what}{_held_text(loss)}"


def unflushed_text(unflushed: Sequence[Loss]) -> str | None:
    """One line about the newest restart after crashes in which a sole sure copy may lack its unflushed tail."""
    if not unflushed:
        return None
    in_time = sorted(unflushed, key=lambda loss: loss.event.timestamp_ms)
    restarts = [[in_time[0]]]
    for loss in in_time[1:]:
        if loss.event.timestamp_ms - restarts[-1][-1].event.timestamp_ms > SAME_RESTART_MS:
            restarts.append([])
        restarts[-1].append(loss)
    newest = restarts[-1]
    brokers = sorted({loss.event.leader_id for loss in newest})
    partitions = len({(loss.event.topic_id, loss.event.partition) for loss in newest})
    had = "partition had" if partitions == 1 else "partitions had"
    more = f" So did {plural(len(restarts) - 1, 'earlier restart')}." if len(restarts) > 1 else ""
    return (
        f"{nouns('Broker', brokers)} came back without a clean stop at {when(newest[-1].event.timestamp_ms)}; "
        f"{partitions} {had} no other sure copy. Nothing shows a loss; a power cut would have cost what was not "
        f"flushed.{more}"
    )


def _held_text(loss: Loss) -> str:
    if loss.intact:
        parts = [f"broker {holder.broker_id} ({holder_text(holder).partition(',')[0]})" for holder in loss.intact]
        return f"; {' and '.join(parts)} may still hold them"
    if loss.saved_until is not None:
        last = [holder.broker_id for holder in loss.holders if holder.until_offset == loss.saved_until]
        return f"; broker {any_of(last)} held them until offset {loss.saved_until}"
    return ""
