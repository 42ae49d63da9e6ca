"""What a failing file system does to a run and to a reading: at the n-th call, for one n after the other.

`python -m tests.hostile.io_errors lake|findings|risk|input LOGS FOLDER POINTS SEED` is started with `io_faults.c`
preloaded (see `preloaded`). It counts the calls of an undisturbed run, lets one of them fail, and looks at what came
out: the run ends by itself or with a typed error, and the run after it gives the same tables; a reading says what it
could not read. POINTS of each kind of fault are spread over all calls, 0 is every one. Prints one JSON object.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from kraft_audit.capture.path_plans import plan_path
from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.ledger import Ledger
from kraft_audit.lake.ledger_state import Manifest, manifest_of
from kraft_audit.lake.pipeline import Run, Step
from kraft_audit.lake.settings import FleetSettings, load_fleet
from kraft_audit.lake.staging.stage import StageError
from kraft_audit.pipeline.analysis import analyze
from kraft_audit.reading import ReadingSettings
from kraft_audit.spark.readers import StagingReader
from kraft_audit.tables import LAKE_TABLES
from kraft_audit.tables.gold import GOLD
from kraft_codec.errors import CodecError, InputError
from kraft_codec.records.redaction import Redactor
from kraft_codec.storage.opener import open_storage
from tests.builders.reading_times import WHEN, without_reading_times
from tests.builders.spark_gold import spark_gold

NAMES, READS, WRITES = 1, 2, 4
EVERY_KIND: Final = NAMES | READS | WRITES
WHEN_WRITTEN: Final = {"first_seen_ms", "last_seen_ms", "changed_ms", "as_of_ms", *WHEN}
ROOM_TO_SAY: Final = 12


@dataclass(frozen=True, slots=True)
class Fault:
    """The n-th call of these kinds fails with this error, the later ones too where it lasts."""

    name: str
    error: int
    kinds: int
    lasts: bool


FULL_DISK: Final = Fault("full disk", errno.ENOSPC, WRITES, lasts=True)
READ_ERROR: Final = Fault("input/output error", errno.EIO, READS | WRITES, lasts=False)
NO_RIGHT: Final = Fault("permission denied", errno.EACCES, NAMES, lasts=False)
VANISHED: Final = Fault("vanished mount", errno.ESTALE, EVERY_KIND, lasts=True)
OF_A_LAKE: Final = (FULL_DISK, READ_ERROR, NO_RIGHT, VANISHED)
OF_AN_INPUT: Final = (READ_ERROR, NO_RIGHT, VANISHED)


@dataclass
class Outcome:
    """What was seen: calls of an undisturbed run, faults made, how the disturbed runs ended, and what was wrong."""

    calls: dict[str, int] = field(default_factory=dict)
    faults: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def say(self, fault: Fault, nth: int, what: str) -> None:
        if len(self.wrong) < ROOM_TO_SAY:
            self.wrong.append(f"{fault.name} at call {nth}: {what}")


def main(arguments: list[str]) -> int:
    what, logs, folder, points, seed = arguments
    steps = {"findings": findings_survive, "risk": risk_survives}
    work = {"lake": lake_survives, "input": input_is_accounted_for, **steps}[what]
    started = time.monotonic()
    outcome = work(Path(logs), Path(folder), int(points), random.Random(int(seed)))  # noqa: S311
    reported = {
        "calls": outcome.calls,
        "faults": outcome.faults,
        "ended": outcome.ended,
        "wrong": outcome.wrong,
        "seconds": round(time.monotonic() - started, 1),
    }
    sys.stdout.write(json.dumps(reported) + "\n")
    return int(bool(outcome.wrong))


def preloaded(what: str, logs: Path, folder: Path, points: int, seed: int, root: Path) -> dict[str, Any]:
    """Builds the library, starts this program with it and gives what it said; OSError where no C compiler is."""
    library = folder / "io_faults.so"
    source = Path(__file__).with_name("io_faults.c")
    command = ["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True, capture_output=True)
    program = [sys.executable, "-m", "tests.hostile.io_errors", what, *map(str, (logs, folder, points, seed))]
    environment = {**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": str(root)}
    done = subprocess.run(program, cwd=root, env=environment, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise AssertionError(f"ended with {done.returncode}: {done.stderr[-2000:]}")
    row: dict[str, Any] = json.loads(done.stdout)
    return row


def lake_survives(logs: Path, folder: Path, points: int, chance: random.Random) -> Outcome:
    """Runs into a fresh lake with one fault each."""

    def fresh() -> FleetSettings:
        fleet = fleet_of(logs, folder, "fresh")
        shutil.rmtree(fleet.lake, ignore_errors=True)
        return fleet

    return _survives(fresh, run, lake_hash, points, chance)


def _survives(
    fresh: Callable[[], FleetSettings],
    work: Callable[[FleetSettings], Any],
    hash_of: Callable[[str], object],
    points: int,
    chance: random.Random,
) -> Outcome:
    """Runs on a fresh lake with one fault each; the run after it must bring what an undisturbed one brings."""
    outcome = Outcome()
    undisturbed = fresh()
    work(undisturbed)
    expected = hash_of(undisturbed.lake)
    for fault in OF_A_LAKE:
        counting = fresh()
        with_fault(Path(counting.lake), 0, fault, lambda fleet=counting: work(fleet))
        outcome.calls[fault.name] = calls = DISARM()
        for nth in spread(calls, points, chance):
            fleet = fresh()
            problem = with_fault(Path(fleet.lake), nth, fault, lambda fleet=fleet: work(fleet))
            outcome.faults[fault.name] += 1
            outcome.ended[type(problem).__name__ if problem else "as if nothing had been"] += 1
            if problem is not None and not isinstance(problem, InputError | StageError):
                outcome.say(fault, nth, traced(problem))
            try:
                failed = work(fleet).failed
            except Exception as again:
                outcome.say(fault, nth, f"the next run: {traced(again)}")
                continue
            if failed or hash_of(fleet.lake) != expected:
                outcome.say(fault, nth, f"other tables after the next run, {failed}")
    return outcome


def fleet_of(logs: Path, folder: Path, name: str) -> FleetSettings:
    """One cluster, and a lake of that name; all lakes have one key."""
    file = folder / f"{name}.yaml"
    clusters = [{"name": "one", "paths": [str(logs)]}]
    key = str(folder / "redaction.key")
    settings = {"lake": str(folder / f"lake-{name}"), "redaction_key_file": key, "clusters": clusters}
    file.write_text(yaml.safe_dump(settings))
    return load_fleet(file, environment={})


def findings_survive(logs: Path, folder: Path, points: int, chance: random.Random) -> Outcome:
    """The step that merges findings, on a lake whose plan is closed; it needs no Spark for so few."""
    return _gold_survives(logs, folder, points, chance, Step.FINDINGS, _no_session)


def risk_survives(logs: Path, folder: Path, points: int, chance: random.Random) -> Outcome:
    """The step behind it, by one Spark session; of tables so small Python reads the rows and merges what was found."""
    from kraft_audit.spark.session import spark_session

    session = spark_session("kraft-audit tests", settings={"spark.master": "local[1]"})
    try:
        return _gold_survives(logs, folder, points, chance, Step.RISK, lambda: session)
    finally:
        session.stop()


def _no_session() -> Any:
    raise AssertionError("Spark was started")


def _gold_survives(
    logs: Path, folder: Path, points: int, chance: random.Random, step: Step, session: Callable[[], Any]
) -> Outcome:
    """One gold step on copies of a lake, with one fault each."""
    closed = fleet_of(logs, folder, "closed")
    run(closed)

    def gold(fleet: FleetSettings, only: Step = step) -> Any:
        lake = DeltaLake(fleet.lake)
        return Run(fleet, lake, _nothing_to_stage, lambda _: None, spark_gold(fleet, lake, session)).one_step(only)

    if step is Step.RISK:
        gold(closed, Step.FINDINGS)

    def fresh() -> FleetSettings:
        fleet = closed.model_copy(update={"lake": str(folder / "copy")})
        shutil.rmtree(fleet.lake, ignore_errors=True)
        shutil.copytree(closed.lake, fleet.lake)
        return fleet

    return _survives(fresh, gold, gold_hash, points, chance)


def _nothing_to_stage(number: int) -> Manifest:
    raise AssertionError(f"plan {number} was staged")


def input_is_accounted_for(logs: Path, folder: Path, points: int, chance: random.Random) -> Outcome:
    """Reads log dirs with one fault each: the same rows, or fewer and a row or an error that says so."""
    outcome = Outcome()
    expected = counted_rows(logs)
    for fault in OF_AN_INPUT:
        with_fault(logs, 0, fault, lambda: counted_rows(logs))
        outcome.calls[fault.name] = calls = DISARM()
        for nth in spread(calls, points, chance):
            found: dict[str, Counter[str]] = {}
            problem = with_fault(logs, nth, fault, lambda found=found: found.update(counted_rows(logs)))
            outcome.faults[fault.name] += 1
            if problem is not None:
                outcome.ended[type(problem).__name__] += 1
                if not isinstance(problem, InputError | CodecError):
                    outcome.say(fault, nth, traced(problem))
                continue
            lost = {name: remaining - found.get(name, Counter()) for name, remaining in expected.items()}
            reported = found.get("decode_errors", Counter()) - expected.get("decode_errors", Counter())
            if not any(lost.values()):
                outcome.ended["as if nothing had been"] += 1
            elif reported:
                outcome.ended["reported in decode_errors"] += 1
            else:
                what = {name: sum(rows.values()) for name, rows in lost.items() if rows}
                outcome.say(fault, nth, f"rows are missing and nothing says so: {what}")
    if counted_rows(logs) != expected:
        outcome.wrong.append("the input itself was changed")
    return outcome


ARM = None if "LD_PRELOAD" not in os.environ else ctypes.CDLL(None).io_faults_arm
DISARM: Callable[[], int] = (lambda: 0) if ARM is None else ctypes.CDLL(None).io_faults_disarm


def with_fault(root: Path, nth: int, fault: Fault, work: Callable[[], object]) -> Exception | None:
    """Does the work while the n-th call below `root` fails; what it raised."""
    assert ARM is not None, "io_faults is not preloaded"
    ARM(str(root).encode(), ctypes.c_long(nth), fault.error, fault.kinds, int(fault.lasts))
    try:
        work()
    except Exception as problem:
        return problem
    finally:
        DISARM()
    return None


def spread(calls: int, points: int, chance: random.Random) -> Iterator[int]:
    """Numbers of calls, 1 to `calls`: every one for 0 points, else so many, one in each equal part."""
    if points == 0 or points >= calls:
        yield from range(1, calls + 1)
        return
    for part in range(points):
        low, high = part * calls // points, (part + 1) * calls // points
        yield low + 1 + chance.randrange(max(high - low, 1))


def run(fleet: FleetSettings) -> Any:
    """A run without Spark, by the steps and the reader of one with it; what a task raises is a StageError there too."""

    def stage(number: int) -> Manifest:
        options = {"table": "staged", "lake": fleet.lake, "plan": str(number), "tasks": "1"}
        try:
            reader = StagingReader({**options, "redactionkeyfile": fleet.redaction_key_file or ""})
            tasks = reader.partitions()
            return manifest_of(row for task in tasks for batch in reader.read(task) for row in batch.to_pylist())
        except Exception as problem:
            raise StageError(number, problem) from problem

    return Run(fleet, DeltaLake(fleet.lake), stage, lambda _: None).all_steps()


def lake_hash(lake_uri: str) -> dict[str, str]:
    """A hash a table over the sorted rows of closed plans, without the columns that say when."""
    lake = DeltaLake(lake_uri)
    closed = Ledger(lake).status().done
    hashes = {}
    for table, contract in LAKE_TABLES.items():
        if table == "plans":
            continue
        found = lake.query(f"SELECT * FROM {table} WHERE {closed.where()}", table)  # noqa: S608
        remaining = found.select([name for name in contract.column_names if name not in WHEN]).to_pylist()
        lines = sorted(json.dumps(row, default=str) for row in without_reading_times(remaining))
        hashes[table] = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    return hashes


def gold_hash(lake_uri: str) -> dict[str, str]:
    """The same of the gold tables that are there, without the columns that say when they were written."""
    lake = DeltaLake(lake_uri)
    hashes = {}
    for table, contract in GOLD.items():
        if lake.exists(table):
            remaining = [name for name in contract.column_names if name not in WHEN_WRITTEN]
            found = lake.query(f"SELECT {', '.join(remaining)} FROM {table}", table)  # noqa: S608  # our own names
            rows = without_reading_times(found.to_pylist())
            lines = sorted(json.dumps(row, default=str, sort_keys=True) for row in rows)
            hashes[table] = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    return hashes


def counted_rows(logs: Path) -> dict[str, Counter[str]]:
    """Every row of every table, findings too, counted, without the columns that say when."""
    found: dict[str, Counter[str]] = {}
    settings = ReadingSettings(open_storage, Redactor(bytes(32)), clock_ms=lambda: 0)
    for plan in plan_path(str(logs), open_storage=open_storage, captured_at_ms=0):
        for name, batch in analyze(plan, settings):
            remaining = batch.select([column for column in batch.schema.names if column not in WHEN]).to_pylist()
            found.setdefault(name, Counter()).update(json.dumps(row, default=str) for row in remaining)
    return found


def traced(problem: Exception) -> str:
    return "".join(traceback.format_exception(problem, limit=-4))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
