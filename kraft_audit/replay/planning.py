"""Plans from paths: what lies there, whose it is, in which order it was captured. Everything from the start."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cmp_to_key
from typing import TypeVar

from kraft_audit.natural_order import natural
from kraft_audit.replay.cluster import OpenStorage
from kraft_audit.replay.damage import leaves_unread
from kraft_audit.replay.plan import ClusterPlan, FilePlan, PlannedDamage, ReplicaPlan
from kraft_codec.batch import HEADER_BYTES, read_header
from kraft_codec.discovery import FileEntry, ReplicaDir, discover
from kraft_codec.errors import ChoiceError, CodecError, Damage, InputError, Reason
from kraft_codec.file_names import FileKind, printable
from kraft_codec.logdir import read_meta, read_quorum_state
from kraft_codec.random_access import Storage
from kraft_codec.schemas import Dialect

LEFT_OUT = frozenset(
    {
        FileKind.OFFSET_INDEX,
        FileKind.TIME_INDEX,
        FileKind.PRODUCER_STATE,
        FileKind.OFFSET_CHECKPOINT,
        FileKind.TEMPORARY,
        FileKind.DELETED,
    }
)
"""Files that Kafka rebuilds at every start, is about to delete, or writes about other partitions: never read."""

_Head = tuple[int, int, int]
_Value = TypeVar("_Value")
_EMPTY = (0, 0)
"""The end estimate of a log without a batch."""


@dataclass(slots=True)
class _Found:
    """A replica as it was found; epochs and ends put captures in time."""

    plan: ReplicaPlan
    epoch: int
    leader_id: int
    end_estimate: tuple[int, int]
    heads: frozenset[_Head]


def plan_path(
    root: str,
    *,
    open_storage: OpenStorage,
    captured_at_ms: int,
    dialect: Dialect = Dialect.KIP853,
    capture: str | None = None,
) -> list[ClusterPlan]:
    """One plan for each cluster below a path, ordered by cluster id.

    A replica without a cluster id belongs to the cluster with which it shares a segment's first batch, else to one that
    has no id, whatever lies beside it: an empty disk says not whose it is, and would pass unseen among replicas that
    were read. Raises InputError where there is no metadata log at all, ChoiceError where no capture has that name.
    """
    found, damages = _look(root, open_storage, captured_at_ms, dialect)
    if capture is not None:
        there = [one.plan for one in found]
        wanted = capture_named(capture, there)
        found = [one for one in found if one.plan.capture == wanted]
        if not found:
            raise ChoiceError(root, f"no capture {capture!r}: {captures_text(there)}")
    if not found:
        raise InputError(root, _why_nothing(damages))
    groups: dict[str, list[_Found]] = defaultdict(list)
    for one in found:
        groups[one.plan.cluster_id or _cluster_by_content(one, found)].append(one)
    plans = []
    damages_of = _damages_by_cluster(damages, groups)
    for cluster_id in sorted(groups):
        replicas, theirs = _in_time(groups[cluster_id]), tuple(damages_of[cluster_id])
        plans.append(ClusterPlan(0, "", cluster_id, dialect, replicas, damages=theirs, captured_at_ms=captured_at_ms))
    return plans


def _damages_by_cluster(
    damages: Sequence[PlannedDamage], groups: Mapping[str, Sequence[_Found]]
) -> dict[str, list[PlannedDamage]]:
    """Which damage is told of which cluster.

    What lies in the folder of a cluster's replica is that cluster's. Anything else that could not be listed or unpacked
    may have held replicas of any of them, and is told of each. The rest hides nothing, and is told once.
    """
    found: dict[str, list[PlannedDamage]] = {cluster_id: [] for cluster_id in sorted(groups)}
    named = [(cluster_id, one.plan) for cluster_id, those in groups.items() if cluster_id for one in those]
    folders = {f"{printable(plan.path)}/": cluster_id for cluster_id, plan in named}
    for damage in damages:
        owners = {cluster_id for folder, cluster_id in folders.items() if f"{damage.path}/".startswith(folder)}
        if not owners:
            owners = set(found) if leaves_unread(damage.reason, damage.detail) else {next(iter(found))}
        for cluster_id in owners:
            found[cluster_id].append(damage)
    return found


def plan_cluster(
    roots: Sequence[str],
    *,
    open_storage: OpenStorage,
    captured_at_ms: int,
    name: str,
    number: int = 0,
    cluster_id: str | None = None,
    dialect: Dialect = Dialect.KIP853,
    defaults: Iterable[tuple[str, str]] = (),
) -> ClusterPlan:
    """The plan of one cluster whose replicas lie below several paths, as a fleet's owner says they do.

    `cluster_id` is the expected one; without it, the one that most replicas name. Replicas of another are kept in the
    plan, to be refused and named. A path that cannot be read is damage, unless none can: then InputError.
    """
    found: list[_Found] = []
    damages: list[PlannedDamage] = []
    failures: list[InputError] = []
    for root in roots:
        try:
            here, damage = _look(root, open_storage, captured_at_ms, dialect)
        except InputError as error:
            failures.append(error)
            damages.append(PlannedDamage(root, "", 0, 0, Reason.UNREADABLE, error.detail))
            continue
        found += here
        damages += damage
    if not found:
        if failures:
            raise failures[0]
        raise InputError(", ".join(roots), _why_nothing(damages))
    named = Counter(one.plan.cluster_id for one in found if one.plan.cluster_id)
    if cluster_id is None:
        cluster_id = min(named, key=lambda one: (-named[one], one)) if named else ""
    return ClusterPlan(
        number,
        name,
        cluster_id,
        dialect,
        _in_time(found),
        tuple(sorted(defaults)),
        damages=tuple(damages),
        captured_at_ms=captured_at_ms,
    )


def _look(
    root: str, open_storage: OpenStorage, captured_at_ms: int, dialect: Dialect
) -> tuple[list[_Found], list[PlannedDamage]]:
    with open_storage(root) as storage:
        discovery = discover(storage)
        found = [_replica(root, storage, replica, captured_at_ms, dialect) for replica in discovery.replicas]
    return found, [_planned(root, damage) for damage in discovery.damages]


def _planned(root: str, damage: Damage) -> PlannedDamage:
    return PlannedDamage(root, damage.path, damage.position, damage.length_bytes, damage.reason, damage.detail)


def _why_nothing(damages: Sequence[PlannedDamage]) -> str:
    if damages:
        first = damages[0]
        return f"no metadata log (__cluster_metadata-0) was found; {first.path or 'it'}: {first.detail}"
    return "no metadata log (__cluster_metadata-0) was found"


def capture_named(asked: str, replicas: Iterable[ReplicaPlan]) -> str:
    """The capture as replicas know it: where there is only one, it has no name, and is asked for by its folder's."""
    replicas = list(replicas)
    return "" if asked == _sole_folder(replicas) and {one.capture for one in replicas} == {""} else asked


def captures_text(replicas: Iterable[ReplicaPlan]) -> str:
    """Which captures there are, for whoever asked for another."""
    replicas = list(replicas)
    names = sorted({one.capture for one in replicas} - {""})
    if names:
        return f"there are {', '.join(names)}"
    folder = _sole_folder(replicas)
    return f"there is one alone, {folder}" if folder else "there is one alone, and it needs no name"


def _sole_folder(replicas: Sequence[ReplicaPlan]) -> str | None:
    """The name of the folder that all node dirs lie in, where there is one."""
    folders = {one.path.rpartition("/")[0] for one in replicas}
    return folders.pop().rpartition("/")[2] or None if len(folders) == 1 else None


def _replica(root: str, storage: Storage, replica: ReplicaDir, captured_at_ms: int, dialect: Dialect) -> _Found:
    meta = _read_small(lambda: read_meta(storage, replica))
    state = _read_small(lambda: read_quorum_state(storage, replica, dialect))
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
        files=tuple(_file(replica, file) for file in files),
        log_dir=replica.path,
        medium=storage.medium(replica.path),
    )
    end_estimate = max(((file.base_offset or 0, file.size_bytes) for file in segments), default=(-1, 0))
    heads = frozenset(head for file in segments if (head := _head(storage, file)) is not None)
    epoch, leader_id = (state.leader_epoch, state.leader_id) if state else (-1, -1)
    return _Found(plan, epoch, leader_id, end_estimate, heads)


def _read_small(read: Callable[[], tuple[_Value | None, Sequence[Damage]]]) -> _Value | None:
    """What a small file says. Read again where it failed: the order of captures hangs on it.

    What fails for good is told when the replica is read.
    """
    value, damages = read()
    return value if value is not None or not damages else read()[0]


def _file(replica: ReplicaDir, file: FileEntry) -> FilePlan:
    name = file.path[len(replica.node_dir) :].lstrip("/")
    return FilePlan(name, file.kind, file.base_offset, file.epoch, file.size_bytes, file.mtime_ms)


def _head(storage: Storage, file: FileEntry) -> _Head | None:
    """A segment's first batch by offset, epoch and CRC: no two clusters share one."""
    try:
        with storage.open(file.path) as opened:
            if opened.size_bytes < HEADER_BYTES:
                return None
            header = read_header(opened.read_at(0, HEADER_BYTES).data, 0)
    except CodecError:
        return None
    return (header.base_offset, header.leader_epoch, header.crc)


def _cluster_by_content(one: _Found, found: Sequence[_Found]) -> str:
    shared = {other.plan.cluster_id for other in found if other.plan.cluster_id and other.heads & one.heads}
    return shared.pop() or "" if len(shared) == 1 else ""


def _in_time(found: Sequence[_Found]) -> tuple[ReplicaPlan, ...]:
    """Numbers the captures: epochs and ends grow in time, whatever copying did to the times of files; then by name."""
    by_capture: dict[tuple[str, str], list[_Found]] = defaultdict(list)
    for one in found:
        by_capture[(one.plan.capture, "")].append(one)
    for (capture, _), members in list(by_capture.items()):
        identities = [member.plan.identity for member in members]
        if len(set(identities)) < len(identities):
            # One replica twice in what has one name: the paths that were given are captures themselves.
            del by_capture[(capture, "")]
            for member in members:
                by_capture[(capture, member.plan.root)].append(member)
    ordered = sorted(by_capture, key=lambda key: (natural(key[0]), natural(key[1])))

    def in_order(first: tuple[str, str], second: tuple[str, str]) -> int:
        return _in_which_order(by_capture[first], by_capture[second])

    ordered.sort(key=cmp_to_key(in_order))
    plans = [replace(one.plan, capture_number=number) for number, key in enumerate(ordered) for one in by_capture[key]]
    return tuple(sorted(plans, key=lambda plan: plan.sort_key))


def _in_which_order(first: Sequence[_Found], second: Sequence[_Found]) -> int:
    """Negative where the first capture is the earlier one, 0 where epochs and ends do not tell.

    No replica's epoch goes back. One replica's end may: it held what an older leader wrote, or a crash took bytes that
    were not synced yet (facts 7.5), even in one epoch, and observers lose more of them than voters. A leader's log only
    grows while it leads; where no leader was captured, what a majority reached does not go back. What else tells the
    order is found when the logs have been read (`capture_order`): nothing is proven by this one.
    """
    before = {one.plan.identity: one for one in first}
    both = [(before[one.plan.identity], one) for one in second if one.plan.identity in before]
    steps = sum(early.epoch - late.epoch for early, late in both)
    if steps:
        return steps
    # After the disks that are in both: one that was left behind alone may have gone on raising its epoch.
    newest = max(one.epoch for one in first), max(one.epoch for one in second)
    if newest[0] != newest[1]:
        return newest[0] - newest[1]
    led = [pair for pair in both if all(_leads(one, newest[0]) for one in pair)]
    grown = led or [(early, late) for early, late in both if max(early.end_estimate, late.end_estimate) > _EMPTY]
    ends = (_majority_end(early for early, _ in grown), _majority_end(late for _, late in grown))
    if not both:
        ends = (_end_in(first, newest[0]), _end_in(second, newest[1]))
    return (ends[0] > ends[1]) - (ends[0] < ends[1])


def _leads(one: _Found, epoch: int) -> bool:
    return one.epoch == epoch and one.leader_id == one.plan.node_id


def _majority_end(members: Iterable[_Found]) -> tuple[int, int]:
    """The end that a majority reached."""
    ends = sorted((member.end_estimate for member in members), reverse=True)
    return ends[len(ends) // 2] if ends else _EMPTY


def _end_in(members: Sequence[_Found], epoch: int) -> tuple[int, int]:
    return max(member.end_estimate for member in members if member.epoch == epoch)
