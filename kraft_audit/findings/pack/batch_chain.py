"""The hash chain of committed batches, of the cluster and of each disk: a changed batch names the disk that holds it.

The log is cut into blocks of CHAIN_BLOCK_OFFSETS offsets. A block's value is the SHA-256 of its batches one after the
other, and a chain's value after a block is the SHA-256 of its value before (32 zero bytes first) and the block's. Both
are computed twice. The *identity* takes of each batch base offset, last offset, leader epoch and CRC as Kafka stores
them (8, 8, 4 and 4 bytes, big-endian): a lake has those for ever, so that a pack and a lake can be compared. The
*bytes* take the SHA-256 of the whole batch as it lies on the disk: no forged CRC hides there. Two logs that begin at
different offsets have different chains, and the same blocks.
"""

from __future__ import annotations

import hashlib
import struct
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kraft_audit.capture.plan import ClusterPlan, Identity, ReplicaPlan
from kraft_audit.capture.replica import OpenStorage
from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.captures import newest_watermark, replica_name
from kraft_audit.rules.columns.log_batches import canonical_log
from kraft_audit.tables.number_arrays import Mask
from kraft_audit.text.readable import nouns
from kraft_codec.errors import CodecError, InputError
from kraft_codec.file_names import FileKind, printable
from kraft_codec.storage.random_access import RandomAccess, join

CHAIN_BLOCK_OFFSETS: Final = 1_000
DISK_DIFFERENCES_MAX: Final = 10_000
READ_AT_ONCE: Final = 8 << 20
CHAINED_BATCH_BYTES_MAX: Final = 1 << 30
DIGEST_BYTES: Final = 32
START: Final = bytes(DIGEST_BYTES)
# baseOffset, batchLength, partitionLeaderEpoch, magic, crc, attributes, lastOffsetDelta
_HEADER: Final = struct.Struct(">qiibIhi")
_FRAME_BYTES: Final = 12
_LENGTH_MIN: Final = 49
_IDENTITY: Final = np.dtype([("base_offset", ">i8"), ("last_offset", ">i8"), ("leader_epoch", ">i4"), ("crc", ">u4")])

Offsets = npt.NDArray[np.int64]
OffsetSpan = tuple[int, int]
"""[from, to)"""
ChainRow = dict[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class CommittedBatches:
    """The committed batches of a canonical log as columns, ascending; each begins once."""

    base_offset: Offsets
    last_offset: Offsets
    leader_epoch: Offsets
    crc: Offsets

    def __len__(self) -> int:
        return len(self.base_offset)

    def identities(self, places: Offsets) -> bytes:
        """What stands for each of these batches in the identity blocks, one after the other."""
        packed = np.empty(len(places), _IDENTITY)
        for name in _IDENTITY.names or ():
            packed[name] = getattr(self, name)[places]
        return packed.tobytes()


@dataclass(slots=True, eq=False)
class DiskBatches:
    """What one disk holds of the committed batches: by their place, `held` and the SHA-256 of its bytes.

    `others` are batches that it holds instead, at the same offset: (leader epoch, CRC, SHA-256). Its log goes from
    `start` to `end`; what could not be read is `unread`.
    """

    replica: ReplicaPlan
    held: Mask
    digests: npt.NDArray[np.uint8]
    others: dict[int, tuple[int, int, bytes]] = field(default_factory=dict)
    start: int | None = None
    end: int = 0
    unread: str | None = None

    @property
    def named(self) -> ChainRow:
        replica = self.replica
        return {
            "node_id": replica.node_id,
            "directory_id": replica.directory_id,
            "root": printable(replica.root),
            "path": printable(replica.path),
        }


def committed_batches(history: ClusterHistory, proven_before: int = 0) -> CommittedBatches:
    """The batches of the canonical log that are proven committed; none where nothing is proven.

    `proven_before`: the end, exclusive, of what an earlier pack proves committed. That stays committed for ever, also
    where too few disks are captured now to prove it again.
    """
    log, mark = canonical_log(history), newest_watermark(history)
    is_committed = log.last_offset < max(proven_before, 0 if mark is None else mark["low"])
    return CommittedBatches(*(c[is_committed] for c in (log.base_offset, log.last_offset, log.leader_epoch, log.crc)))


def chain_of_cluster(
    history: ClusterHistory, plan: ClusterPlan, open_storage: OpenStorage, spans: Collection[OffsetSpan] = ()
) -> tuple[list[ChainRow], list[ChainRow]]:
    """(rows of the chains, rows of the differences): of the cluster first, then of the newest capture of each disk.

    `spans`: the blocks of an earlier pack. Where this pack has no block of the same offsets, a row in no chain says
    what that block would be now.
    """
    batches = committed_batches(history, max((to_offset for _, to_offset in spans), default=0))
    whole_cluster = {"node_id": None, "directory_id": None, "root": None, "path": None}
    rows = [{**whole_cluster, **row} for row in (*chain_rows(batches), *span_rows(batches, spans))]
    disks = [_disk_batches(replica, batches, open_storage) for replica in _newest(plan)]
    for disk in disks:
        rows += [{**disk.named, **row} for row in (*chain_rows(batches, disk), *span_rows(batches, spans, disk))]
        if disk.unread is not None:
            rows.append({**disk.named, "unread": disk.unread})
    return rows, list(differences(batches, disks))


class _Blocks:
    """The committed batches that the cluster or one disk holds, and the blocks that they can be cut into."""

    def __init__(self, batches: CommittedBatches, disk: DiskBatches | None) -> None:
        places = np.arange(len(batches)) if disk is None else np.flatnonzero(disk.held)
        self.base, self.last = batches.base_offset[places], batches.last_offset[places]
        self.is_gap = self.base[1:] != self.last[:-1] + 1
        self._identities = batches.identities(places)
        self._digests = None if disk is None else disk.digests[places].tobytes()

    def cuts(self) -> list[int]:
        """Where blocks begin: after a gap, and every CHAIN_BLOCK_OFFSETS offsets; then where the last one ends."""
        if not len(self.base):
            return []
        is_cut = self.is_gap | (np.diff(self.base // CHAIN_BLOCK_OFFSETS) != 0)
        return [0, *(np.flatnonzero(is_cut) + 1).tolist(), len(self.base)]

    def place_of(self, span: OffsetSpan) -> tuple[int, int] | None:
        """The batches that fill exactly these offsets, without a gap; None where there are none."""
        first, end = int(np.searchsorted(self.base, span[0])), int(np.searchsorted(self.last, span[1]))
        is_exact = first < end and self.base[first] == span[0] and self.last[end - 1] == span[1] - 1
        return (first, end) if is_exact and not self.is_gap[first : end - 1].any() else None

    def digests(self, first: int, end: int) -> tuple[bytes, bytes | None]:
        """(identity, bytes) of a block; no bytes for the cluster."""
        identity = hashlib.sha256(self._identities[first * _IDENTITY.itemsize : end * _IDENTITY.itemsize]).digest()
        if self._digests is None:
            return identity, None
        return identity, hashlib.sha256(self._digests[first * DIGEST_BYTES : end * DIGEST_BYTES]).digest()

    def row(self, first: int, end: int, identity: bytes, content: bytes | None) -> ChainRow:
        """A block that is in no chain."""
        return {
            "from_offset": int(self.base[first]),
            "to_offset": int(self.last[end - 1]) + 1,
            "batch_count": end - first,
            "chain_from_offset": None,
            "identity_block": identity.hex(),
            "identity_chain": None,
            "bytes_block": None if content is None else content.hex(),
            "bytes_chain": None,
        }


def chain_rows(batches: CommittedBatches, disk: DiskBatches | None = None) -> Iterator[ChainRow]:
    """The chains as rows, one for each block; a chain begins again after a gap. Without a disk the identities alone."""
    blocks = _Blocks(batches, disk)
    gaps = {0, *(np.flatnonzero(blocks.is_gap) + 1).tolist()}
    identity_chain = bytes_chain = START
    chain_from_offset = 0
    for first, end in pairwise(blocks.cuts()):
        if first in gaps:
            identity_chain = bytes_chain = START
            chain_from_offset = int(blocks.base[first])
        identity, content = blocks.digests(first, end)
        identity_chain = hashlib.sha256(identity_chain + identity).digest()
        row = blocks.row(first, end, identity, content)
        row |= {"chain_from_offset": chain_from_offset, "identity_chain": identity_chain.hex()}
        if content is not None:
            bytes_chain = hashlib.sha256(bytes_chain + content).digest()
            row["bytes_chain"] = bytes_chain.hex()
        yield row


def span_rows(
    batches: CommittedBatches, spans: Collection[OffsetSpan], disk: DiskBatches | None = None
) -> Iterator[ChainRow]:
    """A row for each of these spans that is held whole and is no block of the chain; it belongs to no chain."""
    blocks = _Blocks(batches, disk)
    chained = set(pairwise(blocks.cuts()))
    for span in sorted(spans):
        place = blocks.place_of(span)
        if place is not None and place not in chained:
            yield blocks.row(*place, *blocks.digests(*place))


def differences(batches: CommittedBatches, disks: Sequence[DiskBatches]) -> Iterator[ChainRow]:
    """Committed batches that disks hold with different bytes, or lack between others: a row for each deviating disk.

    `version` numbers the distinct bytes, that of most disks 0; null where the disk lacks the batch. Where no version is
    that of most disks, every disk has a row. No hash of one batch is shown: with few unknown bytes, such as those of a
    password, it would tell them.
    """
    differs = np.zeros(len(batches), bool)
    first = np.zeros((len(batches), DIGEST_BYTES), np.uint8)
    is_known = np.zeros(len(batches), bool)
    for disk in disks:
        new = disk.held & ~is_known
        first[new] = disk.digests[new]
        is_known |= disk.held
        differs |= disk.held & (disk.digests != first).any(axis=1)
        differs |= _spanned(batches, disk) & ~disk.held
    for place in np.flatnonzero(differs)[:DISK_DIFFERENCES_MAX].tolist():
        yield from _differences_at(batches, disks, place)


def _spanned(batches: CommittedBatches, disk: DiskBatches) -> Mask:
    if disk.start is None or disk.unread is not None:
        return np.zeros(len(batches), bool)
    spanned: Mask = (batches.base_offset >= disk.start) & (batches.last_offset < disk.end)
    return spanned


def _differences_at(batches: CommittedBatches, disks: Sequence[DiskBatches], place: int) -> Iterator[ChainRow]:
    versions: dict[int, bytes] = {}
    for number, disk in enumerate(disks):
        if disk.held[place]:
            versions[number] = disk.digests[place].tobytes()
        elif place in disk.others:
            versions[number] = disk.others[place][2]
    counted = Counter(versions.values()).most_common()
    is_tied = len(counted) > 1 and counted[0][1] == counted[1][1]
    numbers = {version: number for number, (version, _) in enumerate(counted)}
    of_most = [disks[number].replica.node_id for number, version in versions.items() if numbers[version] == 0]
    for number, disk in enumerate(disks):
        version = numbers[versions[number]] if number in versions else None
        if (version is None and not _spanned(batches, disk)[place]) or (version == 0 and not is_tied):
            continue
        epoch, crc = int(batches.leader_epoch[place]), int(batches.crc[place])
        disk_batch = (epoch, crc) if disk.held[place] else disk.others.get(place, (None, None))[:2]
        yield {
            **disk.named,
            "base_offset": int(batches.base_offset[place]),
            "last_offset": int(batches.last_offset[place]),
            "leader_epoch": epoch,
            "crc": crc,
            "found_leader_epoch": disk_batch[0],
            "found_crc": disk_batch[1],
            "version": version,
            "is_tied": is_tied,
            "majority_node_ids": [] if is_tied else of_most,
        }


def difference_text(row: Mapping[str, Any]) -> str:
    """One difference in a line."""
    where = replica_name(row)
    batch = f"the committed batch at offset {row['base_offset']}"
    if row["version"] is None:
        return f"{where} lacks {batch}"
    others = "" if row["is_tied"] else f" than on {nouns('node', row['majority_node_ids'])}"
    return f"{where}: {batch} has other bytes{others or ': the disks do not agree'}"


def _newest(plan: ClusterPlan) -> list[ReplicaPlan]:
    """The newest capture of each disk; what a lake put together is no disk."""
    newest: dict[Identity, ReplicaPlan] = {}
    for replica in sorted(plan.replicas, key=lambda replica: replica.sort_key):
        if not replica.is_archived:
            newest[replica.identity] = replica
    return [newest[identity] for identity in sorted(newest)]


def _disk_batches(replica: ReplicaPlan, batches: CommittedBatches, open_storage: OpenStorage) -> DiskBatches:
    disk = DiskBatches(replica, np.zeros(len(batches), bool), np.zeros((len(batches), DIGEST_BYTES), np.uint8))
    bases = batches.base_offset.tolist()
    keys = list(zip(batches.last_offset.tolist(), batches.leader_epoch.tolist(), batches.crc.tolist(), strict=True))
    held: list[int] = []
    digests: list[bytes] = []
    segments = sorted((file for file in replica.files if file.kind == FileKind.SEGMENT), key=lambda file: file.name)
    try:
        with open_storage(replica.root) as storage:
            for segment in segments:
                with storage.open(join(replica.path, segment.name), segment.size_bytes) as opened:
                    for base, last, epoch, crc, content in _framed(opened):
                        disk.start = base if disk.start is None else disk.start
                        disk.end = last + 1
                        place = bisect_left(bases, base)
                        if place == len(bases) or bases[place] != base:
                            continue
                        digest = hashlib.sha256(content).digest()
                        if keys[place] == (last, epoch, crc):
                            held.append(place)
                            digests.append(digest)
                        else:
                            disk.others[place] = (epoch, crc, digest)
    except (CodecError, InputError) as error:
        disk.unread = str(error)
    disk.held[held] = True
    disk.digests[held] = np.frombuffer(b"".join(digests), np.uint8).reshape(-1, DIGEST_BYTES)
    return disk


def _framed(file: RandomAccess) -> Iterator[tuple[int, int, int, int, memoryview]]:
    """Each whole batch of a segment by the frames that its headers give: (base, last, epoch, CRC, bytes).

    The CRC is not verified: bytes that it does not fit have another SHA-256.
    """
    position, window, begin = 0, memoryview(b""), 0
    while position + _HEADER.size <= file.size_bytes:
        if position + _HEADER.size > begin + len(window):
            window, begin = _window(file, position, READ_AT_ONCE), position
        base, length, epoch, _, crc, _, delta = _HEADER.unpack_from(window, position - begin)
        size = _FRAME_BYTES + length
        if length < _LENGTH_MIN or size > min(CHAINED_BATCH_BYTES_MAX, file.size_bytes - position):
            return
        if position + size > begin + len(window):
            window, begin = _window(file, position, max(size, READ_AT_ONCE)), position
        yield base, base + delta, epoch, crc, window[position - begin : position - begin + size]
        position += size


def _window(file: RandomAccess, position: int, size: int) -> memoryview:
    return memoryview(file.read_at(position, min(size, file.size_bytes - position)).tobytes())
