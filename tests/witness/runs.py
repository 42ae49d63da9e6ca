"""Engine runs one after another: simulated to a folder, compared, removed."""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from kraft_engine import simulate
from tests.witness.audited import FAST_FOLDER
from tests.witness.comparison import compare_quickly, compare_run
from tests.witness.confusion import Confusion, judge
from tests.witness.losses_truth import lost_records
from tests.witness.played import play

WITHIN_MODEL = ("random", "random-raft", "random-kip856", "random-kip642")
REGRESSIONS = Path(__file__).with_name("regressions.yaml")


@dataclass(frozen=True, slots=True)
class RunResult:
    """One seed: what was compared, what did not agree, how long it took; of `findings`, what rules say beside truth."""

    scenario: str
    seed: int
    counts: Counter[str]
    disagreements: tuple[str, ...]
    seconds: float
    findings: Confusion = field(default_factory=Confusion)


def seed_count(default: int) -> int:
    """How many seeds each kind of run gets: KRAFT_SEEDS, else the default."""
    return int(os.environ.get("KRAFT_SEEDS", default))


def compare_seed(scenario: str, seed: int) -> RunResult:
    """Plays one seed of a random scenario within the model, every invariant on, and compares it."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kraft-witness-", dir=FAST_FOLDER) as folder:
        out = Path(folder) / "run"
        played = simulate(scenario, seed, out)
        found = compare_run(out, chance=_chance(seed))
        found.counts["events"] += played.event_count
    return RunResult(scenario, seed, found.counts, tuple(found.disagreements), time.monotonic() - start)


def compare_and_judge(scenario: str, seed: int) -> RunResult:
    """The same by a single reading of all captures, and what the rules say of them beside the truth."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kraft-witness-", dir=FAST_FOLDER) as folder:
        played = play(scenario, seed, Path(folder) / "run", is_judged=True)
        found = compare_quickly(played.truth, played.audited, chance=_chance(seed))
        found.add(lost_records(played, found.counts))
        found.counts["events"] += played.event_count
        judged = judge(played)
    reported = (*found.disagreements, *judged.disagreements)
    return RunResult(scenario, seed, found.counts, reported, time.monotonic() - start, judged)


def _chance(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311  # not a secret


def compare_seeds(scenario: str, seeds: Iterable[int]) -> Iterator[RunResult]:
    for seed in seeds:
        yield compare_seed(scenario, seed)


def disagreement_lines(results: Iterable[RunResult]) -> list[str]:
    """Every disagreement as one line, with what reproduces it."""
    return [f"{result.scenario} seed {result.seed}: {text}" for result in results for text in result.disagreements]


def regressions(kind: str) -> list[dict[str, Any]]:
    """Kept seeds of one kind (`seeds`, `open_seeds`)."""
    return list(yaml.safe_load(REGRESSIONS.read_text(encoding="utf-8"))[kind])
