"""`quorum` against what Kafka's own tool said of the live quorum just before and just after each cut."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

# What a disk can tell of `describe --status`; lags in time are known to the live leader alone.
FIELDS = ("ClusterId", "LeaderId", "LeaderEpoch")


def fields(text: str) -> dict[str, str]:
    return {name: value.strip() for name, _, value in (line.partition(":") for line in text.splitlines()) if value}


def voters(text: str, *, as_told: str | None = None) -> list[dict[str, object]]:
    """The voters, without the endpoints of a static quorum, which stand in its nodes' settings alone."""
    has_endpoints = "endpoints" in (as_told or text)
    return [
        {name: value for name, value in one.items() if name != "endpoints" or has_endpoints} for one in json.loads(text)
    ]


def rows(text: str) -> dict[str, tuple[str, str, str, str]]:
    """NodeId -> (DirectoryId, LogEndOffset, Lag, Status), cells as they are padded."""
    lines = [line.split("\t") for line in text.splitlines() if "\t" in line]
    return {cells[0].strip(): (cells[1], cells[2], cells[3], cells[6]) for cells in lines}


def captures(root: Path) -> Iterator[tuple[Path, str, str]]:
    """Captures whose status said the same before and after the cut, and each of the two texts."""
    for after in sorted(root.glob("*/*/oracle/quorum-status.after.txt")):
        told = after.read_text()
        before = after.with_name("quorum-status.before.txt").read_text()
        replication = after.with_name("quorum-replication.after.txt").read_text()
        is_told = "LeaderId" in told and "LeaderId" in before and "NodeId" in replication
        if is_told and all(
            fields(told).get(name) == fields(before).get(name) for name in (*FIELDS, "CurrentVoters", "HighWatermark")
        ):
            yield after.parents[1], told, replication


def compare_all(root: Path, kraft_audit) -> tuple[int, int]:
    """How many captures were compared, and in how many of them the disks decide the high watermark."""
    count = decided = 0
    for capture, told, replication in captures(root):
        ended = kraft_audit("quorum", capture, "--status", "--replication")
        assert (ended.code, ended.err) == (0, "")
        ours, theirs = fields(ended.out), fields(told)
        assert {name: ours[name] for name in FIELDS} == {name: theirs[name] for name in FIELDS}, capture
        assert voters(ours["CurrentVoters"]) == voters(theirs["CurrentVoters"], as_told=ours["CurrentVoters"]), capture
        known = json.loads(theirs["CurrentObservers"])
        # Observers that the leader has not heard of yet are none to it.
        known_ids = {one["id"] for one in known}
        assert all(one in known for one in json.loads(ours["CurrentObservers"]) if one["id"] in known_ids), capture
        if ours["HighWatermark"].isdigit():
            assert ours["HighWatermark"] == theirs["HighWatermark"], capture
            decided += 1
        count += 1
        assert next(line for line in ended.out.splitlines() if line.startswith("NodeId")) == replication.split("\n")[0]
        their_rows = rows(replication)
        for node_id, row in rows(ended.out).items():
            if row[1].strip() != "-1" and their_rows[node_id][1] == row[1]:
                assert row == their_rows[node_id], capture
    return count, decided


def test_the_samples_are_as_the_tool_told(samples: Path, kraft_audit) -> None:
    count, decided = compare_all(samples, kraft_audit)
    assert (count >= 6, decided) == (True, count)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_all_captures_are_as_the_tool_told(corpus: Path, kraft_audit) -> None:
    count, decided = compare_all(corpus, kraft_audit)
    assert count >= 40
    assert decided >= count - 2


def test_json_keys(kraft_audit) -> None:
    ended = kraft_audit("quorum", "samples/divergence", "--capture", "10-uncommitted-suffix-live", "--output", "json")
    cluster = json.loads(ended.out)
    assert {key: cluster[key] for key in ("leader_id", "leader_epoch", "committed_low", "committed_high")} == {
        "leader_id": 2,
        "leader_epoch": 2,
        "committed_low": 27,
        "committed_high": 27,
    }
    assert (cluster["cluster_id"], cluster["committed_low_epoch"]) == ("ujhN1DIbH4nL9FFbdry94A", 2)
    assert cluster["read_from_ms"] <= cluster["read_to_ms"]
    assert [voter["voter_id"] for voter in cluster["voters"]] == [1, 2, 3]
    assert [(row["node_id"], row["role"], row["lag"]) for row in cluster["replicas"]] == [
        (1, "voter", 9),
        (2, "leader", 0),
        (3, "voter", 9),
        (11, "observer", 0),
    ]
    assert any("node 2 holds epoch 2 to 36" in text for text in cluster["evidence"])


def test_one_disk_bounds_nothing_from_above(kraft_audit) -> None:
    ended = kraft_audit("quorum", "samples/divergence/10-uncommitted-suffix-live/node-2", "--output", "json")
    cluster = json.loads(ended.out)
    assert cluster["committed_low"] < 36
    assert cluster["committed_high"] is None
    assert [voter["captured"] for voter in cluster["voters"]] == [False, True, False]
    status = kraft_audit("quorum", "samples/divergence/10-uncommitted-suffix-live/node-2", "--status").out
    assert fields(status)["HighWatermark"] == f"at least {cluster['committed_low']}"
    assert fields(status)["MaxFollowerLag"] == "-1"


def test_the_newest_capture_is_shown_and_others_are_named(kraft_audit) -> None:
    ended = kraft_audit("quorum", "samples/divergence")
    assert "capture 12-after-truncation of 3; --capture shows 10-uncommitted-suffix-live, 11-dead-node-diverged" in (
        ended.out
    )


def test_csv_has_a_row_a_replica(kraft_audit) -> None:
    lines = kraft_audit("quorum", "samples/elr", "--output", "csv").out.splitlines()
    assert lines[0].startswith("cluster_id,node_id,directory_id")
    assert len(lines) == 1 + len(list(Path("samples/elr/29-stopped").glob("node-*")))


def test_the_upper_bound_is_explained_once_and_by_its_own_record(kraft_audit) -> None:
    """Who lacks it, by where the captured logs end; the record at 20 was never named."""
    ended = kraft_audit("quorum", "samples/uncommitted-voter-change/10-add-voter-uncommitted", "--output", "json")
    cluster = json.loads(ended.out)
    high = cluster["committed_high"]
    lacking = [row["node_id"] for row in cluster["replicas"] if row["log_end_offset"] <= high]
    (told,) = [text for text in cluster["evidence"] if text.startswith("not committed")]
    assert (high, lacking) == (20, [2, 3])
    assert told == (
        "not committed from 20 on: voters 2 and 3 lack the record at 20; "
        "too few voters hold the record of epoch 1 at 22 and the voter set at 23"
    )
