"""Follows what a restore script says of old logs: restarts, the commands on each broker, the start."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Final

from tests.drills.real_cluster import RealCluster, wait_for

BROKER_COMMAND: Final = re.compile(r"# +broker ([0-9]+): (.+)")


def run_in_bash(command: str, folder: Path | None = None, **blanks: str) -> str:
    """Runs a command as it was printed, with its blanks filled in."""
    environment = {**blanks, "PATH": os.environ["PATH"]}
    ran = subprocess.run(
        ["bash", "-euc", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, (command, ran.stderr)
    return ran.stdout


class OldLogSteps:
    """The end of a restore script, for a cluster whose brokers run and have the new topics."""

    def __init__(self, cluster: RealCluster, script: str) -> None:
        self._cluster = cluster
        self._commands: dict[int, list[str]] = {}
        for line in script.splitlines():
            found = BROKER_COMMAND.fullmatch(line)
            if found is not None and "no data dir" not in line:
                self._commands.setdefault(int(found[1]), []).append(found[2])
        assert self._commands, script
        (epochs,) = re.findall(r"old topic had \((.*)\);", script)
        self._old_epochs = {topic: int(epoch) for topic, epoch in re.findall(r"([\w.-]+) ([0-9]+)", epochs)}

    def follow(self) -> None:
        cluster, brokers = self._cluster, [self._cluster.brokers[node] for node in self._commands]
        for _ in range(8):
            for broker in brokers:
                broker.stop()
                broker.start()
                cluster.wait_for_brokers(cluster.brokers)
            if self._are_above():
                break
        assert self._are_above(), self._old_epochs
        ids = {row[1]: row[2] for row in cluster.tools.must_ask("topics", cluster.server).rows}
        for broker in brokers:
            broker.stop()
        for commands in self._commands.values():
            for command in commands:
                topic = next(topic for topic in self._old_epochs if f"/{topic}-" in command)
                run_in_bash(command, TOPIC_ID=ids[topic])
        for broker in brokers:
            broker.start()
        cluster.wait_for_brokers(cluster.brokers)
        for topic in self._old_epochs:
            old = set(cluster.acknowledged.get(topic, ()))  # none of an internal topic
            if old:
                wait_for(f"the old records of {topic}", lambda topic=topic, old=old: old <= cluster.readable(topic), 30)

    def _are_above(self) -> bool:
        """Whether the leader epoch of every new log is above the old topic's, by its leader's leader-epoch-checkpoint.

        The newest epoch is that of the leader: a follower of an empty log writes none.
        """
        epochs: dict[str, int] = {}
        for topic in self._old_epochs:
            for node in self._commands:
                for path in self._cluster.brokers[node].log_dir.glob(f"{topic}-*/leader-epoch-checkpoint"):
                    if path.parent.name.endswith(("-stray", "-delete")):
                        continue
                    entries = [line for line in path.read_text().split("\n")[2:] if line]
                    last = int(entries[-1].split()[0]) if entries else -1
                    epochs[path.parent.name] = max(epochs.get(path.parent.name, -1), last)
        return all(last > self._old_epochs[name.rpartition("-")[0]] for name, last in epochs.items())
