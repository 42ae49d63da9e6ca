"""What the readers of tar and zip give: members, whose content is read once, or passed over.

They read a stream of bytes from front to back, plain or gunzipped, whose expansion a budget bounds.
"""

from __future__ import annotations

import abc
import enum
import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

from kraft_codec.errors import CodecError, Reason
from kraft_codec.records.compression import GZIP_WINDOW_BITS
from kraft_codec.storage.random_access import Limits


class MemberKind(enum.StrEnum):
    """What an archive member is."""

    FILE = "file"
    DIRECTORY = "directory"
    LINK = "link"
    SPECIAL = "special"


class Content(abc.ABC):
    """The bytes of a member. Set `is_index` before they are read or passed over: index files are charged apart."""

    def __init__(self) -> None:
        self.is_index = False

    @abc.abstractmethod
    def chunks(self) -> Iterator[tuple[int, bytes]]:
        """(position in the file, bytes), ascending; what lies between is zeros. To be asked for once.

        Raises CodecError where the archive ends, is damaged or expands too far.
        """


class StreamContent(Content):
    """The next `stored_bytes` of a stream, in runs of (position in the file, length)."""

    def __init__(self, source: ByteSource, budget: Budget, stored_bytes: int) -> None:
        super().__init__()
        self.source = source
        self.budget = budget
        self.remaining_bytes = stored_bytes
        self.runs: list[tuple[int, int]] = [(0, stored_bytes)]

    def chunks(self) -> Iterator[tuple[int, bytes]]:
        for position, length in self.runs:
            at, end = position, position + length
            while at < end:
                data = self.take(end - at)
                yield at, data
                at += len(data)

    def take(self, size_bytes: int) -> bytes:
        """The next stored bytes, at least one, at most `size_bytes`."""
        data = self.source.read(min(size_bytes, self.remaining_bytes, CHUNK_BYTES))
        self._count(len(data))
        return data

    def skip(self) -> None:
        """Passes over what was not taken."""
        while self.remaining_bytes:
            self._count(self.source.skip(self.remaining_bytes))

    def _count(self, size_bytes: int) -> None:
        if not size_bytes:
            raise CodecError(Reason.BAD_FILE, self.source.consumed_bytes, "the archive is cut short")
        self.remaining_bytes -= size_bytes
        self.budget.charge(size_bytes, self.source.consumed_bytes, is_index=self.is_index)


@dataclass(slots=True)
class Member:
    """A member of an archive.

    `refusal` says why its content cannot be read; `size_bytes` is the file's length, sparse parts included.
    """

    name: str
    kind: MemberKind
    size_bytes: int
    mtime_ms: int
    content: Content
    refusal: CodecError | None = None


CHUNK_BYTES: Final = 1 << 20
GZIP_MAGIC: Final = b"\x1f\x8b"
_INPUT_BYTES: Final = 256 << 10


@dataclass(slots=True)
class Budget:
    """How much an archive has expanded to, with archives in it.

    Preallocated index files shrink 1000:1, so they are counted apart.
    """

    limits: Limits
    expanded_bytes: int = 0
    index_bytes: int = 0
    compressed_bytes: int = 0
    outer: Budget | None = None
    """Of an archive in an archive: that of the outer one, which pays for this one too."""

    def charge(self, size_bytes: int, compressed_bytes: int, *, is_index: bool = False) -> None:
        """Takes note of expanded bytes; raises CodecError(LIMIT) beyond the ratio to the compressed bytes so far."""
        limits = self.limits
        self.compressed_bytes = max(self.compressed_bytes, compressed_bytes)
        if self.outer is not None:
            self.outer.charge(size_bytes, self.outer.compressed_bytes, is_index=is_index)
        if is_index:
            self.index_bytes += size_bytes
            if self.index_bytes > limits.index_skip_bytes:
                raise CodecError(Reason.LIMIT, 0, f"its index files hold more than {limits.index_skip_bytes} bytes")
            return
        self.expanded_bytes += size_bytes
        if self.expanded_bytes > limits.expansion_free_bytes + limits.expansion_ratio * compressed_bytes:
            detail = f"it expands to more than {limits.expansion_ratio} times its size: the rest is unread"
            raise CodecError(Reason.LIMIT, 0, detail)


class ByteSource(abc.ABC):
    """Bytes in order. `consumed_bytes` counts those of the file itself, before any expansion."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.consumed_bytes = 0

    @abc.abstractmethod
    def read(self, size_bytes: int) -> bytes:
        """Up to `size_bytes` bytes, none at the end. Raises CodecError where the bytes cannot be had."""

    def skip(self, size_bytes: int) -> int:
        """Passes over at least one byte, at most `size_bytes`, and says how many; 0 at the end."""
        return len(self.read(size_bytes))

    def read_exactly(self, size_bytes: int) -> bytes:
        """All of `size_bytes` bytes; raises CodecError(BAD_FILE) where the stream ends before."""
        parts: list[bytes] = []
        missing = size_bytes
        while missing:
            part = self.read(missing)
            if not part:
                raise CodecError(Reason.BAD_FILE, self.consumed_bytes, "the archive is cut short")
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    def finish(self, budget: Budget) -> None:
        """Reads what follows the last byte that was needed, where a checksum follows it."""
        del budget

    def _read_file(self, size_bytes: int) -> bytes:
        try:
            data = self._file.read(size_bytes)
        except OSError as error:
            text = (error.strerror or type(error).__name__).lower()
            raise CodecError(Reason.UNREADABLE, self.consumed_bytes, text) from None
        self.consumed_bytes += len(data)
        return data


class PlainSource(ByteSource):
    """The bytes of the file as they are."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)
        self._size_bytes = file.seek(0, io.SEEK_END)
        file.seek(0)

    def read(self, size_bytes: int) -> bytes:
        return self._read_file(min(size_bytes, CHUNK_BYTES))

    def skip(self, size_bytes: int) -> int:
        count = min(size_bytes, self._size_bytes - self.consumed_bytes)
        if count > 0:
            self.consumed_bytes = self._file.seek(self.consumed_bytes + count)
        return max(count, 0)


class GzipSource(ByteSource):
    """What a gzip file holds; several gzip members in a row are one stream, as gunzip reads them."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)
        self._decoder = zlib.decompressobj(GZIP_WINDOW_BITS)
        self._input = b""
        self._is_member_ended = False
        self._is_ended = False

    def read(self, size_bytes: int) -> bytes:
        while not self._is_ended:
            if self._is_member_ended:
                self._next_member()
                continue
            if not self._input:
                self._input = self._read_file(_INPUT_BYTES)
                if not self._input:
                    raise CodecError(Reason.BAD_FILE, self.consumed_bytes, "the archive is cut short")
            try:
                data = self._decoder.decompress(self._input, min(size_bytes, CHUNK_BYTES))
            except zlib.error:
                position = self.consumed_bytes - len(self._input)
                raise CodecError(Reason.BAD_FILE, position, "its gzip data is damaged") from None
            self._is_member_ended = self._decoder.eof
            self._input = self._decoder.unused_data if self._is_member_ended else self._decoder.unconsumed_tail
            if data:
                return data
        return b""

    def finish(self, budget: Budget) -> None:
        while data := self.read(CHUNK_BYTES):
            budget.charge(len(data), self.consumed_bytes)

    def _next_member(self) -> None:
        """Goes on with the next gzip member; zeros or other bytes in its place are no part of the stream."""
        while len(self._input) < len(GZIP_MAGIC):
            more = self._read_file(_INPUT_BYTES)
            if not more:
                break
            self._input += more
        if self._input.startswith(GZIP_MAGIC):
            self._decoder = zlib.decompressobj(GZIP_WINDOW_BITS)
            self._is_member_ended = False
        else:
            self._is_ended = True
