"""One JVM of a Kafka release that runs its tools and asks a cluster, for all drills of that release."""

from __future__ import annotations

import subprocess
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

PROGRAM: Final = Path(__file__).parents[1] / "builders" / "java" / "ServeDrills.java"
JAVA: Final = ("java", "-Xmx256m", "-Xms32m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
QUIET: Final = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
MAIN_CLASSES: Final = {
    "kafka-storage": "kafka.tools.StorageTool",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs": "org.apache.kafka.tools.ConfigCommand,kafka.admin.ConfigCommand",
    "kafka-acls": "org.apache.kafka.tools.AclCommand,kafka.admin.AclCommand",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments,kafka.tools.DumpLogSegments",
}
"""Where releases have each tool, the newest first: what Kafka's script of that name runs (`kafka_scripts`)."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The exit code of a call, and what it printed."""

    code: int
    text: str

    @property
    def rows(self) -> list[list[str]]:
        return [line.split("\t") for line in self.text.splitlines()]


class ToolJvm:
    """The JVM; `classpath` is that of the release."""

    def __init__(self, classpath: str, folder: Path) -> None:
        classes = folder / "classes"
        subprocess.run(["javac", "-nowarn", "-d", classes, "-cp", classpath, PROGRAM], check=True, timeout=120)
        self._errors = (folder / "tools.log").open("wb")
        self._process = subprocess.Popen(
            [*JAVA, QUIET, "-cp", f"{classes}:{classpath}", "ServeDrills"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )

    def __enter__(self) -> ToolJvm:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait(30)
        self._errors.close()

    def ask(self, *words: str) -> Answer:
        """Sends a request and waits for its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\t".join(b64encode(word.encode()).decode() for word in words).encode() + b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline().decode()
        assert line, "the tools' JVM ended"
        code, _, text = line.rstrip("\n").partition("\t")
        return Answer(int(code), b64decode(text).decode())

    def run(self, tool: str, *arguments: str) -> Answer:
        """Runs one of Kafka's tools as its script would."""
        return self.ask("tool", MAIN_CLASSES[tool], *arguments)

    def must_run(self, words: Sequence[str]) -> str:
        """What a tool printed that has to succeed."""
        answer = self.run(*words)
        assert answer.code == 0, (list(words), answer.text[-1500:])
        return answer.text

    def must_ask(self, *words: str) -> Answer:
        answer = self.ask(*words)
        assert answer.code == 0, (words, answer.text[-1500:])
        return answer
