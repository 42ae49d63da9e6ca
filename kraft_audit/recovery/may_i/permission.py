"""May this node be started, restarted, wiped, removed, or lose its volume: yes, no or undecided, why, and what next.

An answer is about the disks as they were read, and about a set of nodes that is assumed to run: the node itself, and
all voters that are neither said to be gone nor known to be stopped.
"""

from __future__ import annotations

import enum
import shlex
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Final

from kraft_audit.quorum.open_interval import DIFFERENT_MOMENTS
from kraft_audit.quorum.quorum_evidence import majority
from kraft_audit.quorum.voter_history import VoterSet
from kraft_audit.recovery.may_i.electorate import VoterDisk
from kraft_audit.recovery.may_i.start_safety import Durability, Election, SecondLeader, StartSafety
from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.captures import newest_round
from kraft_audit.rules.columns.kafka_commands import (
    CONFIG,
    UNKNOWN_ADDRESS,
    add_controller,
    controller_server,
    format_disk,
    remove_controller,
)
from kraft_audit.rules.columns.nodes import raises_kraft_version
from kraft_audit.rules.columns.quorum_standing import Standing, quorum_standing
from kraft_audit.rules.columns.voter_sets import voter_ids
from kraft_audit.text.readable import any_of, capitalized, listed

NEAR_RECORDS: Final = 1_000
"""A voter whose log ends so close to `low` has the rest after a fetch or two: copies of running nodes differ so far."""


class Action(enum.StrEnum):
    """What may be asked about a node."""

    START = "start"
    RESTART = "restart"
    WIPE = "wipe"
    REMOVE = "remove"
    DELETE_VOLUME = "delete-volume"


class Verdict(enum.StrEnum):
    """The answer; the worst of several is the one that counts."""

    YES = "yes"
    UNDECIDED = "undecided"
    NO = "no"

    @property
    def rank(self) -> int:
        return list(Verdict).index(self)


@dataclass(frozen=True, slots=True)
class Question:
    """`path` is where the disks were read, for commands to paste."""

    action: Action
    node_id: int
    path: str
    gone: frozenset[int] = frozenset()
    stopped: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Permission:
    """An answer: `reason` in a sentence or two, `next_steps` as lines to follow, `running` who is assumed to run.

    `cannot_be_lost` is None where no log is known to be the canonical one.
    """

    verdict: Verdict
    reason: str
    next_steps: tuple[str, ...] = ()
    running: tuple[int, ...] = ()
    cannot_be_lost: Durability | None = None


def controller_permission(
    question: Question, safety: StartSafety | None, undecided: str | None, history: ClusterHistory
) -> Permission | None:
    """The answer for a controller; None where no disk, voter set or registration has a node of that id."""
    if safety is None:
        if question.action is Action.START and _is_first_start(history):
            return Permission(Verdict.YES, "Every voter is formatted and was never started: there is nothing to lose.")
        reason = f"No log is known to be the canonical one: {undecided}."
        return Permission(Verdict.UNDECIDED, reason, (f"kraft-audit diverge {shlex.quote(question.path)}",))
    registered = {row["controller_id"] for row in history.rows("controller_changes")}
    captured = {disk.node_id for disk in safety.disks}
    if question.node_id not in captured | registered:
        return None
    answer = _ControllerCase(question, safety, history).answer()
    if answer.verdict is not Verdict.YES and undecided is not None and undecided.startswith(DIFFERENT_MOMENTS):
        # The disks themselves may hold what their copies lack.
        again = f"{capitalized(undecided)}. Then ask again."
        return replace(answer, next_steps=(again, *answer.next_steps))
    return answer


def _is_first_start(history: ClusterHistory) -> bool:
    """Whether all voters of the one checkpoint that disks are formatted with were read, and none ever started."""
    first_sets = set(map(voter_ids, history.rows("voter_sets")))
    read = {row["node_id"] for row in newest_round(history)}
    is_one = len(first_sets) == 1 and max(first_sets) <= read
    return is_one and quorum_standing(history).standing is Standing.EMPTY


class _ControllerCase:
    """One question about one controller, with the disks that are assumed to run."""

    def __init__(self, question: Question, safety: StartSafety, history: ClusterHistory) -> None:
        self.question = question
        self.safety = safety
        self.history = history
        self.node_id = question.node_id
        self.voters = safety.chain.voters_at_end
        away = question.gone | (question.stopped - {self.node_id})
        self.running = [disk for disk in safety.disks if disk.node_id not in away]
        self.is_voter = self.node_id in safety.voter_ids(with_earlier=question.action is Action.WIPE)

    def answer(self) -> Permission:
        if not self.is_voter:
            reason = f"Node {self.node_id} is no voter in any log that was read: it can neither be elected nor vote."
            return self._permission(Verdict.YES, reason)
        return {
            Action.START: self._start,
            Action.RESTART: self._restart,
            Action.WIPE: self._wipe,
            Action.REMOVE: self._remove,
            Action.DELETE_VOLUME: self._delete_volume,
        }[self.question.action]()

    def _permission(self, verdict: Verdict, reason: str, *steps: str) -> Permission:
        ids = self.voters.ids if self.voters else frozenset()
        running = tuple(sorted({disk.node_id for disk in self.running if disk.node_id in ids | {self.node_id}}))
        return Permission(verdict, reason, steps, running)

    # Each action

    def _start(self) -> Permission:
        doubt = self._doubt(self.running)
        if doubt is not None:
            return doubt
        electorate = [disk for disk in self.running if self.voters is not None and disk.node_id in self.voters.ids]
        needed = majority(len(self.voters.ids)) if self.voters else 1
        if len({disk.node_id for disk in electorate}) < needed:
            reason = (
                f"Nothing can be elected: {len(electorate)} of {needed} voters that are needed run then, so nothing "
                "can be lost."
            )
            return self._permission(Verdict.YES, reason, *self._start_more())
        return self._permission(Verdict.YES, self._safe_text(electorate), *self._check_quorum())

    def _restart(self) -> Permission:
        started = self._start()
        if started.verdict is not Verdict.YES:
            return started
        ids = self.voters.ids if self.voters else frozenset()
        rest = [disk for disk in self.running if disk.node_id in ids and disk.node_id != self.node_id]
        needed = majority(len(ids))
        if len(rest) < needed and self.node_id in ids:
            reason = (
                f"Outage: without node {self.node_id}, {len(rest)} of {needed} voters that are needed run, so nothing "
                "can be written until it is back. No committed record is lost."
            )
            return self._permission(Verdict.NO, reason, *self._start_more())
        near = [disk for disk in rest if disk.held_to + NEAR_RECORDS >= self.safety.low]
        if len(near) < needed and self.node_id in ids:
            behind = listed(sorted(disk.node_id for disk in rest if disk not in near))
            reason = (
                f"Stall: voters {behind} lag more than {NEAR_RECORDS} records behind offset {self.safety.low}, so "
                f"writes wait for them while node {self.node_id} is away. No committed record is lost."
            )
            return self._permission(Verdict.NO, reason, *self._check_quorum("--replication"))
        return started

    def _wipe(self) -> Permission:
        own = [disk for disk in self.running if disk.node_id == self.node_id]
        known_to = max(
            [self.safety.newest_epoch if disk.state is None else disk.state.epoch for disk in own], default=-1
        )
        emptied, sure = self.safety.after_wipe(self.node_id, self.running, known_to)
        doubt = self._doubt(emptied, sure)
        if doubt is not None and self.voters is not None and self.voters.ids == {self.node_id}:
            step = "It is the only voter: its disk is all of the cluster's metadata. Copy it before you touch it."
            return replace(doubt, next_steps=(step,))
        if doubt is not None:
            return replace(doubt, next_steps=self._replace_voter() or doubt.next_steps)
        ids = self.voters.ids - {self.node_id} if self.voters else frozenset()
        beyond = {
            disk.node_id
            for disk in self.safety.disks
            if disk.node_id in ids - self.question.gone and disk.state is not None and disk.state.epoch > known_to
        }
        needed = majority(len(ids) + 1)
        if len(beyond) < needed:
            reason = (
                f"Node {self.node_id} may have voted in epoch {known_to}, and its empty disk could vote there again: "
                f"{len(beyond)} of {needed} other voters that are needed have persisted a later epoch."
            )
            steps = self._replace_voter() or (
                f"Stop node {self.node_id}, restart the leading controller so that a later epoch begins, and copy all "
                f"other voters again: {self._command(Action.WIPE)}",
            )
            return self._permission(Verdict.UNDECIDED, reason, *steps)
        reason = (
            f"A majority without node {self.node_id} holds every committed record and has passed epoch {known_to}, "
            "the last in which it may have voted."
        )
        return self._permission(Verdict.YES, reason, *self._replace_voter())

    def _remove(self) -> Permission:
        voters = self.voters
        if voters is None or self.node_id not in voters.ids:
            return self._permission(Verdict.YES, f"Node {self.node_id} is no voter now: there is nothing to remove.")
        if voters.kraft_version == 0:
            reason = (
                "At kraft.version 0 the voters are those of controller.quorum.voters on every node: remove-controller "
                "is refused."
            )
            return self._permission(Verdict.NO, reason, self._raise_kraft_version())
        rest = voters.ids - {self.node_id}
        if not rest:
            return self._permission(Verdict.NO, f"Node {self.node_id} is the only voter.")
        running = {disk.node_id for disk in self.running if disk.node_id in rest}
        if len(running) < majority(len(rest)):
            reason = (
                f"{len(running)} of the {majority(len(rest))} other voters that are needed run: the removal could not "
                "be committed."
            )
            return self._permission(Verdict.NO, reason, *self._start_more())
        epoch, leader = self._leader()
        if leader is None:
            reason = f"No captured disk names a leader of epoch {epoch}: without one no voter can be removed."
            return self._permission(Verdict.NO, reason, *self._start_more())
        start = self.safety.chain.leaders.get(epoch)
        if start is None or start.offset >= self.safety.low:
            reason = (
                f"Node {leader} leads epoch {epoch}, which is not proven committed: it refuses changes of the voters "
                "until it is."
            )
            return self._permission(Verdict.UNDECIDED, reason, *self._check_quorum())
        rest_disks = [disk for disk in self.running if disk.node_id != self.node_id]
        # Until it is removed it runs and votes too, unless nothing shows its disk.
        before = [disk for disk in self.running if disk.node_id != self.node_id or disk.is_captured]
        doubt = self._doubt(rest_disks) or self._doubt(before)
        if doubt is not None:
            return doubt
        reason = f"Node {leader} leads epoch {epoch}, which is committed, and {listed(sorted(running))} remain."
        return self._permission(Verdict.YES, reason, self._remove_command(voters))

    def _delete_volume(self) -> Permission:
        ids = self.voters.ids if self.voters else frozenset()
        rest = [disk for disk in self.safety.disks if disk.node_id not in self.question.gone | {self.node_id}]
        remaining = sorted({disk.node_id for disk in rest} & ids)
        needed = majority(len(ids))
        if self.node_id in ids and len(remaining) < needed:
            reason = (
                f"{len(remaining)} of {needed} voters that are needed would be left: the quorum could never elect a "
                "leader again."
            )
            return self._permission(Verdict.NO, reason, "Keep the volume.")
        doubt = self._doubt(rest)
        if doubt is not None:
            return doubt
        if self.node_id not in ids:
            return self._permission(Verdict.YES, f"Node {self.node_id} is no voter now, and the others lose nothing.")
        reason = f"Voters {listed(remaining)} remain, and no election among them can lose a committed record."
        return self._permission(Verdict.YES, reason, *self._replace_voter())

    # What they rest on

    def _doubt(self, running: Collection[VoterDisk], sure: Collection[VoterDisk] | None = None) -> Permission | None:
        """No or undecided, where an election among these disks can lose something; else None.

        `sure`: the same disks with what is surely known of them, where that is less.
        """
        election = self.safety.playable(running if sure is None else sure)
        if election is not None:
            return self._permission(Verdict.NO, self._loss_text(election), *self._holder_first(election))
        election = self.safety.losing(running)
        second = None if election is not None else self.safety.second_leader(running)
        if election is None and second is None:
            return None
        unread = sorted({disk.node_id for disk in running if not disk.is_captured})
        if unread:
            disks = f"the disk{'s' * (len(unread) > 1)} of node{'s' * (len(unread) > 1)} {listed(unread)}"
            reason = f"It depends on {disks}, which nothing here shows. {self._may_text(election, second)}"
            step = f"Copy {disks} below {shlex.quote(self.question.path)}"
            if away := set(unread) - {self.node_id}:
                stopped = ",".join(map(str, sorted(self.question.stopped | away)))
                step += f", or name who is away: {self._command(stopped=stopped)}"
            return self._permission(Verdict.UNDECIDED, reason, step)
        return self._permission(Verdict.UNDECIDED, self._may_text(election, second), *self._way_out(running))

    def _loss_text(self, election: Election) -> str:
        at = self.safety.chain.epoch_at(election.offset)
        epoch = "" if at is None else f" (epoch {at})"
        own = "" if self.node_id in election.voters else f" That can happen without node {self.node_id} already."
        return (
            f"Node {election.candidate} could be elected by {listed(election.voters)}, and lacks committed records "
            f"from offset {election.offset}{epoch} on.{own}"
        )

    def _may_text(self, election: Election | None, second: SecondLeader | None) -> str:
        if election is not None:
            return (
                f"Node {election.candidate} could be elected by {listed(election.voters)} without offset "
                f"{election.offset}, which may be committed."
            )
        if second is None:
            return ""
        if second.first == second.candidate:
            return f"Node {second.candidate} stood in epoch {second.epoch} and forgot it: it could lead it again."
        return (
            f"Node {second.candidate} could lead epoch {second.epoch}, in which node {second.first} led or stood, "
            f"elected by {listed(second.voters)}, as one of them forgot its vote."
        )

    def _holder_first(self, election: Election) -> Iterator[str]:
        holders = sorted(
            disk.node_id
            for disk in self.safety.disks
            if disk.is_captured and disk.held_to > election.offset and self._votes(disk)
        )
        first = [node for node in holders if node != self.node_id]
        if first:
            stays = "" if self.node_id in holders else f" and keep node {self.node_id} stopped"
            yield f"Start {any_of(first)} first{stays}: {self._command(Action.START, first[-1])}"
        if self.question.action is Action.START and self.node_id not in holders:
            yield from self._replace_voter()

    def _votes(self, disk: VoterDisk) -> bool:
        return self.voters is not None and self.voters.holds(disk.node_id, disk.directory_id)

    def _way_out(self, running: Collection[VoterDisk]) -> Iterator[str]:
        """Another node that, kept stopped, makes it safe."""
        for stopped in sorted({disk.node_id for disk in running} - {self.node_id}):
            rest = [disk for disk in running if disk.node_id != stopped]
            if self.safety.losing(rest) is None and self.safety.second_leader(rest) is None:
                away = ",".join(map(str, sorted(self.question.stopped | {stopped})))
                yield f"With node {stopped} stopped it is safe: {self._command(stopped=away)}"
                return
        yield f"Copy all voters again while they are stopped, then: {self._command()}"

    def _safe_text(self, electorate: Collection[VoterDisk]) -> str:
        best = max(disk.end for disk in electorate)
        able = sorted({disk.node_id for disk in electorate if disk.end == best})
        through = f" through offset {self.safety.low - 1}" if self.safety.low else ""
        return (
            f"No election can lose a committed record{through}: {any_of(able)} has the longest log of those that run."
        )

    def _leader(self) -> tuple[int, int | None]:
        """(newest epoch, who leads it as any disk says)."""
        epoch = self.safety.newest_epoch
        states = [disk.state for disk in self.safety.disks if disk.state is not None and disk.state.epoch == epoch]
        named = [state.leader_id for state in states if state.leader_id >= 0]
        start = self.safety.chain.leaders.get(epoch)
        return epoch, named[0] if named else None if start is None else start.leader_id

    # Commands to paste

    def _command(self, action: Action | None = None, node_id: int | None = None, stopped: str | None = None) -> str:
        question = self.question
        asked = question.node_id if node_id is None else node_id
        words = ["kraft-audit", "may-i", action or question.action, str(asked), shlex.quote(question.path)]
        if question.gone:
            words += ["--gone", ",".join(map(str, sorted(question.gone)))]
        if stopped is not None:
            words += ["--stopped", stopped]
        elif question.stopped and node_id is None:
            words += ["--stopped", ",".join(map(str, sorted(question.stopped)))]
        elif node_id is not None and self.node_id != node_id:
            words += ["--stopped", ",".join(map(str, sorted((question.stopped | {self.node_id}) - {node_id})))]
        return " ".join(words)

    def _start_more(self) -> Iterator[str]:
        """Other voters that could run too."""
        ids = self.voters.ids if self.voters else frozenset()
        away = sorted((ids & self.question.stopped) - {self.node_id})
        if away:
            yield f"Start more voters: {self._command(Action.START, away[0])}"

    def _bootstrap(self) -> str:
        _, leader = self._leader()
        asked = [node for node in (leader, *sorted(self.voters.ids if self.voters else ())) if node is not None]
        return controller_server(self.history, [node for node in asked if node != self.node_id or len(asked) == 1])

    def _check_quorum(self, what: str = "--status") -> Iterator[str]:
        if UNKNOWN_ADDRESS not in self._bootstrap():
            yield f"Then see who leads: kafka-metadata-quorum {self._bootstrap()} describe {what}"

    def _raise_kraft_version(self) -> str:
        if raises_kraft_version(self.history):
            return f"kafka-features {self._bootstrap()} upgrade --feature kraft.version=1"
        path = shlex.quote(self.question.path)
        return f"Only software of 4.1 or later raises it; what blocks that: kraft-audit upgrade-check {path} --to 4.1"

    def _remove_command(self, voters: VoterSet) -> str:
        directory = next(voter.directory_id for voter in voters.voters if voter.voter_id == self.node_id)
        return remove_controller(self._bootstrap(), self.node_id, directory)

    def _replace_voter(self) -> tuple[str, ...]:
        """Out of the quorum, formatted, in again: with a new directory id an empty disk does not vote.

        It needs kraft.version 1 and a leader (KIP-853), so it is no way out without a majority of the others.
        """
        voters = self.voters
        if voters is None or voters.kraft_version == 0 or self.node_id not in voters.ids or len(voters.ids) < 2:
            return ()
        rest = {disk.node_id for disk in self.running if disk.node_id in voters.ids - {self.node_id}}
        if len(rest) < majority(len(voters.ids)):
            return ()
        return (
            f"With a leader, and node {self.node_id} stopped: {self._remove_command(voters)}",
            format_disk(self.history.cluster_id, joins=True),
            f"kafka-server-start -daemon {CONFIG}",
            add_controller(self._bootstrap()),
        )
