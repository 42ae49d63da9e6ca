"""Turns one safety rule off and looks for the seed that shows the damage (`make switches` does so for every rule)."""

from __future__ import annotations

from dataclasses import dataclass

from kraft_engine.chronicle import InvariantViolationError
from kraft_engine.image import ReplayError
from kraft_engine.kafka_run import KafkaRun
from kraft_engine.schedule import RandomRun
from kraft_engine.switches import ALL_ON, RULES

SEED_LIMIT = 500
RAFT_EVENTS, KAFKA_EVENTS = 5_000, 10_000
HEADING = f"{'rule switched off':42} {'seeds':>5}  invariant that broke"
RAFT_RULES = RULES[: RULES.index("high_watermark_needs_min_isr")]


@dataclass(frozen=True, slots=True)
class Catch:
    """The first seed at which an invariant broke with `rule` off, and which it was."""

    rule: str
    seed: int
    event: int
    invariant: str
    detail: str


def hunt(rule: str, *, first_seed: int = 0, seed_limit: int = SEED_LIMIT) -> Catch | None:
    """Runs seeds from `first_seed` on with the rule off; None where `seed_limit` of them went by unharmed.

    A log whose records contradict each other is a catch too: replay is strict.
    """
    switches = ALL_ON.without(rule)
    for seed in range(first_seed, first_seed + seed_limit):
        run = RandomRun(seed, switches=switches) if rule in RAFT_RULES else KafkaRun(seed, switches=switches)
        try:
            run.run(RAFT_EVENTS if rule in RAFT_RULES else KAFKA_EVENTS)
        except InvariantViolationError as violation:
            return Catch(rule, seed, violation.event, violation.name, violation.detail)
        except ReplayError as error:
            return Catch(rule, seed, run.world.event_count, "StrictReplay", str(error))
    return None


def row(catch: Catch) -> str:
    """A rule, the seeds that were needed, the invariant that broke: a line below HEADING."""
    return f"{catch.rule:42} {catch.seed + 1:>5}  {catch.invariant}"
