"""Local log dirs: hostile file systems, files that change under the reader, and the promise never to write."""

from __future__ import annotations

import contextlib
import os
import random
import re
import resource
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from kraft_codec.discovery import discover
from kraft_codec.errors import CodecError, InputError, Reason
from kraft_codec.file_names import segment_name
from kraft_codec.logdir import read_replica, segments
from kraft_codec.storage import EntryKind, FileChange, Limits, LocalStorage, Storage, open_storage

SEGMENT = f"__cluster_metadata-0/{segment_name(0)}"


@pytest.fixture
def node_dir(make_node_dir: Callable[..., Path], tmp_path: Path) -> Path:
    return make_node_dir(tmp_path / "node-1")


@pytest.fixture
def storage(node_dir: Path) -> Iterator[Storage]:
    with open_storage(node_dir) as opened:
        yield opened


def damages_below(path: Path) -> dict[str, Reason]:
    with open_storage(path) as opened:
        return {damage.path: damage.reason for damage in discover(opened).damages}


def replica_count(path: Path) -> int:
    with open_storage(path) as opened:
        return len(discover(opened).replicas)


@contextlib.contextmanager
def as_somebody_else() -> Iterator[None]:
    """Without root's rights, where the tests run as root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


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


# Hostile trees: damage here, and nothing of it for the node dirs beside


@pytest.mark.parametrize(
    "target",
    ["/etc", ".", "..", "node-1", "nowhere", "loop"],
    ids=["outside", "self", "parent", "sibling", "dead", "loop"],
)
def test_links_to_directories_are_not_followed(node_dir: Path, target: str) -> None:
    (node_dir.parent / "loop").symlink_to(target)
    assert damages_below(node_dir.parent) == {"loop": Reason.UNREADABLE}
    assert replica_count(node_dir.parent) == 1
    with LocalStorage(str(node_dir.parent)) as opened:
        for path in ("loop", "loop/passwd", "loop/node-1"):
            for use in (opened.open, opened.list_dir):
                with pytest.raises(CodecError) as caught:
                    use(path)
                assert caught.value.reason is Reason.HOSTILE_NAME


def test_a_log_dir_that_is_a_link_is_named_with_its_remedy(node_dir: Path, make_node_dir: Callable[..., Path]) -> None:
    other = node_dir.parent / "node-2"
    make_node_dir(other, node_id=2)
    shutil.rmtree(other / "__cluster_metadata-0")
    (other / "__cluster_metadata-0").symlink_to("../node-1/__cluster_metadata-0")
    with open_storage(node_dir.parent) as opened:
        found = discover(opened)
    assert [replica.path for replica in found.replicas] == ["node-1/__cluster_metadata-0"]
    (damage,) = found.damages
    assert (damage.path, damage.reason) == ("node-2/__cluster_metadata-0", Reason.UNREADABLE)
    assert "give its target as a path" in damage.detail


def test_a_segment_that_is_a_link_is_not_followed(node_dir: Path) -> None:
    segment = node_dir / SEGMENT
    segment.rename(node_dir / "elsewhere")
    segment.symlink_to("../elsewhere")
    assert damages_below(node_dir) == {SEGMENT: Reason.UNREADABLE}
    with LocalStorage(str(node_dir)) as opened, pytest.raises(CodecError, match="links are not followed") as caught:
        opened.open(SEGMENT)
    assert caught.value.reason is Reason.HOSTILE_NAME


def test_links_that_form_a_loop_end(tmp_path: Path, node_dir: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert damages_below(tmp_path) == {"a": Reason.UNREADABLE, "b": Reason.UNREADABLE}
    assert replica_count(tmp_path) == 1


def test_a_fifo_a_socket_and_a_device_are_not_opened(node_dir: Path, tmp_path: Path) -> None:
    log_dir = node_dir / "__cluster_metadata-0"
    os.mkfifo(log_dir / segment_name(5))
    with socket.socket(socket.AF_UNIX) as listener:
        before = Path.cwd()
        os.chdir(log_dir)  # the name of a socket is short
        try:
            listener.bind(segment_name(6))
        finally:
            os.chdir(before)
    expected = {
        f"__cluster_metadata-0/{segment_name(5)}": Reason.UNREADABLE,
        f"__cluster_metadata-0/{segment_name(6)}": Reason.UNREADABLE,
    }
    with contextlib.suppress(OSError):
        os.mknod(log_dir / segment_name(7), 0o20600, os.makedev(1, 5))  # /dev/zero: endless if it were read
        expected[f"__cluster_metadata-0/{segment_name(7)}"] = Reason.UNREADABLE
    assert damages_below(node_dir) == expected
    with LocalStorage(str(node_dir)) as opened:
        for path in expected:
            with pytest.raises(CodecError) as caught:
                opened.open(path)
            assert caught.value.reason is Reason.UNREADABLE


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"two\nlines", r"two\nlines"),
        (b"latin-\xfc", r"latin-\xfc"),
        (b"\xe2\x80\xaeevil", r"\u202eevil"),
        (b"\x1b[2J", r"\x1b[2J"),
        (b"tab\there", r"tab\there"),
        (b"\xed\xa0\x80", r"\xed\xa0\x80"),
    ],
)
def test_hostile_names_are_one_line_of_damage(
    node_dir: Path, make_node_dir: Callable[..., Path], name: bytes, shown: str
) -> None:
    make_node_dir(Path(os.fsdecode(os.path.join(os.fsencode(node_dir.parent), name))))  # noqa: PTH118
    assert damages_below(node_dir.parent) == {shown: Reason.HOSTILE_NAME}
    assert replica_count(node_dir.parent) == 1


def test_a_path_with_a_hostile_name_is_an_input_error_on_one_line(tmp_path: Path) -> None:
    for name in (b"two\nlines", b"latin-\xfc", b"\xe2\x80\xaeevil"):
        path = os.fsdecode(os.path.join(os.fsencode(tmp_path), name))  # noqa: PTH118
        Path(path).mkdir()
        with pytest.raises(InputError) as caught:
            open_storage(path)
        assert "\n" not in str(caught.value)
        str(caught.value).encode()
        assert str(tmp_path) in str(caught.value)


def test_no_permission_is_a_named_gap(node_dir: Path, make_node_dir: Callable[..., Path]) -> None:
    other = make_node_dir(node_dir.parent / "node-2", node_id=2)
    node_dir.parent.chmod(0o755)
    (node_dir / SEGMENT).chmod(0)
    (other / "__cluster_metadata-0").chmod(0)
    try:
        with LocalStorage(str(node_dir.parent)) as opened, as_somebody_else():
            found = discover(opened)
            (replica,) = found.replicas
            _, damages = segments(opened, replica)
    finally:
        (other / "__cluster_metadata-0").chmod(0o755)
    (hidden,) = found.damages
    assert (hidden.path, hidden.reason) == ("node-2/__cluster_metadata-0", Reason.UNREADABLE)
    (unread,) = damages
    assert (unread.path, unread.reason) == (f"node-1/{SEGMENT}", Reason.UNREADABLE)
    for damage in (hidden, unread):
        assert "run as the user that Kafka runs as" in damage.detail


def test_what_is_no_file_is_never_even_opened(node_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening a device or a FIFO can have effects of its own, such as waking whoever waits at its other end."""
    os.mkfifo(node_dir / "__cluster_metadata-0" / segment_name(5))
    opened: list[str] = []
    really_open = os.open

    def record(path: str, *arguments: int, **options: int) -> int:
        opened.append(path)
        return really_open(path, *arguments, **options)

    with LocalStorage(str(node_dir)) as storage:
        monkeypatch.setattr(os, "open", record)
        with pytest.raises(CodecError, match="not a regular file"):
            storage.open(f"__cluster_metadata-0/{segment_name(5)}")
        storage.open(SEGMENT).close()
    assert segment_name(0) in opened
    assert segment_name(5) not in opened


def test_a_directory_called_like_a_segment_is_no_segment(node_dir: Path) -> None:
    (node_dir / "__cluster_metadata-0" / segment_name(99)).mkdir()
    with open_storage(node_dir) as opened:
        (replica,) = discover(opened).replicas
        assert segment_name(99) not in {file.name for file in replica.files}


def test_empty_files_are_read_as_empty(node_dir: Path) -> None:
    for path in (node_dir / "__cluster_metadata-0").iterdir():
        path.write_bytes(b"")
    with open_storage(node_dir) as opened:
        (replica,) = discover(opened).replicas
        head = read_replica(opened, replica)
        ordered, _ = segments(opened, replica)
    assert [segment.first_offset for segment in ordered] == [None]
    assert {Path(damage.path).name: damage.reason for damage in head.damages} == {
        "quorum-state": Reason.BAD_FILE,
        "partition.metadata": Reason.BAD_FILE,
    }


def test_a_sparse_terabyte_is_read_in_no_memory(node_dir: Path) -> None:
    path = node_dir / SEGMENT
    data_bytes = path.stat().st_size
    terabyte = 1 << 40
    try:
        os.truncate(path, terabyte)
    except OSError:
        pytest.skip("this file system holds no file of a terabyte")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with open_storage(node_dir) as opened:
        (replica,) = discover(opened).replicas
        segments(opened, replica)
        with opened.open(SEGMENT) as file:
            assert file.size_bytes == terabyte
            assert file.read_at(terabyte - 8, 8).tobytes() == bytes(8)
            hole = file.next_data(data_bytes + (1 << 20))
            assert hole == terabyte, "a tail of holes is known without reading it"
            assert file.next_data(0) == 0
            with pytest.raises(CodecError):
                file.read_at(0, terabyte + 1)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert after - before < 64 << 10  # kilobytes


def test_a_hundred_thousand_files_are_listed_within_bounds(node_dir: Path) -> None:
    log_dir = node_dir / "__cluster_metadata-0"
    for number in range(1, 20_001):
        os.close(os.open(log_dir / segment_name(number), os.O_CREAT, 0o600))
    with LocalStorage(str(node_dir)) as opened:
        (replica,) = discover(opened).replicas
        assert len(replica.files) > 20_000
    with LocalStorage(str(node_dir), limits=Limits(entry_count=1000)) as opened:
        found = discover(opened)
        assert [damage.reason for damage in found.damages] == [Reason.LIMIT]
        assert len(found.replicas[0].files) <= 1001


def test_complaints_are_bounded_and_counted(node_dir: Path) -> None:
    for number in range(50):
        (node_dir / f"link-{number}").symlink_to("/etc")
    with LocalStorage(str(node_dir), limits=Limits(damage_count=10)) as opened:
        damages = discover(opened).damages
    assert [damage.reason for damage in damages] == [Reason.UNREADABLE] * 10 + [Reason.LIMIT]


def test_depth_and_breadth_are_bounded(tmp_path: Path, make_node_dir: Callable[..., Path]) -> None:
    make_node_dir(tmp_path / "/".join("abcdefgh"))
    make_node_dir(tmp_path / "near")
    with LocalStorage(str(tmp_path), limits=Limits(depth_count=4)) as opened:
        found = discover(opened)
    assert [replica.node_dir for replica in found.replicas] == ["near"]
    assert [(damage.path, damage.reason) for damage in found.damages] == [("a/b/c/d", Reason.LIMIT)]
    with LocalStorage(str(tmp_path), limits=Limits(directory_count=3)) as opened:
        assert [damage.reason for damage in discover(opened).damages] == [Reason.LIMIT]


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
        assert read_replica(opened, replica).node_id == 1


def test_an_address_of_an_unknown_kind(tmp_path: Path, node_dir: Path) -> None:
    with pytest.raises(InputError, match="known: abfs://"):
        open_storage("hdfs://name/path")
    with pytest.raises(InputError, match="another host"):
        open_storage("file://somewhere/tmp")
    assert open_storage(node_dir.as_uri()).medium("") == "directory"


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
        assert read_replica(opened, replica).node_id == 1
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


# The promise never to write


def test_nothing_below_the_root_changes(
    node_dir: Path, make_node_dir: Callable[..., Path], unchanged: Callable[[Path], str]
) -> None:
    make_node_dir(node_dir.parent / "capture" / "node-2", node_id=2)
    before = unchanged(node_dir.parent)
    with open_storage(node_dir.parent) as opened:
        for replica in discover(opened).replicas:
            read_replica(opened, replica)
            segments(opened, replica)
            for file in replica.files:
                opened.read_small(file.path)
    assert unchanged(node_dir.parent) == before


def test_the_access_time_stays_where_the_owner_reads(node_dir: Path) -> None:
    os.utime(node_dir / SEGMENT, (1, 2))
    with open_storage(node_dir) as opened:
        opened.read_small(SEGMENT)
    assert (node_dir / SEGMENT).stat().st_atime == 1


def test_another_user_may_read_without_the_right_to_hide_it(node_dir: Path) -> None:
    node_dir.parent.chmod(0o755)
    with LocalStorage(str(node_dir)) as opened, as_somebody_else():
        assert len(opened.read_small(SEGMENT)) > 0


READER = """
import sys
from kraft_codec.discovery import discover
from kraft_codec.logdir import read_replica, segments
from kraft_codec.storage import open_storage
with open_storage(sys.argv[1]) as storage:
    for replica in discover(storage).replicas:
        read_replica(storage, replica)
        segments(storage, replica)
        for file in replica.files:
            storage.read_small(file.path)
"""


@pytest.mark.ci
def test_the_system_sees_no_call_that_writes(node_dir: Path, tmp_path: Path) -> None:
    if shutil.which("strace") is None:
        pytest.skip("no strace here")
    trace = tmp_path / "trace"
    done = subprocess.run(
        ["strace", "-f", "-e", "trace=%file,%desc", "-o", str(trace), sys.executable, "-c", READER, str(node_dir)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    if "PTRACE" in done.stderr or "ptrace" in done.stderr:
        pytest.skip("tracing is not allowed here")
    assert done.returncode == 0, done.stderr
    text = trace.read_text()
    inside = [line for line in text.splitlines() if "__cluster_metadata-0" in line or segment_name(0) in line]
    assert inside, "the trace does not show the reads"
    opened = [line for line in inside if "openat(" in line]
    assert opened
    for line in opened:
        assert "O_NOFOLLOW" in line
        assert not re.search(r"O_(WRONLY|RDWR|CREAT|TRUNC|APPEND)", line), line
    for line in inside:
        assert not re.search(r"\b(unlink|rename|mkdir|chmod|chown|utime|truncate|link|mknod)\w*\(", line), line
    assert not re.search(r"mmap\([^)]*\.log", text)
