"""One disk with other bytes under a valid CRC: it is named, whatever was changed, and never becomes the log."""

from __future__ import annotations

import struct
from collections import Counter
from pathlib import Path
from typing import Any

import google_crc32c
import pytest

import kraft_audit as package
from kraft_audit.rules.rule_model import Status
from kraft_codec.files.state_files import QuorumState
from kraft_codec.records.batch import ATTRIBUTES_POSITION, CRC_POSITION, HEADER_BYTES
from tests.builders.captured_histories import raised_below
from tests.builders.commands import Command
from tests.builders.forged_batches import FORGED_BYTES, with_same_crc
from tests.builders.logs import Log, write_node
from tests.builders.snapshot_files import topic_snapshot
from tests.witness.altered_disks import VOTERS, judged, write_altered

LAST_OFFSET_DELTA_POSITION = 23


def quorum_log(voters: int, topics: int = 12) -> Log:
    log = Log()
    ids = [{"voterId": voter} for voter in range(1, voters + 1)]
    log.control("LEADER_CHANGE", {"version": 0, "leaderId": 1, "voters": ids, "grantingVoters": ids}, epoch=1)
    for number in range(topics):
        log.topic(f"topic-{number:02d}")
    return log


def altered(batch: bytes, place: int = -4) -> bytes:
    """The batch with one bit of its last record's name flipped, and a CRC that fits."""
    content = bytearray(batch)
    content[place] ^= 0x01
    struct.pack_into(">I", content, CRC_POSITION, google_crc32c.value(bytes(content[ATTRIBUTES_POSITION:])))
    return bytes(content)


def write_quorum(folder: Path, voters: int, log: Log, node_id: int, number: int, batch: bytes) -> None:
    """All voters with the log; one of them with another batch at one place."""
    for voter in range(1, voters + 1):
        batches = list(log.batches)
        if voter == node_id:
            batches[number] = batch
        write_node(folder, voter, b"".join(batches), state=QuorumState(1, 1, 1, -1))


def topic_names(path: Path) -> set[str]:
    with package.open(str(path)) as clusters:
        (cluster,) = clusters
        return {row["topic"] for row in cluster.state().rows("topic_changes")}


@pytest.mark.slow
def test_one_altered_disk_is_named_wherever_it_was_altered(tmp_path: Path) -> None:
    """200 random places; `make soak` tries others."""
    wrong: list[str] = []
    below_low: Counter[int] = Counter()
    for number in range(200):
        folder = tmp_path / str(number)
        done = write_altered(folder, VOTERS[number % len(VOTERS)], number)
        below_low[done.voters] += done.is_committed
        wrong += judged(folder, done)
    assert not wrong
    assert min(below_low[voters] for voters in VOTERS) >= 16


@pytest.mark.parametrize("place", [1426])
def test_places_that_a_soak_found(tmp_path: Path, place: int) -> None:
    """1426: the last batch claims to be a control batch, as if a second leader began there, and cannot be decoded."""
    done = write_altered(tmp_path, VOTERS[place % len(VOTERS)], place)
    assert not judged(tmp_path, done)


@pytest.mark.parametrize("voters", VOTERS)
def test_check_ends_with_1_for_one_altered_disk(tmp_path: Path, voters: int, kraft_audit: Command) -> None:
    done = write_altered(tmp_path, voters, seed=1)
    ran = kraft_audit("check", tmp_path)
    assert ran.code == 1
    first = ran.out.split("\n\n")[0].splitlines()
    assert [line.split()[:2] for line in first if line.startswith(("DISKS", "NEXT"))] == [
        ["DISKS", "Node"],
        ["NEXT", "Do"],
    ]
    assert all(f"ode {done.node_id} " in line for line in first if line.startswith(("DISKS", "NEXT")))


@pytest.mark.parametrize("delta", [40, 2**30])
def test_a_batch_that_claims_to_reach_further_than_its_records_takes_no_log_with_it(
    tmp_path: Path, reading: Any, delta: int
) -> None:
    """In the middle the batches after it stay; at the end the log does not become the longest."""
    log = quorum_log(3)
    count = len(log.batches)
    for voter, number in ((1, 4), (2, count - 1), (3, None)):
        batches = list(log.batches)
        if number is not None:
            batches[number] = with_delta(batches[number], delta)
        write_node(tmp_path, voter, b"".join(batches), state=QuorumState(1, 1, 1, -1))
    ends = {row["node_id"]: row["log_end_offset"] for row in reading.of(tmp_path)["captures"]}
    assert ends == {1: count, 2: count - 1, 3: count}
    named = {finding.subject.split(" __")[0] for finding in raised_below(tmp_path, "KQ008")}
    assert named == {"node 1", "node 2"}
    assert topic_names(tmp_path) == {f"topic-{each:02d}" for each in range(12)}


def with_delta(batch: bytes, delta: int) -> bytes:
    content = bytearray(batch)
    struct.pack_into(">i", content, LAST_OFFSET_DELTA_POSITION, delta)
    struct.pack_into(">I", content, CRC_POSITION, google_crc32c.value(bytes(content[ATTRIBUTES_POSITION:])))
    return bytes(content)


def test_several_batches_in_a_row_are_one_run(tmp_path: Path) -> None:
    log = quorum_log(3)
    for voter in (1, 2, 3):
        batches = [altered(b) if voter == 2 and 4 <= n < 7 else b for n, b in enumerate(log.batches)]
        write_node(tmp_path, voter, b"".join(batches), state=QuorumState(1, 1, 1, -1))
    (finding,) = raised_below(tmp_path, "KQ022")
    assert finding.subject == "node 2"
    assert "offsets 4–6" in finding.summary


@pytest.mark.parametrize("is_altered", [True, False])
def test_a_log_that_begins_with_what_was_altered(tmp_path: Path, is_altered: bool) -> None:
    """Cut at the front, it holds nothing that another disk has: not what comes before, nor what comes after."""
    log = quorum_log(3)
    log.topic("the last one")
    last = len(log.batches) - 1
    for voter in (1, 2):
        write_node(tmp_path, voter, log.content, state=QuorumState(1, 1, 1, -1))
    own = altered(log.batches[last]) if is_altered else log.batches[last]
    write_node(tmp_path, 3, {last: own}, state=QuorumState(1, 1, 1, -1), files=topic_snapshot(last))
    found = raised_below(tmp_path, "KQ022")
    assert [(each.subject, each.from_offset) for each in found] == ([("node 3", last)] if is_altered else [])
    assert "the last one" in topic_names(tmp_path)


@pytest.mark.parametrize("node_id", [1, 2])
def test_a_log_that_begins_after_what_was_altered_holds_no_version(tmp_path: Path, node_id: int) -> None:
    """It agrees with both from there on, and so is no witness against either."""
    log = quorum_log(3)
    for voter in (1, 2):
        batches = [altered(b) if voter == node_id and n == 4 else b for n, b in enumerate(log.batches)]
        write_node(tmp_path, voter, b"".join(batches), state=QuorumState(1, 1, 1, -1))
    rest = {6: b"".join(log.batches[6:])}
    write_node(tmp_path, 3, rest, state=QuorumState(1, 1, 1, -1), files=topic_snapshot(6))
    (finding,) = raised_below(tmp_path, "KQ022")
    assert "no version is held by a majority" in finding.summary
    assert {each.node_id for each in finding.evidence} == {1, 2}


def test_a_forged_crc_does_not_hide_other_bytes(tmp_path: Path) -> None:
    log = quorum_log(3)
    number = 5
    forged = with_same_crc(log.batches[number], range(HEADER_BYTES + 8, HEADER_BYTES + 8 + FORGED_BYTES))
    write_quorum(tmp_path, 3, log, 3, number, forged)
    (finding,) = raised_below(tmp_path, "KQ022")
    assert finding.subject == "node 3"


def test_without_a_majority_no_disk_is_accused(tmp_path: Path, kraft_audit: Command) -> None:
    log = quorum_log(3)
    for voter in (1, 2):
        batches = list(log.batches)
        if voter == 2:
            batches[4] = altered(batches[4])
        write_node(tmp_path, voter, b"".join(batches), state=QuorumState(1, 1, 1, -1))
    (finding,) = raised_below(tmp_path, "KQ022")
    assert "no version is held by a majority" in finding.summary
    assert "DISKS" not in kraft_audit("check", tmp_path).out


def test_two_versions_of_the_last_batch_without_a_majority_lose_nothing(tmp_path: Path) -> None:
    """KQ022 names both disks; KQ002 says what would decide it, and not that metadata was lost."""
    log = quorum_log(3)
    for voter in (1, 2):
        batches = list(log.batches)
        if voter == 2:
            batches[-1] = altered(batches[-1])
        write_node(tmp_path, voter, b"".join(batches), state=QuorumState(1, 1, 1, -1))
    with package.open(str(tmp_path)) as clusters:
        (cluster,) = clusters
        found = {finding.rule: finding for finding in cluster.check(only=("KQ002", "KQ022"))}
    assert found["KQ022"].status is Status.RAISED
    assert found["KQ002"].status is Status.UNDECIDED
    assert "copy voter 3" in (found["KQ002"].reason or "")


def test_a_disk_that_was_captured_twice_counts_once(tmp_path: Path) -> None:
    log = quorum_log(3)
    for capture in ("a", "b", "c"):
        write_quorum(tmp_path / capture, 3, log, 1, 4, altered(log.batches[4]))
    (finding,) = raised_below(tmp_path, "KQ022")
    assert finding.subject == "node 1"
