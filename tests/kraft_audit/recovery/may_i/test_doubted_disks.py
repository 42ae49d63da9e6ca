"""A voter's disk that contradicts itself is no evidence: no answer is OK over it, and no yes needs it.

The disks are Kafka's own; one epoch, which no CRC covers, is raised in the last batch of one of them. On real Kafka
such a disk won the election and truncated the others.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

import kraft_audit
from kraft_audit.findings.answer import answer_lines
from kraft_audit.recovery.may_i.permission import Action, Question, Verdict
from kraft_audit.rules.columns.quorum_standing import Standing
from tests.builders.live_log import whole_batches
from tests.builders.torn_logs import AFTER, EPOCHS, SEGMENT

EPOCH_POSITION = 12
LIAR = 2


@pytest.fixture
def disks(small_corpus: Path, tmp_path: Path) -> Path:
    """Three voters, honest."""
    for node in (1, 2, 3):
        shutil.copytree(small_corpus / "divergence" / AFTER / f"node-{node}", tmp_path / "disks" / f"node-{node}")
    return tmp_path / "disks"


LIES = ("last batch", "checkpoint", "later epoch", "later start")


def lie(disks: Path, kind: str) -> None:
    """Changes one file on the disk of the liar."""
    segment, epochs = disks / f"node-{LIAR}" / SEGMENT, disks / f"node-{LIAR}" / EPOCHS
    if kind == "last batch":
        *before, last = whole_batches(segment.read_bytes())
        (epoch,) = struct.unpack_from(">i", last.data, EPOCH_POSITION)
        data = bytearray(last.data)
        struct.pack_into(">i", data, EPOCH_POSITION, epoch + 4)
        segment.write_bytes(b"".join([*(batch.data for batch in before), data]))
    elif kind == "later epoch":
        header, count, *entries = epochs.read_text().splitlines()
        epochs.write_text("\n".join([header, str(int(count) + 1), *entries, "9 1000"]) + "\n")
    else:
        *lines, last_line = epochs.read_text().splitlines()
        epoch, offset = map(int, last_line.split())
        moved = offset + 1 if kind == "later start" else offset - 1
        epochs.write_text("\n".join([*lines, f"{epoch} {moved}"]) + "\n")


@pytest.fixture(params=LIES)
def doubted(request: pytest.FixtureRequest, disks: Path) -> Path:
    """The same with one lie on the disk of the liar."""
    lie(disks, request.param)
    return disks


def answers(path: Path, questions: list[Question]) -> Iterator[Verdict]:
    with kraft_audit.open(str(path)) as clusters:
        (cluster,) = clusters
        yield from (cluster.may_i(question).verdict for question in questions)


def test_no_claim_over_a_disk_that_contradicts_itself(doubted: Path) -> None:
    with kraft_audit.open(str(doubted)) as clusters:
        (cluster,) = clusters
        folded = cluster.incidents(cluster.check())
        standing = cluster.standing()
        lines = [line.text for line in answer_lines(cluster.history, folded, str(doubted))]
        assert standing.standing is Standing.UNDECIDED
        assert (standing.captured, standing.missing) == ((1, 3), (LIAR,))
        assert f"2 of 3 voters readable, node {LIAR} contradicts itself" in lines[0]
        assert f"Copy node {LIAR} again" in lines[1]
        assert cluster.situation(folded).exit_code == 1
        (row,) = [row for row in cluster.history.rows("captures") if row["node_id"] == LIAR]
        assert "epoch" in row["doubt"]


def test_no_yes_needs_it(doubted: Path) -> None:
    path = str(doubted)
    questions = [
        Question(Action.START, LIAR, path),
        Question(Action.START, LIAR, path, stopped=frozenset({3})),
        Question(Action.WIPE, LIAR, path),
        Question(Action.DELETE_VOLUME, LIAR, path),
        Question(Action.START, 1, path, stopped=frozenset({3})),
        Question(Action.RESTART, 1, path),
        Question(Action.DELETE_VOLUME, 1, path),
    ]
    assert Verdict.YES not in list(answers(doubted, questions))


@pytest.mark.parametrize("kind", LIES)
def test_what_the_others_do_without_it_stays(disks: Path, kind: str) -> None:
    path = str(disks)
    honest = Question(Action.START, LIAR, path, stopped=frozenset({3}))
    without = Question(Action.START, 1, path, stopped=frozenset({LIAR}))
    assert list(answers(disks, [honest, without])) == [Verdict.YES, Verdict.YES]
    lie(disks, kind)
    assert list(answers(disks, [honest, without])) == [Verdict.UNDECIDED, Verdict.YES]


@pytest.mark.parametrize("kind", LIES[:2])
def test_the_last_epoch_that_its_bytes_claim_may_win(disks: Path, kind: str) -> None:
    lie(disks, kind)
    with kraft_audit.open(str(disks)) as clusters:
        (cluster,) = clusters
        safety, _ = cluster.start_safety
        assert safety is not None
        (disk,) = [disk for disk in safety.disks if disk.doubt is not None]
        honest = max(other.end for other in safety.disks if other is not disk)
        assert (disk.node_id, disk.is_captured, disk.held_to) == (LIAR, False, 0)
        assert disk.end >= honest
        assert safety.newest_epoch == honest[0]
