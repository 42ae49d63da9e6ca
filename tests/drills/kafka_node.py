"""A node of a real cluster on loopback: a controller or a broker, or both, in a process of its own."""

from __future__ import annotations

import contextlib
import json
import secrets
import signal
import socket
import subprocess
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from tests.drills.tool_jvm import JAVA, ToolJvm

SETTINGS: Final[Mapping[str, object]] = {
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "controller.quorum.election.timeout.ms": 500,
    "controller.quorum.fetch.timeout.ms": 1000,
    "controller.quorum.election.backoff.max.ms": 200,
    "controller.quorum.request.timeout.ms": 1000,
    "broker.session.timeout.ms": 4000,
    "broker.heartbeat.interval.ms": 500,
    "num.network.threads": 1,
    "num.io.threads": 2,
    "num.recovery.threads.per.data.dir": 1,
    "background.threads": 2,
    "log.cleaner.enable": "false",
    "file.delete.delay.ms": 5000,
    "replica.lag.time.max.ms": 4000,
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "auto.create.topics.enable": "false",
}
"""Small and quick. `file.delete.delay.ms` is short: a broker that deletes what it should keep does it at once."""
LOG4J: Final = """log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n
"""
"""For releases before 4.0."""
SIMPLE_LOG: Final = (
    "-Xshare:auto",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
)
STOP_S: Final = 25
ROLES: Final = {"controller": "controller", "broker": "broker", "combined": "broker,controller"}
PORTS: Final = range(12_000, 32_000)
"""Below those that Linux gives to clients: a node that was down finds its port free again."""


def quiet_port() -> int:
    """A port that no program listens on."""
    while True:
        port = secrets.choice(PORTS)
        with contextlib.suppress(OSError), socket.socket() as opened:
            opened.bind(("127.0.0.1", port))
            return port


def lines_of(file: Path) -> dict[str, str]:
    """The lines of a config by their keys."""
    lines = (line.partition("=") for line in file.read_text().splitlines() if line and not line.startswith("#"))
    return {key: value for key, _, value in lines}


def change_lines(file: Path, values: Mapping[str, object], removed: Collection[str] = ()) -> None:
    """Edits a config as people do: these lines in place of those that have the same keys."""
    kept = {key: value for key, value in lines_of(file).items() if key not in values and key not in removed}
    file.write_text("".join(f"{key}={value}\n" for key, value in {**kept, **values}.items()))


class KafkaNode:
    """One node. `quorum` is the line of its config that says where its quorum is.

    Its config is made of SETTINGS until it is given one by `take_config`. `more_listeners`: their ports by name.
    `role` is controller, broker or combined. `port` is that of the controller, or of the broker where there is none.
    """

    def __init__(
        self, work: Path, node_id: int, role: str, classpath: str, quorum: Mapping[str, str], archive: Path | None
    ) -> None:
        self.node_id = node_id
        self.role = role
        self.port = quiet_port()
        self._client_port = quiet_port() if role == "combined" else None
        self.log_dir = work / "nodes" / f"{role}-{node_id}"
        self.properties = work / f"{role}-{node_id}.properties"
        self.output = work / f"{role}-{node_id}.log"
        self.quorum: dict[str, str] = dict(quorum)
        self.extra: dict[str, object] = {}
        self.more_listeners: dict[str, int] = {}
        self._is_given = False
        self._classpath = classpath
        self._archive = archive
        self.is_paused = False
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def broker_place(self) -> str:
        """Where clients find its broker."""
        return self.place if self._client_port is None else f"127.0.0.1:{self._client_port}"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def printed(self) -> str:
        """The end of what its process printed."""
        return self.output.read_text(errors="replace")[-4000:] if self.output.exists() else ""

    def settings(self) -> dict[str, object]:
        listeners = []
        if self.role != "broker":
            listeners.append(f"CONTROLLER://{self.place}")
        if self.role != "controller":
            listeners.append(f"PLAINTEXT://{self.broker_place}")
        listeners += [f"{name}://127.0.0.1:{port}" for name, port in self.more_listeners.items()]
        return {
            **SETTINGS,
            "process.roles": ROLES[self.role],
            "node.id": self.node_id,
            "listeners": ",".join(listeners),
            "log.dirs": self.log_dir,
            **self.quorum,
            **self.extra,
        }

    @property
    def quorum_state(self) -> str:
        """What its quorum-state says now; empty where it has none."""
        path = self.log_dir / "__cluster_metadata-0" / "quorum-state"
        return path.read_text() if path.exists() else ""

    @property
    def persisted_epoch(self) -> int:
        return int(json.loads(self.quorum_state or '{"leaderEpoch": 0}')["leaderEpoch"])

    def take_config(self, file: Path) -> None:
        """From now on it starts with this file and nothing else."""
        self.properties, self._is_given = file, True

    def write_properties(self) -> Path:
        if self._is_given:
            return self.properties
        self.properties.write_text("".join(f"{name}={value}\n" for name, value in self.settings().items()))
        return self.properties

    def format(self, tools: ToolJvm, cluster_id: str, *options: str) -> None:
        config = str(self.write_properties())
        tools.must_run(["kafka-storage", "format", "-t", cluster_id, "-c", config, *options])

    def start(self, *options: str) -> None:
        assert not self.is_running
        self.write_properties()
        shared = [f"-XX:SharedArchiveFile={self._archive}"] if self._archive is not None else []
        log4j = self.properties.with_name("log4j.properties")
        log4j.write_text(LOG4J)
        levels = (
            ["-Xshare:auto", f"-Dlog4j.configuration=file:{log4j}"] if "reload4j" in self._classpath else SIMPLE_LOG
        )
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                [*JAVA, *shared, *levels, *options, "-cp", self._classpath, "kafka.Kafka", str(self.properties)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(60)
            self._process = None

    def pause(self) -> None:
        """SIGSTOP: it stays where it is, and its sessions run out."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        self.is_paused = True

    def go_on(self) -> None:
        """SIGCONT."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)
        self.is_paused = False

    def stop(self) -> None:
        """SIGTERM, and kill -9 where that does not end it."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.kill()
            self._process = None
