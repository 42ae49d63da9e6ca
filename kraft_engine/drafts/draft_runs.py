"""Random runs of the drafts: the same faults, their own changes of membership."""

from __future__ import annotations

from typing import Any

from kraft_codec.schemas import Dialect
from kraft_engine.consensus.messages import AddRaftVoterRequest, RemoveRaftVoterRequest
from kraft_engine.consensus.raft import RaftNode
from kraft_engine.consensus.voter_sets import VoterSet
from kraft_engine.drafts.kip642 import Kip642, ReassignRequest
from kraft_engine.drafts.kip856 import Kip856
from kraft_engine.invariants.switches import ALL_ON, Switches
from kraft_engine.runs.schedule import RandomRun
from kraft_engine.world.world import MS


class Kip856Run(RandomRun):
    """Disks of configured controllers are replaced: the new (id, uuid) is added, the old one removed."""

    def __init__(self, seed: int, *, switches: Switches = ALL_ON, beyond_model: bool = False) -> None:
        super().__init__(
            seed, switches=switches, rules=Kip856(), beyond_model=beyond_model, static=True, pre_vote=False
        )
        self.plan.change_voters = True
        self.invariants.one_voter_per_id = False

    def _change_voters(self) -> None:
        chance, cluster = self.world.chance, self.cluster
        node = self._some_leader()
        if node is None or node.leader is None:
            return
        cluster_id = cluster.settings.cluster_id
        configured = node.static_voters.ids if node.static_voters is not None else ()
        observers = sorted(key for key in node.leader.observers if key[0] in configured)
        outdated = [
            key for key in node.leader.voters.keys
            if any(voter_key[0] == key[0] and voter_key != key for voter_key in node.leader.voters.keys)
        ]  # fmt: skip
        if outdated and chance.happens(0.9):
            alive = {(process.id, process.disk.directory) for process in cluster.processes}
            dead = [key for key in outdated if key not in alive] or outdated
            cluster.ask(node.slot, RemoveRaftVoterRequest(cluster_id, chance.choose(dead)))
        elif observers and chance.happens(0.9):
            key = chance.choose(observers)
            process = cluster.processes[cluster.slot_of(key[0])]
            cluster.ask(node.slot, AddRaftVoterRequest(cluster_id, cluster.voter_of(process)))
        elif node.leader.bootstrapped and self._all_know_voters(node.history.entries()[0][0]):
            self.faults.replace_disk(node.leader.voters.keys)

    def _all_know_voters(self, first_offset: int) -> bool:
        """Until it reads the AddVoterRecords, a new disk votes by the configured ids: never two of those at once."""
        controllers = [process for process in self.cluster.processes if process.can_become_voter]
        return all(process.disk.log.end_offset > first_offset for process in controllers)


class Kip642Run(RandomRun):
    """Asks for targets of any kind, changes and cancels them, each once the request before it is committed."""

    impatient = False

    def __init__(self, seed: int, *, switches: Switches = ALL_ON, beyond_model: bool = False) -> None:
        super().__init__(
            seed, switches=switches, rules=Kip642(), beyond_model=beyond_model, static=True, pre_vote=False
        )
        self.plan.change_voters = True
        self.world.after(500 * MS, self._hasty)

    def _hasty(self, _: Any, __: Any) -> None:
        """Leaders die in the middle of reassignments: the next one finds a target and begins with it at once."""
        if self.faults.are_over:
            return
        busy = False
        for node in self.cluster.nodes():
            leader = node.leader
            if leader is None or leader.voters.target is None:
                continue
            busy = True
            if self.world.chance.happens(0.08):
                self._slow_voters(leader.voters)
                self.cluster.crash(node.slot)
                self.faults.restart_later(node.slot, 500 * MS)
        delay_us = self.world.chance.between(1 * MS, 6 * MS) if busy else self.world.chance.between(20 * MS, 120 * MS)
        self.world.after(delay_us, self._hasty)

    def _slow_voters(self, voters: VoterSet) -> None:
        """The next leader hears observers sooner than voters: it could promote one before its epoch is committed."""
        slots = [self.cluster.slot_of(voter.id) for voter in voters]
        for source in slots:
            for destination in slots:
                if self.world.chance.happens(0.5):
                    self.cluster.network.slow_links[(source, destination)] = self.world.chance.below(150 * MS)

    def _target(self) -> frozenset[int]:
        chance = self.world.chance
        ids = [process.id for process in self.cluster.processes if process.can_become_voter]
        return frozenset(chance.shuffled(ids)[: chance.between(1, len(ids) + 1)])

    @staticmethod
    def _is_settled(node: RaftNode) -> bool:
        """The epoch is committed, and so is the last assignment."""
        offset = node.history.last_offset
        begun = node.leader is not None and (
            node.leader.high_watermark >= 0 or not node.switches.change_waits_for_epoch_commit
        )
        committed = offset is None or offset < node.high_watermark
        return begun and (committed or not node.switches.change_waits_for_committed_predecessor)

    def _build(self) -> None:
        super()._build()
        static = self.cluster.processes[0].static_voters
        for extra in range(2):
            process = self.cluster.add_process(self.plan.voters + 1 + extra)
            process.static_voters = static

    def _change_voters(self) -> None:
        node = self._some_leader()
        if node is not None:
            self._ask(node)

    def _ask(self, node: RaftNode) -> None:
        wanted = None if self.world.chance.happens(0.15) else self._target()
        if not self.impatient and not self._is_settled(node):
            return
        self.cluster.ask(node.slot, ReassignRequest(self.cluster.settings.cluster_id, wanted))


class Kip642CancelRun(Kip642Run):
    """Changes or cancels a reassignment while it is under way, without waiting for a commit."""

    impatient = True

    def __init__(self, seed: int, *, switches: Switches = ALL_ON, beyond_model: bool = False) -> None:
        super().__init__(seed, switches=switches, beyond_model=beyond_model)
        self.world.after(600 * MS, self._think_better)

    def _think_better(self, _: Any, __: Any) -> None:
        if self.faults.are_over:
            return
        for node in self.cluster.nodes():
            if node.leader is not None and node.leader.voters.target is not None and self.world.chance.happens(0.2):
                self.cluster.ask(node.slot, ReassignRequest(self.cluster.settings.cluster_id, None))
        self.world.after(self.world.chance.between(3 * MS, 25 * MS), self._think_better)


def draft_run(seed: int, dialect: Dialect, *, switches: Switches = ALL_ON) -> RandomRun:
    return (Kip856Run if dialect is Dialect.KIP856 else Kip642Run)(seed, switches=switches)
