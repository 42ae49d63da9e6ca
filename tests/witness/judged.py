"""Findings against truth over many seeds, on all processors: `python -m tests.witness.judged [SEEDS [FIRST_SEED]]`.

Prints the confusion table: by rule, how many subjects were raised rightly or falsely, or missed.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

from tests.witness.confusion import DECIDED, Confusion, confusion_of

KINDS = ("random", "random-raft")
JOBS_AT_A_TIME = 8


def judge(job: tuple[str, int]) -> Confusion:
    """One seed; an exception is a disagreement."""
    scenario, seed = job
    try:
        return confusion_of(scenario, seed)
    except Exception:
        return Confusion(disagreements=[f"{scenario} seed {seed}: {traceback.format_exc(limit=-3)}"])


def judge_many(seeds: int, first_seed: int, say: Callable[[str], None]) -> tuple[dict[str, Counter[str]], list[str]]:
    """Sums by rule, and every disagreement; kinds of runs take turns."""
    sums: dict[str, Counter[str]] = {rule: Counter() for rule in DECIDED}
    told: list[str] = []
    jobs = [(KINDS[number % len(KINDS)], first_seed + number) for number in range(seeds)]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for found in pool.map(judge, jobs, chunksize=JOBS_AT_A_TIME):
            for rule, counts in found.counts.items():
                sums[rule].update(counts)
            for text in found.disagreements:
                told.append(text)
                say(text)
    return sums, told


def table(sums: dict[str, Counter[str]]) -> str:
    kinds = ("right", "clear", "false", "missed")
    lines = [f"{'rule':8}" + "".join(f"{kind:>8}" for kind in kinds) + f"{'precision':>11}{'recall':>8}"]
    for rule, counts in sorted(sums.items()):
        shown = "".join(f"{counts[kind]:>8}" for kind in kinds)
        lines.append(f"{rule:8}{shown}{_share(counts, 'false'):>11}{_share(counts, 'missed'):>8}")
    return "\n".join(lines)


def _share(counts: Counter[str], wrong: str) -> str:
    whole = counts["right"] + counts[wrong]
    return f"{counts['right'] / whole:.4f}" if whole else "-"


def main(arguments: list[str]) -> int:
    seeds = int(arguments[0]) if arguments else 2_000
    first_seed = int(arguments[1]) if len(arguments) > 1 else 1
    started = time.monotonic()
    sums, told = judge_many(seeds, first_seed, lambda text: print(text, file=sys.stderr, flush=True))  # noqa: T201
    print(table(sums))  # noqa: T201
    print(f"{seeds} seeds, {len(told)} disagreements, {time.monotonic() - started:.0f} s")  # noqa: T201
    return int(bool(told))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
