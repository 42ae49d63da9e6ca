"""How a cluster is read, and one replica being read: its small files, its log, what is known of it at the end.

`written_times_ms` says when disks were surely still written to: a copy is not older than that. `meta.properties` shows
when one was formatted. File times show more where copying kept them, which they did where logs were last written about
when their last record was.
"""

from __future__ import annotations

import contextlib
import functools
import resource
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Final

from kraft_audit.capture.declared_rescue import DeclaredRescue, read_rescue
from kraft_audit.capture.disk_trust import DiskTrust, trust_of
from kraft_audit.capture.log_parts import WHOLE_LOG, LogPart
from kraft_audit.capture.log_reader import LogReader, replica_dir
from kraft_audit.capture.plan import ClusterPlan, FilePlan, KnownBatches, ReplicaPlan, Selection
from kraft_audit.capture.reached_end import beyond_end
from kraft_audit.capture.scanner import CHUNK_BYTES_MAX, DamageLog, FileTally, ScanSettings, chunk_bytes
from kraft_audit.capture.set_aside import SetAsideLog, set_aside_log
from kraft_audit.capture.torn_copies import KnownPart, torn_at
from kraft_codec.errors import CodecError, Damage, Reason
from kraft_codec.file_names import FileKind, printable
from kraft_codec.files.logdir import (
    read_checkpoints,
    read_leader_epochs,
    read_meta,
    read_quorum_state,
    structure_damages,
)
from kraft_codec.files.properties import MetaProperties, written_ms
from kraft_codec.files.state_files import EpochEntry, QuorumState
from kraft_codec.records.redaction import Redactor
from kraft_codec.storage.random_access import Storage, join

FILES_BESIDE: Final = 512
_SMALL: Final = frozenset({FileKind.META_PROPERTIES, FileKind.QUORUM_STATE, FileKind.LEADER_EPOCH_CHECKPOINT})
_UNUSED: Final = frozenset({FileKind.PARTITION_METADATA, FileKind.CLEAN_SHUTDOWN})
"""Only their damage is taken, once."""
OpenStorage = Callable[[str], AbstractContextManager[Storage]]
Clock = Callable[[], int]


@contextmanager
def opened_once(open_storage: OpenStorage) -> Iterator[Callable[[str], Storage]]:
    """Gives the storage of a root, opened when it is first asked for; all of them are closed at the end."""
    with ExitStack() as stack:
        yield functools.cache(lambda root: stack.enter_context(open_storage(root)))


def wall_clock_ms() -> int:
    """The time of day, in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class ReadingSettings:
    """How a cluster is read.

    `open_storage` opens what a replica's `root` names. `redactor` carries the cluster's redaction state. `known` is
    what closed plans hold of the cluster, asked where a replica lags, is new or was cut. `selection` narrows the bronze
    rows. `stop_on_change`: bytes other than the planned ones raise ChangedError instead of becoming a row of
    `decode_errors`. `chunk_bytes_max` bounds what is read of a replica at a time, and so the first row's delay. Only
    `read_from_ms` and `read_to_ms` of `captures` depend on `clock_ms`. `part` narrows `batches` and `records` to a part
    of the log; the other tables need the whole log.
    """

    open_storage: OpenStorage
    redactor: Redactor
    clock_ms: Clock = wall_clock_ms
    known: KnownBatches | None = None
    selection: Selection = field(default_factory=Selection)
    stop_on_change: bool = False
    chunk_bytes_max: int = CHUNK_BYTES_MAX
    part: LogPart = WHOLE_LOG


class Replica:
    """The state of reading one replica. `is_accepted` is False where it belongs to another cluster."""

    def __init__(
        self,
        number: int,
        cluster: ClusterPlan,
        plan: ReplicaPlan,
        storage: Storage,
        settings: ScanSettings,
    ) -> None:
        self.number = number
        self.cluster = cluster
        self.plan = plan
        self.storage = storage
        self.dialect = cluster.read_as
        self.damage = DamageLog()
        self.tallies = {file.name: FileTally.resumed(file) for file in plan.files}
        self.snapshots: list[tuple[int, int]] = []
        """(end offset, epoch) of the complete snapshots, ascending."""
        self.meta: MetaProperties | None = None
        self.quorum_state: QuorumState | None = None
        self.leader_epochs: tuple[EpochEntry, ...] | None = None
        self.rescue: DeclaredRescue | None = None
        self.doubt: str | None = None
        """How the log and the files beside it contradict each other; None where they agree."""
        self.claimed_end: tuple[int, int] | None = None
        """Of a disk in doubt: the (last epoch, end offset) with which it may stand for election."""
        self.set_aside: SetAsideLog | None = None
        self.is_accepted = True
        self.read_from_ms = 0
        self.read_to_ms = 0
        self.log: LogReader | None = None
        self._settings = settings
        self._directory = replica_dir(plan)
        self._by_path = {join(plan.path, file.name): file.name for file in plan.files}

    @property
    def is_unchanged(self) -> bool:
        """Nothing of it has changed since the ledger: there is nothing to say of it again."""
        return bool(self.plan.files) and all(file.is_unchanged for file in self.plan.files) and not self.plan.gone_files

    def open(self, now_ms: Callable[[], int]) -> None:
        """Reads what comes before the log, and finds out whether the replica belongs here."""
        self.read_from_ms = now_ms()
        self.meta, damages = read_meta(self.storage, self._directory)
        self._take_small(FileKind.META_PROPERTIES, damages)
        early_state, _ = read_quorum_state(self.storage, self._directory)
        self._refuse_foreign(self.meta.cluster_id if self.meta else None, "meta.properties")
        self._refuse_foreign(early_state.cluster_id if early_state else None, "quorum-state")
        if not self.is_accepted:
            return
        self._refuse_renamed()
        self._read_rescue()
        if not self._is_structure_known():
            for damage in structure_damages(self._directory, self.plan.missing_segments):
                name = self._by_path.get(damage.path)
                if name is None or not self.tallies[name].plan.is_unchanged:
                    self._take_damage(damage)
        self.log = LogReader(self.plan, self.storage, self.damage, self.tallies, self._settings)

    @property
    def trust(self) -> DiskTrust:
        """How far the disk counts, once its log was read."""
        log, newest = self.log, self.snapshots[-1] if self.snapshots else (None, None)
        bytes_unread = sum(tally.bytes_unread for tally in self.tallies.values())
        return trust_of(self.doubt, log.end_offset if log else None, newest[0], bytes_unread)

    @property
    def quorum_state_ms(self) -> int | None:
        """When quorum-state was last written, by the time of its file; None where copying kept no times.

        It kept them where the newest segment was last written about when its last record was. Where both files have one
        time they may as well have been written by a copy.
        """
        states = self.files_of(FileKind.QUORUM_STATE)
        segments = self.files_of(FileKind.SEGMENT)
        if not states or not segments or not _are_kept([self]):
            return None
        newest = max(segments, key=lambda file: file.base_offset or 0)
        return None if abs(newest.mtime_ms - states[0].mtime_ms) <= ONE_COPY_MS else states[0].mtime_ms

    @property
    def is_evidence(self) -> bool:
        """Whether its log counts for or against anything. A cluster's only log does, even in doubt."""
        is_only = self.doubt is not None and self.log is not None and self.log.torn is None
        return self.trust.counts or is_only

    def compare_with_epochs(self, *, leaves_log: bool) -> None:
        """Sets `doubt` where log and leader-epoch-checkpoint are of two moments; with `leaves_log` the log is not read.

        It then counts as unreadable, neither there nor gone. When a log is resumed, only its new part is compared: the
        part before that was compared when it was new.
        """
        log = self.log
        if log is None or not log.new_segments:
            return
        paths = [(join(self.plan.path, tally.plan.name), tally) for tally in log.new_segments]
        known = None
        if log.is_resumed and log.end_offset is not None and log.last_epoch is not None:
            known = KnownPart(log.end_offset, log.last_epoch)
        torn = torn_at(paths, self.storage, read_leader_epochs(self.storage, self._directory), known)
        if torn is None:
            return
        file = next(iter(self.files_of(FileKind.LEADER_EPOCH_CHECKPOINT)))
        self.doubt = torn.text.replace("this file", "leader-epoch-checkpoint")
        self.claimed_end = torn.claimed_end
        if not leaves_log:
            return
        self.set_aside = set_aside_log(self.plan, self.doubt, paths, self.storage)
        self.damage.add(self.tallies[file.name], Reason.EPOCH_WENT_BACK, torn.text)
        why = f"the copy may be torn: {torn.text.replace('this file', file.name)}"
        if not log.is_resumed:
            self.tallies.update((tally.plan.name, FileTally(tally.plan)) for tally in log.segments)
        self.log = LogReader(
            self.plan,
            self.storage,
            self.damage,
            self.tallies,
            self._settings,
            torn=why,
            is_rest_torn=log.is_resumed,
        )

    def compare_end_with_files(self, *, beside_logs: bool) -> None:
        """Sets `doubt` where the files beside the log say that it is shorter than it was (`reached_end`).

        The log still shows what was committed: at least that. A snapshot without any segment counts as a log's end
        where other replicas have logs (`beside_logs`): without any of them nothing is judged by logs.
        """
        log = self.log
        snapshot_end = self.snapshots[-1][0] if self.snapshots else None
        if self.doubt is not None or log is None:
            return
        end = snapshot_end if log.end_offset is None and beside_logs else log.end_offset
        if end is None:
            return
        tallies = self.tallies.values()
        reached = beyond_end(
            ((entry.start_offset, entry.epoch) for entry in self.leader_epochs or ()),
            self.plan.producer_state_offset,
            snapshot_end,
            end,
            is_damaged=any(each.bytes_quarantined or each.bytes_unread for each in tallies),
        )
        if reached is not None:
            last_epoch = -1 if log.last_epoch is None else log.last_epoch
            ends = f"the log ends at {end}: later segments are missing, or the copy is older"
            if log.end_offset is None:
                ends = f"no segment is here, and the newest snapshot ends at {end}"
            self.doubt = f"{reached.text()}, {ends}"
            self.claimed_end = (last_epoch if reached.epoch is None else reached.epoch, end)

    def close(self, now_ms: Callable[[], int]) -> None:
        """Reads what must come after the log, quorum-state last: what was promised by then covers the log as read."""
        known = {join(self.plan.path, file.name) for file in self.plan.files if file.is_unchanged}
        wanted = [each for each in self._directory.files if each.kind not in _UNUSED or each.path not in known]
        self.leader_epochs, damages = read_checkpoints(self.storage, replace(self._directory, files=tuple(wanted)))
        for kind in (FileKind.LEADER_EPOCH_CHECKPOINT, FileKind.PARTITION_METADATA, FileKind.CLEAN_SHUTDOWN):
            self._take_small(kind, damages)
        self.quorum_state, damages = read_quorum_state(self.storage, self._directory)
        self._take_small(FileKind.QUORUM_STATE, damages)
        self._compare_epochs()
        self.read_to_ms = now_ms()

    def source_columns(self) -> dict[str, Any]:
        """The columns that every row about this replica begins with."""
        return replica_columns(self.cluster.cluster_id, self.plan, self.cluster.number)

    def files_of(self, *kinds: FileKind) -> list[FilePlan]:
        return [file for file in self.plan.files if file.kind in kinds]

    def _is_structure_known(self) -> bool:
        """Whether an earlier plan saw just these segments and snapshots, and said what is wrong with them."""
        kinds = (FileKind.SEGMENT, FileKind.SNAPSHOT, FileKind.SNAPSHOT_UNFINISHED)
        is_news = any(file.earlier is None for file in self.files_of(*kinds))
        return not is_news and not any(file.kind in kinds for file in self.plan.gone_files)

    def _refuse_foreign(self, cluster_id: str | None, name: str) -> None:
        if not cluster_id or not self.cluster.cluster_id or cluster_id == self.cluster.cluster_id:
            return
        if self.is_accepted:
            self.is_accepted = False
            if self.is_unchanged:
                return
            detail = f"{name} says cluster {cluster_id}, the others belong to {self.cluster.cluster_id}"
            tally = next((tally for tally in self.tallies.values() if tally.plan.name.endswith(name)), None)
            self.damage.add(tally, Reason.CLUSTER_MISMATCH, detail)

    def _refuse_renamed(self) -> None:
        if self.meta is None or (self.meta.node_id, self.meta.directory_id) == (
            self.plan.node_id,
            self.plan.directory_id,
        ):
            return
        detail = (
            f"meta.properties says node {self.meta.node_id}, directory {self.meta.directory_id}; "
            f"it was planned as node {self.plan.node_id}, directory {self.plan.directory_id}"
        )
        self.damage.add(None, Reason.CHANGED_DURING_READ, detail)

    def _read_rescue(self) -> None:
        """What `rescue` declares of this node dir, where it wrote it."""
        for file in self.files_of(FileKind.RESCUE_DECLARATION):
            self.rescue, damages = read_rescue(self.storage, self.plan, file)
            self._take_small(FileKind.RESCUE_DECLARATION, damages)

    def _take_small(self, kind: FileKind, damages: Sequence[Damage]) -> None:
        """Counts a small file as decoded or quarantined as a whole."""
        for file in self.files_of(kind):
            tally = self.tallies[file.name]
            if file.is_unchanged:
                continue
            own_damages = [damage for damage in damages if self._by_path.get(damage.path) == file.name]
            tally.bytes_decoded = 0 if own_damages else file.size_bytes
            tally.bytes_quarantined = file.size_bytes if own_damages else 0
            tally.scanned_to = file.size_bytes
            for damage in own_damages:
                self._take_damage(damage)

    def _take_damage(self, damage: Damage) -> None:
        name = self._by_path.get(damage.path)
        tally = None if name is None else self.tallies[name]
        self.damage.add(tally, damage.reason, damage.detail, position=damage.position, length_bytes=damage.length_bytes)

    def _compare_epochs(self) -> None:
        """leader-epoch-checkpoint, read after the log, knows where each epoch begins: the CRC covers no batch's epoch.

        It can be ahead by an election whose first batch was not there yet. A log that has changed since it was read
        cannot be compared.
        """
        file = next(iter(self.files_of(FileKind.LEADER_EPOCH_CHECKPOINT)), None)
        log = self.log
        if log is None or log.end_offset is None or not self.leader_epochs or file is None:
            return
        if not log.epoch_starts or self._has_changed(log):
            return
        listed = [
            (entry.epoch, entry.start_offset) for entry in self.leader_epochs if entry.start_offset < log.end_offset
        ]
        odd = odd_epoch_start(log.epoch_starts, listed, log.reads_from_offset if log.is_resumed else None)
        if odd is not None:
            epoch, start = odd
            detail = f"this file and the log differ from offset {start} on, where epoch {epoch} begins in one of them"
            self.damage.add(self.tallies[file.name], Reason.EPOCH_WENT_BACK, detail)

    def _has_changed(self, log: LogReader) -> bool:
        """Whether the newest segment of a log that has one is no longer what was planned: Kafka is running."""
        plan = log.segments[-1].plan
        try:
            with self.storage.open(join(self.plan.path, plan.name)) as file:
                return (file.size_bytes, file.mtime_ms) != (plan.size_bytes, plan.mtime_ms)
        except CodecError:
            return True


def replica_columns(cluster_id: str, plan: ReplicaPlan, number: int) -> dict[str, Any]:
    """The columns that say which replica a row belongs to and when it was read: one value each for all rows."""
    return {
        "cluster_id": cluster_id,
        "node_id": plan.node_id,
        "directory_id": plan.directory_id,
        "captured_at_ms": plan.captured_at_ms,
        "captured_at": plan.captured_at_ms * 1000,
        "capture": printable(plan.capture),
        "capture_number": plan.capture_number,
        "root": printable(plan.root),
        "path": printable(plan.path),
        "plan": number,
    }


EpochStart = tuple[int, int]


def odd_epoch_start(
    seen: Sequence[EpochStart], listed: Sequence[EpochStart], resumed_at: int | None = None
) -> EpochStart | None:
    """The first (epoch, start offset) that only one of log and leader-epoch-checkpoint has, None where they agree.

    `seen` are the epochs that the log was seen to begin, the first one at its first batch, unless reading resumed at
    `resumed_at`, in the middle of an epoch. `listed` are the file's entries below the log's end. Cleaning moves the
    first entry up to the log's start, which can lie inside a segment, after batches that are still there.
    """
    from_offset = seen[0][1] if resumed_at is None else resumed_at
    begun = [epoch for epoch, start in listed if start <= from_offset]
    inside = [
        entry for entry in listed if entry[1] > from_offset or (resumed_at is not None and entry[1] == from_offset)
    ]
    if resumed_at is None and begun:
        inside.insert(0, (begun[-1], from_offset))
    elif resumed_at is None or not begun:
        cleaned_to = inside.pop(0)[1] if inside else from_offset
        seen = [start for start in seen if start[1] > cleaned_to]
    return min(set(seen) ^ set(inside), key=lambda start: (start[1], start[0]), default=None)


def open_replicas(
    plan: ClusterPlan,
    settings: ReadingSettings,
    stack: ExitStack,
) -> tuple[list[Replica], ScanSettings]:
    """Opens what the plan names, in an order that does not depend on the plan's; storages are closed with the stack.

    Raises InputError where a storage cannot be opened any more.
    """
    planned = sorted(plan.replicas, key=lambda replica: replica.sort_key)
    _allow_open_files(len(planned))
    size_bytes = chunk_bytes(len(planned), settings.chunk_bytes_max)
    scan_settings = ScanSettings(size_bytes, settings.redactor.keyed_hash, settings.stop_on_change)
    storages: dict[str, Storage] = {}
    replicas = []
    for root in dict.fromkeys(replica_plan.root for replica_plan in planned):
        storages[root] = stack.enter_context(settings.open_storage(root))
        below = [each for each in planned if each.root == root]
        storages[root].list_ahead([each.path for each in below])
        storages[root].read_ahead([path for each in below for path in _read_first(each)])
    for number, replica_plan in enumerate(planned):
        replica = Replica(number, plan, replica_plan, storages[replica_plan.root], scan_settings)
        replica.open(settings.clock_ms)
        replicas.append(replica)
    context_logs = [each for each in plan.context if any(file.kind == FileKind.SEGMENT for file in each.files)]
    _leave_torn_logs(replicas, len(context_logs))
    return replicas, scan_settings


def _read_first(plan: ReplicaPlan) -> list[str]:
    """The small files of a replica, and its newest segment, that are read whatever it holds."""
    newest = [file for file in plan.files if file.kind is FileKind.SEGMENT][-1:]
    return [join(plan.path, file.name) for file in (*plan.files, *newest) if file in newest or file.kind in _SMALL]


def _leave_torn_logs(replicas: Sequence[Replica], other_count: int) -> None:
    """A torn copy is no evidence against others, nor the log of the cluster. The only log is read all the same."""
    with_logs = [replica for replica in replicas if replica.log is not None and replica.log.segments]
    for replica in with_logs:
        replica.compare_with_epochs(leaves_log=len(with_logs) + other_count > 1)


def _allow_open_files(replica_count: int) -> None:
    """Each replica has a file open while the others are read: hundreds of captures need more than the usual 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = replica_count + FILES_BESIDE
    if soft != resource.RLIM_INFINITY and soft < wanted:
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, limit), hard))


ONE_COPY_MS: Final = 1_000
"""Files of one node that a copy wrote have times so near."""
KEPT_WITHIN_MS: Final = 60_000
"""A follower writes a record soon after the leader stamped it; clocks differ a little."""


def written_times_ms(replicas: Iterable[Replica]) -> dict[tuple[str, str], int]:
    """By root and path of a replica, as in `captures`: the newest time at which something on its disk was written."""
    times: dict[tuple[str, str], int] = {}
    ordered = sorted(replicas, key=_place)
    for _, group in groupby(ordered, key=_place):
        members = list(group)
        are_kept = _are_kept(members)
        for replica in members:
            formatted_ms = None if replica.meta is None else written_ms(replica.meta)
            files_ms = [file.mtime_ms for file in replica.plan.files] if are_kept else []
            known = [time_ms for time_ms in (formatted_ms, *files_ms) if time_ms is not None]
            if known:
                times[printable(replica.plan.root), printable(replica.plan.path)] = max(known)
    return times


def copied_times_ms(replicas: Iterable[Replica]) -> dict[tuple[str, str], int]:
    """By root and path of a replica, as in `captures`: when its copy was made, where copying wrote the times of its
    files, so that all of them have one."""
    times: dict[tuple[str, str], int] = {}
    for replica in replicas:
        files_ms = [file.mtime_ms for file in replica.plan.files]
        if len(files_ms) > 1 and max(files_ms) - min(files_ms) <= ONE_COPY_MS:
            times[printable(replica.plan.root), printable(replica.plan.path)] = max(files_ms)
    return times


def _place(replica: Replica) -> tuple[str, str]:
    return (replica.plan.root, replica.plan.capture)


def _are_kept(replicas: Iterable[Replica]) -> bool:
    """Whether each log that holds records was last written when its newest record was appended."""
    apart_ms = [apart for replica in replicas if (apart := _written_apart_ms(replica)) is not None]
    return bool(apart_ms) and max(apart_ms) <= KEPT_WITHIN_MS


def kept_time_ms(replica: Replica) -> int | None:
    """When a disk was last written; None unless its log's file has about the time of its newest record."""
    apart_ms = _written_apart_ms(replica)
    if apart_ms is None or apart_ms > KEPT_WITHIN_MS:
        return None
    return max(file.mtime_ms for file in replica.plan.files)


def _written_apart_ms(replica: Replica) -> int | None:
    """How far the time of a log's newest file is from that of its newest record; None without a record."""
    segments = replica.files_of(FileKind.SEGMENT)
    if replica.log is None or replica.log.last_timestamp_ms is None or not segments:
        return None
    newest = max(segments, key=lambda file: file.base_offset or 0)
    return abs(newest.mtime_ms - replica.log.last_timestamp_ms)
