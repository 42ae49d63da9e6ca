"""Accidents of disks in random runs: sound bytes that are not what was written (see `disk_accidents`).

The truth names each with the node, and with the committed offsets that the disk held before and does not hold now.
"""

from __future__ import annotations

from collections.abc import Callable

from kraft_engine.consensus.log_batches import Batch
from kraft_engine.world.disk_accidents import (
    alter_batch,
    backup,
    copy_partition_dir,
    cut_front,
    lose_quorum_state,
    restore,
)
from kraft_engine.world.disks import Disk
from kraft_engine.world.faults import Faults
from kraft_engine.world.processes import Process


class RandomAccidents:
    """Strikes processes of one run. A backup of a node whose quorum has one voter is kept, to be restored later."""

    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        self.cluster = faults.cluster
        self.chance = faults.chance
        self.invariants = faults.invariants
        self._backups: dict[int, Disk] = {}
        self._lost_bases: set[int] = set()

    def back_up(self) -> None:
        """Keeps a copy of a sole voter's disk, or now and then of any."""
        for process in self.cluster.processes:
            voters = process.node.voters if process.node is not None else None
            is_sole = voters is not None and len(voters) == 1 and process.node is not None and process.node.is_voter
            is_worth_it = process.disk.log.end_offset > 0 and (is_sole or self.chance.happens(0.05))
            if process.slot not in self._backups and process.can_become_voter and is_worth_it:
                self._backups[process.slot] = backup(process.disk)

    def strike(self) -> None:
        kind = self.chance.choose(tuple(ACCIDENTS))
        process = self.cluster.processes[self.chance.choose(self.faults.slots())]
        if kind == "several voters wiped at once":
            voters = [peer for peer in self.cluster.processes if peer.node is not None and peer.node.is_voter]
            hit = self.chance.shuffled(voters)[: self.chance.between(2, 4)]
        else:
            hit = [process] if process.can_become_voter else []
        change = ACCIDENTS[kind]
        for victim in hit:
            self._change(kind, victim, change)

    def _change(self, kind: str, process: Process, change: Callable[[RandomAccidents, Process], Batch | bool]) -> None:
        self.cluster.crash(process.slot, power_cut=False)
        before = self._committed_on(process.disk)
        batches = {batch.base_offset: batch for batch in process.disk.log.batches}
        changed = change(self, process)
        if changed:
            self.invariants.seen[f"damage: {kind}"] += 1
            after = {batch.base_offset for batch in self._committed_on(process.disk)}
            lost = [batch for batch in before if batch.base_offset not in after]
            more: dict[str, object] = {}
            if isinstance(changed, Batch):
                lost = [changed]
                more["held_by"] = self._holders(batches[changed.base_offset])
            span = {"from_offset": lost[0].base_offset, "to_offset": lost[-1].end_offset} if lost else {}
            self.invariants.damage(kind, node=process.id, **span, **more)
            self.invariants.forget(process.slot)
        self.faults.restart_later(process.slot)

    def _committed_on(self, disk: Disk) -> list[Batch]:
        """The committed batches that a disk holds, each itself or in a snapshot."""
        ledger, log = self.invariants.ledger, disk.log
        covered = max((ledger.covered_to.get(made, 0) for made in log.snapshots), default=0)
        return [
            batch
            for batch in ledger.batches
            if (batch.end_offset <= covered and log.is_connected) or log.batch_at(batch.base_offset) is batch
        ]

    def _holders(self, was: Batch) -> list[int]:
        """The nodes whose logs hold the same bytes: a leader's batch of another life or epoch has other ones."""
        own = (was.base_offset, was.epoch, was.timestamp_ms, was.records)
        node_batches = ((process.id, process.disk.log.batch_at(was.base_offset)) for process in self.cluster.processes)
        return [
            node
            for node, batch in node_batches
            if batch is not None and (batch.base_offset, batch.epoch, batch.timestamp_ms, batch.records) == own
        ]

    def note_losses(self) -> None:
        """Committed batches that no disk holds any more: `committed_lost` in the truth, each batch once."""
        held = {batch.base_offset for process in self.cluster.processes for batch in self._committed_on(process.disk)}
        lost = [
            batch
            for batch in self.invariants.ledger.batches
            if batch.base_offset not in held and batch.base_offset not in self._lost_bases
        ]
        self._lost_bases.update(batch.base_offset for batch in lost)
        if lost:
            self.invariants.seen["committed records lost"] += 1
            self.invariants.record("committed_lost", from_offset=lost[0].base_offset, to_offset=lost[-1].end_offset)

    # Each returns whether there was something to change, or the batch that took another's place.

    def _reformat(self, process: Process) -> bool:
        """`kafka-storage format` again with the same cluster id: a new directory id, now and then `--standalone`."""
        process.disk.wipe(self.chance.uuid())
        if process.static_voters is None and self.chance.happens(0.3):
            self.cluster.format_standalone(process)
        return True

    def _wipe(self, process: Process) -> bool:
        process.disk.wipe_log()
        return True

    def _lose_quorum_state(self, process: Process) -> bool:
        lose_quorum_state(process.disk)
        return True

    def _restore(self, process: Process) -> bool:
        copy = self._backups.pop(process.slot, None)
        if copy is None:
            return False
        restore(process.disk, copy)
        return True

    def _alter(self, process: Process) -> Batch | bool:
        batches = [batch for batch in process.disk.log.batches if not batch.is_control]
        return (alter_batch(process.disk, self.chance.choose(batches).base_offset) or False) if batches else False

    def _cut_front(self, process: Process) -> bool:
        log = process.disk.log
        start = log.start_offset
        return len(log.batches) > 1 and cut_front(process.disk, self.chance.between(start, log.end_offset)) > start

    def _copy_log(self, process: Process) -> bool:
        return self._take_from_another(process, copy_partition_dir)

    def _clone(self, process: Process) -> bool:
        return self._take_from_another(process, restore)

    def _take_from_another(self, process: Process, take: Callable[[Disk, Disk], None]) -> bool:
        others = [peer for peer in self.cluster.processes if peer is not process and peer.disk.log.end_offset]
        if others:
            take(process.disk, backup(self.chance.choose(others).disk))
        return bool(others)


ACCIDENTS: dict[str, Callable[[RandomAccidents, Process], Batch | bool]] = {
    "reformatted, same cluster id": RandomAccidents._reformat,
    "wiped disk, same directory id": RandomAccidents._wipe,
    "quorum-state lost": RandomAccidents._lose_quorum_state,
    "restored from a backup": RandomAccidents._restore,
    "altered batch": RandomAccidents._alter,
    "cut at the front": RandomAccidents._cut_front,
    "copied log dir": RandomAccidents._copy_log,
    "cloned machine": RandomAccidents._clone,
    "several voters wiped at once": RandomAccidents._wipe,
}
