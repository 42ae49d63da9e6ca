"""Log dirs that are no longer there, put together again from the tables `captures`, `batches` and `archive`.

Each replica that was captured is a node dir again: what its disk said of itself, the batches that it held then, the
snapshots that are kept. It begins where the archive does, not where Kafka had cleaned the log by then. What reads log
dirs reads these; only snapshots that nothing needs, text files that tell nothing of the log and damage are missing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kraft_audit.archive.runs import (
    ArchivedBatches,
    ArchivedFile,
    ArchivedKey,
    ArchivedRuns,
    ArchiveTables,
    InMemoryFile,
    planned_length,
    snapshot_sources,
)
from kraft_audit.capture.bronze_rows import LOG_SOURCE
from kraft_audit.capture.plan import ClusterPlan, FilePlan, Identity, ReplicaPlan, identity_of
from kraft_audit.capture.presence import PRESENT
from kraft_audit.tables.bronze import CAPTURES
from kraft_audit.tables.contract import build_rows, with_column
from kraft_audit.tables.number_arrays import Mask, Rows
from kraft_codec.columns.buffers import Bytes
from kraft_codec.errors import CodecError, InputError, Reason
from kraft_codec.file_names import METADATA_LOG_DIR, FileKind, segment_name
from kraft_codec.files.properties import format_meta_properties, meta_properties
from kraft_codec.files.state_files import QuorumState, format_quorum_state
from kraft_codec.records.redaction import Redactor
from kraft_codec.schemas import Dialect
from kraft_codec.storage.random_access import DirEntry, EntryKind, Limits, Listing, RandomAccess, Storage, join

CAPTURES_BYTES: Final = 1 << 30
"""Up to so many bytes of log all captures are read again; beyond, those that a later capture contains are left out."""
Stamp = tuple[int, int, int]
Round = tuple[int, int, str]
FindWhole = Callable[[Collection[ArchivedKey]], Mapping[ArchivedKey, Bytes]]
"""Gives those of some batches whose bytes a disk still has."""
CaptureKey = tuple[int, int, int, str, str]
"""A capture of one replica: plan, time, number, root and path."""
SAID_COLUMNS: Final = (
    *("meta_version", "meta_cluster_id", "further_directory_ids", "configuration", "rescue", "doubt"),
    *("data_version", "leader_id", "leader_epoch", "voted_id", "voted_directory_id", "current_voters"),
    *("leader_epoch_checkpoint", "index_trimmed", "clean_shutdown"),
)
"""What a disk says beside its log, which it may say otherwise later."""
END_COLUMNS: Final = (
    *("log_end_offset", "reachable_end_offset", "held_end_offset", "snapshot_end_offset"),
    *("producer_state_offset", "deleted_snapshot_end_offset"),
)
"""How far a disk reached, as its files say: later ones say at least as much, unless something was lost."""
_ROUND_COLUMNS: Final = ("plan", "capture_number", "capture")


class ArchivedRedactor(Redactor):
    """Leaves secrets as the archive holds them: they are fingerprints already."""

    def overwrite(
        self, buffer: bytearray | memoryview, position: int, length_bytes: int, *, is_text: bool, subject: str
    ) -> None:
        """Nothing is left to hide."""


class ArchivedStorage(Storage):
    """The files of one cluster's archive by path."""

    def __init__(self, location: str, files: Mapping[str, RandomAccess], mediums: Mapping[str, str]) -> None:
        super().__init__(location, is_immutable=True, limits=Limits())
        self._files = files
        self._mediums = mediums

    def list_dir(self, path: str) -> Listing:
        prefix = f"{path}/" if path else ""
        entry_of: dict[str, DirEntry] = {}
        for name, file in self._files.items():
            if name.startswith(prefix):
                first, slash, _ = name[len(prefix) :].partition("/")
                kind = EntryKind.DIRECTORY if slash else EntryKind.FILE
                sizes = (0, 0) if slash else (file.size_bytes, file.mtime_ms)
                entry_of[first] = DirEntry(first, kind, *sizes)
        return Listing(tuple(entry_of[name] for name in sorted(entry_of)))

    def open(self, path: str, planned_size_bytes: int | None = None) -> RandomAccess:
        if path not in self._files:
            raise CodecError(Reason.CHANGED_DURING_READ, 0, "the archive has no such file")
        return planned_length(self._files[path], planned_size_bytes)

    def changed_offsets(self, path: str) -> frozenset[int]:
        """The base offsets of a file's batches that are not what the disk held: secrets are fingerprints."""
        file = self._files.get(path)
        return file.changed_offsets if isinstance(file, ArchivedFile) else frozenset()

    def close(self) -> None:
        """The lake is not held open."""

    def medium(self, path: str) -> str:
        return next(
            (medium for folder, medium in self._mediums.items() if f"{path}/".startswith(f"{folder}/")), "directory"
        )


@dataclass(frozen=True, slots=True)
class ArchivedCluster:
    """A cluster as it can be read again.

    `captures` are the rows of `captures` of the replicas in the plan, `rounds` the capture numbers in this plan of what
    was captured by (plan, capture number, capture). `places` says by folder which capture a replica of the plan is.
    """

    plan: ClusterPlan
    storage: ArchivedStorage
    captures: pa.RecordBatch
    rounds: Mapping[Round, int]
    places: Mapping[str, CaptureKey]

    def renumbered(self, rows: pa.Table) -> pa.Table:
        """Rows of any bronze table with the capture numbers of this plan."""
        keys = zip(*(rows.column(name).to_pylist() for name in _ROUND_COLUMNS), strict=True)
        numbers = pa.array([self.rounds.get(key, 0) for key in keys], pa.int32())
        return with_column(rows, "capture_number", numbers)

    def open_storage(self, root: str) -> AbstractContextManager[Storage]:
        """The storage, whichever root it is asked for."""
        return nullcontext(self.storage)


@dataclass(frozen=True, slots=True)
class ArchivedCapture:
    """A row of `captures`, in the order in which plans read them."""

    row: Mapping[str, Any]
    stamp: Stamp
    identity: Identity


def archived_cluster(
    tables: ArchiveTables,
    *,
    location: str,
    cluster_id: str,
    name: str = "",
    number: int = 0,
    dialect: str = Dialect.KIP853,
    defaults: Sequence[tuple[str, str]] = (),
    captures_bytes: int = CAPTURES_BYTES,
    only_telling: bool = False,
    find_whole: FindWhole | None = None,
) -> ArchivedCluster:
    """Puts one cluster together. Raises InputError where the lake has nothing of it, or not what was written.

    `find_whole` is asked for the batches that are not archived byte for byte. With `only_telling` a round of captures
    is left out in which no disk says anything that its next capture does not say, however small the cluster is.
    """
    runs = ArchivedRuns(tables)
    captures = accepted_captures(tables.captures())
    if not captures or LOG_SOURCE not in runs.sources:
        raise InputError(location, f"the archive holds nothing of cluster {cluster_id!r}")
    batches = runs.batches(LOG_SOURCE).in_order()
    if find_whole is not None and batches.is_changed.any():
        batches = runs.with_whole(batches, find_whole([key for _, key in batches.changed_keys()]))
    holdings = _Holdings(tables.holdings(), batches)
    files: dict[str, RandomAccess] = {}
    mediums: dict[str, str] = {}
    replicas = []
    rows = []
    places: dict[str, CaptureKey] = {}
    wanted = _telling(captures, holdings) if only_telling else _chosen(captures, holdings, captures_bytes)
    chosen = _rounds(captures, wanted)
    for round_number, members in enumerate(chosen):
        for place, capture in enumerate(members):
            folder = f"{round_number:06d}/{place:04d}"
            replica, own = _replica(location, folder, round_number, capture, holdings, runs, batches, dialect)
            replicas.append(replica)
            files |= own
            mediums[folder] = capture.row["medium"]
            places[folder] = capture_key(capture.row)
            rows.append({**capture.row, "capture_number": round_number})
    plan = ClusterPlan(
        number,
        name,
        cluster_id,
        dialect,
        tuple(sorted(replicas, key=lambda replica: replica.sort_key)),
        tuple(sorted(defaults)),
        captured_at_ms=max(capture.row["captured_at_ms"] for capture in captures),
    )
    storage = ArchivedStorage(location, files, mediums)
    return ArchivedCluster(plan, storage, build_rows(CAPTURES, rows), _round_numbers(captures, chosen), places)


def accepted_captures(table: pa.Table) -> list[ArchivedCapture]:
    """The captures that were used, in the order in which they were read."""
    rows = [row for row in table.to_pylist() if row["accepted"]]
    captures = [ArchivedCapture(row, _stamp(row), identity_of(row)) for row in rows]
    return sorted(captures, key=lambda capture: (capture.stamp, str(capture.identity)))


def capture_key(row: Mapping[str, Any]) -> CaptureKey:
    """What a capture of one replica is known by, in any bronze table."""
    return (*_stamp(row), row["root"], row["path"])


def _stamp(row: Mapping[str, Any]) -> Stamp:
    return row["plan"], row["captured_at_ms"], row["capture_number"]


class _Holdings:
    """Who held which batch, and which snapshot, when."""

    def __init__(self, table: pa.Table, batches: ArchivedBatches) -> None:
        self.snapshots: dict[Identity, list[tuple[Stamp, str, str]]] = defaultdict(list)
        self._size_bytes = batches.size_bytes
        is_log = np.array([source == LOG_SOURCE for source in table.column("source").to_pylist()], bool)
        copies = table.filter(pa.array(~is_log)).to_pylist()
        for stamp, identity, source, file in sorted(
            {(_stamp(row), identity_of(row), row["source"], row["file_name"]) for row in copies}, key=str
        ):
            self.snapshots[identity].append((stamp, source, file))
        log = table.filter(pa.array(is_log))
        self._rows: dict[Identity, tuple[Rows, list[Stamp], Rows, Mask]] = {}
        numbers = batches.numbers_of(log)
        events, event_of = _events(log)
        is_present = np.array([status == PRESENT for status in log.column("status").to_pylist()], bool)
        for identity in {identity for _, identity in events}:
            mine = np.array([own == identity for _, own in events], bool)
            rows = np.flatnonzero(mine[event_of] & (numbers >= 0))
            stamps = [stamp for stamp, own in events if own == identity]
            places = {number: place for place, number in enumerate(np.flatnonzero(mine).tolist())}
            place_of = np.array([places[event] for event in event_of[rows].tolist()], np.int64)
            order = np.lexsort((place_of, numbers[rows]))
            self._rows[identity] = (numbers[rows][order], stamps, place_of[order], is_present[rows][order])

    def at(self, capture: ArchivedCapture) -> Rows:
        """The batches that a replica held when it was captured, by offset."""
        rows = self._rows.get(capture.identity)
        if rows is None:
            return np.zeros(0, np.int64)
        numbers, stamps, place_of, is_present = rows
        seen = sum(stamp <= capture.stamp for stamp in stamps)
        places = np.flatnonzero(place_of < seen)
        numbers, is_present = numbers[places], is_present[places]
        is_newest = np.ones(len(numbers), bool)
        is_newest[:-1] = numbers[1:] != numbers[:-1]
        return np.asarray(numbers[is_newest & is_present], np.int64)

    def size_bytes(self, capture: ArchivedCapture) -> int:
        return int(self._size_bytes[self.at(capture)].sum())

    def loses(self, before: ArchivedCapture, after: ArchivedCapture) -> bool:
        """Whether something was cut off between two captures of one replica."""
        if before.identity not in self._rows:
            return False
        _, stamps, place_of, is_present = self._rows[before.identity]
        between = [place for place, stamp in enumerate(stamps) if before.stamp < stamp <= after.stamp]
        return bool((np.isin(place_of, between) & ~is_present).any())


def different_rows(table: pa.Table, names: Sequence[str]) -> tuple[list[dict[str, Any]], Rows]:
    """The different rows of these columns, and which of them each row is: rows of one reading are alike."""
    codes = np.zeros(table.num_rows, np.int64)
    for name in names:
        encoded = table.column(name).combine_chunks().dictionary_encode(null_encoding="encode")
        codes = codes * (len(encoded.dictionary) + 1) + encoded.indices.to_numpy(zero_copy_only=False)
        _, codes = np.unique(codes, return_inverse=True)
    _, first, which = np.unique(codes, return_index=True, return_inverse=True)
    return table.select(list(names)).take(pa.array(first)).to_pylist(), which


def _events(log: pa.Table) -> tuple[list[tuple[Stamp, Identity]], Rows]:
    """The different (stamp, replica) of some rows in time, and which of them each row is of."""
    names = ("plan", "captured_at_ms", "capture_number", "node_id", "directory_id", "root", "path")
    rows, event_of = different_rows(log, names)
    events = [(_stamp(row), identity_of(row)) for row in rows]
    order = sorted(range(len(events)), key=lambda number: (events[number][0], str(events[number][1])))
    place = np.empty(len(events), np.int64)
    place[order] = np.arange(len(events))
    return [events[number] for number in order], place[event_of]


def _round(capture: ArchivedCapture) -> Round:
    plan, capture_number, name = (capture.row[column] for column in _ROUND_COLUMNS)
    return plan, capture_number, name


def _rounds(captures: Sequence[ArchivedCapture], chosen: set[int]) -> list[list[ArchivedCapture]]:
    """Captures read together, in time; at the end once more the newest of every node, where no round has them all."""
    rounds: dict[Round, list[ArchivedCapture]] = defaultdict(list)
    for capture in captures:
        if id(capture) in chosen:
            rounds[_round(capture)].append(capture)
    newest: dict[Any, ArchivedCapture] = {}
    for capture in captures:
        newest[capture.row["node_id"] if capture.row["node_id"] is not None else capture.identity] = capture
    ordered = [rounds[key] for key in sorted(rounds)]
    last = {id(capture) for capture in ordered[-1]}
    if any(id(capture) not in last for capture in newest.values()):
        ordered.append(sorted(newest.values(), key=lambda capture: str(capture.identity)))
    return ordered


def _round_numbers(
    captures: Sequence[ArchivedCapture], rounds: Sequence[Sequence[ArchivedCapture]]
) -> dict[Round, int]:
    """The number of each round of captures; of one that is not read again that of the next one which is."""
    numbers: dict[Round, int] = {}
    for number, members in enumerate(rounds):
        for capture in members:
            numbers.setdefault(_round(capture), number)
    following = len(rounds) - 1
    for key in sorted({_round(capture) for capture in captures}, reverse=True):
        following = numbers.setdefault(key, following)
    return numbers


def _chosen(captures: Sequence[ArchivedCapture], holdings: _Holdings, captures_bytes: int) -> set[int]:
    """Every capture, as long as they are not too many bytes; those first that hold what no later one does."""
    chosen = _not_contained(captures, holdings.loses)
    room = captures_bytes - sum(holdings.size_bytes(capture) for capture in captures if id(capture) in chosen)
    for capture in reversed(captures):
        if id(capture) not in chosen:
            room -= holdings.size_bytes(capture)
            if room < 0:
                break
            chosen.add(id(capture))
    return chosen


def _telling(captures: Sequence[ArchivedCapture], holdings: _Holdings) -> set[int]:
    """The rounds in which a disk holds or says what it does not later, whole: disks of one time judge each other.

    And the last two: what was proven before the newest is not taken for a copy of another moment.
    """
    telling = _not_contained(captures, lambda before, after: holdings.loses(before, after) or _says_more(before, after))
    rounds = {_round(capture) for capture in captures if id(capture) in telling}
    rounds |= set(sorted({_round(capture) for capture in captures})[-2:])
    return {id(capture) for capture in captures if _round(capture) in rounds}


def _not_contained(
    captures: Sequence[ArchivedCapture], has_more: Callable[[ArchivedCapture, ArchivedCapture], bool]
) -> set[int]:
    """The newest capture of each disk, and those that have more than the next one."""
    by_identity: dict[Identity, list[ArchivedCapture]] = defaultdict(list)
    for capture in captures:
        by_identity[capture.identity].append(capture)
    newest = {id(mine[-1]) for mine in by_identity.values()}
    pairs = (pair for mine in by_identity.values() for pair in pairwise(mine))
    return newest | {id(before) for before, after in pairs if has_more(before, after)}


def _says_more(before: ArchivedCapture, after: ArchivedCapture) -> bool:
    """Whether a disk said something beside its log that it did not say later, such as who got its vote."""
    is_other = any(before.row[name] != after.row[name] for name in SAID_COLUMNS)
    return is_other or any((before.row[name] or -1) > (after.row[name] or -1) for name in END_COLUMNS)


def _replica(
    root: str,
    folder: str,
    round_number: int,
    capture: ArchivedCapture,
    holdings: _Holdings,
    runs: ArchivedRuns,
    batches: ArchivedBatches,
    dialect: str,
) -> tuple[ReplicaPlan, dict[str, RandomAccess]]:
    row = capture.row
    time_ms = row["captured_at_ms"]
    files: dict[str, tuple[RandomAccess, FileKind, int | None, int | None]] = {}

    def add(name: str, kind: FileKind, content: bytes | ArchivedBatches, base: int | None, epoch: int | None) -> None:
        path = join(folder, name)
        if isinstance(content, bytes):
            files[name] = (InMemoryFile(path, content, time_ms), kind, base, epoch)
        else:
            files[name] = (ArchivedFile(path, runs, content, time_ms), kind, base, epoch)

    if row["meta_version"] is not None:
        meta = meta_properties(
            version=row["meta_version"],
            cluster_id=row["meta_cluster_id"],
            node_id=row["node_id"],
            directory_id=row["directory_id"],
        )
        add("meta.properties", FileKind.META_PROPERTIES, format_meta_properties(meta), None, None)
    if row["data_version"] is not None:
        state = format_quorum_state(_quorum_state(row), Dialect(dialect or Dialect.KIP853))
        add(join(METADATA_LOG_DIR, "quorum-state"), FileKind.QUORUM_STATE, state, None, None)
    held = batches.take(holdings.at(capture))
    if len(held):
        start = int(held.base_offset[0])
        add(join(METADATA_LOG_DIR, segment_name(start)), FileKind.SEGMENT, held, start, None)
    elif (start := row["log_end_offset"]) is not None:
        add(join(METADATA_LOG_DIR, segment_name(start)), FileKind.SEGMENT, b"", start, None)
    sources = frozenset(snapshot_sources(runs))
    for stamp, source, file_name in holdings.snapshots[capture.identity]:
        if stamp <= capture.stamp and source in sources:
            is_bootstrap = source.startswith("bootstrap")
            kind = FileKind.BOOTSTRAP_SNAPSHOT if is_bootstrap else FileKind.SNAPSHOT
            base, epoch = (None, None) if is_bootstrap else (int(source[:20]), int(source[21:31]))
            add(file_name, kind, runs.batches(source), base, epoch)
    plan = ReplicaPlan(
        root=root,
        path=folder,
        capture=row["capture"],
        capture_number=round_number,
        captured_at_ms=time_ms,
        cluster_id=row["meta_cluster_id"],
        node_id=row["node_id"],
        directory_id=row["directory_id"],
        files=tuple(
            FilePlan(name, kind, base, epoch, file.size_bytes, time_ms)
            for name, (file, kind, base, epoch) in sorted(files.items())
        ),
        log_dir=join(folder, METADATA_LOG_DIR),
        medium=row["medium"],
        held_end_offset=row.get("held_end_offset"),
        producer_state_offset=row.get("producer_state_offset"),
        configuration=row.get("configuration") or "",
        newest_snapshot=(row["snapshot_end_offset"], row["snapshot_epoch"]) if row["snapshot_end_offset"] else None,
    )
    return plan, {join(folder, name): entry[0] for name, entry in files.items()}


def _quorum_state(row: Mapping[str, Any]) -> QuorumState:
    voters = row["current_voters"]
    return QuorumState(
        row["data_version"],
        row["leader_id"],
        row["leader_epoch"],
        row["voted_id"],
        row["voted_directory_id"],
        current_voters=() if voters is None else tuple(voters),
    )
