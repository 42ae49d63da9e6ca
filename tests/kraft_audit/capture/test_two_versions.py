"""How disks came to hold two versions of one epoch: KQ022 says what their batches show, and no more."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

import google_crc32c
import pytest

import kraft_audit as package
from kraft_audit.findings.answer import answer_lines
from kraft_audit.rules.columns.altered_runs import VersionCause
from kraft_audit.rules.columns.rivals import CAUSES_OF_VERSIONS
from kraft_audit.rules.registry import texts
from kraft_audit.rules.rule_model import Finding, Status
from kraft_codec.files.state_files import QuorumState
from kraft_codec.records.batch import ATTRIBUTES_POSITION, CRC_POSITION, TIMES_POSITIONS
from tests.builders.logs import NOW_MS, Log, write_node

LATER_MS = NOW_MS - 500_000
VOTERS = 3


def lead(log: Log, leader_id: int, epoch: int) -> None:
    voters = [{"voterId": voter} for voter in range(1, VOTERS + 1)]
    fields = {"version": 0, "leaderId": leader_id, "voters": voters, "grantingVoters": voters}
    log.control("LEADER_CHANGE", fields, epoch=epoch)


def appended(log: Log, leader_id: int, epoch: int, *topics: str, at_ms: int | None = None) -> Log:
    """The log with an epoch more."""
    longer = Log(log.next_offset, log.epoch, at_ms or log.timestamp_ms + 1_000, list(log.batches))
    lead(longer, leader_id, epoch)
    for topic in topics:
        longer.topic(topic)
    return longer


def changed(batch: bytes, *, moved_ms: int = 0) -> bytes:
    """One bit of the last record flipped, or its times moved, and the CRC renewed."""
    content = bytearray(batch)
    for place in range(*TIMES_POSITIONS, 8) if moved_ms else ():
        struct.pack_into(">q", content, place, struct.unpack_from(">q", content, place)[0] + moved_ms)
    if not moved_ms:
        content[-4] ^= 1
    struct.pack_into(">I", content, CRC_POSITION, google_crc32c.value(bytes(content[ATTRIBUTES_POSITION:])))
    return bytes(content)


def next_step(folder: Path) -> str:
    """The step that `check` names."""
    with package.open(str(folder)) as clusters:
        (cluster,) = clusters
        folded = cluster.incidents(cluster.check())
        return next(line.text for line in answer_lines(cluster.history, folded, "PATH") if line.word == "NEXT")


def found(folder: Path, logs: Mapping[int, list[bytes]], epoch: int) -> Finding:
    """The finding about logs of voters that know the epoch."""
    for voter, batches in logs.items():
        write_node(folder, voter, b"".join(batches), state=QuorumState(1, 2, epoch, -1))
    with package.open(str(folder)) as clusters:
        (cluster,) = clusters
        findings = [each for each in cluster.check(only=["KQ022"]) if each.status is Status.RAISED]
    assert len({finding.why for finding in findings}) == 1, findings
    return findings[0]


def why(case: str | None, cause: VersionCause) -> str:
    """The words of a case, and after them what may have brought it about."""
    text = texts()["KQ022"]
    words = text["why"] if case is None else text["cases"][case]["why"]
    return f"{words} {CAUSES_OF_VERSIONS[cause].text}"


BASE = appended(appended(Log(), 1, 1, "a", "b"), 1, 2, "c", "d", "e")


@pytest.mark.parametrize(("number", "moved_ms"), [(0, 0), (2, 0), (5, 0), (5, 1), (len(BASE.batches) - 1, 0)])
def test_bytes_that_were_changed_in_place(tmp_path: Path, number: int, moved_ms: int) -> None:
    """In the middle of what both hold, or with the same place and time: one leader wrote both."""
    batches = list(BASE.batches)
    batches[number] = changed(batches[number], moved_ms=moved_ms)
    finding = found(tmp_path, {1: batches, 2: BASE.batches, 3: BASE.batches}, epoch=2)
    assert (finding.subject, finding.why) == ("node 1", why(None, VersionCause.ALTERED))


@pytest.mark.parametrize("holders", [(1,), (1, 2)])
def test_an_epoch_that_was_led_again_after_a_restore(tmp_path: Path, holders: tuple[int, ...]) -> None:
    """Epoch 2 was led by 1, and again by voters whose disks went back to epoch 1; then an epoch 3 was led by one side.
    The others' logs matched it at the end of epoch 2, so all follow it from there on."""
    start = appended(Log(), 1, 1, "a", "b")
    first = appended(start, 1, 2, "c", "d")
    again = appended(start, 2, 2, "x", "y", at_ms=LATER_MS)
    tail = appended(again, 2, 3, "z", at_ms=LATER_MS + 1_000).batches[len(again.batches) :]
    logs = {voter: [*(again if voter in holders else first).batches, *tail] for voter in range(1, VOTERS + 1)}
    finding = found(tmp_path, logs, epoch=3)
    if len(holders) == 1:
        assert (finding.subject, finding.why) == ("node 1", why("restored", VersionCause.RESTORED))
        assert "replace it" in next_step(tmp_path)
    else:
        assert (finding.subject, finding.why) == ("node 3", why("outvoted", VersionCause.OUTVOTED))
        assert "do not wipe" in finding.what_to_do
        assert "replace it" not in next_step(tmp_path)


def test_a_disk_that_began_again_and_followed(tmp_path: Path) -> None:
    """Node 1 was formatted with the same cluster id and led an epoch 1 of its own before it followed the others."""
    first, again = appended(Log(), 1, 1, "a", "b"), appended(Log(), 1, 1, "x", "y", at_ms=LATER_MS)
    tail = appended(first, 2, 2, "z", at_ms=LATER_MS + 1_000).batches[len(first.batches) :]
    logs = {voter: [*(again if voter == 1 else first).batches, *tail] for voter in range(1, VOTERS + 1)}
    finding = found(tmp_path, logs, epoch=2)
    assert (finding.subject, finding.why) == ("node 1", why("began_again", VersionCause.BEGAN_AGAIN))
    assert finding.summary.endswith("; after it they agree")


def test_disks_that_differ_at_their_ends_may_be_altered_or_clones(tmp_path: Path) -> None:
    """Other times without another LeaderChange: a clone of the running leader writes so, and so does a forger."""
    cloned = Log(BASE.next_offset, BASE.epoch, LATER_MS, list(BASE.batches))
    cloned.topic("only-on-the-clone")
    longer = Log(BASE.next_offset, BASE.epoch, LATER_MS + 7, list(BASE.batches))
    longer.topic("true")
    finding = found(tmp_path, {1: cloned.batches, 2: longer.batches, 3: longer.batches}, epoch=2)
    assert (finding.subject, finding.why) == ("node 1", why("unclear", VersionCause.UNCLEAR))


def test_without_a_majority_the_cause_is_said_and_the_log_is_open(tmp_path: Path) -> None:
    start = appended(Log(), 1, 1, "a", "b")
    first, again = appended(start, 1, 2, "c", "d"), appended(start, 2, 2, "x", "y", at_ms=LATER_MS)
    tail = appended(again, 2, 3, "z", at_ms=LATER_MS + 1_000).batches[len(again.batches) :]
    finding = found(tmp_path, {1: [*first.batches, *tail], 2: [*again.batches, *tail]}, epoch=3)
    assert finding.why == why("undecided_led_twice", VersionCause.RESTORED)
    batches = list(BASE.batches)
    batches[5] = changed(batches[5])
    finding = found(tmp_path / "altered", {1: batches, 2: BASE.batches}, epoch=2)
    assert finding.why == why("undecided", VersionCause.ALTERED)
