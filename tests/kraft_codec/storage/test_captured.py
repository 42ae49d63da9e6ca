"""What kraft-capture wrote reads as the log dirs do; where a part is missing, it is unreadable, never shorter."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from kraft_audit.commands.cli import run_command
from kraft_codec.errors import CodecError, Reason
from kraft_codec.files.discovery import discover
from kraft_codec.storage import captured
from kraft_codec.storage.captured import CapturedStorage, parse_manifest
from kraft_codec.storage.opener import open_storage
from tests.builders.kept_captures import capture
from tests.builders.live_log import LiveLog, refuse_to_open


@pytest.fixture
def nodes(small_corpus: Path) -> list[Path]:
    """Node dirs of three voters that parted, as one capture has them."""
    return sorted(path.parent for path in sorted((small_corpus / "divergence").iterdir())[0].rglob("meta.properties"))


@pytest.fixture
def store(nodes: list[Path], tmp_path: Path) -> Path:
    for node in nodes:
        capture(node, tmp_path / "store", tmp_path / "state" / node.name)
    return tmp_path / "store"


def contents(path: Path) -> dict[str, dict[str, bytes]]:
    """Files of each replica by its node: name → bytes, of the kinds that are copied as they are."""
    with open_storage(path) as storage:
        found = discover(storage)
        assert found.damages == ()
        return {
            storage.read_small(f"{replica.node_dir}/meta.properties".lstrip("/")).decode(): {
                file.name: storage.read_small(file.path)
                for file in replica.files
                if not file.name.endswith((".index", ".timeindex", ".snapshot", "-offset-checkpoint", ".jsonl.gz"))
            }
            for replica in found.replicas
        }


def test_every_file_is_as_on_the_disk(nodes: list[Path], store: Path) -> None:
    assert contents(store) == contents(nodes[0].parent)


@pytest.mark.parametrize("depth", [1, 2])
def test_a_cluster_or_a_replica_of_a_store_can_be_named(store: Path, depth: int) -> None:
    folder = store
    for _ in range(depth):
        folder = next(path for path in sorted(folder.iterdir()) if path.is_dir())
    with open_storage(folder) as storage:
        assert isinstance(storage, CapturedStorage)
        assert len(discover(storage).replicas) == (4 if depth == 1 else 1)


@pytest.mark.slow
def test_check_says_of_a_store_what_it_says_of_the_disks(
    nodes: list[Path], store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = []
    for path in (store, nodes[0].parent):
        capsys.readouterr()
        assert run_command(["check", str(path), "--output", "json", "--fail-on", "never"]) == 0
        found = json.loads(capsys.readouterr().out)
        answers.append([(row["rule"], row["status"], row["subject"], row["from_offset"]) for row in found])
    assert answers[0] == answers[1]
    assert answers[0]


def test_the_newest_manifest_of_the_newest_generation_counts(tmp_path: Path) -> None:
    log = LiveLog(tmp_path / "node")
    for count in (3, 2):
        log.append(count)
        capture(log.folder, tmp_path / "store", tmp_path / "state")
    log.truncate(1)
    log.append(4)
    capture(log.folder, tmp_path / "store", tmp_path / "state")
    shutil.rmtree(tmp_path / "state")
    log.append(1)
    capture(log.folder, tmp_path / "store", tmp_path / "state")
    with open_storage(tmp_path / "store") as storage:
        (replica,) = discover(storage).replicas
        (segment,) = [file for file in replica.files if file.name.endswith(".log")]
        assert storage.read_small(segment.path) == b"".join(batch.data for batch in log.batches)
        with storage.open(segment.path, segment.size_bytes - 10) as file:
            assert file.read_at(100, 200).tobytes() == b"".join(batch.data for batch in log.batches)[100:300]
            assert file.size_bytes == segment.size_bytes - 10


@pytest.mark.parametrize("damage", ["object is missing", "object is cut", "manifest is cut", "manifest is of another"])
def test_a_replica_that_is_not_whole_is_unreadable(tmp_path: Path, damage: str) -> None:
    log = LiveLog(tmp_path / "node")
    log.append(5)
    capture(log.folder, tmp_path / "store", tmp_path / "state")
    (manifest,) = (tmp_path / "store").rglob("*.json.gz")
    (thing,) = (tmp_path / "store").rglob("objects/*")
    if damage == "object is missing":
        thing.unlink()
    elif damage == "object is cut":
        thing.write_bytes(thing.read_bytes()[:-1])
    elif damage == "manifest is cut":
        manifest.write_bytes(manifest.read_bytes()[:-1])
    else:
        manifest.rename(manifest.with_name("000000000002.json.gz"))
    with open_storage(tmp_path / "store") as storage:
        found = discover(storage)
    assert found.replicas == ()
    assert {each.reason for each in found.damages} == {Reason.UNREADABLE}


def test_an_object_with_other_bytes_is_refused(tmp_path: Path) -> None:
    log = LiveLog(tmp_path / "node")
    log.append(5)
    capture(log.folder, tmp_path / "store", tmp_path / "state")
    (thing,) = (tmp_path / "store").rglob("objects/*")
    thing.write_bytes(b"x" + thing.read_bytes()[1:])
    with open_storage(tmp_path / "store") as storage:
        (replica,) = discover(storage).replicas
        (segment,) = [file for file in replica.files if file.name.endswith(".log")]
        with pytest.raises(CodecError, match="not what its name says"):
            storage.read_small(segment.path)


def test_what_the_copier_could_not_read_is_not_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    log = LiveLog(tmp_path / "node")
    log.append(5)
    log.snapshot()
    with monkeypatch.context() as patched:
        refuse_to_open(patched, ".checkpoint")
        capture(log.folder, tmp_path / "store", tmp_path / "state", code=3)
    with open_storage(tmp_path / "store") as storage:
        (replica,) = discover(storage).replicas
        (snapshot,) = [file for file in replica.files if file.name.endswith(".checkpoint")]
        with pytest.raises(CodecError, match="EACCES") as refusal:
            storage.open(snapshot.path)
        assert refusal.value.reason is Reason.UNREADABLE


def test_a_folder_of_log_dirs_is_no_store(nodes: list[Path]) -> None:
    for path in (nodes[0], nodes[0].parent, nodes[0].parents[1], nodes[0] / "__cluster_metadata-0"):
        with open_storage(path) as storage:
            assert not isinstance(storage, CapturedStorage)


def test_a_hostile_name_beside_log_dirs_is_left_to_their_storage(tmp_path: Path) -> None:
    LiveLog(tmp_path / "root" / "node")
    (tmp_path / "root" / "a\nb").mkdir()
    with open_storage(tmp_path / "root") as storage:
        assert not isinstance(storage, CapturedStorage)
        assert {each.reason for each in discover(storage).damages} == {Reason.HOSTILE_NAME}


def packed(manifest: dict[str, Any]) -> bytes:
    return gzip.compress(json.dumps(manifest).encode())


GOOD: dict[str, Any] = {
    "format": "kraft-capture/1", "generation": "0" * 32, "seq": 1, "at_ms": 0, "parent": {}, "log": {}, "entries": [],
}  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"format": "kraft-capture/2"},
        {"seq": "1"},
        {"parent": None},
        {"entries": None},
        {"entries": [{"path": "a"}]},
        {"entries": [{"path": "a", "state": "sent", "ranges": [[1, 1, "0" * 64]]}]},
        {"entries": [{"path": "a", "state": "sent", "ranges": [[0, 1, "../../etc/passwd"]]}]},
        {"entries": [{"path": "a", "state": "sent", "ranges": [[0, -1, "0" * 64]]}]},
        {"entries": [{"path": "a", "state": "sent", "text": 1}]},
    ],
)
def test_a_manifest_that_is_none(change: dict[str, Any]) -> None:
    assert parse_manifest(packed(GOOD), "name")["seq"] == 1
    with pytest.raises(CodecError, match="not a manifest"):
        parse_manifest(packed({**GOOD, **change}), "name")


def test_a_manifest_that_unpacks_to_more_than_one_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(captured, "MANIFEST_BYTES_MAX", 1 << 16)
    for content in (gzip.compress(bytes(1 << 20)), b"", packed(GOOD) + b"more", json.dumps(GOOD).encode()):
        with pytest.raises(CodecError, match="not a manifest"):
            parse_manifest(content, "name")


def test_what_had_reached_the_disk_is_in_the_table_of_captures(
    nodes: list[Path], store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a copy by hand it is not known; of a manifest that says nothing, none had."""
    ends = {}
    for path in (nodes[0].parent, store):
        assert run_command(["dump", str(path), "--table", "captures", "-o", "jsonl"]) == 0
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        ends[path] = [(row["log_end_offset"], row["held_end_offset"]) for row in rows]
    assert {held for _, held in ends[nodes[0].parent]} == {None}
    assert [(end, end) for end, _ in ends[store]] == ends[store]
    (manifest,) = store.glob("*/1-*/*/*.json.gz")
    body = json.loads(gzip.decompress(manifest.read_bytes()))
    body["log"]["held_end_offset"] = body["log"]["held_by"] = None
    manifest.write_bytes(gzip.compress(json.dumps(body).encode()))
    with open_storage(store) as storage:
        folder = manifest.parents[1].relative_to(store).as_posix()
        assert storage.held_end_offset(folder) == 0
