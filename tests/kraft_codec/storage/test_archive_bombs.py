"""Archives that expand without end cost bounded time, memory and disk, and the good node dir in them is read."""

from __future__ import annotations

import gzip
import random
import resource
import struct
import zlib

import pytest

from kraft_codec.errors import InputError, Reason
from kraft_codec.file_names import offset_index_name
from kraft_codec.files.discovery import discover
from kraft_codec.storage.random_access import Limits
from tests.builders.hostile_archives import (
    END,
    LOG,
    OTHER,
    QUORUM_STATE,
    SMALL,
    assert_damages,
    assert_good,
    good_tar,
    header,
    make_zip,
    member,
    old_sparse,
    open_archive,
    padded,
)


def peak_kilobytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def zeros_gz(prefix: bytes, count: int, suffix: bytes = b"") -> bytes:
    """A gzip file of `prefix`, `count` MiB of zeros, `suffix`, made without holding it."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    zeros = bytes(1 << 20)
    return (
        packer.compress(prefix)
        + b"".join(packer.compress(zeros) for _ in range(count))
        + packer.compress(suffix)
        + packer.flush()
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bomb.bin", OTHER, f"{LOG}/quorum-state.tmp"])
def test_a_bomb_goes_off_at_the_ratio(good: dict[str, bytes], name: str) -> None:
    size = 100 << 20
    blocks = header(name.encode(), size=size)
    data = zeros_gz(good_tar(good) + blocks, size >> 20, END)
    assert len(data) < 1 << 20
    before = peak_kilobytes()
    with open_archive(data, SMALL) as storage:
        found = assert_good(storage, good)
    assert Reason.LIMIT in {damage.reason for damage in found.damages}
    assert peak_kilobytes() - before < 64 << 10


def test_zeros_without_end_after_the_archive_are_a_bomb_too(good: dict[str, bytes]) -> None:
    data = zeros_gz(good_tar(good) + END, 100)
    with open_archive(data, SMALL) as storage:
        assert_damages(assert_good(storage, good), {"incident": Reason.LIMIT})


@pytest.mark.slow
def test_headers_without_end_are_a_bomb_too(good: dict[str, bytes]) -> None:
    data = gzip.compress(good_tar(good) + header(b"x") * 60_000, 9)
    with open_archive(data, SMALL) as storage:
        assert_damages(assert_good(storage, good), {"incident": Reason.LIMIT})


def test_a_sparse_map_without_end_is_a_bomb_too(good: dict[str, bytes]) -> None:
    more = bytes(504) + b"\1" + bytes(7)
    data = gzip.compress(good_tar(good) + old_sparse([(0, 0)], 4096, b"", more=True) + more * 60_000, 9)
    with open_archive(data, SMALL) as storage:
        assert {damage.reason for damage in assert_good(storage, good).damages} == {Reason.LIMIT}


def test_index_files_have_a_budget_of_their_own(good: dict[str, bytes]) -> None:
    index = f"node-2/__cluster_metadata-0/{offset_index_name(0)}".encode()
    data = zeros_gz(good_tar(good) + header(index, size=15 << 20), 15, END)
    with open_archive(data, SMALL) as storage:
        assert assert_good(storage, good).damages == ()
    data = zeros_gz(good_tar(good) + header(index, size=40 << 20), 40, END)
    with open_archive(data, SMALL) as storage:
        assert {damage.reason for damage in assert_good(storage, good).damages} == {Reason.LIMIT}


def test_members_and_copies_are_bounded(good: dict[str, bytes]) -> None:
    data = good_tar(good) + b"".join(member(f"{number}/meta.properties", b"") for number in range(100)) + END
    with open_archive(data, Limits(member_count=50)) as storage:
        assert_damages(assert_good(storage, good), {"incident": Reason.LIMIT})
    large = member(OTHER, random.Random(1).randbytes(20 << 20))  # noqa: S311
    with open_archive(good_tar(good) + large + END, SMALL) as storage:
        found = assert_good(storage, good)
        assert_damages(found, {OTHER: Reason.LIMIT})


def test_a_sparse_terabyte_takes_no_room(good: dict[str, bytes]) -> None:
    terabyte = 1 << 40
    # Beyond eight gigabytes the size is a number of base 256.
    blocks = header(
        OTHER.encode(),
        size=512,
        flag=b"S",
        magic=b"ustar  \0",
        extra={386: b"%011o\0%011o\0" % (0, 512), 483: b"\x80" + terabyte.to_bytes(11, "big")},
    ) + padded(b"x" * 512)
    try:
        storage = open_archive(good_tar(good) + blocks + END)
    except InputError:
        pytest.skip("this file system holds no file of a terabyte")
    with storage:
        assert assert_good(storage, good).damages == ()
        with storage.open(OTHER) as file:
            assert file.size_bytes == terabyte
            assert file.read_at(0, 600).tobytes() == b"x" * 512 + bytes(88)
            assert file.read_at(terabyte - 10, 10).tobytes() == bytes(10)


def test_complaints_are_bounded(good: dict[str, bytes]) -> None:
    blocks = b"".join(member(f"../{number}") for number in range(3000))
    with open_archive(good_tar(good) + blocks + END) as storage:
        damages = assert_good(storage, good).damages
    assert len(damages) == 1001
    assert "2000 more" in damages[-1].detail


def test_a_zip_bomb_goes_off_at_the_ratio(good: dict[str, bytes]) -> None:
    data = make_zip(good, (OTHER, bytes(30 << 20)))
    before = peak_kilobytes()
    with open_archive(data, SMALL) as storage:
        assert_damages(assert_good(storage, good), {OTHER: Reason.LIMIT})
    assert peak_kilobytes() - before < 64 << 10
    with open_archive(make_zip(good, ("bomb.bin", bytes(30 << 20))), SMALL) as storage:
        assert assert_good(storage, good).damages == (), "what does not belong is not even read"


def test_many_names_of_one_bomb_are_one_bomb(good: dict[str, bytes]) -> None:
    """The quoted overlap of David Fifield: each member's data is the next member and its data."""
    kernel = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = kernel.compress(bytes(1 << 20)) + kernel.flush()
    crc = zlib.crc32(bytes(1 << 20))
    names = [f"{number}/{QUORUM_STATE}".encode() for number in range(200)]
    fields = (20, 0, 8, 0, 33, crc, len(packed), 1 << 20)
    local = struct.pack("<4s5H3I2H", b"PK\x03\x04", *fields, len(names[0]), 0) + names[0] + packed
    central = b"".join(
        struct.pack("<4s6H3I5H2I", b"PK\x01\x02", 20, *fields, len(name), 0, 0, 0, 0, 0, 0) + name for name in names
    )
    end = struct.pack("<4s4HIIH", b"PK\x05\x06", 0, 0, len(names), len(names), len(central), len(local), 0)
    with open_archive(local + central + end, SMALL) as storage:
        damages = discover(storage).damages
    assert damages
    assert {damage.reason for damage in damages} <= {Reason.BAD_FILE, Reason.LIMIT}


def test_a_list_of_members_of_gigabytes_is_not_loaded() -> None:
    end = struct.pack("<4s4HIIH", b"PK\x05\x06", 0, 0, 1, 1, 1 << 31, 0, 0)
    with pytest.raises(InputError, match="list of members"):
        open_archive(b"PK\x03\x04" + bytes(1000) + end)
    end64 = struct.pack("<4sQ2H2I4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, 1, 1, 1 << 40, 0)
    locator = struct.pack("<4sIQI", b"PK\x06\x07", 0, 4, 1)
    end = struct.pack("<4s4HIIH", b"PK\x05\x06", 0, 0, 65535, 65535, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    with pytest.raises(InputError, match="list of members"):
        open_archive(b"PK\x03\x04" + end64 + locator + end)
