"""Many seeds of every kind of run, on all processors: `python -m tests.witness.sweep [SEEDS [FIRST_SEED [KIND…]]]`.

With `--journal FILE` what each seed gave is kept, and a sweep that was interrupted goes on where it was.

Each seed is one run of at least 5,000 events with every invariant on, captured at one moment and at several, replayed
and judged, both compared with the truth; runs beyond Raft's model must show their damage. Prints what was done, and by
rule how many subjects were raised rightly or falsely, or missed.
"""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.witness.beyond import compare_beyond
from tests.witness.confusion import Confusion, add_up, confusion_table
from tests.witness.journal import played_in_pool
from tests.witness.runs import RunResult, compare_and_judge, disagreement_lines

SHARES = {
    "random": 15,
    "random-raft": 15,
    "random-upgrade": 5,
    "random-kip856": 20,
    "random-storm": 5,
    "random-kip642": 20,
    "random-wide": 5,
    "random-harsh": 4,
    "random-lifelike": 1,
    "random-beyond": 5,
    "random-raft-beyond": 5,
}
"""Of a hundred seeds so many are of each kind; every dialect and both kinds of schedules are among them.

A lifelike run has ten times the events of another.
"""
EVENTS_MIN = 5_000
JOBS_AT_A_TIME = 8


@dataclass(slots=True)
class Row:
    """One kind of run: seeds played, events in them, facts compared."""

    seeds: int = 0
    events: int = 0
    compared: int = 0
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class Sweep:
    """What was done by kind of run, what the rules said beside the truth, and every disagreement."""

    rows: dict[str, Row] = field(default_factory=dict)
    played: list[tuple[str, int]] = field(default_factory=list)
    findings: dict[str, Counter[str]] = field(default_factory=dict)
    disagreements: list[str] = field(default_factory=list)


def kinds(seeds: int, first_seed: int, only: Sequence[str] = ()) -> Iterator[tuple[str, int]]:
    """(scenario, seed) of as many runs as asked for, in the shares of `SHARES`, or of these kinds alone."""
    turn = [name for name, share in SHARES.items() for _ in range(share) if name in (only or SHARES)]
    for number in range(seeds):
        yield turn[number % len(turn)], first_seed + number


def play(job: tuple[str, int]) -> RunResult:
    """One seed; an exception, such as a violated invariant, is a disagreement."""
    scenario, seed = job
    try:
        return compare_beyond(scenario, seed) if "beyond" in scenario else compare_and_judge(scenario, seed)
    except Exception:
        return RunResult(scenario, seed, Counter(), (traceback.format_exc(limit=-3),), 0.0)


def sweep(
    seeds: int,
    first_seed: int,
    say: Callable[[str], None],
    only: Sequence[str] = (),
    journal: Path | None = None,
) -> Sweep:
    """Plays the seeds that the journal does not hold; says every disagreement as it is found."""
    done = Sweep({name: Row() for name in only or SHARES})
    judged: list[Confusion] = []
    for result in _results(list(kinds(seeds, first_seed, only)), journal):
        row = done.rows[result.scenario]
        done.played.append((result.scenario, result.seed))
        row.seeds += 1
        row.seconds += result.seconds
        row.counts += result.counts
        row.events += result.counts["events"]
        row.compared += sum(result.counts.values()) - result.counts["events"]
        judged.append(result.findings)
        for text in disagreement_lines([result]):
            done.disagreements.append(text)
            say(text)
    done.findings = add_up(judged)
    return done


def _results(wanted: list[tuple[str, int]], journal: Path | None) -> Iterator[RunResult]:
    return played_in_pool(
        wanted,
        journal,
        play,
        job_of=lambda result: (result.scenario, result.seed),
        read=_read,
        written=_written,
        jobs_at_a_time=JOBS_AT_A_TIME,
    )


def _written(result: RunResult) -> str:
    return json.dumps(
        {
            "scenario": result.scenario,
            "seed": result.seed,
            "counts": result.counts,
            "disagreements": result.disagreements,
            "seconds": result.seconds,
            "findings": {"counts": result.findings.counts, "disagreements": result.findings.disagreements},
        }
    )


def _read(line: str) -> RunResult:
    reported_before = json.loads(line)
    counts = {rule: Counter(numbers) for rule, numbers in reported_before["findings"]["counts"].items()}
    return RunResult(
        reported_before["scenario"],
        reported_before["seed"],
        Counter(reported_before["counts"]),
        tuple(reported_before["disagreements"]),
        reported_before["seconds"],
        Confusion(counts, reported_before["findings"]["disagreements"]),
    )


def table(rows: dict[str, Row]) -> str:
    """What was done, one line a kind of run."""
    columns = ("captures", "subsets", "voter sets", "epochs", "partition states", "snapshots")
    head = f"{'run':20}{'seeds':>7}{'events':>12}{'compared':>10}" + "".join(f"{name:>18}" for name in columns)
    lines = [f"{head}{'seconds':>9}"]
    total = Row()
    for name, row in rows.items():
        lines.append(_line(name, row, columns))
        total.seeds += row.seeds
        total.events += row.events
        total.compared += row.compared
        total.seconds += row.seconds
        total.counts += row.counts
    return "\n".join([*lines, _line("all", total, columns)])


def _line(name: str, row: Row, columns: tuple[str, ...]) -> str:
    counted = "".join(f"{row.counts[column]:>18,}" for column in columns)
    return f"{name:20}{row.seeds:>7,}{row.events:>12,}{row.compared:>10,}{counted}{row.seconds:>9.0f}"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.witness.sweep", description="Random runs against their truth."
    )
    parser.add_argument("seeds", type=int, nargs="?", default=2_000)
    parser.add_argument("first_seed", type=int, nargs="?", default=1)
    parser.add_argument("kinds", nargs="*", help=f"of {', '.join(SHARES)}; all unless named")
    parser.add_argument("--journal", type=Path, help="a file that keeps what each seed gave; of one state of the code")
    given = parser.parse_args(arguments)
    done = sweep(
        given.seeds,
        given.first_seed,
        lambda text: print(text, file=sys.stderr, flush=True),  # noqa: T201
        given.kinds,
        given.journal,
    )
    seconds = sum(row.seconds for row in done.rows.values())
    print(f"{table(done.rows)}\n\n{confusion_table(done.findings)}")  # noqa: T201
    print(f"{len(done.disagreements)} disagreements, {seconds:.0f} s of one processor")  # noqa: T201
    return int(bool(done.disagreements))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
