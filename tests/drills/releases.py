"""A Kafka release as drills use it: its class path, a JVM for its tools, and class data that its nodes share."""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.builders.kafka_jars import class_path, kafka_jars
from tests.drills.kafka_node import KafkaNode
from tests.drills.tool_jvm import ToolJvm

SIMPLE_LOGGER: Final = "org.slf4j:slf4j-simple:1.7.36"
RUN_S: Final = 8
"""A node that ran so long has loaded most of the classes that it needs."""


@dataclass(frozen=True, slots=True)
class KafkaRelease:
    classpath: str
    tools: ToolJvm
    archive: Path | None


@pytest.fixture(scope="session")
def kafka_releases(
    project_root: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], KafkaRelease]]:
    """A release by its version. Skips where its jars cannot be had."""
    opened: dict[str, KafkaRelease] = {}
    with contextlib.ExitStack() as stack:

        def release(version: str) -> KafkaRelease:
            if version not in opened:
                classpath = kafka_jars(project_root, version)
                if "reload4j" not in classpath:  # from 4.0 on nothing among the jars says what a node logs
                    classpath += f":{class_path(project_root, 'slf4j-simple', [SIMPLE_LOGGER])}"
                tools = stack.enter_context(ToolJvm(classpath, tmp_path_factory.mktemp(f"tools-{version}")))
                archive = shared_classes(project_root / ".cache" / f"kafka-jars-{version}", classpath, tools)
                opened[version] = KafkaRelease(classpath, tools, archive)
            return opened[version]

        yield release


def shared_classes(folder: Path, classpath: str, tools: ToolJvm) -> Path | None:
    """An archive of the classes that a node loads (JEP 350), made once a machine: nodes start in half the time."""
    archive = folder / "drills.jsa"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "drills.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            work = folder / f"drills-{time.time_ns()}"
            (work / "nodes").mkdir(parents=True)
            node = KafkaNode(work, 1, "controller", classpath, {}, None)
            node.quorum = {"controller.quorum.voters": f"1@{node.place}"}
            node.format(tools, "1J9o0OHjczjslRjLY5Qr2g")
            node.start(f"-XX:ArchiveClassesAtExit={archive}")
            broker = KafkaNode(work, 2, "broker", classpath, node.quorum, None)
            broker.format(tools, "1J9o0OHjczjslRjLY5Qr2g")
            time.sleep(RUN_S)
            node.stop()
    return archive if archive.exists() else None
