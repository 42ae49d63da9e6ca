"""Memory in which a stray access shows: it ends where a forbidden page begins, and what stands before it is known.

`guarded_outputs` puts there whatever the columnar decoder makes for its kernels to fill. An access beyond the end stops
the process by a signal; a write before the beginning is found by `Guards.check`. With `at_end` off the sides change.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kraft_codec.columns import batches, records, secrets, text, typed
from kraft_codec.columns.buffers import Pieces

Bytes = npt.NDArray[np.uint8]
CANARY = 0xA5
WITH_ARRAYS = (batches, records, secrets, text, typed)
WITH_PIECES = (batches, records, typed)

PROTECT = ctypes.CDLL(None, use_errno=True).mprotect
PROTECT.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class Guards:
    """Gives guarded memory, and keeps the bytes around each piece until they were looked at."""

    def __init__(self, *, at_end: bool = True) -> None:
        self._at_end = at_end
        self._around: list[Bytes] = []
        self.given = 0

    def memory(self, size: int) -> Bytes:
        """Fresh zeros flush against a page that may not be touched; another one stands on the other side."""
        page = mmap.PAGESIZE
        room = -(-size // page) * page
        whole = mmap.mmap(-1, room + 2 * page)
        start = ctypes.addressof(ctypes.c_char.from_buffer(whole))
        assert PROTECT(start, page, 0) == 0
        assert PROTECT(start + page + room, page, 0) == 0
        inside = np.frombuffer(whole, np.uint8)[page : page + room]
        own, around = slice(room - size, room), slice(0, room - size)
        if not self._at_end:
            own, around = slice(0, size), slice(size, room)
        inside[around] = CANARY
        self._around.append(inside[around])
        self.given += 1
        return inside[own]

    def check(self) -> None:
        """Nothing was written on the side that no page guards; what was given until now is let go."""
        around, self._around = self._around, []
        assert all((canary == CANARY).all() for canary in around), "a kernel wrote outside of what it was given"


class _Numpy:
    """numpy as those modules use it, but for arrays that a kernel may fill."""

    def __init__(self, guards: Guards) -> None:
        self._guards = guards

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def empty(self, shape: int | tuple[int, ...], dtype: Any = float) -> npt.NDArray[Any]:
        kind = np.dtype(dtype)
        return self._guards.memory(int(np.prod(shape)) * kind.itemsize).view(kind).reshape(shape)

    zeros = empty  # fresh pages are zero


class _Pieces(Pieces):
    """Each piece between pages of its own."""

    def __init__(self, guards: Guards, sizes_bytes: Sequence[int]) -> None:
        self._pieces = [guards.memory(size_bytes) for size_bytes in sizes_bytes]
        self.table = np.array([piece.__array_interface__["data"][0] for piece in self._pieces], np.int64)

    def array(self, number: int, kind: Any, count: int) -> npt.NDArray[Any]:
        return self._pieces[number][: count * np.dtype(kind).itemsize].view(kind)

    def buffer(self, number: int, size_bytes: int) -> Any:
        return pa.py_buffer(self._pieces[number]).slice(0, size_bytes)


@contextlib.contextmanager
def guarded_outputs(*, at_end: bool = True) -> Iterator[Guards]:
    """Until the end of the block every array and buffer that the decoder makes is guarded; then all are checked."""
    guards = Guards(at_end=at_end)
    with contextlib.ExitStack() as replaced:
        for module in WITH_ARRAYS:
            replaced.enter_context(mock.patch.object(module, "np", _Numpy(guards)))
        for module in WITH_PIECES:
            replaced.enter_context(mock.patch.object(module, "Pieces", partial(_Pieces, guards)))
        yield guards
        guards.check()
