"""What is said of damage is what Kafka does there: reason, advice and severity go by the verdict on the batch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kraft_audit.findings.check_text import check_lines
from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.judging import check
from kraft_audit.rules.rule_model import Finding, Severity
from tests.builders.captured_histories import history_of
from tests.builders.histories import HistoryBuilder
from tests.builders.logs import Log, write_node

MAGIC_AT = 16
Edit = Callable[[Log], None]


def damaged(folder: Path, edit: Edit) -> ClusterHistory:
    """Topics 1 to 6 at their offsets, after an edit of their log."""
    log = Log()
    log.lead(1, epoch=1)
    for number in range(1, 7):
        log.topic(f"topic-{number}")
    edit(log)
    write_node(folder, 1, log.content)
    return history_of(folder, None)


def magic(value: int) -> Edit:
    def edit(log: Log) -> None:
        batch = log.batches[3]
        log.batches[3] = batch[:MAGIC_AT] + bytes([value]) + batch[MAGIC_AT + 1 :]

    return edit


def flipped(log: Log) -> None:
    log.batches[3] = log.batches[3][:-1] + bytes([log.batches[3][-1] ^ 1])


def broken_record(log: Log) -> None:
    log.append(b"\x01\x02\x00\x7fname")  # a name of 126 bytes, of which four are there


def twice(log: Log) -> None:
    log.batches.append(log.batches[-1])


def left_out(log: Log) -> None:
    del log.batches[3]


def findings_of(history: ClusterHistory, rule: str) -> list[Finding]:
    return [finding for finding in check(history, only=[rule]) if finding.status == "raised"]


@pytest.mark.parametrize(
    ("edit", "verdict", "severity"),
    [
        (flipped, "Kafka cuts the log", Severity.CRITICAL),
        (magic(1), "Kafka cuts the log", Severity.CRITICAL),
        (magic(18), "Kafka reads the batch as version 2", Severity.HIGH),
        (broken_record, "Kafka keeps the batch, as its CRC is right", Severity.CRITICAL),
    ],
)
def test_kq008_says_what_kafka_does(tmp_path: Path, edit: Edit, verdict: str, severity: Severity) -> None:
    """Kafka's own reading of these edits: corpus, crafted/damaged, and its README 19."""
    history = damaged(tmp_path, edit)
    (finding,) = findings_of(history, "KQ008")
    (row,) = history.rows("decode_errors")
    assert row["kafka_verdict"].startswith(verdict)
    cuts = verdict == "Kafka cuts the log"
    assert finding.why.startswith("Kafka cuts the log") == cuts
    assert ("would cut the log" in finding.summary) == cuts
    assert finding.why.startswith("Kafka keeps the batch") == verdict.startswith("Kafka keeps the batch")
    assert ("reads a batch" in finding.why) == verdict.startswith("Kafka reads")
    assert ("recover the records after" in finding.what_to_do) == cuts
    assert finding.severity is severity


def test_kq007_of_a_batch_that_stands_there_twice(tmp_path: Path) -> None:
    (repeated,) = findings_of(damaged(tmp_path / "twice", twice), "KQ007")
    (gap,) = findings_of(damaged(tmp_path / "left out", left_out), "KQ007")
    assert (repeated.why.startswith("Nothing is missing"), "missing" in repeated.what_to_do) == (True, False)
    assert (gap.why.startswith("Records are missing"), "missing" in gap.what_to_do) == (True, True)


def test_kq007_of_a_batch_whose_offset_was_changed(tmp_path: Path) -> None:
    """Its own records are not where they belong: something is missing, though the offset is one that was there."""

    def edit(log: Log) -> None:
        log.batches[3] = (1).to_bytes(8, "big") + log.batches[3][8:]

    history = damaged(tmp_path, edit)
    (finding,) = findings_of(history, "KQ007")
    assert history.rows("decode_errors")[0]["reason"] == "OVERLAP"
    assert finding.why.startswith("Records are missing")


@pytest.mark.parametrize("edit", [flipped, magic(18), broken_record, twice, left_out])
def test_evidence_names_kafka_once(tmp_path: Path, edit: Edit) -> None:
    history = damaged(tmp_path, edit)
    (row,) = history.rows("decode_errors")
    (finding,) = [*findings_of(history, "KQ007"), *findings_of(history, "KQ008")]
    assert finding.evidence[0].text == f"{row['reason']}: {row['detail']}; {row['kafka_verdict']}"


def test_each_reason_stands_with_its_own_findings(build: HistoryBuilder) -> None:
    repeats = "base offset 3 where the log already reaches 9"
    build.three_nodes().damage(1, "GAP").damage(2, "OVERLAP", detail=repeats).damage(3, "GAP", position=5)
    history = build.history()
    text = [line.text for line in check_lines(history, check(history, only=["KQ007"]), path="x", in_full=True)]
    blocks = "\n".join(text).split("CRITICAL  KQ007 offset-gap   ")[1:]
    assert [block.split("\n", 1)[0] for block in blocks] == ["2 findings", "1 finding"]
    assert [block.count("why   Records are missing") for block in blocks] == [1, 0]
    assert [block.count("why   Nothing is missing") for block in blocks] == [0, 1]
