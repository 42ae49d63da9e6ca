"""`make soak`: everything that can run for longer, on two processes, for SOAK_MINUTES (60).

The time is shared among the parts by their weights: whichever part has had the least of its share is next. Parts take
seeds from SOAK_FIRST_SEED on (the day's number by default, so that every night sees new ones); a failure names its
seed. The last figures go into docs/reliability.md, unless SOAK_KEEP=0. Ends with 1 where anything failed.

SOAK_PART=TEXT runs only the parts whose names hold the text, SOAK_JOBS=N each part for at most N seeds, both without
keeping figures. `make soak SOAK_PART=kept SOAK_JOBS=500 SOAK_MINUTES=300 SOAK_FIRST_SEED=0` plays 10,000 chains.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.soak_parts import PARTS, ROOT, Done, Part, SkippedError

PROCESSES = 2
SECONDS_PER_DAY = 86_400
SEEDS_A_DAY = 100_000
PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- figures of the last soak: written by scripts/soak.py -->", "<!-- end of the figures -->"


@dataclass
class Row:
    """One part: jobs under way or done, what they did, their seconds, what failed."""

    part: Part
    seeds: int = 0
    cases: int = 0
    seconds: float = 0.0
    under_way: int = 0
    skipped: str = ""
    failures: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    @property
    def share_used(self) -> float:
        # A job under way counts as much as those before it took, so that a part of long jobs does not start many.
        expected = self.seconds / self.seeds if self.seeds else 1.0
        return (self.seconds + self.under_way * expected) / self.part.weight

    @property
    def is_over(self) -> bool:
        jobs_max = self.part.jobs_max
        return bool(self.skipped) or (jobs_max is not None and self.seeds + self.under_way >= jobs_max)


def work(name: str, seed: int, seconds: float) -> tuple[Done, float]:
    """One job of a part; an exception is a failure of that seed."""
    started = time.monotonic()
    part = PARTS[name]
    try:
        done = part.work(seed, seconds)
    except SkippedError as reason:
        done = Done(0, skipped=str(reason))
    except Exception:
        done = Done(0, (traceback.format_exc(limit=-3),))
    return done, time.monotonic() - started


def chosen_parts(text: str = "", jobs_max: int | None = None) -> dict[str, Part]:
    """The parts whose names hold the text, each with at most so many jobs. Raises ValueError where there is none."""
    parts = {name: part for name, part in PARTS.items() if text in name}
    if not parts:
        raise ValueError(f"no part's name holds {text!r}: {'; '.join(PARTS)}")
    if jobs_max is None:
        return parts
    return {name: replace(part, jobs_max=min(jobs_max, part.jobs_max or jobs_max)) for name, part in parts.items()}


def soak(seconds: float, first_seed: int, say: Callable[[str], None], parts: dict[str, Part]) -> dict[str, Row]:
    """Runs jobs until the time or every part is over, then waits for those under way."""
    rows = {name: Row(part) for name, part in parts.items()}
    deadline = time.monotonic() + seconds
    whole = sum(part.weight for part in parts.values())
    given = {name: PROCESSES * seconds * part.weight / whole for name, part in parts.items()}
    numbers = dict.fromkeys(parts, 0)
    pending: dict[Future[tuple[Done, float]], tuple[str, int]] = {}
    with ProcessPoolExecutor(PROCESSES) as pool:
        while pending or (time.monotonic() < deadline and not all(row.is_over for row in rows.values())):
            while len(pending) < PROCESSES and time.monotonic() < deadline:
                left = [name for name, row in rows.items() if not row.is_over]
                if not left:
                    break
                name = min(left, key=lambda name: rows[name].share_used)
                seed = first_seed + numbers[name]
                numbers[name] += 1
                rows[name].under_way += 1
                pending[pool.submit(work, name, seed, given[name])] = (name, seed)
            for future in wait(pending, return_when=FIRST_COMPLETED).done:
                name, seed = pending.pop(future)
                done, took = future.result()
                row = rows[name]
                row.under_way -= 1
                row.seeds += 1
                row.cases += done.cases
                row.seconds += took
                row.skipped = done.skipped
                row.failures += [f"{name}, seed {seed}: {failure}" for failure in done.failures]
                row.remarks += done.remarks
                for message in (*done.failures, *done.remarks):
                    say(f"{name}, seed {seed}: {message}")
    return rows


def table(rows: dict[str, Row]) -> str:
    """What was done, as a table that a page can hold."""
    lines = ["| part | jobs | done | seconds | failures |", "| --- | ---: | ---: | ---: | ---: |"]
    for name, row in rows.items():
        done = f"not run: {row.skipped}" if row.skipped else f"{row.cases:,} {row.part.unit}"
        if row.remarks:
            done += f", {len(row.remarks):,} to look at"
        lines.append(f"| {name} | {row.seeds:,} | {done} | {row.seconds:,.0f} | {len(row.failures)} |")
    return "\n".join(lines)


def keep(page: str, text: str) -> str:
    """The page with its figures replaced."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{text}\n{END}{tail}"


def commit() -> str:
    process = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return process.stdout.strip() or "an unknown commit"


def main() -> int:
    if sys.argv[1:]:
        print(__doc__)
        return int(sys.argv[1:] != ["--help"])
    minutes = float(os.environ.get("SOAK_MINUTES", "60"))
    now = datetime.now(UTC)
    first_seed = int(os.environ.get("SOAK_FIRST_SEED", str(int(now.timestamp()) // SECONDS_PER_DAY * SEEDS_A_DAY)))
    named, jobs = os.environ.get("SOAK_PART", ""), os.environ.get("SOAK_JOBS", "")
    try:
        parts = chosen_parts(named, int(jobs) if jobs else None)
    except ValueError as problem:
        print(problem, file=sys.stderr)
        return 2
    started, begun_at = time.monotonic(), commit()
    rows = soak(60 * minutes, first_seed, lambda text: print(text, file=sys.stderr, flush=True), parts)
    took = (time.monotonic() - started) / 60
    head = (
        f"{now:%Y-%m-%d}, commit {begun_at}, {took:.0f} minutes on {PROCESSES} processes, seeds from {first_seed:,} on."
    )
    text = f"{head}\n\n{table(rows)}"
    print(text)
    failures = [failure for row in rows.values() for failure in row.failures]
    is_kept = os.environ.get("SOAK_KEEP", "1") == "1" and not named and not jobs
    if is_kept and BEGIN in (page := PAGE.read_text(encoding="utf-8")):
        PAGE.write_text(keep(page, text), encoding="utf-8")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
