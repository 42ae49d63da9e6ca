"""Random faults of processes, links and disks, which every kind of random run shares.

`WITHIN_MODEL` is what Raft must survive. `damage` goes beyond it, and says so to the invariants first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kraft_engine.consensus.voter_sets import ReplicaKey
from kraft_engine.invariants.run_invariants import RaftInvariants
from kraft_engine.world.disks import Damage
from kraft_engine.world.processes import Cluster
from kraft_engine.world.world import MS


class Faults:
    """Faults of one cluster. `slots` are the processes that may be hit, links are those of all; `restart(slot)` brings
    a process back and does nothing for one that runs.
    """

    def __init__(
        self,
        cluster: Cluster,
        invariants: RaftInvariants,
        *,
        slots: Callable[[], Sequence[int]],
        restart: Callable[[int], None],
    ) -> None:
        self.cluster = cluster
        self.invariants = invariants
        self.world = cluster.world
        self.chance = cluster.world.chance
        self.slots = slots
        self._restart_slot = restart
        # Whether the run heals: what drives it asks for nothing more.
        self.are_over = False

    def strike(self, name: str) -> None:
        """One of `WITHIN_MODEL`, by name."""
        self.invariants.seen[f"fault: {name}"] += 1
        getattr(self, name)()

    def stop_all(self) -> None:
        """No fault from here on: links carry, disks write, no process is about to die. Processes stay as they are."""
        self.are_over = True
        self.heal()
        for process in self.cluster.processes:
            disk = process.disk
            disk.slow_us = 0
            disk.read_only = disk.dies_before_sync = False

    def restart_later(self, slot: int, within_us: int = 4_000 * MS) -> None:
        self.world.after(self.chance.below(within_us), self._restart, slot)

    def _restart(self, slot: int, _: Any) -> None:
        self._restart_slot(slot)

    def _slot(self) -> int:
        return self.chance.choose(self.slots())

    def _any_slot(self) -> int:
        return self.chance.below(len(self.cluster.processes))

    # Processes

    def crash(self) -> None:
        slot = self._slot()
        self.cluster.crash(slot, power_cut=self.chance.happens(0.7))
        self.restart_later(slot)

    def crash_leader(self) -> None:
        leader = self.cluster.leader()
        if leader is not None:
            self.cluster.crash(leader.slot, power_cut=self.chance.happens(0.7))
            self.restart_later(leader.slot)

    def crash_all(self) -> None:
        for slot in self.slots():
            self.cluster.crash(slot)
            self.restart_later(slot)

    def die_in_write(self) -> None:
        slot = self._slot()
        if self.cluster.processes[slot].node is not None:
            self.cluster.processes[slot].disk.dies_before_sync = True
            self.restart_later(slot)
            self.world.after(4_500 * MS, self._restart, slot)

    def stop(self) -> None:
        slot = self._slot()
        self.cluster.stop(slot)
        self.restart_later(slot)

    def pause(self) -> None:
        slot = self._any_slot()
        self.cluster.pause(slot)
        self.world.after(self.chance.below(5_000 * MS), self._resume, slot)

    def _resume(self, slot: int, _: Any) -> None:
        self.cluster.resume(slot)

    def skew(self) -> None:
        """A clock that is wrong by up to a minute: timestamps lie, timers do not."""
        process = self.cluster.processes[self._slot()]
        process.skew_ms = self.chance.between(-60_000, 60_000)
        if process.node is not None:
            process.node.skew_ms = process.skew_ms

    # Links

    def split(self) -> None:
        slots = self.chance.shuffled([process.slot for process in self.cluster.processes])
        cut = self.chance.below(len(slots) + 1)
        self.cluster.network.split((slots[:cut], slots[cut:]))

    def isolate_leader(self) -> None:
        leader = self.cluster.leader()
        if leader is not None:
            others = [process.slot for process in self.cluster.processes if process.slot != leader.slot]
            self.cluster.network.split(([leader.slot], others))

    def one_way(self) -> None:
        self.cluster.network.block(self._any_slot(), self._any_slot())

    def noise(self) -> None:
        network = self.cluster.network
        network.loss_probability = self.chance.random() * 0.2
        network.duplicate_probability = self.chance.random() * 0.2

    def slow_link(self) -> None:
        self.cluster.network.slow_links[(self._any_slot(), self._any_slot())] = self.chance.below(800 * MS)

    def heal(self) -> None:
        self.cluster.network.heal()

    def heal_later(self, within_us: int) -> None:
        self.world.after(self.chance.below(within_us), self._heal)

    def _heal(self, _: Any, __: Any) -> None:
        self.heal()

    # Disks

    def slow_disk(self) -> None:
        disk = self.cluster.processes[self._slot()].disk
        disk.slow_us = 0 if disk.slow_us else self.chance.below(60 * MS)

    def read_only(self) -> None:
        """A disk that refuses writes for a while: the next append, or the next vote, ends the process."""
        slot = self._slot()
        self.cluster.processes[slot].disk.read_only = True
        self.world.after(self.chance.below(4_000 * MS), self._writable, slot)

    def _writable(self, slot: int, _: Any) -> None:
        self.cluster.processes[slot].disk.read_only = False
        self._restart_slot(slot)

    def replace_disk(self, voters: tuple[ReplicaKey, ...]) -> None:
        """A disk is replaced under a new directory id: the old voter is dead for good, the newcomer an observer.

        Safe for any voter; only done while the other voters are a majority, or the run would end there.
        """
        cluster = self.cluster
        process = self.chance.choose(cluster.processes)
        alive = [key for key in voters if any((peer.id, peer.disk.directory) == key for peer in cluster.processes)]
        was_voter = (process.id, process.disk.directory) in alive
        if not process.can_become_voter or len(alive) - was_voter <= len(voters) // 2:
            return
        if not cluster.survives_without((process.id, process.disk.directory), removed=False):
            return
        self.invariants.seen["fault: disk replaced"] += 1
        old_key, old_end = (process.id, process.disk.directory), process.disk.log.end_offset
        cluster.replace_disk(process.slot)
        self.invariants.forget(process.slot, replaced=old_key, end_offset=old_end)
        self.restart_later(process.slot)

    # Beyond the model

    def damage(self) -> None:
        """A wiped disk under its old id, a lost acknowledged write, a flipped bit, a write that landed elsewhere."""
        slot = self._slot()
        process = self.cluster.processes[slot]
        self.cluster.crash(slot)
        kind = self.chance.choose(DAMAGES)
        self.invariants.seen[f"damage: {kind}"] += 1
        if kind == "wipe":
            self.invariants.damage("wiped disk, same directory id", node=process.id)
            process.disk.wipe_log()
        elif kind == "lost tail":
            before = process.disk.log.end_offset
            after = process.disk.lose_synced_tail(self.chance, 5)
            self.invariants.damage("lost a synced tail", node=process.id, from_offset=after, to_offset=before)
        else:
            self._spoil(slot, kind)
        self.invariants.forget(slot)
        self.restart_later(slot)

    def _spoil(self, slot: int, kind: str) -> None:
        """Spoils one of the last batches on the disk; the node finds out at its next start."""
        process = self.cluster.processes[slot]
        log = process.disk.log
        if not log.batches or log.batches[-1].base_offset < log.start_offset:
            return
        victim = log.batches[max(len(log.batches) - 1 - self.chance.below(10), 0)]
        offset = max(victim.base_offset, log.start_offset)
        process.disk.damage = Damage(kind, offset)
        self.invariants.damage(kind, node=process.id, from_offset=offset)


DAMAGES = ("wipe", "lost tail", "bit rot", "misdirected write")
WITHIN_MODEL = (
    "crash", "crash", "crash_leader", "crash_leader", "crash_all", "die_in_write", "die_in_write", "stop", "pause",
    "split", "split", "isolate_leader", "one_way", "heal", "heal", "heal", "noise", "slow_link", "slow_disk", "skew",
    "read_only",
)  # fmt: skip
