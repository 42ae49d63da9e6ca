"""Turns one safety rule off and looks for the seed that shows the damage (`make switches` does so for every rule)."""

from __future__ import annotations

from dataclasses import dataclass

from kraft_engine.brokers.image import ReplayError
from kraft_engine.invariants.switches import ALL_ON, RULES
from kraft_engine.runs.chronicle import InvariantViolationError
from kraft_engine.runs.kafka_run import KafkaRun
from kraft_engine.runs.schedule import RandomRun
from kraft_engine.runs.storms import ElectionStorm
from kraft_engine.runs.upgrades import UpgradeRun
from kraft_engine.runs.wide_run import WideBeyondRun, WideRun

SEED_LIMIT = 500
RAFT_EVENTS, KAFKA_EVENTS = 5_000, 10_000
HEADING = f"{'rule switched off':42} {'seeds':>5}  invariant that broke"
RAFT_RULES = RULES[: RULES.index("high_watermark_needs_min_isr")]

RULES_BY_SCHEDULE: dict[type[RandomRun] | type[KafkaRun], tuple[str, ...]] = {
    ElectionStorm: (
        "restart_remembers_vote", "vote_is_for_one_directory", "leader_grants_no_vote", "resigned_grants_no_vote",
        "vote_needs_no_known_leader", "voter_fences_old_epochs", "votes_answer_this_epoch", "votes_name_their_voter",
        "answers_match_their_requests", "fetched_batches_are_of_this_epoch", "leader_refuses_later_epochs",
        "requests_name_their_cluster", "candidate_gives_up", "follower_grants_no_vote",
    ),
    WideBeyondRun: ("unclean_election_empties_elr",),
    WideRun: (
        "alter_partition_comes_from_leader", "alter_partition_isr_is_of_replicas", "alter_partition_isr_has_leader",
        "recovering_leader_is_alone", "recovered_partition_stays_recovered", "cluster_min_isr_stays_with_elr",
        "metadata_version_never_falls", "unregistered_broker_leaves_isr", "new_partition_isr_is_active",
        "cancelled_reassignment_keeps_an_isr", "open_transaction_is_aborted", "restarted_broker_leaves_isr",
        "node_min_isr_needs_elr_off", "last_known_leader_is_active",
        "reassignment_to_fewer_waits_for_isr", "election_needs_online_directory",
        "offline_directory_leaves_isr", "elr_begins_with_cluster_min_isr",
        "min_isr_change_clears_elr", "isr_expansion_reaches_epoch_start", "alter_partition_checks_broker_epochs",
        "stale_broker_registers_again",
    ),
    UpgradeRun: (
        "changes_need_kraft_version", "new_voter_has_a_directory", "new_voter_supports_kraft_version",
        "removal_names_a_directory", "upgrade_needs_every_voter", "upgrade_waits_for_epoch_commit",
        "upgrade_is_one_batch",
    ),
}  # fmt: skip
SCHEDULES = {rule: kind for kind, rules in RULES_BY_SCHEDULE.items() for rule in rules}


@dataclass(frozen=True, slots=True)
class Catch:
    """The first seed at which an invariant broke with `rule` off, and which it was."""

    rule: str
    seed: int
    event: int
    invariant: str
    detail: str


def schedule_of(rule: str) -> tuple[type[RandomRun] | type[KafkaRun], int]:
    """The kind of run that shows a rule's absence soonest, and how many events of it."""
    kind = SCHEDULES.get(rule, RandomRun if rule in RAFT_RULES else KafkaRun)
    return kind, KAFKA_EVENTS if issubclass(kind, KafkaRun) else RAFT_EVENTS


def hunt(rule: str, *, first_seed: int = 0, seed_limit: int = SEED_LIMIT) -> Catch | None:
    """Runs seeds from `first_seed` on with the rule off, healing included; None where `seed_limit` went by unharmed.

    A log whose records contradict each other is a catch too: replay is strict.
    """
    switches = ALL_ON.without(rule)
    kind, events = schedule_of(rule)
    for seed in range(first_seed, first_seed + seed_limit):
        run = kind(seed, switches=switches)
        try:
            run.run(events)
            run.heal()
        except InvariantViolationError as violation:
            return Catch(rule, seed, violation.event, violation.name, violation.detail)
        except ReplayError as error:
            return Catch(rule, seed, run.world.event_count, "StrictReplay", str(error))
    return None


def row(catch: Catch) -> str:
    """A rule, the seeds that were needed, the invariant that broke: a line below HEADING."""
    return f"{catch.rule:42} {catch.seed + 1:>5}  {catch.invariant}"
