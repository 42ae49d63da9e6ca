"""Local log dirs: what is read, what a path may be, and files that change under the reader."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import numpy as np
import pytest

from kraft_codec.errors import CodecError, InputError, Reason
from kraft_codec.file_names import segment_name
from kraft_codec.files.discovery import discover
from kraft_codec.files.logdir import read_meta, segments
from kraft_codec.storage.local import LocalStorage
from kraft_codec.storage.opener import file_path, open_storage, other_host
from kraft_codec.storage.random_access import EntryKind, FileChange, Storage
from tests.builders.node_dirs import SEGMENT_PATH as SEGMENT


def replica_count(path: Path) -> int:
    with open_storage(path) as opened:
        return len(discover(opened).replicas)


# What is read


def test_bytes_come_in_a_buffer_of_the_caller(storage: Storage, node_dir: Path) -> None:
    content = (node_dir / SEGMENT).read_bytes()
    with storage.open(SEGMENT) as file:
        assert file.size_bytes == len(content)
        assert file.mtime_ms == (node_dir / SEGMENT).stat().st_mtime_ns // 1_000_000
        buffer = np.zeros(20, np.uint8)
        file.read_into(5, buffer)
        assert buffer.tobytes() == content[5:25]
        whole = file.read_at(0, file.size_bytes)
        whole[:] = 0  # its own memory, and writable: secrets are overwritten in it
        assert file.read_at(0, 8).tobytes() == content[:8]
        assert file.read_at(file.size_bytes, 0).tobytes() == b""
        assert file.change() is FileChange.NONE
    assert (node_dir / SEGMENT).read_bytes() == content


def test_a_listing_is_sorted_and_says_what_belongs(storage: Storage, node_dir: Path) -> None:
    (node_dir / "orders-0").mkdir()
    (node_dir / "notes.txt").write_text("x")
    (node_dir / "more.tgz").write_bytes(b"")
    listing = storage.list_dir("")
    assert [(entry.name, entry.kind) for entry in listing.entries] == [
        ("__cluster_metadata-0", EntryKind.DIRECTORY),
        ("meta.properties", EntryKind.FILE),
        ("more.tgz", EntryKind.ARCHIVE),
        ("orders-0", EntryKind.DIRECTORY),
    ]
    assert listing.ignored_count == 1
    assert listing.damages == ()


def test_a_range_outside_the_file_is_a_plan_that_no_longer_fits(storage: Storage) -> None:
    with storage.open(SEGMENT) as file:
        for position, length in ((0, file.size_bytes + 1), (file.size_bytes, 1), (2**62, 2**62)):
            with pytest.raises(CodecError) as caught:
                file.read_at(position, length)
            assert caught.value.reason is Reason.CHANGED_DURING_READ
        with pytest.raises(ValueError, match="no negative number"):
            file.read_at(-1, 1)


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", "./x", "a//b", "x/", "a\nb", "a\0b", "a\u202eb"])
def test_paths_that_leave_the_root_are_refused(storage: Storage, path: str) -> None:
    for use in (storage.open, storage.list_dir):
        with pytest.raises(CodecError) as caught:
            use(path)
        assert caught.value.reason is Reason.HOSTILE_NAME


def test_what_is_not_there_has_vanished(storage: Storage) -> None:
    for use in (storage.open, storage.list_dir):
        for path in ("nothing", "nothing/at/all", f"{SEGMENT}/below"):
            with pytest.raises(CodecError) as caught:
                use(path)
            assert caught.value.reason is Reason.CHANGED_DURING_READ
    with pytest.raises(CodecError) as caught:
        storage.open("__cluster_metadata-0")
    assert caught.value.reason is Reason.UNREADABLE


def test_a_small_file_that_is_large_is_not_read(storage: Storage) -> None:
    with pytest.raises(CodecError) as caught:
        storage.read_small(SEGMENT, 100)
    assert caught.value.reason is Reason.LIMIT


# The path itself


@pytest.mark.parametrize("kind", ["missing", "empty", "fifo", "loop", "text", "below a file", "no name"])
def test_a_path_that_cannot_be_read_is_one_line_that_names_it(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "incident"
    if kind == "empty":
        path.write_bytes(b"")
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "loop":
        path.symlink_to("incident")
    elif kind == "text":
        path.write_text("hello " * 1000)
    elif kind == "below a file":
        path.write_text("x")
        path = path / "below"
    given = "" if kind == "no name" else str(path)
    with pytest.raises(InputError) as caught:
        open_storage(given)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(given or "''")


def test_a_path_may_itself_be_a_link(node_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(node_dir)
    assert replica_count(tmp_path / "link") == 1
    (tmp_path / "log").symlink_to(node_dir / "__cluster_metadata-0")
    with open_storage(tmp_path / "log") as opened:
        (replica,) = discover(opened).replicas
        meta, _ = read_meta(opened, replica)
        assert meta is not None
        assert meta.node_id == 1


def test_an_address_of_an_unknown_kind(tmp_path: Path, node_dir: Path) -> None:
    with pytest.raises(InputError, match="known: abfs://"):
        open_storage("hdfs://name/path")
    with pytest.raises(InputError, match="another host"):
        open_storage("file://somewhere/tmp")
    assert open_storage(node_dir.as_uri()).medium("") == "directory"


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///srv/x", "/srv/x"),
        ("FILE://LocalHost/srv/x", "/srv/x"),
        ("file:///srv/a%20b%23", "/srv/a b#"),
        ("file:///srv/a%2520b", "/srv/a%20b"),
        ("file:///srv/a#b?c", "/srv/a#b?c"),
        ("file://elsewhere/srv/x", None),
        ("file:///srv/a%00b", None),
        ("/srv/a%20b", None),
        ("s3://bucket/x", None),
    ],
)
def test_what_a_file_uri_names(uri: str, path: str | None) -> None:
    """The storage and the settings ask the same."""
    assert file_path(uri) == path
    assert other_host(uri) == ("elsewhere" if "elsewhere" in uri else None)


def test_a_log_dir_by_its_uri(tmp_path: Path, node_dir: Path) -> None:
    folder = tmp_path / "a%20b #1?x=é"
    folder.symlink_to(node_dir)
    for uri in (folder.as_uri(), folder.as_uri().replace("file://", "file://localhost")):
        assert open_storage(uri).medium("") == "directory"


# Files that change while they are read


def test_a_file_that_grows_is_read_to_its_planned_length(storage: Storage, node_dir: Path) -> None:
    content = (node_dir / SEGMENT).read_bytes()
    with storage.open(SEGMENT) as file:
        with (node_dir / SEGMENT).open("ab") as log:
            log.write(b"more")
        assert file.size_bytes == len(content)
        assert file.read_at(0, file.size_bytes).tobytes() == content
        assert file.change() is FileChange.GREW
    with storage.open(SEGMENT, planned_size_bytes=len(content)) as file:
        assert file.size_bytes == len(content)
        assert file.change() is FileChange.NONE


def test_a_file_that_shrinks_stops_the_reader_and_not_the_process(storage: Storage, node_dir: Path) -> None:
    size = (node_dir / SEGMENT).stat().st_size
    with storage.open(SEGMENT) as file:
        os.truncate(node_dir / SEGMENT, 100)
        assert len(file.read_at(0, 100)) == 100
        with pytest.raises(CodecError) as caught:
            file.read_at(50, size - 50)
        assert (caught.value.reason, caught.value.position) == (Reason.CHANGED_DURING_READ, 100)
        assert file.change() is FileChange.SHRANK
    with pytest.raises(CodecError) as caught:
        storage.open(SEGMENT, planned_size_bytes=size)
    assert (caught.value.reason, caught.value.position) == (Reason.CHANGED_DURING_READ, 100)


def test_a_file_that_is_deleted_is_still_read(storage: Storage, node_dir: Path) -> None:
    content = (node_dir / SEGMENT).read_bytes()
    with storage.open(SEGMENT) as file:
        (node_dir / SEGMENT).unlink()
        assert file.read_at(0, file.size_bytes).tobytes() == content
        assert file.change() is FileChange.VANISHED
    with pytest.raises(CodecError) as caught:
        storage.open(SEGMENT)
    assert caught.value.reason is Reason.CHANGED_DURING_READ


def test_a_file_written_over_in_place_says_so(storage: Storage, node_dir: Path) -> None:
    with storage.open(SEGMENT) as file:
        with (node_dir / SEGMENT).open("r+b") as log:
            log.write(b"\xff")
        os.utime(node_dir / SEGMENT, ns=(0, 0))
        assert file.change() is FileChange.REWRITTEN


@pytest.mark.parametrize("change", ["deleted", "renamed", "replaced by a link", "replaced by a fifo"])
def test_what_changes_between_listing_and_opening_stops_nothing_else(node_dir: Path, change: str) -> None:
    (node_dir / "__cluster_metadata-0" / segment_name(30)).write_bytes(b"")
    with LocalStorage(str(node_dir)) as opened:
        (replica,) = discover(opened).replicas
        path = node_dir / SEGMENT
        path.rename(node_dir / "gone")
        if change == "replaced by a link":
            path.symlink_to("../gone")
        elif change == "replaced by a fifo":
            os.mkfifo(path)
        elif change == "deleted":
            (node_dir / "gone").unlink()
        ordered, damages = segments(opened, replica)
        meta, _ = read_meta(opened, replica)
        assert meta is not None
        assert meta.node_id == 1
    assert [segment.file.base_offset for segment in ordered] == [30]
    assert [damage.path for damage in damages] == [SEGMENT]


def test_a_directory_swapped_for_a_link_is_not_entered(node_dir: Path, tmp_path: Path) -> None:
    with LocalStorage(str(tmp_path)) as opened:
        (replica,) = discover(opened).replicas
        node_dir.rename(tmp_path / "moved")
        node_dir.symlink_to("moved")
        _, damages = segments(opened, replica)
        assert [damage.reason for damage in damages] == [Reason.HOSTILE_NAME]


def test_a_thousand_schedules_of_a_live_log_beside_the_reader(node_dir: Path) -> None:
    """Whatever Kafka does to a file between two reads, the reader gets the planned bytes or says that they changed."""
    path = node_dir / SEGMENT
    content = path.read_bytes()
    changed_count = whole_count = 0
    with LocalStorage(str(node_dir)) as storage:
        for seed in range(1000):
            chosen = random.Random(seed)  # noqa: S311
            path.write_bytes(content)
            parts: list[bytes] = []
            was_cut = False
            try:
                with storage.open(SEGMENT, planned_size_bytes=len(content)) as file:
                    while (position := sum(map(len, parts))) < file.size_bytes:
                        do = chosen.choice(["append", "cut", "delete", "rename", "nothing", "nothing", "nothing"])
                        if do == "append" and path.exists():
                            with path.open("ab") as log:
                                log.write(content[:100])
                        elif do == "cut" and path.exists():
                            os.truncate(path, chosen.randrange(path.stat().st_size + 1))
                            was_cut = True
                        elif do == "delete":
                            path.unlink(missing_ok=True)
                        elif do == "rename" and path.exists():
                            path.rename(f"{path}.deleted")
                        length = min(chosen.randint(1, 400), file.size_bytes - position)
                        parts.append(file.read_at(position, length).tobytes())
                    whole_count += 1
            except CodecError as error:
                assert (error.reason, was_cut) == (Reason.CHANGED_DURING_READ, True)  # noqa: PT017
                changed_count += 1
            # A log that was cut and has grown again holds other bytes: its batch keys tell, not its length.
            assert was_cut or b"".join(parts) == content
            path.with_name(f"{path.name}.deleted").unlink(missing_ok=True)
    assert changed_count > 100
    assert whole_count > 100


# What the system may answer


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.EIO, Reason.UNREADABLE),
        (errno.ESTALE, Reason.CHANGED_DURING_READ),
        (errno.ENOENT, Reason.CHANGED_DURING_READ),
        (errno.EACCES, Reason.UNREADABLE),
    ],
)
def test_errors_of_the_system_are_damage(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, number: int, reason: Reason
) -> None:
    def fail(*_: object, **__: object) -> int:
        raise OSError(number, os.strerror(number))

    with storage.open(SEGMENT) as file:
        for call in ("preadv", "fstat"):
            monkeypatch.setattr(os, call, fail)
        with pytest.raises(CodecError) as caught:
            file.read_at(7, 10)
        assert (caught.value.reason, caught.value.position) == (reason, 7)
        assert file.change() is FileChange.VANISHED
        monkeypatch.undo()
    for call, use in (("scandir", storage.list_dir), ("stat", storage.open), ("open", storage.open)):
        monkeypatch.setattr(os, call, fail)
        with pytest.raises(CodecError) as caught:
            use("" if call == "scandir" else SEGMENT)
        assert caught.value.reason is reason
        monkeypatch.undo()


def test_a_system_without_holes_says_so(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.EINVAL, "no such whence")

    with storage.open(SEGMENT) as file:
        monkeypatch.setattr(os, "lseek", fail)
        assert file.next_data(5) == 5
        assert file.next_data(file.size_bytes + 5) == file.size_bytes


def test_a_root_that_vanished_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file or directory"):
        LocalStorage(str(tmp_path / "gone"))
