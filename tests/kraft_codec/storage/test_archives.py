"""Archives give what their directories hold: each format of tar, gzip, zip, sparse files, cut and damaged ones."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pyarrow as pa
import pytest

from kraft_codec.errors import CodecError, Damage, InputError, Reason
from kraft_codec.file_names import offset_index_name, segment_name, snapshot_name, time_index_name
from kraft_codec.files.discovery import Discovery, discover
from kraft_codec.storage.archives import ArchiveStorage
from kraft_codec.storage.opener import StoragePool, open_storage
from kraft_codec.storage.random_access import FileChange, Limits, Storage
from tests.builders.node_dirs import MakeNodeDir, heads

LOG = "node-1/__cluster_metadata-0"
SEGMENT = f"{LOG}/{segment_name(0)}"
TAR_FORMATS = ["v7", "oldgnu", "gnu", "ustar", "posix"]


@pytest.fixture
def tree(make_node_dir: MakeNodeDir, tmp_path: Path) -> Path:
    """A directory with one node dir, its indexes preallocated, a time of its own for each file."""
    node_dir = make_node_dir(tmp_path / "tree" / "node-1")
    log_dir = node_dir / "__cluster_metadata-0"
    for name in (offset_index_name(0), time_index_name(0)):
        with (log_dir / name).open("wb") as file:
            file.truncate(10 << 20)
    (log_dir / f"{segment_name(0)}.deleted").write_bytes(b"old")
    (node_dir / "server.log").write_text("no part of a node dir")
    for seconds, path in enumerate(sorted((tmp_path / "tree").rglob("*"))):
        os.utime(path, (1_700_000_000 + seconds, 1_700_000_000 + seconds))
    return tmp_path / "tree"


def gnu_tar(tree: Path, archive: Path, *options: str) -> Path:
    tar = shutil.which("tar")
    if tar is None:
        pytest.skip("no tar here")
    subprocess.run([tar, *options, "-cf", str(archive), "-C", str(tree), "."], check=True, capture_output=True)
    return archive


def assert_same(storage: Storage, tree: Path) -> Discovery:
    """The storage holds what the directory does, byte for byte, indexes and deleted files by name and size."""
    found = discover(storage)
    with open_storage(tree) as plain:
        expected = discover(plain)
        assert [replica.path for replica in found.replicas] == [replica.path for replica in expected.replicas]
        for replica, twin in zip(found.replicas, expected.replicas, strict=True):
            assert [(file.path, file.kind, file.size_bytes, file.mtime_ms // 2000) for file in replica.files] == [
                (file.path, file.kind, file.size_bytes, file.mtime_ms // 2000) for file in twin.files
            ]
            for file in replica.files:
                if "index" in file.name or "deleted" in file.name:
                    with pytest.raises(CodecError) as caught:
                        storage.open(file.path)
                    assert caught.value.reason is Reason.UNREADABLE
                else:
                    assert storage.read_small(file.path) == plain.read_small(file.path), file.path
            assert heads(storage, replica) == heads(plain, twin)
    return found


@pytest.mark.parametrize("tar_format", TAR_FORMATS)
@pytest.mark.parametrize("compression", [[], ["-z"]], ids=["tar", "gz"])
def test_each_format_of_tar(tree: Path, tmp_path: Path, tar_format: str, compression: list[str]) -> None:
    archive = gnu_tar(tree, tmp_path / "incident", f"--format={tar_format}", *compression)
    with open_storage(archive) as storage:
        found = assert_same(storage, tree)
        assert found.damages == ()
        assert storage.is_immutable
        assert storage.medium("") == "archive"


@pytest.mark.parametrize(
    "options",
    [["--format=gnu"], ["--sparse-version=0.0"], ["--sparse-version=0.1"], ["--sparse-version=1.0"]],
    ids=["old gnu", "0.0", "0.1", "1.0"],
)
def test_sparse_files_in_each_form(tree: Path, tmp_path: Path, options: list[str]) -> None:
    posix = [] if "--format=gnu" in options else ["--format=posix"]
    # More runs of data than a header holds, and a hole at the end.
    with (tree / SEGMENT).open("r+b") as file:
        for number in range(1, 40):
            file.seek(number << 18)
            file.write(b"data %d" % number)
        file.truncate(50 << 18)
    snapshot = tree / LOG / snapshot_name(10, 1)
    with snapshot.open("r+b") as file:
        file.truncate(1 << 20)
    with (tree / LOG / snapshot_name(11, 1)).open("wb") as file:
        file.truncate(1 << 20)
    archive = gnu_tar(tree, tmp_path / "incident.tar", *posix, "-S", *options)
    assert archive.stat().st_size < 1 << 20, "the archive was meant to leave holes out"
    with open_storage(archive) as storage:
        assert assert_same(storage, tree).damages == ()


def test_long_names(make_node_dir: MakeNodeDir, tmp_path: Path) -> None:
    for length in (90, 98, 100, 102, 150, 250):
        make_node_dir(tmp_path / "tree" / "ü" / ("x" * (length // 2)) / ("y" * (length // 2)))
    for tar_format in ("gnu", "posix"):
        archive = gnu_tar(tmp_path / "tree", tmp_path / f"{tar_format}.tar", f"--format={tar_format}")
        with open_storage(archive) as storage:
            assert_same(storage, tmp_path / "tree")
    with tarfile.open(tmp_path / "prefix.tar", "w", format=tarfile.USTAR_FORMAT) as writer:
        name = f"{'a' * 60}/{'b' * 60}/__cluster_metadata-0/quorum-state"
        writer.addfile(tarfile.TarInfo(name))
    with open_storage(tmp_path / "prefix.tar") as storage:
        assert [replica.files[0].path for replica in discover(storage).replicas] == [name]


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_zip_files(tree: Path, tmp_path: Path, method: int) -> None:
    archive = tmp_path / "incident.zip"
    with zipfile.ZipFile(archive, "w", method) as writer:
        for path in sorted(tree.rglob("*")):
            writer.write(path, path.relative_to(tree))
    with open_storage(archive) as storage:
        assert assert_same(storage, tree).damages == ()


def test_zip_files_of_info_zip(tree: Path, tmp_path: Path) -> None:
    if shutil.which("zip") is None:
        pytest.skip("no zip here")
    archive = tmp_path / "incident.zip"
    subprocess.run(["zip", "-q", "-r", str(archive), "."], cwd=tree, check=True)
    with open_storage(archive) as storage:
        assert assert_same(storage, tree).damages == ()
        with storage.open(SEGMENT) as file:
            assert file.mtime_ms == int((tree / SEGMENT).stat().st_mtime) * 1000


def test_indexes_are_kept_where_they_are_asked_for(tree: Path, tmp_path: Path) -> None:
    archive = gnu_tar(tree, tmp_path / "incident.tgz", "-z")
    with archive.open("rb") as file, ArchiveStorage(file, "incident.tgz", keep_indexes=True) as storage:
        index = storage.read_small(f"{LOG}/{offset_index_name(0)}")
        assert index == bytes(10 << 20)
        assert storage.read_small(f"{LOG}/{segment_name(0)}.deleted") == b"old"


@pytest.mark.slow
def test_preallocated_indexes_do_not_make_an_archive_a_bomb(make_node_dir: MakeNodeDir, tmp_path: Path) -> None:
    for node_id in range(8):
        node_dir = make_node_dir(tmp_path / "tree" / f"node-{node_id}", node_id=node_id)
        for name in (offset_index_name(0), time_index_name(0), f"{offset_index_name(0)}.deleted"):
            (node_dir / "__cluster_metadata-0" / name).write_bytes(bytes(10 << 20))
    archive = gnu_tar(tmp_path / "tree", tmp_path / "incident.tgz", "-z")
    assert archive.stat().st_size < 1 << 20
    with archive.open("rb") as file:
        limits = Limits(expansion_free_bytes=1 << 20)
        with ArchiveStorage(file, "incident.tgz", limits=limits) as storage:
            found = discover(storage)
    assert len(found.replicas) == 8
    assert found.damages == ()


def test_other_partitions_of_a_broker_are_not_copied(tree: Path, tmp_path: Path) -> None:
    for name in ("orders-0", "payments-1"):
        shutil.copytree(tree / LOG, tree / "node-1" / name)
    archive = gnu_tar(tree, tmp_path / "incident.tar")
    with open_storage(archive) as storage:
        assert_same(storage, tree)
        with pytest.raises(CodecError):
            storage.open(f"node-1/orders-0/{segment_name(0)}")


def test_a_log_dir_packed_without_its_folder(tree: Path, tmp_path: Path) -> None:
    archive = gnu_tar(tree / LOG, tmp_path / "incident.tgz", "-z")
    with open_storage(archive) as storage:
        (replica,) = discover(storage).replicas
        assert replica.path == ""
        assert storage.read_small(segment_name(0)) == (tree / SEGMENT).read_bytes()


def test_files_of_an_archive_stay_after_it_is_gone(tree: Path, tmp_path: Path) -> None:
    archive = gnu_tar(tree, tmp_path / "incident.tgz", "-z")
    with open_storage(archive) as storage:
        archive.unlink()
        with storage.open(SEGMENT) as file:
            assert file.read_at(0, file.size_bytes).tobytes() == (tree / SEGMENT).read_bytes()
            assert file.change() is FileChange.NONE
            with pytest.raises(CodecError):
                file.read_at(0, file.size_bytes + 1)
        with pytest.raises(CodecError) as caught:
            storage.open(SEGMENT, planned_size_bytes=1 << 30)
        assert caught.value.reason is Reason.CHANGED_DURING_READ


def test_a_pool_reads_an_archive_once(tree: Path, tmp_path: Path) -> None:
    archive = gnu_tar(tree, tmp_path / "incident.tgz", "-z")
    with StoragePool() as pool:
        with pool.open(archive) as planned:
            assert len(discover(planned).replicas) == 1
        archive.unlink()
        with pool.open(archive) as read:
            assert read is planned
            assert read.read_small(SEGMENT) == (tree / SEGMENT).read_bytes()
        with pytest.raises(InputError):
            pool.open(tmp_path / "missing")
    with pytest.raises(CodecError):
        read.open(SEGMENT)


def test_nothing_is_left_behind(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = gnu_tar(tree, tmp_path / "incident.tgz", "-z")
    private = tmp_path / "private"
    private.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(private))
    with open_storage(archive) as storage:
        assert list(private.iterdir()) == [], "the copy has no name: even a killed process leaves nothing"
        discover(storage)
    assert list(private.iterdir()) == []


def test_no_room_for_the_copy_is_one_line(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = gnu_tar(tree, tmp_path / "incident.tgz", "-z")

    def no_room(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", no_room)
    with pytest.raises(InputError, match="TMPDIR names another place"):
        open_storage(archive)


# Cut and damaged archives


def readable_damages(archive: Path, tree: Path) -> tuple[int, tuple[Damage, ...]]:
    """Opens it; whatever can be read is what the directory holds, or its beginning."""
    with open_storage(archive) as storage:
        found = discover(storage)
        for replica in found.replicas:
            for file in replica.files:
                if "index" not in file.name and "deleted" not in file.name:
                    whole = (tree / file.path).read_bytes()
                    data = storage.read_small(file.path)
                    assert data == whole[: len(data)], file.path
                    if not file.name.endswith((".log", ".checkpoint")):
                        assert data == whole
        return sum(len(replica.files) for replica in found.replicas), found.damages


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tar", "tgz", "zip"])
def test_an_archive_cut_anywhere_gives_what_is_there(tree: Path, tmp_path: Path, kind: str) -> None:
    for name in (offset_index_name(0), time_index_name(0)):
        (tree / LOG / name).write_bytes(bytes(1000))
    whole = tmp_path / f"whole.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as writer:
            for path in sorted(tree.rglob("*")):
                writer.write(path, path.relative_to(tree))
    else:
        gnu_tar(tree, whole, *(["-z"] if kind == "tgz" else []), "-b1")
    data = whole.read_bytes()
    whole_count, damages = readable_damages(whole, tree)
    assert damages == ()
    cut = tmp_path / f"cut.{kind}"
    counts = set()
    for length in range(0, len(data), max(len(data) // 150, 1)):
        cut.write_bytes(data[:length])
        try:
            count, damages = readable_damages(cut, tree)
        except InputError as error:
            assert "\n" not in str(error)  # noqa: PT017
            count = 0
        else:
            if kind == "tar" and length >= len(data) - 512:
                assert damages == ()  # one of the two blocks of zeros that mark the end is there
            else:
                assert {damage.reason for damage in damages} == {Reason.BAD_FILE}, length
                assert any("cut short" in damage.detail for damage in damages), length
        counts.add(count)
    assert counts >= {0, whole_count - 1}
    assert len(counts) > 3


def test_a_gzip_checksum_that_is_wrong_is_noticed(tree: Path, tmp_path: Path) -> None:
    archive = gnu_tar(tree, tmp_path / "incident.tgz", "-z")
    data = bytearray(archive.read_bytes())
    data[-6] ^= 1
    archive.write_bytes(data)
    _, damages = readable_damages(archive, tree)
    assert [(damage.path, damage.reason) for damage in damages] == [("incident.tgz", Reason.BAD_FILE)]


def test_gzip_members_in_a_row_are_one_stream(tree: Path, tmp_path: Path) -> None:
    plain = gnu_tar(tree, tmp_path / "incident.tar").read_bytes()
    archive = tmp_path / "incident.tgz"
    pieces = [plain[start : start + 100_000] for start in range(0, len(plain), 100_000)]
    archive.write_bytes(b"".join(gzip.compress(piece, 1) for piece in pieces) + bytes(1000))
    with open_storage(archive) as storage:
        assert assert_same(storage, tree).damages == ()


def test_what_stands_after_the_end_of_an_archive_is_left_aside(tree: Path, tmp_path: Path) -> None:
    archive = gnu_tar(tree, tmp_path / "incident.tar")
    with archive.open("ab") as file:
        file.write(b"rubbish" * 1000)
    with open_storage(archive) as storage:
        assert assert_same(storage, tree).damages == ()


def test_a_gzip_file_that_holds_no_tar(tmp_path: Path) -> None:
    for data in (b"", b"hello " * 10_000, bytes(100)):
        path = tmp_path / "incident.tgz"
        path.write_bytes(gzip.compress(data))
        with pytest.raises(InputError) as caught:
            open_storage(path)
        assert str(caught.value).startswith(f"{path}: not an archive that can be read")


def test_an_archive_without_members_holds_nothing(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "empty.tar", "w"):
        pass
    with zipfile.ZipFile(tmp_path / "empty.zip", "w"):
        pass
    for name in ("empty.tar", "empty.zip"):
        with open_storage(tmp_path / name) as storage:
            assert discover(storage) == Discovery((), (), ())


def test_a_stream_that_is_no_file_of_the_system(tree: Path, tmp_path: Path) -> None:
    data = gnu_tar(tree, tmp_path / "incident.tgz", "-z").read_bytes()
    with ArchiveStorage(io.BytesIO(data), "memory.tgz") as storage:
        assert_same(storage, tree)


class BrokenFile(io.BytesIO):
    """A disk that fails after the first bytes."""

    def read(self, size: int | None = -1) -> bytes:
        if self.tell() >= 20_480:
            raise OSError(5, "Input/output error")
        return super().read(min(size or 0, 20_480 - self.tell()) if size and size > 0 else 20_480)


@pytest.mark.parametrize("options", [[], ["-z"]], ids=["tar", "gz"])
def test_a_disk_that_fails_within_an_archive(tree: Path, tmp_path: Path, options: list[str]) -> None:
    (tree / LOG / segment_name(0)).write_bytes(os.urandom(1 << 17))
    data = gnu_tar(tree, tmp_path / "incident", *options).read_bytes()
    with ArchiveStorage(BrokenFile(data), "incident") as storage:
        reasons = {damage.reason for damage in discover(storage).damages}
    assert reasons == {Reason.UNREADABLE}


def test_what_an_archive_does_not_hold(tree: Path, tmp_path: Path) -> None:
    with open_storage(gnu_tar(tree, tmp_path / "incident.tar")) as storage:
        for use in (storage.list_dir, storage.open):
            with pytest.raises(CodecError) as caught:
                use("node-9")
            assert (caught.value.reason, caught.value.position) == (Reason.CHANGED_DURING_READ, 0)


def test_archives_in_a_directory_are_bounded(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "several").mkdir()
    for number in range(4):
        gnu_tar(tree, tmp_path / "several" / f"{number}.tar")
    with open_storage(tmp_path / "several", limits=Limits(archive_count=2)) as storage:
        found = discover(storage)
    assert [replica.node_dir for replica in found.replicas] == ["0.tar/node-1", "1.tar/node-1"]
    assert [damage.reason for damage in found.damages] == [Reason.LIMIT]


@pytest.mark.parametrize(
    ("kind", "compress"),
    [
        ("xz", lzma.compress),
        ("bzip2", bz2.compress),
        ("zstd", lambda data: pa.compress(data, codec="zstd", asbytes=True)),
        ("lz4", lambda data: pa.compress(data, codec="lz4", asbytes=True)),
    ],
)
@pytest.mark.parametrize("content", [b"", bytes(range(256)) * 64], ids=["small", "large"])
def test_a_compression_that_is_not_read_is_named(tmp_path: Path, kind: str, compress, content: bytes) -> None:
    path = tmp_path / f"incident.tar.{kind}"
    path.write_bytes(compress(content))
    with pytest.raises(InputError, match=f"a {kind} file, which is not read: unpack it first"):
        open_storage(path)


def test_a_tar_whose_first_name_looks_like_bzip2_is_a_tar(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo("BZh9-notes.txt"))
    with open_storage(tmp_path / "x.tar") as storage:
        assert storage is not None


@pytest.mark.parametrize("kind", ["tar", "tgz", "zip"])
def test_archives_in_an_archive_are_directories(tree: Path, tmp_path: Path, kind: str) -> None:
    """A tar of tars gives what unpacking each of them by its name gives."""
    outer, unpacked = tmp_path / "outer", tmp_path / "unpacked"
    outer.mkdir()
    for number, inner in enumerate(("a.tar.gz", "b.zip", "c.tar")):
        place = tmp_path / f"tree-{number}" / "hosts"
        shutil.copytree(tree, place)
        (place / LOG / segment_name(0)).write_bytes((place / LOG / segment_name(0)).read_bytes() * (number + 1))
        format_ = {"a.tar.gz": "gztar", "b.zip": "zip", "c.tar": "tar"}[inner]
        made = Path(shutil.make_archive(str(tmp_path / f"made-{number}"), format_, place))
        made.rename(outer / inner)
        shutil.copytree(place, unpacked / inner)
    packed = shutil.make_archive(str(tmp_path / "incident"), {"tar": "tar", "tgz": "gztar", "zip": "zip"}[kind], outer)
    with open_storage(packed) as storage:
        found = discover(storage)
        assert [replica.path for replica in found.replicas] == [
            f"{name}/{LOG}" for name in ("a.tar.gz", "b.zip", "c.tar")
        ]
        assert not found.damages
        for replica in found.replicas:
            content = storage.read_small(f"{replica.path}/{segment_name(0)}")
            assert content == (unpacked / replica.path / segment_name(0)).read_bytes()


def test_a_damaged_archive_in_an_archive_is_named(tree: Path, tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    outer.mkdir()
    for name in ("good.tgz", "cut.tgz"):
        Path(shutil.make_archive(str(tmp_path / name), "gztar", tree)).rename(outer / name)
    cut = (outer / "cut.tgz").read_bytes()
    (outer / "cut.tgz").write_bytes(cut[: len(cut) // 2])
    (outer / "none.zip").write_bytes(b"no archive at all")
    with open_storage(shutil.make_archive(str(tmp_path / "incident"), "tar", outer)) as storage:
        found = discover(storage)
        assert "good.tgz/" + LOG in [replica.path for replica in found.replicas]
        assert {Path(damage.path).parts[0] for damage in found.damages} == {"cut.tgz", "none.zip"}
        assert all(damage.reason is Reason.BAD_FILE for damage in found.damages)


def test_a_bomb_in_an_archive_counts_against_the_outer_one(tmp_path: Path) -> None:
    """An archive that expands 100 times, of one that does, would be 10,000 times the file."""
    bomb = io.BytesIO()
    for level in range(2):
        content, packed = (b"\0" * (8 << 20) if level == 0 else bomb.getvalue()), io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as writer:
            member = tarfile.TarInfo(SEGMENT if level == 0 else "inner.tgz")
            member.size = len(content)
            writer.addfile(member, io.BytesIO(content))
        packed.seek(0)
        bomb = packed
    limits = Limits(expansion_free_bytes=1 << 20, expansion_ratio=100)
    with ArchiveStorage(bomb, "bomb.tgz", limits=limits) as storage:
        damages = discover(storage).damages
    assert [(damage.path, damage.reason) for damage in damages][:1] == [(f"inner.tgz/{SEGMENT}", Reason.LIMIT)]


def test_no_more_than_two_archives_deep(tree: Path, tmp_path: Path) -> None:
    for level in range(4):
        source = tree if level == 0 else tmp_path / f"level-{level}"
        if level:
            source.mkdir()
            (tmp_path / f"made-{level - 1}.tar").rename(source / "x.tar")
        shutil.make_archive(str(tmp_path / f"made-{level}"), "tar", source)
        with open_storage(tmp_path / f"made-{level}.tar") as storage:
            paths = [replica.path for replica in discover(storage).replicas]
        assert paths == ([f"{'x.tar/' * level}{LOG}"] if level < 3 else [])
