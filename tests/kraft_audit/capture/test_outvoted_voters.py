"""Brokers' disks do not outvote voters about which bytes are the log; one voter alone decides nothing either."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import kraft_audit
from kraft_audit.capture.altered_batches import most_held
from kraft_audit.rules.rule_model import Status
from kraft_codec.files.state_files import QuorumState
from tests.builders.logs import write_node
from tests.witness.altered_disks import TOPICS, changed, quorum_log

BROKERS = tuple(range(11, 18))


@pytest.mark.parametrize(
    ("versions", "voting", "expected"),
    [
        ({0: [0, 1, 2], 1: [3, 4]}, {3, 4}, (1, False)),  # two voters outweigh three brokers
        ({0: [0, 1, 2], 1: [3, 4]}, {0, 3, 4}, (1, False)),
        ({0: [0, 1], 1: [2, 3]}, {0, 1, 2, 3}, (0, True)),
        ({0: [0, 1, 2, 3], 1: [4]}, {4}, (0, True)),  # one voter against brokers that agree
        ({0: [0, 1], 1: [2]}, {0}, (0, False)),  # no voter contradicts what most disks hold
        ({0: [0], 1: [1]}, {0, 1}, (0, True)),
        ({0: [0, 1], 1: [2]}, set(), (0, False)),
        ({0: [0], 1: [1]}, set(), (0, True)),
        ({0: [0, 1, 2], 1: [3]}, {0, 1, 2, 3}, (0, False)),
    ],
)
def test_which_version_is_taken(versions: dict[int, list[int]], voting: set[int], expected: tuple[int, bool]) -> None:
    assert most_held(versions, range(9), voting) == expected


def test_a_disk_that_was_captured_twice_is_one_voter() -> None:
    disks = ["a", "a", "b", "c", "d"]
    assert most_held({0: [0, 1], 1: [2, 3, 4]}, disks, {0, 1}) == (1, True)
    assert most_held({0: [0, 1], 1: [2]}, disks) == (0, True)
    assert most_held({0: [0, 1], 1: [2, 3]}, disks) == (1, False)


def write(folder: Path, voters: int, batch: int, liars: tuple[int, ...]) -> None:
    """The disks of some voters and seven brokers; those of the liars hold one and the same other batch."""
    log = quorum_log(voters)
    other = list(log.batches)
    other[batch] = changed(other[batch], random.Random(5))  # noqa: S311
    for node in (*range(1, voters + 1), *BROKERS):
        held = b"".join(other if node in liars else log.batches)
        write_node(folder, node, held, state=QuorumState(1, 1, 1 if node <= voters else -1, -1))


def answers(folder: Path) -> tuple[set[str], set[str], list[dict[str, Any]]]:
    """Who is accused, what is said of whom in the summaries, and the topics of the state."""
    with kraft_audit.open(str(folder)) as (cluster,):
        found = [each for each in cluster.check(only=("KQ022", "KQ002", "KV012")) if each.status is Status.RAISED]
        topics = cluster.state().rows("topic_changes")
    return {each.subject for each in found}, {each.rule for each in found}, topics


@pytest.mark.parametrize("batch", [0, 6, 2 * TOPICS])
@pytest.mark.parametrize(("voters", "lying_voters"), [(5, ()), (3, (1,)), (5, (1, 2))])
def test_brokers_do_not_outvote_a_majority_of_the_voters(
    tmp_path: Path, voters: int, lying_voters: tuple[int, ...], batch: int
) -> None:
    liars = (*lying_voters, *BROKERS)
    write(tmp_path, voters, batch, liars)
    accused, rules, topics = answers(tmp_path)
    assert (accused, rules) == ({f"node {node}" for node in liars}, {"KQ022"})
    assert {row["topic"] for row in topics} == {f"topic-{number:02d}" for number in range(TOPICS)}


@pytest.mark.parametrize("liars", [(1,), BROKERS])
def test_one_voter_against_brokers_is_undecided(tmp_path: Path, liars: tuple[int, ...]) -> None:
    write(tmp_path, 1, 6, liars)
    accused, rules, _ = answers(tmp_path)
    assert (len(accused), rules) == (1, {"KQ022"}), "one finding names both sides"
    with kraft_audit.open(str(tmp_path)) as (cluster,):
        (finding,) = (each for each in cluster.check(only=("KQ022",)) if each.status is Status.RAISED)
    assert "no version is held by a majority" in finding.summary


def test_a_broker_fetches_the_log_anew_and_a_voter_is_replaced(tmp_path: Path) -> None:
    write(tmp_path, 3, 6, (1, 11))
    with kraft_audit.open(str(tmp_path)) as (cluster,):
        found = {each.subject: each for each in cluster.check(only=("KQ022",)) if each.status is Status.RAISED}
    assert {subject: each.severity.value for subject, each in found.items()} == {
        "node 1": "critical",
        "node 11": "high",
    }
    assert "remove the voter" in found["node 1"].what_to_do
    assert "move only its __cluster_metadata-0" in found["node 11"].what_to_do
