"""Which brokers start first after a rescue, and what has to be done before any starts."""

from __future__ import annotations

from dataclasses import replace

import pytest

import kraft_audit
from kraft_audit.quorum.voter_history import Endpoint
from kraft_audit.recovery.lost_quorum.broker_steps import broker_starts
from kraft_audit.recovery.lost_quorum.rescue import Rescue
from kraft_audit.recovery.lost_quorum.rescue_request import RescueRequest
from kraft_audit.recovery.start_order import NO_ORDER, StartOrder

ORDER = "in this order, each once the one before is unfenced"


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Rescue:
    """Brokers 11 to 14 are registered, and all have to stop."""
    out = tmp_path_factory.mktemp("rescued") / "new"
    with kraft_audit.open("samples/elr-29-stopped.tgz") as clusters:
        (cluster,) = clusters
        return cluster.rescue(RescueRequest(14, out, 9, (Endpoint("CONTROLLER", "c9.example", 9093),)), [1])


def texts(rescue: Rescue, order: StartOrder) -> list[str]:
    return [step.sentences[0] for step in broker_starts(rescue, order)][:-1]


def test_brokers_that_partitions_wait_for_start_before_the_others(moved: Rescue) -> None:
    assert texts(moved, NO_ORDER) == ["Start all brokers."]
    assert texts(moved, StartOrder((13, 11))) == [f"Start all brokers {ORDER}: 13, then 11, then all others."]
    assert texts(moved, StartOrder((12,))) == [f"Start all brokers {ORDER}: 12, then all others."]


def test_a_broker_that_left_an_isr_in_the_lost_part_is_in_no_order(moved: Rescue) -> None:
    dropped = replace(moved, dropped={13: ("t-0",)})
    assert texts(dropped, StartOrder((13, 11))) == [f"Start all brokers but 13 {ORDER}: 11, then all others."]


def test_brokers_that_run_are_restarted_after_those_that_are_stopped(moved: Rescue) -> None:
    running = replace(moved, keeps_endpoint=True)
    then = "then all others; then restart one by one those that still run."
    assert texts(running, StartOrder((12,))) == [f"Start all brokers {ORDER}: 12, {then}"]
    only = "Start all brokers that are stopped, and restart one by one those that still run."
    assert texts(running, NO_ORDER) == [only]


def test_where_no_order_is_right_unclean_election_is_turned_off_first(moved: Rescue) -> None:
    first, *_ = broker_starts(moved, StartOrder((), contested=("a-0", "a-1", "b-0")))
    assert first.sentences[0] == "Before any broker starts, turn unclean election off for a; b."
    assert list(first.commands) == [
        f"kafka-configs --bootstrap-controller c9.example:9093 --alter --entity-type topics --entity-name {topic} "
        "--add-config unclean.leader.election.enable=false"
        for topic in "ab"
    ]


def test_unclean_election_goes_off_before_a_broker_starts_that_others_may_surpass(moved: Rescue) -> None:
    first, *_ = broker_starts(moved, StartOrder((13, 12), at_risk=("a-0",)))
    assert first.text.startswith("Before any broker starts, turn unclean election off for a.")
    assert first.text.endswith("whatever its log holds, and others may hold more.")


def test_a_broker_whose_log_dir_is_gone_is_named(moved: Rescue) -> None:
    start, _ = broker_starts(moved, StartOrder((11, 12), without_dir=((12, "t-0"),)))
    assert "Start broker 12 only with the log dir that holds t-0: with an empty one it loses all of it." in start.text
