"""Batches that disks hold with different bytes at the same offset and epoch, though each has a valid CRC.

Equal batches mean equal logs before them (log matching), unless somebody changed bytes and renewed the CRC. Then logs
part and rejoin, or part within one leader's epoch, which no leader does. The version that most voters hold is taken for
the log; whether a majority of the voters bears it out is for the rules to say.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kraft_audit.capture.plan import ReplicaPlan

Disk = Hashable


@dataclass(frozen=True, slots=True)
class AlteredRun:
    """Offsets [from_offset, to_offset) that disks hold in several versions, each a branch of its own.

    `versions` are (branch, numbers of the replicas that hold it): the one that is taken for the log comes first.
    `is_tied` where another one may as well be it. `rejoins` where the logs agree again after it.
    """

    from_offset: int
    to_offset: int
    epoch: int
    versions: tuple[tuple[int, tuple[int, ...]], ...]
    is_tied: bool
    rejoins: bool


@dataclass(frozen=True, slots=True)
class Rejoin:
    """A batch that follows different batches in different replicas: the replicas by the branch that it follows."""

    followed: int
    replicas_of: Mapping[int, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class AlteredBatches:
    """An altered run with the replicas that hold each version, each disk once: the version that is taken first."""

    from_offset: int
    to_offset: int
    epoch: int
    versions: tuple[tuple[ReplicaPlan, ...], ...]
    is_tied: bool
    rejoins: bool

    @classmethod
    def of(cls, run: AlteredRun, replicas: Sequence[ReplicaPlan]) -> AlteredBatches:
        """`replicas`: the plans by the numbers in the run, in the order of their captures."""
        versions = tuple(
            tuple({replicas[number].identity: replicas[number] for number in numbers}.values())
            for _, numbers in run.versions
        )
        return cls(run.from_offset, run.to_offset, run.epoch, versions, run.is_tied, run.rejoins)


def most_held(
    replicas_of: Mapping[int, Iterable[int]], disks: Sequence[Disk], voting: Container[int] = ()
) -> tuple[int, bool]:
    """The key of the version that is taken for the log, the smallest of several; and whether there are several.

    `voting`: the replicas of voters. Two of them outweigh all that is no voter's; without two that agree most disks
    decide, unless a voter contradicts them. A disk that was captured often counts once.
    """
    held = {key: {disks[number] for number in replicas} for key, replicas in replicas_of.items()}
    by_voters = {key: {disks[each] for each in replicas if each in voting} for key, replicas in replicas_of.items()}
    most = max(map(len, by_voters.values()))
    best = [key for key in sorted(held) if len(by_voters[key]) == most]
    if most > 1:
        return best[0], len(best) > 1
    largest = max(map(len, held.values()))
    first, *others = [key for key in sorted(held) if len(held[key]) == largest]
    is_contradicted = any(by_voters[key] for key in held if key != first)
    return first, bool(others) or is_contradicted


def rejoined_runs(
    rejoins: Iterable[Rejoin],
    spans: Sequence[tuple[int, int, int]],
    paths: Sequence[frozenset[int]],
    starts: Sequence[int],
    disks: Sequence[Disk],
    voting: Container[int],
) -> list[AlteredRun]:
    """What was altered before logs agreed again.

    `spans`: (from, to, epoch) of each branch; `paths` and `starts`: of each replica the branches on the way to the end
    of its log, and the log's first offset. A log that begins after a run follows one of its versions and holds none.
    """
    runs = []
    for rejoin in rejoins:
        from_offset, to_offset, epoch = max(spans[branch] for branch in rejoin.replicas_of if branch != rejoin.followed)
        holders = {branch: set(replicas) for branch, replicas in rejoin.replicas_of.items()}
        known = set().union(*holders.values())
        for number, path in enumerate(paths):
            for branch in holders if number not in known and starts[number] < to_offset else ():
                if branch in path:
                    holders[branch].add(number)
        followed, is_tied = rejoin.followed, most_held(rejoin.replicas_of, disks, voting)[1]
        runs.append(_run(from_offset, to_offset, epoch, holders, followed, is_tied=is_tied, rejoins=True))
    return runs


def parted_runs(
    siblings: Mapping[tuple[int, int, int], Sequence[int]],
    spans: Sequence[tuple[int, int, int]],
    paths: Sequence[frozenset[int]],
    starts: Sequence[int],
    disks: Sequence[Disk],
    voting: Container[int],
) -> list[AlteredRun]:
    """What was altered where logs end. `siblings`: branches that part within an epoch, by (parent, offset, epoch)."""
    reached = frozenset().union(*paths)
    runs = []
    for (_, from_offset, epoch), branches in siblings.items():
        to_offset = min((spans[branch][1] for branch in branches if branch in reached), default=from_offset)
        holders: dict[int, set[int]] = defaultdict(set)
        for number, path in enumerate(paths):
            for branch in branches:
                if branch in path and starts[number] < to_offset:
                    holders[branch].add(number)
        if len(holders) > 1:
            followed, is_tied = most_held(holders, disks, voting)
            runs.append(_run(from_offset, to_offset, epoch, holders, followed, is_tied=is_tied, rejoins=False))
    return runs


def _run(
    from_offset: int,
    to_offset: int,
    epoch: int,
    holders: Mapping[int, set[int]],
    followed: int,
    *,
    is_tied: bool,
    rejoins: bool,
) -> AlteredRun:
    ordered = [followed, *sorted(branch for branch in holders if branch != followed)]
    versions = tuple((branch, tuple(sorted(holders[branch]))) for branch in ordered)
    return AlteredRun(from_offset, to_offset, epoch, versions, is_tied, rejoins)
