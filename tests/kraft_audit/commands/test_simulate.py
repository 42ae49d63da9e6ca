"""`simulate`: log dirs that the other commands read, the same for the same seed."""

from __future__ import annotations

import json
from pathlib import Path

from kraft_engine import tree_hash


def test_what_is_simulated_is_found(kraft_audit, tmp_path: Path) -> None:
    told = kraft_audit("simulate", "last-replica-standing", "--seed", "7", "--out", tmp_path / "a")
    assert (told.code, told.err) == (0, "")
    found = json.loads(kraft_audit("check", tmp_path / "a", "--fail-on", "never", "-o", "json").out)
    assert "KP001" in {row["rule"] for row in found if row["status"] == "raised"}
    kraft_audit("simulate", "last-replica-standing", "--seed", "7", "--out", tmp_path / "b")
    assert tree_hash(tmp_path / "a") == tree_hash(tmp_path / "b")


def test_a_fleet(kraft_audit, tmp_path: Path) -> None:
    assert (
        kraft_audit("simulate", "fleet", "--clusters", "2", "--partitions", "3", "--out", tmp_path / "fleet").code == 0
    )
    told = json.loads(kraft_audit("state", tmp_path / "fleet", "--only", "partitions", "-o", "json").out)
    assert [len(cluster["partitions"]) for cluster in told] == [3, 3]


def test_wrong_usage(kraft_audit, tmp_path: Path) -> None:
    told = dict(line.split(maxsplit=1) for line in kraft_audit("simulate", "list").out.splitlines())
    assert told["last-replica-standing"].endswith(".")
    assert {"random", "random-storm", "fleet"} <= told.keys()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    for arguments, word in (
        (["nonsense", "--out", tmp_path / "x"], "nonsense"),
        (["last-replica-standin", "--out", tmp_path / "x"], "last-replica-standing"),
        (["healthy"], "--out"),
        (["healthy", "--out", tmp_path / "full"], "full"),
    ):
        ended = kraft_audit("simulate", *arguments)
        assert (ended.code, len(ended.error_lines)) == (2, 1)
        assert word in ended.err
