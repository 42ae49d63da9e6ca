"""May this controller be started, restarted, emptied or taken out of the quorum: what elections could do."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from kraft_audit.capture.disk_trust import DiskTrust
from kraft_audit.quorum.open_interval import DIFFERENT_MOMENTS
from kraft_audit.quorum.quorum_evidence import majority
from kraft_audit.recovery.may_i.compared_captures import RivalCapture, shown_capture
from kraft_audit.recovery.may_i.controller_case import ControllerCase
from kraft_audit.recovery.may_i.doubted_disks import EMPTIED, doubts_of
from kraft_audit.recovery.may_i.electorate import DiskDoubt
from kraft_audit.recovery.may_i.permission import Action, Permission, Question, Verdict
from kraft_audit.recovery.may_i.start_safety import StartSafety
from kraft_audit.recovery.may_i.unfit_disks import of_unfit_disks
from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.captures import newest_round, replica_end
from kraft_audit.rules.columns.configured_voters import ConfiguredVoters, condition_text, configured_voters
from kraft_audit.rules.columns.nodes import registrations
from kraft_audit.rules.columns.quorum_standing import Standing, quorum_standing
from kraft_audit.rules.columns.voter_sets import voter_ids
from kraft_audit.text.readable import capitalized, listed, nouns, pasted_ids

NEVER_STARTED: Final = "Every voter is formatted and was never started: there is nothing to lose."
FORMAT_ALL: Final = (
    "Format all controllers, with one list of --initial-controllers: the others know this one by its directory id.",
)
NEAR_RECORDS: Final = 1_000
"""A voter whose log ends so close to `low` has the rest after a fetch or two: copies of running nodes differ so far."""


def controller_permission(
    question: Question, safety: StartSafety | None, undecided: str | None, history: ClusterHistory
) -> Permission | None:
    """The answer for a controller; None where no disk, voter set or registration has a node of that id."""
    if safety is None:
        if question.action in (Action.START, Action.FORMAT) and is_first_start(history):
            return Permission(Verdict.YES, NEVER_STARTED, FORMAT_ALL if question.action is Action.FORMAT else ())
        reason = f"No log is known to be the canonical one: {undecided}."
        return Permission(Verdict.UNDECIDED, reason, tuple(_ask_of_a_branch(question, history)))
    if safety.rival is not None:
        return _order_first(question, safety.rival)
    registered = {row["controller_id"] for row in history.rows("controller_changes")}
    captured = {disk.node_id for disk in safety.disks}
    if question.node_id not in captured | registered and question.action is not Action.FORMAT:
        return None  # whoever formats a disk may give it an id that no node had before
    answer = of_unfit_disks(question, history, _without_doubt(question, safety, history))
    voters = safety.voter_ids(with_earlier=False)
    gone_back = (disk.text for disk in safety.went_back if disk.node_id in voters)
    answer = replace(answer, reason=" ".join([answer.reason, *gone_back]))
    if answer.verdict is not Verdict.YES and undecided is not None and undecided.startswith(DIFFERENT_MOMENTS):
        # The disks themselves may hold what their copies lack.
        again = f"{capitalized(undecided)}. Then ask again."
        return replace(answer, next_steps=(again, *answer.next_steps))
    return answer


def _ask_of_a_branch(question: Question, history: ClusterHistory) -> Iterator[str]:
    """The same question about each log by itself, and what shows which of them to go on with."""
    path = shlex.quote(question.path)
    for log in history.parted:
        asked = f"kraft-audit may-i {question.action} {question.node_id} {path} --branch {log.name}"
        yield f"If the log of {nouns('node', log.node_ids)} is to go on, the others stopped: {asked}"
    yield f"kraft-audit quorum --diverge {path}"


def _order_first(question: Question, rival: RivalCapture) -> Permission:
    """Undecided, as the disks that the answer would be about may be those of an earlier time."""
    asked = f"kraft-audit may-i {question.action} {question.node_id} {shlex.quote(question.path)} --capture"
    captures = (rival.newest, rival.capture)
    steps = (f"If {shown_capture(each)} was copied last: {asked} {shlex.quote(each)}" for each in captures if each)
    return Permission(Verdict.UNDECIDED, rival.reason, tuple(steps))


def _without_doubt(question: Question, safety: StartSafety, history: ClusterHistory) -> Permission:
    """The answer; no *yes* about a disk that is no evidence, and none that rests on what such a disk holds."""
    case = _Answers(question, safety, history)
    answer, doubts = case.answer(), doubts_of(case.running)
    if question.node_id in doubts:
        own = {question.node_id: doubts[question.node_id]}
        return answer if answer.verdict is Verdict.NO else case.in_doubt(own, "")
    if answer.verdict is not Verdict.YES:
        return answer
    kept = {node: doubt for node, doubt in _unproven(safety, history).items() if node not in question.gone}
    if question.action is not Action.SCALE_IN and safety.may_hold_more(kept):
        return case.may_hold_more(kept)
    if not doubts:
        return answer
    away = replace(question, stopped=question.stopped | doubts.keys())
    without = _Answers(away, safety, history).answer()
    return answer if without.verdict is Verdict.YES else case.in_doubt(doubts, without.reason)


def _unproven(safety: StartSafety, history: ClusterHistory) -> dict[int, DiskDoubt]:
    """The disks that are no evidence, or may be none.

    Of a disk whose log is empty its own files may name epochs of it; of one that persisted an epoch of which no log
    holds a record, and which no majority persisted, nobody knows in which epoch it got its last records.
    """
    distrusted = {each.node_id for each in quorum_standing(history).distrusted if each.trust is DiskTrust.EMPTY}
    listed_before = {row["node_id"] for row in newest_round(history) if row["leader_epoch_checkpoint"]}
    recorded = safety.chain.end[0]
    ahead = [disk for disk in safety.disks if disk.state is not None and disk.state.epoch > recorded]
    needed = majority(len(safety.chain.voters_at_end.ids)) if safety.chain.voters_at_end else 1
    unseen = "it persisted epoch {}, of which no log holds a record"
    alone = {
        disk.node_id: DiskDoubt(unseen.format(disk.state.epoch), disk.end)
        for disk in ahead
        if disk.state is not None and len({each.node_id for each in ahead}) < needed
    }
    return {**alone, **dict.fromkeys(distrusted & listed_before, EMPTIED), **doubts_of(safety.disks)}


def is_first_start(history: ClusterHistory) -> bool:
    """Whether all voters of the one checkpoint that disks are formatted with were read, and none ever started."""
    first_sets = set(map(voter_ids, history.rows("voter_sets")))
    read = {row["node_id"] for row in newest_round(history)}
    is_one = len(first_sets) == 1 and max(first_sets) <= read and not any(map(replica_end, history.rows("captures")))
    return is_one and quorum_standing(history).standing is Standing.EMPTY


def _and_only_while(answer: Permission, condition: str) -> Permission:
    return replace(answer, reason=f"{answer.reason} {condition}") if answer.verdict is Verdict.YES else answer


class _Answers(ControllerCase):
    """One question about one controller, answered."""

    def answer(self) -> Permission:
        answer = self._of_log()
        if self.question.action is Action.SCALE_IN:
            return answer if self.is_dynamic else self._static_scale_in(answer)
        if self.question.action is Action.DELETE_VOLUME:
            return answer
        if not self.question.action.empties_disk and not self._is_captured:
            return answer if answer.verdict is not Verdict.YES else self._unseen()
        if self.is_dynamic:
            return answer
        if self.question.voters:
            condition = condition_text(self.question.voters, self.question.voters | {self.node_id})
            return _and_only_while(answer, condition)
        return self._configured(answer)

    def _of_log(self) -> Permission:
        """The answer by log, votes and the set that the disk goes by, as far as these show it."""
        if not self.is_voter:
            return self._of_observer()
        return {
            Action.START: self._start,
            Action.RESTART: self._restart,
            Action.WIPE: self._wipe,
            Action.FORMAT: self._format,
            Action.SCALE_IN: self._scale_in,
            Action.DELETE_VOLUME: self._delete_volume,
        }[self.question.action]()

    @property
    def _is_captured(self) -> bool:
        return any(disk.is_captured and disk.node_id == self.node_id for disk in self.safety.disks)

    def _of_observer(self) -> Permission:
        if self.question.action is Action.FORMAT and not self._is_captured:
            # Nothing shows what its disk holds: the others must do without.
            doubt = self.doubt(self.running)
            if doubt is not None:
                return doubt
        steps: Iterable[str] = ()
        reason = f"Node {self.node_id} is no voter in any log that was read: it can neither be elected nor vote."
        if self.question.action is Action.FORMAT:
            if not self._is_captured and ("controller", self.node_id) not in registrations(self.history):
                reason = f"Node {self.node_id} is new here: no disk, registration or voter set that was read is its."
            steps = self.format_steps()
            reason += " Formatted, it follows until it is added." if self.is_dynamic else ""
        elif self.question.action is Action.SCALE_IN:
            steps = self.leave_steps()
        return self.permission(Verdict.YES, reason, *steps)

    # At kraft.version 0

    def _configured(self, answer: Permission) -> Permission:
        """The answer, unless what nodes read in controller.quorum.voters contradicts it or leaves it open."""
        configured = configured_voters(self.history)
        ask = f"Ask with what it reads on every node: {self.command(voters=configured.suggested)}"
        set_alike = f"Set controller.quorum.voters alike on {listed(configured.suggested)} first."
        running = {disk.node_id for disk in self.running}
        if (self_elected := configured.reason_self_elected(running, self.safety.low)) is not None:
            return self.permission(Verdict.NO, self_elected, ask)
        if configured.are_different and not (self.question.action is Action.START and configured.emptied):
            election = self.safety.losing(self.running)
            lost = self.may_text(election, None) if election else "They can elect two leaders, or none."
            reason = f"Nodes go by different voters: {configured.sets_text}. {lost}"
            return self.permission(Verdict.NO, reason, set_alike, *self._emptied_first(configured), ask)
        undecided = configured.reason_undecided(self.node_id)
        if answer.verdict is not Verdict.YES or undecided is None:
            return _and_only_while(answer, configured.condition(self.node_id))
        return self.permission(Verdict.UNDECIDED, undecided, *((set_alike,) if configured.emptied else ()), ask)

    def _emptied_first(self, configured: ConfiguredVoters) -> Iterator[str]:
        """A running node that names no voters counts for none until it has read its configuration again."""
        if self.question.action is not Action.RESTART or self.node_id in configured.emptied:
            return
        for node in sorted(frozenset(configured.emptied) - self.question.stopped - self.question.gone)[:1]:
            asked = self.command(node_id=node, stopped=pasted_ids(self.question.stopped), voters=configured.suggested)
            yield f"Node {node} reads it when it is started again, so restart it before: {asked}"

    def _unseen(self) -> Permission:
        reason = f"Nothing here shows the disk of node {self.node_id}."
        step = f"Copy its disk below {shlex.quote(self.question.path)}, then: {self.command()}"
        return self.permission(Verdict.UNDECIDED, reason, step)

    # Each action

    def _start(self) -> Permission:
        doubt = self.doubt(self.running)
        if doubt is not None:
            return doubt
        electorate = [disk for disk in self.running if self.votes(disk)]
        needed = majority(len(self.voters.ids)) if self.voters else 1
        if len({disk.node_id for disk in electorate}) < needed:
            reason = (
                f"Nothing can be elected: {len(electorate)} of {needed} voters that are needed run then, so nothing "
                "can be lost."
            )
            return self.permission(Verdict.YES, reason, *self.start_more())
        return self.permission(Verdict.YES, self.safe_text(electorate), *self.check_quorum())

    def _restart(self) -> Permission:
        started = self._start()
        if started.verdict is not Verdict.YES:
            return started
        ids = self.voters.ids if self.voters else frozenset()
        # Two disks that say the same node id are one voter.
        voting = sorted(filter(self.votes, self.running), key=lambda disk: -disk.held_to)
        held = {disk.node_id: disk.held_to for disk in voting}
        rest = held.keys() - {self.node_id}
        needed = majority(len(ids))
        if len(rest) < needed and self.node_id in ids:
            reason = (
                f"Outage: without node {self.node_id}, {len(rest)} of {needed} voters that are needed run, so nothing "
                "can be written until it is back. No committed record is lost."
            )
            return self.permission(Verdict.NO, reason, *self.start_more())
        near = {node_id for node_id in rest if held[node_id] + NEAR_RECORDS >= self.safety.low}
        unread = rest & {disk.node_id for disk in self.running if not disk.is_captured}
        if len(near) < needed <= len(near | unread) and self.node_id in ids:
            disks = nouns("node", sorted(unread - near))
            reason = (
                f"It depends on the disks of {disks}, which nothing here shows: whether they lag, so that writes wait."
            )
            step = f"Copy the disks of {disks} below {shlex.quote(self.question.path)}, then: {self.command()}"
            return self.permission(Verdict.UNDECIDED, reason, step)
        if len(near) < needed and self.node_id in ids:
            behind = listed(sorted(rest - near))
            reason = (
                f"Stall: voters {behind} lag more than {NEAR_RECORDS} records behind offset {self.safety.low}, so "
                f"writes wait for them while node {self.node_id} is away. No committed record is lost."
            )
            return self.permission(Verdict.NO, reason, *self.check_quorum("--replication"))
        return started

    def _wipe(self) -> Permission:
        if self.voters is not None and self.voters.ids == {self.node_id}:
            reason = f"Node {self.node_id} is the only voter: its disk is all of the cluster's metadata."
            return self.permission(Verdict.NO, reason, *self.second_voter())
        own = [disk for disk in self.running if disk.node_id == self.node_id]
        known_to = max(
            [self.safety.newest_epoch if disk.state is None else disk.state.epoch for disk in own], default=-1
        )
        emptied, sure = self.safety.after_wipe(self.node_id, self.running, known_to)
        doubt = self.doubt(emptied, sure)
        if doubt is not None:
            return replace(doubt, next_steps=self.replace_voter() or doubt.next_steps)
        ids = self.voters.ids - {self.node_id} if self.voters else frozenset()
        beyond = {
            disk.node_id
            for disk in self.safety.disks
            if disk.node_id in ids - self.question.gone and self.votes(disk)
            if disk.state is not None and disk.state.epoch > known_to
        }
        needed = majority(len(ids) + 1)
        if len(beyond) < needed:
            reason = (
                f"Node {self.node_id} may have voted in epoch {known_to}, and its empty disk could vote there again: "
                f"{len(beyond)} of {needed} other voters that are needed have persisted a later epoch."
            )
            steps = self.replace_voter() or (
                f"Stop node {self.node_id}, restart the leading controller so that a later epoch begins, and copy all "
                f"other voters again: {self.command()}",
            )
            return self.permission(Verdict.UNDECIDED, reason, *steps)
        reason = (
            f"A majority without node {self.node_id} holds every committed record and has passed epoch {known_to}, "
            "the last in which it may have voted."
        )
        return self.permission(Verdict.YES, reason, *self.replace_voter())

    def _format(self) -> Permission:
        """With its directory id a voter of a dynamic quorum loses its vote; one of a static quorum votes on, empty."""
        if not self.is_dynamic:
            wiped = self._wipe()
            if wiped.verdict is not Verdict.YES:
                return wiped
            return replace(wiped, next_steps=(*wiped.next_steps, *self.format_steps()))
        answer = self._delete_volume()
        if answer.verdict is not Verdict.YES:
            return answer
        reason = f"A formatted disk has a new directory id: node {self.node_id} follows, and votes once it is added."
        steps = self.replace_voter() or tuple(self.format_steps())
        return replace(answer, reason=f"{reason} {answer.reason}", next_steps=steps)

    def _scale_in(self) -> Permission:
        voters = self.voters
        if voters is None or self.node_id not in voters.ids:
            if voters is not None and self.is_dynamic and voters.from_offset >= self.safety.low:
                reason = f"Node {self.node_id} left the voters at offset {voters.from_offset}, which may yet be undone."
                again = f"Copy the voters again, then: {self.command()}"
                return self.permission(Verdict.UNDECIDED, reason, *self.check_quorum(), again)
            reason = f"Node {self.node_id} is no voter now: there is nothing to remove."
            return self.permission(Verdict.YES, reason, *self.leave_steps())
        rest = voters.ids - {self.node_id}
        if not rest or not self.is_dynamic:
            steps = () if self.is_dynamic else (self.raise_kraft_version(),)
            return self.permission(Verdict.NO, f"Node {self.node_id} is the only voter: add another one first.", *steps)
        running = {disk.node_id for disk in self.running if disk.node_id in rest and self.votes(disk)}
        if len(running) < majority(len(rest)):
            reason = (
                f"{len(running)} of the {majority(len(rest))} other voters that are needed run: the removal could not "
                "be committed."
            )
            return self.permission(Verdict.NO, reason, *self.start_more())
        epoch, leader = self.leader()
        if leader is None:
            reason = f"No captured disk names a leader of epoch {epoch}: without one no voter can be removed."
            return self.permission(Verdict.NO, reason, *self.start_more())
        start = self.safety.chain.leaders.get(epoch)
        if start is None or start.offset >= self.safety.low:
            reason = (
                f"Node {leader} leads epoch {epoch}, which is not proven committed: it refuses changes of the voters "
                "until it is."
            )
            return self.permission(Verdict.UNDECIDED, reason, *self.check_quorum())
        if voters.from_offset >= self.safety.low:
            reason = (
                f"The voter set at offset {voters.from_offset} is not proven committed, and the leader refuses a "
                "second change before it is (KIP-853)."
            )
            again = f"Once it is, copy the voters again, then: {self.command()}"
            return self.permission(Verdict.UNDECIDED, reason, *self.check_quorum(), again)
        rest_disks = [disk for disk in self.running if disk.node_id != self.node_id]
        # Until it is removed it runs and votes too, unless nothing shows its disk.
        before = [disk for disk in self.running if disk.node_id != self.node_id or disk.is_captured]
        doubt = self.doubt(rest_disks) or self.doubt(before)
        if doubt is not None:
            return doubt
        left = f"{nouns('voter', sorted(running))} remain{'s' * (len(running) == 1)}"
        spare = len(rest) - majority(len(rest))
        may_fail = f"Of {len(rest)} voters {spare or 'none'} may fail" if len(rest) > 1 else "Its disk is all there is"
        reason = f"Node {leader} leads epoch {epoch}, which is committed, and {left}. {may_fail} then."
        return self.permission(Verdict.YES, reason, self.remove_command(voters), *self.leave_steps())

    def _static_scale_in(self, answer: Permission) -> Permission:
        """At kraft.version 0 no command takes a voter out; `answer` is about one that no log names as a voter."""
        configured = configured_voters(self.history)
        voters = self.question.voters or configured.voters | (self.voters.ids if self.voters else frozenset())
        rest = voters - {self.node_id}
        if not rest or self.node_id not in voters:
            return answer
        if configured.are_different and not self.question.voters:
            reason = f"Nodes go by different voters: {configured.sets_text}."
            return self.permission(Verdict.NO, reason, f"Set it alike on {listed(configured.suggested)} first.")
        reason = (
            "At kraft.version 0 the voters are those of controller.quorum.voters on every node: remove-controller "
            "is refused, and while one node reads the old set and another the new one, each set can elect a leader."
        )
        static = (
            f"Or by configuration: stop all controllers, set controller.quorum.voters on {listed(sorted(rest))} to "
            f"these alone, leave node {self.node_id} stopped with its disk, and set it on the brokers last: "
            f"{self.command(Action.START, min(rest), pasted_ids(self.question.stopped | {self.node_id}), rest)}"
        )
        return self.permission(Verdict.NO, reason, self.raise_kraft_version(), static)

    def _delete_volume(self) -> Permission:
        ids = self.voters.ids if self.voters else frozenset()
        rest = [disk for disk in self.safety.disks if disk.node_id not in self.question.gone | {self.node_id}]
        remaining = sorted({disk.node_id for disk in filter(self.votes, rest)})
        needed = majority(len(ids))
        if self.node_id in ids and len(remaining) < needed:
            reason = (
                f"{len(remaining)} of {needed} voters that are needed would be left: the quorum could never elect a "
                "leader again."
            )
            lost = pasted_ids(self.question.gone | {self.node_id})
            plan = f"kraft-audit rescue --plan {shlex.quote(self.question.path)} --gone {lost}"
            return self.permission(Verdict.NO, reason, "Keep its disk as it is.", f"If that is lost too: {plan}")
        doubt = self.doubt(rest)
        if doubt is not None:
            return doubt
        read = [disk for disk in self.safety.disks if disk.is_captured]
        if self.safety.can_elect(read) and not self.safety.can_elect(rest):
            reason = (
                "The disks that would be left go by voter sets of which they are no majority: no leader could ever be "
                "elected again."
            )
            return self.permission(Verdict.NO, reason, *self.check_quorum())
        if self.node_id not in ids:
            return self.permission(Verdict.YES, f"Node {self.node_id} is no voter now, and the others lose nothing.")
        reason = f"Voters {listed(remaining)} remain, and no election among them can lose a committed record."
        if not self.is_dynamic and self._wipe().verdict is not Verdict.YES:
            reason += (
                f" Only while nothing starts under id {self.node_id}: at kraft.version 0 an empty volume votes there."
            )
            return self.permission(Verdict.YES, reason, f"If one may come back, ask: {self.command(Action.WIPE)}")
        return self.permission(Verdict.YES, reason, *self.replace_voter())
