"""The figures of each cluster as OpenMetrics text 1.0, for a textfile collector or any scraper.

Only what the log determines is there: a figure that is not known has no sample, and rates and connections, which no
log holds, have no family. Names are those of the KIPs in snake case after `kraft_audit_`; each HELP names its origin.
All families are gauges, so that collectors of the older Prometheus text format read the file too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from kraft_audit.output import neutral
from kraft_audit.report.source import AsOf, ClusterInput, Row, state_of
from kraft_audit.rules.broker_states import broker_states
from kraft_audit.rules.canonical import newest_watermark
from kraft_audit.rules.exposure import alone, offline, under_min_isr
from kraft_audit.rules.history import ClusterHistory
from kraft_audit.rules.partition_states import partition_states
from kraft_audit.rules.recovery import unclean_election_enabled

PREFIX: Final = "kraft_audit_"
Labels = Mapping[str, str]
Sample = tuple[str, Labels, float]

FAMILIES: Final[Mapping[str, str]] = {
    "build_info": "1, with the version of the tool and of its rules",
    "report_timestamp_seconds": "when these figures were told",
    "clusters_not_read": "clusters of a lake's fleet that could not be read, or not wholly, when last tried",
    "findings_open": "open findings that nobody waived, by rule and severity",
    "findings_waived": "open findings that somebody waived, by rule and severity",
    "cases_undecided": "cases that the captures do not decide, by rule",
    "log_end_timestamp_seconds": "append time of the last batch that any capture held",
    "read_timestamp_seconds": "when the newest capture had been read",
    "current_epoch": "KIP-595 current-epoch: the last leader epoch of the canonical log",
    "current_leader": "KIP-595 current-leader: who leads that epoch",
    "log_end_offset": "KIP-595 log-end-offset: end of the canonical log",
    "high_watermark_low": "KIP-595 high-watermark, from below: everything below it is proven committed",
    "high_watermark_high": "KIP-595 high-watermark, from above: nothing from it on was committed",
    "voters_captured": "voters of the set in effect whose log was read",
    "number_of_voters": "KIP-853 number-of-voters: voters of the set in effect at the end of the canonical log",
    "uncommitted_voter_change": "KIP-853 uncommitted-voter-change: 1 while the newest set is not proven committed",
    "pending_add_voter": "KIP-853 pending-add-voter, once appended: 1 while the newest set adds and is not proven",
    "pending_remove_voter": "KIP-853 pending-remove-voter, once appended: 1 while it removes and is not proven",
    "global_topic_count": "KIP-631 GlobalTopicCount",
    "global_partition_count": "KIP-631 GlobalPartitionCount",
    "offline_partition_count": "KIP-631 OfflinePartitionsCount: partitions without a leader",
    "preferred_replica_imbalance_count": "KIP-631 PreferredReplicaImbalanceCount: not led by their first replica",
    "active_broker_count": "KIP-631 ActiveBrokerCount: registered and not fenced",
    "fenced_broker_count": "KIP-631 FencedBrokerCount",
    "global_under_min_isr_partition_count": "KIP-966: partitions with an ISR smaller than min ISR",
    "partitions_by_electable_leaders": "KIP-966 electable leaders: partitions by the size of ISR + ELR",
    "last_replica_partition_count": "partitions with one replica alone in ISR and ELR though more are assigned",
    "unclean_recovery_partitions_count": "KIP-966: partitions whose leader is RECOVERING after an unclean election",
    "manual_leader_election_required_partition_count": "KIP-966: no leader, no electable replica, no last known "
    "leader, unclean election off: only a person can choose",
}


@dataclass(frozen=True, slots=True)
class _Figures:
    history: ClusterHistory
    watermark: Row | None


class Metrics:
    """Samples gathered cluster by cluster, as the text must have each family in one place."""

    def __init__(self, as_of: AsOf) -> None:
        self._samples: dict[str, list[tuple[Labels, float]]] = {name: [] for name in FAMILIES}
        about = {"version": as_of.tool_version, "rules_version": as_of.rules_version}
        self._samples["build_info"].append((about, 1))
        self._samples["report_timestamp_seconds"].append(({}, as_of.made_at_ms / 1000))
        if as_of.plan is not None:
            self._samples["clusters_not_read"].append(({}, len(as_of.not_read)))

    def add(self, given: ClusterInput) -> None:
        """Take one cluster in."""
        for name, labels, value in cluster_samples(given):
            self._samples[name].append((labels, value))

    def lines(self) -> Iterator[str]:
        """The text, line by line with line ends, `# EOF` last."""
        for name, text in FAMILIES.items():
            full = PREFIX + name
            yield f"# TYPE {full} gauge\n"
            if name.endswith("_seconds"):
                yield f"# UNIT {full} seconds\n"
            yield f"# HELP {full} {_escaped(text)}\n"
            for labels, value in self._samples[name]:
                yield f"{full}{_labels(labels)} {_number(value)}\n"
        yield "# EOF\n"


def openmetrics(clusters: Iterable[ClusterInput], as_of: AsOf) -> Iterator[str]:
    """The text of all clusters."""
    metrics = Metrics(as_of)
    for given in clusters:
        metrics.add(given)
    yield from metrics.lines()


def cluster_samples(given: ClusterInput) -> Iterator[Sample]:
    """Everything that is known of one cluster: of one whose log was not read, no figure of zero."""
    about = {"cluster_id": given.cluster_id}
    if given.name:
        about["cluster"] = given.name
    yield from _finding_samples(given, about)
    if not given.history.is_read:
        return
    figures = _Figures(given.history, newest_watermark(given.history))
    for part in (_times, _quorum, _voters, _brokers, _partitions):
        for name, value in part(figures):
            if value is not None:
                yield name, about, float(value)
    for size, count in _electable(given.history).items():
        yield "partitions_by_electable_leaders", {**about, "electable_leaders": str(size)}, count


def _finding_samples(given: ClusterInput, about: Labels) -> Iterator[Sample]:
    families = {"open": "findings_open", "waived": "findings_waived", "undecided": "cases_undecided"}
    counts: dict[tuple[str, str, str], int] = {}
    for finding in given.findings:
        state = "clear" if finding["status"] == "clear" else state_of(finding)
        if state in families:
            key = (families[state], finding["rule"], finding["severity"])
            counts[key] = counts.get(key, 0) + 1
    for (family, rule, severity), count in sorted(counts.items()):
        yield family, {**about, "rule": rule, "severity": severity}, count


def _times(figures: _Figures) -> Iterator[tuple[str, float | None]]:
    end, seen = figures.history.end_ms, figures.history.seen_ms
    yield "log_end_timestamp_seconds", None if end is None else end / 1000
    yield "read_timestamp_seconds", None if seen is None else seen / 1000


def _quorum(figures: _Figures) -> Iterator[tuple[str, float | None]]:
    mark = figures.watermark
    if mark is None:
        return
    yield "log_end_offset", mark["canonical_end_offset"]
    yield "high_watermark_low", mark["low"]
    yield "high_watermark_high", mark["high"]
    yield "voters_captured", len(mark["captured_voters"])
    yield "number_of_voters", len(mark["voters"])
    epochs = [row for row in figures.history.rows("leader_epochs") if row["canonical"]]
    newest = max(epochs, key=lambda row: row["epoch"], default=None)
    if newest is not None:
        yield "current_epoch", newest["epoch"]
        yield "current_leader", newest["leader_id"]


def _voters(figures: _Figures) -> Iterator[tuple[str, float | None]]:
    sets = [row for row in figures.history.rows("voter_sets") if row["canonical"]]
    if not sets or figures.watermark is None:
        return
    newest = max(sets, key=lambda row: (row["from_offset"], row["from_epoch"]))
    is_open = newest["source"] == "log" and newest["from_offset"] >= figures.watermark["low"]
    yield "uncommitted_voter_change", float(is_open)
    yield "pending_add_voter", float(is_open and bool(newest["added"]))
    yield "pending_remove_voter", float(is_open and bool(newest["removed"]))


def _brokers(figures: _Figures) -> Iterator[tuple[str, float | None]]:
    if not figures.history.has("broker_changes"):
        return
    newest = [states.newest for states in broker_states(figures.history).values()]
    registered = [row for row in newest if row["exists"]]
    yield "active_broker_count", sum(not row["fenced"] for row in registered)
    yield "fenced_broker_count", sum(row["fenced"] for row in registered)


def _partitions(figures: _Figures) -> Iterator[tuple[str, float | None]]:
    if not figures.history.has("partition_changes"):
        return
    states = partition_states(figures.history)
    now = states.is_last & states.exists
    yield "global_topic_count", len(np.unique(states.topic_codes[now]))
    yield "global_partition_count", int(now.sum())
    yield "offline_partition_count", int((now & offline(states)).sum())
    rows = np.flatnonzero(now & (states.size("replicas") > 0))
    replicas = states.told.lists["replicas"]
    first = replicas.values[replicas.starts[states.order[rows]]] if len(rows) else rows
    yield "preferred_replica_imbalance_count", int((states.leader[rows] != first).sum())
    yield "global_under_min_isr_partition_count", int((now & under_min_isr(states)).sum())
    yield "last_replica_partition_count", int((now & alone(states)).sum())
    yield "unclean_recovery_partitions_count", int((now & states.recovering).sum())
    electable = states.size("isr") + states.size("elr") + states.size("last_known_elr")
    stuck = np.flatnonzero(now & offline(states) & (electable == 0)).tolist()
    topics = {states.topic(row) for row in stuck}
    waiting = {topic for topic in topics if not unclean_election_enabled(figures.history, topic)}
    yield "manual_leader_election_required_partition_count", sum(states.topic(row) in waiting for row in stuck)


def _electable(history: ClusterHistory) -> dict[int, int]:
    """How many partitions have so many replicas in ISR and ELR."""
    if not history.has("partition_changes"):
        return {}
    states = partition_states(history)
    now = np.flatnonzero(states.is_last & states.exists)
    sizes, counts = np.unique((states.size("isr") + states.size("elr"))[now], return_counts=True)
    return dict(zip(sizes.tolist(), counts.tolist(), strict=True))


def _labels(labels: Labels) -> str:
    return (
        "{" + ",".join(f'{name}="{_escaped(neutral(value))}"' for name, value in labels.items()) + "}" if labels else ""
    )


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
