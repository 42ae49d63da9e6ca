"""The plan of a rescue is its dry run: it ranks what a state can be built from, and says how to go on from the rest."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

import kraft_audit
from kraft_codec.records.batch import Batch, read_batches
from tests.builders.captures import SMALL_CORPUS
from tests.builders.rescues import AFTER_ELECTION

STOPPED = f"{SMALL_CORPUS}/static-to-dynamic-upgrade/stopped"
TABLES = ("topic_changes", "broker_changes", "config_changes")


def log_dir(folder: Path, node: str) -> Path:
    return folder / node / "__cluster_metadata-0"


def planned(command: Any, path: Path, gone: str) -> tuple[dict[str, Any], list[str]]:
    """The plan, and the words of the command that it prints to build the dir."""
    plan = json.loads(command("rescue", "--plan", path, "--gone", gone, "-o", "json").out)
    (line,) = [step for step in plan["next_steps"] if "kraft-audit rescue " in step]
    return plan, shlex.split(line.partition("kraft-audit ")[2])


def built(command: Any, words: list[str], out: Path) -> Any:
    words[words.index("--out") + 1] = str(out)
    ended = command(*words)
    assert (ended.code, ended.err) == (0, ""), ended
    return out


def subjects(path: Path | str, at: int | None = None) -> list[str]:
    with kraft_audit.open(str(path)) as clusters:
        (cluster,) = clusters
        state = cluster.state(at)
        hidden = ("from_offset", "from_epoch", "timestamp_ms", "plan")
        rows = [row for table in TABLES for row in state.existing(table)]
        return sorted(str({name: value for name, value in row.items() if name not in hidden}) for row in rows)


def test_a_damaged_snapshot_beside_a_whole_log(kraft_audit, tmp_path: Path) -> None:
    shutil.copytree(f"{STOPPED}/node-3", tmp_path / "left" / "node-3")
    before = subjects(tmp_path / "left")
    for snapshot in log_dir(tmp_path / "left", "node-3").glob("*.checkpoint"):
        content = bytearray(snapshot.read_bytes())
        content[len(content) // 2] ^= 0xFF
        snapshot.write_bytes(content)
    plan, words = planned(kraft_audit, tmp_path / "left", "1,2")
    assert plan["outcomes"][0]["copy"]["excluded"] is None
    assert subjects(built(kraft_audit, words, tmp_path / "new")) == before


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_damaged_copy_is_ranked_below_a_whole_one(kraft_audit, tmp_path: Path, is_gone: bool) -> None:
    for node in ("node-3", "node-11"):
        shutil.copytree(f"{AFTER_ELECTION}/{node}", tmp_path / "left" / node)
    (segment,) = log_dir(tmp_path / "left", "node-3").glob("*.log")
    content = bytearray(segment.read_bytes())
    batches = [batch for batch in read_batches(bytes(content)) if isinstance(batch, Batch)]
    header = batches[len(batches) // 2].header
    content[header.position + header.size_bytes - 1] ^= 0xFF
    segment.write_bytes(content)
    if is_gone:
        shutil.rmtree(tmp_path / "left" / "node-11")

    plan, words = planned(kraft_audit, tmp_path / "left", "1,2")
    best = plan["outcomes"][plan["chosen"]]["copy"]
    (damaged,) = [each["copy"] for each in plan["outcomes"] if each["copy"]["node_id"] == 3]
    assert f"the batch at offset {header.base_offset} is damaged" in damaged["excluded"]
    assert damaged["usable_to"] == header.base_offset - 1
    if is_gone:
        assert (best["node_id"], words[-2:]) == (3, ["--to", str(header.base_offset - 1)])
        new = built(kraft_audit, words, tmp_path / "new")
        assert subjects(new) == subjects(f"{AFTER_ELECTION}/node-3", header.base_offset - 1)
    else:
        assert (best["node_id"], "--to" in words) == (11, False)


def test_a_missing_quorum_state_does_not_matter(kraft_audit, tmp_path: Path) -> None:
    """The rescued dir has a new one, in an epoch above all others."""
    shutil.copytree(f"{AFTER_ELECTION}/node-3", tmp_path / "left" / "node-3")
    (log_dir(tmp_path / "left", "node-3") / "quorum-state").unlink()
    plan, words = planned(kraft_audit, tmp_path / "left", "1,2")
    assert plan["verdict"] == "a plan stands"
    assert subjects(built(kraft_audit, words, tmp_path / "new")) == subjects(f"{AFTER_ELECTION}/node-3")


def test_a_snapshot_alone_proves_its_end(kraft_audit, tmp_path: Path) -> None:
    shutil.copytree(f"{STOPPED}/node-3", tmp_path / "left" / "node-3")
    for segment in log_dir(tmp_path / "left", "node-3").glob("*.log"):
        segment.unlink()
    plan, words = planned(kraft_audit, tmp_path / "left", "1,2")
    (outcome,) = plan["outcomes"]
    assert (plan["verdict"], plan["low"], outcome["keeps_to"]) == ("a plan stands", 496, 496)
    assert outcome["unknown_from"] == 496
    assert subjects(built(kraft_audit, words, tmp_path / "new")) == subjects(f"{STOPPED}/node-3", 495)
