"""`quorum` against what Kafka's own tool said of the live quorum just before and just after each cut."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.captures import SMALL_CORPUS
from tests.builders.facts import facts

# What a disk can tell of `describe --status`; lags in time are known to the live leader alone.
FIELDS = ("ClusterId", "LeaderId", "LeaderEpoch")


def fields(text: str) -> dict[str, str]:
    return {name: value.strip() for name, _, value in (line.partition(":") for line in text.splitlines()) if value}


def voters(text: str, *, as_reported: str | None = None) -> list[dict[str, object]]:
    """The voters, without the endpoints of a static quorum, which stand in its nodes' settings alone."""
    has_endpoints = "endpoints" in (as_reported or text)
    return [
        {name: value for name, value in row.items() if name != "endpoints" or has_endpoints} for row in json.loads(text)
    ]


def rows(text: str) -> dict[str, tuple[str, str, str, str]]:
    """NodeId -> (DirectoryId, LogEndOffset, Lag, Status), cells as they are padded."""
    lines = [line.split("\t") for line in text.splitlines() if "\t" in line]
    return {cells[0].strip(): (cells[1], cells[2], cells[3], cells[6]) for cells in lines}


TWO_QUORUMS = "split"
"""Two nodes that were formatted apart under one id: the tool answers for the one that it asked."""


def captures(root: Path) -> Iterator[tuple[Path, str, str, str]]:
    """Captures whose status said the same before and after the cut: status, replication before and after it."""
    for after in sorted(root.glob("*/*/oracle/quorum-status.after.txt")):
        if after.parents[2].name == TWO_QUORUMS:
            continue
        reported = after.read_text()
        before = after.with_name("quorum-status.before.txt").read_text()
        replication = after.with_name("quorum-replication.after.txt").read_text()
        earlier = after.with_name("quorum-replication.before.txt").read_text()
        is_reported = "LeaderId" in reported and "LeaderId" in before and "NodeId" in replication
        if is_reported and all(
            fields(reported).get(name) == fields(before).get(name)
            for name in (*FIELDS, "CurrentVoters", "HighWatermark")
        ):
            yield after.parents[1], reported, earlier, replication


def compare_all(root: Path, kraft_audit) -> tuple[int, int]:
    """How many captures were compared, and in how many of them the disks decide the high watermark."""
    count = decided = 0
    for capture, reported, earlier, replication in captures(root):
        ended = kraft_audit("quorum", capture, "--status", "--replication")
        assert (ended.code, ended.err) == (0, "")
        ours, theirs = fields(ended.out), fields(reported)
        assert {name: ours[name] for name in FIELDS} == {name: theirs[name] for name in FIELDS}, capture
        assert voters(ours["CurrentVoters"]) == voters(theirs["CurrentVoters"], as_reported=ours["CurrentVoters"]), (
            capture
        )
        known = json.loads(theirs["CurrentObservers"])
        # Observers that the leader has not heard of yet are none to it.
        known_ids = {entity["id"] for entity in known}
        assert all(row in known for row in json.loads(ours["CurrentObservers"]) if row["id"] in known_ids), capture
        if ours["HighWatermark"].isdigit():
            assert ours["HighWatermark"] == theirs["HighWatermark"], capture
            decided += 1
        count += 1
        assert next(line for line in ended.out.splitlines() if line.startswith("NodeId")) == replication.split("\n")[0]
        # The leader went on writing while the tool was asked: a lag is as it was before the cut, or after it.
        earlier_rows, later_rows = rows(earlier), rows(replication)
        for node_id, row in rows(ended.out).items():
            if row[1].strip() != "-1" and later_rows[node_id][1] == row[1]:
                assert row in (earlier_rows.get(node_id), later_rows[node_id]), capture
    return count, decided


def test_the_small_corpus_is_as_the_tool_reported(small_corpus: Path, kraft_audit) -> None:
    count, decided = compare_all(small_corpus, kraft_audit)
    assert (count >= 6, decided) == (True, count)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_all_captures_are_as_the_tool_reported(corpus: Path, kraft_audit) -> None:
    count, decided = compare_all(corpus, kraft_audit)
    assert count >= 40
    assert decided >= count - 2


def test_json_keys(kraft_audit) -> None:
    ended = kraft_audit(
        "quorum", f"{SMALL_CORPUS}/divergence", "--capture", "10-uncommitted-suffix-live", "--output", "json"
    )
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
    assert any(facts(text) >= {"2", "36"} for text in cluster["evidence"])


def test_one_disk_bounds_nothing_from_above(kraft_audit) -> None:
    ended = kraft_audit("quorum", f"{SMALL_CORPUS}/divergence/10-uncommitted-suffix-live/node-2", "--output", "json")
    cluster = json.loads(ended.out)
    assert cluster["committed_low"] < 36
    assert cluster["committed_high"] is None
    assert [voter["captured"] for voter in cluster["voters"]] == [False, True, False]
    status = kraft_audit("quorum", f"{SMALL_CORPUS}/divergence/10-uncommitted-suffix-live/node-2", "--status").out
    assert fields(status)["HighWatermark"] == f"at least {cluster['committed_low']}"
    assert fields(status)["MaxFollowerLag"] == "-1"


def test_the_newest_capture_is_shown_and_others_are_named(kraft_audit) -> None:
    ended = kraft_audit("quorum", f"{SMALL_CORPUS}/divergence")
    line = next(line for line in ended.out.splitlines() if "--capture" in line)
    assert facts(line) >= {"3", "12-after-truncation", "10-uncommitted-suffix-live", "11-dead-node-diverged"}


@pytest.mark.slow
def test_csv_has_a_row_a_replica(kraft_audit) -> None:
    lines = kraft_audit("quorum", f"{SMALL_CORPUS}/elr", "--output", "csv").out.splitlines()
    assert lines[0].startswith("cluster_id,node_id,directory_id")
    assert len(lines) == 1 + len(list(Path(f"{SMALL_CORPUS}/elr/29-stopped").glob("node-*")))


def test_the_upper_bound_is_explained_once_and_by_its_own_record(kraft_audit) -> None:
    """Who lacks it, by where the captured logs end; the record at 20 was never named."""
    ended = kraft_audit(
        "quorum", f"{SMALL_CORPUS}/uncommitted-voter-change/10-add-voter-uncommitted", "--output", "json"
    )
    cluster = json.loads(ended.out)
    high = cluster["committed_high"]
    lacking = [row["node_id"] for row in cluster["replicas"] if row["log_end_offset"] <= high]
    (reported,) = [text for text in cluster["evidence"] if text.startswith("not committed")]
    assert (high, lacking) == (20, [2, 3])
    assert facts(reported) == {"20", "2", "3", "1", "22", "23"}


@pytest.mark.parametrize(
    "options",
    [["--voters", "--diverge"], ["--nodes", "--status"], ["--diverge", "--branch", "2@27"], ["--voters", "--nodes"]],
)
def test_one_view_at_a_time(kraft_audit, options: list[str]) -> None:
    ended = kraft_audit("quorum", "samples/divergence.tgz", *options)
    assert (ended.code, ended.out, len(ended.error_lines)) == (2, "", 1)
    assert "--voters" in ended.err
