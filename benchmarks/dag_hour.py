"""The whole hour of a fleet, as the DAG runs it: python -m benchmarks.dag_hour [--clusters 20] [--hours 60]

Each hour every cluster's log grows, and then the DAG's steps run: ingest, gate, findings, pages, notices. One process
does them all (`run --then`); in the first hours five commands do them too, over a lake of their own, as Airflow's tasks
do. Logs get a snapshot a day and are cleaned up as Kafka does it, and the lake is maintained daily. The clock of all
processes goes along, so that the gate's daily look at the whole lake is among the hours.

Printed by hour: processor seconds of all processes, by step where they are apart; the largest process; bytes that the
lake and the pages keep.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from benchmarks.figures import Figure, Skipped, print_figures
from benchmarks.fleet import fleet_file
from benchmarks.hourly import DAY_HOURS, HOUR_SECONDS, GrowingLogs
from benchmarks.moved_clock import FILE_VARIABLE, MovedClock, begin_again
from benchmarks.processes import COMMAND, Usage, used_by

HOURS_APART = 4
"""So many hours are passed by five commands too, over a lake of their own."""
ASKED_SECONDS = {20: 8.0, 200: 60.0}
"""Of processor time, by clusters."""
PARTITIONS = 2_000
"""Of a cluster: an hour changes 128 of them, so that none changes too often."""
NOTIFY = """severity: high
targets: {tickets: {webhook_file: tickets.url}}
routes: [{to: [tickets]}]
"""


@dataclass(frozen=True, slots=True)
class Hour:
    """What the steps of one hour used, and the bytes that the lake and the pages then have."""

    steps: Mapping[str, Usage]
    kept_bytes: int

    @property
    def processor_seconds(self) -> float:
        return sum(step.processor_seconds for step in self.steps.values())

    @property
    def peak_bytes(self) -> int:
        return max(process.peak_bytes for step in self.steps.values() for process in step.processes.values())


class Tickets(BaseHTTPRequestHandler):
    """Takes every message."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


class Dag:
    """The DAG's commands over one fleet and a lake of their own."""

    def __init__(self, folder: Path, name: str, clusters: int, *, apart: bool) -> None:
        self.apart = apart
        self.fleet = fleet_file(folder, name, folder / "logs", clusters, voters=1)
        self.lake, self.pages = folder / f"lake-{name}", folder / f"pages-{name}"
        self.config = folder / "notify.yaml"

    def pass_hour(self) -> Hour:
        steps = {step: used_by([*COMMAND, *arguments]) for step, arguments in self.commands().items()}
        return Hour(steps, _folder_bytes(self.lake) + _folder_bytes(self.pages))

    def maintain(self) -> Usage:
        return used_by([*COMMAND, "lake", "maintain", str(self.lake)])

    def commands(self) -> dict[str, list[str]]:
        """The arguments of each process of the hour, by its step."""
        fleet, lake, pages, config = str(self.fleet), str(self.lake), str(self.pages), str(self.config)
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


def take_messages(folder: Path) -> None:
    """A target for messages, in this process, and the settings that name it."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Tickets)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    (folder / "notify.yaml").write_text(NOTIFY)
    (folder / "tickets.url").write_text(f"http://127.0.0.1:{server.server_port}/")
    (folder / "tickets.url").chmod(0o600)


def figures(folder: Path, clusters: int, count: int) -> list[Figure | Skipped]:
    """The hours of one fleet from its first run on, each printed as it ends."""
    logs = GrowingLogs(folder / "logs", clusters, count, partitions=PARTITIONS)
    take_messages(folder)
    together, apart = Dag(folder, "together", clusters, apart=False), Dag(folder, "apart", clusters, apart=True)
    clock, started = MovedClock(shared=True), time.time()
    hours: list[Hour] = []
    hours_apart: list[Hour] = []
    for number in range(1, count + 1):
        logs.show(number)
        clock.set(started + number * HOUR_SECONDS)
        hours.append(together.pass_hour())
        print_hour(number, hours[-1])
        if number <= HOURS_APART:
            hours_apart.append(apart.pass_hour())
            print_hour(number, hours_apart[-1])
        if number % DAY_HOURS == 0:
            print(f"maintenance: {together.maintain().processor_seconds:.1f} s of processor", flush=True)
    # Neither the first reading nor the hours in which the gate looks at the whole lake.
    early, early_apart = _seconds(hours[1:HOURS_APART]), _seconds(hours_apart[1:])
    late = _seconds(hours[-3:])
    name = f"{clusters} clusters"
    found = [
        Figure(f"{name}: an hour in one process, of five commands", early_apart / early, 1.0, f"{early:.1f} s",
               f"{early_apart:.1f} s"),
        Figure(f"{name}: an hour, of what is asked", ASKED_SECONDS[clusters] / early, 1.0, f"{early:.1f} s",
               f"{ASKED_SECONDS[clusters]} s"),
        Figure(f"{name}: hour {count}, of hours 2 to {HOURS_APART}", early / late, 1 / 1.1, f"{late:.1f} s",
               f"{early:.1f} s"),
        Figure(f"{name}: memory of hour {count}, of hour 2", hours[1].peak_bytes / hours[-1].peak_bytes, 1 / 1.1,
               f"{hours[-1].peak_bytes / 1e6:.0f} MB", f"{hours[1].peak_bytes / 1e6:.0f} MB"),
    ]  # fmt: skip
    return list(found)


def _seconds(hours: Sequence[Hour]) -> float:
    return statistics.median(hour.processor_seconds for hour in hours)


def print_hour(number: int, hour: Hour) -> None:
    """An hour's costs, for people."""
    steps = ", ".join(f"{name} {step.processor_seconds:.1f}" for name, step in hour.steps.items())
    kept = f"largest process {hour.peak_bytes / 1e6:.0f} MB, kept {hour.kept_bytes / 1e6:.1f} MB"
    print(f"hour {number}: {hour.processor_seconds:.1f} s of processor: {steps}; {kept}", flush=True)


def main() -> None:
    """Prints the hours and their figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clusters", type=int, choices=sorted(ASKED_SECONDS), default=20)
    parser.add_argument("--hours", type=int, default=60)
    given = parser.parse_args()
    if FILE_VARIABLE not in os.environ:
        begin_again("benchmarks.dag_hour", sys.argv[1:])
    with tempfile.TemporaryDirectory() as scratch:
        print_figures(figures(Path(scratch), given.clusters, max(HOURS_APART + 1, given.hours)))
    if path := os.environ.get(FILE_VARIABLE):
        Path(path).unlink(missing_ok=True)


if __name__ == "__main__":
    main()
