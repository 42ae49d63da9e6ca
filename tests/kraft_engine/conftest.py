"""Kafka's jars, where they can be had."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

KAFKA_VERSION = "4.3.1"
POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>local</groupId><artifactId>kafka-engine-{KAFKA_VERSION}</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{KAFKA_VERSION}</version></dependency>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{KAFKA_VERSION}</version></dependency>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-shell</artifactId><version>{KAFKA_VERSION}</version></dependency>
</dependencies></project>
"""


@pytest.fixture(scope="module")
def kafka_classpath(project_root: Path) -> str:
    if shutil.which("java") is None:
        pytest.skip("Java is not here")
    if declared := os.environ.get("KRAFT_AUDIT_KAFKA_CLASSPATH"):
        return declared
    if shutil.which("mvn") is None:
        pytest.skip("neither KRAFT_AUDIT_KAFKA_CLASSPATH nor Maven is here")
    folder = project_root / ".cache" / f"kafka-engine-{KAFKA_VERSION}"
    found = folder / "classpath.txt"
    if not found.exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "pom.xml").write_text(POM)
        goal = ["mvn", "-q", "-B", "-f", str(folder / "pom.xml"), "dependency:build-classpath"]
        run = subprocess.run([*goal, f"-Dmdep.outputFile={found}"], capture_output=True, text=True, timeout=250)
        if run.returncode != 0:
            pytest.skip(f"Maven could not fetch Kafka's jars: {run.stdout[-200:]}")
    return found.read_text()
