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
from kraft_audit.rules.node_lists import Mask, NodeLists, Rows, differs_from_before, rows_with
from kraft_audit.rules.partition_states import Episode, PartitionStates, partition_states
from kraft_audit.rules.partitions import partition_case, partition_cases
from kraft_audit.rules.registry import rule

HOUR_MS = 3_600_000
TIME_MAX_MS = 1 << 61
FIRST_WITH_ELR = 23
UNCLEAN_ELECTION = "unclean.leader.election.enable"


@rule("KP010", "weak-durability", Severity.MEDIUM, Scope.PARTITION, needs=("partition_changes",))
def kp010(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    states = partition_states(history)
    told = states.told
    count, wanted = told.size("replicas"), told.effective_min_isr
    kinds: tuple[tuple[str, Mask], ...] = (
        ("replication factor 1", count == 1),
        ("effective min ISR 1 of replication factor 3 or more", (wanted == 1) & (count >= 3)),
        ("effective min ISR equal to the replication factor", (wanted == count) & (count > 1)),
    )
    for summary, condition in kinds:
        yield from _by_topic(states, states.in_order(told.exists & condition), summary)


def _by_topic(states: PartitionStates, condition: Mask, summary: str) -> Iterator[Case]:
    """One case a topic: a setting of the topic shows in each of its partitions."""
    open_rows = np.flatnonzero(condition & states.is_last)
    if not len(open_rows):
        return
    began = np.flatnonzero(condition & ~(np.append(False, condition[:-1]) & ~states.is_first))
    starts = began[np.searchsorted(began, open_rows, side="right") - 1]
    by_topic: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for topic, offset, start in zip(
        states.topics(open_rows), states.from_offset[starts].tolist(), starts.tolist(), strict=True
    ):
        by_topic[topic].append((offset, start))
    for topic, begins in sorted(by_topic.items()):
        _, first = min(begins)
        yield Case(
            f"topic {topic}",
            f"{summary}: {len(begins)} partition{'s' if len(begins) > 1 else ''}",
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
    is_other = differs_from_before(states.told.lists["isr"], states.order, states.is_first)
    rows = np.flatnonzero(is_other & states.exists)
    if len(rows) <= limit:
        return
    # Records may claim any time that 64 bits hold: the time between two of them must fit as well.
    group, times_ms = states.partition_numbers[rows], states.timestamp_ms[rows].clip(-TIME_MAX_MS, TIME_MAX_MS)
    # A change and the one `limit` changes before it, where both are of one partition.
    later, earlier = slice(limit, None), slice(len(rows) - limit)
    is_storm = (group[later] == group[earlier]) & (times_ms[later] - times_ms[earlier] <= HOUR_MS)
    hits = np.flatnonzero(is_storm)
    if not len(hits):
        return
    starts = np.flatnonzero(np.append(True, np.diff(group[hits]) > 0))
    from_change = hits[starts]
    to_change = hits[np.append(starts[1:], len(hits)) - 1] + limit
    first, last = rows[from_change].tolist(), rows[to_change]
    ends = zip(last.tolist(), states.is_last[last].tolist(), strict=True)
    episodes = [Episode(start, None if is_last else end + 1) for start, (end, is_last) in zip(first, ends, strict=True)]
    counts = (to_change - from_change + 1).tolist()
    told = ((f"more than {limit} ISR changes an hour, {count} in all", None) for count in counts)
    yield from partition_cases(states, episodes, told)


def _with_strange_replicas(history: ClusterHistory) -> Mask:
    """The rows that KP013 looks at: those with a replica on a broker that no record registers."""
    states = partition_states(history)
    replicas = states.told.lists["replicas"]
    strange = _unregistered(history, replicas)
    return states.in_order(rows_with(len(states), replicas.row_of_value[strange] if len(strange) else strange))


def _unregistered(history: ClusterHistory, lists: NodeLists) -> Rows:
    """The places of the values that no record registers as brokers."""
    values = lists.values
    if not len(values):
        return np.zeros(0, np.int64)
    known = broker_states(history)
    lowest, highest = int(values.min()), int(values.max())
    # Brokers have mostly numbers without gaps, and then the values need not be looked at one by one.
    if highest - lowest <= len(known) and all(broker in known for broker in range(lowest, highest + 1)):
        return np.zeros(0, np.int64)
    return np.flatnonzero(~np.isin(values, np.array(sorted(known), np.int64)))


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
        elif (unknown := history.unknown_before(each.offset)) is not None:
            yield undecided(subject, f"{each.problem}: {unknown}", from_offset=each.offset)
        else:
            evidence = (Evidence(each.problem, offset=each.offset),)
            yield Case(subject, each.problem.replace("_", " "), from_offset=each.offset, evidence=evidence)


def _unknown_brokers(history: ClusterHistory) -> Iterator[Contradiction]:
    """Replicas that no registration names: each once.

    A snapshot may name brokers that were unregistered before it was taken: their replicas stay assigned.
    """
    states = partition_states(history)
    replicas = states.told.lists["replicas"]
    strange = _unregistered(history, replicas)
    if not len(strange):
        return
    row_of_told = states.row_of_told()
    strange = strange[states.told.exists[replicas.row_of_value[strange]]]
    in_snapshots = replicas.values[strange[states.told.is_cause("snapshot")[replicas.row_of_value[strange]]]]
    strange = strange[~np.isin(replicas.values[strange], in_snapshots)]
    for broker in np.unique(replicas.values[strange]).tolist():
        rows = np.sort(row_of_told[replicas.row_of_value[strange[replicas.values[strange] == broker]]])
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
    told = states.told
    moving = told.exists & (told.size("adding_replicas") + told.size("removing_replicas") > 0)
    for episode in states.episodes(states.in_order(moving)):
        start_ms = int(states.timestamp_ms[episode.start])
        end_ms = int(states.timestamp_ms[episode.end]) if episode.end is not None else history.end_ms or start_ms
        hours = (end_ms - start_ms) / HOUR_MS
        if hours > float(thresholds["max_hours"]):
            adding = states.nodes("adding_replicas", episode.start)
            removing = states.nodes("removing_replicas", episode.start)
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
