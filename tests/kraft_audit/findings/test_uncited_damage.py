"""Every row of `decode_errors` is evidence of a finding or named in one line."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import kraft_audit
from kraft_audit.findings.check_text import check_lines, uncited_text
from tests.builders.captured_histories import history_of
from tests.builders.histories import HistoryBuilder
from tests.builders.logs import Log, write_node

STRAY = "capture/node-1/__cluster_metadata-0/quorum-state"


def packed(tmp_path: Path) -> Path:
    """Two nodes with every kind of damage side by side: a record that no release has, a log with a flipped bit, a
    small file that is no JSON, a snapshot that was not finished, a member that stands twice, and one that escapes."""
    log = Log()
    log.lead(1, epoch=1)
    for number in range(6):
        log.topic(f"topic-{number}")
    log.append(b"\x01\x7f\x00\x00")
    for node_id in (1, 2):
        batches = list(log.batches)
        if node_id == 2:
            batches[4] = batches[4][:-1] + bytes([batches[4][-1] ^ 1])
        folder = write_node(tmp_path / "capture", node_id, b"".join(batches))
        (folder / "__cluster_metadata-0" / "00000000000000000009-0000000001.checkpoint.part").write_bytes(b"begun")
        (folder / "__cluster_metadata-0" / "quorum-state").write_text("{")
    archive = tmp_path / "capture.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(tmp_path / "capture", "capture")
        for name in (STRAY, "../outside.log"):
            member = tarfile.TarInfo(name)
            member.size = 1
            tar.addfile(member, io.BytesIO(b"x"))
    return archive


def test_no_damage_passes_in_silence(tmp_path: Path, reading: Any) -> None:
    archive = packed(tmp_path)
    rows = reading.of(archive)["decode_errors"]
    reasons = {row["reason"] for row in rows}
    assert {"HOSTILE_NAME", "SNAPSHOT_UNFINISHED", "BAD_FILE", "BAD_CRC", "UNKNOWN_RECORD_TYPE"} <= reasons
    with kraft_audit.open(str(archive)) as clusters:
        (cluster,) = clusters
        findings = list(cluster.check())
        lines = [line.text for line in check_lines(cluster.history, findings, path="x", in_full=True, is_whole=True)]
        line = uncited_text(cluster.history, findings)
    assert line is not None
    assert lines.count(line) == 1
    text = "\n".join(lines)
    for row in rows:
        assert row["detail"] in text, row
        assert (row["detail"] in line) == (row["reason"] in {"HOSTILE_NAME", "SNAPSHOT_UNFINISHED", "BAD_FILE"}), row


def test_one_unknown_record_in_two_files_is_one_finding_that_cites_both(build: HistoryBuilder) -> None:
    build.three_nodes(40).damage(1, "UNKNOWN_RECORD_TYPE").damage(2, "UNKNOWN_RECORD_TYPE")
    findings = build.findings("KQ018")
    assert [[fact.path for fact in finding.evidence] for finding in findings] == [["node-1", "node-2"]]
    assert uncited_text(build.history(), findings) is None


def test_a_sound_capture_has_no_such_line(tmp_path: Path) -> None:
    log = Log()
    log.lead(1, epoch=1)
    write_node(tmp_path, 1, log.content)
    history = history_of(tmp_path, None)
    assert uncited_text(history, ()) is None
