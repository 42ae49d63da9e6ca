"""Random incidents of a controller quorum, what `may-i` and `rescue --plan` say of them, and what the engine then does.

A seed is one run: nodes crash, are cut off, change the voters; disks are wiped; what is left is captured, once. All
questions are asked of one reading. After a yes chance goes on and no committed batch may ever be missing in a leader's
log; a no that names an election is played, and its leader must lack the record that is named.

`python -m tests.witness.recovery_seeds [SEEDS [FIRST_SEED]] [--journal FILE]` plays many on one processor, and an
interrupted one goes on where its journal ends.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import kraft_audit
from kraft_audit.recovery.may_i.electorate import NO_EPOCH
from kraft_audit.recovery.may_i.permission import Action, Permission, Question, Verdict
from tests.witness.audited import FAST_FOLDER
from tests.witness.journal import kept_lines
from tests.witness.lost_majority import LostMajority
from tests.witness.plan_bounds import plan_disagreements
from tests.witness.recovery_incidents import AHEAD_MS, Incident, Schedule

UNDECIDED_MAX = 0.05
"""Of `may-i start` where all disks were read at rest, none forgot, and what is committed is known to the record."""
BOUNDS_EQUAL_MIN = 0.9
"""Of seeds with all disks at rest: there what is committed is known to the record."""


@dataclass(frozen=True, slots=True)
class Played:
    """One seed, or several: what was counted, and every disagreement."""

    counts: Counter[str]
    disagreements: tuple[str, ...]


def play_all(seeds: Iterable[int]) -> Played:
    """Many seeds; an exception, such as a violated invariant, is a disagreement."""
    counts: Counter[str] = Counter()
    disagreements: list[str] = []
    for seed in seeds:
        found = _play_soundly(seed)
        counts.update(found.counts)
        disagreements += [f"seed {seed}: {text}" for text in found.disagreements]
    return Played(counts, tuple(disagreements))


def _play_soundly(seed: int) -> Played:
    try:
        return play(seed)
    except Exception:
        return Played(Counter(seeds=1), (traceback.format_exc(limit=-3),))


def broken_ceilings(counts: Counter[str]) -> Iterator[str]:
    """What is too often undecided, or too seldom known, among many seeds: "always undecided" is no answer."""
    if counts["undecided at rest"] > UNDECIDED_MAX * counts["asked at rest"]:
        yield f"{counts['undecided at rest']} of {counts['asked at rest']} starts at rest are undecided"
    if counts["at rest, bounds equal"] < BOUNDS_EQUAL_MIN * counts["at rest"]:
        yield f"bounds are equal in {counts['at rest, bounds equal']} of {counts['at rest']} seeds at rest"


def play(seed: int) -> Played:
    """An incident of `may-i`, and for every third seed one of `rescue --plan`."""
    with tempfile.TemporaryDirectory(prefix="kraft-recovery-", dir=FAST_FOLDER) as made:
        counts, disagreements = _asked(seed, Path(made))
        if seed % 3 == 1:
            incident = LostMajority(seed, Path(made) / "lost", was_read=seed % 2 == 0)
            with kraft_audit.open(str(incident.out)) as clusters:
                (cluster,) = clusters
                plan = cluster.rescue_plan(incident.gone)
            disagreements += [f"rescue --plan: {text}" for text in plan_disagreements(incident, plan, counts)]
    return Played(counts, tuple(disagreements))


def _asked(seed: int, folder: Path) -> tuple[Counter[str], list[str]]:
    counts: Counter[str] = Counter(seeds=1)
    incident = Incident(seed, folder / "run")
    read = incident.capture()
    questions = list(incident.questions())
    with kraft_audit.open(str(incident.out)) as clusters:
        (cluster,) = clusters
        answers = [(question, cluster.may_i(question)) for question in questions if question.node_id in read]
        safety, _ = cluster.start_safety
    counts.update(f"{question.action} {answer.verdict}" for question, answer in answers)
    if incident.is_at_rest and len(read) == len(incident.ids):
        counts["at rest"] += 1
        is_equal = safety is not None and safety.low == safety.high
        counts["at rest, bounds equal"] += is_equal
        if is_equal and safety is not None and all(disk.forgotten_to == NO_EPOCH for disk in safety.disks):
            starts = [answer.verdict for question, answer in answers if question.action is Action.START]
            counts["asked at rest"] += len(starts)
            counts["undecided at rest"] += starts.count(Verdict.UNDECIDED)
    return counts, list(_disagreements(seed, folder, incident, answers, counts))


def _disagreements(
    seed: int, folder: Path, incident: Incident, answers: list[tuple[Question, Permission]], counts: Counter[str]
) -> Iterator[str]:
    chance = random.Random(seed)  # noqa: S311
    schedules = {
        schedule: (question, answer)
        for question, answer in answers
        if answer.verdict is Verdict.NO and (schedule := Schedule.printed(answer)) is not None
    }
    for schedule, (question, answer) in chance.sample(sorted(schedules.items(), key=str), min(1, len(schedules))):
        counts["schedules played"] += 1
        attempts = (Incident(seed, folder / "again").loses_by(schedule, question, ahead) for ahead in AHEAD_MS)
        if not any(attempts):
            yield f"{question}: {answer.reason} Nothing is lost when it is played."
    allowed = [(question, answer) for question, answer in answers if answer.verdict is Verdict.YES]
    # That nothing runs is rarely worth a play.
    allowed = [each for each in allowed if not each[1].reason.startswith("Nothing can be")] or allowed
    for question, answer in chance.sample(allowed, min(1, len(allowed))):
        counts[f"{question.action} allowed, played"] += 1
        is_observer = "is no voter" in answer.reason
        if incident.loses_by_chance(question, is_observer=is_observer):
            yield f"{question}: {answer.reason} A committed record is lost."


def _with_journal(seeds: range, journal: Path) -> Iterator[tuple[int, Played]]:
    """What was played before, then what is played now, each written down before it is given."""
    rows = map(json.loads, kept_lines(journal))
    done = {row["seed"]: Played(Counter(row["counts"]), tuple(row["disagreements"])) for row in rows}
    with journal.open("a", encoding="utf-8") as remaining:
        for seed in seeds:
            found = done.get(seed)
            if found is None:
                found = _play_soundly(seed)
                row = {"seed": seed, "counts": found.counts, "disagreements": found.disagreements}
                remaining.write(f"{json.dumps(row)}\n")
                remaining.flush()
            yield seed, found


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.witness.recovery_seeds", description="may-i, rescue --plan.")
    parser.add_argument("seeds", type=int, nargs="?", default=10_000)
    parser.add_argument("first_seed", type=int, nargs="?", default=0)
    parser.add_argument("--journal", type=Path, default=Path(os.devnull), help="of one state of the code")
    given = parser.parse_args(arguments)
    started, counts, failures = time.monotonic(), Counter[str](), 0
    for seed, found in _with_journal(range(given.first_seed, given.first_seed + given.seeds), given.journal):
        counts.update(found.counts)
        failures += len(found.disagreements)
        for text in found.disagreements:
            print(f"seed {seed}: {text}", flush=True)  # noqa: T201
    broken = list(broken_ceilings(counts))
    lines = [*broken, *(f"{name:34}{count:>9,}" for name, count in sorted(counts.items()))]
    lines += [f"{failures} disagreements, {time.monotonic() - started:.0f} s"]
    print("\n".join(lines), flush=True)  # noqa: T201
    return int(bool(failures or broken))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
