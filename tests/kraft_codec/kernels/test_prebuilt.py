"""A library of the wheel is used for the sources, the system and the processor it was built for; what else is said."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kraft_codec.errors import MissingPackageError
from kraft_codec.kernels import native, prebuilt

KERNELS = "built_kernels_of_a_test:kernels"
PACKAGES = ("built_kernels_of_a_test",)


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a manifest that fits this machine; its library is no library."""
    sources = tmp_path / "sources" / "built_kernels_of_a_test"
    sources.mkdir(parents=True)
    (sources / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path / "sources")
    monkeypatch.delitem(sys.modules, *PACKAGES, raising=False)  # another test's
    monkeypatch.setattr(prebuilt, "is_x86_64", lambda: True)
    monkeypatch.setattr(prebuilt, "has_crc32_instruction", lambda: True)
    monkeypatch.setattr(prebuilt, "FOLDER", tmp_path)
    (tmp_path / "small.so").write_bytes(b"no library")
    entry = {
        "file": "small.so",
        "sha256": hashlib.sha256(b"no library").hexdigest(),
        "kernels": KERNELS,
        "sources": prebuilt.sources_digest(PACKAGES),
        "functions": {"twice": ["exported_twice", 1]},
    }
    write(tmp_path, {"system": sys.platform, "libraries": {"small": entry}})
    return tmp_path


def write(folder: Path, manifest: dict[str, Any]) -> None:
    (folder / prebuilt.MANIFEST).write_text(json.dumps(manifest))


def problem() -> str:
    with pytest.raises(prebuilt.NotPrebuiltError) as raised:
        prebuilt.find("small", KERNELS, PACKAGES)
    assert not native.is_prebuilt("small", KERNELS, PACKAGES)
    return str(raised.value)


def test_a_library_that_fits_is_used(built: Path) -> None:
    found = prebuilt.find("small", KERNELS, PACKAGES)
    assert found == prebuilt.PrebuiltLibrary(built / "small.so", {"twice": ("exported_twice", 1)})
    assert native.is_prebuilt("small", KERNELS, PACKAGES)


def test_a_library_of_other_sources_is_not_used(built: Path) -> None:
    (built / "sources" / "built_kernels_of_a_test" / "more.py").write_text("")
    assert "other sources" in problem()


def test_a_library_of_other_kernels_is_not_used(built: Path) -> None:
    for name, kernels in (("small", KERNELS + "_with_tables"), ("another", KERNELS)):
        with pytest.raises(prebuilt.NotPrebuiltError, match="other sources"):
            prebuilt.find(name, kernels, PACKAGES)


def test_a_library_with_other_bytes_is_not_loaded(built: Path) -> None:
    (built / "small.so").write_bytes(b"another library")
    assert "not the bytes that were built" in problem()


def test_another_processor_or_system_is_named(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(prebuilt, "has_crc32_instruction", lambda: False)
        assert "lacks SSE 4.2" in problem()
    with monkeypatch.context() as patched:
        patched.setattr(prebuilt, "is_x86_64", lambda: False)
        assert "are for " in problem()
    manifest = json.loads((built / prebuilt.MANIFEST).read_text())
    write(built, {**manifest, "system": "another"})
    assert "are for another" in problem()


@pytest.mark.parametrize("manifest", ["{}", "[]", '{"system": "linux", "libraries": {"small": {}}}'])
def test_a_manifest_that_is_damaged_is_named(built: Path, manifest: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    (built / prebuilt.MANIFEST).write_text(manifest)
    assert "not as it was built" in problem()


def test_what_cannot_be_loaded_is_said(built: Path) -> None:
    with pytest.raises(prebuilt.NotPrebuiltError, match=r"small\.so cannot be loaded"):
        prebuilt.find("small", KERNELS, PACKAGES).addresses()


def test_a_name_that_the_library_lacks_is_said(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda _: object())
    with pytest.raises(prebuilt.NotPrebuiltError, match="exported_twice"):
        prebuilt.find("small", KERNELS, PACKAGES).addresses()


def test_without_library_and_compiler_the_extra_is_named(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (built / prebuilt.MANIFEST).unlink()
    monkeypatch.setattr(native, "has_compiler", lambda: False)
    monkeypatch.setattr(native, "_UNDER_WAY", [])  # what another test had compiled may not have ended
    native.compile_ahead("small", KERNELS, packages=PACKAGES)
    with pytest.raises(MissingPackageError, match=r"brings no compiled kernels.* pip install 'kraft-audit\[compile\]'"):
        native.library("small", KERNELS, packages=PACKAGES)
    assert native._UNDER_WAY == []


@pytest.mark.slow
def test_a_command_without_kernels_is_one_line(project_root: Path) -> None:
    script = (
        "import sys\n"
        "from kraft_codec.kernels import native, prebuilt\n"
        "from pathlib import Path\n"
        "prebuilt.FOLDER = Path('/nonexistent')\n"
        "native.has_compiler = lambda: False\n"
        "from kraft_audit.commands.cli import run_command\n"
        "sys.exit(run_command(['check', 'samples/jbod.tgz']))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=project_root, check=False
    )
    assert (ended.returncode, ended.stdout, len(ended.stderr.splitlines())) == (2, "", 1)
    assert ended.stderr.endswith("pip install 'kraft-audit[compile]'\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("processor\t: 0\nflags\t\t: fpu sse4_1 sse4_2\n", True), ("flags\t\t: fpu sse4_1\n", False)],
)
def test_linux_says_what_the_processor_can_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, expected: bool
) -> None:
    (tmp_path / "cpuinfo").write_text(text)
    monkeypatch.setattr(prebuilt, "_CPU_INFO", tmp_path / "cpuinfo")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    assert prebuilt.has_crc32_instruction.__wrapped__() is expected


@pytest.mark.parametrize("has_llvm", [True, False])
def test_without_linux_llvm_is_asked_and_without_llvm_pyarrow_knew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_llvm: bool
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    truth = prebuilt.has_crc32_instruction.__wrapped__()
    monkeypatch.setattr(prebuilt, "_CPU_INFO", tmp_path / "missing")
    if not has_llvm:
        monkeypatch.setitem(sys.modules, "llvmlite", None)
    assert prebuilt.has_crc32_instruction.__wrapped__() is (truth if has_llvm else True)
    (tmp_path / "missing").write_text("processor\t: 0\n")
    assert prebuilt.has_crc32_instruction.__wrapped__() is (truth if has_llvm else True)
