"""The command from the shell: `python -m benchmarks.startup [--without-cold]`.

Asked: everything imported within 0.4 s, the first row of a log within 1 s once the kernels are built, by processor
time, the least of several starts; an incident archive of 10 MB of log checked within 2 s by the clock, the least of
several; and at most 15 s by the clock once where kernels are not built, with a line that says so.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.decode import largest_real_log
from benchmarks.figures import Figure, print_figures, seconds
from benchmarks.pipeline import write_nodes
from benchmarks.processes import COMMAND
from benchmarks.synthetic_log import synthetic_log
from kraft_codec.kernels.cache import FOLDER_VARIABLE
from kraft_engine.runs.fleet_logs import simulate_fleet
from tests.builders.captures import SMALL_CORPUS

STARTS = 5
IMPORT_SECONDS, FIRST_ROW_SECONDS, CHECK_SECONDS, COLD_SECONDS = 0.4, 1.0, 2.0, 15.0


def processor_seconds(command: Sequence[str], environment: Mapping[str, str] | None = None) -> tuple[float, str]:
    """What a command that ends by itself used, and what it said on stderr. Raises CalledProcessError."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, ended.stderr


def until_first_line(command: Sequence[str]) -> float:
    """The processor time that a command had used when its first line was there; it is ended then."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as running:
        assert running.stdout is not None
        assert running.stdout.readline()
        running.kill()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def least(command: Sequence[str]) -> float:
    """The least of some starts, after one that warms what can be warmed."""
    processor_seconds(command)
    return min(processor_seconds(command)[0] for _ in range(STARTS))


def archives(folder: Path) -> Iterator[tuple[str, Path, int]]:
    """(what is in it, the archive, its bytes of log) of incidents as they are sent: a real one, an engine's."""
    real = largest_real_log() or max(SMALL_CORPUS.rglob("*.log"), key=lambda path: path.stat().st_size)
    simulate_fleet(folder / "fleet", clusters=1, partitions=7_000, changes=220_000, replicas=1)
    for what, node in (("a real log", real.parents[1]), ("an engine's log", folder / "fleet" / "cluster-0" / "node-1")):
        archive = folder / f"{what.replace(' ', '-')}.tgz"
        with tarfile.open(archive, "w:gz") as packed:
            packed.add(node, "incident/node-1")
        yield what, archive, sum(path.stat().st_size for path in node.rglob("*.log"))


def check_figures(folder: Path) -> Iterator[Figure]:
    """Archives of an incident, from the shell to the verdict, after one start that warms what can be warmed."""
    for what, archive, size in archives(folder):
        command = [*COMMAND, "check", str(archive), "--fail-on", "never"]
        used, _ = processor_seconds(command)
        took = min(seconds(lambda command=command: processor_seconds(command)) for _ in range(STARTS))  # type: ignore[misc]
        ours = f"{took:.2f} s for {size / 1e6:.1f} MB of log, {used:.2f} s of processor"
        yield Figure(f"2 s, of checking an archive of {what}", CHECK_SECONDS / took, 1, ours, "2 s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without-cold", action="store_true", help="leave out the start that builds the kernels")
    given = parser.parse_args()
    imported = least([sys.executable, "-c", "import kraft_audit.commands.cli"])
    figures = [Figure("0.4 s, of importing the command", IMPORT_SECONDS / imported, 1, f"{imported:.2f} s", "0.4 s")]
    # Compiled code is stored only where no other user may write: not in a shared folder.
    with tempfile.TemporaryDirectory(dir=Path.home()) as folder:
        log = str(write_nodes(Path(folder) / "log", synthetic_log(10 << 20), 1))
        first = min(until_first_line([*COMMAND, "dump", log, "--output", "jsonl"]) for _ in range(STARTS))
        name = "1 s, of the first row of 10 MiB from the shell"
        figures.append(Figure(name, FIRST_ROW_SECONDS / first, 1, f"{first:.2f} s", "1 s"))
        figures += check_figures(Path(folder))
        if not given.without_cold:
            cache = {**os.environ, FOLDER_VARIABLE: f"{folder}/cache"}
            started = time.monotonic()
            used, output = processor_seconds([*COMMAND, "check", log, "--fail-on", "never"], cache)
            cold = time.monotonic() - started
            print("\n".join(f"   a cold start says: {line}" for line in output.splitlines()))
            peer = f"15 s; {used:.1f} s of processor"
            figures.append(Figure("15 s, of a cold start", COLD_SECONDS / cold, 1, f"{cold:.1f} s", peer))
    print_figures(figures)


if __name__ == "__main__":
    main()
