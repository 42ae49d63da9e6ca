"""What is kept beside the tables: found by its name with just the bytes that were written, and by nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft_audit.lake.staging.state_store import STATES_FOLDER, delete_states, get_state, put_state
from kraft_audit.pipeline.earlier_captures import EarlierCapturesError


@pytest.mark.parametrize("history", ["SPA6Lw-19VaaSAxl6jMkhw", "../../outside", "a/b", "x" * 5_000])
def test_a_state_is_found_by_its_name(history: str, tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    name = put_state(lake, history, b"first")
    assert put_state(lake, history, b"first") == name
    assert get_state(lake, history, name) == b"first"
    assert put_state(lake, history, b"second") != name
    assert {path.parent.parent for path in tmp_path.rglob("*") if path.is_file()} == {tmp_path / "lake" / STATES_FOLDER}
    with pytest.raises(EarlierCapturesError, match="not in the lake"):
        get_state(lake, "another", name)


def test_bytes_that_changed_are_not_taken(tmp_path: Path) -> None:
    name = put_state(str(tmp_path), "history", b"content")
    (file,) = (path for path in tmp_path.rglob(name))
    file.write_bytes(b"contenT")
    with pytest.raises(EarlierCapturesError, match="not those that were written"):
        get_state(str(tmp_path), "history", name)


@pytest.mark.parametrize("name", ["", "..", "../../../etc/passwd", "0" * 31, "G" * 32])
def test_what_is_no_name_is_not_looked_for(name: str, tmp_path: Path) -> None:
    with pytest.raises(EarlierCapturesError, match="no name of a state"):
        get_state(str(tmp_path), "history", name)


def test_states_that_no_plan_needs_are_deleted(tmp_path: Path) -> None:
    names = [put_state(str(tmp_path), "history", content) for content in (b"1", b"2", b"3")]
    put_state(str(tmp_path), "another", b"1")
    assert delete_states(str(tmp_path), "history", frozenset(names[2:]), dry_run=True) == 2
    assert get_state(str(tmp_path), "history", names[0]) == b"1"
    assert delete_states(str(tmp_path), "history", frozenset(names[2:])) == 2
    assert get_state(str(tmp_path), "history", names[2]) == b"3"
    assert get_state(str(tmp_path), "another", names[0]) == b"1"
    with pytest.raises(EarlierCapturesError, match="not in the lake"):
        get_state(str(tmp_path), "history", names[0])
    assert delete_states(str(tmp_path), "history", frozenset(names)) == 0
