"""Random states of a controller quorum as log dirs, beside the truth about them that `election_model` plays.

`SmallRaft` gives the history. Then chance wipes disks, leaves some uncaptured, gives the nodes of a static quorum
configurations that agree or do not, and writes what a copier finds. No code of the audit takes part.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from kraft_codec.file_names import METADATA_LOG_DIR, segment_name, snapshot_name
from kraft_codec.files.properties import format_meta_properties, meta_properties
from kraft_codec.files.state_files import EpochEntry, QuorumState, format_leader_epoch_checkpoint, format_quorum_state
from kraft_codec.schemas import ZERO_UUID
from kraft_codec.text.java_text import uuid_text
from tests.builders.election_model import Disk, Moment
from tests.builders.logs import CLUSTER_ID, Log
from tests.builders.small_raft import Entry, Node, SmallRaft

STEPS: Final = (40, 80, 160)
STEPS_MAX: Final = 1_000
"""It goes on until something is committed: most histories that are shorter are empty."""
OBSERVER: Final = 9
ADDED: Final = (6, 7)
"""Nodes that a static quorum gets later."""
CONFIGURATIONS: Final = ("agree", "agree", "scaled out", "restarted apart", "emptied", "changed in silence")
"""How the configurations of a static quorum stand to each other."""
Voters = tuple[int, ...]


class FormattedRaft(SmallRaft):
    """As Kafka does it: the first leader of a dynamic quorum writes version and voters to its log."""

    def fetch(self) -> None:
        """The three records of the first batch are fetched together."""
        super().fetch()
        for node in self.nodes.values():
            leader = self.nodes.get(node.leader)
            if not self.static and leader is not None and 0 < len(node.log) < FIRST_BATCH:
                node.log.extend(leader.log[len(node.log) : FIRST_BATCH])

    def elect(self) -> None:
        super().elect()
        for node in self.leaders():
            if not self.static and len(node.log) == 1:
                for entry in ((node.epoch, "version", 1), (node.epoch, "voters", self.first)):
                    node.log.append(entry)
                    self.epoch_logs[node.epoch].append(entry)


@dataclass(frozen=True, slots=True)
class NodeTruth:
    """One node. `configured` is what controller.quorum.voters reads at its next start, `shown` what its quorum-state
    repeats of that, None where it has no quorum-state. `formatted_with` is the set of its 0-0 checkpoint."""

    node: Node
    configured: Voters = ()
    shown: Voters | None = None
    formatted_with: Voters | None = None

    def voters(self, *, static: bool) -> Voters | None:
        """The set by which it goes."""
        if static:
            return self.configured
        return next((entry[2] for entry in reversed(self.node.log) if entry[1] == "voters"), self.formatted_with)  # type: ignore[return-value]


class QuorumOnDisk:
    """A state by its seed: `truth` by node id, what is committed, and who was captured below `out`."""

    def __init__(self, seed: int, out: Path) -> None:
        self.chance = random.Random(seed)  # noqa: S311
        self.out = out
        self.static = self.chance.random() < 0.6
        self.raft = FormattedRaft(seed, static=self.static, voter_count=self.chance.choice((1, 2, 3, 3, 3, 4, 5)))
        earlier = self._play()
        self.committed: tuple[Entry, ...] = tuple(self.raft.committed_log)
        self.truth = {node_id: self._formatted(node) for node_id, node in self.raft.nodes.items()}
        self.configurations = self.chance.choice(CONFIGURATIONS) if self.static else "dynamic"
        self._configure()
        self.has_accidents = self.chance.random() < 0.5
        self.forgetful: set[int] = set()
        for node_id in sorted(self.voter_ids()) if self.has_accidents else ():
            self._befall(node_id)
        nodes = sorted(self.voter_ids() | {node for node in self.truth if self.static and node in ADDED})
        reads_all = self.chance.random() < 0.5
        self.captured = {node for node in nodes if reads_all or self.chance.random() < 0.8} or {nodes[0]}
        if self.chance.random() < 0.3:
            self.captured.add(OBSERVER)
        self.is_all_read = self.captured >= set(nodes)
        self.has_earlier = earlier is not None
        if earlier is not None:
            self._write("hour-1", earlier, set(earlier))
        self._write("hour-2", self.truth, self.captured)

    def _play(self) -> dict[int, NodeTruth] | None:
        steps = self.chance.choice(STEPS)
        earlier_at = self.chance.randrange(steps) if self.chance.random() < 0.3 else None
        earlier = None
        for step in range(STEPS_MAX):
            if step >= steps and self.raft.committed:
                break
            if step == earlier_at:
                nodes = {i: node for i, node in deepcopy(self.raft.nodes).items() if i != OBSERVER}
                earlier = {i: self._formatted(node) for i, node in nodes.items()}
            self.raft.step()
        return earlier

    def _formatted(self, node: Node) -> NodeTruth:
        first = self.raft.first
        if self.static:
            return NodeTruth(node, first, first)
        return NodeTruth(node, shown=(), formatted_with=first if node.node_id in first else None)

    def _configure(self) -> None:
        """What the nodes of a static quorum read now, and at their last start."""
        first, chance = self.raft.first, self.chance
        nodes = [node for node in self.truth if node in first]
        added = ADDED[: chance.randint(1, 2)]
        if self.configurations == "scaled out":
            wide = (*first, *added)
            for node_id in added:
                self.truth[node_id] = NodeTruth(Node(node_id), wide)
            restarted = set(chance.sample(nodes, chance.choice((0, 0, len(nodes)))))
            for node_id in nodes:
                self._reconfigure(node_id, wide, is_shown=node_id in restarted)
        elif self.configurations in ("restarted apart", "emptied"):
            other = () if self.configurations == "emptied" else chance.choice((first[:1], first[1:], (*first, *added)))
            for node_id in set(other) - set(first):  # it was started, and heard of nobody
                self.truth[node_id] = NodeTruth(Node(node_id), other, other)
            for node_id in chance.sample(nodes, chance.randint(1, len(nodes))):
                self._reconfigure(node_id, other, is_shown=True)
        elif self.configurations == "changed in silence":
            for node_id in chance.sample(nodes, chance.randint(1, len(nodes))):
                self._reconfigure(node_id, first[:1], is_shown=False)

    def _reconfigure(self, node_id: int, voters: Voters, *, is_shown: bool) -> None:
        known = self.truth[node_id]
        self.truth[node_id] = replace(known, configured=voters, shown=voters if is_shown else known.shown)
        if is_shown:  # it was started again, and leads nothing
            known.node.leads = False

    def _befall(self, node_id: int) -> None:
        """Perhaps wipes the disk, or its quorum-state alone."""
        drawn = self.chance.random()
        if drawn >= 0.3:
            return
        node = self.truth[node_id].node
        self.forgetful.add(node_id)
        node.epoch, node.leader, node.voted, node.leads = 0, -1, -1, False
        self.truth[node_id] = replace(self.truth[node_id], shown=None)
        if drawn < 0.15:
            node.log = []
            self.truth[node_id] = replace(self.truth[node_id], formatted_with=None)

    # What there is

    def voter_ids(self) -> set[int]:
        """Everybody whom a set names that some node goes by or went by, among the nodes that there are."""
        sets = [known.voters(static=self.static) or () for known in self.truth.values()] + [self.raft.first]
        sets += [entry[2] for log in self.raft.epoch_logs.values() for entry in log if entry[1] == "voters"]  # type: ignore[misc]
        return {node for voters in sets for node in voters if node in self.truth}

    def moment(self, running: Collection[int], configured: Mapping[int, Voters] | None = None) -> Moment:
        """The truth of those that run. `configured` overrides what they read at their next start."""
        disks = []
        for node_id in sorted(running):
            known = self.truth[node_id]
            if configured is not None and node_id in configured:
                known = replace(known, configured=tuple(configured[node_id]))
            node, voters = known.node, known.voters(static=self.static)
            log = tuple(node.log)
            disks.append(Disk(node_id, log, node.epoch, node.voted, node.leader, node.leads, voters or None))
        return Moment(tuple(disks), self.committed)

    # On disk

    def _write(self, capture: str, truth: Mapping[int, NodeTruth], captured: Collection[int]) -> None:
        for node_id in sorted(captured):
            self._write_node(self.out / capture / f"node-{node_id}", truth[node_id])

    def _write_node(self, folder: Path, known: NodeTruth) -> None:
        node, log_dir = known.node, folder / METADATA_LOG_DIR
        log_dir.mkdir(parents=True)
        identity = meta_properties(cluster_id=CLUSTER_ID, node_id=node.node_id, directory_id=directory_of(node.node_id))
        (folder / "meta.properties").write_bytes(format_meta_properties(identity))
        (log_dir / segment_name(0)).write_bytes(b"".join(self._batches(node.log)))
        starts: dict[int, int] = {}
        for offset, entry in enumerate(node.log):
            starts.setdefault(entry[0], offset)
        entries = [EpochEntry(epoch, offset) for epoch, offset in starts.items()]
        (log_dir / "leader-epoch-checkpoint").write_bytes(format_leader_epoch_checkpoint(entries))
        if known.shown is not None:
            (log_dir / "quorum-state").write_bytes(format_quorum_state(self._state(known)))
        if known.formatted_with is not None:
            checkpoint = Log(epoch=0)
            checkpoint.control("SNAPSHOT_HEADER", {"version": 0, "lastContainedLogTimestamp": 0})
            checkpoint.control("KRAFT_VERSION", {"version": 0, "kRaftVersion": 1})
            checkpoint.control("KRAFT_VOTERS", voters_record(known.formatted_with))
            checkpoint.control("SNAPSHOT_FOOTER", {"version": 0})
            (log_dir / snapshot_name(0, 0)).write_bytes(checkpoint.content)

    def _state(self, known: NodeTruth) -> QuorumState:
        node = known.node
        if self.static:
            return QuorumState(0, node.leader, node.epoch, node.voted, current_voters=known.shown)
        voted = directory_of(node.voted) if node.voted >= 0 else uuid_text(ZERO_UUID)
        return QuorumState(1, node.leader, node.epoch, node.voted, voted, current_voters=None)

    def _batches(self, entries: list[Entry]) -> list[bytes]:
        log = Log()
        for offset, (epoch, kind, what) in enumerate(entries):
            if offset == 0 and not self.static:
                self._first_batch(log, epoch, what)  # type: ignore[arg-type]
            elif offset < FIRST_BATCH and not self.static:
                continue
            elif kind == "leader":
                voters = self.raft.voters_of(entries[:offset])
                log.control("LEADER_CHANGE", self._leader_change(epoch, what, voters), epoch=epoch)  # type: ignore[arg-type]
            elif kind == "voters":
                log.control("KRAFT_VOTERS", voters_record(what), epoch=epoch)  # type: ignore[arg-type]
            else:
                log.topic(f"t{what}", epoch=epoch)
        return log.batches

    def _leader_change(self, epoch: int, leader: int, voters: Voters) -> dict[str, Any]:
        granting = [{"voterId": voter} for voter in self.raft.granted[epoch] if voter in voters]
        listed = [{"voterId": voter} for voter in voters]
        return {"version": 0, "leaderId": leader, "voters": listed, "grantingVoters": granting}

    def _first_batch(self, log: Log, epoch: int, leader: int) -> None:
        first = self.raft.first
        log.controls(
            ("LEADER_CHANGE", self._leader_change(epoch, leader, first)),
            ("KRAFT_VERSION", {"version": 0, "kRaftVersion": 1}),
            ("KRAFT_VOTERS", voters_record(first)),
            epoch=epoch,
        )


FIRST_BATCH: Final = 3
"""Records of the first batch of a dynamic quorum: LeaderChange, KRaftVersion, KRaftVoters."""


def directory_of(node_id: int) -> str:
    """The directory id of a node's disk."""
    return uuid_text(b"d" * 15 + bytes([node_id]))


def voters_record(voters: Voters) -> dict[str, Any]:
    """A KRaftVotersRecord of these voters."""
    return {
        "version": 0,
        "voters": [
            {
                "voterId": voter,
                "voterDirectoryId": b"d" * 15 + bytes([voter]),
                "endpoints": [{"name": "CONTROLLER", "host": "127.0.0.1", "port": 9000 + voter}],
                "kRaftVersionFeature": {"minSupportedVersion": 0, "maxSupportedVersion": 1},
            }
            for voter in voters
        ],
    }
