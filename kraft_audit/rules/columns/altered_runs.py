"""Batches that disks hold in several versions: which one a majority of the voters holds, and how they came about."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kraft_audit.capture.altered_batches import AlteredBatches
from kraft_audit.capture.plan import ReplicaPlan
from kraft_audit.quorum.quorum_evidence import majority
from kraft_audit.rules.cluster_history import ClusterHistory, TableRow
from kraft_audit.rules.columns.log_batches import log_batches
from kraft_audit.rules.columns.voter_sets import keys_of, set_at, voter_ids
from kraft_audit.text.readable import listed, offset_span
from kraft_codec.file_names import printable


def decided_version(run: AlteredBatches, voters: TableRow | None) -> Sequence[ReplicaPlan] | None:
    """The version of an altered run that a majority of all voters holds; None where disks alone do not say which.

    One disk decides nothing against another: a sole voter's version needs more disks with it than against it.
    """
    for held in run.versions:
        count = 0 if voters is None else _holding(held, voters)
        is_backed = count > 1 or (held is run.versions[0] and not run.is_tied)
        if voters is not None and count >= majority(len(voters["voters"])) and is_backed:
            return held
    return None


def _holding(held: Sequence[ReplicaPlan], voters: TableRow) -> int:
    disks = {(replica.node_id, replica.directory_id) for replica in held}
    ids = {node_id for node_id, _ in disks}
    keys = keys_of(voters["voters"])
    return sum(key in disks if key[1] is not None else key[0] in ids for key in keys)


def open_runs(history: ClusterHistory) -> Iterator[AlteredBatches]:
    """The altered runs of which no majority of the voters in effect holds any version."""
    for run in history.altered or ():
        if decided_version(run, set_at(history, run.from_offset)) is None:
            yield run


def open_version(history: ClusterHistory) -> str | None:
    """Why no log is canonical where disks hold two versions of its newest batches (KQ022), with what would decide it.

    None where a majority decides, or nothing was altered.
    """
    run = next((run for run in open_runs(history) if run.is_tied and not run.rejoins), None)
    if run is None:
        return None
    sides = " and ".join(map(named_replicas, run.versions))
    where = offset_span(run.from_offset, run.to_offset)
    text = f"{sides} hold different bytes at {where} (KQ022), and no majority of the voters holds either"
    voters = set_at(history, run.from_offset)
    known = {replica.node_id for held in run.versions for replica in held}
    missing = sorted(voter_ids(voters) - known)
    if missing:
        return f"{text}; copy voter{'s' * (len(missing) > 1)} {listed(missing)} too, which may hold one of them"
    return f"{text}; an earlier copy of one of them would show which was changed"


def named_replica(replica: ReplicaPlan) -> str:
    return f"node {replica.node_id}" if replica.node_id is not None else f"replica at {printable(replica.path)}"


def named_replicas(replicas: Sequence[ReplicaPlan]) -> str:
    ids = sorted({replica.node_id for replica in replicas if replica.node_id is not None})
    return f"node{'s' * (len(ids) > 1)} {listed(ids)}" if ids else ", ".join(printable(each.path) for each in replicas)


class VersionCause(enum.StrEnum):
    """How disks came to hold two versions, as far as their batches show; the values name cases of KQ022's text."""

    ALTERED = "altered"
    RESTORED = "restored"
    BEGAN_AGAIN = "began_again"
    OUTVOTED = "outvoted"
    UNCLEAR = "unclear"


def cause_of(history: ClusterHistory, run: AlteredBatches, replica: ReplicaPlan) -> VersionCause:
    """Why a disk holds another version than the first one of a run.

    An epoch has one leader, who begins it with a LeaderChange and does not go on with it after a restart
    (QuorumState.initialize, Kafka 4.3.0). So where each version has a LeaderChange of its own, the epoch was led twice,
    by voters that had forgotten it; the later version is the one that was written again. Without one, a single leader
    wrote the epoch: a batch that alone differs between equal ones was changed afterwards.
    """
    first, named = (_held_within(history, run, each) for each in (run.versions[0][0], replica))
    if not first.count or not named.count:
        return VersionCause.UNCLEAR
    if first.places == named.places and first.times_ms == named.times_ms:
        return VersionCause.ALTERED
    is_same_before = first.before is not None and first.before == named.before
    if not first.begins_an_epoch and not named.begins_an_epoch:
        is_one_batch = first.places == named.places and first.count == 1
        return VersionCause.ALTERED if run.rejoins and is_same_before and is_one_batch else VersionCause.UNCLEAR
    is_led_twice = first.begins_an_epoch and named.begins_an_epoch and first.count > 1 and named.count > 1
    if not is_led_twice or first.times_ms[0] == named.times_ms[0]:
        return VersionCause.UNCLEAR
    if first.times_ms[0] > named.times_ms[0]:
        return VersionCause.OUTVOTED
    if is_same_before:
        return VersionCause.RESTORED
    return VersionCause.BEGAN_AGAIN if run.from_offset == 0 else VersionCause.UNCLEAR


@dataclass(frozen=True, slots=True)
class _Version:
    """What a replica holds of a run: (base offset, last offset, epoch) and the append time of each batch.

    `before` is the last batch before the run, with its CRC: branches may part earlier than the run begins.
    """

    places: tuple[tuple[int, int, int], ...]
    times_ms: tuple[int, ...]
    begins_an_epoch: bool
    before: tuple[int, int, int, int] | None

    @property
    def count(self) -> int:
        return len(self.places)


def _held_within(history: ClusterHistory, run: AlteredBatches, replica: ReplicaPlan) -> _Version:
    log = log_batches(history)
    names = ("node_id", "directory_id", "root", "path", "captured_at_ms", "capture_number")
    held = log.held_by({name: getattr(replica, name) for name in names})
    mine = np.flatnonzero(held & (log.last_offset < run.to_offset))
    mine = mine[np.argsort(log.base_offset[mine], kind="stable")]
    is_first = np.append(True, log.leader_epoch[mine][1:] > log.leader_epoch[mine][:-1])[: len(mine)]
    is_within = log.base_offset[mine] >= run.from_offset
    rows, earlier = mine[is_within], mine[~is_within]
    key = (log.base_offset, log.last_offset, log.leader_epoch, log.crc)
    columns = (log.base_offset[rows], log.last_offset[rows], log.leader_epoch[rows])
    return _Version(
        tuple(zip(*(column.tolist() for column in columns), strict=True)),
        tuple(log.timestamp_ms[rows].tolist()),
        bool((is_first & is_within & log.is_control[mine]).any()),
        tuple(int(column[earlier[-1]]) for column in key) if len(earlier) else None,  # type: ignore[arg-type]  # of four
    )
