"""Random runs of a static quorum that becomes dynamic during the run (kraft.version 0 to 1)."""

from __future__ import annotations

from typing import Any

from kraft_engine.consensus.leader_state import LeaderState
from kraft_engine.consensus.membership import Kip853
from kraft_engine.consensus.messages import AddRaftVoterRequest, RemoveRaftVoterRequest
from kraft_engine.consensus.raft import RaftNode
from kraft_engine.consensus.raft_settings import CLUSTER_ID
from kraft_engine.consensus.voter_sets import NO_DIRECTORY, Voter, VoterSet
from kraft_engine.invariants.switches import ALL_ON, Switches
from kraft_engine.runs.schedule import RandomRun
from kraft_engine.world.processes import Process
from kraft_engine.world.world import MS


class ImpatientKip853(Kip853):
    """Asks for the upgrade whenever a voter has sent its own update: before the epoch is committed, too."""

    def _update(self, node: RaftNode, leader: LeaderState, voter: Voter) -> str:
        error = super()._update(node, leader, voter)
        if not error and node.leader is leader and leader.voters.keys[0][1] == NO_DIRECTORY:
            self.upgrade_kraft_version(node)
        return error


class UpgradeRun(RandomRun):
    """Administrators ask for the upgrade again and again, and for changes of membership before and after it."""

    def __init__(self, seed: int, *, switches: Switches = ALL_ON, beyond_model: bool = False) -> None:
        self.upgrades = ImpatientKip853() if seed % 3 == 0 else Kip853()
        super().__init__(seed, switches=switches, rules=self.upgrades, beyond_model=beyond_model, static=True)
        self.plan.change_voters = True
        self.world.after(self.world.chance.between(300 * MS, 6_000 * MS), self._upgrade)

    def _build(self) -> None:
        super()._build()
        first = self.plan.voters + 1
        for extra in range(1 + self.world.chance.below(2)):
            self.cluster.add_process(first + extra)
        if self.world.chance.happens(0.3):
            # A spare controller of a release that knows no dynamic quorum.
            self.cluster.old_release_ids.add(first)

    def _upgrade(self, _: Any, __: Any) -> None:
        chance = self.world.chance
        if self.faults.are_over:
            return
        node = self._some_leader()
        if node is not None and node.history.version == 0:
            error = self.upgrades.upgrade_kraft_version(node)
            self.invariants.record("fault", what="kraft.version upgrade asked for", node=node.id, error=error)
        self.world.after(chance.between(100 * MS, 3_000 * MS), self._upgrade)

    def _change_voters(self) -> None:
        """As in any dynamic quorum once it is one; before, every change must be refused."""
        node = self._some_leader()
        if node is None or node.voters is None:
            return
        chance = self.world.chance
        if node.history.version == 0:
            self._ask_too_soon(node)
        elif chance.happens(0.3):
            spares = [process for process in self.cluster.processes if process.can_become_voter]
            outside = [process for process in spares if process.id not in node.voters.ids]
            spare = chance.choose(outside or spares)
            voter = Voter(spare.id, NO_DIRECTORY, *spare.endpoint)
            self.cluster.ask(node.slot, AddRaftVoterRequest(CLUSTER_ID, voter))
        elif chance.happens(0.15):
            # The disk that was replaced long ago.
            stale = (chance.choose(node.voters.ids), chance.uuid())
            self.cluster.ask(node.slot, RemoveRaftVoterRequest(CLUSTER_ID, stale))
        else:
            super()._change_voters()

    def _replace_disk(self, voters: VoterSet) -> None:
        """Waits until the upgrade is committed everywhere: before, a new, empty disk counts as the old voter of its id.

        It is formatted with --no-initial-controllers, which needs controller.quorum.voters to be empty: else its node
        would take the static voters for a quorum that is still to begin, and lead it alone if it was the only one.
        """
        configured = [process for process in self.cluster.processes if process.static_voters is not None]
        if not all(_knows_directories(process) for process in configured if process.can_become_voter):
            return
        before = [process.disk.directory for process in configured]
        super()._replace_disk(voters)
        for process, directory in zip(configured, before, strict=True):
            if process.disk.directory != directory:
                process.static_voters = None

    def _ask_too_soon(self, node: RaftNode) -> None:
        cluster, voters = self.cluster, node.voters
        if voters is None:
            return
        outside = [
            process for process in cluster.processes if process.id not in voters.ids and process.can_become_voter
        ]
        if outside and self.world.chance.happens(0.6):
            voter = cluster.voter_of(self.world.chance.choose(outside))
            cluster.ask(node.slot, AddRaftVoterRequest(CLUSTER_ID, voter))
        else:
            cluster.ask(node.slot, RemoveRaftVoterRequest(CLUSTER_ID, self.world.chance.choose(voters.keys)))


def _knows_directories(process: Process) -> bool:
    """Whether the voter set that a running node knows to be committed names directories."""
    node = process.node
    known = None if node is None else node.history.at(node.high_watermark - 1)
    return known is not None and known.keys[0][1] != NO_DIRECTORY
