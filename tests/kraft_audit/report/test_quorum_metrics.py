"""What a node reports of itself while it runs, as its captured files determine it: beside Kafka's own tools."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kraft_audit.commands.cli import run_command
from kraft_audit.report.openmetrics import METRIC_FAMILIES, cluster_samples
from kraft_audit.report.quorum_metrics import QUORUM_FAMILIES, quorum_samples, state_of
from tests.builders.report_sources import path_source
from tests.builders.support_bundles import node_dirs_of, write

Figures = dict[tuple[str, ...], float]


def figures_of(path: Path) -> Figures:
    """Value by family and the labels' values, without those that name the cluster."""
    (given,) = path_source(path).clusters()
    return {
        (name, *(text for label, text in labels.items() if label in ("node_id", "state"))): value
        for name, labels, value in cluster_samples(given)
        if name in (*QUORUM_FAMILIES, "unclean_recovery_finished_count", "current_leader", "log_end_offset")
    }


def test_each_family_names_its_kip() -> None:
    assert QUORUM_FAMILIES.items() <= METRIC_FAMILIES.items()
    for name, text in QUORUM_FAMILIES.items():
        kip, of_kafka = re.match(r"(KIP-595|KIP-853) ([a-z-]+)", text).groups()  # type: ignore[union-attr]
        assert kip in text
        assert name.startswith(of_kafka.replace("-", "_"))


def test_states_votes_and_epoch_of_a_quorum(samples: Path) -> None:
    figures = figures_of(samples / "divergence.tgz")
    states = {labels[1]: labels[2] for labels in figures if labels[0] == "current_state"}
    assert states == {"1": "leader", "2": "follower", "3": "follower", "11": "observer"}
    assert {labels[1]: value for labels, value in figures.items() if labels[0] == "current_vote"} == {
        "1": 1,  # its file says -1: a leader's own vote is not kept
        "2": -1,
        "3": 1,
        "11": -1,
    }
    assert figures["log_end_epoch",] == 3
    assert figures["election_latency_high_seconds",] > 0
    assert figures["append_records_rate",] > 0
    assert figures["number_of_observers_low",] == figures["number_of_observers_high",] == 1


def test_the_append_rate_is_that_of_the_log(samples: Path) -> None:
    """By the batches as they are dumped: no batch of the leader before, and none older than a minute."""
    (given,) = path_source(samples / "mini-3.9.2.tgz").clusters()
    rows = {
        row["base_offset"]: row
        for row in given.history.rows("batches")
        if row["source"] == "log" and row["valid"] and row["leader_epoch"] == 3
    }
    newest = max(row["max_timestamp_ms"] for row in rows.values())
    rows = {offset: row for offset, row in rows.items() if row["max_timestamp_ms"] >= newest - 60_000}
    first = rows[min(rows)]
    records = sum(row["record_count"] for row in rows.values()) - first["record_count"]
    wanted = records * 1000 / (newest - first["max_timestamp_ms"])
    assert figures_of(samples / "mini-3.9.2.tgz")["append_records_rate",] == pytest.approx(wanted, abs=0.001)


def test_a_first_leader_has_no_election_before_it(samples: Path) -> None:
    assert ("election_latency_high_seconds",) not in figures_of(samples / "jbod.tgz")


def test_ignored_static_voters_come_from_configurations(samples: Path, tmp_path: Path) -> None:
    nodes = node_dirs_of(samples / "mini-4.4.0.tgz", tmp_path)
    assert [labels for labels in figures_of(tmp_path) if labels[0] == "ignored_static_voters"] == []
    write(nodes[1] / "server.properties", "node.id=1\ncontroller.quorum.voters=1@a:9093\n")
    write(nodes[2] / "server.properties", "node.id=2\ncontroller.quorum.bootstrap.servers=a:9093\n")
    write(nodes[11] / "server.properties", "node.id=11\nprocess.roles=broker\n")
    figures = figures_of(tmp_path)
    said = {labels[1]: value for labels, value in figures.items() if labels[0] == "ignored_static_voters"}
    assert said == {"1": 1, "2": 0}


def test_static_voters_of_a_static_quorum_are_not_ignored(samples: Path, tmp_path: Path) -> None:
    nodes = node_dirs_of(samples / "mini-3.9.2.tgz", tmp_path)
    write(nodes[1] / "server.properties", "node.id=1\ncontroller.quorum.voters=1@a:9093,2@b:9093\n")
    (given,) = path_source(tmp_path).clusters()
    is_dynamic = any(row["kraft_version"] for row in given.history.rows("voter_sets") if row["canonical"])
    assert figures_of(tmp_path)["ignored_static_voters", "1"] == is_dynamic


def test_an_unclean_recovery_is_counted_once_it_ends(tmp_path: Path) -> None:
    assert run_command(["simulate", "unclean-recovery-balanced", "--out", str(tmp_path / "incident")]) == 0
    (given,) = path_source(tmp_path / "incident").clusters()
    rows = given.history.rows_by_offset("partition_changes")
    recovering, finished = set(), 0
    for row in rows:
        partition = row["topic_id"], row["partition"]
        if row["exists"] and row["leader_recovery_state"] != "RECOVERING":
            finished += partition in recovering
        if row["exists"] and row["leader_recovery_state"] == "RECOVERING":
            recovering.add(partition)
        else:
            recovering.discard(partition)
    assert figures_of(tmp_path / "incident")["unclean_recovery_finished_count",] == finished > 0


@pytest.mark.parametrize(
    ("leader", "voted", "voter", "state"),
    [
        (1, -1, True, "leader"),
        (2, -1, True, "follower"),
        (2, 1, True, "follower"),
        (-1, 1, True, "candidate"),
        (-1, 2, True, "unattached"),
        (-1, -1, True, "unattached"),
        (2, -1, False, "observer"),
        (-1, 2, False, "observer"),
    ],
)
def test_a_state_by_quorum_state(leader: int, voted: int, voter: bool, state: str) -> None:
    row = {"node_id": 1, "directory_id": "a", "leader_id": leader, "voted_id": voted}
    assert state_of(row, frozenset({(1, "a" if voter else "b")})) == state


def test_nothing_is_said_without_a_log() -> None:
    from kraft_audit.rules.cluster_history import ClusterHistory

    assert list(quorum_samples(ClusterHistory("AAAAAAAAAAAAAAAAAAAAAA", {}))) == []
