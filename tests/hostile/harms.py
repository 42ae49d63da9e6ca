"""What the bytes of a log dir may do to who reads them: a class of harm each (docs/reliability.md), done to a good one.

Each takes a node dir whose log is Kafka's, and leaves in it, or beside it, what a reader must live with.
"""

from __future__ import annotations

import gzip
import io
import os
import random
import shutil
import struct
import tarfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Final

from kraft_codec.file_names import segment_name, snapshot_name
from kraft_codec.records.batch import Batch, read_batches, write_batch
from kraft_codec.records.compression import Codec
from kraft_codec.records.record import write_metadata_value
from tests.builders.damaged_batches import with_right_crcs

LOG: Final = f"__cluster_metadata-0/{segment_name(0)}"
HEADER_BYTES: Final = 61
COUNT_AT: Final = 57
CODEC_AT: Final = 22
MIB: Final = 1 << 20
BOMB_MIB: Final = 400
FILES: Final = 10_000
MOST: Final = (1 << 31) - 1
Harm = Callable[[Path], AbstractContextManager[None] | None]


def flipped(node: Path) -> None:
    """C1: one bit of each batch."""
    log = bytearray((node / LOG).read_bytes())
    for number, start in enumerate(_starts(node)):
        log[start + COUNT_AT - number % 30] ^= 1 << number % 8
    (node / LOG).write_bytes(log)


def cut(node: Path) -> None:
    """C2: in the middle of the last batch."""
    os.truncate(node / LOG, _starts(node)[-1] + HEADER_BYTES + 10)


def zeros(node: Path) -> None:
    """C3: a preallocated gigabyte after the log, all of it blocks that are read."""
    os.truncate(node / LOG, (node / LOG).stat().st_size + (1 << 30))


def wrong_bodies(node: Path) -> None:
    """C4: bytes of every batch changed under a CRC that is right again."""
    chance = random.Random(4)  # noqa: S311  # the same bytes each time
    log = bytearray((node / LOG).read_bytes())
    starts = [*_starts(node), len(log)]
    for start, end in pairwise(starts):
        for _ in range(3):
            log[chance.randrange(start + HEADER_BYTES, end)] = chance.choice((0, 0x7F, 0x80, 0xFF))
    (node / LOG).write_bytes(with_right_crcs(log))


def overlong(node: Path) -> None:
    """C5: varints that never end, at every place of a record where one may stand."""
    record = write_metadata_value("PartitionRecord", 0, {"replicas": [1, 2]})
    _append(node, *(record[:place] + b"\xff" * 10 + record[place:] for place in range(len(record))))


def claims(node: Path) -> None:
    """C6: batches that claim 2^31 - 1 records, lists and texts that claim as many, all under a right CRC."""
    record = write_metadata_value("PartitionRecord", 0, {"replicas": [1, 2]})
    huge = (b"\xff\xff\xff\xff\x07", b"\x80\x80\x80\x80\x08", b"\xfe\xff\xff\xff\x0f")
    _append(node, *(record[:place] + claim + record[place:] for place in range(3, len(record)) for claim in huge))
    log = bytearray((node / LOG).read_bytes())
    for start in _starts(node)[::2]:
        struct.pack_into(">i", log, start + COUNT_AT, MOST)
    (node / LOG).write_bytes(with_right_crcs(log))


def unknown(node: Path) -> None:
    """C7: each api key in unknown versions, and frames of other versions."""
    keys = [bytes([1, key]) if key < 128 else bytes([1, key & 0x7F | 0x80, 1]) for key in range(256)]
    _append(node, *(key + bytes([version]) + b"\0" * 9 for key in keys for version in (0, 8, 127)), b"\x02\x14\x00\x00")


def shuffled(node: Path) -> None:
    """C8: segments that overlap, are missing, misnamed, doubled and empty."""
    log, starts = (node / LOG).read_bytes(), _starts(node)
    for name, (start, end) in enumerate(((3, 9), (0, 5), (1, 2), (4, -1), (0, -1)), 1):
        (node / LOG).with_name(segment_name(7 * name)).write_bytes(log[starts[start] : starts[end]])
    (node / LOG).with_name(segment_name(10**18)).touch()


def snapshots(node: Path) -> None:
    """C9: hundreds without a header or a footer, unfinished, deleted, of an epoch to come."""
    log = (node / LOG).read_bytes()
    for number in range(300):
        name = snapshot_name(number, number % 5)
        content = log[: random.Random(number).randrange(len(log))]  # noqa: S311
        (node / LOG).with_name(name + ("", ".part", ".deleted")[number % 3]).write_bytes(content)


def parted(node: Path) -> None:
    """C10: replicas that hold other bytes at the same offsets, of thousands of epochs."""
    value = write_metadata_value("NoOpRecord", 0, {})
    for number in (5, 6, 7):
        second = node.with_name(f"node-{number}")
        shutil.copytree(node, second)
        _as_node(second, number)
        batches = [
            write_batch(base_offset=at, leader_epoch=1 + at // number, timestamp_ms=at, records=[(None, value)])
            for at in range(2_000)
        ]
        (second / LOG).write_bytes(b"".join(batches))


def foreign(node: Path) -> None:
    """C11: another node dir in this one's clothes, of another cluster."""
    second = node.with_name("node-8")
    shutil.copytree(node, second)
    properties = second / "meta.properties"
    lines = properties.read_text().splitlines()
    properties.write_text("\n".join("cluster.id=" + "O" * 22 if "cluster.id" in line else line for line in lines))


def many_files(node: Path) -> None:
    """C12: a terabyte of nothing after the log, thousands of files, links in a loop, names that are none."""
    os.truncate(node / LOG, 1 << 40)
    folder = (node / LOG).parent
    for number in range(FILES):
        os.close(os.open(folder / segment_name(10**9 + number), os.O_CREAT | os.O_WRONLY, 0o644))
    (folder / segment_name(5)).symlink_to(segment_name(5))
    (node.parent / "loop").symlink_to(node.parent)
    os.mkfifo(folder / segment_name(6))
    (node.parent / os.fsdecode(b"two\nlines-\xfc")).mkdir()


@contextmanager
def restless(node: Path) -> Iterator[None]:
    """C13: as long as it is read, the log grows, is cut, and vanishes for a moment."""
    done = threading.Event()
    log, away = node / LOG, (node / LOG).with_suffix(".deleted")
    content = log.read_bytes()

    def disturb() -> None:
        chance = random.Random(13)  # noqa: S311
        while not done.wait(0.001):
            match chance.randrange(3):
                case 0:
                    os.truncate(log, chance.randrange(len(content)))
                case 1:
                    log.write_bytes(content + content[: chance.randrange(len(content))])
                case 2:
                    log.rename(away)
                    away.rename(log)

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def bombs(node: Path) -> None:
    """C14: batches of each codec that become hundreds of megabytes, and an unknown codec."""
    log = (node / LOG).read_bytes()
    packed = [_bomb(codec) for codec in Codec if codec is not Codec.NONE]
    odd = bytearray(packed[0])
    odd[CODEC_AT] = 7
    (node / LOG).write_bytes(with_right_crcs(log + b"".join([*packed, bytes(odd)])))


def archive_bomb(node: Path) -> None:
    """C14: an archive of zeros, a thousand times what it takes."""
    whole = io.BytesIO()
    with gzip.GzipFile(fileobj=whole, mode="wb") as packed, tarfile.open(fileobj=packed, mode="w|") as archive:
        info = tarfile.TarInfo(f"node-9/{LOG}")
        info.size = BOMB_MIB * MIB
        archive.addfile(info, _Zeros(info.size))
    (node.parent / "bomb.tgz").write_bytes(whole.getvalue())


HARMS: Final[Mapping[str, Harm]] = {
    zero.__name__: zero
    for zero in (
        flipped, cut, zeros, wrong_bodies, overlong, claims, unknown, shuffled, snapshots, parted, foreign, many_files,
        restless, bombs, archive_bomb,
    )
}  # fmt: skip


class _Zeros(io.RawIOBase):
    def __init__(self, size: int) -> None:
        self._left = size

    def read(self, size: int = -1) -> bytes:
        count = min(self._left, size if size >= 0 else self._left)
        self._left -= count
        return bytes(count)


def _starts(node: Path) -> list[int]:
    """Where the batches of the log stand."""
    log = (node / LOG).read_bytes()
    return [found.header.position for found in read_batches(log) if isinstance(found, Batch)]


def _append(node: Path, *values: bytes) -> None:
    """A batch a value, after the log."""
    log = (node / LOG).read_bytes()
    (*_, last) = (found.header for found in read_batches(log) if isinstance(found, Batch))
    for offset, value in enumerate(values, last.last_offset + 1):
        log += write_batch(
            base_offset=offset, leader_epoch=last.leader_epoch, timestamp_ms=last.max_timestamp_ms,
            records=[(None, value)],
        )  # fmt: skip
    (node / LOG).write_bytes(log)


def _as_node(node: Path, number: int) -> None:
    properties = node / "meta.properties"
    remaining = [
        line for line in properties.read_text().splitlines() if not line.startswith(("node.id", "directory.id"))
    ]
    properties.write_text("\n".join([*remaining, f"node.id={number}", f"directory.id={'A' * 20}{number}A"]))


def _bomb(codec: Codec) -> bytes:
    """A batch of one record of zeros, in the codec's own ratio."""
    return write_batch(
        base_offset=10**6 + codec, leader_epoch=9, timestamp_ms=5, records=[(None, bytes(BOMB_MIB * MIB))], codec=codec
    )
