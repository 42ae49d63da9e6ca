"""Zip files made to do harm: the good node dir in each is read whole, and nothing ever leaves the archive."""

from __future__ import annotations

import io
import stat
import zipfile
from collections.abc import Callable

import pytest

from kraft_codec.errors import Reason
from kraft_codec.files.discovery import discover
from tests.builders.hostile_archives import (
    CONTENT,
    OTHER,
    SEGMENT,
    assert_damages,
    assert_good,
    make_zip,
    open_archive,
)


def unix_member(name: str, mode: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.create_system = 3
    info.external_attr = mode << 16
    return info


def patched(archive: bytes, name: str, position: int, value: bytes, *, central: bool = True) -> bytes:
    """Writes over a field of a member's header, in the central directory or before the member."""
    magic, name_position = (b"PK\x01\x02", 46) if central else (b"PK\x03\x04", 30)
    data = bytearray(archive)
    at = data.find(magic)
    while data[at + name_position : at + name_position + len(name)] != name.encode():
        at = data.find(magic, at + 1)
        assert at > 0
    data[at + position : at + position + len(value)] = value
    return bytes(data)


ZIP_CASES: dict[str, tuple[Callable[[dict[str, bytes]], bytes], dict[str, Reason]]] = {
    "parent": (lambda good: make_zip(good, ("../meta.properties", CONTENT)), {"../": Reason.HOSTILE_NAME}),
    "absolute": (lambda good: make_zip(good, ("/etc/meta.properties", CONTENT)), {"/etc": Reason.HOSTILE_NAME}),
    "backslashes of unix": (
        lambda good: make_zip(good, (unix_member("..\\meta.properties", stat.S_IFREG), CONTENT)),
        {"..\\": Reason.HOSTILE_NAME},
    ),
    "drive": (lambda good: make_zip(good, ("C:/meta.properties", CONTENT)), {"C:": Reason.HOSTILE_NAME}),
    "newline": (lambda good: make_zip(good, ("a\nb/meta.properties", CONTENT)), {r"a\nb": Reason.HOSTILE_NAME}),
    "bidi": (lambda good: make_zip(good, ("\u202e/meta.properties", CONTENT)), {r"\u202e": Reason.HOSTILE_NAME}),
    "link": (
        lambda good: make_zip(good, (unix_member(OTHER, stat.S_IFLNK | 0o777), b"/etc/passwd")),
        {OTHER: Reason.UNREADABLE},
    ),
    "device": (
        lambda good: make_zip(good, (unix_member(OTHER, stat.S_IFCHR | 0o777), b"")),
        {OTHER: Reason.UNREADABLE},
    ),
    "encrypted": (
        lambda good: patched(make_zip(good, (OTHER, CONTENT)), OTHER, 8, b"\1\0"),
        {OTHER: Reason.UNREADABLE},
    ),
    "unknown method": (
        lambda good: patched(make_zip(good, (OTHER, CONTENT)), OTHER, 10, b"\x63\0"),
        {OTHER: Reason.UNREADABLE},
    ),
    "wrong checksum": (
        lambda good: patched(make_zip(good, (OTHER, CONTENT)), OTHER, 16, b"\1\2\3\4"),
        {OTHER: Reason.BAD_FILE},
    ),
    "a size beyond its data": (
        lambda good: patched(make_zip(good, (OTHER, CONTENT)), OTHER, 24, b"\0\0\0\x50"),
        {OTHER: Reason.BAD_FILE},
    ),
    "two names of one member": (
        lambda good: patched(make_zip(good, (OTHER, CONTENT)), OTHER, 30, b"x", central=False),
        {OTHER: Reason.BAD_FILE},
    ),
    "member before the file": (
        lambda good: patched(make_zip(good, (OTHER, CONTENT)), OTHER, 42, b"\xff\xff\xff\x7f"),
        {OTHER: Reason.BAD_FILE},
    ),
    "member at another": (
        lambda good: patched(make_zip(good, (OTHER, CONTENT)), OTHER, 42, b"\0\0\0\0"),
        {OTHER: Reason.BAD_FILE},
    ),
    "other case": (
        lambda good: make_zip(good, (SEGMENT.replace("node", "Node"), CONTENT)),
        {"Node": Reason.HOSTILE_NAME},
    ),
}


@pytest.mark.parametrize("case", ZIP_CASES)
def test_a_hostile_member_of_a_zip_is_refused_alone(good: dict[str, bytes], case: str) -> None:
    make, expected = ZIP_CASES[case]
    with open_archive(make(good)) as storage:
        assert_damages(assert_good(storage, good), expected)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_without_a_directory_a_size_beyond_the_data_is_not_believed(good: dict[str, bytes], method: int) -> None:
    """What is missing would be made up as zeros, a gigabyte of them where the size says so."""
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", method) as archive:
        for name, content in [*good.items(), (OTHER, CONTENT)]:
            archive.writestr(name, content)
    data = patched(whole.getvalue(), OTHER, 22, b"\0\0\0\x50", central=False)
    with open_archive(data[: data.find(b"PK\x01\x02")]) as storage:
        damages = assert_good(storage, good).damages
    assert [(damage.path.endswith(OTHER), damage.reason) for damage in damages[:1]] == [(True, Reason.BAD_FILE)]
    assert "expected 1342177280" in damages[0].detail


def test_a_link_in_a_zip_is_called_a_link(good: dict[str, bytes]) -> None:
    with open_archive(ZIP_CASES["link"][0](good)) as storage:
        assert discover(storage).damages[0].detail.startswith("a link")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_zip_with_a_name_twice(good: dict[str, bytes]) -> None:
    with open_archive(make_zip(good, (SEGMENT, CONTENT))) as storage:
        assert_damages(assert_good(storage, good), {SEGMENT: Reason.HOSTILE_NAME})


def test_a_zip_of_windows_has_backslashes(good: dict[str, bytes]) -> None:
    data = make_zip({name.replace("/", "|"): content for name, content in good.items()})
    data = data.replace(b"node-1|__cluster_metadata-0|", b"node-1\\__cluster_metadata-0\\").replace(b"1|m", b"1\\m")
    at = data.find(b"PK\x01\x02")
    system = bytearray(data)
    while at >= 0:
        system[at + 5] = 0  # made by MS-DOS
        at = data.find(b"PK\x01\x02", at + 1)
    with open_archive(bytes(system)) as storage:
        assert assert_good(storage, good).damages == ()
