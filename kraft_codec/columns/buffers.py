"""Memory for the columns that a kernel fills: one allocation for all, so that many small columns cost what one does."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kraft_codec.kernels.library import kernels

_ALIGNMENT_BYTES: Final = 64
"""What Arrow recommends for its buffers."""
Number = TypeVar("Number", bound=np.generic)
Bytes: TypeAlias = npt.NDArray[np.uint8]
Readable: TypeAlias = Any
"""Whatever has the buffer protocol: bytes, bytearray, memoryview, numpy uint8, pa.Buffer."""


def address(array: npt.NDArray[Any]) -> int:
    """Where the first element of an array without gaps stands in memory."""
    # numpy's own ways to ask take eight times as long, as much as a kernel over a few records.
    return int(pa.py_buffer(array).address)


def addresses(columns: Sequence[npt.NDArray[Any]]) -> npt.NDArray[np.int64]:
    """A table of column addresses, as kernels take it."""
    return np.array([address(column) for column in columns], np.int64)


def run_kernel(name: str, *arguments: int | npt.NDArray[Any]) -> int:
    """Call a kernel of the decoder; an array is passed as the address of its first element."""
    return kernels()[name](*(address(each) if isinstance(each, np.ndarray) else each for each in arguments))


def byte_array(buffer: Readable) -> Bytes:
    """The buffer's bytes without a copy."""
    return np.frombuffer(buffer, np.uint8) if len(memoryview(buffer)) else np.zeros(0, np.uint8)


class Pieces:
    """Uninitialised pieces of the given sizes in bytes, side by side in one buffer of Arrow's memory pool.

    A page that is not touched costs nothing, so a piece may be as large as the worst case. Every array and buffer that
    is handed out keeps the whole alive. `table` is where each piece begins, as kernels take it.
    """

    def __init__(self, sizes_bytes: Sequence[int]) -> None:
        # One line more: pieces that all began at the same place of a page would share few lines of the cache.
        rooms = (-(-size_bytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES + _ALIGNMENT_BYTES for size_bytes in sizes_bytes)
        *self._places, end = itertools.accumulate(rooms, initial=0)
        self._whole = pa.allocate_buffer(end)
        self.table = np.array(self._places, np.int64) + self._whole.address

    def array(self, number: int, kind: type[Number], count: int) -> npt.NDArray[Number]:
        """The first `count` values of a piece, writable, without a copy."""
        return np.frombuffer(self._whole, kind, count, self._places[number]) if count else np.empty(0, kind)

    def arrays(self, kinds: Sequence[type[np.generic]], count: int) -> list[npt.NDArray[Any]]:
        """The first `count` values of each of the first pieces."""
        return [self.array(number, kind, count) for number, kind in enumerate(kinds)]

    def buffers(self, first: int, sizes_bytes: Sequence[int]) -> list[Any]:
        """The first `sizes_bytes[i]` bytes of piece `first + i`."""
        return [self.buffer(number, size_bytes) for number, size_bytes in enumerate(sizes_bytes, first)]

    def buffer(self, number: int, size_bytes: int) -> Any:
        """The first bytes of a piece as pa.Buffer, without a copy."""
        return self._whole.slice(self._places[number], size_bytes)
