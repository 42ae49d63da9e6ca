"""Kafka's own jars, fetched by Maven once a machine."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

KAFKA_VERSION = "4.3.1"
PROGRAMS = Path(__file__).parent / "java"
READERS = ("kafka-tools", "kafka_2.13", "kafka-shell")
"""Artifacts that hold Kafka's servers and tools."""
TEST_LIBRARIES = (
    *(f"org.apache.kafka:{name}:{KAFKA_VERSION}" for name in ("kafka-raft", "kafka-metadata")),
    *(
        f"org.apache.kafka:{name}:{KAFKA_VERSION}:test"
        for name in ("kafka-raft", "kafka-metadata", "kafka-clients", "kafka-server-common")
    ),
    "net.jqwik:jqwik:1.8.3",
    "org.junit.jupiter:junit-jupiter:5.13.1",
    "org.mockito:mockito-core:5.20.0",
)
"""Kafka's own tests of controllers and of its quorum, and what they need."""


def kafka_jars(root: Path, version: str) -> str:
    """The class path of a release's servers and tools. Skips where it cannot be had."""
    declared = os.environ.get("KRAFT_AUDIT_KAFKA_CLASSPATH") if version == KAFKA_VERSION else None
    names = [name for name in READERS if name != "kafka-shell" or not version.startswith("4.4")]  # none was published
    return declared or class_path(
        root, f"kafka-jars-{version}", [f"org.apache.kafka:{name}:{version}" for name in names]
    )


def class_path(root: Path, name: str, artifacts: Sequence[str]) -> str:
    """The class path of artifacts (group:name:version[:classifier]), fetched by Maven once a machine."""
    if shutil.which("java") is None:
        pytest.skip("Java is not here")
    if shutil.which("mvn") is None:
        pytest.skip("neither KRAFT_AUDIT_KAFKA_CLASSPATH nor Maven is here")
    folder = root / ".cache" / name
    found = folder / "classpath.txt"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not found.exists():
            (folder / "pom.xml").write_text(project_of(name, artifacts))
            goal = ["mvn", "-q", "-B", "-f", str(folder / "pom.xml"), "dependency:build-classpath"]
            run = subprocess.run([*goal, f"-Dmdep.outputFile={found}"], capture_output=True, text=True, timeout=250)
            if run.returncode != 0:
                pytest.skip(f"Maven could not fetch {name}: {run.stdout[-200:]}")
    return found.read_text()


def project_of(name: str, artifacts: Sequence[str]) -> str:
    """A Maven project that depends on these artifacts and nothing else."""
    lines = []
    for artifact in artifacts:
        group, artifact_id, version, *classifier = artifact.split(":")
        kind = f"<classifier>{classifier[0]}</classifier>" if classifier else ""
        coordinates = f"<groupId>{group}</groupId><artifactId>{artifact_id}</artifactId><version>{version}</version>"
        lines.append(f"<dependency>{coordinates}{kind}</dependency>")
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>\n'
        f"<groupId>local</groupId><artifactId>{name}</artifactId><version>1</version><packaging>pom</packaging>\n"
        "<dependencies>\n" + "\n".join(lines) + "\n</dependencies></project>\n"
    )


@pytest.fixture(scope="session")
def kafka_classpath(project_root: Path) -> str:
    """Kafka's own jars by their coordinates, through Maven once a machine. Skips where they cannot be had."""
    return kafka_jars(project_root, KAFKA_VERSION)


@pytest.fixture(scope="session")
def kafka_test_classpath(project_root: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Kafka's own test classes, and our programs that stand in their packages, compiled with them."""
    libraries = class_path(project_root, f"kafka-test-jars-{KAFKA_VERSION}", TEST_LIBRARIES)
    if shutil.which("javac") is None:
        pytest.skip("no Java compiler is here")
    classes = tmp_path_factory.mktemp("classes")
    programs = [path for path in sorted(PROGRAMS.glob("*.java")) if path.read_text().startswith("package ")]
    subprocess.run(["javac", "-nowarn", "-d", classes, "-cp", libraries, *programs], check=True, timeout=120)
    return f"{classes}:{libraries}"
