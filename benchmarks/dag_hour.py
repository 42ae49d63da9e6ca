"""The whole hour of a fleet, as the DAG runs it: python -m benchmarks.dag_hour [--clusters 20] [--hours 60].

Each hour every cluster's log grows, and then the DAG's commands run: ingest, gate, findings, pages, notices. `--apart`
runs each of them as a process of its own, as Airflow's tasks do where its operator wants them apart; without it one
process runs them all. Logs get a snapshot a day and are cleaned up as Kafka does it. The clock of all processes goes
along, so that the gate's daily look at the whole lake is among the hours.

Printed by hour: processor seconds of a whole process tree, by step where they are apart; the largest process; bytes
that system calls read and wrote; bytes that the lake keeps.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from benchmarks.fleet import fleet_file
from benchmarks.hourly import HOUR_SECONDS, GrowingLogs
from benchmarks.moved_clock import FILE_VARIABLE, MovedClock, begin_again
from benchmarks.processes import COMMAND

QUIET_HOURS = (2, 3, 4)
"""The first hours that no first reading and no daily look is part of."""
ASKED_SECONDS = 0.4
"""Of processor time, a cluster and hour."""
NOTIFY = """severity: high
targets: {tickets: {webhook_file: tickets.url}}
routes: [{to: [tickets]}]
"""


@dataclass(frozen=True, slots=True)
class Used:
    """What one process tree used."""

    processor_seconds: float
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class Hour:
    """What the steps of one hour used, and the bytes that the lake and the pages then have."""

    steps: Mapping[str, Used]
    kept_bytes: int

    @property
    def processor_seconds(self) -> float:
        return sum(step.processor_seconds for step in self.steps.values())

    @property
    def peak_bytes(self) -> int:
        return max(step.peak_bytes for step in self.steps.values())


def used_by_tree(command: Sequence[str]) -> Used:
    """Run a command to its end. Raises CalledProcessError if it fails."""
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            errors.seek(0)
            raise subprocess.CalledProcessError(process.returncode, list(command), stderr=errors.read()[-4000:])
    return Used(usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


class Tickets(BaseHTTPRequestHandler):
    """Takes every message."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


class Dag:
    """The DAG's commands over one fleet and its lake."""

    def __init__(self, folder: Path, clusters: int, *, apart: bool) -> None:
        self.folder = folder
        self.apart = apart
        self.fleet = fleet_file(folder, "dag", folder / "logs", clusters, voters=1)
        self.lake = folder / "lake-dag"
        self.config = folder / "notify.yaml"
        self.config.write_text(NOTIFY)
        server = ThreadingHTTPServer(("127.0.0.1", 0), Tickets)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        (folder / "tickets.url").write_text(f"http://127.0.0.1:{server.server_port}/")
        (folder / "tickets.url").chmod(0o600)

    def pass_hour(self) -> Hour:
        return Hour({step: used_by_tree([*COMMAND, *arguments]) for step, arguments in self.commands().items()},
                    _folder_bytes(self.lake) + _folder_bytes(self.folder / "pages"))  # fmt: skip

    def commands(self) -> dict[str, list[str]]:
        """The arguments of each process of the hour, by its step."""
        fleet, lake, pages, config = str(self.fleet), str(self.lake), str(self.folder / "pages"), str(self.config)
        if not self.apart:
            then = ["--then", "quality,findings,report,notify", "--out", pages, "--config", config]
            return {"one process": ["run", fleet, "--engine", "local", *then]}
        return {
            "ingest": ["run", fleet, "--engine", "local", "--tables-only"],
            "gate": ["lake", "quality", lake, "--new"],
            "findings": ["run", fleet, "--engine", "local", "--only", "findings"],
            "pages": ["report", lake, "--out", pages],
            "notices": ["notify", lake, "--config", config],
        }


def _folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def hours_of(folder: Path, clusters: int, count: int, *, apart: bool) -> list[Hour]:
    """The hours of one fleet from its first run on, each printed as it ends."""
    logs = GrowingLogs(folder / "logs", clusters, count)
    dag, clock, started = Dag(folder, clusters, apart=apart), MovedClock(shared=True), time.time()
    hours: list[Hour] = []
    for number in range(1, count + 1):
        logs.show(number)
        clock.set(started + number * HOUR_SECONDS)
        hours.append(dag.pass_hour())
        print_hour(number, hours[-1])
    return hours


def print_hour(number: int, hour: Hour) -> None:
    steps = ", ".join(f"{name} {step.processor_seconds:.1f}" for name, step in hour.steps.items())
    kept = f"largest process {hour.peak_bytes / 1e6:.0f} MB, kept {hour.kept_bytes / 1e6:.1f} MB"
    print(f"hour {number}: {hour.processor_seconds:.1f} s of processor: {steps}; {kept}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clusters", type=int, default=20)
    parser.add_argument("--hours", type=int, default=60)
    parser.add_argument("--apart", action="store_true")
    given = parser.parse_args()
    if FILE_VARIABLE not in os.environ:
        begin_again("benchmarks.dag_hour", sys.argv[1:])
    with tempfile.TemporaryDirectory() as scratch:
        hours_of(Path(scratch), given.clusters, given.hours, apart=given.apart)


if __name__ == "__main__":
    main()
