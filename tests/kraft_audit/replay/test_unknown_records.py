"""A record that this codec does not know may have said anything: what is replayed past it is marked incomplete."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kraft_audit.capture.path_plans import plan_path
from kraft_audit.replay.cluster_state import state_at
from kraft_audit.rules.judging import check_rule
from kraft_audit.rules.registry import rules
from kraft_audit.rules.rule_model import Finding, Status
from kraft_codec.records.record import write_metadata_value
from kraft_codec.records.redaction import Redactor
from kraft_codec.storage.opener import open_storage
from tests.builders.logs import NOW_MS, Log, write_node
from tests.builders.readings import branch_log, history_of, silver_rows

UNKNOWN = {
    "another type": b"\x01\x7e\x00secret",
    "a later version": b"\x01\x02\x09secret",
    "another frame": b"\x02\x02\x00secret",
}
SOURCES: dict[str, Any] = {"open_storage": open_storage, "redactor": Redactor(bytes(32))}


def folder_of(root: Path, *, before: int, value: bytes | None) -> Path:
    """Three voters' disks: topics, perhaps a record of an unknown type, and one that changes an unknown topic."""
    log = Log()
    log.lead(1, 1)
    for number in range(before):
        log.topic(f"topic-{number}")
    if value is not None:
        log.append(value)
    log.append(write_metadata_value("RemoveTopicRecord", 0, {"topicId": b"never created..."}))
    for number in (1, 2, 3):
        write_node(root, number, log.content)
    return root


def is_incomplete(folder: Path, *, observed: bool) -> bool:
    plan, *_ = plan_path(str(folder), open_storage=open_storage, captured_at_ms=NOW_MS)
    rows = [
        row
        for name, batch in silver_rows(plan, is_observed=observed, **SOURCES)
        for row in batch.to_pylist()
        if name == "replays"
    ]
    (row,) = rows
    return not row["is_complete"]


def mismatches(folder: Path) -> list[Finding]:
    plan, *_ = plan_path(str(folder), open_storage=open_storage, captured_at_ms=NOW_MS)
    return list(check_rule(rules()["KP013"], history_of(plan, **SOURCES), {}))


@pytest.mark.parametrize("value", UNKNOWN.values(), ids=UNKNOWN)
def test_the_state_after_it_is_incomplete(tmp_path: Path, value: bytes) -> None:
    sources = branch_log(folder_of(tmp_path, before=3, value=value))
    before, at, after = (state_at(sources, offset=offset) for offset in (3, 4, 5))
    assert (before.is_complete, before.undecoded.count) == (True, 0)
    assert (at.is_complete, at.undecoded.first_offset, at.undecoded.count) == (False, 4, 1)
    assert (after.is_complete, after.undecoded.first_offset) == (False, 4)


@pytest.mark.parametrize("observed", [False, True])
def test_the_replay_says_so(tmp_path: Path, observed: bool) -> None:
    for name, value in UNKNOWN.items():
        assert is_incomplete(folder_of(tmp_path / name, before=2, value=value), observed=observed)
    assert not is_incomplete(folder_of(tmp_path / "known", before=2, value=None), observed=observed)


def test_what_contradicts_the_log_after_it_is_undecided(tmp_path: Path) -> None:
    """The topic may have been created by the record that could not be read."""
    (known,) = mismatches(folder_of(tmp_path / "known", before=2, value=None))
    (unknown,) = mismatches(folder_of(tmp_path / "unknown", before=2, value=UNKNOWN["a later version"]))
    assert (known.status, unknown.status) == (Status.RAISED, Status.UNDECIDED)
    assert "offset 3 could not be decoded" in unknown.summary
