"""Plans from paths: the replicas found there, by cluster and in the order of their captures; each is read whole."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from kraft_audit.capture.configurations import Configurations, with_configurations_elsewhere
from kraft_audit.capture.file_beginnings import PAGE_BYTES, read_beginning
from kraft_audit.capture.foreign_disks import FoundDisk, homes
from kraft_audit.capture.found_log import named_voters
from kraft_audit.capture.log_dialect import decided, found_dialects
from kraft_audit.capture.plan import ClusterPlan, FilePlan, PlannedDamage, ReplicaPlan
from kraft_audit.capture.planned_order import DiscoveredReplica, numbered_in_time
from kraft_audit.capture.replica import OpenStorage
from kraft_codec.errors import ChoiceError, Damage, InputError, Reason
from kraft_codec.file_names import FileKind, printable
from kraft_codec.files.discovery import FileEntry, ReplicaDir, discover
from kraft_codec.files.indexes import PREALLOCATED_OFFSET_INDEX_BYTES
from kraft_codec.files.logdir import missing_segments, read_capture_note, read_meta, read_quorum_state
from kraft_codec.schemas import Dialect
from kraft_codec.storage.random_access import Storage

LEFT_OUT = frozenset(
    {
        FileKind.OFFSET_INDEX,
        FileKind.TIME_INDEX,
        FileKind.PRODUCER_STATE,
        FileKind.OFFSET_CHECKPOINT,
        FileKind.BROKER_DISKS,
        FileKind.CONFIGURATION,
        FileKind.CAPTURE_NOTE,
        FileKind.TEMPORARY,
        FileKind.DELETED,
    }
)
"""Files that no plan lists: Kafka rebuilds or deletes them, they are about other partitions, or planning read them."""

# No replica lies in links and special files, or its owner knows: they are reported with the remedy.
_SKIPPED_KINDS: Final = ("a link", "a device or another special file", "neither a file nor a directory")
_UNREAD_REASONS: Final = frozenset({Reason.BAD_FILE, Reason.UNREADABLE, Reason.LIMIT})
_Content = TypeVar("_Content")


def plan_path(
    root: str,
    *,
    open_storage: OpenStorage,
    captured_at_ms: int,
    dialect: Dialect | None = None,
    capture: str | None = None,
    named: Sequence[tuple[str, int]] = (),
) -> list[ClusterPlan]:
    """One plan for each cluster below a path, ordered by cluster id.

    A disk of another cluster id in the place of a node stays with that node's cluster, whose reading refuses it. A
    replica without a cluster id belongs to the cluster with which it shares the first batch of a segment. Without
    such a batch it forms a cluster without an id, whatever lies beside it: an empty disk does not say whose it is, and
    would go unnoticed among replicas that were read. `named` are (cluster id, node id) of the logs that do not say
    theirs, in the order of the given paths. Without `dialect` the control records of each cluster show it. Raises
    InputError where there is no metadata log at all, ChoiceError where no capture has that name, or other logs than
    `named` do not say whose they are.
    """
    replicas, damages, ignored_count = _discover(root, open_storage, captured_at_ms, dialect, is_complete=True)
    if named:
        with open_storage(root) as storage:
            replicas = _as_named(root, replicas, named, storage.starts)
    if capture is not None:
        all_plans = [replica.plan for replica in replicas]
        wanted = capture_named(capture, all_plans)
        replicas = [replica for replica in replicas if replica.plan.capture == wanted]
        if not replicas:
            raise ChoiceError(root, f"no capture {capture!r}: {captures_text(all_plans)}")
    if not replicas:
        raise InputError(root, _no_log_text(damages, ignored_count))
    adopted = _adopted(root, replicas, open_storage)
    groups: dict[str, list[DiscoveredReplica]] = defaultdict(list)
    for number, replica in enumerate(replicas):
        home = adopted.get(number) or replica.plan.cluster_id or _cluster_by_content(replica, replicas)
        groups[home].append(replica)
    plans = []
    damages_of = _damages_by_cluster(damages, groups)
    for cluster_id in sorted(groups):
        members, own = numbered_in_time(groups[cluster_id]), tuple(damages_of[cluster_id])
        own_dialect = dialect or _decided(groups[cluster_id], cluster_id)
        plans.append(ClusterPlan(0, "", cluster_id, own_dialect, members, damages=own, captured_at_ms=captured_at_ms))
    return plans


def _adopted(root: str, replicas: Sequence[DiscoveredReplica], open_storage: OpenStorage) -> dict[int, str]:
    """Disks that name another cluster and stand in the place of a node of this one: the reading refuses them."""
    disks = [FoundDisk(replica.plan, replica.first_batches) for replica in replicas]
    if len({disk.plan.cluster_id for disk in disks if disk.plan.cluster_id}) < 2:
        return {}
    dialects = {id(replica.plan): Dialect(decided([replica.dialects]) or Dialect.KIP853) for replica in replicas}
    with open_storage(root) as storage:
        return homes(disks, lambda plan: named_voters(plan, storage, dialects[id(plan)]))


def _as_named(
    root: str, replicas: Sequence[DiscoveredReplica], named: Sequence[tuple[str, int]], starts: Sequence[str]
) -> list[DiscoveredReplica]:
    """The replicas, those without a meta.properties as their owner names them."""

    def place(path: str) -> int:
        return next(
            (number for number, start in enumerate(starts) if not start or f"{path}/".startswith(f"{start}/")),
            len(starts),
        )

    nameless = sorted(
        (replica for replica in replicas if replica.plan.node_id is None),
        key=lambda replica: (place(replica.plan.log_dir or replica.plan.path), replica.plan.path),
    )
    if len(nameless) != len(named):
        those = ", ".join(printable(replica.plan.log_dir or replica.plan.path) for replica in nameless) or "none"
        raise ChoiceError(root, f"--as: {len(named)} given; logs without a node id: {those}")
    plans = {
        id(replica): replace(replica.plan, cluster_id=cluster_id, node_id=node_id)
        for replica, (cluster_id, node_id) in zip(nameless, named, strict=True)
    }
    for replica in nameless:
        replica.plan = plans[id(replica)]
    return list(replicas)


def leaves_unread(reason: str, detail: str) -> bool:
    """Whether whole replicas may be missing because of a damage found while planning."""
    return reason in _UNREAD_REASONS and not detail.startswith(_SKIPPED_KINDS)


def unread_lines(damages: Iterable[PlannedDamage]) -> Iterator[str]:
    """One line for each root that could not be read whole: its damage that is highest in the tree."""
    unread_by_root: dict[str, list[PlannedDamage]] = {}
    for damage in damages:
        if leaves_unread(damage.reason, damage.detail):
            unread_by_root.setdefault(damage.root, []).append(damage)
    for root, unread in unread_by_root.items():
        first = min(unread, key=lambda damage: damage.path.count("/"))
        where = root if first.path in ("", root.rpartition("/")[2]) else f"{root}: {first.path}"
        position = f" at byte {first.position}" if first.position else ""
        more = f" (and {len(unread) - 1} more, in decode_errors)" if len(unread) > 1 else ""
        yield f"{where}: {first.detail}{position}: replicas may be missing{more}"


def _damages_by_cluster(
    damages: Sequence[PlannedDamage], groups: Mapping[str, Sequence[DiscoveredReplica]]
) -> dict[str, list[PlannedDamage]]:
    """The damages that each cluster reports.

    Damage in the folder of a cluster's replica belongs to that cluster. Anything else that could not be listed or
    unpacked may have held replicas of any cluster, so all of them report it. The rest hides nothing: one reports it.
    """
    damages_of: dict[str, list[PlannedDamage]] = {cluster_id: [] for cluster_id in sorted(groups)}
    named = [(cluster_id, replica.plan) for cluster_id, group in groups.items() if cluster_id for replica in group]
    folders = {f"{printable(plan.path)}/": cluster_id for cluster_id, plan in named}
    for damage in damages:
        owners = {cluster_id for folder, cluster_id in folders.items() if f"{damage.path}/".startswith(folder)}
        if not owners:
            owners = set(damages_of) if leaves_unread(damage.reason, damage.detail) else {next(iter(damages_of))}
        for cluster_id in owners:
            damages_of[cluster_id].append(damage)
    return damages_of


def plan_cluster(
    roots: Sequence[str],
    *,
    open_storage: OpenStorage,
    captured_at_ms: int,
    name: str,
    number: int = 0,
    cluster_id: str | None = None,
    dialect: Dialect | None = None,
    defaults: Iterable[tuple[str, str]] = (),
) -> ClusterPlan:
    """The plan of one cluster whose replicas lie below several paths, as fleet.yaml declares.

    `cluster_id` is the expected id, None for the one that most replicas name. Replicas of another cluster stay in the
    plan: the reading refuses and reports them. A path that cannot be read becomes damage; InputError where no path can.
    """
    replicas: list[DiscoveredReplica] = []
    damages: list[PlannedDamage] = []
    failures: list[InputError] = []
    ignored_count = 0
    for root in roots:
        try:
            replicas_below, damage, ignored = _discover(root, open_storage, captured_at_ms, dialect)
        except InputError as error:
            failures.append(error)
            damages.append(PlannedDamage(root, "", 0, 0, Reason.UNREADABLE, error.detail))
            continue
        replicas += replicas_below
        damages += damage
        ignored_count += ignored
    if not replicas:
        if failures:
            raise failures[0]
        raise InputError(", ".join(roots), _no_log_text(damages, ignored_count))
    replica_count = Counter(replica.plan.cluster_id for replica in replicas if replica.plan.cluster_id)
    if cluster_id is None:
        cluster_id = min(replica_count, key=lambda name: (-replica_count[name], name)) if replica_count else ""
    return ClusterPlan(
        number,
        name,
        cluster_id,
        dialect or _decided(replicas, cluster_id),
        numbered_in_time(replicas),
        tuple(sorted(defaults)),
        damages=tuple(damages),
        captured_at_ms=captured_at_ms,
    )


def _discover(
    root: str, open_storage: OpenStorage, captured_at_ms: int, dialect: Dialect | None, *, is_complete: bool = False
) -> tuple[list[DiscoveredReplica], list[PlannedDamage], int]:
    """The replicas, damage, and how many files are not Kafka's.

    `is_complete`: every segment's first batch is read, which shows whose log it is where nothing else does.

    Where `dialect` is given, no file is asked for it.
    """
    with open_storage(root) as storage:
        discovery = discover(storage)
        storage.read_ahead([file.path for replica in discovery.replicas for file in _read_to_plan(replica)])
        configurations = Configurations.of_storage(storage)
        replicas = [
            _discovered_replica(
                root, storage, replica, captured_at_ms, dialect, configurations, is_complete=is_complete
            )
            for replica in discovery.replicas
        ]
        plans = with_configurations_elsewhere([each.plan for each in replicas], discovery, configurations)
        for replica, plan in zip(replicas, plans, strict=True):
            replica.plan = plan
    return replicas, [_planned_damage(root, damage) for damage in discovery.damages], discovery.ignored_count


def _planned_damage(root: str, damage: Damage) -> PlannedDamage:
    return PlannedDamage(root, damage.path, damage.position, damage.length_bytes, damage.reason, damage.detail)


def _no_log_text(damages: Sequence[PlannedDamage], ignored_count: int) -> str:
    if ignored_count and not damages:
        return (
            f"no metadata log (__cluster_metadata-0) was found; {ignored_count} files are not Kafka's: "
            "add copies of the controllers' log dirs"
        )
    if damages:
        first = damages[0]
        return f"no metadata log (__cluster_metadata-0) was found; {first.path or 'it'}: {first.detail}"
    return "no metadata log (__cluster_metadata-0) was found"


def capture_named(asked: str, replicas: Iterable[ReplicaPlan]) -> str:
    """The name of a capture in the plans: a sole capture has the empty name there, and may be named by its folder."""
    replicas = list(replicas)
    return "" if asked == _sole_folder(replicas) and {replica.capture for replica in replicas} == {""} else asked


def captures_text(replicas: Iterable[ReplicaPlan]) -> str:
    """A text that names the captures, for an error about an unknown one."""
    replicas = list(replicas)
    names = sorted({replica.capture for replica in replicas} - {""})
    if names:
        return f"there are {', '.join(names)}"
    folder = _sole_folder(replicas)
    return f"there is one alone, {folder}" if folder else "there is one alone, and it needs no name"


def _sole_folder(replicas: Sequence[ReplicaPlan]) -> str | None:
    """The name of the folder that holds all node dirs; None where there are several folders, or it has no name."""
    folders = {replica.path.rpartition("/")[0] for replica in replicas}
    return folders.pop().rpartition("/")[2] or None if len(folders) == 1 else None


def _read_to_plan(replica: ReplicaDir) -> list[FileEntry]:
    """Small files, and the newest segment: whether the log goes on is asked of it."""
    segments = sorted(replica.of_kind(FileKind.SEGMENT), key=lambda file: file.base_offset or 0)
    small = replica.of_kind(FileKind.META_PROPERTIES, FileKind.QUORUM_STATE, FileKind.CAPTURE_NOTE)
    return [*small, *replica.configurations, *segments[-1:]]


def _discovered_replica(
    root: str,
    storage: Storage,
    replica: ReplicaDir,
    captured_at_ms: int,
    dialect: Dialect | None,
    configurations: Configurations,
    *,
    is_complete: bool,
) -> DiscoveredReplica:
    meta = _read_small(lambda: read_meta(storage, replica))
    state = _read_small(lambda: read_quorum_state(storage, replica))
    noted_ms = storage.noted_ms(replica.path)
    files = [file for file in replica.files if file.kind not in LEFT_OUT]
    segments = [file for file in files if file.kind is FileKind.SEGMENT]
    plan = ReplicaPlan(
        root=root,
        path=replica.node_dir,
        capture=replica.capture,
        capture_number=0,
        captured_at_ms=captured_at_ms,
        cluster_id=meta.cluster_id if meta else None,
        node_id=meta.node_id if meta else None,
        directory_id=meta.directory_id if meta else None,
        files=tuple(_file_plan(replica, file) for file in files),
        log_dir=replica.path,
        medium=storage.medium(replica.path),
        missing_segments=missing_segments(replica),
        held_end_offset=storage.held_end_offset(replica.path),
        configuration=configurations.of_replica(replica, meta.node_id if meta else None),
        producer_state_offset=_highest(replica.of_kind(FileKind.PRODUCER_STATE)),
        deleted_snapshot_end=_highest(file for file in replica.of_kind(FileKind.DELETED) if file.epoch is not None),
        is_index_trimmed=_is_index_trimmed(replica),
        further_directory_ids=replica.further_directory_ids,
        noted_ms=read_capture_note(storage, replica) if noted_ms is None else noted_ms,
        path_number=storage.path_number(replica.path),
    )
    end_estimate = max(((file.base_offset or 0, file.size_bytes) for file in segments), default=(-1, 0))
    log_start = min((file.base_offset for file in segments if file.base_offset is not None), default=0)
    wanted = [file for file in segments if is_complete or file.base_offset == log_start]
    asked = log_start if dialect is None else None
    beginnings = [read_beginning(storage, file.path, PAGE_BYTES if file.base_offset == asked else 0) for file in wanted]
    headers = [beginning.header for beginning in beginnings if beginning.header is not None]
    first_batches = frozenset((first.base_offset, first.leader_epoch, first.crc) for first in headers)
    begun_ms = next((first.base_timestamp_ms for first in headers if first.base_offset == 0), None)
    epoch, leader_id = (state.leader_epoch, state.leader_id) if state else (-1, -1)
    dialects = found_dialects(storage, files, beginnings) if dialect is None else frozenset({dialect})
    return DiscoveredReplica(plan, epoch, leader_id, end_estimate, first_batches, begun_ms, dialects)


def _decided(replicas: Sequence[DiscoveredReplica], cluster_id: str) -> str:
    """The dialect of a cluster by its own replicas: the reading refuses those of another cluster."""
    return decided(replica.dialects for replica in replicas if replica.plan.cluster_id in (None, "", cluster_id))


def _highest(files: Iterable[FileEntry]) -> int | None:
    """The highest offset that these files are named after."""
    return max((file.base_offset or 0 for file in files), default=None)


def _is_index_trimmed(replica: ReplicaDir) -> bool | None:
    """Whether the newest index is shorter than Kafka makes one for a segment that it writes to; None without any."""
    indexes = replica.of_kind(FileKind.OFFSET_INDEX)
    newest = max(indexes, key=lambda file: file.base_offset or 0, default=None)
    return None if newest is None else newest.size_bytes < PREALLOCATED_OFFSET_INDEX_BYTES


def _read_small(read: Callable[[], tuple[_Content | None, Sequence[Damage]]]) -> _Content | None:
    """The content of a small file, read a second time where that failed: the order of captures depends on it.

    A lasting failure is reported when the replica is read.
    """
    value, damages = read()
    return value if value is not None or not damages else read()[0]


def _file_plan(replica: ReplicaDir, file: FileEntry) -> FilePlan:
    name = file.path[len(replica.node_dir) :].lstrip("/")
    return FilePlan(name, file.kind, file.base_offset, file.epoch, file.size_bytes, file.mtime_ms)


def _cluster_by_content(replica: DiscoveredReplica, replicas: Sequence[DiscoveredReplica]) -> str:
    """The id of the only cluster that shares a segment's first batch with a replica; empty where there is none."""
    shared = {
        known.plan.cluster_id
        for known in replicas
        if known.plan.cluster_id and known.first_batches & replica.first_batches
    }
    return shared.pop() or "" if len(shared) == 1 else ""
