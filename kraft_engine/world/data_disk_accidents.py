"""What happens to a broker's log dirs: one fails, one is replaced under a new directory id, one is emptied.

Unlike accidents of controllers' disks these leave Raft's promises alone: they cost the records of partitions.
"""

from __future__ import annotations

from kraft_engine.brokers.broker import Broker
from kraft_engine.brokers.machine import KafkaMachine
from kraft_engine.invariants.run_invariants import RaftInvariants


class DataDiskAccidents:
    """Accidents of one cluster's log dirs. `number` counts a broker's dirs; dir 0 holds the metadata log too.

    Each is a `fault` line of the truth, with the directory ids.
    """

    def __init__(self, machine: KafkaMachine, invariants: RaftInvariants) -> None:
        self.machine = machine
        self.invariants = invariants

    def fail(self, broker: Broker, number: int) -> None:
        """A log dir goes offline under its broker, which goes on with the others. Its records stay where they are."""
        directory = broker.log_dirs[number]
        broker.offline_dirs.append(directory)
        self._note("log dir failed", broker, number, directory_id=directory)

    def replace(self, broker: Broker, number: int) -> None:
        """An empty disk under a new directory id takes the place of one dir. The broker must be down.

        Raises ValueError where it runs.
        """
        old = broker.log_dirs[number]
        self._empty(broker, number)
        if number == 0:
            process = self.machine.cluster.processes[broker.slot]
            end_offset = process.disk.log.end_offset
            self.machine.cluster.replace_disk(broker.slot)
            self.invariants.forget(broker.slot, replaced=(broker.id, old), end_offset=end_offset)
            broker.log_dirs[0] = process.disk.directory
        else:
            broker.log_dirs[number] = self.machine.world.chance.uuid()
        self._note("log dir replaced", broker, number, directory_id=broker.log_dirs[number], old_directory_id=old)

    def empty(self, broker: Broker, number: int) -> None:
        """The partitions' dirs are gone and meta.properties is the old one: the metadata shows nothing of it.

        Raises ValueError where the broker runs.
        """
        self._empty(broker, number)
        self._note("log dir emptied", broker, number, directory_id=broker.log_dirs[number])

    def _empty(self, broker: Broker, number: int) -> None:
        if broker.running:
            raise ValueError(f"broker {broker.id} runs: its log dirs can only be taken away while it is down")
        directory = broker.log_dirs[number]
        for key in sorted(broker.replicas):
            if broker.dir_of(key) == directory:
                values = broker.replicas.pop(key).values
                self.machine.lost_from_disk(broker, key, values, "emptied")
        if directory in broker.offline_dirs:
            broker.offline_dirs.remove(directory)
        # The broker epoch of a clean stop must stand in every dir (LogManager.readBrokerEpochFromCleanShutdownFiles).
        broker.clean_epoch = -1
        self.machine.cluster.processes[broker.slot].disk.clean_shutdown_epoch = -1

    def _note(self, what: str, broker: Broker, number: int, **ids: bytes) -> None:
        self.invariants.seen[f"broker: {what}"] += 1
        self.invariants.record("fault", what=what, broker=broker.id, log_dir=number, **ids)
        self.invariants.say(broker.slot, f"broker {broker.id}: {what}")
