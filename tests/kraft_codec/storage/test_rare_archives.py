"""Forms of archives that few writers make, and archives whose private copy or stream is not what it was."""

from __future__ import annotations

import gzip
import io
import os
import struct
import tarfile
import zipfile
import zlib
from datetime import UTC, datetime

import pytest

from kraft_codec.errors import CodecError, Reason
from kraft_codec.files.discovery import discover
from kraft_codec.storage.archive_members import GzipSource
from kraft_codec.storage.random_access import Limits
from tests.builders.hostile_archives import (
    BLOCK,
    CONTENT,
    END,
    OTHER,
    SEGMENT,
    assert_damages,
    assert_good,
    good_tar,
    header,
    make_zip,
    member,
    old_sparse,
    open_archive,
    padded,
    pax,
)


def test_a_private_copy_that_is_cut_is_reported(good: dict[str, bytes]) -> None:
    storage = open_archive(good_tar(good) + END)
    file = storage.open(SEGMENT)
    assert storage._spool is not None
    os.ftruncate(storage._spool.fileno(), 0)
    with pytest.raises(CodecError) as problem:
        file.read_at(0, file.size_bytes)
    assert problem.value.reason is Reason.CHANGED_DURING_READ
    assert file.next_data(7) == 7, "a copy knows of no holes"
    for opened in (file, file, storage, storage):
        opened.close()


def test_more_than_four_tebibytes_with_its_holes(good: dict[str, bytes]) -> None:
    sizes = pax((b"GNU.sparse.size", b"%d" % (5 << 40)), (b"GNU.sparse.map", b"0,%d" % len(CONTENT)))
    storage = open_archive(good_tar(good) + sizes + member(OTHER) + END)
    assert_damages(assert_good(storage, good), {OTHER: Reason.LIMIT})


class OneByteAtATime(io.BytesIO):
    """A pipe may give less than it was asked for."""

    def read(self, size: int | None = -1) -> bytes:
        return super().read(1 if size is None or size > 0 else size)


@pytest.mark.parametrize("trailer", [b"", b"\0", b"\x1f", b"\x1fx", b"\0" * 600])
def test_gzip_members_in_a_row_read_byte_by_byte(trailer: bytes) -> None:
    parts = [b"first" * 100, b"", b"third"]
    source = GzipSource(OneByteAtATime(b"".join(map(gzip.compress, parts)) + trailer))
    read = b""
    while piece := source.read(64):
        read += piece
    assert read == b"".join(parts)


TAR_FORMS = {
    "a directory as version 7 wrote it": (header(b"node-2/", flag=b"\0", size=0), {}),
    "a long link's name": (header(b"././@LongLink", size=5, flag=b"K") + padded(b"link\0"), {}),
    "a time that is no number": (pax((b"mtime", b"yesterday")) + member(OTHER), {}),
    "a time of base 256 that is none": (member(OTHER, mtime=b"\xff" * 12), {}),
    "a map without an end": (
        pax((b"GNU.sparse.major", b"1"), (b"GNU.sparse.minor", b"0"), (b"GNU.sparse.realsize", b"100"))
        + member(OTHER, b"9" * (2 * BLOCK)),
        {OTHER: Reason.BAD_FILE},
    ),
    "a map that the member is too short for": (
        pax((b"GNU.sparse.major", b"1"), (b"GNU.sparse.minor", b"0"), (b"GNU.sparse.realsize", b"100"))
        + member(OTHER, b"1\n0\n"),
        {OTHER: Reason.BAD_FILE},
    ),
}


@pytest.mark.parametrize("form", TAR_FORMS)
def test_rare_tar_members(good: dict[str, bytes], form: str) -> None:
    blocks, expected = TAR_FORMS[form]
    assert_damages(assert_good(open_archive(good_tar(good) + blocks + END), good), expected)


def test_a_pax_length_of_twenty_digits_is_the_longest(good: dict[str, bytes]) -> None:
    """Padded with zeros, which Python's tarfile reads as we do; newer ones refuse more digits than that."""
    text = b" path=" + OTHER.encode() + b"\n"
    padded_length = b"%020d" % (len(text) + 20)
    archive = good_tar(good) + pax(raw=padded_length + text) + member("short", b"content") + END
    with tarfile.open(fileobj=io.BytesIO(archive)) as reader:
        assert reader.extractfile(OTHER).read() == b"content"  # type: ignore[union-attr]
    storage = open_archive(archive)
    file = storage.open(OTHER)
    assert bytes(file.read_at(0, file.size_bytes).data) == b"content"

    longer = pax(raw=b"%021d" % (len(text) + 21) + text) + member(OTHER)
    assert_damages(discover(open_archive(good_tar(good) + longer + END)), {OTHER: Reason.BAD_FILE})


def test_a_sparse_file_of_too_many_pieces(good: dict[str, bytes]) -> None:
    """Its map goes on for blocks and blocks: read to its end, kept as none."""
    piece = b"%011o\0%011o\0" % (0, 0)
    more = (21 * piece).ljust(504, b"\0") + b"\1" + bytes(7)
    first = old_sparse([(0, 0)] * 4, 100, b"", more=True)
    last = (21 * piece).ljust(BLOCK, b"\0")
    storage = open_archive(good_tar(good) + first + more * 4_800 + last + END, Limits())
    assert [damage.reason for damage in discover(storage).damages][:1] == [Reason.BAD_FILE]


def local(name: str, data: bytes, *, method: int = 8, flags: int = 0, date: int = 0x5821) -> bytes:
    """A member as it stands before its data, without the directory of the end."""
    packed = zlib.compress(data, wbits=-15) if method == 8 else data
    fields = (b"PK\x03\x04", 20, flags, method, 0, date, zlib.crc32(data), len(packed), len(data), len(name), 0)
    return struct.pack("<4sHHHHHIIIHH", *fields) + name.encode() + packed


@pytest.mark.parametrize(
    ("trailer", "reasons"),
    [
        (local(OTHER, CONTENT, method=12), {Reason.UNREADABLE, Reason.BAD_FILE}),
        (local(OTHER, CONTENT, flags=8), {Reason.BAD_FILE}),
        (local(OTHER, CONTENT, flags=1), {Reason.BAD_FILE}),
        (local(OTHER, CONTENT, date=0), {Reason.BAD_FILE}),
        (local(OTHER, b""), {Reason.BAD_FILE}),
    ],
    ids=["a method that is not read", "a size that follows", "encrypted", "a date before all dates", "nothing in it"],
)
def test_a_zip_file_whose_directory_is_missing(good: dict[str, bytes], trailer: bytes, reasons: set[Reason]) -> None:
    """The members before the cut are read from their own headers."""
    whole = b"".join(local(name, data) for name, data in good.items()) + trailer
    storage = open_archive(whole)
    found = discover(storage)
    for path, data in good.items():
        assert storage.read_small(path) == data
    assert {damage.reason for damage in found.damages} == reasons


def test_the_time_of_a_member_is_shown_though_the_directory_is_missing(good: dict[str, bytes]) -> None:
    member = zipfile.ZipInfo(OTHER, (2026, 11, 22, 13, 45, 58))
    whole = make_zip(good, (member, CONTENT))
    expected = int(datetime(2026, 11, 22, 13, 45, 58, tzinfo=UTC).timestamp()) * 1000
    for data in (whole, whole[: whole.index(b"PK\x01\x02")]):
        assert open_archive(data).open(OTHER).mtime_ms == expected


def test_a_date_that_no_calendar_has(good: dict[str, bytes]) -> None:
    data = bytearray(make_zip(good, (zipfile.ZipInfo(OTHER), CONTENT)))
    at = data.rfind(b"PK\x01\x02")
    data[at + 14 : at + 16] = struct.pack("<H", 15 << 5)  # month 15
    storage = open_archive(bytes(data))
    assert storage.open(OTHER).mtime_ms == 0
