"""What an earlier survey knew of logs that Kafka has cut short since: who led, and which voter sets there were."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from kraft_audit.capture.branches import Branch, LogEnd
from kraft_audit.capture.decoded_records import ControlRecord
from kraft_audit.capture.earlier_survey import EarlierSurvey, earlier_logs
from kraft_audit.capture.path_plans import plan_path
from kraft_audit.capture.plan import ClusterPlan
from kraft_audit.capture.survey import BranchEpoch, Survey, SurveyedSnapshot
from kraft_audit.quorum.rounds import chain_to, static_voters
from kraft_audit.reading import ClusterReading, ReadingSettings
from kraft_codec.records.redaction import Redactor
from kraft_codec.schemas import Dialect
from kraft_codec.storage.opener import open_storage
from tests.builders.hourly_disks import LOG_DIR, HourlyDisks, dialect_of
from tests.builders.hourly_seeds import SMALL
from tests.builders.memory_lake import KEY

RUNS: Final = (("random", 2), ("random-kip856", 1), ("random-storm", 3), ("random-storm", 137), ("random-kip642", 2))
"""Kind of run and seed. In the fourth one a log begins after the LeaderChange of an epoch with one other batch."""


def surveyed(disks: HourlyDisks, known: EarlierSurvey | None = None) -> tuple[ClusterPlan, Survey, EarlierSurvey]:
    """A survey of all disks, and what is kept of it, as JSON holds it."""
    plans = plan_path(str(disks.root), open_storage=open_storage, captured_at_ms=1, dialect=dialect_of(disks.kind))
    plan = max(plans, key=lambda each: len(each.replicas))
    with ClusterReading(plan, ReadingSettings(open_storage, Redactor(KEY)), earlier=known) as reading:
        kept = EarlierSurvey.of(reading.survey)
        earlier = EarlierSurvey.from_json(json.loads(json.dumps(kept.as_json())))
        assert earlier == kept
        return plan, reading.survey, earlier


def chains(plan: ClusterPlan, survey: Survey) -> dict[str, Any]:
    """What each disk shows of its log, without the number that its branch happens to have."""
    static = static_voters(survey, plan)
    ends = {survey.replicas[end.replica].plan.path: chain_to(survey, plan, end, static) for end in survey.ends}
    return {path: chain and replace(chain, number=None) for path, chain in ends.items()}


def clean(disks: HourlyDisks) -> None:
    """Deletes all segments of each disk but its last one."""
    for log_dir in disks.root.glob(f"*/{LOG_DIR}"):
        for segment in sorted(log_dir.glob("*.log"))[:-1]:
            segment.unlink()


@pytest.mark.parametrize(("kind", "seed"), RUNS)
def test_logs_are_known_as_they_were_before_segments_were_deleted(kind: str, seed: int, tmp_path: Path) -> None:
    disks = HourlyDisks(kind, seed, tmp_path / "disks", events=SMALL)
    disks.pass_hour(len(disks.captures) - 1)
    plan, whole, earlier = surveyed(disks)
    clean(disks)
    later, survey, later_survey = surveyed(disks, earlier)
    assert any(branch.from_offset > 0 for branch in survey.branches if branch.parent is None)
    assert chains(later, survey) == chains(plan, whole)
    # Nothing is left of it but what the survey of the hour before knew.
    assert chains(later, surveyed(disks, later_survey)[1]) == chains(plan, whole)
    assert chains(later, surveyed(disks)[1]) != chains(plan, whole)


@pytest.mark.parametrize("erased", [{"branch": 99}, {"epochs": ()}, {"controls": ()}], ids=str)
def test_all_that_is_kept_of_it_is_needed(erased: dict[str, Any], tmp_path: Path) -> None:
    disks = HourlyDisks("random-kip856", 1, tmp_path / "disks")
    disks.pass_hour(len(disks.captures) - 1)
    plan, whole, earlier = surveyed(disks)
    clean(disks)
    later_survey = surveyed(disks, earlier)[2]
    logs = tuple(replace(log, **erased) for log in later_survey.earlier_logs)
    assert chains(plan, surveyed(disks, replace(later_survey, earlier_logs=logs))[1]) != chains(plan, whole)


def test_a_log_of_another_leader_is_not_taken_for_it(tmp_path: Path) -> None:
    """Neither one that has another epoch where the disks begin, nor one of two that claim the same epoch there."""
    disks = HourlyDisks("random-kip856", 1, tmp_path / "disks")
    disks.pass_hour(len(disks.captures) - 1)
    earlier = surveyed(disks)[2]
    clean(disks)
    assert surveyed(disks, earlier)[1].earlier_logs
    other_epochs = tuple(replace(run, epoch=run.epoch + 100) for run in earlier.epochs)
    assert not surveyed(disks, replace(earlier, epochs=other_epochs))[1].earlier_logs
    two = tuple(replace(run, branch=run.branch + number) for run in earlier.epochs for number in (0, 1))
    branches = (*earlier.branches, *(replace(each, number=each.number + 1) for each in earlier.branches[-1:]))
    assert not surveyed(disks, replace(earlier, epochs=two, branches=branches))[1].earlier_logs


PARTED: Final = EarlierSurvey(
    (
        Branch(0, None, 0, 7, 90, 3, [(3, 0)]),
        Branch(1, 0, 90, 8, 120, 6, [(5, 90), (6, 110)]),
        Branch(2, 0, 90, 9, 110, 7, [(7, 90)]),
    ),
    (
        BranchEpoch(0, 3, 0, 90, 1, 1),
        BranchEpoch(1, 5, 90, 110, 1, 91),
        BranchEpoch(2, 7, 90, 110, 1, 91),
        BranchEpoch(1, 6, 110, 120, 1, 111),
    ),
    (),
)
"""Logs that parted at 90: one in epoch 5, and 6 from 110 on, the other one in epoch 7."""


def histories(
    first_epochs: tuple[int, ...],
    snapshots: tuple[tuple[int, tuple[int, ...]], ...],
    *,
    offset: int = 100,
    earlier: EarlierSurvey = PARTED,
) -> dict[int, list[tuple[int, int, int]]]:
    """The (epoch, from, to) that are known of logs, each of one replica, that begin at an offset in these epochs.

    `snapshots` end there: (epoch, replicas).
    """
    numbered = list(enumerate(first_epochs))
    survey = Survey(
        [],
        [Branch(number, None, offset, 20 + number, 130, epoch, [(epoch, offset)]) for number, epoch in numbered],
        [LogEnd(number, number, 130, epoch) for number, epoch in numbered],
        [BranchEpoch(number, epoch, offset, 130, 1, offset + 1) for number, epoch in numbered],
        snapshots=[
            SurveyedSnapshot(f"{offset:020d}-{epoch:010d}", offset, epoch, holders, ()) for epoch, holders in snapshots
        ],
    )
    logs = earlier_logs(earlier, survey)
    return {log.branch: [(run.epoch, run.from_offset, run.to_offset) for run in log.epochs] for log in logs}


def test_each_of_two_logs_continues_the_one_that_its_own_snapshot_ends() -> None:
    own = {0: [(3, 0, 90), (5, 90, 100)], 1: [(3, 0, 90), (7, 90, 100)]}
    assert histories((6, 8), ((5, (0,)), (7, (1,)))) == own
    assert histories((8, 8), ((5, (0,)), (7, (1,)))) == own
    # A replica without a log may hold the snapshot as well; what only such a replica holds is of no known log.
    assert histories((6, 8), ((5, (0, 2)), (7, (2,)))) == {0: own[0]}


def test_epochs_of_a_log_never_go_back() -> None:
    """Neither after a snapshot of a later epoch, nor where a kept log did."""
    assert histories((6,), ((7, (0,)),)) == {}
    backwards = tuple(replace(run, epoch=9) if run.epoch == 5 else run for run in PARTED.epochs)
    assert histories((6,), (), offset=110) == {0: [(3, 0, 90), (5, 90, 110)]}
    assert histories((6,), (), offset=110, earlier=replace(PARTED, epochs=backwards)) == {}


@pytest.mark.parametrize(
    ("first_epoch", "snapshot_epochs", "offset"),
    [
        pytest.param(8, (5, 7), 100, id="two snapshots name two logs"),
        pytest.param(8, (4, 7), 100, id="one of two snapshots names a log"),
        pytest.param(7, (5,), 100, id="the first record and a snapshot name two logs"),
        pytest.param(7, (4,), 100, id="a snapshot names another record than the log of the first one has"),
        pytest.param(7, (4,), 110, id="a snapshot names another record than the log of the same epoch has"),
        pytest.param(7, (5,), 110, id="a snapshot and the epoch name two logs"),
    ],
)
def test_nothing_is_known_where_two_logs_may_be_meant(
    first_epoch: int, snapshot_epochs: tuple[int, ...], offset: int
) -> None:
    assert histories((first_epoch,), tuple((epoch, (0,)) for epoch in snapshot_epochs), offset=offset) == {}
    assert histories((first_epoch,), ((7, (0,)),), offset=offset) == {0: [(3, 0, 90), (7, 90, offset)]}


def test_the_first_voter_set_comes_from_the_snapshot_that_the_log_began_with() -> None:
    """Disks and their snapshots begin at 100 by now; what was kept began at 40, with a snapshot of two voters."""
    plan = ClusterPlan(0, "", "c", Dialect.KIP856, ())
    voters = [ControlRecord(n, 1, n, "ADD_VOTER", {"voter_id": n, "voter_uuid": bytes([n] * 16)}) for n in (1, 2, 3)]
    snapshots = tuple(
        SurveyedSnapshot(f"{end:020d}-{1:010d}", end, 1, (), tuple(voters[:count]))
        for end, count in ((40, 2), (80, 3), (90, 3))
    )
    own = Branch(0, None, 40, 7, 120, 1, [(1, 40)])
    earlier = EarlierSurvey(
        (own,), (BranchEpoch(0, 1, 40, 120, 1, 41),), ((0, replace(voters[2], offset=70)),), snapshots
    )
    found = Survey([], [replace(own, from_offset=100)], [LogEnd(0, 0, 130, 1)], [BranchEpoch(0, 1, 100, 130, 1, 101)])
    for _ in range(2):
        found.earlier_logs = list(earlier_logs(earlier, found))
        chain = chain_to(found, plan, found.ends[0], ())
        assert chain is not None
        sets = [(each.from_offset, sorted(each.ids)) for each in chain.voter_sets]
        assert sets == [(39, [1, 2]), (70, [1, 2, 3])]
        assert [each.end_offset for each in found.earlier_logs[0].snapshots] == [40, 80]
        # The next survey has neither of them.
        earlier = EarlierSurvey(tuple(found.branches), tuple(found.epochs), (), earlier_logs=tuple(found.earlier_logs))


def test_nothing_is_kept_of_logs_that_part_too_often() -> None:
    found = Survey([], list(PARTED.branches), [], list(PARTED.epochs))
    assert EarlierSurvey.of(found) == PARTED
    assert EarlierSurvey.of(replace(found, is_overflowing=True)) == EarlierSurvey((), (), ())


@pytest.mark.parametrize("name", ["branches", "epochs", "controls", "snapshots", "earlier_logs"])
def test_json_without_a_part_is_refused(name: str) -> None:
    fields = PARTED.as_json()
    del fields[name]
    with pytest.raises(LookupError):
        EarlierSurvey.from_json(fields)
