"""What this processor can do, asked of the system: no compiler is needed to answer."""

from __future__ import annotations

import functools
import platform
from pathlib import Path
from typing import Final

_CPU_INFO: Final = Path("/proc/cpuinfo")


def is_x86_64() -> bool:
    return platform.machine().lower() in {"x86_64", "amd64"}


@functools.cache
def has_crc32_instruction() -> bool:
    """Whether this processor has SSE 4.2's crc32 (every x86-64 server since 2009).

    Linux says so itself; elsewhere LLVM does. Where neither can be asked the answer is yes: pyarrow and numpy need
    SSE 4.2 too, and would not have started.
    """
    if not is_x86_64():
        return False
    flags = _linux_flags()
    if flags is not None:
        return "sse4_2" in flags
    try:
        from llvmlite import binding
    except ImportError:
        return True
    return bool(binding.get_host_cpu_features().get("sse4.2", False))


def _linux_flags() -> frozenset[str] | None:
    """The processor's features by Linux's names, None where no such line can be read."""
    try:
        with _CPU_INFO.open(encoding="ascii", errors="replace") as lines:
            for line in lines:
                if line.startswith("flags"):
                    return frozenset(line.partition(":")[2].split())
    except OSError:
        return None
    return None
