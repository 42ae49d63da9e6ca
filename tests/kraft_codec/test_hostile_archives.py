"""Archives made to do harm: the good node dir in each is read whole, and nothing ever leaves the archive."""

from __future__ import annotations

import gzip
import io
import os
import random
import resource
import stat
import struct
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from kraft_codec.archive import ArchiveStorage
from kraft_codec.discovery import Discovery, discover
from kraft_codec.errors import CodecError, InputError, Reason
from kraft_codec.file_names import offset_index_name, segment_name
from kraft_codec.logdir import read_replica, segments
from kraft_codec.storage import Limits

LOG = "node-1/__cluster_metadata-0"
SEGMENT = f"{LOG}/{segment_name(0)}"
OTHER = f"node-2/__cluster_metadata-0/{segment_name(0)}"
BLOCK = 512
CONTENT = b"hostile content"


# Members as raw blocks, so that they may say what no writer would


def header(
    name: bytes,
    *,
    size: bytes | int = 0,
    flag: bytes = b"0",
    link: bytes = b"",
    magic: bytes = b"ustar\x0000",
    mtime: bytes = b"00000000000",
    extra: dict[int, bytes] | None = None,
    checksum: bytes | None = None,
) -> bytes:
    block = bytearray(BLOCK)
    block[0 : len(name[:100])] = name[:100]
    block[100:108] = b"0000644\0"
    size_field = size if isinstance(size, bytes) else b"%011o\0" % size
    block[124 : 124 + len(size_field)] = size_field
    block[136 : 136 + len(mtime)] = mtime
    block[156:157] = flag
    block[157 : 157 + len(link)] = link
    block[257:265] = magic
    for position, data in (extra or {}).items():
        block[position : position + len(data)] = data
    block[148:156] = b" " * 8
    block[148:156] = checksum or b"%06o\0 " % sum(block)
    return bytes(block)


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % BLOCK)


def member(name: bytes | str, data: bytes = CONTENT, **fields: object) -> bytes:
    raw = name if isinstance(name, bytes) else name.encode()
    if len(raw) > 100:
        return long_name(raw) + header(raw, size=len(data), **fields) + padded(data)  # type: ignore[arg-type]
    return header(raw, size=len(data), **fields) + padded(data)  # type: ignore[arg-type]


def long_name(name: bytes) -> bytes:
    return header(b"././@LongLink", size=len(name) + 1, flag=b"L", magic=b"ustar  \0") + padded(name + b"\0")


def pax(*records: tuple[bytes, bytes], raw: bytes | None = None) -> bytes:
    text = b""
    for key, value in records:
        length = len(key) + len(value) + 3
        while len(b"%d" % length) + len(key) + len(value) + 3 != length:
            length = len(b"%d" % length) + len(key) + len(value) + 3
        text += b"%d %s=%s\n" % (length, key, value)
    data = text if raw is None else raw
    return header(b"pax", size=len(data), flag=b"x") + padded(data)


def old_sparse(name: str, runs: Iterable[tuple[int, int]], real_size: int, data: bytes, *, more: bool = False) -> bytes:
    extra = {386 + 24 * number: b"%011o\0%011o\0" % run for number, run in enumerate(runs)}
    extra |= {482: b"\1" if more else b"\0", 483: b"%011o\0" % real_size}
    return member(name, data, flag=b"S", magic=b"ustar  \0", extra=extra)


END = bytes(2 * BLOCK)
DEEP = "/".join(["d"] * 500)
NFC = unicodedata.normalize("NFC", "node-ü")
NFD = unicodedata.normalize("NFD", "node-ü")
QUORUM_STATE = "__cluster_metadata-0/quorum-state"

# Name of the case -> (blocks beside the good node dir, what is complained of: part of a path -> reason)
TAR_CASES: dict[str, tuple[bytes, dict[str, Reason]]] = {
    "parent": (member(f"../{QUORUM_STATE}"), {"../": Reason.HOSTILE_NAME}),
    "parent inside": (member(f"a/../../{QUORUM_STATE}"), {"a/../..": Reason.HOSTILE_NAME}),
    "parent after dot": (member("./../meta.properties"), {"./../": Reason.HOSTILE_NAME}),
    "only parents": (member("../../../.."), {"../": Reason.HOSTILE_NAME}),
    "absolute": (member("/etc/meta.properties"), {"/etc": Reason.HOSTILE_NAME}),
    "absolute twice": (member("//etc/meta.properties"), {"//etc": Reason.HOSTILE_NAME}),
    "windows drive": (member("C:/kafka/meta.properties"), {"C:": Reason.HOSTILE_NAME}),
    "backslashes": (member("..\\..\\meta.properties"), {"..\\": Reason.HOSTILE_NAME}),
    "symbolic link": (header(b"node-2", flag=b"2", link=b"/etc"), {"node-2": Reason.UNREADABLE}),
    "link and a file through it": (
        header(b"node-2", flag=b"2", link=b"../../outside") + member("node-2/meta.properties", b""),
        {"node-2": Reason.UNREADABLE},
    ),
    "link over a good file": (header(SEGMENT.encode(), flag=b"2", link=b"/etc/passwd"), {SEGMENT: Reason.UNREADABLE}),
    "hard link outside": (header(OTHER.encode(), flag=b"1", link=b"/etc/passwd"), {OTHER: Reason.UNREADABLE}),
    "hard link with a size": (
        header(OTHER.encode(), flag=b"1", link=SEGMENT.encode(), size=1 << 20),
        {OTHER: Reason.UNREADABLE},
    ),
    "character device": (header(OTHER.encode(), flag=b"3"), {OTHER: Reason.UNREADABLE}),
    "block device": (header(OTHER.encode(), flag=b"4"), {OTHER: Reason.UNREADABLE}),
    "fifo": (header(OTHER.encode(), flag=b"6"), {OTHER: Reason.UNREADABLE}),
    "unknown type": (member(OTHER, flag=b"Z"), {OTHER: Reason.UNREADABLE}),
    "part of a multi-volume archive": (member(OTHER, flag=b"M"), {OTHER: Reason.UNREADABLE}),
    "duplicate": (member(SEGMENT), {SEGMENT: Reason.HOSTILE_NAME}),
    "duplicate by dots": (member(f"./node-1/.//{SEGMENT[7:]}"), {SEGMENT[7:]: Reason.HOSTILE_NAME}),
    "other case": (member(SEGMENT.replace("node", "NODE")), {"NODE": Reason.HOSTILE_NAME}),
    "other composition": (
        member(f"{NFC}/{QUORUM_STATE}") + member(f"{NFD}/{QUORUM_STATE}"),
        {NFD: Reason.HOSTILE_NAME},
    ),
    "newline": (member("node\n2/meta.properties"), {r"node\n2": Reason.HOSTILE_NAME}),
    "carriage return": (member("node\r2/meta.properties"), {r"node\r2": Reason.HOSTILE_NAME}),
    "escape sequence": (member("\x1b[31m/meta.properties"), {r"\x1b": Reason.HOSTILE_NAME}),
    "bidi": (member("\u202egpj/meta.properties"), {r"\u202e": Reason.HOSTILE_NAME}),
    "zero width": (member("node-1\u200b/meta.properties"), {r"\u200b": Reason.HOSTILE_NAME}),
    "not UTF-8": (member(b"node\xff/meta.properties"), {r"node\xff": Reason.HOSTILE_NAME}),
    "NUL in a pax name": (
        pax((b"path", b"meta.properties\0/../../x")) + member("x"),
        {r"\x00": Reason.HOSTILE_NAME},
    ),
    "parent in a pax name": (pax((b"path", b"../../meta.properties")) + member("x"), {"../": Reason.HOSTILE_NAME}),
    "parent in a long name": (
        long_name(b"../" * 40 + b"meta.properties") + member("x"),
        {"../": Reason.HOSTILE_NAME},
    ),
    "very long name": (member("x" * 5000 + "/meta.properties"), {"xxx": Reason.HOSTILE_NAME}),
    "five hundred deep": (member(f"{DEEP}/meta.properties"), {"d/d/d": Reason.LIMIT}),
    "long name of two megabytes": (long_name(b"x" * (2 << 20)) + member(OTHER), {OTHER: Reason.LIMIT}),
    "pax header of two megabytes": (pax(raw=b"a" * (2 << 20)) + member(OTHER), {OTHER: Reason.LIMIT}),
    "pax record without an end": (pax(raw=b"99 path=x\n") + member(OTHER), {OTHER: Reason.BAD_FILE}),
    "pax record of length 0": (pax(raw=b"0 path=x\n") + member(OTHER), {OTHER: Reason.BAD_FILE}),
    "pax record of negative length": (pax(raw=b"-9 path=x\n") + member(OTHER), {OTHER: Reason.BAD_FILE}),
    "pax record of endless length": (pax(raw=b"9" * 400 + b" a=b\n") + member(OTHER), {OTHER: Reason.BAD_FILE}),
    "a file where a directory is": (member(LOG), {}),
    "a directory where a file is": (header(SEGMENT.encode() + b"/", flag=b"5"), {SEGMENT: Reason.HOSTILE_NAME}),
    "a file below a file": (member(f"{SEGMENT}/meta.properties"), {"meta.properties": Reason.HOSTILE_NAME}),
    "sparse, overlapping": (
        old_sparse(OTHER, [(0, 512), (256, 512)], 4096, bytes(1024)),
        {OTHER: Reason.BAD_FILE},
    ),
    "sparse, backwards": (old_sparse(OTHER, [(2048, 512), (0, 512)], 4096, bytes(1024)), {OTHER: Reason.BAD_FILE}),
    "sparse, beyond its end": (old_sparse(OTHER, [(4096, 512)], 4096, bytes(512)), {OTHER: Reason.BAD_FILE}),
    "sparse, more than is stored": (old_sparse(OTHER, [(0, 1024)], 4096, bytes(512)), {OTHER: Reason.BAD_FILE}),
    "sparse, beyond all measure": (old_sparse(OTHER, [(0, 512)], 8**11 - 1, b"x" * 512), {}),
    "sparse 1.0 without an end": (
        pax((b"GNU.sparse.major", b"1"), (b"GNU.sparse.minor", b"0"), (b"GNU.sparse.realsize", b"512"))
        + member(OTHER, b"9" * 512 + b"\n" * 512),
        {OTHER: Reason.BAD_FILE},
    ),
    "sparse 1.0 of a billion pieces": (
        pax((b"GNU.sparse.major", b"1"), (b"GNU.sparse.minor", b"0"), (b"GNU.sparse.realsize", b"512"))
        + member(OTHER, b"1000000000\n".ljust(512, b"\0")),
        {OTHER: Reason.BAD_FILE},
    ),
    "sparse 0.1 with a map of nonsense": (
        pax((b"GNU.sparse.size", b"512"), (b"GNU.sparse.map", b"0,5,5")) + member(OTHER),
        {OTHER: Reason.BAD_FILE},
    ),
    "time that no clock shows": (member("node-3/meta.properties", b"", mtime=b"77777777777"), {}),
    "pax time of nonsense": (pax((b"mtime", b"inf")) + member("node-3/meta.properties", b""), {}),
}

# These leave the reader not knowing where the next member begins: what came before stays, the rest is unread.
BREAKING_CASES: dict[str, tuple[bytes, Reason]] = {
    "checksum": (member(OTHER, checksum=b"000000\0 "), Reason.BAD_FILE),
    "no header at all": (b"x" * BLOCK, Reason.BAD_FILE),
    "negative size": (header(OTHER.encode(), size=b"\xff" * 12), Reason.BAD_FILE),
    "size of exabytes": (header(OTHER.encode(), size=b"\x80" + b"\xff" * 11), Reason.BAD_FILE),
    "size beyond the end": (header(OTHER.encode(), size=b"77777777777\0"), Reason.BAD_FILE),
    "size of nonsense": (header(OTHER.encode(), size=b"12x45678901\0"), Reason.BAD_FILE),
    "pax size of nonsense": (pax((b"size", b"-1")) + member(OTHER), Reason.BAD_FILE),
    "pax size beyond the end": (pax((b"size", b"999999999999")) + member(OTHER), Reason.BAD_FILE),
    "pax header beyond the end": (header(b"pax", size=b"77777777777\0", flag=b"x"), Reason.BAD_FILE),
    "sparse map without an end": (
        old_sparse(OTHER, [(0, 512)], 4096, b"", more=True) + (bytes(504) + b"\1" + bytes(7)) * 50,
        Reason.BAD_FILE,
    ),
    "long name without a member": (long_name(b"x" * 200), Reason.BAD_FILE),
}


@pytest.fixture(scope="module")
def good(make_node_dir: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a good node dir by their names in the archive."""
    root = tmp_path_factory.mktemp("good")
    make_node_dir(root / "node-1")
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def good_tar(good: dict[str, bytes]) -> bytes:
    return b"".join(member(name, data) for name, data in good.items())


def open_archive(data: bytes, limits: Limits | None = None) -> ArchiveStorage:
    return ArchiveStorage(io.BytesIO(data), "incident", limits=limits)


def assert_good(storage: ArchiveStorage, good: dict[str, bytes]) -> Discovery:
    """The good node dir is there, whole, and can be used."""
    found = discover(storage)
    replica = next(replica for replica in found.replicas if replica.path == LOG)
    assert {file.path for file in replica.files} - {f"{LOG}/quorum-state.tmp"} == set(good)
    for path, data in good.items():
        assert storage.read_small(path) == data
    assert read_replica(storage, replica).damages == ()
    assert segments(storage, replica)[1] == ()
    for damage in found.damages:
        damage.path.encode()
        assert "\n" not in damage.path + damage.detail
        assert "hostile content" not in damage.detail
    return found


def assert_damages(found: Discovery, expected: dict[str, Reason]) -> None:
    assert len(found.damages) == len(expected), found.damages
    for damage, (part, reason) in zip(found.damages, expected.items(), strict=True):
        assert part in damage.path
        assert damage.reason is reason


# Of two members of one name the first is kept: these cases are only hostile behind the good ones.
ONLY_AFTER = {
    "duplicate",
    "duplicate by dots",
    "other case",
    "link over a good file",
    "a directory where a file is",
    "a file below a file",
}


@pytest.mark.parametrize("case", TAR_CASES)
def test_a_hostile_member_is_refused_alone(good: dict[str, bytes], case: str) -> None:
    blocks, expected = TAR_CASES[case]
    orders = [good_tar(good) + blocks + END]
    if case not in ONLY_AFTER:
        orders.append(blocks + good_tar(good) + END)
    for data in orders:
        for archive in (data, gzip.compress(data, 1)):
            with open_archive(archive) as storage:
                assert_damages(assert_good(storage, good), expected)


@pytest.mark.parametrize("case", BREAKING_CASES)
def test_an_archive_is_read_up_to_where_it_makes_no_sense(good: dict[str, bytes], case: str) -> None:
    blocks, reason = BREAKING_CASES[case]
    data = good_tar(good) + blocks
    for archive in (data, gzip.compress(data, 1)):
        with open_archive(archive) as storage:
            found = assert_good(storage, good)
        assert {damage.reason for damage in found.damages} == {reason}
        assert "incident" in {damage.path for damage in found.damages}
    if not case.endswith("size beyond the end"):  # there the beginning of a file can be had
        with pytest.raises(InputError, match="not an archive that can be read"):
            open_archive(blocks.ljust(BLOCK, b"x"))


def test_the_first_of_two_members_of_a_name_is_kept(good: dict[str, bytes]) -> None:
    with open_archive(member(SEGMENT) + good_tar(good) + END) as storage:
        found = discover(storage)
        assert storage.read_small(SEGMENT) == CONTENT
    assert_damages(found, {SEGMENT: Reason.HOSTILE_NAME})


def test_nothing_is_written_where_a_name_points(
    good: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unchanged: Callable[[Path], str]
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "inside").mkdir()
    monkeypatch.chdir(tmp_path / "inside")
    before = unchanged(tmp_path)
    blocks = (
        member("../outside/meta.properties")
        + member(f"{outside}/meta.properties")
        + header(b"node-2", flag=b"2", link=str(outside).encode())
        + member("node-2/meta.properties")
        + header(b"node-3", flag=b"2", link=b"../outside")
        + member(f"node-3/{QUORUM_STATE}")
    )
    with open_archive(good_tar(good) + blocks + END) as storage:
        assert len(assert_good(storage, good).damages) == 4
    assert unchanged(tmp_path) == before


# Bombs


def peak_kilobytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def zeros_gz(prefix: bytes, count: int, suffix: bytes = b"") -> bytes:
    """A gzip file of `prefix`, `count` MiB of zeros, `suffix`, made without holding it."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    zeros = bytes(1 << 20)
    return (
        packer.compress(prefix)
        + b"".join(packer.compress(zeros) for _ in range(count))
        + packer.compress(suffix)
        + packer.flush()
    )


SMALL = Limits(expansion_free_bytes=4 << 20, index_skip_bytes=16 << 20, spool_bytes=16 << 20)


@pytest.mark.parametrize("name", ["bomb.bin", OTHER, f"{LOG}/quorum-state.tmp"])
def test_a_bomb_goes_off_at_the_ratio(good: dict[str, bytes], name: str) -> None:
    size = 100 << 20
    blocks = header(name.encode(), size=size)
    data = zeros_gz(good_tar(good) + blocks, size >> 20, END)
    assert len(data) < 1 << 20
    before = peak_kilobytes()
    with open_archive(data, SMALL) as storage:
        found = assert_good(storage, good)
    assert Reason.LIMIT in {damage.reason for damage in found.damages}
    assert peak_kilobytes() - before < 64 << 10


def test_zeros_without_end_behind_the_archive_are_a_bomb_too(good: dict[str, bytes]) -> None:
    data = zeros_gz(good_tar(good) + END, 100)
    with open_archive(data, SMALL) as storage:
        assert_damages(assert_good(storage, good), {"incident": Reason.LIMIT})


def test_headers_without_end_are_a_bomb_too(good: dict[str, bytes]) -> None:
    data = gzip.compress(good_tar(good) + header(b"x") * 60_000, 9)
    with open_archive(data, SMALL) as storage:
        assert_damages(assert_good(storage, good), {"incident": Reason.LIMIT})


def test_a_sparse_map_without_end_is_a_bomb_too(good: dict[str, bytes]) -> None:
    more = bytes(504) + b"\1" + bytes(7)
    data = gzip.compress(good_tar(good) + old_sparse(OTHER, [(0, 0)], 4096, b"", more=True) + more * 60_000, 9)
    with open_archive(data, SMALL) as storage:
        assert {damage.reason for damage in assert_good(storage, good).damages} == {Reason.LIMIT}


def test_index_files_have_a_budget_of_their_own(good: dict[str, bytes]) -> None:
    index = f"node-2/__cluster_metadata-0/{offset_index_name(0)}".encode()
    data = zeros_gz(good_tar(good) + header(index, size=15 << 20), 15, END)
    with open_archive(data, SMALL) as storage:
        assert assert_good(storage, good).damages == ()
    data = zeros_gz(good_tar(good) + header(index, size=40 << 20), 40, END)
    with open_archive(data, SMALL) as storage:
        assert {damage.reason for damage in assert_good(storage, good).damages} == {Reason.LIMIT}


def test_members_and_copies_are_bounded(good: dict[str, bytes]) -> None:
    data = good_tar(good) + b"".join(member(f"{number}/meta.properties", b"") for number in range(100)) + END
    with open_archive(data, Limits(member_count=50)) as storage:
        assert_damages(assert_good(storage, good), {"incident": Reason.LIMIT})
    large = member(OTHER, random.Random(1).randbytes(20 << 20))  # noqa: S311
    with open_archive(good_tar(good) + large + END, SMALL) as storage:
        found = assert_good(storage, good)
        assert_damages(found, {OTHER: Reason.LIMIT})


def test_a_sparse_terabyte_takes_no_room(good: dict[str, bytes]) -> None:
    terabyte = 1 << 40
    # Beyond eight gigabytes the size is a number of base 256.
    blocks = header(
        OTHER.encode(),
        size=512,
        flag=b"S",
        magic=b"ustar  \0",
        extra={386: b"%011o\0%011o\0" % (0, 512), 483: b"\x80" + terabyte.to_bytes(11, "big")},
    ) + padded(b"x" * 512)
    try:
        storage = open_archive(good_tar(good) + blocks + END)
    except InputError:
        pytest.skip("this file system holds no file of a terabyte")
    with storage:
        assert assert_good(storage, good).damages == ()
        with storage.open(OTHER) as file:
            assert file.size_bytes == terabyte
            assert file.read_at(0, 600).tobytes() == b"x" * 512 + bytes(88)
            assert file.read_at(terabyte - 10, 10).tobytes() == bytes(10)


def test_complaints_are_bounded(good: dict[str, bytes]) -> None:
    blocks = b"".join(member(f"../{number}") for number in range(3000))
    with open_archive(good_tar(good) + blocks + END) as storage:
        damages = assert_good(storage, good).damages
    assert len(damages) == 1001
    assert "2000 more" in damages[-1].detail


# Zip


def make_zip(good: dict[str, bytes], *others: tuple[zipfile.ZipInfo | str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as writer:
        for name, data in good.items():
            writer.writestr(name, data)
        for info, data in others:
            writer.writestr(info, data)
    return out.getvalue()


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


def test_a_zip_bomb_goes_off_at_the_ratio(good: dict[str, bytes]) -> None:
    data = make_zip(good, (OTHER, bytes(30 << 20)))
    before = peak_kilobytes()
    with open_archive(data, SMALL) as storage:
        assert_damages(assert_good(storage, good), {OTHER: Reason.LIMIT})
    assert peak_kilobytes() - before < 64 << 10
    with open_archive(make_zip(good, ("bomb.bin", bytes(30 << 20))), SMALL) as storage:
        assert assert_good(storage, good).damages == (), "what does not belong is not even read"


def test_many_names_of_one_bomb_are_one_bomb(good: dict[str, bytes]) -> None:
    """The quoted overlap of David Fifield: each member's data is the next member and its data."""
    kernel = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = kernel.compress(bytes(1 << 20)) + kernel.flush()
    crc = zlib.crc32(bytes(1 << 20))
    names = [f"{number}/{QUORUM_STATE}".encode() for number in range(200)]
    fields = (20, 0, 8, 0, 33, crc, len(packed), 1 << 20)
    local = struct.pack("<4s5H3I2H", b"PK\x03\x04", *fields, len(names[0]), 0) + names[0] + packed
    central = b"".join(
        struct.pack("<4s6H3I5H2I", b"PK\x01\x02", 20, *fields, len(name), 0, 0, 0, 0, 0, 0) + name for name in names
    )
    end = struct.pack("<4s4HIIH", b"PK\x05\x06", 0, 0, len(names), len(names), len(central), len(local), 0)
    with open_archive(local + central + end, SMALL) as storage:
        damages = discover(storage).damages
    assert damages
    assert {damage.reason for damage in damages} <= {Reason.BAD_FILE, Reason.LIMIT}


def test_a_list_of_members_of_gigabytes_is_not_loaded() -> None:
    end = struct.pack("<4s4HIIH", b"PK\x05\x06", 0, 0, 1, 1, 1 << 31, 0, 0)
    with pytest.raises(InputError, match="list of members"):
        open_archive(b"PK\x03\x04" + bytes(1000) + end)
    end64 = struct.pack("<4sQ2H2I4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, 1, 1, 1 << 40, 0)
    locator = struct.pack("<4sIQI", b"PK\x06\x07", 0, 4, 1)
    end = struct.pack("<4s4HIIH", b"PK\x05\x06", 0, 0, 65535, 65535, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    with pytest.raises(InputError, match="list of members"):
        open_archive(b"PK\x03\x04" + end64 + locator + end)


# Anything else


def mutations(data: bytes, seed: int, count: int) -> Iterable[bytes]:
    chosen = random.Random(seed)  # noqa: S311
    interesting = (b"\xff" * 8, b"\0" * 8, b"../" * 3, b"/", b"7777777777", b"PK\x03\x04", b"2", b"\x80")
    for _ in range(count):
        mutated = bytearray(data)
        for _ in range(chosen.randint(1, 8)):
            at = chosen.randrange(len(mutated))
            if chosen.random() < 0.5:
                mutated[at] ^= 1 << chosen.randrange(8)
            else:
                piece = chosen.choice(interesting)
                mutated[at : at + len(piece)] = piece
        yield bytes(mutated[: chosen.randrange(len(mutated))] if chosen.random() < 0.2 else mutated)


@pytest.mark.parametrize("kind", ["tar", "tgz", "zip"])
def test_no_bytes_raise_anything_but_an_input_error(good: dict[str, bytes], kind: str) -> None:
    small = {name: data[:600] for name, data in good.items()}
    if kind == "zip":
        whole = make_zip(small)
    else:
        whole = pax((b"mtime", b"1.5")) + good_tar(small) + old_sparse(OTHER, [(0, 512)], 4096, b"x" * 512) + END
        whole = gzip.compress(whole, 1) if kind == "tgz" else whole
    read_count = 0
    for data in mutations(whole, 966, 1500):
        try:
            with open_archive(data, SMALL) as storage:
                for replica in discover(storage).replicas:
                    read_count += 1
                    for file in replica.files:
                        assert len(storage.read_small(file.path)) == file.size_bytes
        except (InputError, CodecError):
            continue
    assert read_count > 100


def test_python_reads_the_same_members(good: dict[str, bytes]) -> None:
    """The blocks of these tests are tar files to Python as well, so that the cases are what they say."""
    for case in ("symbolic link", "fifo", "duplicate", "parent in a pax name", "parent in a long name", "parent"):
        blocks, _ = TAR_CASES[case]
        with tarfile.open(fileobj=io.BytesIO(good_tar(good) + blocks + END)) as reader:
            assert len(reader.getmembers()) == len(good) + 1
    assert os.path.basename(SEGMENT) == segment_name(0)  # noqa: PTH119
    assert len(TAR_CASES) + len(BREAKING_CASES) + len(ZIP_CASES) >= 70
