"""Custody: the copier's manifests are verified back to the first, and a link that does not hold is named."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

import kraft_audit
from kraft_audit.findings.pack import custody
from kraft_audit.findings.pack.custody import custody_rows
from kraft_capture.cli import main
from tests.builders.live_log import LiveLog

COPIES = 4


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store of a log that grew and was copied COPIES times."""
    log = LiveLog(tmp_path / "node")
    for _ in range(COPIES):
        log.append(4)
        options = ["--to", str(tmp_path / "store"), "--state", str(tmp_path / "state"), "--once", "--durable"]
        options += ["--full-priority"]
        assert main(["--log-dirs", str(log.folder), *options]) in (0, 3)
    return tmp_path / "store"


def _manifest(store: Path, seq: int) -> Path:
    return next(store.rglob(f"{seq:012d}.json.gz"))


def _copier(store: Path) -> dict[str, Any]:
    (cluster,) = kraft_audit.open(str(store))
    (row,) = custody_rows(cluster.plan, cluster.open_storage)
    assert (row["node_id"], row["directory_id"]) == (1, "IztfOUj9Tn6xWIrmebIevg")
    return dict(row["copier"])


def test_the_chain_is_verified_to_the_first_manifest(store: Path) -> None:
    copier = _copier(store)
    stored = _manifest(store, COPIES).read_bytes()
    said = json.loads(gzip.decompress(stored))
    assert copier["manifest_sha256"] == hashlib.sha256(stored).hexdigest()
    assert (copier["seq"], copier["generation"]) == (COPIES, said["generation"])
    assert (copier["first_verified_seq"], copier["is_verified_to_start"], copier["problem"]) == (1, True, None)
    assert copier["copied_from"] == {"host": said["replica"]["host"], "log_dir": said["replica"]["log_dir"]}
    assert copier["end_offset"] == 4 * COPIES


def test_a_manifest_that_was_changed_is_named(store: Path) -> None:
    file = _manifest(store, 2)
    said = json.loads(gzip.decompress(file.read_bytes()))
    file.write_bytes(gzip.compress(json.dumps({**said, "at_ms": said["at_ms"] + 1}).encode()))
    copier = _copier(store)
    assert copier["problem"] == "manifest 2 is not the one that manifest 3 names"
    assert (copier["first_verified_seq"], copier["is_verified_to_start"]) == (3, False)


def test_a_manifest_that_is_gone_or_no_manifest_is_named(store: Path) -> None:
    file = _manifest(store, 2)
    content = file.read_bytes()
    file.write_bytes(b"x")
    assert "not a manifest" in _copier(store)["problem"]
    file.unlink()
    copier = _copier(store)
    assert copier["problem"] == "manifest 2 is missing"
    assert not copier["is_verified_to_start"]
    file.write_bytes(content)
    assert _copier(store)["is_verified_to_start"]


def test_no_more_manifests_are_read_than_the_limit(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(custody, "MANIFESTS_MAX", 2)
    copier = _copier(store)
    assert (copier["first_verified_seq"], copier["is_verified_to_start"], copier["problem"]) == (3, False, None)


def test_what_kraft_capture_did_not_write_has_no_copier(small_corpus: Path) -> None:
    (cluster,) = kraft_audit.open(str(small_corpus / "divergence"))
    rows = list(custody_rows(cluster.plan, cluster.open_storage))
    assert len(rows) == len(cluster.plan.replicas) > 0
    assert {row["copier"] for row in rows} == {None}
    assert all("unread" not in row for row in rows)
