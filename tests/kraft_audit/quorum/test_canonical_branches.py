"""Which pieces of logs came before a canonical log that begins after a gap, beside the log as it was written."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kraft_audit.capture.branches import Branch, LogEnd
from kraft_audit.capture.plan import SilverPosition
from kraft_audit.capture.survey import BranchEpoch, EarlierLog, Survey, SurveyedSnapshot
from kraft_audit.quorum.canonical_branches import CanonicalBranches, RecordId, tips
from kraft_audit.quorum.divergence import divergences, proven_order
from kraft_audit.quorum.quorum_tables import quorum_rows
from tests.builders.logs import Log, write_node
from tests.builders.readings import surveyed

ACCEPTED: Any = SimpleNamespace(is_accepted=True)


@dataclass
class Logs:
    """Logs as lists of epochs by offset, put together to a survey branch by branch."""

    survey: Survey

    @classmethod
    def empty(cls) -> Logs:
        return cls(Survey([], [], []))

    def add(self, parent: int | None, from_offset: int, epochs: Sequence[int], *, is_end: bool = True) -> int:
        number, to_offset = len(self.survey.branches), from_offset + len(epochs)
        self.survey.branches.append(Branch(number, parent, from_offset, number, to_offset, epochs[-1]))
        offset = from_offset
        for epoch, records in groupby(epochs):
            end = offset + len(list(records))
            self.survey.epochs.append(BranchEpoch(number, epoch, offset, end, 0, offset + 1))
            self.survey.branches[number].epochs.append((epoch, offset))
            offset = end
        if is_end:
            self.survey.replicas.append(ACCEPTED)
            self.survey.ends.append(LogEnd(len(self.survey.ends), number, to_offset, epochs[-1]))
        return number

    def canonical(self, branch: int, committed: Sequence[RecordId] = ()) -> CanonicalBranches:
        return CanonicalBranches.ending_at(self.survey, branch, self.survey.branches[branch].to_offset, committed)


@pytest.mark.parametrize(
    ("start", "snapshot_epoch", "canonical_to"),
    [(0, 8, 161), (0, None, 161), (0, 9, None), (161, 8, None)],
)
def test_what_lies_below_the_canonical_log_came_before_it(
    start: int, snapshot_epoch: int | None, canonical_to: int | None
) -> None:
    """A piece [start, 163), and a canonical log from 161 on that continues a snapshot: of the piece's epoch, or not."""
    logs = Logs.empty()
    piece = logs.add(None, start, [8] * (161 - start) + [14] * 2)
    newest = logs.add(None, 161, [15] * 65)
    if snapshot_epoch is not None:
        logs.survey.snapshots = [SurveyedSnapshot("s", 161, snapshot_epoch, (0,), ())]
    canonical = logs.canonical(newest)
    assert canonical.ends.get(piece) == canonical_to
    assert canonical.is_piece(logs.survey.ends[piece]) == (canonical_to is not None)
    assert canonical.leaves_at(logs.survey.ends[piece]) == (canonical_to or start)
    assert canonical.leaves_at(logs.survey.ends[newest]) is None
    assert not logs.canonical(piece).is_piece(logs.survey.ends[piece])


def test_a_piece_that_an_earlier_reading_saw_part_is_canonical_to_there() -> None:
    """A log ends where the canonical one begins, and an earlier reading saw what stood before that: another epoch."""
    logs = Logs.empty()
    piece = logs.add(None, 0, [3] * 40)
    newest = logs.add(None, 40, [9] * 54)
    assert logs.canonical(newest).ends[piece] == 40
    seen = (
        BranchEpoch(newest, 3, 0, 38, 0, 1),
        BranchEpoch(newest, 5, 38, 39, 38, 39),
        BranchEpoch(newest, 7, 39, 40, 39, 40),
    )
    logs.survey.earlier_logs = [EarlierLog(newest, seen)]
    canonical = logs.canonical(newest)
    assert canonical.ends[piece] == 38
    assert canonical.leaves_at(logs.survey.ends[piece]) == 38


@pytest.mark.parametrize(("low_epoch", "path"), [(2, (0,)), (3, ())])
def test_the_replayed_log_goes_on_where_no_round_has_a_canonical_one(low_epoch: int, path: tuple[int, ...]) -> None:
    """A snapshot ends after all logs, so that none is canonical: what one of them adds is still of the same log."""
    logs = Logs.empty()
    number = logs.add(None, 0, [1, 2] + [5] * 10)
    replayed = SilverPosition(settled_offset=2, to_offset=2, low=2, low_epoch=low_epoch, began_at=0)
    canonical = CanonicalBranches.of(logs.survey, [], replayed)
    assert canonical.path == path
    assert canonical.leaves_at(logs.survey.ends[number]) == (None if path else 0)
    assert CanonicalBranches.of(logs.survey, []).path == ()


def test_a_piece_below_is_canonical_to_where_the_canonical_log_starts(tmp_path: Path) -> None:
    """It starts at 6, and is itself two branches: what node 1 holds from 6 on was cut, wherever they part."""
    old = Log()
    old.lead(1, epoch=1)
    for number in range(7):
        old.topic(f"topic-{number}")
    write_node(tmp_path, 1, {0: old.content})
    for node_id, last_epoch in ((2, 3), (3, 4)):
        newer = Log(next_offset=6)
        newer.lead(2, epoch=2)
        for number in range(5):
            newer.topic(f"new-{number}")
        newer.lead(node_id, epoch=last_epoch)
        write_node(tmp_path, node_id, {6: newer.content})
    plan, found = surveyed(tmp_path)
    rows = quorum_rows(found, plan)["leader_epochs"]
    canonical = [(row["epoch"], row["from_offset"], row["to_offset"]) for row in rows if row["canonical"]]
    assert sorted(row for row in canonical if row[1] is not None) == [(1, 0, 6), (2, 6, 12), (4, 12, 13)]


def test_of_pieces_that_parted_one_came_before_the_canonical_log(tmp_path: Path) -> None:
    """Node 1 led epoch 1 to offset 8, of which nodes 2 and 3 cut what follows 4; all that node 4 holds is from 9 on."""
    trunk = Log()
    trunk.lead(1, epoch=1)
    for number in range(3):
        trunk.topic(f"topic-{number}")
    cut, later = trunk.copy(), trunk.copy()
    for number in range(4):
        cut.topic(f"cut-{number}")
    later.lead(2, epoch=2)
    later.topic("later")
    newest = Log(next_offset=9)
    newest.lead(2, epoch=3)
    newest.topic("newest")
    for node_id, start, log in ((1, 0, cut), (2, 0, later), (4, 9, newest)):
        write_node(tmp_path, node_id, {start: log.content})
    plan, found = surveyed(tmp_path)
    rows = quorum_rows(found, plan)["leader_epochs"]
    assert [(row["epoch"], row["from_offset"], row["to_offset"], row["canonical"]) for row in rows] == [
        (1, 0, 4, True),
        (2, 4, 6, True),
        (3, 9, 11, True),
    ]
    (divergence,) = divergences(found, plan)
    assert [(branch.epoch, branch.is_canonical) for branch in divergence.branches] == [(1, False), (2, True)]
    order = proven_order(found, plan)
    assert order.epoch_starts == ((1, 0), (2, 4), (3, 9))
    (lost,) = order.lost
    assert (lost.from_offset, lost.to_offset, lost.parted_at, lost.canonical_epoch) == (4, 8, 4, 2)


def test_the_canonical_log_comes_first_though_another_continues_it() -> None:
    """A branch that others continue has no rows of its own, except the canonical one: its end is the log's end."""
    parents = (None, 0, 1, 0, 3)  # 2 goes on from the canonical branch 1, 4 from 3
    branches = [Branch(n, parent, 10 * n, n, 10 * n + 10, 1) for n, parent in enumerate(parents)]
    ends = [LogEnd(0, 3, 35, 1), LogEnd(1, 4, 50, 1), LogEnd(2, 2, 30, 1), LogEnd(3, 1, 15, 1), LogEnd(4, 1, 20, 1)]
    accepted: Any = [SimpleNamespace(is_accepted=number != 1) for number in range(6)]
    ends.append(LogEnd(5, 4, 45, 1))
    found = Survey(accepted, branches, ends)
    assert [(end.branch, end.end_offset) for end in tips(found, [0, 1])] == [(1, 20), (2, 30), (4, 45)]
    assert [end.branch for end in tips(found, [0, 1, 2])] == [2, 4]
    assert [end.branch for end in tips(found, [])] == [2, 4]


@dataclass
class Written:
    """A log as it was written, epochs by offset, of which [0, held) and [start, end) are left, and logs beside it.

    `cut`: (offset at which it parted, epochs since).
    """

    epochs: list[int]
    held: int
    start: int
    cut: list[tuple[int, list[int]]]
    known: list[RecordId]


def written(chance: random.Random) -> Written:
    """Leaders append to their own epoch alone; those that were not followed wrote what was cut."""
    led = [(2 * number + 1, chance.randint(1, 12)) for number in range(chance.randint(2, 8))]
    epochs = [epoch for epoch, count in led for _ in range(count)]
    start = chance.randint(1, len(epochs) - 1)
    held = chance.randint(1, start)
    cut = []
    for parted_at in sorted(chance.sample(range(1, held + 1), chance.randint(0, min(3, held)))):
        before = epochs[parted_at - 1]
        is_last = parted_at < len(epochs) and epochs[parted_at] != before
        own = chance.choice([before if is_last else before + 1, before + 1, 100 + 2 * len(cut)])
        cut.append((parted_at, [own] * chance.randint(1, 20)))
    known = [(offset, epochs[offset]) for offset in range(start) if chance.random() < 0.1]
    return Written(epochs, held, start, cut, known)


def branches_of(log: Written) -> tuple[Logs, int, list[int], list[int]]:
    """The survey; the number of the canonical branch, those of the piece before it, those of what was cut."""
    logs, trunk, side, parent, at = Logs.empty(), [], [], None, 0
    for parted_at, epochs in log.cut:
        parent = logs.add(parent, at, log.epochs[at:parted_at], is_end=False)
        trunk.append(parent)
        side.append(logs.add(parent, parted_at, epochs))
        at = parted_at
    if at < log.held:
        trunk.append(logs.add(parent, at, log.epochs[at : log.held]))
    return logs, logs.add(None, log.start, log.epochs[log.start :]), trunk, side


def confirmed(log: Written) -> Iterator[int]:
    """Offsets to which what is left of the log is known to be it: an epoch that it has later is all its own before."""
    yield 0
    for offset, epoch in [*log.known, (log.start, log.epochs[log.start])]:
        yield from (at + 1 for at in range(min(offset + 1, log.held)) if log.epochs[at] == epoch)


def test_what_is_known_of_the_log_is_never_taken_for_cut() -> None:
    chance, decided = random.Random(5), 0  # noqa: S311
    for _ in range(2_000):
        log = written(chance)
        logs, newest, trunk, side = branches_of(log)
        canonical = logs.canonical(newest, log.known)
        sure = max(confirmed(log))
        parted = [number for (at, _), number in zip(log.cut, side, strict=True) if at < sure]
        decided += bool(parted)
        assert not canonical.ends.keys() & set(parted), log
        held = [number for number in trunk if logs.survey.branches[number].from_offset < sure]
        assert all(canonical.ends[number] >= min(logs.survey.branches[number].to_offset, sure) for number in held), log
        spans = [(epoch.from_offset, epoch.to_offset) for epoch in canonical.epochs]
        assert all(end <= begin for (_, end), (begin, _) in pairwise(spans)), log
    assert decided > 200
