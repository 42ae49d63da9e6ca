"""Writes kraft-audit as one file: `python scripts/one_file_program.py [FOLDER]`, dist/kraft-audit.pyz by default.

The file runs on Linux on x86-64 by Python 3.11 to 3.14 and installs nothing. It holds the platform's wheel from the
folder and the wheels that requirements.lock pins for each of these Pythons, which pip fetches here. Most of the bytes
are the same for all four Pythons, or nearly, and are stored once: the file is about a quarter of the wheels' size.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import lzma
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from packaging.markers import Marker
from packaging.requirements import Requirement

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.sbom import pins

ROOT = Path(__file__).resolve().parents[1]
MAIN: Final = Path(__file__).with_name("one_file_main.py")
NAME: Final = "kraft-audit.pyz"
VERSIONS: Final = ("3.11", "3.12", "3.13", "3.14")
GLIBC: Final = (2, 28)
PLATFORMS: Final = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
MAX_BYTES: Final = 80_000_000
FILTERS: Final = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 32 << 20}]
VARIANTS: Final = "variants"
VARIANT_FILTERS: Final = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 64 << 20}]
"""The dictionary is larger than the largest library, so that its next variant costs a few bytes."""
VARIANT_BYTES: Final = 16 << 20
"""From this size on the Pythons' variants of a library stand one after the other in one stream."""
UNUSED: Final = re.compile(
    r"/tests?/|^pyarrow/(include|src)/|^numpy/(_core/(include|lib)|f2py|random/lib|_pyinstaller)/"
    r"|\.(a|h|hpp|pxd|pxi|pyi|pyx|c|cc)$|/_(flight|substrait|orc|gcsfs|azurefs|hdfs)\.|arrow_(python_)?flight"
    r"|^bin/|\.data/|/(RECORD|WHEEL|INSTALLER)$"
)
"""What no command of the one file imports: headers, tests, and what Arrow has for other services."""
TIME: Final = (1980, 1, 1, 0, 0, 0)


@dataclass(slots=True)
class Group:
    """Files that one compressed stream holds: each is a path, its bytes, and the Pythons that it is for."""

    name: str
    files: list[tuple[str, bytes, tuple[str, ...]]] = field(default_factory=list)

    def packed(self) -> bytes:
        """The stream."""
        filters = VARIANT_FILTERS if self.name == f"{VARIANTS}.xz" else FILTERS
        with io.BytesIO() as stream:
            with lzma.open(stream, "wb", format=lzma.FORMAT_XZ, check=lzma.CHECK_SHA256, filters=filters) as packer:
                for _, data, _ in self.files:
                    packer.write(data)
            return stream.getvalue()

    def described(self) -> dict[str, object]:
        """The group in the manifest."""
        versions = sorted({version for *_, of_file in self.files for version in of_file})
        files = [(path, len(data), of_file) for path, data, of_file in self.files]
        return {"name": self.name, "versions": versions, "files": files}


def main(arguments: list[str]) -> int:
    folder = Path(arguments[0]) if arguments else ROOT / "dist"
    return write_program(folder, VERSIONS)


def write_program(folder: Path, versions: Sequence[str]) -> int:
    """Write the one file for these Pythons beside the platform's wheel; returns the exit code."""
    wheels = sorted(folder.glob("kraft_audit-*-manylinux*.whl"))
    if len(wheels) != 1:
        print(f"no {NAME}: {folder} has no platform's wheel", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as place:
        try:
            fetched = {version: fetch(version, Path(place, version)) for version in versions}
        except subprocess.CalledProcessError as failure:
            print(f"no {NAME}: {failure.stderr.strip()}", file=sys.stderr)
            return 1
        contents = {version: files_of([*wheels, *found]) for version, found in fetched.items()}
    program = program_bytes(contents, wheels[0].name.split("-")[1])
    if len(program) > MAX_BYTES:
        print(f"no {NAME}: it would have {len(program):,} bytes, more than {MAX_BYTES:,}", file=sys.stderr)
        return 1
    target = folder / NAME
    target.write_bytes(program)
    target.chmod(0o755)
    print(f"{target}: {len(program):,} bytes")
    return 0


def program_bytes(contents: Mapping[str, Mapping[str, bytes]], release: str) -> bytes:
    """The one file, made of the files of each Python. The same files give the same bytes."""
    groups = grouped(contents)
    with ThreadPoolExecutor(2) as packers:
        slowest_first = sorted(groups, key=lambda group: -sum(len(data) for _, data, _ in group.files))
        packed = packers.map(Group.packed, slowest_first)
        stream_of = {group.name: stream for group, stream in zip(slowest_first, packed, strict=True)}
    manifest = {
        "version": release,
        "glibc": GLIBC,
        "digests": {version: digest(files) for version, files in contents.items()},
        "groups": [group.described() for group in groups],
    }
    content = io.BytesIO()
    content.write(b"#!/usr/bin/env python3\n")
    with zipfile.ZipFile(content, "w") as archive:
        write_member(archive, "__main__.py", MAIN.read_bytes(), zipfile.ZIP_DEFLATED)
        text = json.dumps(manifest, sort_keys=False, separators=(",", ":"))
        write_member(archive, "manifest.json", text.encode("utf-8"), zipfile.ZIP_DEFLATED)
        for group in groups:
            write_member(archive, group.name, stream_of[group.name], zipfile.ZIP_STORED)
    return content.getvalue()


def write_member(archive: zipfile.ZipFile, name: str, data: bytes, method: int) -> None:
    member = zipfile.ZipInfo(name, TIME)
    member.compress_type = method
    member.external_attr = 0o100644 << 16
    archive.writestr(member, data)


def digest(files: Mapping[str, bytes]) -> str:
    """What the folder of a Python is named after: its content."""
    whole = hashlib.sha256()
    for path, data in sorted(files.items()):
        whole.update(f"{path}\0{hashlib.sha256(data).hexdigest()}\n".encode())
    return whole.hexdigest()[:16]


def grouped(contents: Mapping[str, Mapping[str, bytes]]) -> list[Group]:
    """Every content once: by the Pythons that need it, and large libraries of all Pythons side by side."""
    holders: dict[tuple[str, bytes], list[str]] = {}
    variants: dict[str, set[bytes]] = {}
    for version, files in contents.items():
        for path, data in files.items():
            holders.setdefault((path, data), []).append(version)
            variants.setdefault(path, set()).add(data)
    groups: dict[str, Group] = {}
    for (path, data), versions in sorted(holders.items(), key=lambda item: (item[0][0], item[1])):
        is_variant = len(variants[path]) > 1 and len(data) >= VARIANT_BYTES
        name = VARIANTS if is_variant else "py" + "-".join(versions)
        groups.setdefault(name, Group(f"{name}.xz")).files.append((path, data, tuple(versions)))
    return [groups[name] for name in sorted(groups)]


def fetch(version: str, folder: Path) -> list[Path]:
    """The wheels of every package that the program needs, for a Python of this version, with the lock's hashes."""
    folder.mkdir(parents=True)
    asked = folder / "requirements.txt"
    asked.write_text("".join(pinned(needed(), version)), encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--require-hashes", "--only-binary=:all:", "--python-version", version, "--dest", str(folder)]
    for platform in PLATFORMS:
        command += ["--platform", platform]
    subprocess.run([*command, "--requirement", str(asked)], check=True, capture_output=True, text=True)
    return sorted(folder.glob("*.whl"))


def pinned(names: set[str], version: str) -> Iterator[str]:
    """Lines of a requirements file for a Python of this version."""
    environment = {"python_version": version, "python_full_version": f"{version}.0", "sys_platform": "linux"}
    for pin in pins((ROOT / "requirements.lock").read_text(encoding="utf-8")):
        if pin.name in names and (not pin.marker or Marker(pin.marker).evaluate(environment)):
            hashes = " ".join(f"--hash=sha256:{each}" for each in pin.sha256)
            yield f"{pin.name}=={pin.version} {hashes}\n"


def needed() -> set[str]:
    """The packages that kraft-audit declares to need, and theirs, on any of the Pythons."""
    found: set[str] = set()
    pending = required(distribution("kraft-audit").requires or [])
    while pending:
        name = pending.pop()
        if name in found:
            continue
        found.add(name)
        with contextlib.suppress(PackageNotFoundError):  # a package that this Python does not need
            pending |= required(distribution(name).requires or [])
    return found - {"numba", "llvmlite"}


def required(lines: Sequence[str]) -> set[str]:
    """The names in lines such as `pyarrow<27,>=19` that Linux needs without any extra."""
    needs = set()
    for requirement in map(Requirement, lines):
        environments = [{"python_version": version, "sys_platform": "linux", "extra": ""} for version in VERSIONS]
        if requirement.marker is None or any(requirement.marker.evaluate(each) for each in environments):
            needs.add(re.sub(r"[-_.]+", "-", requirement.name).lower())
    return needs


def files_of(wheels: Sequence[Path]) -> dict[str, bytes]:
    """The files of these wheels by the path at which pip would install them, but those that no command uses."""
    files: dict[str, bytes] = {}
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if not name.endswith("/") and (not UNUSED.search(name) or re.search("LICEN[CS]E|NOTICE", name)):
                    files[name] = archive.read(name)
    return files


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
