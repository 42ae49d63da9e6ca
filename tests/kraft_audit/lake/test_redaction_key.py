"""One key per lake: made once, by its owner's eyes only, and never replaced in silence."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kraft_audit.lake.redaction_key import KEY_VARIABLE, declared_key, key_id, load_key
from kraft_codec.errors import InputError


def test_a_key_is_made_once(tmp_path: Path) -> None:
    file = tmp_path / "keys" / "lake.key"
    key = load_key(file, may_create=True)
    assert len(key) == 32
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert load_key(file, may_create=True) == key
    assert load_key(file, may_create=False) == key
    assert [left.name for left in file.parent.iterdir()] == ["lake.key"]


def test_two_first_runs_end_with_one_key(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        keys = list(pool.map(lambda _: load_key(tmp_path / "key", may_create=True), range(32)))
    assert len(set(keys)) == 1


def test_a_lost_key_is_not_replaced(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the lake was begun with one: bring it back"):
        load_key(tmp_path / "key", may_create=False)
    assert not (tmp_path / "key").exists()


@pytest.mark.parametrize("text", ["", "xyz", "ab" * 31, "ab" * 33, "a secret"])
def test_what_is_no_key_is_refused_and_not_shown(tmp_path: Path, text: str) -> None:
    file = tmp_path / "key"
    file.write_text(text)
    with pytest.raises(InputError, match="expected a redaction key of 64 hexadecimal digits") as raised:
        load_key(file, may_create=True)
    assert not text or text not in str(raised.value).partition(": ")[2]


@pytest.mark.parametrize("mode", [0o600, 0o700, 0o400])
def test_a_declared_key_that_its_owner_alone_reads_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    key = load_key(tmp_path / "key", may_create=True)
    (tmp_path / "key").chmod(mode)
    monkeypatch.setenv(KEY_VARIABLE, str(tmp_path / "key"))
    assert declared_key() == key


@pytest.mark.parametrize("mode", [0o640, 0o620, 0o610, 0o604, 0o602, 0o601])
def test_a_declared_key_that_others_may_touch_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    load_key(tmp_path / "key", may_create=True)
    (tmp_path / "key").chmod(mode)
    monkeypatch.setenv(KEY_VARIABLE, str(tmp_path / "key"))
    with pytest.raises(InputError, match=f"others may read the redaction key \\(mode {mode:04o}\\): chmod 600 it"):
        declared_key()


def test_ids_report_keys_apart_and_not_the_key() -> None:
    first, second = bytes(32), bytes([1] * 32)
    assert key_id(first) != key_id(second)
    assert key_id(first) == key_id(first)
    assert first.hex() not in key_id(first)
