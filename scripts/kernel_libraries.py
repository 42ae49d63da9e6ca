"""Compiles all kernels for x86-64-v2 and links them: what a platform's wheel has in `kraft_codec/kernels/built`.

`python scripts/kernel_libraries.py FOLDER` writes a shared library for the decoder and one for the replay, and
`manifest.json`, which says what they were made from (`kraft_codec.kernels.prebuilt` reads it). The libraries need
memcpy of the process that loads them, nothing else: no version of the C library.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kraft_audit.replay import kernels as replay
from kraft_codec.kernels import library as decoder
from kraft_codec.kernels import native, prebuilt

LIBRARIES: Final = (
    (decoder.NAME, f"{decoder.__name__}:{decoder.with_crc32_instruction.__name__}", native.DECODER_PACKAGES),
    (replay.NAME, replay.KERNELS, replay.PACKAGES),
)
NEEDED_OF_C: Final = {"memcpy", "memset"}


class CannotBuildError(Exception):
    """The libraries cannot be built here: the text says why."""


def write_libraries(folder: Path) -> None:
    """Write the libraries and their manifest. Raises CannotBuildError."""
    if sys.platform != "linux" or not prebuilt.is_x86_64():
        raise CannotBuildError("kernels are built into a wheel on Linux on x86-64 alone: others compile at first use")
    folder.mkdir(parents=True, exist_ok=True)
    libraries = {name: _write(folder, name, kernels, packages) for name, kernels, packages in LIBRARIES}
    manifest = {
        "system": sys.platform,
        "processor": prebuilt.PROCESSOR,
        "numba": version("numba"),
        "llvmlite": version("llvmlite"),
        "libraries": libraries,
    }
    (folder / prebuilt.MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _write(folder: Path, name: str, kernels: str, packages: tuple[str, ...]) -> dict[str, Any]:
    contents, _, object_code = native.compile_library(kernels, prebuilt.PROCESSOR).partition(b"\n")
    path = folder / f"{name}.so"
    _link(object_code, path)
    return {
        "file": path.name,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "kernels": kernels,
        "sources": prebuilt.sources_digest(packages),
        "functions": json.loads(contents),
    }


def _link(object_code: bytes, path: Path) -> None:
    """Link to a shared library without symbols of its own; what it needs of others must be NEEDED_OF_C."""
    compiler = os.environ.get("CC", "cc")
    with tempfile.TemporaryDirectory() as place:
        unlinked = Path(place, "kernels.o")
        unlinked.write_bytes(object_code)
        options = ["-shared", "-nostdlib", "-s", "-Wl,--build-id=none", "-Wl,-z,noexecstack", "-Wl,-z,relro,-z,now"]
        command = [compiler, *options, "-o", str(path), unlinked.name]
        try:
            linked = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise CannotBuildError(
                f"no C compiler to link with: {compiler} is not installed (CC names another)"
            ) from None
        if linked.returncode:
            raise CannotBuildError(f"{compiler} failed: {linked.stderr.strip()}")
        listed = subprocess.run(["nm", "-u", unlinked.name], cwd=place, capture_output=True, text=True, check=False)
    unknown = set(re.findall(r"\bU (\S+)", listed.stdout)) - NEEDED_OF_C
    if unknown:
        raise CannotBuildError(f"{path.name} needs {', '.join(sorted(unknown))}, which not every process has")


if __name__ == "__main__":
    # numba's own passes would look at this machine's processor.
    os.environ.update(NUMBA_CPU_NAME=prebuilt.PROCESSOR, NUMBA_CPU_FEATURES="")
    try:
        write_libraries(Path(sys.argv[1]))
    except CannotBuildError as problem:
        sys.exit(str(problem))
