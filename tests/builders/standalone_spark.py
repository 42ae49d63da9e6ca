"""A Spark standalone cluster of separate processes: a master and two workers of one core each."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyspark
import pytest

from kraft_audit.spark.session import use_java
from tests.builders.ports import free_port, wait_for_port

SPARK_HOME: Final = Path(pyspark.__file__).parent
SECONDS_TO_START: Final = 90


@contextmanager
def started(folder: Path, environment: dict[str, str], name: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """One of Spark's daemons in a process group of its own, ended with all that it started."""
    command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
    with (folder / f"{name}-{time.monotonic_ns()}.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture(scope="module")
def spark_environment() -> dict[str, str]:
    return os.environ | {
        "JAVA_HOME": str(use_java()),
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }


@pytest.fixture(scope="module")
def spark_master(tmp_path_factory: pytest.TempPathFactory, spark_environment: dict[str, str]) -> Iterator[str]:
    """The address of a cluster of two workers, each one core and one executor's memory."""
    folder = tmp_path_factory.mktemp("cluster")
    port, pages = free_port(), free_port()
    address = f"spark://127.0.0.1:{port}"
    own = ("--host", "127.0.0.1", "--port", str(port), "--webui-port", str(pages))
    with started(folder, spark_environment, "master.Master", *own):
        wait_for_port(port, SECONDS_TO_START)
        workers = [free_port(), free_port()]
        limits = ("--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--work-dir", str(folder))
        first = ("--port", str(workers[0]), "--webui-port", str(free_port()), *limits, address)
        second = ("--port", str(workers[1]), "--webui-port", str(free_port()), *limits, address)
        with (
            started(folder, spark_environment, "worker.Worker", *first),
            started(folder, spark_environment, "worker.Worker", *second),
        ):
            for worker in workers:
                wait_for_port(worker, SECONDS_TO_START)
            yield address
