"""A copy of a log that Kafka cut and wrote again meanwhile: it accuses no replica, and is not the log of the cluster.

The logs are Kafka's own: node 2 of the corpus before and after its uncommitted suffix was truncated. The witness is
what the same copies say untorn.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kraft_audit.commands.cli import run_command
from kraft_codec.files.state_files import EpochEntry, parse_leader_epoch_checkpoint
from tests.builders.torn_logs import AFTER, EPOCHS, SEGMENT, boundaries, copies, logs, long_logs, tear

UNREAD = {"KV013", "KV014", "KQ001", "KQ022"}
"""They say that the log of a voter was not read, or what its bytes mean if they are the disk's, and decide nothing."""
Findings = dict[tuple[str, str, str], str]


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str]) -> Callable[[Path], Findings]:
    def run(folder: Path) -> Findings:
        assert run_command(["check", str(folder), "--output", "json", "--fail-on", "never", "--all"]) == 0
        rows = json.loads(capsys.readouterr().out)
        return {(row["rule"], row["subject"], row["status"]): row["summary"] for row in rows}

    return run


@pytest.fixture
def committed(capsys: pytest.CaptureFixture[str]) -> Callable[[Path], Any]:
    def run(folder: Path) -> Any:
        assert run_command(["quorum", str(folder), "--output", "json"]) == 0
        quorum = json.loads(capsys.readouterr().out)
        return [quorum[name] for name in ("committed_low", "committed_low_epoch", "committed_high", "evidence")]

    return run


@pytest.mark.slow
def test_kafkas_log_torn_at_every_batch_boundary(
    small_corpus: Path, tmp_path: Path, check: Callable[[Path], Findings]
) -> None:
    scenario = small_corpus / "divergence"
    whole = check(copies(scenario, tmp_path / "whole", (1, 2, 3, 11)))
    offsets = list(boundaries(*logs(scenario)))
    assert offsets
    for offset in offsets:
        for is_file_newer in (True, False):
            torn = copies(scenario, tmp_path / f"torn-{offset}-{is_file_newer}", (1, 2, 3, 11))
            tear(torn / "node-2", scenario, offset, is_file_newer=is_file_newer)
            assert_accuses_no_replica(check(torn), whole)


def assert_accuses_no_replica(found: Findings, whole: Findings) -> None:
    assert ("KQ013", "node 2", "raised") in found
    added = {key for key in found.keys() - whole.keys() if key[2] != "clear" and key[0] != "KQ013"}
    assert {(rule, status) for rule, _, status in added} <= {(rule, "undecided") for rule in UNREAD}, added
    lost = {key for key in whole.keys() - found.keys() if key[2] == "raised"}
    assert not lost


@pytest.mark.slow
def test_a_long_suffix_torn_at_every_batch_boundary(
    small_corpus: Path, tmp_path: Path, check: Callable[[Path], Findings]
) -> None:
    """With node 1 as the only honest copy; as the log is the longest, the torn copy would be the canonical one."""
    scenario = tmp_path / "scenario"
    shutil.copytree(small_corpus / "divergence", scenario)
    long_logs(scenario, scenario)
    shutil.copy(scenario / AFTER / "node-2" / SEGMENT, scenario / AFTER / "node-1" / SEGMENT)
    old, new = logs(scenario)
    whole = check(copies(scenario, tmp_path / "whole", (1, 2)))
    offsets = list(boundaries(old, new))
    assert len(offsets) == 8
    for offset in offsets:
        torn = copies(scenario, tmp_path / f"torn-{offset}", (1, 2))
        tear(torn / "node-2", scenario, offset, is_file_newer=True)
        found = check(torn)
        accusers = {key for key in found.keys() - whole.keys() if key[2] == "raised"}
        assert accusers == {("KQ013", "node 2", "raised")}


def test_the_only_copy_is_read_and_proves_nothing_lost(
    small_corpus: Path, tmp_path: Path, check: Callable[[Path], Findings]
) -> None:
    scenario = small_corpus / "divergence"
    (offset, *_) = boundaries(*logs(scenario))
    torn = copies(scenario, tmp_path / "torn", (2,))
    tear(torn / "node-2", scenario, offset, is_file_newer=True)
    found = check(torn)
    assert {"KQ013"} == {rule for rule, _, status in found if status == "raised" and rule.startswith("KQ")}
    assert ("KQ005", "epoch 3", "undecided") in found
    assert "copy it again" in found["KQ002", "log", "undecided"]


def test_entries_of_what_was_cut_or_cleaned_are_no_tear(small_corpus: Path, tmp_path: Path, committed: Any) -> None:
    """Kafka writes an epoch's entry before its first batch, and moves the first one up as it cleans the log."""
    torn = copies(small_corpus / "divergence", tmp_path / "copies", (1, 2, 3))
    whole, path = committed(torn), torn / "node-2" / EPOCHS
    assert whole[0] > 27
    entries = parse_leader_epoch_checkpoint(path.read_bytes())
    assert entries[-1] == EpochEntry(3, 27)
    for text in ("0\n2\n2 9\n3 27\n", "0\n3\n2 0\n3 27\n4 58\n"):
        path.write_text(text)
        assert committed(torn) == whole
