"""The engine's front door: a scenario, a seed, a folder. The same three give the same tree, byte for byte, anywhere."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from kraft_codec.schemas import Dialect
from kraft_engine.brokers.image import ReplayError
from kraft_engine.drafts import draft_run
from kraft_engine.runs.chronicle import InvariantViolationError, timeline_text
from kraft_engine.runs.harsh_run import HarshRun
from kraft_engine.runs.kafka_run import KafkaRun
from kraft_engine.runs.lifelike_run import LifelikeRun
from kraft_engine.runs.options import NO_OPTIONS, Options
from kraft_engine.runs.schedule import RandomRun
from kraft_engine.runs.storms import ElectionStorm
from kraft_engine.runs.upgrades import UpgradeRun
from kraft_engine.runs.wide_run import WideRun
from kraft_engine.scenarios.scenario import Scenario, load
from kraft_engine.world.capturing import Recorder

DEFAULT_EVENTS = 5_000
EVENTS_OF = {"kafka": 10_000, "wide": 10_000, "harsh": 10_000, "lifelike": 60_000}
CAPTURE_COUNT = 4


@dataclass(frozen=True, slots=True)
class Simulation:
    """What was written: `out` holds one folder a capture, `truth.jsonl` and `timeline.txt`.

    `violation` is the invariant that broke, and how, in a run with a rule off; "" where none did.
    """

    scenario: str
    seed: int
    out: Path
    captures: tuple[str, ...]
    event_count: int
    committed_offset: int
    raises: tuple[str, ...]
    damage: tuple[str, ...]
    violation: str = ""


def scenario_names() -> list[str]:
    """Every name that `simulate` takes, random runs included."""
    return sorted([*load(), *RANDOM_KINDS])


def summaries() -> dict[str, str]:
    """Every scenario that `simulate` takes, fleets too, with a sentence that says what happens."""
    sentences = {name: scenario.summary for name, scenario in load().items()} | RANDOM_SUMMARIES
    return {
        **{name: sentences[name] for name in scenario_names()},
        "fleet": "Many clusters of many partitions, for speed.",
    }


def simulate(scenario: str, seed: int, out: Path, options: Options = NO_OPTIONS) -> Simulation:
    """Plays a scenario and writes its captures, truth and timeline below `out`, which must be empty or new.

    `random` is a whole cluster within the model, `random-beyond` one with damage, `random-wide` one whose
    administrators use every operation, `random-harsh` one that loses acknowledged records, `random-lifelike` one with
    the records and batches of a real one; `random-raft` is a quorum whose voters change, `random-raft-beyond` one
    whose disks lie, `random-storm` one of many elections, `random-upgrade` one that becomes dynamic; `random-kip856`
    and `random-kip642` are quorums of the drafts. A file (`incident.yaml`, `incidents.py::name`) is a scenario of its
    own.
    Raises ValueError for an unknown scenario, an option that it does not have, or a folder that holds something;
    InvariantViolationError where the engine itself is wrong: with a rule off that is the run's result (`violation`).
    """
    if out.exists() and any(out.iterdir()):
        raise ValueError(f"{out} is not empty")
    options.check_release()
    if scenario in RANDOM_KINDS:
        return record_run(random_run(scenario, seed, options), scenario, seed, out, options)
    definition = find_scenario(scenario, options)
    out.mkdir(parents=True, exist_ok=True)
    stage = definition.stage(seed, out)
    violation = ""
    try:
        definition.story(stage)
    except InvariantViolationError as error:
        if not options.without:
            raise
        violation = f"{error.name}: {error.detail}"
        stage.capture("violation")
    stage.recorder.finish(definition.name, raises=definition.raises, story=definition.summary)
    (out / "timeline.txt").write_text(timeline_text(stage.cluster, stage.invariants), encoding="utf-8")
    return Simulation(
        definition.name,
        seed,
        out,
        tuple(stage.recorder.captures),
        stage.world.event_count,
        stage.invariants.ledger.committed_offset,
        definition.raises,
        tuple(stage.invariants.beyond_model),
        violation,
    )


def find_scenario(scenario: str, options: Options = NO_OPTIONS) -> Scenario:
    """A story by its name or its file, with these options. Raises ValueError where there is none."""
    from kraft_engine.scenario_files import is_scenario_file, read, with_settings

    if is_scenario_file(scenario):
        options.refuse_others(("release", "metadata_version", "elr", "static", "voters", "without"), scenario)
        return with_settings(
            read(scenario, controllers=options.voters, static=options.static), options.stage_settings()
        )
    scenarios = load()
    if scenario not in scenarios:
        raise ValueError(f"no scenario is called {scenario!r}; they are {', '.join(scenario_names())}")
    options.refuse_others(("release", "metadata_version", "elr", "without"), scenario)
    return with_settings(scenarios[scenario], options.stage_settings())


def record_run(
    run: KafkaRun | RandomRun, scenario: str, seed: int, out: Path, options: Options = NO_OPTIONS
) -> Simulation:
    """Plays a random run that was built and not yet begun (`random_run`), and writes what `simulate` writes of it.

    Raises InvariantViolationError as `simulate` does.
    """
    kind, _, dialect = RANDOM_KINDS[scenario]
    out.mkdir(parents=True, exist_ok=True)
    bootstrap_records = run.machine.bootstrap.feature_records() if isinstance(run, KafkaRun) else []
    recorder = Recorder(out, run.cluster, run.invariants, dialect=dialect, bootstrap_records=bootstrap_records)
    if isinstance(run, KafkaRun) and run.copies_data_dirs:
        recorder.brokers = run.machine.brokers.get
    events = options.events or EVENTS_OF.get(kind, DEFAULT_EVENTS)
    violation = ""
    try:
        for number in range(CAPTURE_COUNT):
            run.run(events // CAPTURE_COUNT)
            if number % 2:
                _staggered(run, recorder, f"capture-{number}")
            else:
                recorder.capture(f"capture-{number}")
    except (InvariantViolationError, ReplayError) as error:
        if not options.without:
            raise
        is_strict = isinstance(error, ReplayError)
        violation = f"StrictReplay: {error}" if is_strict else f"{error.name}: {error.detail}"  # type: ignore[union-attr]
        recorder.capture("violation")
    recorder.finish(scenario)
    (out / "timeline.txt").write_text(timeline_text(run.cluster, run.invariants), encoding="utf-8")
    event_count, committed_offset = run.world.event_count, run.invariants.ledger.committed_offset
    violation = violation or _heal(run, options)
    return Simulation(
        scenario,
        seed,
        out,
        tuple(recorder.captures),
        event_count,
        committed_offset,
        (),
        tuple(run.invariants.beyond_model),
        violation,
    )


def random_run(scenario: str, seed: int, options: Options = NO_OPTIONS) -> KafkaRun | RandomRun:
    """The random run of one of RANDOM_KINDS, built and not yet begun. Raises ValueError for an option it lacks."""
    kind, beyond, dialect = RANDOM_KINDS[scenario]
    refuse_options(scenario, options)
    switches = options.switches
    if kind == "kafka":
        return KafkaRun(
            seed,
            switches=switches,
            beyond_model=beyond,
            release=options.release or "4.3.1",
            metadata_version=options.stage_settings().get("metadata_version"),
            controllers=options.voters,
            elr=options.elr,
            static=options.static,
        )
    if kind == "lifelike":
        return LifelikeRun(seed, switches=switches)
    if kind == "wide":
        return WideRun(seed, switches=switches, beyond_model=beyond)
    if kind == "harsh":
        return HarshRun(seed, switches=switches)
    if kind in ("storm", "upgrade"):
        return (ElectionStorm if kind == "storm" else UpgradeRun)(seed, switches=switches)
    if dialect is not Dialect.KIP853:
        return draft_run(seed, dialect, switches=switches)
    return RandomRun(seed, switches=switches, beyond_model=beyond, static=options.static, voters=options.voters)


def refuse_options(scenario: str, options: Options) -> None:
    """Raises ValueError where an option is set that this kind of random run does not have."""
    kind, _, dialect = RANDOM_KINDS[scenario]
    options.refuse_others(RANDOM_OPTIONS.get(kind if dialect is Dialect.KIP853 else "draft", COMMON), scenario)


def _heal(run: KafkaRun | RandomRun, options: Options) -> str:
    """Ends a run within the model, after its captures: returns the progress that was missing with a rule off."""
    if run.invariants.beyond_model:
        return ""
    try:
        run.heal()
    except InvariantViolationError as error:
        if not options.without:
            raise
        return f"{error.name}: {error.detail}"
    return ""


def _staggered(run: KafkaRun | RandomRun, recorder: Recorder, name: str) -> None:
    """A capture whose nodes are read one after another while the cluster goes on."""
    for process in run.world.chance.shuffled(run.cluster.processes):
        recorder.capture(name, (process.id,))
        run.run(40)


COMMON = ("events", "without")
RANDOM_OPTIONS = {
    "kafka": (*COMMON, "release", "metadata_version", "elr", "static", "voters"),
    "raft": (*COMMON, "static", "voters"),
}
RANDOM_SUMMARIES = {
    "random": "A whole cluster, whatever happens within Raft's model.",
    "random-beyond": "A whole cluster whose disks lie, or are wiped, copied, restored or altered.",
    "random-wide": "A whole cluster whose administrators use every operation there is.",
    "random-harsh": "A whole cluster whose brokers lose power, several at once: acknowledged records are lost.",
    "random-lifelike": "A whole cluster that writes what a real one does: incidents, or a storm of ISR changes.",
    "random-raft": "A quorum whose voters change.",
    "random-raft-beyond": "A quorum whose disks lie, or are wiped, copied, restored or altered.",
    "random-storm": "A quorum of many elections.",
    "random-upgrade": "A quorum that becomes dynamic.",
    "random-kip856": "A quorum that changes its voters as KIP-856 describes.",
    "random-kip642": "A quorum that changes its voters as KIP-642 describes.",
}
RANDOM_KINDS: dict[str, tuple[str, bool, Dialect]] = {
    "random": ("kafka", False, Dialect.KIP853),
    "random-beyond": ("kafka", True, Dialect.KIP853),
    "random-wide": ("wide", False, Dialect.KIP853),
    "random-harsh": ("harsh", False, Dialect.KIP853),
    "random-lifelike": ("lifelike", False, Dialect.KIP853),
    "random-raft": ("raft", False, Dialect.KIP853),
    "random-raft-beyond": ("raft", True, Dialect.KIP853),
    "random-storm": ("storm", False, Dialect.KIP853),
    "random-upgrade": ("upgrade", False, Dialect.KIP853),
    "random-kip856": ("raft", False, Dialect.KIP856),
    "random-kip642": ("raft", False, Dialect.KIP642),
}


def tree_hash(root: Path) -> str:
    """One hash over every file's relative path and bytes, in order of path."""
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*"), key=lambda file: file.relative_to(root).as_posix()):
        if path.is_file():
            content = path.read_bytes()
            digest.update(f"{path.relative_to(root).as_posix()}\0{len(content)}\0".encode())
            digest.update(content)
    return digest.hexdigest()
