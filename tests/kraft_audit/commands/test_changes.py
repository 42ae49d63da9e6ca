"""`changes`, and who did it on a timeline and in a pack: what a real cluster's users are known to have done."""

from __future__ import annotations

import gzip
import json
import zipfile
from pathlib import Path

import pytest

from kraft_audit.commands.cli import run_command
from tests.builders.admin_calls import mark_of
from tests.builders.recorded_changes import AUTHORIZER_LOG, LOG_DIR, made_by

WITH_LOG = ["--authorizer-log", str(AUTHORIZER_LOG)]


def test_each_change_with_who_did_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["changes", str(LOG_DIR), *WITH_LOG, "--output", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    made = made_by()
    by_calls = [(made.get(mark_of(row["kind"], row["subject"], row["change"])), row) for row in rows]
    assert sum(user == row["who"] for user, row in by_calls if user is not None) > 0.98 * len(made)
    assert all(row["authorized_ms"] is not None for user, row in by_calls if row["who"] is not None)
    assert run_command(["changes", str(LOG_DIR), *WITH_LOG, "--user", "User:dave", "-o", "json"]) == 0
    of_dave = json.loads(capsys.readouterr().out)
    assert of_dave == [row for row in rows if "User:dave" in row["candidates"]]
    assert {row["who"] for row in of_dave} == {"User:dave"}


def test_without_a_log_changes_are_listed_and_unnamed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["changes", str(LOG_DIR), "--from", "100", "--to", "130", "-o", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) > 10
    assert {row["who"] for row in rows} == {None}
    assert all(100 <= row["offset"] < 130 for row in rows)
    assert run_command(["changes", str(LOG_DIR)]) == 0
    printed = capsys.readouterr().out
    assert "confidence" not in printed
    assert "earlier lines: --all" in printed


def test_a_log_of_another_zone_or_level_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["changes", str(LOG_DIR), *WITH_LOG, "--authorizer-zone", "+02:00"]) == 0
    assert "--authorizer-zone UTC" in capsys.readouterr().err
    assert run_command(["changes", str(LOG_DIR), *WITH_LOG, "--authorizer-zone", "Mars"]) == 2
    denied = gzip.decompress(AUTHORIZER_LOG.read_bytes()).replace(b"is Allowed", b"is Denied")
    (tmp_path / "denied.log").write_bytes(denied)
    assert run_command(["changes", str(LOG_DIR), "--authorizer-log", str(tmp_path / "denied.log")]) == 0
    assert "kafka.authorizer.logger to DEBUG" in capsys.readouterr().err
    assert run_command(["changes", str(LOG_DIR), "--authorizer-log", str(tmp_path / "gone.log")]) == 3


def test_a_timeline_and_a_pack_say_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["changes", str(LOG_DIR), *WITH_LOG, "-o", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert run_command(["timeline", str(LOG_DIR), *WITH_LOG, "-o", "json"]) == 0
    texts = {(row["event"], row["offset"]): row["text"] for row in json.loads(capsys.readouterr().out)}
    named = [row for row in rows if row["who"] is not None and row["kind"] in ("topic", "config")]
    assert len(named) > 500
    assert all(texts[row["kind"], row["offset"]].endswith(f"by {row['who']}") for row in named)
    pack = tmp_path / "pack.zip"
    assert run_command(["evidence", str(LOG_DIR), *WITH_LOG, "--out", str(pack)]) == 0
    with zipfile.ZipFile(pack) as opened:
        (name,) = [name for name in opened.namelist() if name.endswith("/changes.jsonl")]
        packed = [json.loads(line) for line in opened.read(name).splitlines()]
        sources = json.loads(opened.read("manifest.json"))["sources"]
    assert [{"cluster_id": row["cluster_id"], **each} for row, each in zip(rows, packed, strict=True)] == rows
    assert str(AUTHORIZER_LOG) in {source["root"] for source in sources}
