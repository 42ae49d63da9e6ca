"""Leader epochs against the files that Kafka kept beside each log."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import groupby
from typing import Any

import pytest

from kraft_audit.capture.decoded_records import ControlRecord, control_records
from kraft_audit.quorum.quorum_evidence import EpochRun
from kraft_audit.quorum.quorum_tables import (
    MAX_EPOCHS_WITHOUT_RECORDS,
    in_sequence,
    leader_epoch_rows,
    voter_set_rows,
)
from kraft_audit.quorum.voter_history import Voter, VoterSet
from kraft_audit.tables.contract import silver_batch
from kraft_audit.tables.silver import LEADER_EPOCHS


def runs_of(lines: list[dict[str, Any]]) -> list[EpochRun]:
    runs = []
    for epoch, group in groupby(lines, key=lambda line: int(line["partitionLeaderEpoch"])):
        records = list(group)
        runs.append(EpochRun(epoch, records[0]["offset"], records[-1]["offset"] + 1, records[0]["timestamp"]))
    return runs


@pytest.mark.slow
def test_epochs_are_those_of_the_leader_epoch_checkpoint(oracles: list[Any], to_columns: Any) -> None:
    compared = 0
    for oracle in oracles:
        for log_dir in oracle.distinct_logs():
            checkpoint = oracle.folder / log_dir / "leader-epoch-checkpoint"
            lines = oracle.log_records(log_dir)
            if not checkpoint.exists() or not lines or oracle.folder.name in ("crafted", "torn-write"):
                continue
            checkpoint_starts = dict(
                tuple(map(int, line.split())) for line in checkpoint.read_text().splitlines()[2:]
            )  # fmt: skip
            rows = leader_epoch_rows(runs_of(lines), control_records(to_columns(li for li in lines if li["isControl"])))
            starts = {row["epoch"]: row["from_offset"] for row in rows if row["ended_by"] != "burnt"}
            end = lines[-1]["offset"] + 1
            start = lines[0]["offset"]
            # an elected leader's entry at the log end, and one of an epoch that began below the log start, are legal
            expected = {e: max(o, start) for e, o in checkpoint_starts.items() if o < end}
            assert {e: o for e, o in starts.items() if e in expected} == expected, log_dir
            assert all(row["leader_id"] in row["voters"] for row in rows if row["voters"]), log_dir
            assert all(
                row["leader_id"] is not None
                for row in rows
                if row["ended_by"] != "burnt" and row["from_offset"] > start
            )
            compared += 1
    assert compared >= 5


@pytest.mark.slow
def test_described_leader_is_the_one_of_the_last_epoch(oracles: list[Any], to_columns: Any) -> None:
    compared = 0
    for oracle in oracles:
        for log_dir in (path for path in oracle.index if path.endswith("__cluster_metadata-0")):
            status = oracle.folder / log_dir.split("/")[0] / "oracle" / "quorum-status.after.txt"
            text = status.read_text() if status.exists() else ""
            found = re.search(r"LeaderId:\s+(\d+)\s+LeaderEpoch:\s+(\d+)", text)
            if not found or f"node-{found[1]}/" not in log_dir:
                continue
            lines = oracle.log_records(log_dir)
            rows = leader_epoch_rows(runs_of(lines), control_records(to_columns(li for li in lines if li["isControl"])))
            assert (rows[-1]["leader_id"], rows[-1]["epoch"]) in ((int(found[1]), int(found[2])), (None, int(found[2])))
            compared += 1
    assert compared >= 5


def leader_change(offset: int, epoch: int, leader: int) -> ControlRecord:
    voters = [{"voter_id": voter} for voter in (1, 2, 3)]
    return ControlRecord(
        offset, epoch, offset, "LEADER_CHANGE", {"leader_id": leader, "voters": voters, "granting_voters": voters[:2]}
    )


def test_epochs_without_records_lie_between_and_after_those_of_the_log() -> None:
    runs = [EpochRun(2, 0, 5, 10), EpochRun(5, 5, 9, 20)]
    rows = leader_epoch_rows(
        runs, [leader_change(0, 2, 1), leader_change(5, 5, 3)], persisted_leaders={5: 3, 7: -1, 8: 2}
    )
    assert [(row["epoch"], row["leader_id"], row["ended_by"]) for row in rows] == [
        (2, 1, "next_epoch"),
        (3, None, "burnt"),
        (4, None, "burnt"),
        (5, 3, "open"),
        (6, None, "burnt"),
        (7, None, "burnt"),
        (8, 2, "burnt"),
    ]
    assert silver_batch(LEADER_EPOCHS, "c", 0, rows).num_rows == 7


def test_divergent_epoch_is_truncated() -> None:
    runs = [EpochRun(1, 0, 9), EpochRun(2, 9, 12)]
    rows = leader_epoch_rows(runs, [leader_change(0, 1, 1), leader_change(9, 2, 2)], canonical_to=7)
    assert [(row["canonical"], row["ended_by"]) for row in rows] == [(True, "truncated"), (False, "truncated")]


def test_a_log_without_records_and_votes_has_no_epochs() -> None:
    assert leader_epoch_rows([], []) == []


def test_damaged_epoch_number_makes_no_flood() -> None:
    rows = leader_epoch_rows([EpochRun(1, 0, 5), EpochRun(2**31 - 1, 5, 6)], [])
    assert len(rows) == MAX_EPOCHS_WITHOUT_RECORDS + 2


def test_what_a_set_changed_is_said_of_the_set_before_it() -> None:
    """In KIP-642 a snapshot may say nothing of voters: the log after it begins with the configured ones."""
    configured = VoterSet(-1, 0, None, "static", 1, tuple(map(Voter, (1, 2, 3))))
    (first, alone), (_, later) = (
        voter_set_rows([configured, replace(configured, from_offset=offset, source="log", voters=(Voter(1),))])
        for offset in (34, 80)
    )
    assert [voter["voter_id"] for voter in later["removed"]] == [2, 3]
    of_log = in_sequence([first, later, alone])
    assert [row["from_offset"] for row in of_log] == [-1, 34, 80]
    assert [[voter["voter_id"] for voter in row["removed"]] for row in of_log] == [[], [2, 3], []]
