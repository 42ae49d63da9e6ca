"""Turns one safety rule off and looks for the seed that shows the damage."""

from __future__ import annotations

from dataclasses import dataclass

from kraft_engine.invariants import InvariantViolationError
from kraft_engine.kafka_run import KafkaRun
from kraft_engine.schedule import RandomRun
from kraft_engine.switches import ALL_ON, RULES

SEED_LIMIT = 500
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
    """Runs seeds from `first_seed` on with the rule off; None where `seed_limit` of them went by unharmed."""
    switches = ALL_ON.without(rule)
    for seed in range(first_seed, first_seed + seed_limit):
        try:
            if rule in RAFT_RULES:
                RandomRun(seed, switches=switches).run(5_000)
            else:
                KafkaRun(seed, switches=switches).run(10_000)
        except InvariantViolationError as violation:
            return Catch(rule, seed, violation.event, violation.name, violation.detail)
    return None


def table(catches: list[Catch]) -> str:
    """One line a rule: the seeds that were needed, the invariant that broke."""
    lines = [f"{'rule switched off':42} {'seeds':>5}  invariant that broke"]
    lines += [f"{catch.rule:42} {catch.seed + 1:>5}  {catch.invariant}" for catch in catches]
    return "\n".join(lines)
