"""Archives made to do harm, block by block, so that they may say what no writer would; and what must hold of each."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable

from kraft_codec.errors import Reason
from kraft_codec.file_names import segment_name
from kraft_codec.files.discovery import Discovery, discover
from kraft_codec.files.logdir import segments
from kraft_codec.storage.archives import ArchiveStorage
from kraft_codec.storage.random_access import Limits
from tests.builders.node_dirs import heads

LOG = "node-1/__cluster_metadata-0"
SEGMENT = f"{LOG}/{segment_name(0)}"
OTHER = f"node-2/__cluster_metadata-0/{segment_name(0)}"
QUORUM_STATE = "__cluster_metadata-0/quorum-state"
BLOCK = 512
CONTENT = b"hostile content"


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


def old_sparse(runs: Iterable[tuple[int, int]], real_size: int, data: bytes, *, more: bool = False) -> bytes:
    extra = {386 + 24 * number: b"%011o\0%011o\0" % run for number, run in enumerate(runs)}
    extra |= {482: b"\1" if more else b"\0", 483: b"%011o\0" % real_size}
    return member(OTHER, data, flag=b"S", magic=b"ustar  \0", extra=extra)


END = bytes(2 * BLOCK)

SMALL = Limits(expansion_free_bytes=4 << 20, index_skip_bytes=16 << 20, spool_bytes=16 << 20)


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
    assert heads(storage, replica).damages == ()
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


def make_zip(good: dict[str, bytes], *others: tuple[zipfile.ZipInfo | str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as writer:
        for name, data in good.items():
            writer.writestr(name, data)
        for info, data in others:
            writer.writestr(info, data)
    return out.getvalue()
