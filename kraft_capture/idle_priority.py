"""Yields to Kafka: the idle class of I/O and a low priority of processor time, where the system allows them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform

_IOPRIO_SET = {"x86_64": 251, "aarch64": 30}
_IDLE_CLASS = 3 << 13


def yield_to_others() -> None:
    """Sets both for this process; a system that refuses is left as it is."""
    with contextlib.suppress(OSError):
        os.nice(10)
    number = _IOPRIO_SET.get(platform.machine())
    if number is not None:
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None, use_errno=True).syscall(number, 1, 0, _IDLE_CLASS)
