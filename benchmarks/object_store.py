"""Requests that an hour asks of an object store: python -m benchmarks.object_store [--hours 3].

One cluster of three controllers on an S3 server on loopback, which counts: as log dirs that were copied there, a file
an object, and as `kraft-capture` ships them, an object an hour. The figures are requests for
each replica, against what the project asks.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.discovered import counts, served
from benchmarks.figures import Figure, Skipped, print_figures
from benchmarks.hourly import GrowingLogs
from benchmarks.processes import COMMAND

REPLICAS = 3
ASKED_WITH_CHANGES = 10
ASKED_WITHOUT = 4
LAYOUTS = ("log dirs", "kraft-capture")


def ship(nodes: Path, bucket: Path, states: Path) -> None:
    """What each controller's `kraft-capture` adds to a bucket, all at once."""
    started = []
    for node in sorted(path for path in nodes.glob("*/*") if path.is_dir()):
        command = [sys.executable, "-m", "kraft_capture", "--once", "--log-dirs", str(node), "--to", str(bucket / "c")]
        command += ["--state", str(states / node.name)]
        started.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
    for process in started:
        _, errors = process.communicate()
        assert process.returncode == 0, errors


def asked_in(folder: Path, address: str, hours: int, show: Callable[[int], None]) -> dict[str, dict[str, int]]:
    """The requests of the first run, of the last hour with a few changes, and of one after it without any."""
    fleet = folder / "fleet.yaml"
    fleet.write_text("lake: lake\nredaction_key_file: key\nclusters_from: s3://captures/{name}/\n")
    found = {}
    for hour in range(hours + 1):
        what = "first run" if hour == 0 else "an hour with changes" if hour < hours else "nothing new"
        if hour < hours:
            show(hour + 1)
        counts(address)
        run = [*COMMAND, "run", str(fleet), "--engine", "local", "--output", "json"]
        done = subprocess.run(run, check=False, capture_output=True, text=True, env=os.environ)
        assert done.returncode == 0, done.stderr
        summary = json.loads(done.stdout)
        assert not summary["failed"], summary["failed"]
        found[what] = counts(address)
    return found


def figures_of(folder: Path, layout: str, hours: int) -> list[Figure | Skipped]:
    """Requests a replica, with changes and without."""
    bucket = folder / "captures"
    nodes = bucket if layout == LAYOUTS[0] else folder / "nodes"
    logs = GrowingLogs(nodes, 1, hours, replicas=REPLICAS)
    (nodes / "truth.jsonl").unlink()

    def show(hour: int) -> None:
        logs.show(hour)
        if layout != LAYOUTS[0]:
            ship(nodes, bucket, folder / "states")

    bucket.mkdir(exist_ok=True)
    with served(folder) as address:
        found = asked_in(folder, address, hours, show)
    figures: list[Figure | Skipped] = []
    for what, asked in (("an hour with changes", ASKED_WITH_CHANGES), ("nothing new", ASKED_WITHOUT)):
        kinds = {kind: count / REPLICAS for kind, count in found[what].items()}
        total = sum(kinds.values())
        print(f"{layout}, {what}: {total:.1f} a replica, " + ", ".join(f"{k} {n:.1f}" for k, n in kinds.items()))
        name = f"object store: {layout}, {what}, of the requests asked for"
        figures.append(Figure(name, asked / max(total, 0.1), 1.0, f"{total:.1f}", str(asked)))
    return figures


def main() -> int:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=int, default=3)
    parser.add_argument("--layout", choices=LAYOUTS, action="append", help="default: both")
    chosen = parser.parse_args()
    figures: list[Figure | Skipped] = []
    for layout in chosen.layout or LAYOUTS:
        with tempfile.TemporaryDirectory() as folder:
            figures += figures_of(Path(folder), layout, chosen.hours)
    print_figures(figures)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
