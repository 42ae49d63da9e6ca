"""Rules about what changed in partitions: the ELR that elections need, reassignments, ISRs that change too often."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.frame import differs, differs_from_before, exceeds, shares
from kraft_audit.rules.columns.partition_cases import (
    cases_where_known,
    partition_case,
    partition_cases,
    until_enough_in_sync,
)
from kraft_audit.rules.columns.partition_states import Episode, PartitionStates, partition_states
from kraft_audit.rules.columns.storms import storms
from kraft_audit.rules.registry import rule, words_for
from kraft_audit.rules.rule_model import (
    Case,
    Evidence,
    Thresholds,
    evidence_at,
    threshold,
    undecided,
)
from kraft_audit.tables.number_arrays import Mask
from kraft_audit.text.readable import HOUR_MS
from kraft_codec.schemas.releases import ELR_FEATURE

CAUSES_THAT_BREAK_THE_PROMISE: Final = (
    *("unclean_shutdown", "elr_cleared", "min_isr_edited", "directory_assigned", "replicas_of_partition_0", "snapshot"),
    *("reassignment_started", "reassignment_changed", "reassignment_completed", "reassignment_cancelled"),
    *("unclean_election", "unregistered", "controller_changed", "replaced"),
)
"""By these ISR and ELR may together fall below min ISR, as shipped (PartitionChangeBuilder, Kafka 4.0 to 4.3)."""
CAUSES_THAT_RECOMPUTE_NOTHING: Final = ("min_isr_edited", "replicas_of_partition_0", "controller_changed", "snapshot")


@rule("KP006", control="log_integrity", needs=("partition_changes",))
def kp006(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    states = partition_states(history)
    changes = states.changes
    isr, elr, replicas, expected = (changes.lists[name] for name in ("isr", "elr", "replicas", "expected_elr"))
    if not len(elr.values) and not len(expected.values):
        return
    recomputed = ~changes.is_cause(*CAUSES_THAT_RECOMPUTE_NOTHING)
    enough = isr.lengths >= changes.effective_min_isr
    overlap, outside, needless, differing = (
        states.in_order(changes.exists & mask)
        for mask in (
            shares(isr, elr),
            exceeds(elr, replicas),
            (elr.lengths > 0) & enough & recomputed,
            changes.has_expected & differs(elr, expected),
        )
    )

    def describe(episode: Episode) -> str:
        row = episode.start
        problems = [
            text
            for mask, text in (
                (overlap, "a node is in the ISR and in the ELR"),
                (outside, "the ELR holds a node that is no replica"),
                (needless, f"an ELR remains though {states.size_of('isr', row)} in sync are enough"),
                (differing, f"the shipped rules give ELR {states.nodes('expected_elr', row)}"),
            )
            if mask[row]
        ]
        return f"{'; '.join(problems)}: {states.describe(row)}"

    episodes = states.episodes(overlap | outside | needless | differing)
    yield from cases_where_known(history, states, episodes, map(describe, episodes), states.from_offset)


@rule("KP007", control="durability", needs=("partition_changes", "config_changes"))
def kp007(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    states = partition_states(history)
    if not len(states.changes.lists["elr"].values):
        return
    elr, isr = states.size("elr"), states.size("isr")
    had = np.append(0, elr[:-1]) * ~states.is_first > 0 if len(states) else np.zeros(0, bool)
    is_gone = states.exists & had & (elr == 0)
    # Where unclean election is on, the same operation may elect a replica outside the ELR.
    is_wiping = states.changes.is_cause("directory_assigned") & ~states.changes.is_election("unclean", "last_known")
    by_directory = is_gone & states.in_order(is_wiping) & (isr < states.effective_min_isr)
    writes = [row for row in history.rows_by_offset("config_changes") if row["name"] == "min.insync.replicas"]
    offsets = np.array([row["from_offset"] for row in writes], np.int64)
    by_config = is_gone & states.in_order(states.changes.is_cause("elr_cleared"))
    for row in np.flatnonzero(by_config | by_directory).tolist():
        lost = states.nodes("elr", row - 1)
        place = int(np.searchsorted(offsets, states.from_offset[row])) - 1
        facts: tuple[Evidence, ...] = ()
        summary = f"ELR {lost} was cleared"
        if by_directory[row]:
            summary = f"a directory assignment wiped ELR {lost} (4.0.0 to 4.2.0)"
        elif place >= 0:
            write = writes[place]
            where = f"{write['resource_type']} {write['resource_name'] or '(all brokers)'}"
            text = f"min.insync.replicas of {where} := {write['value']}"
            summary, facts = f"{text} cleared ELR {lost}", (evidence_at(write, text),)
        yield partition_case(states, until_enough_in_sync(states, row), summary, *facts)


@rule("KP019", control="durability", needs=("partition_changes", "feature_changes"))
def kp019(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    """KIP-966 promises that ISR and ELR together keep min ISR members, but for unclean shutdowns."""
    states = partition_states(history)
    if not len(states) or not any(row["name"] == ELR_FEATURE for row in history.rows("feature_changes")):
        return
    held = states.size("isr") + states.size("elr")
    is_short = states.exists & (held < states.effective_min_isr)
    was_whole = np.append(False, ~is_short[:-1] & states.exists[:-1]) & ~states.is_first
    same_replicas = np.append(False, np.diff(states.size("replicas")) == 0)
    same_min_isr = np.append(False, np.diff(states.effective_min_isr) == 0)
    explained = states.in_order(states.changes.may_be_cause(*CAUSES_THAT_BREAK_THE_PROMISE))
    elected = states.in_order(states.changes.is_election("unclean", "last_known"))
    is_broken = is_short & was_whole & same_replicas & same_min_isr & ~explained & ~elected
    for row in np.flatnonzero(is_broken & _with_elr(history, states)).tolist():
        if (unknown := history.unknown_before(int(states.from_offset[row]))) is not None:
            yield undecided(states.name(row), unknown, from_offset=int(states.from_offset[row]))
            continue
        end = row + 1
        while end < len(states) and is_short[end] and not states.is_first[end]:
            end += 1
        ends = None if states.is_last[end - 1] else end
        wanted, cause = int(states.effective_min_isr[row]), states.cause(row).replace("_", " ")
        summary = f"ISR and ELR hold {int(held[row])} of {wanted} members, without an unclean shutdown ({cause})"
        yield partition_case(states, Episode(row, ends), f"{summary}: {states.describe(row)}")


def _with_elr(history: ClusterHistory, states: PartitionStates) -> Mask:
    """The rows that were written while the ELR was on."""
    rows = [row for row in history.rows_by_offset("feature_changes") if row["name"] == ELR_FEATURE]
    set_at = np.array([row["from_offset"] for row in rows], np.int64)
    levels = np.array([0, *(row["feature_level"] * row["exists"] for row in rows)], np.int64)
    is_on: Mask = levels[np.searchsorted(set_at, states.from_offset, side="right")] > 0
    return is_on


@rule("KP014", control="change_management", needs=("partition_changes",))
def kp014(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    states = partition_states(history)
    changes = states.changes
    is_completed = changes.is_cause("reassignment_completed") & changes.exists
    for row in states.rows_of(is_completed & (changes.size("isr") < changes.effective_min_isr)).tolist():
        if not _moved_replicas(states, row):
            continue
        sizes = f"ISR {states.size_of('isr', row)}, min.insync.replicas {int(states.effective_min_isr[row])}"
        summary = f"a reassignment completed with {sizes}"
        yield partition_case(states, until_enough_in_sync(states, row), summary)


def _moved_replicas(states: PartitionStates, row: int) -> bool:
    """Whether replicas came or went: a new order of the same replicas completes no reassignment."""
    before = states.previous(row)
    if before is None:
        return False
    was_under_way = states.size_of("adding_replicas", before) + states.size_of("removing_replicas", before) > 0
    return was_under_way or set(states.nodes("replicas", before)) != set(states.nodes("replicas", row))


@dataclass(frozen=True, slots=True)
class ReassignmentLimits(Thresholds):
    max_hours: float = threshold(24, "how long a reassignment may take")


def _is_moving(states: PartitionStates) -> Mask:
    changes = states.changes
    moving = changes.exists & (changes.size("adding_replicas") + changes.size("removing_replicas") > 0)
    return states.in_order(moving)


@rule(
    "KP015",
    control="change_management",
    needs=("partition_changes",),
    thresholds=ReassignmentLimits,
)
def kp015(history: ClusterHistory, limits: ReassignmentLimits) -> Iterator[Case]:
    states = partition_states(history)
    for episode in states.episodes(_is_moving(states)):
        start_ms = int(states.timestamp_ms[episode.start])
        end_ms = int(states.timestamp_ms[episode.end]) if episode.end is not None else history.end_ms or start_ms
        hours = (end_ms - start_ms) / HOUR_MS
        if hours > limits.max_hours:
            adding = states.nodes("adding_replicas", episode.start)
            removing = states.nodes("removing_replicas", episode.start)
            case = partition_case(states, episode, f"adding {adding}, removing {removing} for {hours:.0f} h")
            refused = episode.end is None and _cannot_be_cancelled(states, states.newest_row(episode.start))
            yield case._replace(**words_for("KP015", "cannot_be_cancelled")) if refused else case


def _cannot_be_cancelled(states: PartitionStates, row: int) -> bool:
    """Whether nobody of the old list is in the ISR: it would have to elect one that is not."""
    isr = states.nodes("isr", row)
    return bool(isr) and set(isr) <= set(states.nodes("adding_replicas", row))


@dataclass(frozen=True, slots=True)
class IsrFlappingLimits(Thresholds):
    max_changes_an_hour: int = threshold(12, "ISR changes of one partition within any hour")


@rule(
    "KP012",
    control="durability",
    needs=("partition_changes",),
    thresholds=IsrFlappingLimits,
)
def kp012(history: ClusterHistory, limits: IsrFlappingLimits) -> Iterator[Case]:
    """A storm is over an hour of log time after its last change, or with its topic."""
    states = partition_states(history)
    limit = limits.max_changes_an_hour
    is_other = differs_from_before(states.changes.lists["isr"], states.order, states.is_first)
    rows = np.flatnonzero(is_other & states.exists)
    groups = np.cumsum(states.is_first, dtype=np.int64)[rows]
    spans = [(int(rows[first]), int(rows[last])) for first, last in storms(states.timestamp_ms[rows], groups, limit)]
    yield from _storm_cases(history, states, spans, limit)


def _storm_cases(
    history: ClusterHistory, states: PartitionStates, spans: Sequence[tuple[int, int]], limit: int
) -> Iterator[Case]:
    """One for each storm, by the rows of its first and its last change: there may be ten thousands of them."""
    newest = states.newest_rows(np.array([last for _, last in spans], np.int64))
    ends = [
        None if exists else row for row, exists in zip(newest.tolist(), states.exists[newest].tolist(), strict=True)
    ]
    episodes = [Episode(first, end) for (first, _), end in zip(spans, ends, strict=True)]
    texts = [(f"more than {limit} ISR changes within an hour", None)] * len(spans)
    for (_, last), episode, case in zip(spans, episodes, partition_cases(states, episodes, texts), strict=True):
        last_ms = int(states.timestamp_ms[last])
        is_over = episode.end is None and (history.end_ms or last_ms) - last_ms > HOUR_MS
        yield case._replace(is_over=True, to_ms=last_ms + HOUR_MS) if is_over else case
