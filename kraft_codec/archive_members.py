"""What the readers of tar and zip give: members, whose content is read once, or passed over."""

from __future__ import annotations

import abc
import enum
from collections.abc import Iterator
from dataclasses import dataclass

from kraft_codec.byte_source import CHUNK_BYTES, Budget, ByteSource
from kraft_codec.errors import CodecError, Reason


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
    """One member. `refusal` says why its content cannot be had; `size_bytes` is the file's length with its holes."""

    name: str
    kind: MemberKind
    size_bytes: int
    mtime_ms: int
    content: Content
    refusal: CodecError | None = None
