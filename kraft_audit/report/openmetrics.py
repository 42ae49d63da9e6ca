"""The metrics of each cluster as OpenMetrics text 1.0, for a textfile collector or any scraper.

Only metrics that the captured files determine, or bound: an unknown value has no sample, and connections and what only
a running node knows, such as fetch rates, have no family. Names are those of the KIPs in snake case after
`kraft_audit_`; each HELP names its origin. All families are gauges, so that collectors of the older Prometheus text
format read the file too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from kraft_audit.report.quorum_metrics import QUORUM_FAMILIES, quorum_samples
from kraft_audit.report.report_source import AsOf, ClusterInput
from kraft_audit.rules.cluster_history import ClusterHistory, unclean_election_enabled
from kraft_audit.rules.columns.captures import newest_watermark
from kraft_audit.rules.columns.frame import distinct
from kraft_audit.rules.columns.nodes import broker_states
from kraft_audit.rules.columns.partition_states import (
    PartitionStates,
    alone,
    offline,
    partition_states,
    under_min_isr,
)
from kraft_audit.rules.rule_model import ACCEPTED, FindingState
from kraft_audit.tables.number_arrays import Mask
from kraft_audit.text.output import neutral

METRIC_PREFIX: Final = "kraft_audit_"
Labels = Mapping[str, str]
Sample = tuple[str, Labels, float]
Figures = Mapping[str, float | None]

METRIC_FAMILIES: Final[Mapping[str, str]] = {
    "build_info": "1, with the version of the tool and of its rules",
    "report_timestamp_seconds": "when these metrics were written",
    "clusters_not_read": "clusters of a lake's fleet that the last attempt could not read, or only in part",
    "cluster_expected": "1 for each cluster that fleet.yaml names, read or not: what is missing is compared with it",
    "cluster_labels": "1 for each cluster, with the labels that fleet.yaml gives it",
    "findings_open": "open findings without a waiver, by rule and severity",
    "findings_waived": "open findings with a waiver, by rule and severity",
    "cases_undecided": "cases that the captures do not decide, by rule",
    "log_end_timestamp_seconds": "append time of the last batch that any capture held",
    "read_timestamp_seconds": "when the newest capture had been read",
    "current_epoch": "KIP-595 current-epoch: the last leader epoch of the canonical log",
    "current_leader": "KIP-595 current-leader: the leader of that epoch",
    "log_end_offset": "KIP-595 log-end-offset: end of the canonical log",
    "high_watermark_low": "KIP-595 high-watermark, lower bound: every record before it is committed",
    "high_watermark_high": "KIP-595 high-watermark, upper bound: no record from it on is committed",
    "voters_captured": "voters of the set in effect whose log was read",
    "number_of_voters": "KIP-853 number-of-voters: voters of the set in effect at the end of the canonical log",
    "uncommitted_voter_change": "KIP-853 uncommitted-voter-change: 1 until the newest set is known to be committed",
    "pending_add_voter": "KIP-853 pending-add-voter, once appended: 1 until a set that adds a voter is committed",
    "pending_remove_voter": "KIP-853 pending-remove-voter, once appended: 1 until one that removes a voter is",
    **QUORUM_FAMILIES,
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
    "unclean_recovery_finished_count": "KIP-966: how often in the log a partition left RECOVERING after an unclean "
    "election",
    "manual_leader_election_required_partition_count": "KIP-966: no leader, no electable replica, no last known "
    "leader, unclean election off: an operator has to choose the leader",
}


class Metrics:
    """Samples collected cluster by cluster, as the text must have each family in one place."""

    def __init__(self, as_of: AsOf) -> None:
        self._samples: dict[str, list[tuple[Labels, float]]] = {name: [] for name in METRIC_FAMILIES}
        about = {"version": as_of.tool_version, "rules_version": as_of.rules_version}
        self._samples["build_info"].append((about, 1))
        self._samples["report_timestamp_seconds"].append(({}, as_of.made_at_ms / 1000))
        if as_of.plan is not None:
            self._samples["clusters_not_read"].append(({}, len(as_of.not_read)))
        self._samples["cluster_expected"] += [({"cluster": name}, 1) for name in as_of.expected]

    def add(self, given: ClusterInput) -> None:
        """Add one cluster."""
        for name, labels, value in cluster_samples(given):
            self._samples[name].append((labels, value))

    def lines(self) -> Iterator[str]:
        """The text, line by line with line ends; `# EOF` is the last line."""
        for name, text in METRIC_FAMILIES.items():
            full = METRIC_PREFIX + name
            yield f"# TYPE {full} gauge\n"
            if name.endswith("_seconds"):
                yield f"# UNIT {full} seconds\n"
            yield f"# HELP {full} {_escaped(text)}\n"
            for labels, value in self._samples[name]:
                yield f"{full}{_labels(labels)} {_number(value)}\n"
        yield "# EOF\n"


def cluster_samples(given: ClusterInput) -> Iterator[Sample]:
    """All known samples of one cluster; without a read log it has no samples of zero."""
    about = {"cluster_id": given.cluster_id}
    history_of = given.history.history_of
    if len(history_of.histories) > 1:
        about["history"] = str(history_of.number + 1)
    if given.name:
        about["cluster"] = given.name
    if given.labels:
        yield "cluster_labels", {**about, **given.labels}, 1
    yield from _finding_samples(given, about)
    history = given.history
    if not history.is_read:
        return
    for figures in (_times(history), _quorum(history), _brokers(history), _partitions(history)):
        for name, value in figures.items():
            if value is not None:
                yield name, about, float(value)
    for name, labels, value in quorum_samples(history):
        yield name, {**about, **labels}, value
    if history.has("partition_changes"):
        states = partition_states(history)
        electable = (states.size("isr") + states.size("elr"))[states.is_last & states.exists]
        for size, count in zip(*np.unique(electable, return_counts=True), strict=True):
            yield "partitions_by_electable_leaders", {**about, "electable_leaders": str(size)}, int(count)


def _finding_samples(given: ClusterInput, about: Labels) -> Iterator[Sample]:
    families = {FindingState.OPEN: "findings_open", FindingState.UNDECIDED: "cases_undecided"}
    families |= dict.fromkeys(ACCEPTED, "findings_waived")
    counts: dict[tuple[str, str, str], int] = {}
    for finding in given.findings:
        state = finding["state"]
        if state in families:
            key = (families[state], finding["rule"], finding["severity"])
            counts[key] = counts.get(key, 0) + 1
    for (family, rule, severity), count in sorted(counts.items()):
        yield family, {**about, "rule": rule, "severity": severity}, count


def _times(history: ClusterHistory) -> Figures:
    end, seen = history.end_ms, history.seen_ms
    return {
        "log_end_timestamp_seconds": None if end is None else end / 1000,
        "read_timestamp_seconds": None if seen is None else seen / 1000,
    }


def _quorum(history: ClusterHistory) -> Figures:
    mark = newest_watermark(history)
    if mark is None:
        return {}
    figures: dict[str, float | None] = {
        "log_end_offset": mark["canonical_end_offset"],
        "high_watermark_low": mark["low"],
        "high_watermark_high": mark["high"],
        "voters_captured": len(mark["captured_voters"]),
        "number_of_voters": len(mark["voters"]),
    }
    epochs = [row for row in history.rows("leader_epochs") if row["canonical"]]
    if epochs:
        newest = max(epochs, key=lambda row: row["epoch"])
        figures |= {"current_epoch": newest["epoch"], "current_leader": newest["leader_id"]}
    sets = [row for row in history.rows("voter_sets") if row["canonical"]]
    if sets:
        newest = max(sets, key=lambda row: (row["from_offset"], row["from_epoch"]))
        is_open = newest["source"] == "log" and newest["from_offset"] >= mark["low"]
        figures |= {
            "uncommitted_voter_change": is_open,
            "pending_add_voter": is_open and bool(newest["added"]),
            "pending_remove_voter": is_open and bool(newest["removed"]),
        }
    return figures


def _brokers(history: ClusterHistory) -> Figures:
    if not history.has("broker_changes"):
        return {}
    newest = (states.newest for states in broker_states(history).values())
    fenced = [row["fenced"] for row in newest if row["exists"]]
    return {"active_broker_count": len(fenced) - sum(fenced), "fenced_broker_count": sum(fenced)}


def _partitions(history: ClusterHistory) -> Figures:
    if not history.has("partition_changes"):
        return {}
    states = partition_states(history)
    now = states.is_last & states.exists
    rows = np.flatnonzero(now & (states.size("replicas") > 0))
    replicas = states.changes.lists["replicas"]
    first = replicas.values[replicas.starts[states.order[rows]]] if len(rows) else rows
    electable = states.size("isr") + states.size("elr") + states.size("last_known_elr")
    topics = states.topics(np.flatnonzero(now & offline(states) & (electable == 0)))
    waiting = {topic for topic in set(topics) if not unclean_election_enabled(history, topic)}
    return {
        "global_topic_count": len(distinct(states.topic_codes[now])),
        "global_partition_count": int(now.sum()),
        "offline_partition_count": int((now & offline(states)).sum()),
        "preferred_replica_imbalance_count": int((states.leader[rows] != first).sum()),
        "global_under_min_isr_partition_count": int((now & under_min_isr(states)).sum()),
        "last_replica_partition_count": int((now & alone(states)).sum()),
        "unclean_recovery_finished_count": int(_recovered(states).sum()),
        "unclean_recovery_partitions_count": int((now & states.recovering).sum()),
        "manual_leader_election_required_partition_count": sum(topic in waiting for topic in topics),
    }


def _recovered(states: PartitionStates) -> Mask:
    """Rows with which a partition's leader became RECOVERED again."""
    recovering = states.recovering
    was_recovering = np.concatenate([np.zeros(min(len(recovering), 1), bool), recovering[:-1]])
    recovered: Mask = was_recovering & ~recovering & ~states.is_first & states.exists
    return recovered


def _labels(labels: Labels) -> str:
    return (
        "{" + ",".join(f'{name}="{_escaped(neutral(value))}"' for name, value in labels.items()) + "}" if labels else ""
    )


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
