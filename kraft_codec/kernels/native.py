"""Compiled kernels as Python functions of integers: built into the wheel, kept in the private cache, or compiled.

Those of the wheel (`prebuilt`) need neither numba nor LLVM. Without them, a warm start needs LLVM alone and takes some
hundredths of a second; numba is imported only to compile. Calls release the interpreter lock.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import importlib
import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kraft_codec.errors import MissingPackageError
from kraft_codec.kernels import cache, prebuilt

Kernel = Callable[..., int]

DECODER_PACKAGES: Final = ("kraft_codec", "kraft_codec.records", "kraft_codec.kernels")
"""What the decoder's kernels take constants and helpers from."""
_COMPILING: Final = "kraft-audit: compiling the {name} for this processor, once (about {seconds} seconds)\n"
_NOT_KEPT: Final = "kraft-audit: compiling the {name} for this process alone: {reason}; {variable} names the folder\n"
_ENGINES: Final[list[Any]] = []
"""Loaded code lives as long as the process."""
_UNDER_WAY: Final[list[subprocess.Popen[bytes]]] = []
_AHEAD: Final = """
import json, sys
sys.path[:], *asked = json.loads(sys.argv[1])
from kraft_codec.kernels import native
native.code(*asked)
"""


def library(
    name: str, kernels: str, *, packages: Sequence[str] = DECODER_PACKAGES, seconds: int = 10
) -> Mapping[str, Kernel]:
    """The kernels that the function `kernels` ("package.module:function") returns by name, ready to call.

    Each takes and returns int64 only and never raises; the module is imported only to compile. `packages` are those
    whose modules the kernels are made of: a change in any of them makes new code. `seconds` is how
    long compiling takes, for the message on stderr. Raises MissingPackageError where the wheel brings no kernels for
    this processor and no compiler is installed.
    """
    if sys.byteorder != "little":
        raise RuntimeError("the decoder's kernels are written for little-endian processors")
    try:
        built = prebuilt.find(name, kernels, packages).addresses()
    except prebuilt.NotPrebuiltError as problem:
        if not has_compiler():
            missing = f"{problem}, and numba, which compiles them, is not installed"
            raise MissingPackageError(missing, "compile") from None
        return _load(code(name, kernels, packages, seconds))
    return {kernel: _function(kernel, address, count) for kernel, (address, count) in built.items()}


def is_prebuilt(name: str, kernels: str, packages: Sequence[str] = DECODER_PACKAGES) -> bool:
    """Whether the wheel brings this library for this processor: nothing is compiled."""
    try:
        prebuilt.find(name, kernels, packages)
    except prebuilt.NotPrebuiltError:
        return False
    return True


def has_compiler() -> bool:
    """Whether numba is installed. It is not imported."""
    return importlib.util.find_spec("numba") is not None


def compile_ahead(name: str, kernels: str, *, packages: Sequence[str] = DECODER_PACKAGES, seconds: int = 10) -> None:
    """Begins to compile a library that is needed soon, in another process, where the cache has none of it.

    `library` then waits for it, or compiles by itself where that failed.
    """
    if (os.cpu_count() or 1) < 2 or is_prebuilt(name, kernels, packages) or not has_compiler():
        return
    try:
        is_kept = (cache.private_folder() / _file_name(name, kernels, packages)).exists()
    except (cache.UnsafeFolderError, OSError):
        return
    if not is_kept:
        asked = json.dumps([sys.path, name, kernels, packages, seconds])
        # -P: no code comes from the working directory, which may be an incident's. A session of its own: an interrupt
        # of this process does not stop it.
        command = [sys.executable, "-P", "-c", _AHEAD, asked]
        no_stream = subprocess.DEVNULL
        with contextlib.suppress(OSError):
            begun = subprocess.Popen(command, stdin=no_stream, stdout=no_stream, start_new_session=True)  # noqa: S603
            _UNDER_WAY.append(begun)


def code(name: str, kernels: str, packages: Sequence[str], seconds: int) -> bytes:
    """What the cache holds of a library, compiled where it has none."""
    try:
        folder = cache.private_folder()
        file_name = _file_name(name, kernels, packages)
        if (library := cache.read(folder, file_name)) is not None:
            return library
        with cache.locked(folder, file_name):
            # Another process may have compiled while this one waited.
            if (library := cache.read(folder, file_name)) is not None:
                return library
            sys.stderr.write(_COMPILING.format(name=name, seconds=seconds))
            sys.stderr.flush()
            compiled = compile_library(kernels)
            cache.write(folder, file_name, compiled)
            return compiled
    except (cache.UnsafeFolderError, OSError) as error:
        sys.stderr.write(_NOT_KEPT.format(name=name, reason=error, variable=cache.FOLDER_VARIABLE))
        sys.stderr.flush()
        return compile_library(kernels)


def compile_library(kernels: str, processor: str | None = None) -> bytes:
    """What the cache holds: a line of JSON (exported name and number of arguments of each kernel), then object code.

    `processor` is LLVM's name of the one to compile for, by default this one.
    """
    from kraft_codec.kernels import build

    module, _, function = kernels.partition(":")
    functions: Mapping[str, Kernel] = getattr(importlib.import_module(module), function)()
    prefix = f"{module}.{function}.".replace(".", "_")
    contents = {name: [prefix + name, build.arity(kernel)] for name, kernel in functions.items()}
    return json.dumps(contents).encode() + b"\n" + build.compile_kernels(functions, prefix, processor)


def _load(code: bytes) -> Mapping[str, Kernel]:
    from llvmlite import binding

    contents, _, object_code = code.partition(b"\n")
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    machine = binding.Target.from_default_triple().create_target_machine(jit=True, reloc="pic")
    engine = binding.create_mcjit_compiler(binding.parse_assembly(""), machine)
    engine.add_object_file(binding.ObjectFileRef.from_data(object_code))
    engine.finalize_object()
    _ENGINES.append(engine)
    return {
        name: _function(name, engine.get_function_address(exported), argument_count)
        for name, (exported, argument_count) in json.loads(contents).items()
    }


def _function(name: str, address: int, argument_count: int) -> Kernel:
    kind = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * argument_count)
    native = kind(address)

    def call(*arguments: int) -> int:
        result = ctypes.c_int64()
        raised = ctypes.c_void_p()
        if native(ctypes.addressof(result), ctypes.addressof(raised), *arguments):
            raise RuntimeError(f"the kernel {name} raised, which none may")
        return result.value

    return call


def _file_name(name: str, kernels: str, packages: Sequence[str]) -> str:
    return f"{name.replace(' ', '-')}-{_fingerprint(kernels, packages)}.o"


def _fingerprint(kernels: str, packages: Sequence[str]) -> str:
    """Differs for every change of a kernel, of the compiler, of the processor: what the cache holds is never stale."""
    from llvmlite import binding

    known = hashlib.sha256()
    for part in (
        prebuilt.sources_digest(packages),
        kernels,
        importlib.metadata.version("numba"),
        importlib.metadata.version("llvmlite"),
        binding.get_default_triple(),
        binding.get_host_cpu_name(),
        binding.get_host_cpu_features().flatten(),
    ):
        known.update(part.encode() + b"\0")
    return known.hexdigest()[:32]
