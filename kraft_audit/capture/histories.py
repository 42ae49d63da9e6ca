"""Which replicas of one cluster id hold one log, and which logs merely carry the same id.

A cluster.id is copied: images have a default, examples are pasted, formatting a disk again keeps it. A *history* is one
life of a metadata log, one chain of batches; replicas share it when they hold a common batch, or the same snapshot.
Replicas that share none still belong to one *quorum* where their voter sets name each other: somebody then began again,
or a leader wrote alone, and the rules judge them together. All others are split here, before anything is concluded from
them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import replace
from functools import partial
from typing import Final

from kraft_audit.capture.found_log import BatchStamp, FoundLog, SnapshotStamp
from kraft_audit.capture.plan import ClusterPlan, HistoryOf, HistorySummary, history_id
from kraft_audit.capture.silent_dirs import with_silent_dirs
from kraft_codec.storage.random_access import Storage

COPIED_IDS: Final = {
    "5L6g3nShT-eMCtK--X86sw": "the id that the official container image uses when none is set",
    "4L6g3nShT-eMCtK--X86sw": "the id of the apache/kafka image's examples",
    "MkU3OEVBNTcwNTJENDM2Qk": "the id of many published examples",
}
"""cluster.ids that many clusters have because none was chosen."""


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
