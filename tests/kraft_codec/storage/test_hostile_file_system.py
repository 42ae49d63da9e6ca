"""Hostile trees: damage of one directory, and nothing of it for the node dirs beside."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import socket
from pathlib import Path

import pytest

from kraft_codec.errors import CodecError, InputError, Reason
from kraft_codec.file_names import segment_name
from kraft_codec.files.discovery import discover
from kraft_codec.files.logdir import segments
from kraft_codec.storage.local import LocalStorage
from kraft_codec.storage.opener import open_storage
from kraft_codec.storage.random_access import Limits
from tests.builders.node_dirs import SEGMENT_PATH as SEGMENT
from tests.builders.node_dirs import MakeNodeDir, as_somebody_else, heads


def damages_below(path: Path) -> dict[str, Reason]:
    with open_storage(path) as opened:
        return {damage.path: damage.reason for damage in discover(opened).damages}


def replica_count(path: Path) -> int:
    with open_storage(path) as opened:
        return len(discover(opened).replicas)


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


def test_a_log_dir_that_is_a_link_is_named_with_its_remedy(node_dir: Path, make_node_dir: MakeNodeDir) -> None:
    second_node = node_dir.parent / "node-2"
    make_node_dir(second_node, node_id=2)
    shutil.rmtree(second_node / "__cluster_metadata-0")
    (second_node / "__cluster_metadata-0").symlink_to("../node-1/__cluster_metadata-0")
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
    node_dir: Path, make_node_dir: MakeNodeDir, name: bytes, shown: str
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


def test_no_permission_is_a_named_gap(node_dir: Path, make_node_dir: MakeNodeDir) -> None:
    second_node = make_node_dir(node_dir.parent / "node-2", node_id=2)
    node_dir.parent.chmod(0o755)
    (node_dir / SEGMENT).chmod(0)
    (second_node / "__cluster_metadata-0").chmod(0)
    try:
        with LocalStorage(str(node_dir.parent)) as opened, as_somebody_else():
            found = discover(opened)
            (replica,) = found.replicas
            _, damages = segments(opened, replica)
    finally:
        (second_node / "__cluster_metadata-0").chmod(0o755)
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
        head = heads(opened, replica)
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


@pytest.mark.ci
def test_a_hundred_thousand_files_are_listed_within_bounds(node_dir: Path) -> None:
    log_dir = node_dir / "__cluster_metadata-0"
    for number in range(1, 100_001):
        os.close(os.open(log_dir / segment_name(number), os.O_CREAT, 0o600))
    with LocalStorage(str(node_dir)) as opened:
        (replica,) = discover(opened).replicas
        assert len(replica.files) > 100_000
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


def test_depth_and_breadth_are_bounded(tmp_path: Path, make_node_dir: MakeNodeDir) -> None:
    make_node_dir(tmp_path / "/".join("abcdefgh"))
    make_node_dir(tmp_path / "near")
    with LocalStorage(str(tmp_path), limits=Limits(depth_count=4)) as opened:
        found = discover(opened)
    assert [replica.node_dir for replica in found.replicas] == ["near"]
    assert [(damage.path, damage.reason) for damage in found.damages] == [("a/b/c/d", Reason.LIMIT)]
    with LocalStorage(str(tmp_path), limits=Limits(directory_count=3)) as opened:
        assert [damage.reason for damage in discover(opened).damages] == [Reason.LIMIT]


@pytest.mark.parametrize(("limit", "reasons"), [(5, []), (4, [Reason.LIMIT])])
def test_as_many_directories_are_read_as_the_limit_says(tmp_path: Path, limit: int, reasons: list[Reason]) -> None:
    for name in "abcd":
        (tmp_path / name).mkdir()
    with LocalStorage(str(tmp_path), limits=Limits(directory_count=limit)) as opened:
        assert [damage.reason for damage in discover(opened).damages] == reasons


def test_a_log_dir_below_a_directory_that_may_not_be_listed(node_dir: Path) -> None:
    for path in (node_dir.parent, node_dir / "__cluster_metadata-0"):
        path.chmod(0o755)
    node_dir.chmod(0o711)
    with LocalStorage(str(node_dir), start="__cluster_metadata-0") as storage, as_somebody_else():
        if os.geteuid() == 0:
            pytest.skip("root may list anything")
        found = discover(storage)
    assert [replica.path for replica in found.replicas] == ["__cluster_metadata-0"]
    assert found.damages == ()
