"""Kafka's own scripts, where a distribution is at hand: printed commands then run through them, in bash, as they stand.

Package registries serve Kafka's jars, not its scripts. Without KRAFT_AUDIT_KAFKA_HOME, an unpacked distribution whose
libs/ has the release of a drill, a printed line runs the class that the script of its name runs with the same
arguments (`tool_jvm.MAIN_CLASSES`). Kafka's bin/ was compared with that table: each of these scripts ends in
kafka-run-class.sh with that class and "$@". `kafka-server-start -daemon FILE` runs kafka.Kafka with FILE; -daemon puts
the JVM into the background and changes nothing else.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path


def scripts_of(release: str) -> Path | None:
    """The bin/ of the distribution that the environment names, where it is of this release."""
    home = Path(os.environ.get("KRAFT_AUDIT_KAFKA_HOME") or "/nonexistent")
    return home / "bin" if any((home / "libs").glob(f"kafka-clients-{release}.jar")) else None


def run_script(scripts: Path, command: str, console: Path) -> str:
    """What a command printed, run in a folder where controller.properties is the node's config; it has to succeed."""
    tool = command.split(" ", 1)[0]
    with tempfile.TemporaryDirectory() as folder:
        named = f'{tool}() {{ "{scripts / tool}.sh" "$@"; }}\n{command}'
        environment = {"PATH": os.environ["PATH"], "LOG_DIR": folder, "KAFKA_HEAP_OPTS": "-Xmx256m"}
        ran = subprocess.run(
            ["bash", "-euc", named],
            cwd=console, env=environment, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
    assert ran.returncode == 0, (command, ran.stdout[-1500:], ran.stderr[-1500:])
    return ran.stdout
