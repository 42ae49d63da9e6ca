"""Several PATHs are what a folder of just those would be, and logs without meta.properties are whose --as says."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kraft_audit.commands.cli import run_command


def answer(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> Any:
    code = run_command([*map(str, arguments), "--output", "json"])
    shown = capsys.readouterr()
    assert code in (0, 1), shown.err
    return json.loads(shown.out)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["twice", "pattern", "printed", "log dirs", "archive"])
def test_several_paths_are_one_folder(
    two_nodes: Sequence[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    given: list[str | Path] = list(two_nodes)
    if form == "twice":
        given = [two_nodes[1], two_nodes[0], two_nodes[1]]
    elif form == "pattern":
        given = [f"{tmp_path}/both/n*"]
    elif form == "printed":
        given = ["{" + ",".join(map(str, two_nodes)) + "}"]
    elif form == "log dirs":
        given = [node / "__cluster_metadata-0" for node in two_nodes]
    elif form == "archive":
        (tmp_path / "elsewhere").mkdir()
        first, second = two_nodes
        packed = shutil.make_archive(str(tmp_path / "elsewhere" / "node-2"), "gztar", second.parent, second.name)
        given = [first, packed]
    expected = answer(capsys, "check", tmp_path / "both", "--fail-on", "never")
    assert len(expected) > 3

    def without_paths(rows: list[dict[str, Any]]) -> list[Any]:
        return [
            {**row, "evidence": [{**fact, "path": None, "file_name": None} for fact in row["evidence"]]} for row in rows
        ]

    found = answer(capsys, "check", *given, "--fail-on", "never")
    assert without_paths(found) == without_paths(expected)
    if form != "archive":
        assert found == expected, "below the folder that they have in common each stands where it lies"


@pytest.mark.slow
def test_logs_without_meta_properties_are_whose_as_says(
    two_nodes: Sequence[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = answer(capsys, "quorum", tmp_path / "both")
    for node in two_nodes:
        (node / "meta.properties").unlink()
    logs = [node / "__cluster_metadata-0" for node in reversed(two_nodes)]
    id_ = expected["cluster_id"]
    found = answer(capsys, "quorum", *logs, "--as", f"{id_}=2", "--as", f"{id_}=1")
    for name in ("cluster_id", "leader_id", "leader_epoch", "committed_low"):
        assert found[name] == expected[name], name
    assert {(row["node_id"], row["log_end_offset"]) for row in found["replicas"]} == {
        (row["node_id"], row["log_end_offset"]) for row in expected["replicas"]
    }
    assert run_command(["quorum", *map(str, logs), "--as", f"{id_}=2"]) == 2
    assert "--as: 1 given; logs without a node id: node-2/" in capsys.readouterr().err
    assert run_command(["quorum", *map(str, logs), "--as", "x=2"]) == 2
    assert "expected CLUSTER=NODE" in capsys.readouterr().err


@pytest.mark.parametrize("out", ["both/node-2/out", "both/node-1"])
def test_nothing_is_written_into_any_of_them(two_nodes: Sequence[Path], tmp_path: Path, out: str) -> None:
    assert run_command(["report", *map(str, two_nodes), "--out", str(tmp_path / out)]) == 2


def test_a_path_that_is_missing_is_named(two_nodes: Sequence[Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["check", str(two_nodes[0]), "/nowhere/at/all"]) == 3
    assert "/nowhere/at/all: no such file" in capsys.readouterr().err
    assert run_command(["check", str(two_nodes[0]), "/a,b"]) == 2
    assert "give their folder" in capsys.readouterr().err
