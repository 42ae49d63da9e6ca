"""A real Kafka quorum on loopback whose metadata log rolls, snapshots and is cleaned up within seconds, not hours."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tests.builders.ports import free_port

CLUSTER_ID: Final = "SPA6Lw-19VaaSAxl6jMkhw"
CONTROLLERS: Final = (1, 2, 3)
FIRST_LEADER: Final = 1
"""It is the broker too, and the others wait so long for a first leader that it wins."""
JAVA: Final = ("java", "-Xmx256m", "-Xms48m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
SETTINGS: Final = {
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.fetch.timeout.ms": 1500,
    "controller.quorum.election.backoff.max.ms": 200,
    "broker.session.timeout.ms": 20_000,
    "num.network.threads": 1,
    "num.io.threads": 2,
    "background.threads": 2,
    "log.cleaner.enable": "false",
    # What takes hours of a production quorum; the cleaning itself comes once a minute, which no setting says.
    "internal.metadata.log.segment.bytes": 20_000,
    "metadata.log.max.record.bytes.between.snapshots": 15_000,
    "metadata.max.retention.bytes": 30_000,
    "internal.metadata.delete.delay.millis": 500,
}


class Node:
    """One process of the quorum: its log dir is `folder`."""

    def __init__(
        self, number: int, root: Path, work: Path, classpath: str, ports: dict[int, int], broker: int,
        settings: Mapping[str, object],
    ) -> None:  # fmt: skip
        self.folder = root / f"node-{number}"
        self._output = work / f"node-{number}.log"
        self._properties = work / f"node-{number}.properties"
        self._classpath = classpath
        is_first = number == FIRST_LEADER
        listeners = [f"CONTROLLER://127.0.0.1:{ports[number]}"] + [f"PLAINTEXT://127.0.0.1:{broker}"] * is_first
        settings = {
            **SETTINGS,
            **settings,
            "node.id": number,
            "process.roles": "controller,broker" if is_first else "controller",
            "listeners": ",".join(listeners),
            "controller.quorum.voters": ",".join(f"{voter}@127.0.0.1:{port}" for voter, port in ports.items()),
            "controller.quorum.election.timeout.ms": 500 if is_first else 4000,
            "log.dirs": self.folder,
        }
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self._process: subprocess.Popen[bytes] | None = None

    def formatting(self) -> subprocess.Popen[bytes]:
        return self._java("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", self._properties)

    def start(self) -> None:
        self._process = self._java("kafka.Kafka", self._properties)

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None
        assert self._process.poll() is None, self.output
        self._process.send_signal(number)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(20)

    @property
    def output(self) -> str:
        return self._output.read_text()[-3000:]

    def _java(self, *arguments: str | Path) -> subprocess.Popen[bytes]:
        with self._output.open("ab") as output:
            command = [*JAVA, "-cp", self._classpath, *map(str, arguments)]
            return subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)


class Quorum:
    """Three controllers, one of them a broker too, and a program that creates topics as long as it is not stopped."""

    def __init__(self, root: Path, work: Path, classpath: str, settings: Mapping[str, object]) -> None:
        ports, self._broker = {number: free_port() for number in CONTROLLERS}, free_port()
        self.nodes = {
            controller: Node(controller, root, work, classpath, ports, self._broker, settings)
            for controller in CONTROLLERS
        }
        self._classpath = classpath
        self._acknowledged = work / "acknowledged.txt"
        self._writer: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        for node, formatting in [(node, node.formatting()) for node in self.nodes.values()]:
            assert formatting.wait(60) == 0, node.output
        for node in self.nodes.values():
            node.start()
        program = Path(__file__).parent / "java" / "CreateTopics.java"
        command = [*JAVA, "-cp", self._classpath, str(program), f"127.0.0.1:{self._broker}"]
        with self._acknowledged.open("wb") as output:
            self._writer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.DEVNULL)

    def acknowledged(self) -> set[str]:
        """Names of the topics that the quorum said it has."""
        return set(self._acknowledged.read_text().split())

    def cut_a_tail(self, seconds: float) -> None:
        """The leader appends what no replica fetches, and dies. The others elect one, whose log it then follows."""
        first, *others = self.nodes.values()
        for node in others:
            node.send(signal.SIGSTOP)
        time.sleep(seconds)
        first.kill()
        for node in others:
            node.send(signal.SIGCONT)

    def stop(self) -> None:
        for node in self.nodes.values():
            node.kill()
        if self._writer is not None:
            self._writer.kill()
            self._writer.wait(20)


@contextlib.contextmanager
def quorum(root: Path, work: Path, classpath: str, **settings: object) -> Iterator[Quorum]:
    """A started one; its processes are gone afterwards, whatever happens. `settings` have `_` for each dot."""
    quorum = Quorum(root, work, classpath, {name.replace("_", "."): value for name, value in settings.items()})
    try:
        quorum.start()
        yield quorum
    finally:
        quorum.stop()
