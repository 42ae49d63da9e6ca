"""Which history of the lake each log of a fleet's entry is. An id is given once and kept.

A log is joined to the history that an earlier plan read from the same folder, as long as the folder's newest known
batch is still there, or from the same directory id; to one with the same alias; and to one of whose batches it holds
one, or to which its snapshot connects. A log that joins none is a history of its own. Histories that a log joins are
one: the older id stays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kraft_audit.capture.found_log import BatchStamp, SnapshotStamp
from kraft_audit.capture.histories import history_stamps, split_histories
from kraft_audit.capture.plan import ClusterPlan, ReplicaPlan, cluster_id_of, history_id
from kraft_audit.capture.scanner import header_at
from kraft_audit.lake.ledger_state import Archive, LedgerFile, LedgerState
from kraft_audit.tables.bronze import BATCH_KEY
from kraft_codec.file_names import FileKind, printable
from kraft_codec.storage.random_access import Storage, join

StorageOf = Callable[[str], Storage]
FileKey = tuple[str, str, str]
FolderKey = tuple[str, str]
Holders = Callable[[str, Sequence[BatchStamp], Sequence[SnapshotStamp]], set[str]]
"""The ids of the histories of a cluster id that the lake holds such batches of."""
STAMPS_MAX: Final = 200
"""So many batches of a log are looked for in the lake."""


@dataclass(frozen=True, slots=True)
class ReadHistory:
    """One history as it lies on the disks. `ids` are those that its folders had; the stamps are of one without any."""

    plan: ClusterPlan
    ids: frozenset[str] = frozenset()
    batches: tuple[BatchStamp, ...] = ()
    snapshots: tuple[SnapshotStamp, ...] = ()


@dataclass(frozen=True, slots=True)
class LedgerIndex:
    """The ledger's files and states, by what planning looks them up.

    `by_disk` has the history of each (node id, directory id), `merged` the id that stayed of each that did not.
    """

    files: Mapping[FileKey, LedgerFile]
    by_folder: Mapping[FolderKey, Mapping[str, LedgerFile]]
    by_disk: Mapping[tuple[int | None, str | None], str]
    states: Mapping[str, LedgerState]
    archives: frozenset[Archive]
    merged: Mapping[str, str]

    @classmethod
    def of(cls, files: Mapping[FileKey, LedgerFile], states: Mapping[str, LedgerState]) -> LedgerIndex:
        by_folder: dict[FolderKey, dict[str, LedgerFile]] = {}
        by_disk: dict[tuple[int | None, str | None], str] = {}
        for (root, path, name), file in files.items():
            by_folder.setdefault((root, path), {})[name] = file
            if file.directory_id:
                by_disk[file.node_id, file.directory_id] = file.cluster_id
        archives = frozenset(archive for state in states.values() for archive in state.archives)
        merged = {gone: id_ for id_, state in states.items() for gone in state.merged}
        return cls(files, by_folder, by_disk, states, archives, merged)


def read_histories(plan: ClusterPlan, known: LedgerIndex, storage_of: StorageOf) -> list[ReadHistory]:
    """The histories of an entry, the newest first.

    Where every folder is known and still holds what was read there, of one history with an alias, nothing is read but
    one header of each changed replica.
    """
    ids: dict[int, str] = {}
    for replica in plan.replicas:
        of_disk = known.by_disk.get((replica.node_id, replica.directory_id))
        if (id_ := _known_id(replica, known.by_folder, storage_of) or of_disk) is not None:
            id_ = known.merged.get(id_, id_)
            if cluster_id_of(id_) == plan.cluster_id:
                ids[id(replica)] = id_
    is_known = len(ids) == len(plan.replicas) and len(set(ids.values())) == 1
    is_mixed = set(ids.values()) & {state.split_from for state in known.states.values()}
    if (
        is_known
        and not is_mixed
        and (state := known.states.get(next(iter(ids.values())))) is not None
        and state.aliases
    ):
        only = next(iter(ids.values()))
        return [ReadHistory(replace(plan, history_id=only), frozenset({only}))]
    has_others = any(each.startswith(plan.cluster_id) for each in known.states)
    histories = []
    for own in split_histories(plan, storage_of):
        mine = {ids[id(replica)] for replica in own.replicas if id(replica) in ids}
        is_new = not mine and has_others
        batches, snapshots = history_stamps(own, storage_of) if is_new else ([], [])
        histories.append(ReadHistory(own, frozenset(mine), tuple(batches[:STAMPS_MAX]), tuple(snapshots)))
    return histories


def _known_id(
    replica: ReplicaPlan, by_folder: Mapping[FolderKey, Mapping[str, LedgerFile]], storage_of: StorageOf
) -> str | None:
    """The history that was read from this folder, where the folder still holds the newest batch that is left of it."""
    known = by_folder.get((printable(replica.root), printable(replica.path)), {})
    logs = {printable(file.name): file for file in replica.files if file.kind == FileKind.SEGMENT}
    read = [file for name, file in known.items() if name in logs and file.scan.last_batch is not None]
    if not known or (logs and not read):
        return None
    for file in sorted(read, key=lambda file: file.base_offset or 0, reverse=True):
        now, before = logs[file.file_name], file.scan
        if (now.size_bytes, now.mtime_ms) == (before.size_bytes, before.mtime_ms) or _still_holds(
            replica, now.name, file, storage_of
        ):
            return file.cluster_id
    return None if read else next(iter(known.values())).cluster_id


def _still_holds(replica: ReplicaPlan, name: str, file: LedgerFile, storage_of: StorageOf) -> bool:
    last = file.scan.last_batch
    if last is None:
        return False
    header = header_at(storage_of(replica.root), join(replica.path, name), last.position)
    return header is not None and all(getattr(header, name) == getattr(last, name) for name in BATCH_KEY)


def named_histories(
    histories: Sequence[ReadHistory], states: Mapping[str, LedgerState], holders: Holders
) -> list[ClusterPlan]:
    """The plans of one entry's histories, each with its id."""
    ids = [_without_origins(each, _joined_ids(each, states, holders), states) for each in histories]
    origins = [""] * len(histories)
    for id_ in {id_ for own in ids for id_ in own}:
        claims = [number for number, own in enumerate(ids) if id_ in own]
        aliases = states[id_].aliases if id_ in states else ()
        keeps = next((number for number in claims if set(aliases) & set(histories[number].plan.aliases)), claims[0])
        for number in claims:
            if number != keeps:
                ids[number] = ids[number] - {id_}
                origins[number] = origins[number] or id_
    given = {*states, *(id_ for own in ids for id_ in own)}
    plans = []
    for each, own, origin in zip(histories, ids, origins, strict=True):
        plan = each.plan
        if not own:
            plain = plan.cluster_id not in given
            id_ = plan.cluster_id if plain else history_id(plan.cluster_id, plan.aliases)
            given.add(id_)
            plans.append(replace(plan, history_id=id_, first_plan=plan.number, split_from=origin))
            continue
        oldest = min(own, key=lambda id_: (states[id_].first_plan if id_ in states else plan.number, len(id_), id_))
        state = states.get(oldest, LedgerState())
        aliases = tuple(sorted({*state.aliases, *plan.aliases}))
        new_aliases = aliases if set(aliases) != set(state.aliases) else ()
        merged = tuple(sorted(own - {oldest}))
        known = replace(plan, first_plan=state.first_plan, split_from=state.split_from)
        plans.append(replace(known, history_id=oldest, aliases=new_aliases, merged=merged))
    return plans


def _without_origins(each: ReadHistory, ids: frozenset[str], states: Mapping[str, LedgerState]) -> frozenset[str]:
    """The ids without those that a history was split from: its folders were once read under them."""
    origins = {states[id_].split_from for id_ in ids if id_ in states}
    return frozenset(
        id_ for id_ in ids if id_ not in origins or set(states.get(id_, LedgerState()).aliases) & set(each.plan.aliases)
    )


def _joined_ids(each: ReadHistory, states: Mapping[str, LedgerState], holders: Holders) -> frozenset[str]:
    """The ids of all histories that a log proves to be."""
    plan = each.plan
    if not plan.aliases:
        return each.ids
    gone = {id_ for state in states.values() for id_ in state.merged}
    same = {
        id_
        for id_, state in states.items()
        if id_.startswith(plan.cluster_id)
        and cluster_id_of(id_) == plan.cluster_id
        and set(state.aliases) & set(plan.aliases)
    }
    if not each.ids and not same and (each.batches or each.snapshots):
        same = holders(plan.cluster_id, each.batches, each.snapshots)
    return each.ids | (same - gone)
