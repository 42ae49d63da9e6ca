"""What a replay has to know before it begins: the branches of a log, who ends where, and every control record.

One pass that checks framing and CRC of everything and decodes control batches alone. `canonical_windows` then reads the
records of one branch, and `snapshot_windows` those of one snapshot, as typed columns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kraft_audit.replay.branches import Branch, BranchTree, LogEnd
from kraft_audit.replay.cluster import Clock, OpenStorage, open_replicas, wall_clock_ms
from kraft_audit.replay.continuity import Rows
from kraft_audit.replay.decode import DecodedBatches, Decoder, Records, judge
from kraft_audit.replay.kernels.native import compile_ahead
from kraft_audit.replay.plan import ClusterPlan, FilePlan
from kraft_audit.replay.reconcile import Window, windows
from kraft_audit.replay.records import ControlRecord, RecordColumns, control_records
from kraft_audit.replay.replica import Replica
from kraft_audit.replay.scanner import ChangedError, ScanSettings
from kraft_audit.replay.snapshots import HEADER, Snapshot, check_copies, chunks_of, find_snapshots
from kraft_codec.columns import typed_columns
from kraft_codec.errors import Reason
from kraft_codec.file_names import FileKind, printable
from kraft_codec.kernels.codes import OK
from kraft_codec.redaction import Redactor
from kraft_codec.schemas import CONTROL_TYPES, METADATA_RECORDS, Dialect, Message

UNREAD = frozenset({Reason.UNREADABLE, Reason.CHANGED_DURING_READ})
SNAPSHOT_KINDS = (FileKind.SNAPSHOT, FileKind.BOOTSTRAP_SNAPSHOT)


def unread_by_now(file: tuple[str, str, str | None], reason: str, why: str, position: int = 0) -> ChangedError:
    """Says of a file (root, path, name) that an earlier reading of the same command read it."""
    where = "/".join(part for part in file if part)
    return ChangedError(Reason(reason), position, f"{where} could be read a moment ago, and now not: {why}")


@dataclass(slots=True)
class BranchEpoch:
    """One leader epoch on one branch: half-open offsets, max timestamp and end of its first batch.

    `has_data_behind` is set where a metadata batch of the epoch follows that first batch.
    """

    branch: int
    epoch: int
    from_offset: int
    to_offset: int
    timestamp_ms: int
    first_batch_end: int
    has_data_behind: bool = False


@dataclass(frozen=True, slots=True)
class SurveyedSnapshot:
    """A snapshot by its source id: `replicas` hold a complete copy, `controls` are its control records."""

    source: str
    end_offset: int
    epoch: int
    replicas: tuple[int, ...]
    controls: tuple[ControlRecord, ...]

    @property
    def timestamp_ms(self) -> int | None:
        """The append time of the last record that it contains, as its header says; None where it has no header."""
        headers = (record.fields for record in self.controls if record.name == HEADER)
        return next((int(fields["last_contained_log_timestamp"]) for fields in headers), None)


@dataclass(slots=True)
class Survey:
    """The shape of a cluster's log in all captures of a plan.

    `replicas` have been read to their ends; `ends` are in their order. `epochs` and `controls` are in the order of
    offsets, each with its branch. `unsound_offsets` are base offsets of control batches that could not be decoded.
    `batch_counts` are the distinct batches of each branch: who reads them again must meet as many. `unread` are the
    files that could not be read, or not as they were planned: (root, path, name, reason).
    `is_overflowing` is set where the logs part more often than is followed: the last branch then stands for several.
    """

    replicas: list[Replica]
    branches: list[Branch]
    ends: list[LogEnd]
    epochs: list[BranchEpoch] = field(default_factory=list)
    controls: list[tuple[int, ControlRecord]] = field(default_factory=list)
    snapshots: list[SurveyedSnapshot] = field(default_factory=list)
    unsound_offsets: list[int] = field(default_factory=list)
    is_overflowing: bool = False
    batch_counts: Counter[int] = field(default_factory=Counter)
    unread: set[tuple[str, str, str | None, str]] = field(default_factory=set)

    @property
    def holds_anything(self) -> bool:
        """Whether any batch of the log was met, or a complete snapshot of more than what a disk is formatted with."""
        return bool(self.branches) or any(one.end_offset > 0 and one.replicas for one in self.snapshots)

    def path(self, branch: int | None) -> list[int]:
        """The branches from the first one to `branch`, each the parent of the next."""
        path: list[int] = []
        while branch is not None and branch not in path:
            path.append(branch)
            branch = self.branches[branch].parent
        return path[::-1]

    def epochs_to(self, branch: int | None, end_offset: int | None = None) -> list[BranchEpoch]:
        """The epochs on the way to a branch's end, or to `end_offset` on it; an epoch across branches is one entry."""
        joined: list[BranchEpoch] = []
        for number in self.path(branch):
            for one in (one for one in self.epochs if one.branch == number):
                if end_offset is not None and one.from_offset >= end_offset:
                    continue
                to_offset = one.to_offset if end_offset is None else min(one.to_offset, end_offset)
                if joined and joined[-1].epoch == one.epoch:
                    has_data = joined[-1].has_data_behind or one.has_data_behind
                    joined[-1] = replace(joined[-1], to_offset=to_offset, has_data_behind=has_data)
                else:
                    joined.append(replace(one, to_offset=to_offset))
        return joined

    def holes_to(self, branch: int | None, from_offset: int, to_offset: int) -> list[tuple[int, int]]:
        """The offsets in [from_offset, to_offset) that no batch on the way to a branch's end holds, as [from, to).

        Their batches were refused, or are in nobody's log: what a replay tells behind them may be wrong.
        """
        steps = [self.branches[number] for number in self.path(branch)]
        ends = [from_offset, *(step.to_offset for step in steps)]
        holes = [
            hole
            for step, before in zip(steps, ends, strict=False)
            for hole in ((before, step.from_offset), *step.holes)
        ]
        clipped = ((max(start, from_offset), min(end, to_offset)) for start, end in holes)
        return [(start, end) for start, end in clipped if start < end]

    def controls_to(self, branch: int | None) -> list[ControlRecord]:
        """The control records on the way to a branch's end, in log order."""
        on_path = set(self.path(branch))
        return [record for number, record in self.controls if number in on_path]


def survey(
    plan: ClusterPlan, *, open_storage: OpenStorage, redactor: Redactor, clock_ms: Clock = wall_clock_ms
) -> Survey:
    """Reads every replica of the plan once, for its shape."""
    compile_ahead()
    with ExitStack() as stack:
        replicas, settings = open_replicas(plan, stack, open_storage, redactor.keyed_hash, clock_ms)
        readable = [replica for replica in replicas if replica.log is not None]
        tree = BranchTree(len(replicas))
        found = Survey(replicas, tree.branches, [])
        decoder = Decoder(Dialect(plan.dialect), None)
        for window in windows(readable, _ignore, lambda replica: replica.close(clock_ms)):
            labels = tree.grow(window.batches, _holdings(window))
            found.batch_counts.update(dict(enumerate(np.bincount(labels).tolist())))
            facts = _Facts.of(window)
            _add_epochs(found.epochs, window, labels, facts)
            _add_controls(found, window, labels, facts, decoder)
        for replica in replicas:
            if replica.log is None:
                replica.close(clock_ms)
        found.ends = tree.ends()
        found.is_overflowing = tree.is_overflowing
        for snapshot in find_snapshots(readable):
            check_copies(snapshot, settings, ())
            found.snapshots.append(_surveyed(snapshot, settings, decoder))
        found.unread = {
            (printable(replica.plan.root), printable(replica.plan.path), row.file_name, str(row.reason))
            for replica in replicas
            for row in replica.damage.drain()
            if row.reason in UNREAD
        }
        return found


@dataclass(frozen=True, slots=True)
class RecordWindow:
    """Typed records of one window of a branch: offsets [from_offset, to_offset).

    Missing in it are records of unknown types or versions and whole batches that are unsound: `undecoded` has their
    offsets, of a batch its base offset, ascending.
    """

    from_offset: int
    to_offset: int
    records: RecordColumns
    undecoded: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))


def canonical_windows(
    plan: ClusterPlan,
    path: Sequence[int],
    *,
    open_storage: OpenStorage,
    redactor: Redactor,
    shape: Survey | None = None,
    from_offset: int = 0,
    to_offset: int | None = None,
) -> Iterator[RecordWindow]:
    """The records of the branches in `path` (Survey.path of the same plan) from `from_offset` on, secrets redacted.

    Raises ChangedError at the end where `shape`, the survey, met more batches: a file vanished or failed since.
    """
    with ExitStack() as stack:
        replicas, _ = open_replicas(plan, stack, open_storage, redactor.keyed_hash, wall_clock_ms)
        readable = [replica for replica in replicas if replica.log is not None]
        tree = BranchTree(len(replicas))
        decoder = Decoder(Dialect(plan.dialect), redactor)
        cuts = [cut for cut in (from_offset, to_offset) if cut]
        met = 0
        for window in windows(readable, _ignore, _ignore_done, cuts):
            labels = tree.grow(window.batches, _holdings(window))
            is_on_path = np.isin(labels, np.array(path, np.int64))
            met += int(is_on_path.sum())
            wanted = is_on_path & (window.batches.base_offset >= from_offset)
            if to_offset is not None:
                wanted &= window.batches.base_offset < to_offset
            if wanted.any():
                yield _record_window(window, wanted, decoder)
        if shape is not None and met < (expected := sum(shape.batch_counts[branch] for branch in path)):
            raise ChangedError(Reason.CHANGED_DURING_READ, 0, f"{met} batches of the log, a moment ago {expected}")


def snapshot_windows(
    plan: ClusterPlan, source: str, *, open_storage: OpenStorage, redactor: Redactor
) -> Iterator[RecordWindow]:
    """The records of one snapshot, by windows of the offsets inside it.

    Raises ValueError where the plan has none, ChangedError where it can be read no more.
    """
    with ExitStack() as stack:
        holders = _with_snapshots_alone(plan, source)
        replicas, settings = open_replicas(holders, stack, open_storage, redactor.keyed_hash, wall_clock_ms)
        decoder = Decoder(Dialect(plan.dialect), redactor)
        chosen = next((one for one in find_snapshots(replicas) if one.source == source), None)
        if chosen is None:
            raise ValueError(f"no snapshot {source} in this plan")
        check_copies(chosen, settings, ())
        _require_readable(chosen)
        for chunk in chunks_of(chosen.decoded or chosen.copies[0], settings):
            decoded = DecodedBatches.unknown(len(chunk))
            parts = []
            for numbers, records in decoder.chunk(chunk):
                judge(decoded, numbers, records)
                parts.append(records)
            first, end = int(chunk.base_offset[0]), int(chunk.last_offset[-1]) + 1
            yield _typed(first, end, parts, chunk.base_offset[decoded.status != OK])


def _require_readable(snapshot: Snapshot) -> None:
    """Raises ChangedError where no copy is whole because one could not be read: the survey found one that was."""
    if any(copy.is_complete for copy in snapshot.copies):
        return
    for copy in snapshot.copies:
        for row in copy.replica.damage.drain():
            if row.reason in UNREAD:
                raise ChangedError(row.reason, row.position, f"snapshot {snapshot.source}: {row.detail}")


def _with_snapshots_alone(plan: ClusterPlan, source: str) -> ClusterPlan:
    """The replicas that may hold a snapshot, without their logs: a plan may name hundreds of others."""
    holders = []
    for replica in plan.replicas:
        copies = {file.name for file in replica.files if _may_be(file, source)}
        if copies:
            files = [f for f in replica.files if f.name in copies or f.kind not in (*SNAPSHOT_KINDS, FileKind.SEGMENT)]
            holders.append(replace(replica, files=tuple(files)))
    return replace(plan, replicas=tuple(holders))


def _may_be(file: FilePlan, source: str) -> bool:
    """Whether a file's name is that of a snapshot; the 0-0 and bootstrap ones differ in content only."""
    named = f"{file.base_offset or 0:020d}-{file.epoch or 0:010d}"
    return file.kind in SNAPSHOT_KINDS and (file.kind == FileKind.BOOTSTRAP_SNAPSHOT or source.startswith(named))


def _ignore(replica: Replica, chunk: object) -> None:
    """Refused batches are told by `analyze`."""


def _ignore_done(replica: Replica) -> None:
    """What comes after the log has been read by the survey."""


def _holdings(window: Window) -> dict[int, Rows]:
    return {part.replica.number: part.numbers for part in window.slices}


@dataclass(frozen=True, slots=True, eq=False)
class _Facts:
    """Of each distinct batch of a window, what its key does not say."""

    is_control: npt.NDArray[np.bool_]
    timestamp_ms: Rows

    @classmethod
    def of(cls, window: Window) -> _Facts:
        slice_of, row_of = window.sources(np.ones(len(window.batches), bool))
        is_control = np.zeros(len(window.batches), bool)
        timestamp_ms = np.zeros(len(window.batches), np.int64)
        for number, part in enumerate(window.slices):
            mine = slice_of == number
            is_control[mine] = part.chunk.index.is_control[row_of[mine]]
            timestamp_ms[mine] = part.chunk.index.max_timestamp_ms[row_of[mine]]
        return cls(is_control, timestamp_ms)


def _add_epochs(epochs: list[BranchEpoch], window: Window, labels: Rows, facts: _Facts) -> None:
    batches = window.batches
    for branch in np.unique(labels).tolist():
        rows = np.flatnonzero(labels == branch)
        epoch = batches.leader_epoch[rows]
        starts = np.flatnonzero(np.concatenate(([True], epoch[1:] != epoch[:-1])))
        for group in np.split(rows, starts[1:]):
            first, last = int(group[0]), int(group[-1])
            end = int(batches.last_offset[last]) + 1
            known = next((one for one in reversed(epochs) if one.branch == branch), None)
            is_data = ~facts.is_control[group]
            if known is not None and known.epoch == int(batches.leader_epoch[first]):
                known.to_offset = end
                known.has_data_behind = known.has_data_behind or bool(is_data.any())
                continue
            epochs.append(
                BranchEpoch(
                    branch,
                    int(batches.leader_epoch[first]),
                    int(batches.base_offset[first]),
                    end,
                    int(facts.timestamp_ms[first]),
                    int(batches.last_offset[first]) + 1,
                    bool(is_data[1:].any()),
                )
            )


def _add_controls(found: Survey, window: Window, labels: Rows, facts: _Facts, decoder: Decoder) -> None:
    decoded = DecodedBatches.unknown(len(window.batches))
    for _, numbers, records in decoder.window(window, facts.is_control):
        judge(decoded, numbers, records)
        row_of = dict(zip(records.index.offset.tolist(), records.index.batch_row.tolist(), strict=True))
        place_of = dict(zip(records.index.selected.tolist(), numbers.tolist(), strict=True))
        for one in _controls(records, decoder.dialect):
            number = place_of[row_of[one.offset]]
            batch_offset = int(window.batches.base_offset[number])
            found.controls.append((int(labels[number]), replace(one, batch_offset=batch_offset)))
    found.unsound_offsets += window.batches.base_offset[decoded.status != OK].tolist()


def _controls(records: Records, dialect: Dialect) -> list[ControlRecord]:
    messages = [control.message for control in CONTROL_TYPES[dialect].values()]
    return control_records(_columns([records], messages), dialect)


def _surveyed(snapshot: Snapshot, settings: ScanSettings, decoder: Decoder) -> SurveyedSnapshot:
    copy = snapshot.decoded or snapshot.copies[0]
    controls: list[ControlRecord] = []
    try:
        for chunk in chunks_of(copy, settings):
            rows = chunk.rows[chunk.index.is_control[chunk.rows]]
            if len(rows):
                controls += _controls(decoder.records(chunk, rows), decoder.dialect)
    except ChangedError as error:  # as if it had gone before it was looked at
        copy.replica.damage.add(copy.replica.tallies[copy.file.name], error.reason, error.detail)
        return SurveyedSnapshot(snapshot.source, snapshot.end_offset, _epoch(copy.file), (), ())
    holders = tuple(one.replica.number for one in snapshot.copies if one.is_complete)
    return SurveyedSnapshot(snapshot.source, snapshot.end_offset, _epoch(copy.file), holders, tuple(controls))


def _epoch(file: FilePlan) -> int:
    return file.epoch or 0


def _record_window(window: Window, wanted: npt.NDArray[np.bool_], decoder: Decoder) -> RecordWindow:
    decoded = DecodedBatches.unknown(len(window.batches))
    parts = []
    for _, numbers, records in decoder.window(window, wanted):
        judge(decoded, numbers, records)
        parts.append(records)
    # A window's end bounds where batches begin; the last one's records may lie behind it.
    to_offset = max(window.to_offset, int(window.batches.last_offset[wanted].max()) + 1)
    return _typed(window.from_offset, to_offset, parts, window.batches.base_offset[decoded.status != OK])


def _typed(from_offset: int, to_offset: int, parts: Sequence[Records], unsound: npt.NDArray[np.int64]) -> RecordWindow:
    """`unsound` are the base offsets of batches that have no records here."""
    dialect = parts[0].index.dialect if parts else Dialect.KIP853
    messages = [*METADATA_RECORDS, *(control.message for control in CONTROL_TYPES[dialect].values())]
    undecodable = [part.index.offset[part.index.status != OK] for part in parts]
    undecoded = np.sort(np.concatenate([*undecodable, unsound]))
    return RecordWindow(from_offset, to_offset, _columns(parts, messages), undecoded)


def _columns(parts: Sequence[Records], messages: Sequence[Message]) -> RecordColumns:
    """Typed columns of the types that occur."""
    columns: dict[str, pa.RecordBatch] = {}
    present = {message.name for part in parts for message in part.index.messages()}
    for message in messages:
        if message.name not in present:
            continue
        batches = [typed_columns(part.index, message) for part in parts if len(part.index.rows_of(message))]
        columns[message.name] = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    return columns
