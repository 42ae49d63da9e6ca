"""What `may-i` says of random quorums on disk, against every election that the truth allows.

A yes is unsound where some schedule of elections loses a committed record once it is followed, its printed condition
met, where no disk is left that holds all that is committed, or no majority of the voters; a no that names an election
must lose at once. Undecided is needless where the disks show all that matters and
no schedule loses anything that may be committed.
"""

from __future__ import annotations

import random
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import kraft_audit
from kraft_audit.cluster import Cluster
from kraft_audit.recovery.may_i.permission import Action, Permission, Question, RollQuestion, Verdict
from kraft_codec.errors import ChoiceError
from tests.builders.election_model import Disk, Moment, loss_within
from tests.builders.quorum_states import OBSERVER, QuorumOnDisk, Voters
from tests.witness.audited import FAST_FOLDER

ACTIONS: Final = (Action.START, Action.RESTART, Action.WIPE, Action.FORMAT, Action.SCALE_IN)
CONDITION: Final = re.compile(r"while controller\.quorum\.voters on ([\d, and]+) still reads ([\d,]+)\.")
LOST: Final = re.compile(r"Node (\d+) could be elected by ([\d, and]+), and lacks committed records")
NEEDLESS_MAX: Final = 0.05
"""Of answers about quorums whose disks were all read; at kraft.version 0 none is."""
COMMANDS: Final = ("kraft-audit ", "kafka-")


@dataclass(frozen=True, slots=True)
class Asked:
    """A question with its answer, and the nodes that run once it is followed."""

    question: Question
    answer: Permission
    running: frozenset[int]

    @property
    def text(self) -> str:
        question = self.question
        away = " --standalone" * question.is_standalone + "".join(
            f" --{name} {','.join(map(str, sorted(ids)))}"
            for name, ids in (("gone", question.gone), ("stopped", question.stopped), ("voters", question.voters))
            if ids
        )
        return f"{question.action} {question.node_id}{away}: {self.answer.verdict}. {self.answer.reason}"


def asked(seed: int, counts: Counter[str], *, steps: int = 2) -> Iterator[str]:
    """Makes one state and asks about its nodes; every wrong answer as a sentence."""
    with tempfile.TemporaryDirectory(prefix="kraft-states-", dir=FAST_FOLDER) as folder:
        quorum = QuorumOnDisk(seed, Path(folder))
        with kraft_audit.open(folder) as clusters:
            histories = list(clusters)
            for question in questions(quorum, random.Random(seed)):  # noqa: S311
                answers = [(cluster, answer) for cluster in histories if (answer := _answer(cluster, question))]
                if not answers:  # no captured disk names that node
                    assert question.node_id not in quorum.captured
                    continue
                cluster, answer = max(answers, key=lambda each: each[1].verdict.rank)
                one = Asked(question, answer, _running(quorum, question))
                counts[f"{one.question.action} {one.answer.verdict}"] += 1
                for text in _problems(quorum, cluster, one, counts, steps):
                    yield f"seed {seed}, {quorum.configurations}: {text} [{one.text}]"
            if len(histories) == 1:
                for text in _rolled(quorum, histories[0], random.Random(seed), counts, steps):  # noqa: S311
                    yield f"seed {seed}, {quorum.configurations}: {text}"


def _answer(cluster: Cluster, question: Question) -> Permission | None:
    try:
        return cluster.may_i(question)
    except ChoiceError:
        return None


def _rolled(
    quorum: QuorumOnDisk, cluster: Cluster, chance: random.Random, counts: Counter[str], steps: int
) -> Iterator[str]:
    """A roll from its first node to its last, as far as it gets: each yes is one to restart that node."""
    restarted: frozenset[int] = frozenset()
    gone = frozenset(node for node in quorum.captured - {OBSERVER} if chance.random() < 0.05)
    for _ in range(len(quorum.truth)):
        roll = RollQuestion("captures", gone=gone, restarted=restarted)
        answer = cluster.may_i_roll(roll)
        counts[f"roll {answer.verdict}"] += 1
        if answer.next_node is None:
            break
        restart = roll.restart(answer.next_node)
        one = Asked(restart, answer, _running(quorum, restart))
        yield from (f"{text} [roll: {one.text}]" for text in _problems(quorum, cluster, one, counts, steps))
        restarted |= {answer.next_node}


def questions(quorum: QuorumOnDisk, chance: random.Random) -> Iterator[Question]:
    """One of each action about nodes by chance, others stopped or gone; at times with what the nodes read."""
    known = {node for voters in _shown(quorum) for node in voters}
    nodes = sorted((quorum.captured | known & quorum.truth.keys()) - {OBSERVER})
    for action in ACTIONS:
        node_id = chance.choice(nodes)
        away = [node for node in nodes if node != node_id and chance.random() < 0.3]
        gone = frozenset(node for node in away if chance.random() < 0.3)
        sets = {known.configured for known in quorum.truth.values() if known.node.node_id in nodes}
        says = quorum.static and len(sets) == 1 and sets != {()} and chance.random() < 0.4
        voters = frozenset(sets.pop()) if says else frozenset[int]()
        question = Question(action, node_id, "captures", gone=gone, stopped=frozenset(away) - gone, voters=voters)
        yield question
        if action is Action.FORMAT:
            yield replace(question, is_standalone=True)


def _running(quorum: QuorumOnDisk, question: Question) -> frozenset[int]:
    """Who runs by the question: what nobody can know of is left out, as is a spare node that was not read."""
    known = quorum.captured | {node for voters in _shown(quorum) for node in voters} | question.voters
    nodes = (known & quorum.truth.keys()) - {OBSERVER}
    return frozenset(nodes - question.gone - question.stopped) | {question.node_id}


def _shown(quorum: QuorumOnDisk) -> list[Voters]:
    """The sets that captured disks show."""
    truths = [quorum.truth[node] for node in quorum.captured]
    if quorum.static:
        return [known.shown for known in truths if known.shown is not None] + [quorum.raft.first]
    return [known.voters(static=False) or () for known in truths] + [quorum.raft.first]


def _problems(quorum: QuorumOnDisk, cluster: Cluster, one: Asked, counts: Counter[str], steps: int) -> Iterator[str]:
    is_open = _is_open(quorum, one)
    counts["all read"] += not is_open
    if one.answer.verdict is Verdict.YES:
        yield from _unsound(quorum, one, counts, steps)
    elif one.answer.verdict is Verdict.NO:
        yield from _unfounded(quorum, one, counts)
    else:
        _needless(quorum, cluster, one, counts, is_open=is_open)
        if not any(command in step for step in one.answer.next_steps for command in COMMANDS):
            yield "undecided without a command that goes on"


def _after(quorum: QuorumOnDisk, one: Asked, running: frozenset[int]) -> Moment:
    """The disks that run once the answer is followed, its condition met."""
    configured: dict[int, Voters] = {}
    if (condition := CONDITION.search(one.answer.reason)) is not None:
        voters = tuple(map(int, condition[2].split(",")))
        configured = {int(node): voters for node in re.findall(r"\d+", condition[1])}
    moment = quorum.moment(running, configured)
    if one.question.action is Action.SCALE_IN and "no voter" not in one.answer.reason:
        return replace(moment, disks=tuple(_removing(disk, one.question.node_id) for disk in moment.disks))
    if one.question.action is Action.FORMAT and not quorum.static:
        # Another replica, by its directory id: no voter asks it.
        return replace(moment, disks=tuple(disk for disk in moment.disks if disk.node_id != one.question.node_id))
    if one.question.action.empties_disk:
        return replace(moment, disks=tuple(_emptied(quorum, disk, one.question.node_id) for disk in moment.disks))
    return moment


def _removing(disk: Disk, node_id: int) -> Disk:
    """The leader appends the voters without this one, which runs on until that is committed."""
    if not disk.leads or node_id not in (disk.voters or ()):
        return disk
    rest = tuple(voter for voter in disk.voters or () if voter != node_id)
    return replace(disk, log=(*disk.log, (disk.epoch, "voters", rest)), voters=rest)


def _emptied(quorum: QuorumOnDisk, disk: Disk, node_id: int) -> Disk:
    if disk.node_id != node_id:
        return disk
    voters = disk.voters if quorum.static else None
    return Disk(node_id, (), 0, -1, -1, False, voters)


def _unsound(quorum: QuorumOnDisk, one: Asked, counts: Counter[str], steps: int) -> Iterator[str]:
    moment = _after(quorum, one, one.running)
    if "is no voter" in one.answer.reason:
        # What the voters may do without it is no concern of this answer.
        without = replace(moment, disks=tuple(d for d in moment.disks if d.node_id != one.question.node_id))
        if loss_within(without, steps):
            return
    counts["yes played"] += 1
    if loss_within(moment, steps):
        yield "a committed record is lost"
    if one.question.is_standalone and (quorum.committed or quorum.voter_ids() != {one.question.node_id}):
        yield "a second quorum begins"
    if one.question.action.empties_disk:
        yield from _nothing_left(quorum, one)
    if one.question.action is Action.RESTART and "is no voter" not in one.answer.reason:
        others = replace(moment, disks=tuple(d for d in moment.disks if d.node_id != one.question.node_id))
        if quorum.committed and not _can_elect(others) and "Nothing can be elected" not in one.answer.reason:
            yield "no leader can be elected meanwhile"


def _nothing_left(quorum: QuorumOnDisk, one: Asked) -> Iterator[str]:
    """Whether the disk that is emptied was the last with all that is committed, or the last but a minority."""
    others = quorum.truth.keys() - one.question.gone - {one.question.node_id}
    if not any(tuple(quorum.truth[node].node.log[: len(quorum.committed)]) == quorum.committed for node in others):
        yield "no disk is left with all that is committed"
    voters = next((known.voters(static=quorum.static) for known in quorum.truth.values() if known.node.leads), None)
    if voters and one.question.node_id in voters and not quorum.static and len(others & {*voters}) <= len(voters) // 2:
        yield "no majority of the voters is left"


def _can_elect(moment: Moment) -> bool:
    """Whether those that run are a majority of some candidate's voters and let it win."""
    for disk in moment.disks:
        voters = disk.voters or ()
        granting = [d for d in moment.disks if d.node_id in voters and disk.end >= d.end]
        if disk.node_id in voters and len(granting) > len(voters) // 2:
            return True
    return False


def _unfounded(quorum: QuorumOnDisk, one: Asked, counts: Counter[str]) -> Iterator[str]:
    reason = one.answer.reason
    if (election := LOST.search(reason)) is not None:
        counts["no played"] += 1
        voters = frozenset(map(int, re.findall(r"\d+", election[2])))
        # What a disk that was never started goes by is shown by nothing: its configuration may read what others' do.
        sets = (_as_shown(quorum, one), {node: known.configured for node, known in quorum.truth.items()})
        moments = [quorum.moment(voters, configured) for configured in sets]
        if one.question.action.empties_disk:
            moments = [
                replace(m, disks=tuple(_emptied(quorum, d, one.question.node_id) for d in m.disks)) for m in moments
            ]
        if not any(loss_within(moment, 1) for moment in moments):
            yield "the election that is named loses nothing"
    elif reason.startswith("Outage"):
        counts["outages"] += 1
        rest = quorum.moment(one.running - {one.question.node_id}, _as_shown(quorum, one))
        if None not in {quorum.truth[node].shown for node in one.running} and _can_elect(rest):
            yield "the others can elect a leader"
    elif reason.startswith("Nodes go by different voters"):
        counts["different voters"] += 1
        if len({quorum.truth[node].shown for node in quorum.captured} - {None}) < 2:
            yield "no two captured nodes name different voters"


def _as_shown(quorum: QuorumOnDisk, one: Asked) -> dict[int, Voters]:
    """The set of each node: what the question says, else its quorum-state, else the log's first leader."""
    if one.question.voters:
        return dict.fromkeys(quorum.truth, tuple(one.question.voters))
    return {node: quorum.raft.first if known.shown is None else known.shown for node, known in quorum.truth.items()}


def _is_open(quorum: QuorumOnDisk, one: Asked) -> bool:
    """Whether something that matters was not read, or is not known; a wipe wants later epochs on the others' disks."""
    shown = {quorum.truth[node].shown for node in quorum.captured}
    is_known = bool(one.question.voters) or not quorum.static or (len(shown) == 1 and shown != {()})
    votes_on = one.question.action is Action.WIPE or (one.question.action is Action.FORMAT and quorum.static)
    return None in shown or not is_known or not quorum.is_all_read or votes_on


def _needless(quorum: QuorumOnDisk, cluster: Cluster, one: Asked, counts: Counter[str], *, is_open: bool) -> None:
    """Counts an undecided answer that no schedule justifies, whatever may be committed."""
    safety, _ = cluster.start_safety
    if is_open or safety is None:
        return
    moment = quorum.moment(one.running, _as_shown(quorum, one))
    logs = (tuple(known.node.log) for known in quorum.truth.values())
    longest = max(logs, key=lambda log: (log[-1][0] if log else 0, len(log)))
    if not loss_within(replace(moment, committed=longest[: safety.high]), 3):
        counts["needless"] += 1
        counts["needless, static"] += quorum.static
