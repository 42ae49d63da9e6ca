"""Requests that an hour asks of an object store: python -m benchmarks.object_store [--hours 3].

One cluster of three controllers on an S3 server on loopback, which counts: as log dirs that were copied there, a file
an object, and as `kraft-capture` ships them, an object an hour. The figures are requests for
each replica, against what the project asks. Then two clusters whose log dirs are local and whose lake is in the store:
the figures are requests of hours 2, 12 and 48, against three for each table of the lake and five more.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from collections import Counter
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
LAKE = "lake"
LAKE_HOURS = (2, 12, 48)
LAKE_URI = "s3://lakes/lake"
ASKED_A_TABLE, ASKED_BESIDE = 3, 5


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


def tables_asked(address: str) -> Counter[str]:
    """Requests since this was asked before, by table of the lake or other folder in it."""
    with urllib.request.urlopen(f"{address}/-/objects", timeout=10) as answer:  # noqa: S310  # our own server
        counts_by_object: dict[str, int] = json.load(answer)
    asked: Counter[str] = Counter()
    for request, count in counts_by_object.items():
        inside = request.partition(" ")[2].removeprefix(LAKE_URI.partition("://")[2]).lstrip("/")
        asked[inside.partition("/")[0]] += count
    return asked


def figures_of_lake(folder: Path) -> list[Figure | Skipped]:
    """Requests of whole runs, with changes in each cluster, at a lake in the store."""
    logs = GrowingLogs(folder / "nodes", 2, max(LAKE_HOURS), replicas=REPLICAS)
    (folder / "nodes" / "truth.jsonl").unlink()
    (folder / "lakes").mkdir()
    fleet = folder / "fleet.yaml"
    fleet.write_text(f"lake: {LAKE_URI}\nredaction_key_file: key\nclusters_from: nodes/{{name}}/\n")
    figures: list[Figure | Skipped] = []
    with served(folder) as address:
        for hour in range(1, max(LAKE_HOURS) + 1):
            logs.show(hour)
            tables_asked(address)
            run = [*COMMAND, "run", str(fleet), "--engine", "local", "--quiet"]
            subprocess.run(run, check=True, capture_output=True, env=os.environ)
            if hour in LAKE_HOURS:
                asked = tables_asked(address)
                wanted = ASKED_A_TABLE * len(list((folder / "lakes" / "lake").glob("*/_delta_log"))) + ASKED_BESIDE
                print(f"lake, hour {hour}: " + ", ".join(f"{table} {count}" for table, count in asked.most_common()))
                name = f"object store: lake, hour {hour}, of the requests asked for"
                figures.append(Figure(name, wanted / asked.total(), 1.0, str(asked.total()), str(wanted)))
    return figures


def main() -> int:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=int, default=3)
    parser.add_argument("--layout", choices=(*LAYOUTS, LAKE), action="append", help="default: all")
    chosen = parser.parse_args()
    figures: list[Figure | Skipped] = []
    for layout in chosen.layout or (*LAYOUTS, LAKE):
        with tempfile.TemporaryDirectory() as folder:
            of_lake = layout == LAKE
            figures += figures_of_lake(Path(folder)) if of_lake else figures_of(Path(folder), layout, chosen.hours)
    print_figures(figures)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
