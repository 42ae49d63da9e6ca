"""Every election that some disks can hold, played by brute force: a witness of what may be lost.

Written from KIP-595 and KIP-853, without the audit's code: an epoch is persisted before anything is done in it, one
vote an epoch, a vote only for a log that is not behind, the majority of the voters in the candidate's own log,
followers cut their log to the leader's, a leader commits records of its own epoch. Whoever is not named stays away.
A leader of an epoch before that of the last committed record is none: a majority has left its epoch behind.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations

from tests.builders.small_raft import Entry, SmallRaft

Log = tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Disk:
    """One node: `log`, the persisted epoch, vote and leader (-1 for none), and whether it leads its epoch."""

    node_id: int
    log: Log
    epoch: int
    voted: int
    leader: int
    leads: bool
    voters: tuple[int, ...] | None

    @property
    def end(self) -> tuple[int, int]:
        return (self.log[-1][0], len(self.log)) if self.log else (0, 0)


@dataclass(frozen=True, slots=True)
class Moment:
    disks: tuple[Disk, ...]
    committed: Log


def moment_of(raft: SmallRaft, running: set[int], voterless: set[int]) -> Moment:
    """The nodes that run, and what was committed. `voterless` know of no voter set: they never stand."""
    disks = []
    for node_id in sorted(running):
        node = raft.nodes[node_id]
        voters = None if node_id in voterless else raft.voters_of(node.log)
        disks.append(Disk(node_id, tuple(node.log), node.epoch, node.voted, node.leader, node.leads, voters))
    return Moment(tuple(disks), tuple(raft.committed_log))


def loss_within(moment: Moment, steps: int) -> bool:
    """Whether some schedule of so many steps elects a leader without a committed record, or commits over one."""
    seen, front = {moment.disks}, [moment]
    for _ in range(steps):
        following = []
        for current in front:
            for after in _steps(current):
                if after is None:
                    return True
                if after.disks not in seen:
                    seen.add(after.disks)
                    following.append(after)
        front = following
    return False


def _steps(moment: Moment) -> Iterator[Moment | None]:
    """What can happen next; None for a loss."""
    newest = max((disk.epoch for disk in moment.disks), default=0)
    for candidate in moment.disks:
        if candidate.voters is None or candidate.node_id not in candidate.voters:
            continue
        raised = moment.committed[-1][0] + 1 if moment.committed else newest
        for epoch in sorted({candidate.epoch + 1, max(newest, candidate.epoch, raised) + 1, newest} - {0}):
            if epoch > candidate.epoch:
                yield from _elections(moment, candidate, epoch)
    for leader in moment.disks:
        if leader.leads:
            yield from _commits(moment, leader)
            for follower in moment.disks:
                if _can_follow(follower, leader):
                    same = _common(follower.log, leader.log)
                    if same < len(follower.log):
                        yield _changed(moment, _following(follower, leader, follower.log[:same]))
                    yield _changed(moment, _following(follower, leader, follower.log[:same] + leader.log[same:]))


def _elections(moment: Moment, candidate: Disk, epoch: int) -> Iterator[Moment | None]:
    voters = candidate.voters or ()
    granting = [
        disk
        for disk in moment.disks
        if disk.node_id in voters
        and disk is not candidate
        and (disk.epoch < epoch or (disk.epoch == epoch and disk.leader == -1 and disk.voted == -1))
        and candidate.end >= disk.end
    ]
    counts = not moment.committed or epoch >= moment.committed[-1][0]
    for chosen in combinations(granting, len(voters) // 2):
        if counts and candidate.log[: len(moment.committed)] != moment.committed:
            yield None
            return
        log = (*candidate.log, (epoch, "leader", candidate.node_id))
        elected = replace(candidate, log=log, epoch=epoch, voted=-1, leader=candidate.node_id, leads=True)
        votes = (replace(d, epoch=epoch, voted=candidate.node_id, leader=-1, leads=False) for d in chosen)
        yield _changed(moment, elected, *votes)


def _commits(moment: Moment, leader: Disk) -> Iterator[Moment | None]:
    """The leader writes a record, and a majority of its voters fetches all it has."""
    voters = _last_voters(leader)
    able = [d for d in moment.disks if d.node_id in voters and _can_follow(d, leader)]
    needed = len(voters) // 2 + (leader.node_id not in voters)
    log = (*leader.log, (leader.epoch, "data", 10_000 + leader.node_id))
    for chosen in combinations(able, needed):
        if log[: len(moment.committed)] != moment.committed:
            yield None
            return
        fetched = [_following(d, leader, d.log[: _common(d.log, log)] + log[_common(d.log, log) :]) for d in chosen]
        if any(follower.log != log for follower in fetched):
            continue
        yield replace(_changed(moment, replace(leader, log=log), *fetched), committed=log)


def _last_voters(disk: Disk) -> tuple[int, ...]:
    return next((entry[2] for entry in reversed(disk.log) if entry[1] == "voters"), disk.voters or ())  # type: ignore[return-value]


def _can_follow(follower: Disk, leader: Disk) -> bool:
    if follower.node_id == leader.node_id or follower.epoch > leader.epoch:
        return False
    return follower.epoch < leader.epoch or follower.leader in (-1, leader.node_id)


def _common(mine: Log, theirs: Log) -> int:
    """As a fetch sees it: by epochs, which is all that a fetch compares."""
    same = 0
    while same < min(len(mine), len(theirs)) and mine[same][0] == theirs[same][0]:
        same += 1
    return same


def _following(follower: Disk, leader: Disk, log: Log) -> Disk:
    voted = follower.voted if follower.epoch == leader.epoch else -1
    changed = replace(follower, log=log, epoch=leader.epoch, leader=leader.node_id, leads=False, voted=voted)
    return replace(changed, voters=_last_voters(changed) if follower.voters is not None else None)


def _changed(moment: Moment, *changed: Disk) -> Moment:
    by_id = {disk.node_id: disk for disk in changed}
    return replace(moment, disks=tuple(by_id.get(disk.node_id, disk) for disk in moment.disks))
