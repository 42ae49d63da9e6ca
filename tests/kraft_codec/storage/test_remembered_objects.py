"""What is asked of an object store: each thing once, and again where it is no longer as it was listed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
from pyarrow import fs

from kraft_codec.errors import CodecError, Reason
from kraft_codec.file_names import FileKind
from kraft_codec.files.discovery import discover
from kraft_codec.storage import remembered_objects
from kraft_codec.storage.capture_stores import BucketCaptures, is_capture_store
from kraft_codec.storage.captured import CapturedStorage
from kraft_codec.storage.object_store import ObjectStorage
from kraft_codec.storage.opener import open_storage
from kraft_codec.storage.random_access import FileChange, Limits
from kraft_codec.storage.remembered_objects import (
    RANGE_BYTES,
    SMALL_BYTES,
    RememberedObjects,
    accept_carried,
    take_carried,
)
from tests.builders.kept_captures import capture
from tests.builders.node_dirs import MakeNodeDir, heads

ADDRESS: Final = "s3://incidents/tree"


class CountedStore:
    """A local folder that says of its objects what S3 does, and counts what it is asked."""

    type_name = "s3"

    def __init__(self) -> None:
        self._store = fs.LocalFileSystem()
        self.asked: Counter[str] = Counter()

    def get_file_info(self, asked: Any) -> Any:
        self.asked["LIST" if not isinstance(asked, str) else "HEAD"] += 1
        found = self._store.get_file_info(asked)
        return _in_seconds(found) if isinstance(asked, str) else [_in_seconds(info) for info in found]

    def open_input_file(self, place: str) -> CountedFile:
        self.asked["HEAD"] += 1
        return CountedFile(self, self._store.open_input_file(place), place)


class CountedFile:
    """An open object; reading asks for a range of what is there now."""

    def __init__(self, store: CountedStore, file: Any, place: str) -> None:
        self._store = store
        self._size = file.size()
        self._place = place
        self._modified = int(Path(place).stat().st_mtime)

    def size(self) -> int:
        return int(self._size)

    def metadata(self) -> dict[str, bytes]:
        return {"Last-Modified": datetime.fromtimestamp(self._modified, UTC).strftime("%Y-%m-%dT%H:%M:%SZ").encode()}

    def read_at(self, size: int, position: int) -> bytes:
        self._store.asked["GET"] += 1
        return Path(self._place).read_bytes()[position : position + size]


def _in_seconds(info: Any) -> Any:
    if info.type != fs.FileType.File:
        return info
    return fs.FileInfo(info.path, info.type, size=info.size, mtime_ns=info.mtime_ns // 10**9 * 10**9)


@pytest.fixture
def tree(make_node_dir: MakeNodeDir, tmp_path: Path) -> Path:
    for node_id in (1, 2, 3):
        make_node_dir(tmp_path / "tree" / f"node-{node_id}", node_id=node_id)
    return tmp_path / "tree"


@pytest.fixture
def store() -> CountedStore:
    return CountedStore()


@pytest.fixture
def storage(store: CountedStore, tree: Path) -> Iterator[ObjectStorage]:
    with ObjectStorage(RememberedObjects(store, ADDRESS), str(tree), ADDRESS) as opened:
        yield opened


def test_each_folder_and_each_object_is_asked_for_once(storage: ObjectStorage, store: CountedStore, tree: Path) -> None:
    files = [path for path in tree.rglob("*") if path.is_file()]
    folders = [path for path in tree.rglob("*") if path.is_dir()]
    with open_storage(tree) as plain:
        expected = [heads(plain, replica) for replica in discover(plain).replicas]
    for _ in range(3):
        assert [heads(storage, replica) for replica in discover(storage).replicas] == expected
    assert store.asked["LIST"] == 1 + len(folders)
    assert store.asked["GET"] == store.asked["HEAD"] <= len(files)
    assert store.asked["GET"] >= 3 * 3  # meta.properties, quorum-state and the log of each


def test_what_is_no_longer_as_it_was_listed_is_read_as_it_is(storage: ObjectStorage, tree: Path) -> None:
    place = "node-1/__cluster_metadata-0/quorum-state"
    discover(storage)
    before = storage.read_small(place)
    segment = next(tree.glob("node-1/*/*.log"))
    with storage.open(str(segment.relative_to(tree))) as log:
        log.read_at(0, 61)
    with segment.open("ab") as file:
        file.write(bytes(SMALL_BYTES))
    (tree / place).write_bytes(before + b"\n")
    assert storage.read_small(place) == before  # as old as the listing, as the log is
    assert storage._store.get_file_info(str(segment)).size == segment.stat().st_size
    assert storage.read_small(place) == before + b"\n"
    (tree / place).write_bytes(before + b"\n\n")
    assert storage.read_small(place) == before + b"\n\n"


def test_a_large_object_comes_in_ranges_of_which_the_next_is_under_way(
    storage: ObjectStorage, store: CountedStore, tree: Path
) -> None:
    content = bytes(range(251)) * (3 * RANGE_BYTES // 251)
    (tree / "node-1" / "large.log").write_bytes(content)
    start = 1_000_000
    storage.list_dir("node-1")
    asked = store.asked["GET"]
    with storage.open("node-1/large.log") as file:
        parts = [file.read_at(at, min(1 << 20, len(content) - at)) for at in range(start, len(content), 1 << 20)]
        assert b"".join(part.tobytes() for part in parts) == content[start:]
        assert file.change() is FileChange.NONE
    assert store.asked["GET"] - asked == -(-(len(content) - start) // RANGE_BYTES)
    with storage.open("node-1/large.log") as file:  # headers that lie near each other
        for at in range(0, SMALL_BYTES - 61, 1000):
            assert file.read_at(at, 61).tobytes() == content[at : at + 61]
    assert store.asked["GET"] - asked == 1 + -(-(len(content) - start) // RANGE_BYTES)


def test_an_object_that_is_cut_while_it_is_read(storage: ObjectStorage, tree: Path) -> None:
    large = tree / "node-1" / "large.log"
    large.write_bytes(bytes(2 * RANGE_BYTES))
    storage.list_dir("node-1")
    with storage.open("node-1/large.log") as file:
        file.read_at(0, 100)
        large.write_bytes(bytes(RANGE_BYTES))
        with pytest.raises(CodecError) as caught:
            file.read_at(RANGE_BYTES, 1 << 20)
        assert caught.value.reason is Reason.CHANGED_DURING_READ
        assert file.change() is FileChange.SHRANK


def test_what_planning_asked_is_not_asked_again_where_it_is_read(
    storage: ObjectStorage, store: CountedStore, tree: Path
) -> None:
    expected = [heads(storage, replica) for replica in discover(storage).replicas]
    storage.carry()
    carried = take_carried([ADDRESS, "s3://another"])
    assert set(carried) == {ADDRESS}
    assert take_carried([ADDRESS]) == {}
    store.asked.clear()
    accept_carried(carried)
    try:
        with ObjectStorage(RememberedObjects(store, ADDRESS), str(tree), ADDRESS) as further:
            assert [heads(further, replica) for replica in discover(further).replicas] == expected
    finally:
        accept_carried({})
    assert not store.asked


def test_what_kraft_capture_wrote_costs_few_requests(store: CountedStore, small_corpus: Path, tmp_path: Path) -> None:
    """A cluster: its listing; a replica: a listing of all, a manifest with its size; each object with its size."""
    nodes = sorted(path.parent for path in (small_corpus / "mini-4.4.0").rglob("meta.properties"))
    for node in nodes:
        capture(node, tmp_path / "store", tmp_path / "state" / node.name)
    (cluster,) = (tmp_path / "store").iterdir()
    captures = BucketCaptures(RememberedObjects(store, ADDRESS), str(cluster))
    assert is_capture_store(captures)
    with CapturedStorage(captures, ADDRESS, Limits()) as storage:
        found = discover(storage).replicas
        assert len(found) == len(nodes) >= 1
        assert store.asked == {"LIST": 1 + len(nodes), "HEAD": len(nodes), "GET": len(nodes)}
        with open_storage(nodes[0].parent) as plain:
            expected = sorted(plain.read_small(file.path) for each in discover(plain).replicas for file in each.files)
        own = [file for replica in found for file in replica.files if file.kind is not FileKind.BROKER_DISKS]
        read = [storage.read_small(file.path) for file in own]
        assert set(read) <= set(expected)
    objects = [path for path in cluster.rglob("objects/*") if path.is_file()]
    assert store.asked["LIST"] == 1 + len(nodes)
    assert 0 < store.asked["GET"] - len(nodes) <= len(objects)


def test_memory_is_bounded(store: CountedStore, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered_objects, "SMALL_BYTES_KEPT", 1000)
    for number in range(30):
        (tree / "node-1" / f"{number:020d}.log").write_bytes(bytes([number]) * 100)
    with ObjectStorage(RememberedObjects(store, ADDRESS), str(tree), ADDRESS) as storage:
        storage.list_dir("node-1")
        for _ in range(2):
            for number in range(30):
                assert storage.read_small(f"node-1/{number:020d}.log") == bytes([number]) * 100
        assert sum(map(len, storage._store._small.values())) <= 1000
