"""`restore-kit`: its formats say the same, and it writes nothing where it reads."""

from __future__ import annotations

import json
from pathlib import Path

from tests.builders.printed_scripts import calls_of

ELR = "samples/elr-29-stopped.tgz"


def test_formats_and_the_file_hold_the_same_commands(kraft_audit, tmp_path: Path) -> None:
    script = kraft_audit("restore-kit", ELR).out
    document = json.loads(kraft_audit("restore-kit", ELR, "-o", "json", "--out", tmp_path / "kit").out)
    rows = [json.loads(line) for line in kraft_audit("restore-kit", ELR, "-o", "jsonl").out.splitlines()]
    assert (tmp_path / "kit" / "restore.sh").read_text() == script
    assert [row["command"] for row in rows] == [command["command"] for command in document["commands"]]
    assert all(row["command"] in script for row in rows)
    calls = calls_of(script, tmp_path / "bash", BOOTSTRAP_SERVER="b:9092")
    assert len(calls) == len(rows)
    assert all(call.value("--bootstrap-server") == "b:9092" for call in calls)


def test_an_earlier_state_is_restored_with_what_was_there_then(kraft_audit) -> None:
    early = json.loads(kraft_audit("restore-kit", ELR, "--at", "60", "-o", "json").out)
    late = json.loads(kraft_audit("restore-kit", ELR, "-o", "json").out)
    topics = [{each["subject"] for each in kit["commands"] if each["kind"] == "topic"} for kit in (early, late)]
    assert topics[0] < topics[1]
    assert early["object_count"] < late["object_count"]


def test_no_kit_is_written_for_a_time_before_the_log(kraft_audit, tmp_path: Path) -> None:
    """An empty one would look as if there was nothing to bring back."""
    ended = kraft_audit("restore-kit", ELR, "--at", "2001-01-01", "--out", tmp_path / "kit")
    assert (ended.code, ended.out) == (2, "")
    assert not (tmp_path / "kit").exists()


def test_a_folder_that_is_read_or_filled_is_not_written_to(kraft_audit, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("stays")
    assert kraft_audit("restore-kit", ELR, "--out", tmp_path).code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
