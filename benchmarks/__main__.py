"""Every benchmark in turn, and what has changed since the table in kept.json: `make bench`, `make bench-short`.

Each prints ratios of ours to a peer or floor, measured in one run. `--short` takes small sizes and never fails: it
shows a change in CI, where other work runs beside. `--large` takes the sizes that goals name where those need more
than the half hour of all others together. `--keep` makes this run's table the one to compare with; each form has one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.figures import RECORD

KEPT = Path(__file__).with_name("kept.json")
DROP = 0.15


@dataclass(frozen=True, slots=True)
class Benchmark:
    """Its arguments in each form; None where it is left out of one."""

    title: str
    short: tuple[str, ...] | None = ()
    full: tuple[str, ...] | None = ()
    large: tuple[str, ...] | None = None

    def arguments(self, form: str) -> tuple[str, ...] | None:
        return {"short": self.short, "full": self.full, "large": self.large}[form]


MODULES = {
    "startup": Benchmark("the command from the shell: its first second, an archive checked", ("--without-cold",)),
    "decode": Benchmark(
        "decoding, against kafka-dump-log, two Python clients and the same kernels in C",
        ("--mib", "8", "--pairs", "3", "--without-java"),
    ),
    "reading": Benchmark("one cluster's bronze tables, in this process", ("--mib", "16", "--long-mib", "64")),
    "growth": Benchmark("all tables of a log that grows", ("--mib", "1", "--times", "1", "4", "16")),
    "replay": Benchmark(
        "histories, findings and the state of a very large cluster",
        ("--mib", "16", "--changes", "200000", "--partitions", "100000"),
    ),
    "pipeline": Benchmark("plan, stage, commit, close, on local Spark", ("--mib", "32", "--without-java")),
    "writing": Benchmark("data files: bytes and time of each encoding", ("--mib", "4"), ("--spark",)),
    "next_hour": Benchmark("an hour of one cluster, of its first run", ("--mib", "4")),
    "object_store": Benchmark("requests that an hour asks of an object store", None),
    "hourly": Benchmark("a year of hourly runs, in file counts", ("--hours", "24", "--clusters", "2")),
    "fleet": Benchmark("a fleet through the whole pipeline", ("--only", "replicas"), (), ("--full",)),
    "large_hour": Benchmark("an hour of a fleet with 7,000,000 partitions", None, None, ()),
    "engine": Benchmark("events a second, every invariant checked", ("--seeds", "3")),
}


def main() -> int:
    """Runs each in a process of its own, so that none measures what another left in memory; 1 where one failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=f"these alone, of {', '.join(MODULES)}")
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--short", action="store_true", help="small sizes; ends with 0 whatever happens")
    forms.add_argument("--large", action="store_true", help="the sizes that goals name, where those take longer")
    parser.add_argument("--keep", action="store_true", help="keep this table in benchmarks/kept.json")
    given = parser.parse_args()
    if unknown := [module for module in given.modules if module not in MODULES]:
        parser.error(f"no benchmark {unknown[0]!r}")
    form = "short" if given.short else "large" if given.large else "full"
    failed, done = [], set()
    ratios: dict[str, float] = {}
    for module in given.modules or MODULES:
        benchmark = MODULES[module]
        arguments = benchmark.arguments(form)
        if arguments is None:
            continue
        print(f"== {module}: {benchmark.title}", flush=True)
        started = time.monotonic()
        found, ended_well = measured(module, arguments)
        print(f"== {module} took {time.monotonic() - started:.0f} s", flush=True)
        ratios |= found
        if ended_well:
            done.add(module)
        else:
            failed.append(module)
    table: dict[str, dict[str, float]] = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    print(f"== compared with the {form} table in kept.json")
    print("\n".join(compared(ratios, table.get(form, {}))))
    if given.keep:
        # Figures that a benchmark no longer measures are dropped; those of benchmarks that did not run stay.
        others = {name: ratio for name, ratio in table.get(form, {}).items() if name.partition(":")[0] not in done}
        table[form] = others | ratios
        KEPT.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed and not given.short else 0


def measured(module: str, arguments: tuple[str, ...]) -> tuple[dict[str, float], bool]:
    """The ratios that one benchmark recorded, by `module: name`, and whether it ended well."""
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "figures.jsonl"
        command = [sys.executable, "-m", f"benchmarks.{module}", *arguments]
        ended = subprocess.run(command, check=False, env={**os.environ, RECORD: str(record)})
        lines = record.read_text(encoding="utf-8").splitlines() if record.exists() else []
    figures: list[dict[str, Any]] = [json.loads(line) for line in lines]
    return {f"{module}: {figure['name']}": figure["ratio"] for figure in figures}, ended.returncode == 0


def compared(now: Mapping[str, float], table: Mapping[str, float]) -> list[str]:
    """What dropped by more than DROP, worst first; what grew as much is counted only."""
    known = {name: ratio / table[name] for name, ratio in now.items() if table.get(name, 0) > 0}
    dropped = sorted((change, name) for name, change in known.items() if change < 1 - DROP)
    grown = sum(change > 1 + DROP for change in known.values())
    lines = [f"DROPPED {1 - change:.0%}: {name}  {table[name]:.3g} × to {now[name]:.3g} ×" for change, name in dropped]
    new = len(now) - len(known)
    lines.append(f"{len(known)} figures: {len(dropped)} dropped by more than {DROP:.0%}, {grown} grew; {new} are new")
    return lines


if __name__ == "__main__":
    sys.exit(main())
