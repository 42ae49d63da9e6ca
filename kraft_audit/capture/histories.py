"""Which replicas of one cluster id hold one log, and which logs merely carry the same id.

A cluster.id is copied: images have a default, examples are pasted, formatting a disk again keeps it. A *history* is one
life of a metadata log, one chain of batches; replicas share it when they hold a common batch, or the same snapshot.
Replicas that share none still belong to one *quorum* where their voter sets name each other: somebody then began again,
or a leader wrote alone, and the rules judge them together. All others are split here, before anything is concluded from
them.

A batch's key (offsets, epoch, CRC, timestamp) stands for its bytes: it holds the time of the append in milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Final, TypeAlias

import numpy as np

from kraft_audit.capture.declared_rescue import read_rescue
from kraft_audit.capture.file_beginnings import read_beginning
from kraft_audit.capture.log_reader import replica_dir
from kraft_audit.capture.plan import ClusterPlan, HistoryOf, HistorySummary, ReplicaPlan, history_id
from kraft_audit.capture.scanner import CHUNK_BYTES_MAX, header_at
from kraft_audit.capture.silent_dirs import with_silent_dirs
from kraft_audit.text.readable import is_local
from kraft_codec.columns import index_batches
from kraft_codec.errors import CodecError
from kraft_codec.file_names import FileKind
from kraft_codec.files.discovery import FileEntry
from kraft_codec.files.logdir import read_leader_epochs, read_quorum_state, segments
from kraft_codec.records.batch import Batch, BatchHeader, read_batches
from kraft_codec.records.record import decode_records
from kraft_codec.schemas import ZERO_UUID, Dialect
from kraft_codec.storage.random_access import Storage
from kraft_codec.text.java_text import uuid_text

HEADERS_CHUNK_BYTES: Final = 4 << 20
BEGINNING_BYTES: Final = 1 << 20
"""How much of a log's beginning is searched for voter sets: they are written first."""
COPIED_IDS: Final = {
    "5L6g3nShT-eMCtK--X86sw": "the id that the official container image uses when none is set",
    "4L6g3nShT-eMCtK--X86sw": "the id of the apache/kafka image's examples",
    "MkU3OEVBNTcwNTJENDM2Qk": "the id of many published examples",
}
"""cluster.ids that many clusters have because none was chosen."""

BatchStamp: TypeAlias = tuple[int, int, int, int, int]
"""A batch: base offset, last offset, leader epoch, CRC, newest timestamp."""
SnapshotStamp: TypeAlias = tuple[int, int, int]
"""A snapshot: end offset, epoch, timestamp of the last record in it."""
VoterKey: TypeAlias = tuple[int, str | None]
"""A voter: node id and directory id."""
Address: TypeAlias = tuple[int, str, int]
"""Where a controller listens: node id, host, port."""


def split_histories(plan: ClusterPlan, storage_of: Callable[[str], Storage]) -> list[ClusterPlan]:
    """The plan of each history among a plan's replicas, the newest first; the only one in the usual case.

    Only the first batch of each segment is read where those join all replicas, which is the usual case. The newest
    history has the cluster id as its id. `storage_of` gives the open storage of a replica's root.
    """
    logs = [FoundLog(replica, storage_of(replica.root), plan.read_as) for replica in plan.replicas]
    groups = _joined([log for log in logs if log.first is not None])
    if len(groups) > 1:
        groups = [sound for group in groups if (sound := [log for log in group if log.batches])]
        groups = _merged(_merged(groups, _share_a_batch), _share_a_snapshot)
        groups = _merged(groups, partial(_is_one_quorum, is_declared=bool(plan.name)))
    if not plan.name:
        groups = with_silent_dirs(groups, [log for log in logs if log.first is None and log.is_of(plan.cluster_id)])
    if len(groups) < 2:
        return [replace(plan, aliases=_aliases(logs))]
    # A replica of another cluster stays with the first: the reading refuses it, and KQ010 reports it.
    groups = [own for group in groups if (own := [log for log in group if log.is_of(plan.cluster_id)])]
    if len(groups) < 2:
        return [replace(plan, aliases=_aliases(logs))]
    grouped = {id(log) for group in groups for log in group}
    for log in logs:
        if id(log) not in grouped:
            _home_of(log, groups).append(log)
    groups.sort(key=lambda group: (_summary(group).to_ms or 0, _summary(group).end_offset), reverse=True)
    summaries = tuple(_summary(group) for group in groups)
    split = []
    for number, members in enumerate(groups):
        mine = {id(log.plan) for log in members}
        replicas = tuple(replica for replica in plan.replicas if id(replica) in mine)
        damages = tuple(damage for damage in plan.damages if _is_of(damage.path, members) or number == 0)
        aliases = _aliases(members) or (f"directory {members[0].plan.directory_id or members[0].plan.path}",)
        id_ = history_id(plan.cluster_id, aliases) if number else plan.cluster_id
        history = replace(plan, replicas=replicas, damages=damages, history_id=id_, aliases=aliases)
        split.append(replace(history, history_of=HistoryOf(number, summaries)))
    return split


def _aliases(group: Sequence[FoundLog]) -> tuple[str, ...]:
    """What a history is known by: its batches at offset 0, else its first snapshot, else the first batch of all."""
    firsts = sorted(first for log in group if (first := log.first) is not None)
    stamps = [first for first in firsts if first[0] == 0]
    snapshots = sorted(snapshot for log in group for snapshot in log.snapshots)
    if not stamps and snapshots:
        return ("snapshot " + "-".join(map(str, snapshots[0])),)
    return tuple(dict.fromkeys("batch " + "-".join(map(str, stamp)) for stamp in stamps or firsts[:1]))


class FoundLog:
    """One replica's log as far as it must be known to find its history."""

    def __init__(self, plan: ReplicaPlan, storage: Storage, dialect: Dialect) -> None:
        self.plan = plan
        self._storage = storage
        self._dialect = dialect
        self._directory = replica_dir(plan)

    def is_of(self, cluster_id: str) -> bool:
        """Whether its meta.properties names this cluster, or none."""
        return self.plan.cluster_id in (None, "", cluster_id)

    @cached_property
    def _segments(self) -> list[FileEntry]:
        return [segment.file for segment in segments(self._storage, self._directory)[0]]

    @cached_property
    def _first_headers(self) -> dict[str, BatchHeader]:
        """The header of each segment's first batch, by path, in the order of the log."""
        headers = ((file.path, header_at(self._storage, file.path)) for file in self._segments)
        return {path: header for path, header in headers if header is not None}

    @cached_property
    def first_batches(self) -> frozenset[BatchStamp]:
        """The first batch of each segment whose CRC holds; of a huge one the CRC is not asked."""
        return frozenset(
            _key(header)
            for path, header in self._first_headers.items()
            if header.size_bytes > CHUNK_BYTES_MAX
            or read_beginning(self._storage, path, header.size_bytes).header is not None
        )

    @cached_property
    def batches(self) -> frozenset[BatchStamp]:
        """All batches whose CRC holds."""
        return frozenset(key for file in self._segments for key in self._keys(file))

    @cached_property
    def from_ms(self) -> int | None:
        first = next(iter(self._first_headers.values()), None)
        return None if first is None else first.base_timestamp_ms

    @property
    def first(self) -> BatchStamp | None:
        """The log's first batch."""
        first = next(iter(self._first_headers.values()), None)
        return None if first is None else _key(first)

    @cached_property
    def snapshots(self) -> list[SnapshotStamp]:
        """Its snapshots, those of formatting left out."""
        stamps = []
        for file in self._directory.of_kind(FileKind.SNAPSHOT):
            header = next(iter(self._read(file)), None)
            if header is None or not file.base_offset or file.epoch is None:
                continue
            for fields in _fields(header[1], header[0], self._dialect):
                if "lastContainedLogTimestamp" in fields:
                    stamps.append((file.base_offset, file.epoch, fields["lastContainedLogTimestamp"]))
        return stamps

    @property
    def last(self) -> BatchStamp | None:
        return max(self.batches, default=None)

    @cached_property
    def rescue(self) -> str | None:
        """What its rescue.json declares, where it has one."""
        for file in self.plan.files:
            if file.kind == FileKind.RESCUE_DECLARATION:
                declared, _ = read_rescue(self._storage, self.plan, file)
                return None if declared is None else declared.to_json()
        return None

    @cached_property
    def voters(self) -> frozenset[VoterKey]:
        """Every voter that its voter sets name: Voters records, also of snapshots, quorum-state of kraft.version 0."""
        named: set[VoterKey] = set()
        state, _ = read_quorum_state(self._storage, self._directory)
        if state is not None:
            named |= {(voter_id, None) for voter_id in state.current_voters or ()}
        snapshots = self._directory.of_kind(FileKind.SNAPSHOT)
        for header, buffer in [*self._beginning, *(pair for file in snapshots for pair in self._read(file))]:
            if header.is_control:
                named |= _voters_of(buffer, header, self._dialect)
        return frozenset(named)

    @cached_property
    def has_testimony(self) -> bool:
        """Whether a dir without a batch shows all the same that a log was there: it names epochs, or has snapshots."""
        return bool(self.snapshots) or bool(read_leader_epochs(self._storage, self._directory))

    @cached_property
    def configured(self) -> frozenset[int]:
        """The voters that its quorum-state names at kraft.version 0."""
        state, _ = read_quorum_state(self._storage, self._directory)
        return frozenset() if state is None else frozenset(state.current_voters or ())

    @property
    def is_started(self) -> bool:
        """Whether its node ever ran with it: formatting leaves no quorum-state."""
        return bool(self._directory.of_kind(FileKind.QUORUM_STATE))

    @cached_property
    def addresses(self) -> frozenset[Address]:
        """Where its controllers listen, as they registered themselves or stand among the voters; loopback left out."""
        newest = sorted(self._directory.of_kind(FileKind.SNAPSHOT), key=lambda file: (file.base_offset, file.epoch))[
            -1:
        ]
        addresses: set[Address] = set()
        for header, buffer in [*self._beginning, *(pair for file in newest for pair in self._read(file))]:
            for fields in _fields(buffer, header, self._dialect):
                if "controllerId" in fields:
                    addresses |= _addresses(fields["controllerId"], fields.get("endPoints"))
                for voter in fields.get("voters") or ():
                    addresses |= _addresses(voter["voterId"], voter.get("endpoints"))
        return frozenset(addresses)

    @cached_property
    def _beginning(self) -> list[tuple[BatchHeader, bytes]]:
        return [pair for file in self._segments[:1] for pair in self._read(file)]

    def _read(self, file: FileEntry) -> Iterator[tuple[BatchHeader, bytes]]:
        """The sound batches at a file's beginning, each with the buffer that its position counts in."""
        try:
            with self._storage.open(file.path) as opened:
                buffer = bytes(opened.read_at(0, min(BEGINNING_BYTES, opened.size_bytes)).data)
        except CodecError:
            return
        for batch in read_batches(buffer):
            if isinstance(batch, Batch) and batch.damage is None:
                yield batch.header, buffer

    def _keys(self, file: FileEntry) -> Iterator[BatchStamp]:
        position = 0
        try:
            with self._storage.open(file.path) as opened:
                while position < opened.size_bytes:
                    length = min(HEADERS_CHUNK_BYTES, opened.size_bytes - position)
                    index = index_batches(opened.read_at(position, length).data, is_last=False)
                    sound = np.flatnonzero(index.status == 0)
                    columns = (index.base_offset, index.last_offset, index.leader_epoch, index.crc)
                    yield from zip(
                        *(column[sound].tolist() for column in (*columns, index.max_timestamp_ms)), strict=True
                    )
                    if index.consumed_bytes == 0:
                        return
                    position += index.consumed_bytes
        except CodecError:
            return


def _key(header: BatchHeader) -> BatchStamp:
    return (header.base_offset, header.last_offset, header.leader_epoch, header.crc, header.max_timestamp_ms)


def _voters_of(buffer: bytes, header: BatchHeader, dialect: Dialect) -> set[VoterKey]:
    """The voters that the control records of a batch name: Voters, and LeaderChange of a static quorum."""
    named: set[VoterKey] = set()
    for fields in _fields(buffer, header, dialect):
        for voter in fields.get("voters") or ():
            directory_id = voter.get("voterDirectoryId", ZERO_UUID)
            named.add((voter["voterId"], None if directory_id == ZERO_UUID else uuid_text(directory_id)))
    return named


def _addresses(node_id: int, endpoints: Sequence[Mapping[str, Any]] | None) -> set[Address]:
    """The addresses by which other machines reach a node: those of the machine itself are everybody's."""
    return {
        (node_id, point["host"], point["port"])
        for point in endpoints or ()
        if point["host"] and not is_local(point["host"])
    }


def _fields(buffer: bytes, header: BatchHeader, dialect: Dialect) -> list[Mapping[str, Any]]:
    """The fields of a batch's records; none where it cannot be decoded."""
    try:
        return [record.fields or {} for record in decode_records(buffer, header, dialect)]
    except CodecError:
        return []


def named_voters(plan: ReplicaPlan, storage: Storage, dialect: Dialect) -> frozenset[int]:
    """The node ids that the voter sets of a replica name."""
    return frozenset(voter_id for voter_id, _ in FoundLog(plan, storage, dialect).voters)


def history_stamps(
    plan: ClusterPlan, storage_of: Callable[[str], Storage]
) -> tuple[list[BatchStamp], list[SnapshotStamp]]:
    """The first batches of a history's segments, and its snapshots: what may join it to batches that are known."""
    logs = [FoundLog(replica, storage_of(replica.root), plan.read_as) for replica in plan.replicas]
    batches = {stamp for log in logs for stamp in log.first_batches}
    return sorted(batches), sorted({snapshot for log in logs for snapshot in log.snapshots})


def _joined(logs: Sequence[FoundLog]) -> list[list[FoundLog]]:
    """The logs grouped by common first batches of segments, directly or through others."""
    groups: list[list[FoundLog]] = []
    keys: list[set[BatchStamp]] = []
    for log in logs:
        own = set(log.first_batches)
        shared = [number for number, known in enumerate(keys) if known & own]
        members = [member for number in shared for member in groups[number]]
        for number in reversed(shared):
            own |= keys.pop(number)
            del groups[number]
        groups.append([*members, log])
        keys.append(own)
    return groups


def _share_a_batch(first: Sequence[FoundLog], second: Sequence[FoundLog]) -> bool:
    """Whether a log of one group holds the batch that a segment of the other begins with.

    Equal batches mean equal logs before them, so that the later beginning of two logs stands in the other one. Where
    damage or other bytes hide it, most of the batches must be common: idle leaders may write equal NoOps at one offset.
    """
    pairs = [(mine, theirs) for mine in first for theirs in second]
    if any(mine.first_batches & theirs.batches or theirs.first_batches & mine.batches for mine, theirs in pairs):
        return True
    return any(
        2 * len(mine.batches & theirs.batches) > min(len(mine.batches), len(theirs.batches)) for mine, theirs in pairs
    )


def _share_a_snapshot(first: Sequence[FoundLog], second: Sequence[FoundLog]) -> bool:
    """Whether both hold one snapshot: its last record is in both logs, and one may end where the other begins."""
    snapshots = [{snapshot for log in group for snapshot in log.snapshots} for group in (first, second)]
    return not snapshots[0].isdisjoint(snapshots[1])


def _merged(
    groups: list[list[FoundLog]], belong: Callable[[list[FoundLog], list[FoundLog]], bool]
) -> list[list[FoundLog]]:
    merged: list[list[FoundLog]] = []
    for group in groups:
        same = [known for known in merged if belong(known, group)]
        merged = [known for known in merged if all(known is not each for each in same)]
        merged.append([log for known in same for log in known] + group)
    return merged


def _is_one_quorum(first: Sequence[FoundLog], second: Sequence[FoundLog], *, is_declared: bool) -> bool:
    """Whether two groups without a common batch are copies of one quorum's logs all the same.

    They are where a voter's id and directory id stand in the voter sets or the node dirs of both. By ids alone
    (kraft.version 0) they are where the voter sets of one group name nodes of the other, these have other ids, and were
    meant to be one: `is_declared` so by one entry of fleet.yaml, lie side by side, or know a controller by one address.
    Copies of a node dir without a directory id are one log where the later begins after the end of the earlier: its
    segments were deleted.
    """
    shared = {log.plan.identity for log in first} & {log.plan.identity for log in second}
    if any(directory_id for _, directory_id, _ in shared) or (shared and _are_apart(first, second)):
        return True
    keys = [{key for log in group for key in log.voters} for group in (first, second)]
    if any(directory_id is not None for _, directory_id in keys[0] & keys[1]):
        return True
    named = [{voter_id for voter_id, _ in group} for group in keys]
    for place in {log.plan.folder for log in first} & {log.plan.folder for log in second}:
        ids = [{log.plan.node_id for log in group if log.plan.folder == place} for group in (first, second)]
        if _name_each_other(ids, named):
            return True
    ids = [{log.plan.node_id for log in group} for group in (first, second)]
    return _name_each_other(ids, named) and (is_declared or _have_an_address_in_common(first, second))


def _name_each_other(ids: Sequence[Set[int | None]], named: Sequence[Set[int]]) -> bool:
    """Whether two groups have no node id in common, and the voter sets of one name nodes of the other."""
    return not ids[0] & ids[1] and bool(ids[0] & named[1] or ids[1] & named[0])


def _have_an_address_in_common(first: Sequence[FoundLog], second: Sequence[FoundLog]) -> bool:
    return (
        not frozenset()
        .union(*(log.addresses for log in first))
        .isdisjoint(address for log in second for address in log.addresses)
    )


def _are_apart(first: Sequence[FoundLog], second: Sequence[FoundLog]) -> bool:
    """Whether no offset stands in both groups."""
    spans = [
        (min(min(log.batches)[0] for log in group), max(max(log.batches)[1] for log in group))
        for group in (first, second)
        if all(log.batches for log in group)
    ]
    return len(spans) < 2 or spans[0][1] < spans[1][0] or spans[1][1] < spans[0][0]


def _home_of(log: FoundLog, groups: Sequence[list[FoundLog]]) -> list[FoundLog]:
    """The group of a log without batches: that of the same replica, of those beside it, else the first."""
    tests: tuple[Callable[[FoundLog], bool], ...] = (
        lambda known: known.plan.identity == log.plan.identity,
        lambda known: known.plan.folder == log.plan.folder and known.plan.node_id != log.plan.node_id,
        lambda known: known.plan.folder == log.plan.folder,
    )
    for test in tests:
        for group in groups:
            if any(test(known) for known in group):
                return group
    return groups[0]


def _summary(group: Sequence[FoundLog]) -> HistorySummary:
    begun = [log.from_ms for log in group if log.from_ms is not None and log.from_ms >= 0]
    replicas = tuple(replace(log.plan, files=(), gone_files=(), configuration="") for log in group)
    ends = [last for log in group if (last := log.last) is not None]
    to_ms = max((timestamp_ms for *_, timestamp_ms in ends), default=-1)
    if not ends:
        to_ms = max((timestamp_ms for log in group for *_, timestamp_ms in log.snapshots), default=-1)
    end_offset = max((last_offset + 1 for _, last_offset, *_ in ends), default=0)
    rescue = next((declared for log in group if (declared := log.rescue) is not None), "")
    return HistorySummary(replicas, min(begun, default=None), to_ms if to_ms >= 0 else None, end_offset, rescue)


def _is_of(path: str, group: Sequence[FoundLog]) -> bool:
    return any(f"{path}/".startswith(f"{log.plan.path}/") for log in group)
