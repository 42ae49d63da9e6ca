"""What `check` opens with for log dirs in which only the nodes' own copies tell how their brokers left."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

import kraft_audit
from kraft_audit.findings.answer import answer_lines
from kraft_audit.recovery.lost_quorum.rescue_plan import RescueVerdict
from kraft_audit.rules.rule_model import Severity
from tests.builders.capture_verdicts import verdict_of
from tests.builders.captures import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    """The small inputs, extracted. Skips where there are none."""
    archives = sorted((ROOT.parent / "shared" / "cases").glob("*.tar.gz"))
    if not archives:
        pytest.skip("the small inputs are not beside the project")
    for archive in archives:
        with tarfile.open(archive) as members:
            members.extractall(tmp_path, filter="data")
        for inner in sorted((tmp_path / archive.name.removesuffix(".tar.gz")).glob("in.tgz")):
            with tarfile.open(inner) as members:
                members.extractall(inner.parent, filter="data")
            inner.unlink()
    return tmp_path


def answer_of(path: Path) -> tuple[list[str], set[tuple[str, str]]]:
    """The lines of the only history, without its header; and (rule, subject) of what is open at high or above."""
    with kraft_audit.open(str(path)) as clusters:
        (cluster,) = clusters
        folded = cluster.incidents(cluster.check())
        lines = [line for line in answer_lines(cluster.history, folded, "PATH") if not line.is_header]
        alarms = [each for each in folded.open if each.severity.rank >= Severity.HIGH.rank]
        return [f"{line.word} {line.text}".strip() for line in lines], {(each.rule, each.subject) for each in alarms}


def test_brokers_that_lead_nothing_stop_with_a_plain_fence(cases: Path) -> None:
    lines, alarms = answer_of(cases / "idle-brokers-stop-in-three")
    assert lines[0].startswith("AT REST Stopped in order at 2025-09-03 06:36:50: brokers 102, 101, 103; brokers 101")
    assert lines[1] == "NEXT Start broker 103 first: 53 partitions have only it in their ISR."
    assert alarms == set()


def test_three_brokers_without_a_topic_stop_in_order(cases: Path) -> None:
    lines, alarms = answer_of(cases / "stopped-no-topics-three")
    assert lines[0].startswith("AT REST Stopped in order at 2026-06-13 08:40:08: brokers 2, 1, 3; they led nothing")
    assert alarms == set()


def test_release_3_2_records_no_controlled_shutdown(cases: Path) -> None:
    lines, alarms = answer_of(cases / "stopped-on-3.2")
    assert lines[0].startswith("AT REST Stopped in order at 2025-08-27 22:06:32: brokers 1, 2, 3 (this release")
    assert alarms == {("KP001", "iot-sensors-2")}


def test_the_last_voter_runs_alone(cases: Path) -> None:
    lines, alarms = answer_of(cases / "last-voter-runs-alone")
    assert lines[0] == (
        "QUORUM No majority since 2026-06-14 07:23:08: nodes 3 and 2 stopped in order, node 1 runs alone and cannot "
        "commit offsets 26235 to 27073."
    )
    assert any(line.startswith("NEXT Start controller 2 or 3, with its own disk") for line in lines)
    assert not any("Whole cluster stopped" in line for line in lines)
    assert ("KQ024", "quorum") in alarms


def test_the_survivor_of_a_scale_in_campaigns_alone(cases: Path) -> None:
    lines, alarms = answer_of(cases / "static-scale-in-survivor" / "1-scaled-in-all")
    assert lines[0].startswith("QUORUM No leader in epoch 20. 2 of 3 voters are needed; 1 is in epoch 20")
    assert ("KQ023", "quorum") in alarms
    alone, _ = answer_of(cases / "static-scale-in-survivor" / "2-scaled-in")
    assert alone[0].startswith("NOT JUDGED 1 of 3 voters captured")
    assert "node 1 ran on without a majority: ask it" in alone[0]
    assert not any("Whole cluster stopped" in line for line in (*lines, *alone))


def test_without_a_majority_of_the_voters_the_exit_code_is_4(cases: Path) -> None:
    verdict = verdict_of(cases / "observers-never-promoted" / "6-only-2-and-3")
    assert (verdict.states, verdict.words, verdict.exit_code) == (("not judged",), ("NOT JUDGED",), 4)


def test_a_broker_that_is_killed_after_each_start_restarts_in_a_loop(cases: Path) -> None:
    lines, _ = answer_of(cases / "restart-loop" / "1-restart-loop")
    assert any(line.startswith("INCIDENT Broker 12 restarts in a loop: 5 times in 1 min 42 s") for line in lines)
    assert any(line.startswith("INCIDENT Broker 13 was stopped by controlled shutdown") for line in lines)


def test_brokers_whose_nodes_became_controllers_were_not_lost(cases: Path) -> None:
    lines, _ = answer_of(cases / "ghost-brokers-after-role-change" / "1-controllers-only")
    assert any(line.startswith("INCIDENT Brokers 1, 2 and 3 were given up: controllers with") for line in lines)
    assert not any("lost" in line for line in lines)
    (step,) = [line for line in lines if line.startswith("NEXT")]
    assert [f"--id {broker}" in step for broker in (1, 2, 3)] == [True] * 3


def test_a_topic_that_counts_on_such_brokers_lacks_copies_for_ever(cases: Path) -> None:
    lines, alarms = answer_of(cases / "ghost-brokers-after-role-change" / "2-wide-topic")
    assert alarms == {("KP021", f"wide-{number}") for number in range(3)}
    assert any(
        "3 copies of 6 will never exist: brokers 2, 3 and 1 of [6, 4, 5, 2, 3, 1] are gone" in line for line in lines
    )
    assert not any(line.startswith("NEXT No partition names") for line in lines)


def test_registered_controllers_that_follow_do_not_vote(cases: Path) -> None:
    lines, _ = answer_of(cases / "observers-never-promoted" / "0-two-observers")
    assert lines[1] == (
        "MEMBERS Controllers 2 and 3 are registered and follow, and do not vote: voter 1 alone decides. Never added."
    )
    assert lines[2].startswith(
        "NEXT If 2 and 3 should vote, on the host of each, one after the other:   kafka-metadata-"
    )
    assert lines[2].endswith("add-controller")
    assert not any(line.startswith("SINGLE NODE") for line in lines)


@pytest.mark.parametrize("folder", ["1-controllers-formatted", "2-controllers-up-broker-11-running", "3-all-up"])
def test_a_new_log_of_emptied_controllers_is_no_proof_against_the_brokers(cases: Path, folder: str) -> None:
    """All three were formatted anew; brokers 11 and 12 hold everything up to offset 34."""
    with kraft_audit.open(str(cases / "controllers-emptied" / folder)) as clusters:
        (cluster,) = clusters
        plan = cluster.rescue_plan((1, 2, 3))
        undecided = cluster.rescue_plan()
    assert plan.verdict is RescueVerdict.STANDS
    assert {outcome.copy.node_id for outcome in plan.outcomes} == {11, 12}
    assert plan.best is not None
    assert (plan.best.copy.node_id, plan.best.copy.end_offset) == (11, 34)
    assert ("The logs of 1, 2 and 3 began again" in plan.reason) == (folder != "1-controllers-formatted")
    assert undecided.verdict is not RescueVerdict.STANDS, "nobody said that their disks are gone"


def test_two_leaders_of_one_epoch_lead_on_to_a_plan(cases: Path) -> None:
    lines, _ = answer_of(cases / "controllers-emptied" / "3-all-up")
    assert lines[0].startswith("UNDECIDED Nodes 2 and 3 both led epoch 2")
    assert lines[1] == (
        "NEXT Start nothing. Offsets 0–33 of epoch 2 (topics audit, billing and orders) live only on nodes 11 and 12: "
        "keep these disks, and keep 1, 2 and 3 stopped. To go on with their log:   "
        "kraft-audit rescue --plan PATH --branch 2@0:11"
    )
