"""`doctor --captures`: what is wrong with a store of kraft-capture is found and named, with its remedy."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from kraft_audit.commands.capture_checks import OLD_MS, capture_checks
from kraft_capture.cli import main
from tests.builders.commands import Command
from tests.builders.live_log import LiveLog


@pytest.fixture
def log(tmp_path: Path) -> LiveLog:
    """A log that was copied three times."""
    log = LiveLog(tmp_path / "node")
    for _ in range(3):
        log.append(4)
        capture(log)
    return log


def capture(log: LiveLog) -> None:
    folder = log.folder.parent
    options = [
        "--to",
        str(folder / "store"),
        "--state",
        str(folder / "state"),
        "--once",
        "--durable",
        "--full-priority",
    ]
    assert main(["--log-dirs", str(log.folder), *options]) in (0, 3)


def problems(log: LiveLog, age_ms: int = 0) -> list[tuple[str, str]]:
    """(status, what was found) of the only replica."""
    store = log.folder.parent / "store"
    newest = max(path.stat().st_mtime_ns for path in store.rglob("*.json.gz")) // 1_000_000
    rows = capture_checks(str(store), newest + age_ms)
    assert {what for what, _, _, _ in rows} == {"SPA6Lw-19VaaSAxl6jMkhw/1-IztfOUj9Tn6xWIrmebIevg"}
    assert all(bool(remedy) == (status != "ok") for _, status, _, remedy in rows)
    return [(status, found) for _, status, found, _ in rows]


def manifest(log: LiveLog, seq: int) -> Path:
    return next((log.folder.parent / "store").rglob(f"{seq:012d}.json.gz"))


def test_a_store_in_order(log: LiveLog) -> None:
    assert problems(log) == [("ok", "manifest 3, 0 min old, offsets 0 to 12, held below 12")]


def test_a_store_without_a_manifest_for_an_hour(log: LiveLog) -> None:
    assert problems(log, OLD_MS + 60_000) == [("warn", "the newest manifest is 61 min old")]
    assert problems(log, 48 * OLD_MS)[0][1].endswith("2 days old")


def test_a_manifest_that_is_gone(log: LiveLog) -> None:
    manifest(log, 2).unlink()
    assert problems(log) == [("fail", "1 manifests before 3 are missing, the first is 2")]


def test_a_manifest_that_was_changed(log: LiveLog) -> None:
    path = manifest(log, 1)
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()).replace(b'"lock":"', b'"lock":"x')))
    assert problems(log) == [("fail", "manifest 1 is not the one that manifest 2 names")]


def test_an_object_that_is_gone(log: LiveLog) -> None:
    (sent,) = [
        entry["ranges"]
        for entry in json.loads(gzip.decompress(manifest(log, 3).read_bytes()))["entries"]
        if "ranges" in entry
    ]
    next((log.folder.parent / "store").rglob(sent[0][2])).unlink()
    found = problems(log)
    assert [status for status, _ in found] == ["fail", "fail"]
    assert "of manifest 3 is missing" in found[0][1]


def test_offsets_that_were_never_read(log: LiveLog) -> None:
    log.append(3)
    log.roll()
    log.append(1)
    log.clean(1)
    capture(log)
    assert problems(log) == [("warn", "offsets 12 to 15 were never read")]


def test_damage_of_the_log(log: LiveLog) -> None:
    log.roll()
    log.append(2)
    log.roll()
    log.append(1)
    path = log.log_dir / "00000000000000000012.log"
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    capture(log)
    found = problems(log)
    assert ("warn", "offsets 13 to 14 were never sent") in found
    assert any("a CRC that does not fit the bytes at " in text for _, text in found)


def test_as_a_command(log: LiveLog, kraft_audit: Command, tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    ended = kraft_audit("doctor", "--captures", store, "--output", "json")
    assert (ended.code, [row["status"] for row in json.loads(ended.out)]) == (0, ["ok"])
    ended = kraft_audit("doctor", "--captures", str(log.folder), "--output", "json")
    assert ended.code == 1
    assert "nothing that kraft-capture wrote" in ended.out
    ended = kraft_audit("doctor", "--captures", str(tmp_path / "missing"), "--output", "json")
    assert ended.code == 1
