"""Compiled kernels are cached where no other user can put any, and compiled once however many processes start."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraft_codec.kernels import cache, native
from kraft_codec.kernels.library import byte_tables, has_crc32_instruction

FACTORY = "kraft_codec.kernels.library:with_crc32_instruction"
WHO = """
import sys, time
from kraft_codec.columns import index_batches
assert len(index_batches(b"")) == 0
print("numba" in sys.modules)
"""


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A cache folder below pytest's own, which usually stands in /tmp: sticky, and everybody may write there."""
    monkeypatch.setenv(cache.FOLDER_VARIABLE, str(tmp_path / "ours" / "cache"))
    return tmp_path / "ours" / "cache"


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Instead of compiling, notes that something would have been."""
    calls: list[str] = []

    def compile_library(kernels: str) -> bytes:
        calls.append(kernels)
        return b"{}\n" + f"code {len(calls)}".encode()

    monkeypatch.setattr(native, "compile_library", compile_library)
    return calls


def code() -> bytes:
    return native.code("decoder", FACTORY, ("kraft_codec.kernels",), 10)


def test_compiled_once_and_then_read(folder: Path, compiled: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    first = code()
    assert capfd.readouterr().err == "kraft-audit: compiling the decoder for this processor, once (about 10 seconds)\n"
    assert code() == first
    assert compiled == [FACTORY]
    assert capfd.readouterr().err == ""
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert {path.suffix for path in folder.iterdir()} == {".o", ".lock"}


def test_another_kernel_source_is_another_file(folder: Path, compiled: list[str]) -> None:
    code()
    native.code("decoder", FACTORY, ("kraft_codec.kernels", "kraft_codec.schemas"), 10)
    native.code("decoder", FACTORY.replace("instruction", "tables"), ("kraft_codec.kernels",), 10)
    assert len(compiled) == len(list(folder.glob("*.o"))) == 3


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "writable", "link"])
def test_a_file_that_cannot_be_trusted_is_replaced(folder: Path, compiled: list[str], damage: str) -> None:
    code()
    (path,) = folder.glob("*.o")
    content = path.read_bytes()
    match damage:
        case "cut":
            path.write_bytes(content[:-1])
        case "flipped":
            path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        case "empty":
            path.write_bytes(b"")
        case "writable":
            path.chmod(0o622)
        case "link":
            path.rename(folder / "elsewhere")
            path.symlink_to(folder / "elsewhere")
    assert code() == b"{}\ncode 2"
    assert code() == b"{}\ncode 2"
    assert not path.is_symlink()


def spoil(folder: Path, how: str) -> None:
    match how:
        case "mode":
            folder.mkdir(parents=True)
            folder.chmod(0o755)
        case "link":
            (folder.parent / "real").mkdir(parents=True, mode=0o700)
            folder.symlink_to(folder.parent / "real")
        case "file":
            folder.parent.mkdir(parents=True)
            folder.write_text("")
        case "parent":
            folder.mkdir(parents=True, mode=0o700)
            folder.parent.chmod(0o777)
        case "below a link":
            (folder.parent.parent / "shared" / "cache").mkdir(parents=True, mode=0o700)
            (folder.parent.parent / "shared").chmod(0o777)
            folder.parent.symlink_to(folder.parent.parent / "shared")


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("mode", "mode 0755 lets others in"),
        ("link", "not a folder"),
        ("file", "File exists"),
        ("parent", "everybody may write"),
        ("below a link", "everybody may write"),
    ],
)
def test_an_unsafe_folder_is_not_used(
    folder: Path, compiled: list[str], capfd: pytest.CaptureFixture[str], how: str, said: str
) -> None:
    spoil(folder, how)
    before = sorted(folder.parent.rglob("*"))
    assert code() == b"{}\ncode 1"
    assert code() == b"{}\ncode 2"
    assert sorted(folder.parent.rglob("*")) == before
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 2
    assert said in lines[0]
    assert "for this process alone" in lines[0]
    assert cache.FOLDER_VARIABLE in lines[0]


def test_a_folder_of_ours_in_a_sticky_one_is_used(folder: Path, compiled: list[str]) -> None:
    folder.parent.mkdir()
    folder.parent.chmod(0o1777)
    assert code() == code() == b"{}\ncode 1"
    assert cache.private_folder() == folder


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link to somebody else")
def test_what_another_user_put_into_a_sticky_folder_is_not_followed(folder: Path, tmp_path: Path) -> None:
    """The link leads to a folder of ours; its owner can turn it elsewhere at any time."""
    (tmp_path / "elsewhere" / "cache").mkdir(parents=True, mode=0o700)
    folder.parent.mkdir()
    folder.parent.chmod(0o1777)
    link = folder.parent / "link"
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(cache.FOLDER_VARIABLE, str(link / "cache"))
        assert cache.private_folder() == link / "cache"
        os.chown(link, 12345, 12345, follow_symlinks=False)
        with pytest.raises(cache.UnsafeFolderError, match="belongs to another user"):
            cache.private_folder()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to somebody else")
def test_a_folder_of_somebody_else_is_not_used(folder: Path, compiled: list[str]) -> None:
    folder.mkdir(parents=True, mode=0o700)
    os.chown(folder, 12345, 12345)
    with pytest.raises(cache.UnsafeFolderError, match="belongs to another user"):
        cache.private_folder()


def test_the_folder_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(cache.FOLDER_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/someone/cache")
    assert cache.folder_path() == Path("/var/someone/cache/kraft-audit")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/someone")
    assert cache.folder_path() == Path("/home/someone/.cache/kraft-audit")


ONE_KERNEL = """
from numba import njit

def kernels():
    return {"twice": njit(lambda value: 2 * value).py_func}
"""


@pytest.fixture
def one_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A library of one small kernel, in a module that is found by this process's own path alone."""
    (tmp_path / "one_kernel.py").write_text(ONE_KERNEL)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(native, "_UNDER_WAY", [])
    return "one_kernel:kernels"


@pytest.mark.slow
def test_what_is_compiled_ahead_is_not_compiled_again(
    folder: Path, one_kernel: str, compiled: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    native.compile_ahead("small one", one_kernel)
    assert native._UNDER_WAY.pop().wait(timeout=120) == 0
    assert native.library("small one", one_kernel)["twice"](21) == 42
    assert compiled == []
    said = capfd.readouterr().err
    assert said == "kraft-audit: compiling the small one for this processor, once (about 10 seconds)\n"
    native.compile_ahead("small one", one_kernel)
    assert native._UNDER_WAY == []


def test_nothing_is_compiled_ahead_on_one_processor_or_for_a_folder_that_is_not_used(
    folder: Path, one_kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.mkdir(parents=True, mode=0o755)
    native.compile_ahead("small one", one_kernel)
    folder.chmod(0o700)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    native.compile_ahead("small one", one_kernel)
    assert native._UNDER_WAY == []
    assert list(folder.iterdir()) == []


@pytest.mark.ci
def test_sixteen_processes_with_an_empty_cache_compile_once(folder: Path, project_root: Path) -> None:
    started = [
        subprocess.Popen(
            [sys.executable, "-c", WHO], cwd=project_root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(16)
    ]
    finished = [process.communicate(timeout=240) for process in started]
    assert [process.returncode for process in started] == [0] * 16, finished
    assert sum("compiling" in said for _, said in finished) == 1
    assert sum(printed == "True\n" for printed, _ in finished) == 1  # the one that compiled imported numba
    assert len(list(folder.glob("*.o"))) == 1


@pytest.mark.ci
def test_a_processor_without_the_instruction(small_log: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole decoder, compiled with tables in the place of the instruction."""
    from kraft_codec.columns import batches, buffers

    expected = batches.index_batches(small_log)
    tables = native._load(native.compile_library(FACTORY.replace("instruction", "tables")))
    monkeypatch.setattr(buffers, "kernels", lambda: tables)
    monkeypatch.setattr(batches, "crc_tables", byte_tables)
    found = batches.index_batches(small_log)
    assert found.crc_ok.all()
    assert found.crc.tolist() == expected.crc.tolist()


def test_importing_the_decoder_neither_compiles_nor_imports_the_compiler(project_root: Path, folder: Path) -> None:
    program = "import sys, kraft_codec.columns; print(sorted({'numba', 'llvmlite', 'pandas'} & set(sys.modules)))"
    printed = subprocess.run(
        [sys.executable, "-c", program], cwd=project_root, capture_output=True, text=True, check=True, timeout=60
    )
    assert printed.stdout == "[]\n"
    assert not folder.exists()


def test_another_process_compiles_while_this_one_waits(
    folder: Path, compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under the lock the cache is read again: what another process left there is used, and nothing is compiled."""
    first = code()
    (cached,) = folder.glob("*.o")
    aside = cached.rename(folder / "aside")

    @contextlib.contextmanager
    def locked(_: Path, name: str) -> Iterator[None]:
        aside.rename(cached)
        yield

    monkeypatch.setattr(cache, "locked", locked)
    assert code() == first
    assert compiled == [FACTORY]


def test_a_file_that_cannot_be_written_whole_is_not_left_behind(
    folder: Path, compiled: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert code().startswith(b"{}\n")
    assert "for this process alone: [Errno 28] No space left on device" in capfd.readouterr().err
    assert [path.suffix for path in folder.iterdir()] == [".lock"]
    assert len(compiled) == 2


def test_a_folder_below_another_users_is_not_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may give a folder away")
    below = folder.parent / "given" / "cache"
    below.mkdir(parents=True, mode=0o700)
    os.chown(below.parent, 12345, -1)
    monkeypatch.setenv(cache.FOLDER_VARIABLE, str(below))
    with pytest.raises(cache.UnsafeFolderError, match="belongs to another user"):
        cache.private_folder()


def test_other_files_of_a_package_make_no_new_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kernels_of_a_test").mkdir()
    (tmp_path / "kernels_of_a_test" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    before = native._fingerprint(FACTORY, ("kernels_of_a_test",))
    (tmp_path / "kernels_of_a_test" / "notes.txt").write_text("no kernel")
    assert native._fingerprint(FACTORY, ("kernels_of_a_test",)) == before
    (tmp_path / "kernels_of_a_test" / "more.py").write_text("")
    assert native._fingerprint(FACTORY, ("kernels_of_a_test",)) != before


def test_a_kernel_that_raises_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """None may, and none can be made to: a function that says it did stands for one."""
    kind = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    says_so = kind(lambda _result, _raised, argument: int(argument < 0))
    address = ctypes.cast(says_so, ctypes.c_void_p).value
    assert address is not None
    call = native._function("odd", address, 1)
    assert call(1) == 0
    with pytest.raises(RuntimeError, match="the kernel odd raised, which none may"):
        call(-1)


def test_processors_that_the_kernels_are_not_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(sys, "byteorder", "big")
        with pytest.raises(RuntimeError, match="little-endian"):
            native.library("decoder", FACTORY)
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert not has_crc32_instruction.__wrapped__(), "tables are used where the instruction is not"


@pytest.mark.slow
def test_what_is_compiled_is_called_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kernel takes as many int64 as its function has parameters, and wraps around as they do."""
    (tmp_path / "small_kernels.py").write_text(
        "def less(left, right):\n    return left - right\n\n\n"
        "def next_one(value):\n    return value + 1\n\n\n"
        "def kernels():\n    return {'less': less, 'next': next_one}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    found = native._load(native.compile_library("small_kernels:kernels"))
    assert found.keys() == {"less", "next"}
    assert found["less"](3, 10) == -7
    assert found["next"](2**63 - 1) == -(2**63)
