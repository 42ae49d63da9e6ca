"""The parts of `make soak`: each job runs some cases for a seed and returns how many there were and what failed."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kraft_engine.invariants.switches import RULES
from kraft_engine.runs.hunt import SEED_LIMIT, hunt
from kraft_engine.runs.simulate import simulate
from tests.builders.captures import SMALL_CORPUS
from tests.builders.hourly_seeds import play as play_hours
from tests.fuzz.decoder import fuzz, sample_batches
from tests.fuzz.every_bit import cut_at_every_length, flip_every_bit, sound_run
from tests.fuzz.parsers import PARSERS, mutated
from tests.witness.altered_disks import VOTERS, judged, write_altered
from tests.witness.hourly_sweep import too_little
from tests.witness.recovery_seeds import play_all
from tests.witness.runs import WITHIN_MODEL, disagreement_lines
from tests.witness.sweep import SHARES, play

ROOT = Path(__file__).resolve().parents[1]
DECODINGS = 1_000_000
"""Of mutated batches for a seed; the readable reference decodes every hundredth too."""
INPUTS = 300
ALTERATIONS = 200
KILLS = 5
IO_ERRORS = 5
MUTANTS = 20
GUIDED_MIB = 1500
GUIDED_START_SECONDS = 8
"""Until a guided run has imported and instrumented everything: its share of the time goes on that too."""
EVERY_BIT_BYTES = 16 << 10
INTERLEAVINGS = 20
LAKES = 8
SWITCHES = 4
RECOVERIES = 50
HOURLY_CHAINS = 20
EXAMPLES_A_SECOND = 200
PROPERTIES = sorted(
    str(path.relative_to(ROOT)) for path in ROOT.glob("tests/**/test_*.py") if "@given" in path.read_text()
)
CORPUS = ROOT / ".cache" / "fuzz"
EXAMPLES = re.compile(r"(\d+) passing, ")
COLLECTED = re.compile(r"(\d+)(?:/\d+)? tests? collected")
RUNS = re.compile(r"number_of_executed_units: (\d+)")
TRIED = re.compile(r"of (\d+) mutants killed")
LIVED = re.compile(r"^SURVIVED (.*)$", re.MULTILINE)
PASSED = re.compile(r"(\d+) passed")
OUTPUT_TAIL_CHARACTERS = 1500


class SkippedError(Exception):
    """Why a part cannot run here. The reason is printed, and its time goes to the other parts."""


@dataclass(frozen=True, slots=True)
class Done:
    """One job: how many cases it went through, what failed, and what is worth a look though nothing failed."""

    cases: int
    failures: tuple[str, ...] = ()
    skipped: str = ""
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """A part: its share of the time, what its cases are, one job for (seed, the seconds that the part has in all)."""

    weight: int
    unit: str
    work: Callable[[int, float], Done]
    jobs_max: int | None = None


def _engine(scenario: str, seed: int, _: float) -> Done:
    run = play((scenario, seed))
    return Done(run.counts["events"], tuple(disagreement_lines([run])))


def _altered(seed: int, _: float) -> Done:
    failures = []
    for number in range(seed * ALTERATIONS, (seed + 1) * ALTERATIONS):
        with tempfile.TemporaryDirectory() as folder:
            failures += judged(Path(folder), write_altered(Path(folder), VOTERS[number % len(VOTERS)], number))
    return Done(ALTERATIONS, tuple(failures))


def _decoded(seed: int, _: float) -> Done:
    done = fuzz(sample_batches(SMALL_CORPUS), seed, executions=DECODINGS, compared=DECODINGS // 100)
    return Done(done.executions)


def _parsed(seed: int, _: float) -> Done:
    failures = []
    for parser in PARSERS.values():
        for number, data in enumerate(mutated(parser, INPUTS, seed)):
            try:
                parser.feed(data)
            except Exception as fault:
                failures.append(f"{parser.name}, input {number}: {type(fault).__name__}: {fault}")
                break
    return Done(INPUTS * len(PARSERS), tuple(failures))


def _guided(seed: int, seconds: float) -> Done:
    """One parser a job, in turns; the inputs that reached something new are kept for the next soak."""
    name = list(PARSERS)[seed % len(PARSERS)]
    share = round(min(max(seconds / len(PARSERS) - GUIDED_START_SECONDS, 3), 60))
    return guided(name, seed, share, CORPUS / name)


def guided(name: str, seed: int, seconds: int, corpus: Path) -> Done:
    """atheris at one parser, in a process of its own."""
    # A program begins with the peak of the process that started it, and libFuzzer goes by peaks.
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    arguments = (seconds, seed % 2**31, corpus, peak_mib + GUIDED_MIB)
    command = [sys.executable, "-m", "tests.fuzz.guided", name, *map(str, arguments)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if "No module named 'atheris'" in ended.stderr:
        raise SkippedError("atheris is not installed here")
    runs = RUNS.search(ended.stderr)
    if ended.returncode or runs is None:
        return Done(
            0, (f"{name} ended with {ended.returncode}: {(ended.stdout + ended.stderr)[-OUTPUT_TAIL_CHARACTERS:]}",)
        )
    return Done(int(runs[1]))


def _every_bit(seed: int, _: float) -> Done:
    """A run of batches out of a sample's files, or of what an engine run left: in turns."""
    if seed % 2:
        files = sorted(path for kind in ("log", "checkpoint") for path in SMALL_CORPUS.rglob(f"*.{kind}"))
        log = files[seed // 2 % len(files)].read_bytes()
    else:
        with tempfile.TemporaryDirectory() as folder:
            simulate(WITHIN_MODEL[seed // 2 % len(WITHIN_MODEL)], seed, Path(folder) / "run")
            log = max((path.read_bytes() for path in Path(folder).rglob("*.log")), key=len)
    log = sound_run(log, EVERY_BIT_BYTES, seed)
    return Done(flip_every_bit(log) + cut_at_every_length(log) if log else 0)


def _switched_off(seed: int, _: float) -> Done:
    """A few safety rules a job, in turns, from seeds that no earlier soak had."""
    remarks = []
    for number in range(seed * SWITCHES, (seed + 1) * SWITCHES):
        rule = RULES[number % len(RULES)]
        first_seed = seed * SEED_LIMIT
        if hunt(rule, first_seed=first_seed) is None:
            # Rare damage may not occur in so few seeds: only a longer search decides (`make switches` caught it once).
            remarks.append(f"{rule} was off for seeds from {first_seed} on, {SEED_LIMIT} of them, and nothing broke")
    return Done(SWITCHES, remarks=tuple(remarks))


def _tests(arguments: list[str], settings: dict[str, str]) -> str:
    """Runs some tests; what pytest said. Raises SkippedError where all of them skip, AssertionError where one fails."""
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "--timeout", "3000", *arguments]
    ended = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **settings}, capture_output=True, text=True, check=False
    )
    if ended.returncode:
        raise AssertionError(ended.stdout[-OUTPUT_TAIL_CHARACTERS:] + ended.stderr[-OUTPUT_TAIL_CHARACTERS:])
    if not PASSED.search(ended.stdout):
        raise SkippedError(ended.stdout.strip().splitlines()[-2][-200:])
    return ended.stdout


def _recovered(seed: int, _: float) -> Done:
    """What `may-i` and `rescue --plan` say, against what the engine then does."""
    played = play_all(range(seed * RECOVERIES, (seed + 1) * RECOVERIES))
    return Done(RECOVERIES, played.disagreements)


def _killed(seed: int, _: float) -> Done:
    test = "tests/kraft_audit/lake/test_pipeline.py::test_killed_at_any_moment_and_run_again"
    _tests([test], {"KRAFT_AUDIT_KILLS": str(KILLS), "KRAFT_AUDIT_KILLS_SEED": str(seed)})
    return Done(KILLS)


def _interleaved(seed: int, _: float) -> Done:
    test = "tests/kraft_audit/lake/test_interleavings.py::test_runs_in_many_interleavings"
    first_seed = str(seed * INTERLEAVINGS)
    _tests([test], {"KRAFT_AUDIT_INTERLEAVINGS": str(INTERLEAVINGS), "KRAFT_AUDIT_INTERLEAVINGS_SEED": first_seed})
    return Done(INTERLEAVINGS)


def _hours(seed: int, _: float) -> Done:
    """Hours of clusters: against all captures, with deleted segments, with disks in any order."""
    played = []
    for number in range(seed * HOURLY_CHAINS, (seed + 1) * HOURLY_CHAINS):
        with tempfile.TemporaryDirectory() as folder:
            played.append(play_hours(number, Path(folder)))
    failures = [f"seed {each.seed}, {failure}" for each in played for failure in each.failures]
    return Done(3 * HOURLY_CHAINS, (*failures, *too_little(played)))


def _lakes(seed: int, _: float) -> Done:
    """Hours in a lake while Kafka deletes segments, beside what the lake's own archive says."""
    settings = {"KRAFT_AUDIT_FIRST_SEED": str(seed * LAKES), "KRAFT_AUDIT_LAKES": str(LAKES)}
    _tests(["-m", "ci", "tests/kraft_audit/lake/test_lake_of_hours.py"], settings)
    return Done(LAKES)


def _properties(seed: int, seconds: float) -> Done:
    """One file of properties a job, in turns, with as many examples of each as fit into its share of the time."""
    file = PROPERTIES[seed % len(PROPERTIES)]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--collect-only",
        "-m",
        "hypothesis",
        file,
    ]
    listed = COLLECTED.search(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout)
    if listed is None:
        return Done(0, (f"{file} holds no property",))
    examples = max(50, round(seconds / len(PROPERTIES) / int(listed[1]) * EXAMPLES_A_SECOND))
    settings = {"KRAFT_AUDIT_HYPOTHESIS_PROFILE": "soak", "KRAFT_AUDIT_EXAMPLES": str(examples)}
    options = ["-m", "hypothesis", "--hypothesis-show-statistics", f"--hypothesis-seed={seed}"]
    return Done(sum(map(int, EXAMPLES.findall(_tests([*options, file], settings)))))


def _io_errors(seed: int, _: float) -> Done:
    settings = {"KRAFT_AUDIT_IO_ERRORS": str(IO_ERRORS), "KRAFT_AUDIT_IO_ERRORS_SEED": str(seed)}
    _tests(["tests/hostile/test_io_errors.py"], settings)
    # Four kinds of faults on a lake, in a run and in each gold step (of `risk` a sixth), three on an input.
    return Done(11 * IO_ERRORS + 4 * -(-IO_ERRORS // 6))


def _mutants(seed: int, _: float) -> Done:
    command = [sys.executable, "scripts/mutants.py", "--seed", str(seed), "--count", str(MUTANTS)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    tried = TRIED.search(ended.stdout)
    if tried is None:
        return Done(0, (ended.stdout[-OUTPUT_TAIL_CHARACTERS:] + ended.stderr[-OUTPUT_TAIL_CHARACTERS:],))
    # One that lives shows a line that no quick test looks at closely: work for a person, and no mistake of the program.
    return Done(int(tried[1]), remarks=tuple(LIVED.findall(ended.stdout)))


def _kafka(_: int, __: float) -> Done:
    """Kafka's own classes read engine dirs, and a real controller starts on two."""
    said = _tests(["-m", "kafka", "tests/kraft_engine"], {})
    passed = PASSED.search(said)
    return Done(int(passed[1]) if passed else 0)


PARTS: dict[str, Part] = {
    **{
        f"replay and findings = truth, {name}": Part(share, "events", partial(_engine, name))
        for name, share in SHARES.items()
    },
    "one disk altered under a valid CRC": Part(4, "alterations", _altered),
    "mutated batches decoded": Part(4, "decodings", _decoded),
    "parsers, mutated inputs": Part(1, "inputs", _parsed),
    "parsers, guided by branches": Part(6, "inputs", _guided),
    "every bit, every length": Part(3, "changes", _every_bit),
    "properties": Part(5, "examples", _properties),
    "may-i and rescue --plan, then played": Part(4, "seeds", _recovered),
    "rules of the engine switched off": Part(4, "rules", _switched_off),
    "hours, beside all captures": Part(6, "chains of hours", _hours),
    "hours in a lake, beside its archive": Part(3, "lakes", _lakes),
    "runs at once, interleaved": Part(4, "interleavings", _interleaved),
    "killed at any moment, run again": Part(20, "kills", _killed),
    "system calls that fail": Part(3, "faults", _io_errors),
    "mutants of decoder, replay, rules": Part(4, "mutants", _mutants),
    "read and started by Kafka itself": Part(1, "tests", _kafka, jobs_max=1),
}
