"""`make soak`: engine seeds and the comparison of the two witnesses, for as long as SOAK_SECONDS says (3,600).

Two processes take one seed after another, in turns over every kind of run, then a table says what was done. Seeds begin
at SOAK_FIRST_SEED (the day's number by default, so that every night sees new ones); a failure names its seed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.fuzz.decoder import fuzz, uncompressed_batches
from tests.witness.beyond import BEYOND_MODEL, compare_beyond
from tests.witness.confusion import confusion_of
from tests.witness.runs import WITHIN_MODEL, compare_seed

ROOT = Path(__file__).resolve().parents[1]
PROCESSES = 2
DECODINGS = 1_000_000
"""Of mutated batches for a seed; the readable reference decodes every hundredth too."""
SECONDS_PER_DAY = 86_400
SEEDS_A_DAY = 100_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """One job: how many facts it compared, in how many seconds, and what failed."""

    item: str
    compared: int
    seconds: float
    failures: tuple[str, ...]


@dataclass
class Row:
    """One line of the table."""

    seeds: int = 0
    compared: int = 0
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)


def _replayed(scenario: str, seed: int) -> tuple[int, tuple[str, ...]]:
    found = compare_seed(scenario, seed)
    return sum(found.counts.values()), found.disagreements


def _damaged(scenario: str, seed: int) -> tuple[int, tuple[str, ...]]:
    found = compare_beyond(scenario, seed)
    return sum(found.counts.values()), found.disagreements


def _judged(scenario: str, seed: int) -> tuple[int, tuple[str, ...]]:
    found = confusion_of(scenario, seed)
    total: Counter[str] = sum(found.counts.values(), Counter())
    return sum(total.values()), tuple(found.disagreements)


def _mutated(_: str, seed: int) -> tuple[int, tuple[str, ...]]:
    log = ROOT / "samples/crafted/all-records-all-versions/__cluster_metadata-0/00000000000000000000.log"
    done = fuzz(uncompressed_batches(log.read_bytes()), seed, executions=DECODINGS, compared=DECODINGS // 100)
    return done.executions, ()


Job = tuple[str, Callable[[str, int], tuple[int, tuple[str, ...]]], str]
JOBS: tuple[Job, ...] = (
    *((f"replay = truth, {name}", _replayed, name) for name in WITHIN_MODEL),
    *((f"damage is told, {name}", _damaged, name) for name in BEYOND_MODEL),
    ("findings = truth, random", _judged, "random"),
    ("findings = truth, random-raft", _judged, "random-raft"),
    ("mutated batches decoded", _mutated, ""),
)


def run(number: int, seed: int) -> Outcome:
    """One job on one seed; an exception is a failure of that seed."""
    item, work, scenario = JOBS[number]
    start = time.monotonic()
    try:
        compared, failures = work(scenario, seed)
    except Exception:
        compared, failures = 0, (traceback.format_exc(limit=-3),)
    told = tuple(f"{item}, seed {seed}: {failure}" for failure in failures)
    return Outcome(item, compared, time.monotonic() - start, told)


def _work(first_seed: int) -> Iterator[tuple[int, int]]:
    for seed in count(first_seed):
        for number in range(len(JOBS)):
            yield number, seed


def soak(seconds: float, first_seed: int, say: Callable[[str], None]) -> dict[str, Row]:
    """Runs jobs until the time is over, then waits for those under way."""
    rows = {item: Row() for item, _, _ in JOBS}
    deadline = time.monotonic() + seconds
    work = _work(first_seed)
    with ProcessPoolExecutor(PROCESSES) as pool:
        pending: set[Future[Outcome]] = set()
        while pending or time.monotonic() < deadline:
            while len(pending) < 2 * PROCESSES and time.monotonic() < deadline:
                pending.add(pool.submit(run, *next(work)))
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            for future in done:
                outcome = future.result()
                row = rows[outcome.item]
                row.seeds += 1
                row.compared += outcome.compared
                row.seconds += outcome.seconds
                row.failures += outcome.failures
                for failure in outcome.failures:
                    say(failure)
    return rows


def table(rows: dict[str, Row]) -> str:
    lines = [f"{'item':34}{'seeds':>8}{'compared':>12}{'seconds':>10}{'failures':>10}"]
    lines += [
        f"{item:34}{row.seeds:>8}{row.compared:>12}{row.seconds:>10.0f}{len(row.failures):>10}"
        for item, row in rows.items()
    ]
    return "\n".join(lines)


def read_by_kafka() -> int:
    """Kafka's own classes read engine dirs, and a real controller starts on two; 0 where the jars cannot be had too."""
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-m", "kafka", "tests/kraft_engine"]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def main() -> int:
    seconds = float(os.environ.get("SOAK_SECONDS", "3600"))
    today = int(time.time()) // SECONDS_PER_DAY
    first_seed = int(os.environ.get("SOAK_FIRST_SEED", str(today * SEEDS_A_DAY)))
    rows = soak(seconds, first_seed, lambda text: print(text, file=sys.stderr, flush=True))
    print(f"seeds from {first_seed} on")
    print(table(rows))
    refused = read_by_kafka()
    return int(bool(refused) or any(row.failures for row in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
