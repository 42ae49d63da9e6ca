"""Rules about how partitions are set up and how restless they are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np

from kraft_audit.rules.broker_states import broker_states
from kraft_audit.rules.features import elr_level, feature_level, feature_row
from kraft_audit.rules.history import ClusterHistory, Contradiction
from kraft_audit.rules.model import Case, Evidence, Scope, Severity, Threshold, Thresholds, undecided
from kraft_audit.rules.partition_states import Episode, Mask, PartitionStates, changed, partition_states, rows_with
from kraft_audit.rules.partitions import partition_case
from kraft_audit.rules.registry import rule

HOUR_MS = 3_600_000
FIRST_WITH_ELR = 23
UNCLEAN_ELECTION = "unclean.leader.election.enable"


@rule("KP010", "weak-durability", Severity.MEDIUM, Scope.PARTITION, needs=("partition_changes",))
def kp010(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    states = partition_states(history)
    count, wanted = states.size("replicas"), states.effective_min_isr
    kinds: tuple[tuple[str, Mask], ...] = (
        ("replication factor 1", count == 1),
        ("effective min ISR 1 of replication factor 3 or more", (wanted == 1) & (count >= 3)),
        ("effective min ISR equal to the replication factor", (wanted == count) & (count > 1)),
    )
    for summary, condition in kinds:
        yield from _by_topic(states, states.exists & condition, summary)


def _by_topic(states: PartitionStates, condition: Mask, summary: str) -> Iterator[Case]:
    """One case a topic: a setting of the topic shows in each of its partitions."""
    open_rows = np.flatnonzero(condition & states.is_last)
    if not len(open_rows):
        return
    began = np.flatnonzero(condition & ~(np.append(False, condition[:-1]) & ~states.is_first))
    start = began[np.searchsorted(began, open_rows, side="right") - 1]
    by_topic: dict[str, list[int]] = defaultdict(list)
    for number, code in enumerate(states.topic_codes[open_rows].tolist()):
        by_topic[states.topic_names[code]].append(number)
    for topic, numbers in sorted(by_topic.items()):
        first = min((int(start[number]) for number in numbers), key=lambda row: int(states.from_offset[row]))
        yield Case(
            f"topic {topic}",
            f"{summary}: {len(numbers)} partition{'s' if len(numbers) > 1 else ''}",
            from_offset=int(states.from_offset[first]),
            from_ms=int(states.timestamp_ms[first]),
            evidence=(
                Evidence(f"{states.name(first)}: {states.describe(first)}", offset=int(states.from_offset[first])),
            ),
        )


@rule("KP011", "unclean-election-enabled", Severity.MEDIUM, Scope.CLUSTER, needs=("config_changes",))
def kp011(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    open_writes: dict[tuple[str, str], dict[str, Any]] = {}
    for row in sorted(history.rows("config_changes"), key=lambda row: row["from_offset"]):
        if row["name"] != UNCLEAN_ELECTION:
            continue
        key = (row["resource_type"], row["resource_name"])
        is_on = row["exists"] and (row["value"] or "").strip().lower() == "true"
        if is_on:
            open_writes.setdefault(key, row)
        elif key in open_writes:
            yield _unclean_case(open_writes.pop(key), row)
    for row in open_writes.values():
        yield _unclean_case(row, None)


def _unclean_case(row: dict[str, Any], end: dict[str, Any] | None) -> Case:
    name = (
        f"topic {row['resource_name']}"
        if row["resource_type"] == "TOPIC"
        else (f"broker {row['resource_name']}" if row["resource_name"] else "all brokers")
    )
    return Case(
        name,
        f"{UNCLEAN_ELECTION} is true for {name}",
        from_offset=row["from_offset"],
        to_offset=None if end is None else end["from_offset"],
        from_ms=row["timestamp_ms"],
        to_ms=None if end is None else end["timestamp_ms"],
        evidence=(
            Evidence(f"{UNCLEAN_ELECTION} := true", offset=row["from_offset"], timestamp_ms=row["timestamp_ms"]),
        ),
    )


@rule(
    "KP012",
    "isr-flapping",
    Severity.LOW,
    Scope.PARTITION,
    needs=("partition_changes",),
    thresholds=(Threshold("max_changes_an_hour", 12, "ISR changes of one partition within any hour"),),
)
def kp012(history: ClusterHistory, thresholds: Thresholds) -> Iterator[Case]:
    states = partition_states(history)
    limit = int(thresholds["max_changes_an_hour"])
    rows = np.flatnonzero(changed(states.lists["isr"], states.is_first) & states.exists)
    if len(rows) <= limit:
        return
    group = np.searchsorted(states.last_rows, rows)
    later = np.arange(limit, len(rows))
    earlier = later - limit
    is_storm = (group[later] == group[earlier]) & (
        states.timestamp_ms[rows[later]] - states.timestamp_ms[rows[earlier]] <= HOUR_MS
    )
    hits = np.flatnonzero(is_storm)
    groups, starts = np.unique(group[later[hits]], return_index=True)
    for number, start in enumerate(starts.tolist()):
        end_of_group = starts[number + 1] if number + 1 < len(groups) else len(hits)
        mine = hits[start:end_of_group]
        first, last = int(rows[earlier[mine[0]]]), int(rows[later[mine[-1]]])
        count = int(later[mine[-1]] - earlier[mine[0]]) + 1
        end = last + 1 if last < states.newest_row(last) else None
        summary = f"more than {limit} ISR changes an hour, {count} in all"
        yield partition_case(states, Episode(first, end), summary)


def _with_strange_replicas(history: ClusterHistory) -> Mask:
    """The rows that KP013 looks at: those with a replica on a broker that no record registers."""
    states = partition_states(history)
    replicas = states.lists["replicas"]
    is_strange = ~np.isin(replicas.values, np.array(sorted(broker_states(history)), np.int64))
    return rows_with(len(states), replicas.row_of_value[is_strange])


@rule(
    "KP013",
    "replay-mismatch",
    Severity.CRITICAL,
    Scope.LOG,
    needs=("partition_changes", "broker_changes", "contradictions"),
    across=_with_strange_replicas,
)
def kp013(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    found = [*(history.contradictions or ()), *_unknown_brokers(history)]
    for each in found:
        subject = each.subject or f"record at offset {each.offset}"
        if not history.is_complete:
            reason = f"{each.problem}: the log begins after offset 0 without a snapshot"
            yield undecided(subject, reason, from_offset=each.offset)
        else:
            evidence = (Evidence(each.problem, offset=each.offset),)
            yield Case(subject, each.problem.replace("_", " "), from_offset=each.offset, evidence=evidence)


def _unknown_brokers(history: ClusterHistory) -> Iterator[Contradiction]:
    """Replicas that no registration names: each once.

    A snapshot may name brokers that were unregistered before it was taken: their replicas stay assigned.
    """
    states = partition_states(history)
    replicas = states.lists["replicas"]
    in_snapshots = replicas.values[states.is_cause("snapshot")[replicas.row_of_value]]
    known = np.union1d(np.array(sorted(broker_states(history)), np.int64), in_snapshots)
    strange = np.flatnonzero(~np.isin(replicas.values, known))
    for broker in np.unique(replicas.values[strange]).tolist():
        rows = replicas.row_of_value[strange[replicas.values[strange] == broker]]
        rows = rows[states.exists[rows]]
        if len(rows):
            row = int(rows[np.argmin(states.from_offset[rows])])
            text = f"unknown broker {broker} is a replica of {states.name(row)}"
            yield Contradiction(int(states.from_offset[row]), text, f"broker {broker}")


@rule(
    "KP015",
    "reassignment-stuck",
    Severity.LOW,
    Scope.PARTITION,
    needs=("partition_changes",),
    thresholds=(Threshold("max_hours", 24, "how long a reassignment may take"),),
)
def kp015(history: ClusterHistory, thresholds: Thresholds) -> Iterator[Case]:
    states = partition_states(history)
    moving = states.exists & (states.size("adding_replicas") + states.size("removing_replicas") > 0)
    for episode in states.episodes(moving):
        start_ms = int(states.timestamp_ms[episode.start])
        end_ms = int(states.timestamp_ms[episode.end]) if episode.end is not None else history.end_ms or start_ms
        hours = (end_ms - start_ms) / HOUR_MS
        if hours > float(thresholds["max_hours"]):
            adding = states.lists["adding_replicas"].of(episode.start)
            removing = states.lists["removing_replicas"].of(episode.start)
            yield partition_case(states, episode, f"adding {adding}, removing {removing} for {hours:.0f} h")


@rule("KP018", "elr-off", Severity.LOW, Scope.CLUSTER, needs=("feature_changes",))
def kp018(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    version = feature_level(history, "metadata.version")
    if version is not None and version >= FIRST_WITH_ELR and elr_level(history) == 0:
        row = feature_row(history, "eligible.leader.replicas.version") or feature_row(history, "metadata.version")
        yield Case(
            "eligible.leader.replicas.version",
            f"off, while metadata.version {version} allows it",
            from_offset=None if row is None else row["from_offset"],
            from_ms=None if row is None else row["timestamp_ms"],
        )
