"""Kernels that were compiled when the wheel was built: shared libraries beside this module, loaded by ctypes.

A platform's wheel has them; the pure wheel and a checkout have none and compile. `manifest.json` says what each library
was made from. A library is used only where sources, system and processor are those: after a change of a kernel it is
not, whoever forgot to build it again. What this processor can do is asked of the system: neither numba nor LLVM is
needed.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import json
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final

_CPU_INFO: Final = Path("/proc/cpuinfo")
FOLDER: Path | None = None
"""Where the libraries stand; None: in `built`, beside this module. Tests set it."""
FOLDER_NAME: Final = "built"
MANIFEST: Final = "manifest.json"
PROCESSOR: Final = "x86-64-v2"
"""What the libraries are compiled for: SSE 4.2 and population count, which pyarrow's own wheels need too."""


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


class NotPrebuiltError(Exception):
    """There is no library that may be used; the text says why."""


@dataclass(frozen=True, slots=True)
class PrebuiltLibrary:
    """One shared library; `functions` gives each kernel's exported name and number of arguments."""

    path: Path
    functions: Mapping[str, tuple[str, int]]

    def addresses(self) -> dict[str, tuple[int, int]]:
        """Address and number of arguments of each kernel, by its name. Raises NotPrebuiltError."""
        try:
            loaded = ctypes.CDLL(str(self.path))  # stays loaded as long as the process lives
            return {name: (_address(loaded, exported), count) for name, (exported, count) in self.functions.items()}
        except (OSError, AttributeError) as problem:
            raise NotPrebuiltError(f"{self.path} cannot be loaded ({problem})") from None


def find(name: str, kernels: str, packages: Sequence[str]) -> PrebuiltLibrary:
    """The library `name` of what `kernels` lists, compiled from the modules of `packages` as they are now.

    Raises NotPrebuiltError.
    """
    folder = FOLDER or Path(str(resources.files(__package__))) / FOLDER_NAME
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise NotPrebuiltError("this installation brings no compiled kernels") from None
    try:
        return _usable(folder, manifest, name, kernels, packages)
    except (KeyError, TypeError, ValueError, OSError) as problem:
        raise NotPrebuiltError(f"{folder / MANIFEST}: not as it was built ({problem!r})") from None


def _usable(
    folder: Path, manifest: Mapping[str, Any], name: str, kernels: str, packages: Sequence[str]
) -> PrebuiltLibrary:
    if manifest["system"] != sys.platform or not is_x86_64():
        raise NotPrebuiltError(f"its compiled kernels are for {manifest['system']} on {PROCESSOR}")
    if not has_crc32_instruction():
        raise NotPrebuiltError(f"its compiled kernels are for {PROCESSOR}, and this processor lacks SSE 4.2")
    entry = manifest["libraries"].get(name)
    if entry is None or entry["kernels"] != kernels or entry["sources"] != sources_digest(packages):
        raise NotPrebuiltError(f"its compiled kernels were built from other sources than those of the {name}")
    path = folder / entry["file"]
    if hashlib.sha256(path.read_bytes()).hexdigest() != entry["sha256"]:
        raise NotPrebuiltError(f"{path}: not the bytes that were built")
    return PrebuiltLibrary(path, {kernel: (str(to[0]), int(to[1])) for kernel, to in entry["functions"].items()})


def sources_digest(packages: Sequence[str]) -> str:
    """SHA-256 over every module of the packages: differs after any change of a kernel or of what it takes from them."""
    known = hashlib.sha256()
    for package in packages:
        for source in sorted(resources.files(package).iterdir(), key=lambda entry: entry.name):
            if source.name.endswith(".py"):
                known.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return known.hexdigest()


def _address(library: ctypes.CDLL, exported: str) -> int:
    address = ctypes.cast(getattr(library, exported), ctypes.c_void_p).value
    if address is None:
        raise AttributeError(f"{exported} has no address")
    return address
