"""What recover-plan says of a partition without a leader, against whom the engine, and Kafka itself, then elected."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import kraft_audit
from kraft_audit.recovery.leaderless_partitions import RecoveryPlan, recovery_plans
from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.partition_states import partition_states
from kraft_engine.runs.scenario_stage import Stage
from tests.witness.audited import Audited

REPLICAS = [11, 12, 13]


def left_without_a_leader(out: Path, *, unclean: bool, clean: frozenset[int] = frozenset()) -> tuple[Stage, bytes]:
    """11, 12 and 13 go in this order, those in `clean` by a controlled shutdown: ELR [12 13], the last leader is 13."""
    stage = Stage(7, out)
    stage.partitions.data_beyond_model = True
    stage.controllers(1)
    stage.brokers(*REPLICAS)
    configs = {"min.insync.replicas": "2", "unclean.leader.election.enable": "true" if unclean else "false"}
    orders = stage.topic("orders", REPLICAS, configs=configs)
    stage.produce(orders)
    for broker in REPLICAS:
        if broker in clean:
            stage.stop_broker(broker)
        else:
            stage.kill_broker(broker, power_cut=False)
    stage.run_ms(2_000)
    stage.capture("down")
    return stage, orders


def plan_below(out: Path) -> RecoveryPlan:
    (plan,) = recovery_plans(Audited.of(out).history)
    return plan


@pytest.mark.parametrize("first", REPLICAS)
@pytest.mark.parametrize("is_clean", [False, True])
def test_with_unclean_election_whoever_is_live_first_leads(tmp_path: Path, first: int, is_clean: bool) -> None:
    clean = frozenset({first}) if is_clean else frozenset()
    stage, orders = left_without_a_leader(tmp_path, unclean=True, clean=clean)
    choice = plan_below(tmp_path).shipped
    stage.start_broker(first, wait=False)
    stage.until(lambda: stage.partition(orders).leader != -1, "a leader")
    after = stage.partition(orders)
    assert after.leader == first
    assert first in choice.waits_for
    # Without loss just where it is one to bring first and stopped cleanly.
    assert (after.recovering == 0) == (is_clean and first in choice.bring_first)
    assert choice.bring_first == (13, 12)
    assert "whichever replica is live first" in choice.text
    assert "bring broker 13 or 12 back before 11" in choice.text


@pytest.mark.parametrize("first", REPLICAS)
@pytest.mark.parametrize("is_clean", [False, True])
def test_without_unclean_election_an_eligible_member_is_waited_for(tmp_path: Path, first: int, is_clean: bool) -> None:
    clean = frozenset({first}) if is_clean else frozenset()
    stage, orders = left_without_a_leader(tmp_path, unclean=False, clean=clean)
    choice = plan_below(tmp_path).shipped
    stage.start_broker(first)
    stage.run_ms(2_000)
    assert (stage.partition(orders).leader == first) == (first in choice.waits_for and is_clean)
    assert choice.waits_for == (12, 13)
    if is_clean:
        return
    # All that crashed are back: the last known leader is elected.
    for broker in REPLICAS:
        if broker != first:
            stage.start_broker(broker)
    stage.run_ms(2_000)
    after = stage.partition(orders)
    assert (after.leader, "elects broker 13, the last known leader" in choice.text) == (13, True)


def elections_to_come(history: ClusterHistory, below: int) -> Iterator[tuple[str, int, str]]:
    """(partition, leader, election) of the first election of each partition from an offset on."""
    rows = sorted(history.rows("partition_changes"), key=lambda row: row["from_offset"])
    seen = set()
    for row in rows:
        name = f"{row['topic']}-{row['partition']}"
        if row["from_offset"] >= below and row["leader"] >= 0 and name not in seen:
            seen.add(name)
            yield name, row["leader"], row["election"]


def test_what_kafka_did_after_the_last_replica_was_killed(samples: Path, small_corpus: Path) -> None:
    """12 came back first, uncleanly: only where unclean election is on did it lead; else 13, the last leader, did."""
    (before,) = kraft_audit.open(str(samples / "elr-06-kill-13-last-replica.tgz"))
    (whole,) = kraft_audit.open(str(small_corpus / "elr"))
    plans = {f"{plan.topic}-{plan.partition}": plan for plan in before.recover_plan()}
    end = int(partition_states(before.history).from_offset.max()) + 1
    truth = {name: reported for name, *reported in elections_to_come(whole.history, end) if name in plans}
    assert truth.keys() == plans.keys()
    for name, (leader, election) in truth.items():
        choice = plans[name].shipped
        assert leader in choice.waits_for
        assert ("whichever replica is live first" in choice.text) == (election == "unclean")
        if election == "last_known":
            assert f"elects broker {leader}, the last known leader" in choice.text
    assert truth["elr-u-0"] == [12, "unclean"]
    assert [reported for name, reported in truth.items() if name == "elr-a-0"] == [[13, "last_known"]]
