"""Which findings a declared rescue explains, and which look alike and are another loss."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kraft_audit.capture.declared_rescue import DeclaredRescue
from kraft_audit.rules.columns.declared_recovery import declared_recoveries, declared_waiver
from kraft_audit.rules.judging import check
from kraft_audit.rules.registry import rules
from kraft_audit.rules.rule_model import Case, Finding, Status, finding_of
from kraft_audit.tables.silver import WITHOUT_LEADER
from tests.builders.histories import CLUSTER_ID, T0, HistoryBuilder, directory

CUT, OLD_END, OLD_EPOCH = 30, 40, 3
OFFSET, EPOCH = 1_000_040, 1_000_003
RESCUE = DeclaredRescue(
    *(T0, CLUSTER_ID, 3, directory(3, 1), OFFSET, EPOCH, CUT, "0" * 64, 3, directory(3), "", None, "/old"),
    voters=(1, 2, 3),
    copies=((3, directory(3)),),
    newest_epoch=OLD_EPOCH,
    end_offset=OLD_END,
    lost=("topic late created",),
    lost_count=1,
    unknown_from=CUT,
)


@pytest.fixture
def rescued() -> HistoryBuilder:
    """Node 3 leads the epoch after the rescue's; the old log of one node lies beside it."""
    return with_rescue(HistoryBuilder(), RESCUE)


def with_rescue(build: HistoryBuilder, rescue: DeclaredRescue) -> HistoryBuilder:
    build.voters(1, 2, 3).voters(3, at=OFFSET - 1, epoch=EPOCH, replaced=(3,), source="snapshot")
    build.capture(
        3,
        OFFSET + 5,
        epoch=EPOCH + 1,
        directory_id=directory(3, 1),
        log_start_offset=OFFSET,
        snapshot_end_offset=OFFSET,
        snapshot_epoch=EPOCH,
        rescue=rescue.to_json(),
    )
    return build.leader_epoch(EPOCH + 1, 3, OFFSET)


def finding(rule: str, subject: str = "x", offset: int | None = None, epoch: int | None = None) -> Finding:
    return finding_of(rules()[rule], CLUSTER_ID, Case(subject, "x", from_offset=offset, epoch=epoch))


@pytest.mark.parametrize(
    ("rule", "explained", "not_explained"),
    [
        ("KV001", (OFFSET - 1, EPOCH), (OFFSET + 3, EPOCH + 1)),
        ("KV002", (OFFSET - 1, EPOCH), (20, 1)),
        ("KQ005", (OFFSET, EPOCH), (OFFSET + 3, EPOCH + 2)),
        ("KQ002", (CUT, OLD_EPOCH), (CUT - 1, OLD_EPOCH)),
        ("KQ002", (OLD_END - 1, None), (OFFSET, EPOCH + 1)),
        ("KQ002", (OFFSET - 1, OLD_EPOCH), (CUT, OLD_EPOCH + 1)),
        ("KQ002", (CUT, None), (OFFSET + 3, None)),
    ],
)
def test_a_rescue_explains_what_lies_between_its_cut_and_its_snapshot(
    rescued: HistoryBuilder, rule: str, explained: tuple[int, int | None], not_explained: tuple[int, int | None]
) -> None:
    history = rescued.history()
    waiver = declared_waiver(history, finding(rule, "log", *explained))
    assert waiver is not None
    assert "node 3" in waiver.why
    assert declared_waiver(history, finding(rule, "log", *not_explained)) is None


@pytest.mark.parametrize("rule", ["KQ003", "KQ004", "KQ020", "KQ022", "KQ023", "KQ025"])
@pytest.mark.parametrize(("offset", "epoch"), [(CUT, OLD_EPOCH), (OFFSET, EPOCH), (OFFSET, EPOCH + 1)])
def test_two_leaders_and_lost_disks_are_never_a_rescue_s_doing(
    rescued: HistoryBuilder, rule: str, offset: int, epoch: int
) -> None:
    assert declared_waiver(rescued.history(), finding(rule, "epoch 3", offset, epoch)) is None


def without_leader(build: HistoryBuilder, first: int, last: int) -> None:
    for epoch in range(first, last + 1):
        build.add("leader_epochs", epoch=epoch, canonical=True, ended_by=WITHOUT_LEADER)


def test_epochs_that_it_passed_over_are_no_election_storm(rescued: HistoryBuilder) -> None:
    """The fence runs from the first epoch that no disk named; a storm before or after it is one of elections."""
    rescued.leader_epoch(OLD_EPOCH, 1, 0)
    without_leader(rescued, OLD_EPOCH + 1, OLD_EPOCH + 60)
    without_leader(rescued, EPOCH + 2, EPOCH + 31)
    found = [f for f in check(rescued.history(), only=["KQ016"]) if f.status is Status.RAISED]
    epochs = {f.epoch: f.waiver is not None for f in found}
    assert epochs == {OLD_EPOCH + 1: True, EPOCH + 2: False}
    assert len({f.finding_id for f in found}) == 2


@pytest.mark.parametrize(
    "rescue",
    [
        replace(RESCUE, misfit="another disk"),
        replace(RESCUE, offset=OFFSET + 100),
        replace(RESCUE, epoch=EPOCH + 1),
        replace(RESCUE, directory_id=directory(3)),
    ],
    ids=["misfit", "log begins before it", "log is in its epoch", "voter"],
)
def test_a_rescue_that_the_log_contradicts_explains_nothing(rescue: DeclaredRescue) -> None:
    history = with_rescue(HistoryBuilder(), rescue).history()
    (recovery,) = declared_recoveries(history)
    assert recovery.misfit
    assert recovery.misfit in recovery.sentence
    for offset in (CUT, rescue.offset - 1):
        for rule in ("KQ002", "KV001"):
            assert declared_waiver(history, finding(rule, "log", offset, OLD_EPOCH)) is None


def test_a_rescue_of_a_rescue_fits_beside_it(rescued: HistoryBuilder) -> None:
    again = replace(
        RESCUE,
        node_id=4,
        directory_id=directory(4),
        offset=2 * OFFSET,
        epoch=2 * EPOCH,
        cut=OFFSET + 5,
        newest_epoch=EPOCH + 1,
        end_offset=OFFSET + 5,
        voters=(3,),
    )
    rescued.capture(
        4,
        2 * OFFSET + 5,
        epoch=2 * EPOCH + 1,
        log_start_offset=2 * OFFSET,
        rescue=again.to_json(),
    )
    assert [recovery.misfit for recovery in declared_recoveries(rescued.history())] == [None, None]


def test_the_short_form_comes_back_from_its_json() -> None:
    assert DeclaredRescue.from_json(RESCUE.to_json()) == RESCUE
