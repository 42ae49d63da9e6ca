"""A run under Spark loses a process that it started, at any moment: it ends by contract, and the next run mends it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.ledger import Ledger
from kraft_audit.lake.settings import FleetSettings
from tests.builders.commands import COMMAND
from tests.builders.lakes import CLUSTERS

KILLS = int(os.environ.get("KRAFT_AUDIT_PART_KILLS", "2"))
"""Of each kind of process."""
SEED = int(os.environ.get("KRAFT_AUDIT_KILLS_SEED", "20"))
JVM, WORKER = "java", "pyspark.daemon"
STARTS_S, LASTS_S = 60, {JVM: 24.0, WORKER: 6.0}
"""How long such a process is waited for, and over which time after its start the moments are spread."""


def descendants(process: int) -> Iterator[tuple[int, str]]:
    """(id, command line) of each process below."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents.setdefault(int(stat.read_text().rpartition(")")[2].split()[1]), []).append(int(stat.parent.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    below = list(parents.get(process, []))
    for pid in below:
        below += parents.get(pid, [])
        try:
            yield pid, Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
        except (FileNotFoundError, ProcessLookupError):
            continue


def parts(run: subprocess.Popen[str], kind: str) -> list[int]:
    """The JVM; the Python workers, which are forks of a daemon below it, without that one."""
    found = {pid: line for pid, line in descendants(run.pid) if kind in line.split(" -", 1)[0] or f"-m {kind}" in line}
    return sorted(found)[1:] if kind == WORKER else sorted(found)[:1]


def killed_one(run: subprocess.Popen[str], kind: str, behind_its_start_s: float) -> bool:
    """Whether there was one to kill that long after the start of the first."""
    started = time.monotonic()
    while not parts(run, kind):
        assert run.poll() is None, run.communicate()
        assert time.monotonic() - started < STARTS_S
        time.sleep(0.02)
    time.sleep(behind_its_start_s)
    for part in parts(run, kind)[-1:]:
        try:
            os.kill(part, signal.SIGKILL)
        except ProcessLookupError:
            continue
        return True
    return False


@pytest.mark.ci
@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", [JVM, pytest.param(WORKER, marks=pytest.mark.long)])
def test_a_part_killed_at_any_moment_and_run_again(
    kind: str, make_fleet: Callable[..., FleetSettings], small_corpus: Path, tmp_path: Path, without_spark: ModuleType,
    lake_hash: Callable[..., dict[str, str]],
) -> None:  # fmt: skip
    """Moments spread evenly after the start of the first such process, with a little chance."""
    clusters = {name: [small_corpus / name] for name in CLUSTERS}
    alone = make_fleet(clusters, lake="alone", file="alone.yaml")
    without_spark.run(alone)
    expected = lake_hash(alone.lake)
    chance = random.Random(SEED)  # noqa: S311  # a schedule, no secret
    killed = 0
    for number in range(KILLS):
        fleet = make_fleet(clusters, lake=f"lake-{number}", file=f"{number}.yaml")
        command = [str(COMMAND), "run", str(tmp_path / f"{number}.yaml"), "--engine", "spark"]
        run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        killed += killed_one(run, kind, (number + chance.random()) / KILLS * LASTS_S[kind])
        _, second = run.communicate(timeout=280)
        assert run.returncode in (0, 3), second
        assert "Traceback" not in second
        assert "a bug in kraft-audit" not in second
        assert without_spark.run(fleet).failed == {}
        assert Ledger(DeltaLake(fleet.lake)).status().open == ()
        assert lake_hash(fleet.lake) == expected, f"kill {number} of {KILLS}"
    assert killed, "no moment was one at which such a process lived"
