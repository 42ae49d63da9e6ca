"""One real Kafka on loopback, broker and controller in one process, and its tools called in a JVM of their own."""

from __future__ import annotations

import contextlib
import subprocess
from base64 import b64encode
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

from tests.builders.ports import free_port
from tests.builders.printed_scripts import Call

CLUSTER_ID: Final = "1J9o0OHjczjslRjLY5Qr2g"
JAVA: Final = ("java", "-Xmx400m", "-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
MAIN_CLASSES: Final = {
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
}
SETTINGS: Final = {
    "process.roles": "broker,controller",
    "node.id": 1,
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "num.network.threads": 1,
    "num.io.threads": 2,
    "background.threads": 2,
    "log.cleaner.enable": "false",
}


class OneKafka:
    """An empty cluster with node 1; its log dir is `folder`, its broker listens on `server`."""

    def __init__(self, folder: Path, work: Path, classpath: str) -> None:
        self.folder = folder
        self.server = f"127.0.0.1:{free_port()}"
        self._classpath = classpath
        self._output = work / "kafka.log"
        self._properties = work / "kafka.properties"
        controller = f"127.0.0.1:{free_port()}"
        settings = {
            **SETTINGS,
            "listeners": f"PLAINTEXT://{self.server},CONTROLLER://{controller}",
            "controller.quorum.voters": f"1@{controller}",
            "log.dirs": folder,
        }
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        formatting = self._java("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(self._properties))
        assert formatting.wait(60) == 0, self.output
        self._process = self._java("kafka.Kafka", str(self._properties))

    def stop(self) -> None:
        """Kills it: a clean stop would leave partitions without a leader, which is no part of what was asked for."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(60)

    def run(self, calls: Sequence[Call]) -> list[int]:
        """Exit codes of the calls; those of one tool in a row run at the same time."""
        lines = []
        for _, group in groupby(calls, lambda call: call.tool):
            for call in group:
                words = (MAIN_CLASSES[call.tool], *call.arguments)
                lines.append("\t".join(b64encode(word.encode()).decode() for word in words))
            lines.append("")
        program = str(Path(__file__).parent / "java" / "RunTools.java")
        with self._output.with_name("tools.log").open("wb") as log:
            ended = subprocess.run(
                [*JAVA, "-cp", self._classpath, program],
                input="\n".join(lines).encode(),
                stdout=subprocess.PIPE,
                stderr=log,
                timeout=200,
                check=True,
            )
        return [int(code) for code in ended.stdout.split()]

    @property
    def output(self) -> str:
        return self._output.read_text()[-3000:]

    @property
    def tools_output(self) -> str:
        return self._output.with_name("tools.log").read_text()[-6000:]

    def _java(self, *arguments: str) -> subprocess.Popen[bytes]:
        with self._output.open("ab") as output:
            command = [*JAVA, "-cp", self._classpath, *arguments]
            return subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)


@contextlib.contextmanager
def one_kafka(folder: Path, work: Path, classpath: str) -> Iterator[OneKafka]:
    """A started one; its process is gone afterwards, whatever happens."""
    kafka = OneKafka(folder, work, classpath)
    try:
        kafka.start()
        yield kafka
    finally:
        kafka.stop()
