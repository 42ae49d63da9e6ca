"""What the captures before the newest one say of its disks: which of them went back, and whether it is the newest.

Earlier captures permit nothing. A disk that was restored from a backup lacks what its earlier copy holds.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kraft_audit.capture.found_log import VoterKey
from kraft_audit.capture.survey import Survey
from kraft_audit.quorum.quorum_evidence import CapturedReplica
from kraft_audit.quorum.rounds import UNKNOWN_NODE, ProvenRound
from kraft_audit.text.readable import natural
from kraft_codec.file_names import FileKind


@dataclass(frozen=True, slots=True)
class RivalCapture:
    """`capture` may be later than `newest`, which all answers are about: it shows an earlier state of a node's disk."""

    capture: str
    newest: str
    node_id: int

    @property
    def reason(self) -> str:
        other, newest = shown_capture(self.capture), shown_capture(self.newest)
        return (
            f"The disk of node {self.node_id} is further in capture {newest} than in {other}: either {other} was "
            "copied first, or the disk was wiped or restored in between."
        )


@dataclass(frozen=True, slots=True)
class DiskWentBack:
    """A disk that holds less in the `newest` capture than in the one named `earlier`.

    `held`: below which offset it held the log, and holds it now. An epoch is None without a quorum-state.
    """

    node_id: int
    earlier: str
    newest: str
    held: tuple[int, int]
    epochs: tuple[int | None, int | None]

    @property
    def fact(self) -> str:
        """One sentence, without its full stop."""
        (held, held_now), (epoch, epoch_now) = self.held, self.epochs
        facts = []
        if held_now < held:
            now = f"it below {held_now}" if held_now else "nothing of it"
            facts.append(f"it held the log below offset {held} and holds {now} now")
        if epoch is not None and epoch_now is None:
            facts.append("its quorum-state is gone")
        elif epoch is not None and epoch_now is not None and epoch_now < epoch:
            facts.append(f"its epoch was {epoch} and is {epoch_now}")
        return (
            f"The disk of node {self.node_id} went back between captures {shown_capture(self.earlier)} and "
            f"{shown_capture(self.newest)}: {', and '.join(facts)}"
        )

    @property
    def text(self) -> str:
        """The fact, and what an answer makes of it."""
        return f"{self.fact}. This answer goes by {shown_capture(self.newest)} alone."


def shown_capture(capture: str) -> str:
    """The name of a capture in a sentence; that of the folder above the others is empty."""
    return capture or "PATH itself"


def disks_gone_back(survey: Survey, earlier: Sequence[ProvenRound], newest: ProvenRound) -> tuple[DiskWentBack, ...]:
    """The disks of the newest capture that lack what they held of its canonical log, or an epoch that they had.

    Without a canonical log they lack what was proven committed, and they held more of it. A log that lost only what the
    canonical log does not have was truncated by a leader. A copy may lack the log that its leader-epoch-checkpoint
    tells of: that is no fact about the disk. `earlier` are in time, and of each disk the last one that shows it further
    counts.
    """
    disks = (survey.replicas[number] for number in newest.replicas)
    incomplete = {
        (disk.plan.node_id, disk.plan.directory_id)
        for disk in disks
        if disk.leader_epochs and not disk.files_of(FileKind.SEGMENT)
    }
    gone_back: dict[VoterKey, DiskWentBack] = {}
    for captured in earlier:
        for before, now in _in_both(captured, newest):
            held, epochs = _held(newest, before, now), (_epoch(before), _epoch(now))
            is_back = held[1] < held[0] or _position(now)[0] < _position(before)[0]
            if is_back and now.key not in incomplete:
                gone_back[now.key] = DiskWentBack(now.node_id, captured.capture, newest.capture, held, epochs)
    return tuple(gone_back[key] for key in sorted(gone_back, key=str))


def rival_capture(survey: Survey, others: Collection[ProvenRound], newest: ProvenRound) -> RivalCapture | None:
    """Another capture that may be the newest one, where nothing but content puts the two in time.

    A disk that was wiped or restored makes its capture look earlier than it is.
    """
    for captured in others:
        is_later = is_numbered_before(newest.capture, captured.capture)
        if is_later is False or captured.number in newest.stated:
            continue
        node_id = _forgetful(survey, captured, newest, is_later=bool(is_later))
        if node_id is None:
            node_id = _gone_on_alone(captured, newest)
        if node_id is not None:
            return RivalCapture(captured.capture, newest.capture, node_id)
    return None


def _forgetful(survey: Survey, captured: ProvenRound, newest: ProvenRound, *, is_later: bool) -> int | None:
    """A node whose disk has no quorum-state in a capture: it was formatted before the newest one, or emptied after it.

    Or one whose epoch is smaller there, although the number in the capture's name is larger (`is_later`).
    """
    latest = {survey.replicas[number].plan.identity: survey.replicas[number] for number in newest.replicas}
    for number in captured.replicas:
        replica = survey.replicas[number]
        same, state, node_id = latest.get(replica.plan.identity), replica.quorum_state, replica.plan.node_id
        if node_id is None or same is None or same.quorum_state is None:
            continue
        if state is None or (is_later and state.leader_epoch < same.quorum_state.leader_epoch):
            return node_id
    return None


def _gone_on_alone(captured: ProvenRound, newest: ProvenRound) -> int | None:
    """A node whose disk is further in the newest capture, while no other disk in both is, or another lost an epoch."""
    pairs = _in_both(captured, newest)
    further = [before.node_id for before, after in pairs if _position(before) < _position(after)]
    has_lost_epoch = any(_position(after)[0] < _position(before)[0] for before, after in pairs)
    is_alone = len(further) == 1 < len(pairs)
    return further[0] if is_alone or (further and has_lost_epoch) else None


def is_numbered_before(first: str, second: str) -> bool | None:
    """Whether the first of two names has the smaller number, where only numbers tell them apart up to there, as in
    counters; None where no number decides."""
    one, other = natural(first)[0], natural(second)[0]
    for (length, text), (other_length, other_text) in zip(one, other, strict=False):
        if (length, text) != (other_length, other_text):
            return None if -1 in (length, other_length) else (length, text) < (other_length, other_text)
    return None


def _held(newest: ProvenRound, before: CapturedReplica, now: CapturedReplica) -> tuple[int, int]:
    """Below which offset a disk held the log, and holds it now."""
    chain = newest.interval.canonical
    if chain is None:
        return min(newest.interval.low, before.end[1]), min(newest.interval.low, now.end[1])
    return before.holds_to(chain), now.holds_to(chain)


def _in_both(captured: ProvenRound, newest: ProvenRound) -> list[tuple[CapturedReplica, CapturedReplica]]:
    """The disks that are evidence in both captures, as they are in each."""
    latest = {replica.key: replica for replica in newest.evidence.replicas if replica.node_id != UNKNOWN_NODE}
    return [(before, latest[before.key]) for before in captured.evidence.replicas if before.key in latest]


def _position(replica: CapturedReplica) -> tuple[int, tuple[int, int]]:
    """Its epoch, and (last epoch, end offset) of its log."""
    return -1 if replica.persisted is None else replica.persisted.epoch, replica.end


def _epoch(replica: CapturedReplica) -> int | None:
    return None if replica.persisted is None else replica.persisted.epoch
