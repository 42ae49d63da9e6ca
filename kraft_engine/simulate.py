"""The engine's front door: a scenario, a seed, a folder. The same three give the same tree, byte for byte, anywhere."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from kraft_codec.schemas import Dialect
from kraft_engine.capture import Recorder
from kraft_engine.drafts import draft_run
from kraft_engine.kafka_run import KafkaRun
from kraft_engine.scenarios.model import load
from kraft_engine.schedule import RandomRun
from kraft_engine.storms import ElectionStorm
from kraft_engine.timeline import timeline_text
from kraft_engine.upgrades import UpgradeRun
from kraft_engine.wide_run import WideRun

RANDOM_EVENTS = 10_000
RAFT_EVENTS = 5_000
CAPTURE_COUNT = 4


@dataclass(frozen=True, slots=True)
class Simulation:
    """What was written: `out` holds one folder a capture, `truth.jsonl` and `timeline.txt`."""

    scenario: str
    seed: int
    out: Path
    captures: tuple[str, ...]
    event_count: int
    committed_offset: int
    raises: tuple[str, ...]
    damage: tuple[str, ...]


def scenario_names() -> list[str]:
    """Every name that `simulate` takes, random runs included."""
    return sorted([*load(), *RANDOM_KINDS])


def summaries() -> dict[str, str]:
    """What `simulate` takes, fleets too, each with a sentence of what happens."""
    told = {name: one.summary for name, one in load().items()} | RANDOM_SUMMARIES
    return {**{name: told[name] for name in scenario_names()}, "fleet": "Many clusters of many partitions, for speed."}


def simulate(scenario: str, seed: int, out: Path) -> Simulation:
    """Plays a scenario and writes its captures, truth and timeline below `out`, which must be empty or new.

    `random` is a whole cluster within the model, `random-beyond` one with damage, `random-wide` one in which everything
    is asked for; `random-raft` is a quorum whose voters change, `random-raft-beyond` one whose disks lie,
    `random-storm` one of many elections, `random-upgrade` one that becomes dynamic; `random-kip856` and
    `random-kip642` are quorums of the drafts.
    Raises ValueError for an unknown scenario or a folder that holds something, InvariantViolationError where the engine
    itself is wrong.
    """
    if out.exists() and any(out.iterdir()):
        raise ValueError(f"{out} is not empty")
    out.mkdir(parents=True, exist_ok=True)
    if scenario in RANDOM_KINDS:
        return _random(scenario, seed, out)
    scenarios = load()
    if scenario not in scenarios:
        raise ValueError(f"no scenario is called {scenario!r}; they are {', '.join(scenario_names())}")
    stage = scenarios[scenario].play(seed, out)
    (out / "timeline.txt").write_text(timeline_text(stage.cluster, stage.invariants), encoding="utf-8")
    return Simulation(
        scenario,
        seed,
        out,
        tuple(stage.recorder.captures),
        stage.world.event_count,
        stage.invariants.ledger.committed_offset,
        scenarios[scenario].raises,
        tuple(stage.invariants.beyond_model),
    )


def _random(scenario: str, seed: int, out: Path) -> Simulation:
    kind, beyond, dialect = RANDOM_KINDS[scenario]
    run: KafkaRun | RandomRun
    if kind in ("kafka", "wide"):
        run, events = (KafkaRun if kind == "kafka" else WideRun)(seed, beyond_model=beyond), RANDOM_EVENTS
        bootstrap_records = run.machine.bootstrap.feature_records()
    elif kind != "raft":
        run, events = (ElectionStorm if kind == "storm" else UpgradeRun)(seed), RAFT_EVENTS
        bootstrap_records = []
    else:
        run, events = _raft_run(seed, dialect, beyond=beyond), RAFT_EVENTS
        bootstrap_records = []
    recorder = Recorder(out, run.cluster, run.invariants, dialect=dialect, bootstrap_records=bootstrap_records)
    for number in range(CAPTURE_COUNT):
        run.run(events // CAPTURE_COUNT)
        if number % 2:
            _staggered(run, recorder, f"capture-{number}")
        else:
            recorder.capture(f"capture-{number}")
    recorder.finish(scenario)
    (out / "timeline.txt").write_text(timeline_text(run.cluster, run.invariants), encoding="utf-8")
    return Simulation(
        scenario,
        seed,
        out,
        tuple(recorder.captures),
        run.world.event_count,
        run.invariants.ledger.committed_offset,
        (),
        tuple(run.invariants.beyond_model),
    )


def _staggered(run: KafkaRun | RandomRun, recorder: Recorder, name: str) -> None:
    """A capture whose nodes are read one after another while the cluster goes on."""
    for process in run.world.chance.shuffled(run.cluster.processes):
        recorder.capture(name, (process.id,))
        run.run(40)


def _raft_run(seed: int, dialect: Dialect, *, beyond: bool) -> RandomRun:
    return RandomRun(seed, beyond_model=beyond) if dialect is Dialect.KIP853 else draft_run(seed, dialect)


RANDOM_SUMMARIES = {
    "random": "A whole cluster, whatever happens within Raft's model.",
    "random-beyond": "A whole cluster whose disks lie.",
    "random-wide": "A whole cluster of which everything is asked.",
    "random-raft": "A quorum whose voters change.",
    "random-raft-beyond": "A quorum whose disks lie.",
    "random-storm": "A quorum of many elections.",
    "random-upgrade": "A quorum that becomes dynamic.",
    "random-kip856": "A quorum that changes its voters as KIP-856 describes.",
    "random-kip642": "A quorum that changes its voters as KIP-642 describes.",
}
RANDOM_KINDS: dict[str, tuple[str, bool, Dialect]] = {
    "random": ("kafka", False, Dialect.KIP853),
    "random-beyond": ("kafka", True, Dialect.KIP853),
    "random-wide": ("wide", False, Dialect.KIP853),
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
    for path in sorted(root.rglob("*"), key=lambda found: found.relative_to(root).as_posix()):
        if path.is_file():
            content = path.read_bytes()
            digest.update(f"{path.relative_to(root).as_posix()}\0{len(content)}\0".encode())
            digest.update(content)
    return digest.hexdigest()
