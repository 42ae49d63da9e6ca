"""Log dirs in an object store: the same as in a directory, through pyarrow's file systems."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pyarrow import fs

from kraft_codec.errors import CodecError, InputError, Reason
from kraft_codec.file_names import segment_name
from kraft_codec.files.discovery import Discovery, discover
from kraft_codec.files.logdir import segments
from kraft_codec.storage.object_store import ObjectStorage
from kraft_codec.storage.opener import open_storage
from kraft_codec.storage.random_access import FileChange, Limits, Storage
from kraft_codec.storage.remembered_objects import SMALL_BYTES, RememberedObjects
from tests.builders.node_dirs import MakeNodeDir, heads

SEGMENT = f"now/node-1/__cluster_metadata-0/{segment_name(0)}"
BUCKET = "incidents"


@pytest.fixture
def tree(make_node_dir: MakeNodeDir, tmp_path: Path) -> Path:
    for capture in ("now", "later"):
        for node_id in (1, 2):
            make_node_dir(tmp_path / "tree" / capture / f"node-{node_id}", node_id=node_id)
    (tmp_path / "tree" / "now" / "node-1" / "orders-0").mkdir()
    (tmp_path / "tree" / "now" / "node-1" / "orders-0" / segment_name(0)).write_bytes(b"a broker's own")
    (tmp_path / "tree" / "notes.txt").write_text("x")
    return tmp_path / "tree"


@pytest.fixture
def storage(tree: Path) -> Iterator[Storage]:
    with ObjectStorage(
        RememberedObjects(fs.LocalFileSystem(), "s3://incidents/tree"), str(tree), "s3://incidents/tree"
    ) as opened:
        yield opened


def assert_same(storage: Storage, tree: Path) -> Discovery:
    found = discover(storage)
    with open_storage(tree) as plain:
        expected = discover(plain)
        for replica, twin in zip(found.replicas, expected.replicas, strict=True):
            assert (replica.capture, replica.node_dir, replica.path) == (twin.capture, twin.node_dir, twin.path)
            assert [(file.path, file.kind, file.size_bytes) for file in replica.files] == [
                (file.path, file.kind, file.size_bytes) for file in twin.files
            ]
            for file in replica.files:
                assert storage.read_small(file.path) == plain.read_small(file.path)
            assert heads(storage, replica) == heads(plain, twin)
            assert segments(storage, replica)[1] == ()
    return found


def test_an_object_store_gives_the_same_as_a_directory(storage: Storage, tree: Path) -> None:
    found = assert_same(storage, tree)
    assert len(found.replicas) == 4
    assert found.damages == ()
    assert storage.medium("now/node-1") == "object_store"


def test_an_archive_in_an_object_store(storage: Storage, tree: Path) -> None:
    with tarfile.open(tree / "monday.tgz", "w:gz") as writer:
        writer.add(tree / "now", "inside")
    shutil.copy(tree / "monday.tgz", tree / "copy.tar")  # recognised by its content
    (tree / "broken.zip").write_bytes(b"PK\x03\x04")
    (tree / "directory.tar").mkdir()
    found = discover(storage)
    assert [replica.path for replica in found.replicas if "monday" in replica.path] == [
        "monday.tgz/inside/node-1/__cluster_metadata-0",
        "monday.tgz/inside/node-2/__cluster_metadata-0",
    ]
    assert len(found.replicas) == 8
    assert [(damage.path, damage.reason) for damage in found.damages] == [("broken.zip", Reason.BAD_FILE)]
    assert storage.medium("monday.tgz/inside") == "archive"
    assert storage.read_small("monday.tgz/inside/node-1/meta.properties")


def test_bytes_come_in_a_buffer_of_the_caller(storage: Storage, tree: Path) -> None:
    content = (tree / SEGMENT).read_bytes()
    with storage.open(SEGMENT) as file:
        buffer = np.zeros(20, np.uint8)
        file.read_into(5, buffer)
        assert buffer.tobytes() == content[5:25]
        assert file.read_at(0, file.size_bytes).tobytes() == content
        with pytest.raises(CodecError):
            file.read_at(1, len(content))
        assert file.change() is FileChange.NONE
        with (tree / SEGMENT).open("ab") as log:
            log.write(b"more")
        assert file.change() is FileChange.GREW
        (tree / SEGMENT).unlink()
        assert file.change() is FileChange.VANISHED
    with pytest.raises(CodecError) as caught:
        storage.open(SEGMENT)
    assert caught.value.reason is Reason.CHANGED_DURING_READ


def test_an_object_shorter_than_planned_has_changed(storage: Storage, tree: Path) -> None:
    size = (tree / SEGMENT).stat().st_size
    with storage.open(SEGMENT, planned_size_bytes=10) as file:
        assert file.size_bytes == 10
    with pytest.raises(CodecError) as caught:
        storage.open(SEGMENT, planned_size_bytes=size + 1)
    assert caught.value.reason is Reason.CHANGED_DURING_READ


def test_hostile_names_and_paths_are_refused(storage: Storage, tree: Path) -> None:
    (tree / "two\nlines").mkdir()
    (tree / "\u202eevil").mkdir()
    damages = discover(storage).damages
    assert [damage.reason for damage in damages] == [Reason.HOSTILE_NAME] * 2
    assert all("\n" not in damage.path for damage in damages)
    for path in ("../x", "/etc/passwd", "a\nb"):
        with pytest.raises(CodecError) as caught:
            storage.open(path)
        assert caught.value.reason is Reason.HOSTILE_NAME


def test_names_in_a_prefix_are_bounded(tree: Path) -> None:
    limits = Limits(entry_count=3)
    with ObjectStorage(
        RememberedObjects(fs.LocalFileSystem(), "s3://incidents/tree"), str(tree), "s3://incidents/tree", limits=limits
    ) as storage:
        assert Reason.LIMIT in {damage.reason for damage in discover(storage).damages}


@pytest.mark.parametrize(
    "address",
    [
        "s3://AKIAKEY:hunter2@incidents/tree",
        "s3://AKIAKEY@incidents/tree",
        "abfs://account:hunter2@container/tree",
        "gs://user:hunter2@incidents/tree?x=hunter2",
    ],
)
def test_credentials_in_an_address_are_refused_and_not_repeated(address: str) -> None:
    with pytest.raises(InputError, match="leave them to the environment") as caught:
        open_storage(address)
    for secret in ("hunter2", "AKIAKEY"):
        assert secret not in str(caught.value)


@pytest.mark.parametrize("address", ["s3://", "s3://two\nlines/x", "abfs://"])
def test_an_address_of_nothing_is_one_line(address: str) -> None:
    with pytest.raises(InputError) as caught:
        open_storage(address)
    assert "\n" not in str(caught.value)
    assert "s3" in str(caught.value) or "abfs" in str(caught.value)


@pytest.mark.parametrize(
    ("address", "kind", "root"),
    [
        ("gs://incidents/orders/now", "gcs", "incidents/orders/now"),
        ("gcs://anonymous@incidents/orders", "gcs", "incidents/orders"),
        ("abfs://incidents@account.dfs.core.windows.net/orders/now", "abfs", "incidents/orders/now"),
        ("abfss://incidents@account.dfs.core.windows.net/orders", "abfs", "incidents/orders"),
    ],
)
def test_an_address_goes_to_its_store_without_a_word_of_credentials(
    address: str, kind: str, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As far as no network is needed: pyarrow makes the store, whose own SDK looks for credentials when it is asked."""
    asked: list[tuple[str, str]] = []
    from_uri = fs.FileSystem.from_uri

    def opened(uri: str) -> tuple[fs.FileSystem, str]:
        store, place = from_uri(uri)
        asked.append((store.type_name, place))
        raise OSError("no service here\nsecond line")

    monkeypatch.setattr(fs, "FileSystem", type("Stores", (), {"from_uri": staticmethod(opened)}))
    with pytest.raises(InputError, match=r"no service here$"):
        open_storage(address)
    assert asked == [(kind, root)]


@pytest.fixture
def gcs(tree: Path) -> Iterator[str]:
    """The address of `tree` on a server of its own process: pyarrow keeps the interpreter while it asks for a size."""
    command = [sys.executable, str(Path(__file__).with_name("google_objects.py")), str(tree), BUCKET]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = server.stdout.readline().strip()
        try:
            yield f"gs://anonymous@{BUCKET}/tree?scheme=http&endpoint_override=127.0.0.1:{port}"
        finally:
            server.kill()


def test_google_cloud_storage(gcs: str, tree: Path) -> None:
    with open_storage(gcs) as storage:
        assert len(assert_same(storage, tree).replicas) == 4
        assert storage.medium("now") == "object_store"
    missing = gcs.replace("/tree?", "/nothing?")
    with pytest.raises(InputError, match="no such object or prefix") as caught:
        open_storage(missing)
    assert "endpoint_override" not in str(caught.value)


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[fs.FileSystem]:
    """A server that speaks S3, empty but for a bucket; its credentials are in the environment, as they should be."""
    server = pytest.importorskip("moto.server")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for name, value in {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
    running.start()
    try:
        store = fs.S3FileSystem(
            endpoint_override=f"127.0.0.1:{port}", scheme="http", region="us-east-1", allow_bucket_creation=True
        )
        store.create_dir(BUCKET)
        yield store
    finally:
        running.stop()


@pytest.mark.ci
def test_s3(s3: fs.FileSystem, tree: Path, tmp_path: Path) -> None:
    fs.copy_files(str(tree), f"{BUCKET}/tree", destination_filesystem=s3)
    with open_storage(f"s3://{BUCKET}/tree") as storage:
        assert len(assert_same(storage, tree).replicas) == 4
        with storage.open(SEGMENT) as file:
            assert file.mtime_ms > 0
            s3.delete_file(f"{BUCKET}/tree/{SEGMENT}")
            assert file.change() is FileChange.NONE, "it was read whole, by one request"
    with s3.open_output_stream(f"{BUCKET}/large/0.log") as sink:
        sink.write(bytes(SMALL_BYTES + 1))
    with open_storage(f"s3://{BUCKET}/large") as storage, storage.open("0.log") as file:
        assert file.change() is FileChange.NONE
        s3.delete_file(f"{BUCKET}/large/0.log")
        assert file.change() is FileChange.VANISHED
    with tarfile.open(tmp_path / "incident.tgz", "w:gz") as writer:
        writer.add(tree / "later", ".")
    fs.copy_files(str(tmp_path / "incident.tgz"), f"{BUCKET}/incident.tgz", destination_filesystem=s3)
    with open_storage(f"s3://{BUCKET}/incident.tgz") as storage:
        assert len(assert_same(storage, tree / "later").replicas) == 2
    for missing in (f"s3://{BUCKET}/nothing", f"s3://{BUCKET}-too/tree"):
        with pytest.raises(InputError) as caught:
            open_storage(missing)
        assert "\n" not in str(caught.value)
        assert str(caught.value).startswith(missing)
