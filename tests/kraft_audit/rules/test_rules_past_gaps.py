"""After a gap a replayed state may be wrong: rules that compare states do not decide there."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from kraft_audit.rules.cluster_history import SnapshotCheck
from kraft_audit.rules.judging import check
from kraft_audit.rules.rule_model import Finding, Status
from kraft_codec.records.batch import Batch, read_batches
from tests.builders.captured_histories import history_of
from tests.builders.facts import facts
from tests.builders.histories import HistoryBuilder, Story

COMPARING = ("KP006", "KP013", "KP016", "KP017", "KQ011")


def _broken_elr(b: HistoryBuilder) -> None:
    b.three_nodes().brokers(11, 12, 13).partition("t-0", 20, isr=[11], elr=[12], expected_elr=[12, 13])


def _fenced_member(b: HistoryBuilder) -> None:
    b.three_nodes(end=60).brokers(11, 12, 13).partition("t-0", 5).broker(12, at=20, fenced=True)


def _fenced_leader(b: HistoryBuilder) -> None:
    b.three_nodes().brokers(11, 12, 13).broker(11, at=6, fenced=True)
    b.partition("t-0", 20, isr=[11], election="last_known")


def _strange_broker(b: HistoryBuilder) -> None:
    b.three_nodes().brokers(11, 12).partition("t-0", 20)


def _other_snapshot(b: HistoryBuilder) -> None:
    b.three_nodes()
    b.snapshot_checks = (SnapshotCheck(21, 1, ("broker 11: fenced",)),)


STORIES: dict[str, Story] = {
    "KP006": _broken_elr,
    "KP013": _strange_broker,
    "KP016": _fenced_member,
    "KP017": _fenced_leader,
    "KQ011": _other_snapshot,
}


@pytest.mark.parametrize("rule", COMPARING)
def test_what_compares_states_is_undecided_after_a_gap(build: HistoryBuilder, rule: str) -> None:
    """Each story happens in the record at offset 20 or, of a member, at the end of its operation, at 30."""
    STORIES[rule](build)
    for gaps in ((), ((40, 44),)):
        build.gaps = gaps
        assert [finding.status for finding in build.findings(rule)] == [Status.RAISED]
    build.gaps = ((8, 12), (40, 44))
    (finding,) = build.findings(rule)
    assert finding.status is Status.UNDECIDED
    assert facts(str(finding.reason)) >= {"4", "8"}


@pytest.mark.parametrize("rule", COMPARING)
def test_so_it_is_after_a_record_that_could_not_be_decoded(build: HistoryBuilder, rule: str) -> None:
    STORIES[rule](build)
    build.undecoded_from = 40
    assert [finding.status for finding in build.findings(rule)] == [Status.RAISED]
    build.undecoded_from = 8
    (finding,) = build.findings(rule)
    assert finding.status is Status.UNDECIDED
    assert facts(str(finding.reason)) >= {"8"}


def test_a_state_that_reaches_into_a_gap(build: HistoryBuilder) -> None:
    """The member was fenced within an operation whose end, where the ISR may have been changed, is missing."""
    _fenced_member(build)
    build.gaps = ((25, 30),)
    assert [finding.status for finding in build.findings("KP016")] == [Status.UNDECIDED]
    build.gaps = ((30, 35),)
    assert [finding.status for finding in build.findings("KP016")] == [Status.RAISED]


def test_what_a_record_says_itself_is_raised_all_the_same(build: HistoryBuilder) -> None:
    build.three_nodes().brokers(11, 12, 13).partition("t-0", 20, isr=[11], elr=[])
    build.gaps = ((8, 12),)
    assert [finding.subject for rule in ("KP001", "KP005") for finding in build.raised(rule)] == ["t-0", "t-0"]


def _identity(finding: Finding) -> tuple[str, str, int | None]:
    return finding.rule, finding.subject, finding.from_offset


@pytest.mark.slow
@pytest.mark.parametrize("share", range(12))
def test_a_batch_left_out_of_a_real_log_raises_nothing_new(small_corpus: Path, tmp_path: Path, share: int) -> None:
    """The whole log is the witness: of what it does not raise nothing is raised, of what was before the hole all is."""
    capture = sorted(path for path in (small_corpus / "elr").iterdir() if path.name[:2].isdigit())[-1]
    whole = shutil.copytree(capture / "node-1", tmp_path / "whole")
    for snapshot in whole.rglob("*-*.checkpoint"):
        snapshot.unlink()
    expected = {
        _identity(finding): finding for finding in check(history_of(whole, None), only=COMPARING) if finding.subject
    }
    log = whole / "__cluster_metadata-0" / f"{0:020}.log"
    content = log.read_bytes()
    headers = [batch.header for batch in read_batches(content) if isinstance(batch, Batch)]
    left_out = headers[len(headers) * (share + 1) // 14]
    start = left_out.position
    log.write_bytes(content[:start] + content[start + left_out.size_bytes :])
    history = history_of(whole, None)
    assert history.gaps == ((left_out.base_offset, left_out.last_offset + 1),)
    found = {_identity(finding): finding.status for finding in check(history, only=COMPARING) if finding.subject}
    raised = {identity for identity, status in found.items() if status is Status.RAISED}
    before = {identity for identity in expected if (identity[2] or 0) < left_out.base_offset and identity[0] != "KP016"}
    assert before <= raised <= expected.keys()


def test_who_was_gone_when_the_snapshot_after_a_gap_was_taken_is_at_risk_no_longer(
    small_corpus: Path, tmp_path: Path
) -> None:
    """Of a real log without the records that created one topic and removed another: what is open is as in the whole."""
    whole, holed = small_corpus / "mini-3.9.2" / "04-stopped" / "node-1", tmp_path / "node-1"
    shutil.copytree(whole, holed)
    log = holed / "__cluster_metadata-0" / f"{0:020}.log"
    content = log.read_bytes()
    places = {
        batch.header.base_offset: batch.header.position for batch in read_batches(content) if isinstance(batch, Batch)
    }
    log.write_bytes(content[: places[45]] + content[places[142] :])
    rules = ("KP001", "KP002", "KP005", "KP010")
    (expected, _), (found, rows) = (_open_and_rows(folder, rules) for folder in (whole, holed))
    assert expected == found
    assert {subject.partition("-")[0] for _, subject in expected} >= {"m3"}
    m1 = [row for row in rows if row["topic"] == "m1" and not row["exists"]]
    assert {(row["from_offset"], row["cause"], row["topic"]) for row in m1} == {(141, "snapshot", "m1")}
    assert len(m1) == 6
    over = [finding for finding in check(history_of(holed, None), only=("KP001",)) if finding.subject.startswith("m1-")]
    assert [(finding.is_over, finding.to_offset) for finding in over] == [(True, 141)] * 6


def _open_and_rows(folder: Path, rules: tuple[str, ...]) -> tuple[set[tuple[str, str]], list[dict[str, Any]]]:
    history = history_of(folder, None)
    found = check(history, only=rules)
    still = {
        (finding.rule, finding.subject) for finding in found if finding.status is Status.RAISED and not finding.is_over
    }
    return still, history.rows("partition_changes")
