"""Rules about what changed in partitions: the ELR that elections need, reassignments, and contradictions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from kraft_audit.rules.cluster_history import ClusterHistory, Contradiction
from kraft_audit.rules.columns.captures import operation_ends
from kraft_audit.rules.columns.frame import Mask, NodeLists, Rows, differs, exceeds, rows_with, shares
from kraft_audit.rules.columns.nodes import broker_states
from kraft_audit.rules.columns.partition_states import (
    Episode,
    PartitionStates,
    cases_where_known,
    partition_case,
    partition_states,
    until_enough_in_sync,
)
from kraft_audit.rules.registry import rule
from kraft_audit.rules.rule_model import Case, Evidence, Thresholds, evidence_at, threshold, undecided
from kraft_audit.text.readable import HOUR_MS, plural
from kraft_codec.schemas.releases import ELR_FEATURE

FALLS_SHOWN: Final = 20
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

    broken = overlap | outside | needless | differing
    yield from cases_where_known(history, states, broken, states.from_offset, describe)


@rule("KP007", control="durability", needs=("partition_changes", "config_changes"))
def kp007(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    states = partition_states(history)
    if not len(states.changes.lists["elr"].values):
        return
    elr, isr = states.size("elr"), states.size("isr")
    had = np.append(0, elr[:-1]) * ~states.is_first > 0 if len(states) else np.zeros(0, bool)
    is_gone = states.exists & had & (elr == 0)
    by_directory = (
        is_gone & states.in_order(states.changes.is_cause("directory_assigned")) & (isr < states.effective_min_isr)
    )
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


@rule("KP015", control="change_management", needs=("partition_changes",), thresholds=ReassignmentLimits)
def kp015(history: ClusterHistory, limits: ReassignmentLimits) -> Iterator[Case]:
    states = partition_states(history)
    changes = states.changes
    moving = changes.exists & (changes.size("adding_replicas") + changes.size("removing_replicas") > 0)
    for episode in states.episodes(states.in_order(moving)):
        start_ms = int(states.timestamp_ms[episode.start])
        end_ms = int(states.timestamp_ms[episode.end]) if episode.end is not None else history.end_ms or start_ms
        hours = (end_ms - start_ms) / HOUR_MS
        if hours > limits.max_hours:
            adding = states.nodes("adding_replicas", episode.start)
            removing = states.nodes("removing_replicas", episode.start)
            yield partition_case(states, episode, f"adding {adding}, removing {removing} for {hours:.0f} h")


def _around_unclean_shutdowns(history: ClusterHistory) -> Mask:
    """The rows that KP008 needs: each fall, the state before it and the newest one of its partition."""
    states = partition_states(history)
    rows = states.rows_of(states.changes.may_be_cause("unclean_shutdown"))
    before = rows[~states.is_first[rows]] - 1
    return rows_with(len(states), np.concatenate([rows, before, states.newest_rows(rows)]))


@rule(
    "KP008",
    control="durability",
    needs=("partition_changes", "broker_changes", "batches"),
    across=_around_unclean_shutdowns,
)
def kp008(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    states = partition_states(history)
    by_return: dict[tuple[int, int], list[int]] = defaultdict(list)
    is_certain = states.in_order(states.changes.is_cause("unclean_shutdown"))
    fallen = states.rows_of(states.changes.may_be_cause("unclean_shutdown"))
    ends = operation_ends(history, states.from_offset[fallen])
    for row, end in zip(fallen.tolist(), ends.tolist(), strict=True):
        broker = states.value("cause_broker_id", row)
        known = broker_states(history).get(broker)
        registration = -1
        if known is not None:
            place = int(np.searchsorted(known.offsets, states.from_offset[row]))
            registration = int(known.offsets[place]) if place < len(known.offsets) else -1
        # A leader may have removed it a moment before: that is an operation of its own, in its own batch.
        if end > registration:
            by_return[broker, registration].append(row)
    for (broker, registration), rows in sorted(by_return.items()):
        rows.sort(key=lambda row: int(states.from_offset[row]))
        names = list(dict.fromkeys(map(states.name, rows)))
        shown = ", ".join(names[:FALLS_SHOWN]) + " …" * (len(names) > FALLS_SHOWN)
        came = f"registration at offset {registration}" if registration >= 0 else "its registration was not read"
        if not is_certain[rows].any():
            came += ", unless it ended cleanly and a leader had just removed it"
        fallen_out = f"out of ISR or ELR of {plural(len(names), 'partition')}"
        yield Case(
            f"broker {broker}",
            f"came back uncleanly ({came}): {fallen_out}: {shown}",
            from_offset=int(states.from_offset[rows[0]]),
            from_ms=int(states.timestamp_ms[rows[0]]),
            evidence=tuple(_fall(states, row) for row in rows[:FALLS_SHOWN]),
            is_over=all(_is_back(states, row, broker) for row in rows),
            key=f"broker {broker} {registration}",
        )


def _fall(states: PartitionStates, row: int) -> Evidence:
    before, after = states.previous(row), states.describe(row)
    return Evidence(
        f"{states.name(row)}: {after}",
        offset=int(states.from_offset[row]),
        before=None if before is None else states.describe(before),
        after=after,
    )


def _is_back(states: PartitionStates, row: int, broker: int) -> bool:
    """Whether the broker is in sync again where it fell out, or the partition is gone or no longer its own."""
    newest = states.newest_row(row)
    return (
        not states.exists[newest]
        or broker in states.nodes("isr", newest)
        or broker not in states.nodes("replicas", newest)
    )


def _with_strange_replicas(history: ClusterHistory) -> Mask:
    """The rows that KP013 needs: those with a replica on a broker that no record registers."""
    states = partition_states(history)
    replicas = states.changes.lists["replicas"]
    return states.in_order(rows_with(len(states), replicas.row_of_value[_unregistered(history, replicas)]))


def _unregistered(history: ClusterHistory, lists: NodeLists) -> Rows:
    """The places of the values that no record registers as brokers."""
    values = lists.values
    if not len(values):
        return np.zeros(0, np.int64)
    known = broker_states(history)
    lowest, highest = int(values.min()), int(values.max())
    # Broker ids mostly have no gaps, and then the values need not be looked up one by one.
    if highest - lowest <= len(known) and all(broker in known for broker in range(lowest, highest + 1)):
        return np.zeros(0, np.int64)
    return np.flatnonzero(~np.isin(values, np.array(sorted(known), np.int64)))


@rule(
    "KP013",
    control="log_integrity",
    needs=("partition_changes", "broker_changes", "contradictions"),
    across=_with_strange_replicas,
)
def kp013(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    contradictions = [*(history.contradictions or ()), *_unknown_brokers(history)]
    unknown: dict[str, list[Contradiction]] = defaultdict(list)
    for each in contradictions:
        subject = each.subject or f"record at offset {each.offset}"
        reason = "the log begins after offset 0 without a snapshot"
        if not history.is_complete or (reason := history.unknown_before(each.offset) or ""):
            unknown[reason].append(each)
        else:
            evidence = (Evidence(each.problem, offset=each.offset),)
            yield Case(subject, each.problem.replace("_", " "), from_offset=each.offset, evidence=evidence)
    # What is missing explains all that it leaves unknown: one line for each reason.
    for reason, unexplained in unknown.items():
        first = min(unexplained, key=lambda each: each.offset)
        count = f"{len(unexplained)} changes name" if len(unexplained) > 1 else "a change names"
        problem = first.problem.replace("_", " ")
        text = f"{count} what is not known, first at offset {first.offset} ({problem}): {reason}"
        yield undecided("log", text, from_offset=first.offset)


def _unknown_brokers(history: ClusterHistory) -> Iterator[Contradiction]:
    """Replicas that no registration names: each once.

    A snapshot may name brokers that were unregistered before it was taken: their replicas stay assigned.
    """
    states = partition_states(history)
    replicas = states.changes.lists["replicas"]
    strange = _unregistered(history, replicas)
    if not len(strange):
        return
    row_of_change = states.row_of_change()
    strange = strange[states.changes.exists[replicas.row_of_value[strange]]]
    in_snapshots = replicas.values[strange[states.changes.is_cause("snapshot")[replicas.row_of_value[strange]]]]
    strange = strange[~np.isin(replicas.values[strange], in_snapshots)]
    for broker in np.unique(replicas.values[strange]).tolist():
        rows = np.sort(row_of_change[replicas.row_of_value[strange[replicas.values[strange] == broker]]])
        row = int(rows[np.argmin(states.from_offset[rows])])
        text = f"unknown broker {broker} is a replica of {states.name(row)}"
        yield Contradiction(int(states.from_offset[row]), text, f"broker {broker}")
