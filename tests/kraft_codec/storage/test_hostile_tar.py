"""Tar files made to do harm: the good node dir in each is read whole, and nothing ever leaves the archive."""

from __future__ import annotations

import gzip
import io
import random
import tarfile
import unicodedata
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from kraft_codec.errors import CodecError, InputError, Reason
from kraft_codec.files.discovery import discover
from tests.builders.hostile_archives import (
    BLOCK,
    CONTENT,
    END,
    LOG,
    OTHER,
    QUORUM_STATE,
    SEGMENT,
    SMALL,
    assert_damages,
    assert_good,
    good_tar,
    header,
    long_name,
    make_zip,
    member,
    old_sparse,
    open_archive,
    pax,
)

DEEP = "/".join(["d"] * 500)
NFC = unicodedata.normalize("NFC", "node-ü")
NFD = unicodedata.normalize("NFD", "node-ü")

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
        old_sparse([(0, 512), (256, 512)], 4096, bytes(1024)),
        {OTHER: Reason.BAD_FILE},
    ),
    "sparse, backwards": (old_sparse([(2048, 512), (0, 512)], 4096, bytes(1024)), {OTHER: Reason.BAD_FILE}),
    "sparse, beyond its end": (old_sparse([(4096, 512)], 4096, bytes(512)), {OTHER: Reason.BAD_FILE}),
    "sparse, more than is stored": (old_sparse([(0, 1024)], 4096, bytes(512)), {OTHER: Reason.BAD_FILE}),
    "sparse, beyond all measure": (old_sparse([(0, 512)], 8**11 - 1, b"x" * 512), {}),
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
        old_sparse([(0, 512)], 4096, b"", more=True) + (bytes(504) + b"\1" + bytes(7)) * 50,
        Reason.BAD_FILE,
    ),
    "long name without a member": (long_name(b"x" * 200), Reason.BAD_FILE),
}


# Of two members of one name the first is used: these cases are only hostile after the good ones.
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


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tar", "tgz", "zip"])
def test_no_bytes_raise_anything_but_an_input_error(good: dict[str, bytes], kind: str) -> None:
    small = {name: data[:600] for name, data in good.items()}
    if kind == "zip":
        whole = make_zip(small)
    else:
        whole = pax((b"mtime", b"1.5")) + good_tar(small) + old_sparse([(0, 512)], 4096, b"x" * 512) + END
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
