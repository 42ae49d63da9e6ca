"""A small KRaft with truth: random histories of a handful of nodes, and captures of their disks at different moments.

Just what the committed interval depends on: epochs persisted before anything is done in them, votes, fetches with
truncation, the leader's high watermark, voter changes by KIP-853's checks, snapshots below the high watermark.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from kraft_audit.quorum.quorum_evidence import (
    CapturedReplica,
    EpochRun,
    LeaderStart,
    LogChain,
    PersistedState,
    QuorumEvidence,
)
from kraft_audit.quorum.voter_history import Voter, VoterSet

Entry = tuple[int, str, tuple[int, ...] | int]
"""epoch, kind (leader, voters or data), payload: leader id, voter ids, serial number"""


@dataclass
class Node:
    node_id: int
    log: list[Entry] = field(default_factory=list)
    epoch: int = 0
    leader: int = -1
    voted: int = -1
    leads: bool = False
    high_watermark: int = 0
    acks: dict[int, int] = field(default_factory=dict)
    snapshot: int = 0
    start: int = 0


class SmallRaft:
    def __init__(self, seed: int, *, static: bool, voter_count: int | None = None) -> None:
        self.random = random.Random(seed)  # noqa: S311
        self.static = static
        voters = voter_count or self.random.choice([3, 3, 4, 5] if static else [3, 3, 3, 4, 5])
        self.first = tuple(range(1, voters + 1))
        spare = 0 if static else 2
        self.nodes = {i: Node(i) for i in range(1, voters + spare + 1)}
        self.nodes[9] = Node(9)  # an observer for ever
        self.epoch_logs: dict[int, list[Entry]] = {}
        self.granted: dict[int, tuple[int, ...]] = {}
        self.held: dict[tuple[int, int], int] = {}
        self.committed = 0
        self.committed_log: list[Entry] = []
        self.serial = 0

    def voters_of(self, log: list[Entry]) -> tuple[int, ...]:
        return next((e[2] for e in reversed(log) if e[1] == "voters"), self.first)  # type: ignore[return-value]

    def step(self) -> None:
        actions = [(self.elect, 1), (self.learn, 4), (self.fetch, 14), (self.append, 5), (self.resign, 1)]
        actions += [(self.take_snapshot, 1)] + ([] if self.static else [(self.change_voters, 2)])
        action = self.random.choices([a for a, _ in actions], [w for _, w in actions])[0]
        action()
        self.note_truth()

    def leaders(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.leads]

    def elect(self) -> None:
        node = self.random.choice(list(self.nodes.values()))
        voters = self.voters_of(node.log)
        if node.node_id not in voters or node.leads:
            return
        node.epoch, node.leader, node.voted = node.epoch + 1, -1, node.node_id
        granted = {node.node_id}
        for value in self.nodes.values():
            if value is node or self.random.random() < 0.3 or value.epoch > node.epoch:
                continue
            if value.epoch < node.epoch:
                value.epoch, value.leader, value.voted, value.leads = node.epoch, -1, -1, False
            up_to_date = self.end_of(node) >= self.end_of(value)
            if value.leader == -1 and value.voted in (-1, node.node_id) and up_to_date:
                value.voted = node.node_id
                granted.add(value.node_id)
        if len(granted & set(voters)) > len(voters) // 2 and self.random.random() < 0.9:
            node.leader, node.leads, node.voted, node.acks = node.node_id, True, -1, {}
            node.log.append((node.epoch, "leader", node.node_id))
            self.epoch_logs[node.epoch] = list(node.log)
            self.granted[node.epoch] = tuple(sorted(granted))

    @staticmethod
    def end_of(node: Node) -> tuple[int, int]:
        return (node.log[-1][0] if node.log else 0, len(node.log))

    def learn(self) -> None:
        if leaders := self.leaders():
            leader, node = self.random.choice(leaders), self.random.choice(list(self.nodes.values()))
            if node.epoch < leader.epoch or (node.epoch == leader.epoch and node.leader == -1):
                node.voted = node.voted if node.epoch == leader.epoch else -1
                node.epoch, node.leader, node.leads = leader.epoch, leader.node_id, False

    def fetch(self) -> None:
        followers = [
            (node, self.nodes[node.leader])
            for node in self.nodes.values()
            if node.leader > 0 and not node.leads and self.nodes[node.leader].leads
            and self.nodes[node.leader].epoch == node.epoch
        ]  # fmt: skip
        if not followers:
            return
        node, leader = self.random.choice(followers)
        common = 0
        while common < min(len(node.log), len(leader.log)) and node.log[common] == leader.log[common]:
            common += 1
        if common < len(node.log):
            assert common >= node.high_watermark, "a committed record would be truncated"
            node.log = node.log[:common]  # diverging: nothing is acknowledged
            return
        leader.acks[node.node_id] = len(node.log)
        self.advance(leader)
        node.log.extend(leader.log[len(node.log) : len(node.log) + self.random.randint(0, 3)])
        node.high_watermark = max(node.high_watermark, min(len(node.log), leader.high_watermark))

    def advance(self, leader: Node) -> None:
        voters = self.voters_of(leader.log)
        ends = sorted(
            (len(leader.log) if v == leader.node_id else leader.acks.get(v, -1) for v in voters), reverse=True
        )
        end = ends[len(ends) // 2]
        if end > self.start_of_epoch(leader) and end > leader.high_watermark:
            leader.high_watermark = end

    @staticmethod
    def start_of_epoch(leader: Node) -> int:
        return next(at for at, entry in enumerate(leader.log) if entry[0] == leader.epoch)

    def may_write(self, leader: Node) -> bool:
        return leader.high_watermark > self.start_of_epoch(leader)

    def append(self) -> None:
        for leader in self.leaders():
            if self.may_write(leader) and self.random.random() < 0.7:
                self.serial += 1
                self.write(leader, (leader.epoch, "data", self.serial))

    def change_voters(self) -> None:
        for leader in self.leaders():
            last = max((at for at, entry in enumerate(leader.log) if entry[1] == "voters"), default=-1)
            if not self.may_write(leader) or last >= leader.high_watermark:
                continue
            voters = set(self.voters_of(leader.log))
            others = [i for i in self.nodes if i not in voters and i != 9]
            if others and self.random.random() < 0.5:
                voters.add(self.random.choice(others))
            elif len(voters) > 2:
                voters.remove(self.random.choice(sorted(voters)))
            self.write(leader, (leader.epoch, "voters", tuple(sorted(voters))))

    def write(self, leader: Node, entry: Entry) -> None:
        leader.log.append(entry)
        self.epoch_logs[leader.epoch].append(entry)
        self.advance(leader)

    def resign(self) -> None:
        for leader in self.leaders():
            if self.random.random() < 0.3:
                leader.leads = False

    def take_snapshot(self) -> None:
        node = self.random.choice(list(self.nodes.values()))
        if node.high_watermark > node.snapshot and self.random.random() < 0.3:
            node.snapshot = self.random.randint(node.snapshot + 1, node.high_watermark)
            if self.random.random() < 0.5:
                node.start = node.snapshot

    def note_truth(self) -> None:
        """What is committed by definition: held in its epoch by a majority of a set in effect since it was written."""
        for node in self.nodes.values():
            end = next((at + 1 for at in range(len(node.log) - 1, -1, -1) if node.log[at][0] == node.epoch), None)
            if end is not None:
                key = (node.node_id, node.epoch)
                self.held[key] = max(self.held.get(key, 0), end)
        for epoch, log in self.epoch_logs.items():
            for end in range(len(log), self.committed, -1):
                if log[end - 1][0] != epoch:
                    break
                sets = [self.voters_of(log[:at]) for at in range(end, len(log) + 1)]
                if any(sum(self.held.get((v, epoch), 0) >= end for v in s) > len(s) // 2 for s in sets):
                    assert log[: self.committed] == self.committed_log, "committed records were lost"
                    self.committed, self.committed_log = end, log[:end]
                    break
        assert all(node.high_watermark <= self.committed for node in self.nodes.values())


@dataclass(frozen=True)
class Captured:
    evidence: QuorumEvidence
    committed_at_start: int
    committed_at_end: int


def capture(raft: SmallRaft, node_ids: list[int], *, at_rest: bool = False) -> Captured:
    """Reads some disks one after the other while the quorum goes on; quorum-state after the log of the same node."""

    def pass_time() -> None:
        for _ in range(0 if at_rest else raft.random.choice([0, 0, 1, 5, 20])):
            raft.step()

    committed_at_start = raft.committed
    replicas = []
    for node_id in node_ids:
        pass_time()
        node = raft.nodes[node_id]
        log, start, snapshot = list(node.log), node.start, node.snapshot
        pass_time()
        persisted = PersistedState(node.epoch, node.leader, node.voted) if node.epoch else None
        snapshots = ((snapshot, log[snapshot - 1][0]),) if snapshot else ()
        chain = _branch(raft, log, start)
        replicas.append(CapturedReplica(node_id, f"d{node_id}", chain.runs, snapshots, persisted, chain=chain))
    return Captured(QuorumEvidence.of(replicas), committed_at_start, raft.committed)


def _runs(log: list[Entry], start: int) -> tuple[EpochRun, ...]:
    runs: list[EpochRun] = []
    for at in range(start, len(log)):
        if runs and runs[-1].epoch == log[at][0]:
            runs[-1] = EpochRun(log[at][0], runs[-1].from_offset, at + 1)
        else:
            runs.append(EpochRun(log[at][0], at, at + 1))
    return tuple(runs)


def _branch(raft: SmallRaft, log: list[Entry], start: int) -> LogChain:
    leaders = {
        entry[0]: LeaderStart(entry[0], at, entry[2], granting=raft.granted[entry[0]])  # type: ignore[arg-type]
        for at, entry in enumerate(log)
        if at >= start and entry[1] == "leader"
    }
    base = raft.voters_of(log[:start])
    sets = [_voter_set(raft, start - 1, log[start - 1][0] if start else 0, base, first=not start, base=True)]
    sets += [
        _voter_set(raft, at, entry[0], entry[2], first=False)  # type: ignore[arg-type]
        for at, entry in enumerate(log)
        if at >= start and entry[1] == "voters"
    ]
    written = {entry[0] for entry in log[start:] if entry[1] == "data"}
    firsts = {epoch: leader.offset + 1 for epoch, leader in leaders.items() if epoch in written}
    return LogChain(_runs(log, start), leaders, tuple(sets), firsts)


def _voter_set(
    raft: SmallRaft, offset: int, epoch: int, voters: tuple[int, ...], *, first: bool, base: bool = False
) -> VoterSet:
    source = "static" if raft.static else "bootstrap" if first else "snapshot" if base else "log"
    members = tuple(Voter(i, None if raft.static else f"d{i}") for i in voters)
    return VoterSet(offset, epoch, None, source, 0 if raft.static else 1, members)
