"""How much of what was freed a worker's allocators may keep: little, as a worker has 512 MB."""

from __future__ import annotations

import ctypes
from typing import Final

import pyarrow as pa

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_KEPT_BYTES: Final = 4 << 20


def keep_little() -> None:
    """From here on large blocks, Arrow's and NumPy's, go back to the system as they are freed.

    Arrow's own pool and glibc each keep freed blocks of many megabytes for the next, and not for each other: a fifth of
    a worker's peak. The numbers are M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of mallopt(3); where the C library has no
    mallopt, Arrow's blocks alone go back.
    """
    pa.set_memory_pool(pa.system_memory_pool())
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _KEPT_BYTES)
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
