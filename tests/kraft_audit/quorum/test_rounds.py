"""Every round of captures: the interval against the high watermark that Kafka reported, and the small tables."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kraft_audit.capture import branches as branches_module
from kraft_audit.capture.decoded_records import ControlRecord
from kraft_audit.capture.plan import ClusterPlan
from kraft_audit.capture.survey import BranchEpoch, Survey, SurveyedSnapshot
from kraft_audit.quorum.committed_interval import committed_interval
from kraft_audit.quorum.quorum_evidence import EpochRun, LeaderStart
from kraft_audit.quorum.quorum_tables import quorum_rows
from kraft_audit.quorum.rounds import (
    ProvenRound,
    _proves_first,
    branch_voters,
    newest_voters,
    proven_rounds,
    round_evidence,
)
from kraft_audit.quorum.static_voters import StaticVoters
from kraft_audit.tables.contract import silver_batch
from kraft_audit.tables.silver import SILVER
from kraft_codec.files.state_files import QuorumState
from kraft_codec.schemas import Dialect
from tests.builders.logs import CLUSTER_ID, Log, write_node
from tests.builders.readings import surveyed

WIDE = {
    "00-formatted": "no upper bound: no record was captured",
    "00-formatted-not-started": "no upper bound: no record was captured",
    "11-2voters-one-dead": "too few voters acknowledged the records between; "
    "a voter set that no capture shows may have committed them",
}
"""Every capture of real Kafka whose bounds do not meet, and why: each other one is a point."""


def reported(folder: Path, proven: ProvenRound, when: str) -> int | None:
    status = folder / proven.capture / "oracle" / f"quorum-status.{when}.txt"
    found = re.search(r"HighWatermark:\s+(\d+)", status.read_text()) if status.exists() else None
    return int(found[1]) if found else None


@pytest.mark.slow
def test_interval_holds_what_kafka_reported(oracles: list[Any]) -> None:
    compared = 0
    wide = {}
    for oracle in oracles:
        if oracle.folder.name == "crafted":
            continue
        plan, found = surveyed(oracle.folder)
        for proven in proven_rounds(found, plan):
            interval = proven.interval
            before, after = (reported(oracle.folder, proven, when) for when in ("before", "after"))
            assert after is None or interval.low <= after, (oracle.folder.name, proven.capture)
            assert before is None or interval.high is None or interval.high >= before, proven.capture
            if interval.low != interval.high:
                wide[proven.capture] = interval.undecided
            assert (interval.undecided is None) == (interval.low == interval.high)
            compared += after is not None
    assert compared >= 5
    captured = {path.name for oracle in oracles for path in oracle.folder.iterdir()}
    assert wide == {name: reason for name, reason in WIDE.items() if name in captured}


def test_logs_that_part_too_often_prove_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No Kafka writes logs that part, agree and part again: what is not followed any more is not decided either."""
    monkeypatch.setattr(branches_module, "BRANCHES_MAX", 5)
    first = Log()
    first.lead(1, epoch=1)
    second = first.copy()
    for number in range(6):
        first.topic(f"one-{number}")
        second.topic(f"other-{number}")
        second.batches.append(first.topic(f"both-{number}"))
        second.next_offset = first.next_offset
    for number, log in enumerate((first, second), 1):
        write_node(tmp_path, number, log.content)
    plan, found = surveyed(tmp_path)
    assert found.is_overflowing
    assert [found.path(branch.number)[0] for branch in found.branches] == [0] * 5, "all of them grow out of the first"
    (proven,) = proven_rounds(found, plan)
    assert proven.interval.canonical is None
    assert proven.interval.undecided == "no upper bound: two histories claim epoch 1"


@pytest.mark.slow
def test_small_tables_have_their_schema_and_unique_keys(oracles: list[Any]) -> None:
    for oracle in oracles:
        if oracle.folder.name == "crafted":
            continue
        plan, found = surveyed(oracle.folder)
        for name, rows in quorum_rows(found, plan).items():
            batch = silver_batch(SILVER[name], plan.cluster_id, 0, rows)
            keys = list(zip(*(batch.column(column).to_pylist() for column in SILVER[name].key), strict=True))
            assert len(keys) == len(set(keys)) > 0, (oracle.folder.name, name)


def test_a_reverted_voter_change_has_rows(small_corpus: Path) -> None:
    """Scenario uncommitted-voter-change: add-voter appended and reverted; a removal committed later."""
    plan, found = surveyed(small_corpus / "uncommitted-voter-change")
    rows = quorum_rows(found, plan)
    reverted = [row for row in rows["voter_sets"] if row["ended_by"] == "truncated"]
    assert [[voter["voter_id"] for voter in row["added"]] for row in reverted] == [[4]]
    assert not reverted[0]["canonical"]
    epochs = [row["epoch"] for row in rows["leader_epochs"] if row["canonical"] and row["ended_by"] != "burnt"]
    assert epochs == sorted(set(epochs))


def test_fewer_than_a_majority_bound_nothing_above(small_corpus: Path) -> None:
    plan, found = surveyed(small_corpus / "divergence")
    whole = proven_rounds(found, plan)
    for proven in whole:
        for number in proven.replicas:
            alone = committed_interval(round_evidence(found, plan, [number]))
            assert alone.low <= proven.interval.low
            assert alone.high is None


@pytest.mark.parametrize(
    ("leader_change", "to_offset", "has_data", "control_offsets", "proves"),
    [
        (10, 20, True, (), True),
        (12, 20, True, (), False),  # 3.5.2 wrote data ahead of the LeaderChange
        (10, 20, False, (), False),
        (10, 14, True, (13,), False),  # of this replica's log only a control record lies after the first batch
        (10, 15, True, (13,), True),
        (10, 14, True, (10, 12, 14), True),  # those of the first batch, and of the next epoch
        (10, 12, True, (10, 12), False),
        (10, 13, True, (), False),
    ],
)
def test_metadata_after_an_epochs_first_batch_proves_that_batch(
    leader_change: int, to_offset: int, has_data: bool, control_offsets: tuple[int, ...], proves: bool
) -> None:
    epoch = BranchEpoch(0, 5, 10, to_offset, 0, 13, 13 if has_data else None)
    assert _proves_first(epoch, {5: LeaderStart(5, leader_change, 1)}, control_offsets) == proves
    assert not _proves_first(epoch, {}, control_offsets)


def test_a_log_proves_nothing_by_metadata_after_its_end(tmp_path: Path) -> None:
    """Node 1 ends before the first metadata record of the epoch; what it holds after the LeaderChange's batch is a
    control record of a type that no release has yet. Node 2 holds that metadata record, too."""
    log = Log()
    log.lead(1, epoch=1)
    log._write([(b"\0\0\0\x63", b"\0\0")], is_control=True)
    write_node(tmp_path, 1, log.content)
    log.topic("one")
    write_node(tmp_path, 2, log.content)
    plan, found = surveyed(tmp_path)
    shorter, longer = (round_evidence(found, plan, [number]).chains[0] for number in (0, 1))
    assert [chain.end for chain in (shorter, longer)] == [(1, 2), (1, 3)]
    assert longer.first_batch_ends == {1: 1}
    assert not shorter.first_batch_ends
    assert committed_interval(round_evidence(found, plan, [0])).low == 0
    (cut,) = found.epochs_to(0, 2)
    assert (cut.to_offset, cut.has_data) == (2, False)


def test_a_replica_of_another_cluster_takes_part_in_no_round(small_corpus: Path) -> None:
    plan, found = surveyed(small_corpus / "divergence")
    assert 0 in {number for captures in proven_rounds(found, plan) for number in captures.replicas}
    found.replicas[0].is_accepted = False
    assert 0 not in {number for captures in proven_rounds(found, plan) for number in captures.replicas}


@pytest.mark.parametrize("declared", ["3,1,2", "1@c-1:9093,2@c-2:9093,3@c-3:9093", " 1@[::1]:9093 , 2, 3 "])
def test_voters_that_are_declared_are_those_of_the_next_election(tmp_path: Path, declared: str) -> None:
    """controller.quorum.voters (QuorumConfig, Kafka 4.3.0); who led before was elected by the voters that it named."""
    log = Log()
    log.lead(1, epoch=1)
    state = QuorumState(0, 1, 1, -1, cluster_id=CLUSTER_ID, current_voters=(1, 2))
    write_node(tmp_path, 1, log.content, state=state)
    plan, found = surveyed(tmp_path)

    def sets(plan: ClusterPlan) -> list[tuple[str, list[int]]]:
        rows = quorum_rows(found, plan)["voter_sets"]
        return [(row["source"], [voter["voter_id"] for voter in row["voters"]]) for row in rows]

    with_default = replace(plan, defaults=(("controller.quorum.voters", declared),))
    assert sets(plan) == sets(with_default) == [("static", [1, 2])]
    for each, ids in ((plan, {1, 2}), (with_default, {1, 2, 3})):
        now = newest_voters(found, each, proven_rounds(found, each)[-1])
        assert now is not None
        assert now.ids == ids


def kip856_change(name: str, offset: int, voter_id: int, disk: int) -> ControlRecord:
    return ControlRecord(offset, 11, offset, name, {"voter_id": voter_id, "voter_uuid": bytes([disk] * 16)})


@pytest.mark.parametrize(("snapshot_epoch", "is_known"), [(11, True), (12, False)])
def test_voters_after_a_gap_come_from_the_snapshot_that_follows(snapshot_epoch: int, is_known: bool) -> None:
    """KIP-856: node 1's old disk 9 leaves at 374, the snapshot at 446 has the new one; the log begins at 328."""
    plan = ClusterPlan(0, "", "c", Dialect.KIP856, ())
    in_snapshot = tuple(kip856_change("ADD_VOTER", n, n, n) for n in (1, 2, 3))
    found = Survey([], [], [], snapshots=[SurveyedSnapshot("s", 446, snapshot_epoch, (0,), in_snapshot)])
    removal = kip856_change("REMOVE_VOTER", 374, 1, 9)
    history = branch_voters(found, plan, [removal], [EpochRun(11, 328, 482)], StaticVoters((1, 2, 3)))
    sets = [(voter_set.from_offset, [voter.voter_id for voter in voter_set.voters]) for voter_set in history]
    assert sets == ([(327, [1, 1, 2, 3]), (374, [1, 2, 3])] if is_known else [(-1, [1, 2, 3])])
    assert not history[0].is_static
