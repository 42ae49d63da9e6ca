"""One question about one controller: the disks that run, what an answer rests on, and the commands to paste."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping

from kraft_audit.quorum.quorum_evidence import majority
from kraft_audit.quorum.voter_history import VoterSet
from kraft_audit.recovery.may_i.doubted_disks import doubt_reason, doubt_steps, doubts_of
from kraft_audit.recovery.may_i.electorate import DiskDoubt, VoterDisk
from kraft_audit.recovery.may_i.permission import Action, Permission, Question, Verdict
from kraft_audit.recovery.may_i.start_safety import Election, SecondLeader, StartSafety
from kraft_audit.rules.cluster_history import ClusterHistory, feature_level
from kraft_audit.rules.columns.kafka_commands import (
    UNKNOWN_ADDRESS,
    add_controller,
    controller_server,
    format_disk,
    remove_controller,
    start_node,
    unregister_controller,
)
from kraft_audit.rules.columns.nodes import broker_states, raises_kraft_version
from kraft_audit.text.readable import any_of, listed, pasted_ids
from kraft_codec.schemas.releases import FIRST_LEVEL_THAT_UNREGISTERS_CONTROLLERS, METADATA_VERSION_FEATURE


def is_voter(question: Question, safety: StartSafety) -> bool:
    """Whether the node may vote: by a set that a disk goes by, or by an earlier one where its disk would be emptied.

    A disk formatted for a dynamic quorum goes by none.
    """
    voters = safety.chain.voters_at_end
    is_formatted = question.action is Action.FORMAT and (voters is None or voters.kraft_version == 0)
    with_earlier = question.action is Action.WIPE or is_formatted
    return question.node_id in safety.voter_ids(with_earlier=with_earlier)


class ControllerCase:
    """One question about one controller, with the disks that are assumed to run."""

    def __init__(self, question: Question, safety: StartSafety, history: ClusterHistory) -> None:
        self.question = question
        self.safety = safety
        self.history = history
        self.node_id = question.node_id
        self.voters = safety.chain.voters_at_end
        away = question.gone | (question.stopped - {self.node_id})
        self.running = [disk for disk in safety.disks if disk.node_id not in away]
        self.is_voter = is_voter(question, safety)
        self.is_dynamic = self.voters is not None and self.voters.kraft_version > 0

    def permission(self, verdict: Verdict, reason: str, *steps: str) -> Permission:
        ids = self.voters.ids if self.voters else frozenset()
        running = tuple(sorted({disk.node_id for disk in self.running if disk.node_id in ids | {self.node_id}}))
        return Permission(verdict, reason, steps, running)

    # What they rest on

    def doubt(self, running: Collection[VoterDisk], sure: Collection[VoterDisk] | None = None) -> Permission | None:
        """No or undecided, where an election among these disks can lose something; else None.

        `sure`: the same disks with what is surely known of them, where that is less.
        """
        election = self.safety.playable(running if sure is None else sure)
        if election is not None:
            return self.permission(Verdict.NO, self.loss_text(election), *self.holder_first(election))
        election = self.safety.losing(running)
        second = None if election is not None else self.safety.second_leader(running)
        if election is None and second is None:
            return None
        if doubts := doubts_of(running):
            return self.in_doubt(doubts, self.may_text(election, second))
        unread = sorted({disk.node_id for disk in running if not disk.is_captured})
        if unread:
            disks = f"the disk{'s' * (len(unread) > 1)} of node{'s' * (len(unread) > 1)} {listed(unread)}"
            reason = f"It depends on {disks}, which nothing here shows. {self.may_text(election, second)}"
            step = f"Copy {disks} below {shlex.quote(self.question.path)}"
            if away := set(unread) - {self.node_id}:
                stopped = pasted_ids(self.question.stopped | away)
                step += f", or name who is away: {self.command(stopped=stopped)}"
            else:
                step += f", then: {self.command()}"
            return self.permission(Verdict.UNDECIDED, reason, step)
        return self.permission(Verdict.UNDECIDED, self.may_text(election, second), *self.way_out(running))

    def in_doubt(self, doubts: Mapping[int, DiskDoubt], why: str) -> Permission:
        """Undecided, as disks that contradict themselves may do what their bytes say."""
        others = self.question.stopped | (doubts.keys() - {self.node_id})
        without: str | None = self.command(stopped=pasted_ids(others))
        if self.node_id in doubts:
            ids = self.voters.ids if self.voters else frozenset()
            first = min((ids & self.question.stopped) - doubts.keys(), default=None)
            others |= {self.node_id}
            without = None if first is None else self.command(Action.START, first, pasted_ids(others - {first}))
        steps = doubt_steps(doubts, self.question.path, self.command(), without)
        return self.permission(Verdict.UNDECIDED, f"{doubt_reason(doubts)} {why}".rstrip(), *steps)

    def may_hold_more(self, doubts: Mapping[int, DiskDoubt]) -> Permission:
        """Undecided, as these disks may hold committed records that the others lack, whether they run or not."""
        lost = self.command(gone=pasted_ids(self.question.gone | doubts.keys()))
        steps = doubt_steps(doubts, self.question.path, self.command(), None)
        reason = f"{doubt_reason(doubts)} Committed records may be there alone."
        return self.permission(Verdict.UNDECIDED, reason, *steps, f"If it is lost for good: {lost}")

    def loss_text(self, election: Election) -> str:
        at = self.safety.chain.epoch_at(election.offset)
        epoch = "" if at is None else f" (epoch {at})"
        own = "" if self.node_id in election.voters else f" That can happen without node {self.node_id} already."
        return (
            f"Node {election.candidate} could be elected by {listed(election.voters)}, and lacks committed records "
            f"from offset {election.offset}{epoch} on.{own}"
        )

    def may_text(self, election: Election | None, second: SecondLeader | None) -> str:
        if election is not None:
            is_sure = "is" if election.offset < self.safety.low else "may be"
            return (
                f"Node {election.candidate} could be elected by {listed(election.voters)} without offset "
                f"{election.offset}, which {is_sure} committed."
            )
        if second is None:
            return ""
        if second.first == second.candidate:
            return f"Node {second.candidate} stood in epoch {second.epoch} and forgot it: it could lead it again."
        return (
            f"Node {second.candidate} could lead epoch {second.epoch}, in which node {second.first} led or stood, "
            f"elected by {listed(second.voters)}, as one of them forgot its vote."
        )

    def holder_first(self, election: Election) -> Iterator[str]:
        holders = sorted(
            disk.node_id
            for disk in self.safety.disks
            if disk.is_captured and disk.held_to > election.offset and self.votes(disk)
        )
        first = [node for node in holders if node != self.node_id]
        ids = self.voters.ids if self.voters else frozenset()
        if not holders and ids <= {disk.node_id for disk in self.safety.disks if disk.is_captured}:
            plan = f"kraft-audit rescue --plan {shlex.quote(self.question.path)} --gone {pasted_ids(ids)}"
            yield f"No voter holds them any more; which other disk does: {plan}"
        if first:
            stays = "" if self.node_id in holders else f" and keep node {self.node_id} stopped"
            yield f"Start {any_of(first)} first{stays}: {self.command(Action.START, first[-1])}"
        others = [disk for disk in self.running if disk.node_id != self.node_id]
        leads_safely = self.safety.can_elect(others) and self.safety.playable(others) is None
        if self.question.action is Action.START and self.node_id not in holders and leads_safely:
            yield from self.replace_voter()

    def votes(self, disk: VoterDisk) -> bool:
        return self.voters is not None and self.voters.holds(disk.node_id, disk.directory_id)

    def way_out(self, running: Collection[VoterDisk]) -> Iterator[str]:
        """Another node that, kept stopped, makes it safe. A volume is deleted for good: none stays stopped as long."""
        others = {disk.node_id for disk in running} - {self.node_id}
        for stopped in sorted(() if self.question.action is Action.DELETE_VOLUME else others):
            rest = [disk for disk in running if disk.node_id != stopped]
            if self.safety.losing(rest) is None and self.safety.second_leader(rest) is None:
                away = pasted_ids(self.question.stopped | {stopped})
                yield f"With node {stopped} stopped it is safe: {self.command(stopped=away)}"
                return
        yield f"Copy all voters again while they are stopped, then: {self.command()}"

    def safe_text(self, electorate: Collection[VoterDisk]) -> str:
        best = max(disk.end for disk in electorate)
        able = sorted({disk.node_id for disk in electorate if disk.end == best})
        through = f" through offset {self.safety.low - 1}" if self.safety.low else ""
        return (
            f"No election can lose a committed record{through}: {any_of(able)} has the longest log of those that run."
        )

    def leader(self) -> tuple[int, int | None]:
        """(newest epoch, who leads it as any disk says)."""
        epoch = self.safety.newest_epoch
        states = [disk.state for disk in self.safety.disks if disk.state is not None and disk.state.epoch == epoch]
        named = [state.leader_id for state in states if state.leader_id >= 0]
        start = self.safety.chain.leaders.get(epoch)
        return epoch, named[0] if named else None if start is None else start.leader_id

    # Commands to paste

    def command(
        self,
        action: Action | None = None,
        node_id: int | None = None,
        stopped: str | None = None,
        voters: Collection[int] = (),
        gone: str = "",
    ) -> str:
        question = self.question
        asked = question.node_id if node_id is None else node_id
        words = ["kraft-audit", "may-i", action or question.action, str(asked), shlex.quote(question.path)]
        if gone := gone or pasted_ids(question.gone):
            words += ["--gone", gone]
        if stopped is not None:
            words += ["--stopped", stopped] if stopped else []
        elif question.stopped and node_id is None:
            words += ["--stopped", pasted_ids(question.stopped)]
        elif node_id is not None and self.node_id != node_id:
            words += ["--stopped", pasted_ids((question.stopped | {self.node_id}) - {node_id})]
        if named := voters or question.voters:
            words += ["--voters", pasted_ids(named)]
        return " ".join(words)

    def start_more(self) -> Iterator[str]:
        """Other voters that could run too."""
        ids = self.voters.ids if self.voters else frozenset()
        doubts = doubts_of(self.safety.disks)
        away = sorted((ids & self.question.stopped) - {self.node_id}, key=lambda node: (node in doubts, node))
        if away:
            still = pasted_ids(self.question.stopped - {self.node_id, away[0]})
            yield f"Start more voters: {self.command(Action.START, away[0], still)}"

    def bootstrap(self) -> str:
        """The option that reaches a controller, the last leader first: one that runs, and another one if any does."""
        _, leader = self.leader()
        ids = dict.fromkeys((leader, *sorted(self.voters.ids if self.voters else ())))
        down = self.question.stopped | self.question.gone
        up = [node for node in ids if node is not None and node not in down]
        return controller_server(self.history, [node for node in up if node != self.node_id] or up or None)

    def check_quorum(self, what: str = "--status") -> Iterator[str]:
        if UNKNOWN_ADDRESS not in self.bootstrap():
            command = f"kafka-metadata-quorum {self.bootstrap()} describe {what}"
            yield f"Then see who leads; until a node does, this fails: {command}"

    def raise_kraft_version(self) -> str:
        if raises_kraft_version(self.history):
            return f"kafka-features {self.bootstrap()} upgrade --feature kraft.version=1"
        path = shlex.quote(self.question.path)
        return f"Only software of 4.1 or later raises it; what blocks that: kraft-audit upgrade-check {path} --to 4.1"

    def remove_command(self, voters: VoterSet) -> str:
        directory = next(voter.directory_id for voter in voters.voters if voter.voter_id == self.node_id)
        return remove_controller(self.bootstrap(), self.node_id, directory)

    def second_voter(self) -> Iterator[str]:
        """What comes before the only voter's disk may go."""
        yield "Copy its node dir before you touch it."
        if self.voters is not None and self.voters.kraft_version > 0:
            yield f"Add a second voter, on its host: {add_controller(self.bootstrap())}"
            yield f"Then copy both disks below {shlex.quote(self.question.path)}: {self.command()}"

    def replace_voter(self) -> tuple[str, ...]:
        """Out of the quorum, formatted, in again: with a new directory id an empty disk does not vote.

        It needs kraft.version 1 and a leader (KIP-853), so it is no way out without a majority of the others.
        """
        voters = self.voters
        if voters is None or voters.kraft_version == 0 or self.node_id not in voters.ids or len(voters.ids) < 2:
            return ()
        others = (disk for disk in self.running if disk.doubt is None and self.votes(disk))
        rest = {disk.node_id for disk in others} - {self.node_id}
        if len(rest) < majority(len(voters.ids)):
            return ()
        removed = f"With a leader, and node {self.node_id} stopped: {self.remove_command(voters)}"
        return (removed, *self.format_steps())

    def format_steps(self) -> Iterator[str]:
        """How the emptied disk comes into use: at kraft.version 1 as an observer's, until it is added."""
        is_broker = self.node_id in broker_states(self.history)
        yield format_disk(self.history.cluster_id, joins=self.is_dynamic, beside_data=is_broker)
        yield start_node()
        if self.is_dynamic:
            once = "Once" if self.is_voter else "If it should vote, once"
            yield f"{once} it has fetched the log: {add_controller(self.bootstrap())}"

    def leave_steps(self) -> Iterator[str]:
        """What follows once a controller is no voter any more: it stops, and its registration goes where it can."""
        if self.is_dynamic:
            yield f"Stop node {self.node_id} then: with controller.quorum.auto.join.enable it would add itself again."
        else:
            yield f"Keep node {self.node_id} stopped: started, it goes by its own controller.quorum.voters."
        rows = self.history.newest_rows("controller_changes", "controller_id")
        if self.node_id not in rows or not rows[self.node_id]["exists"]:
            return
        if (feature_level(self.history, METADATA_VERSION_FEATURE) or 0) >= FIRST_LEVEL_THAT_UNREGISTERS_CONTROLLERS:
            yield f"Once it is stopped: {unregister_controller(self.bootstrap(), self.node_id)}"
        else:
            asked = f"kraft-audit upgrade-check {shlex.quote(self.question.path)} --to 4.4"
            yield f"It stays registered: only Kafka 4.4 unregisters controllers. Whether that blocks upgrades: {asked}"
