"""Random runs of many elections: several candidates in one epoch, voters that restart in the middle of it."""

from __future__ import annotations

from typing import Any

from kraft_engine.consensus.messages import BeginQuorumEpochRequest, EndQuorumEpochRequest, FetchRequest, VoteRequest
from kraft_engine.consensus.raft import LEADER, NEVER, RaftNode
from kraft_engine.consensus.raft_settings import CLUSTER_ID
from kraft_engine.invariants.switches import ALL_ON, Switches
from kraft_engine.runs.schedule import RandomRun
from kraft_engine.world.world import MS


class ElectionStorm(RandomRun):
    """A quorum whose timers fire together and whose voters crash between votes: votes must survive both."""

    def __init__(self, seed: int, *, switches: Switches = ALL_ON) -> None:
        super().__init__(seed, switches=switches)
        self.cluster.settings.pre_vote = self.world.chance.happens(0.4)
        # Requests and answers that travel for long meet another epoch, or another incarnation.
        self.cluster.network.jitter_us = self.world.chance.choose((2, 30, 80)) * MS
        self.world.after(1_500 * MS, self._storm)

    def _build(self) -> None:
        self.plan.voters = max(self.plan.voters, 3)
        self.plan.observers = min(self.plan.observers, 1)
        self.plan.append_every_us = 120 * MS
        super()._build()

    def _storm(self, _: Any, __: Any) -> None:
        chance = self.world.chance
        if self.faults.are_over:
            return
        nodes = [node for node in self.cluster.nodes() if node.can_become_voter]
        leader = self.cluster.leader()
        if leader is not None and chance.happens(0.1):
            self.cluster.network.split(([leader.slot], [node.slot for node in nodes if node is not leader]))
        for node in chance.shuffled(nodes)[: chance.between(1, 4)]:
            if chance.happens(0.2):
                self._restart_soon(node)
            elif chance.happens(0.05):
                node.disk.dies_before_sync = True
                self.faults.restart_later(node.slot, 300 * MS)
            elif node.role != LEADER and node.deadline_us != NEVER:
                node.deadline_us = min(node.deadline_us, self.world.now_us + chance.below(4 * MS))
                node.poll()
        if nodes and chance.happens(0.2):
            self._stray(chance.choose(nodes), nodes)
        if chance.happens(0.2):
            self.faults.slow_link()
        if chance.happens(0.3):
            self.faults.heal()
        calm = chance.happens(0.15)
        self.world.after(chance.between(200 * MS, 1_500 * MS) if calm else chance.below(60 * MS), self._storm)

    def _restart_soon(self, node: RaftNode) -> None:
        """Dies after what it has just written, and is back before the epoch is over."""
        self.cluster.crash(node.slot, power_cut=self.world.chance.happens(0.5))
        self.faults.restart_later(node.slot, 6 * MS)

    def _stray(self, receiver: RaftNode, nodes: list[RaftNode]) -> None:
        """A request that must not be believed: from another cluster, or from a machine that carries a used node id."""
        chance = self.world.chance
        sender = chance.choose(nodes)
        epoch, end = max(node.epoch for node in nodes), 1 << 40
        if chance.happens(0.4) and receiver.history.version:
            # A copied configuration: the id of a node, on another disk. A static quorum has no defence against it: its
            # quorum-state forgets the directory, and the next candidate of that id is granted what the copy was.
            copied = (sender.id, chance.uuid())
            body: Any = VoteRequest(CLUSTER_ID, receiver.key, copied, epoch, max(epoch - 1, 0), end, False)
        else:
            foreign = "another-cluster-of-ours"
            body = chance.choose((
                VoteRequest(foreign, receiver.key, sender.key, epoch + 1, epoch, end, False),
                BeginQuorumEpochRequest(foreign, receiver.key, sender.id, epoch + 1, sender.endpoint),
                EndQuorumEpochRequest(foreign, sender.id, epoch + 1, (), sender.endpoint),
                FetchRequest(foreign, sender.key, receiver.epoch, receiver.log.end_offset,
                             receiver.log.last_epoch, 0, 0, 0),
            ))  # fmt: skip
        self.cluster.ask(receiver.slot, body)
