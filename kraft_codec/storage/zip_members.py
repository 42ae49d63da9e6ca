"""The members of a zip file by its central directory, or by the headers in front of them where that is missing.

Format: PKWARE's APPNOTE 6.3. The central directory is read by `zipfile`; the walk over local headers serves files that
were cut short.
"""

from __future__ import annotations

import datetime
import io
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import BinaryIO, Final

from kraft_codec.errors import CodecError, Reason
from kraft_codec.storage.archive_members import (
    CHUNK_BYTES,
    Budget,
    Content,
    Member,
    MemberKind,
    PlainSource,
    StreamContent,
)

ZIP_MAGICS: Final = (b"PK\x03\x04", b"PK\x05\x06")
_MAX_DIRECTORY_BYTES: Final = 64 << 20
_END: Final = struct.Struct("<4s4HIIH")
_END_MAGIC: Final = b"PK\x05\x06"
_LOCATOR64: Final = struct.Struct("<4sIQI")
_END64: Final = struct.Struct("<4sQ2H2I4Q")
_LOCAL: Final = struct.Struct("<4s5H3I2H")
_LOCAL_MAGIC: Final = b"PK\x03\x04"
_ENCRYPTED: Final = 0x1
_SIZES_FOLLOW: Final = 0x8
_UTF8: Final = 0x800
_TIMESTAMP_EXTRA: Final = 0x5455
_UNIX: Final = 3
_MAX_COMMENT_BYTES: Final = 0xFFFF
_IN_ZIP64: Final = 0xFFFFFFFF

# What zipfile raises for bytes that it did not expect.
_ZIPFILE_ERRORS: Final = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    RuntimeError,
    ValueError,
    OverflowError,
    LookupError,
    OSError,
)


def zip_members(file: BinaryIO, budget: Budget) -> Iterator[Member]:
    """The members in the order of the central directory; without one those that can be found, then CodecError."""
    archive_bytes = _require_small_directory(file)
    file.seek(0)
    try:
        archive = zipfile.ZipFile(file)
    except _ZIPFILE_ERRORS:
        file.seek(0)
        yield from _salvaged_members(PlainSource(file), budget)
        return  # pragma: no cover - a file without its directory ends in an error
    with archive:
        for info in archive.infolist():
            yield _member(archive, info, budget, archive_bytes)


class _ZipContent(Content):
    """A member that costs nothing unless it is read."""

    def __init__(self, archive: zipfile.ZipFile, info: zipfile.ZipInfo, budget: Budget, archive_bytes: int) -> None:
        super().__init__()
        self._archive = archive
        self._info = info
        self._budget = budget
        self._archive_bytes = archive_bytes

    def chunks(self) -> Iterator[tuple[int, bytes]]:
        position = 0
        try:
            with self._archive.open(self._info) as opened:
                while data := opened.read(CHUNK_BYTES):
                    self._budget.charge(len(data), self._archive_bytes, is_index=self.is_index)
                    yield position, data
                    position += len(data)
        except _ZIPFILE_ERRORS:
            raise CodecError(Reason.BAD_FILE, position, "its data in the zip file is damaged") from None
        _require_size(position, self._info.file_size)


def _require_size(size_bytes: int, expected_bytes: int) -> None:
    """A zip file has no sparse members: what is missing of a member's size would be made up as zeros."""
    if size_bytes != expected_bytes:
        detail = f"its data in the zip file ends after {size_bytes} bytes, expected {expected_bytes}"
        raise CodecError(Reason.BAD_FILE, size_bytes, detail)


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, budget: Budget, archive_bytes: int) -> Member:
    # The name as stored: zipfile itself cuts it at a NUL. Archives from Windows have backslashes between names.
    name = info.orig_filename.replace("\\", "/") if info.create_system != _UNIX else info.orig_filename
    kind = MemberKind.DIRECTORY if name.endswith("/") else MemberKind.FILE
    mode = info.external_attr >> 16
    if info.create_system == _UNIX and stat.S_IFMT(mode):
        if stat.S_ISLNK(mode):
            kind = MemberKind.LINK
        elif not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            kind = MemberKind.SPECIAL
    refusal = None
    if info.flag_bits & _ENCRYPTED:
        refusal = CodecError(Reason.UNREADABLE, 0, "it is encrypted")
    elif info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        refusal = CodecError(Reason.UNREADABLE, 0, f"compression method {info.compress_type}, expected deflate")
    mtime_ms = _mtime_ms(info.date_time, info.extra)
    content = _ZipContent(archive, info, budget, archive_bytes)
    return Member(name, kind, info.file_size, mtime_ms, content, refusal)


def _require_small_directory(file: BinaryIO) -> int:
    """The size of the file; refuses a central directory that would fill the memory once it is read."""
    size_bytes = file.seek(0, io.SEEK_END)
    start = max(size_bytes - _END.size - _MAX_COMMENT_BYTES, 0)
    file.seek(start)
    tail = file.read(size_bytes - start)
    at = tail.rfind(_END_MAGIC)
    if at < 0 or at + _END.size > len(tail):
        return size_bytes
    directory_bytes = _END.unpack_from(tail, at)[5]
    if at >= _LOCATOR64.size:
        _, _, position, _ = _LOCATOR64.unpack_from(tail, at - _LOCATOR64.size)
        if directory_bytes == _IN_ZIP64 and position + _END64.size <= size_bytes:
            file.seek(position)
            directory_bytes = _END64.unpack(file.read(_END64.size))[8]
    if directory_bytes > _MAX_DIRECTORY_BYTES:
        detail = f"a list of members of {directory_bytes} bytes, expected at most {_MAX_DIRECTORY_BYTES}"
        raise CodecError(Reason.LIMIT, 0, detail)
    return size_bytes


def _salvaged_members(source: PlainSource, budget: Budget) -> Iterator[Member]:
    """Walks from local header to local header. Links look like files here: their text is read."""
    while True:
        header = source.read_exactly(_LOCAL.size)
        magic, _, flags, method, time, date, _, packed, size, name_length, extra_length = _LOCAL.unpack(header)
        if magic != _LOCAL_MAGIC:
            break
        name = source.read_exactly(name_length).decode("utf-8" if flags & _UTF8 else "cp437", "surrogateescape")
        extra = source.read_exactly(extra_length)
        if flags & (_ENCRYPTED | _SIZES_FOLLOW) or _IN_ZIP64 in (packed, size):
            # Where such a member ends stands after it, or in the directory, which is missing.
            break
        stored = StreamContent(source, budget, packed)
        content = stored if method == zipfile.ZIP_STORED else _InflatedContent(stored, size)
        kind = MemberKind.DIRECTORY if name.endswith("/") else MemberKind.FILE
        refusal = None
        if method not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            refusal = CodecError(Reason.UNREADABLE, 0, f"compression method {method}, expected deflate")
        if method == zipfile.ZIP_STORED and packed != size:
            refusal = CodecError(Reason.BAD_FILE, 0, f"{packed} bytes are stored, expected {size}")
        yield Member(name, kind, size, _mtime_ms(_dos_time(date, time), extra), content, refusal)
        stored.skip()
    raise CodecError(Reason.BAD_FILE, source.consumed_bytes, "the archive is cut short: its member list is missing")


class _InflatedContent(Content):
    """Deflated bytes of a stream, so many when they are inflated."""

    def __init__(self, stored: StreamContent, expected_bytes: int) -> None:
        super().__init__()
        self._stored = stored
        self._expected_bytes = expected_bytes

    def chunks(self) -> Iterator[tuple[int, bytes]]:
        stored = self._stored
        stored.is_index = self.is_index
        decoder = zlib.decompressobj(-zlib.MAX_WBITS)
        position = 0
        pending = b""
        while not decoder.eof and (pending or stored.remaining_bytes):
            pending = pending or stored.take(CHUNK_BYTES)
            try:
                data = decoder.decompress(pending, CHUNK_BYTES)
            except zlib.error:
                raise CodecError(Reason.BAD_FILE, position, "its data in the zip file is damaged") from None
            pending = decoder.unconsumed_tail
            stored.budget.charge(len(data), stored.source.consumed_bytes, is_index=self.is_index)
            if data:
                yield position, data
                position += len(data)
        _require_size(position, self._expected_bytes)


def _dos_time(date: int, time: int) -> tuple[int, int, int, int, int, int]:
    year, month, day = 1980 + (date >> 9), date >> 5 & 0xF, date & 0x1F
    return year, month, day, time >> 11, time >> 5 & 0x3F, (time & 0x1F) * 2


def _mtime_ms(date_time: tuple[int, int, int, int, int, int], extra: bytes) -> int:
    """The exact time where the zip file has it (Info-ZIP's extra field), else DOS time taken as UTC; 0 for none."""
    at = 0
    while at + 4 <= len(extra):
        field, length = struct.unpack_from("<HH", extra, at)
        if field == _TIMESTAMP_EXTRA and length >= 5 and at + 9 <= len(extra) and extra[at + 4] & 1:
            return max(int.from_bytes(extra[at + 5 : at + 9], "little", signed=True), 0) * 1000
        at += 4 + length
    try:
        return int(datetime.datetime(*date_time, tzinfo=datetime.UTC).timestamp() * 1000)
    except ValueError:
        return 0
