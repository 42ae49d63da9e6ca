"""KIP-966's T0 to T4: brokers leave one by one until a single copy is left, and then that one goes too."""

from __future__ import annotations

from kraft_engine.runs.scenario_stage import MIN_ISR_2, Stage
from kraft_engine.scenarios.scenario import scenario


@scenario(
    "last-replica-standing",
    "Without ELR, network cuts shrink three replicas to one ISR member that loses its disk cache: acknowledged records "
    "are gone from every replica.",
    raises=("KP001", "KP002", "KP005", "KP018", "KP020"),
    may_raise=("KQ009",),
    elr=0,
)
def last_replica_standing(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.brokers(11, 12, 13)
    orders = stage.topic("orders", [11, 12, 13], configs=MIN_ISR_2)
    stage.produce(orders)
    stage.capture("t0-all-in-sync")
    # T0: broker 11 is cut off. It was the leader, and stays convinced of it until it hears otherwise.
    stage.isolate(11)
    stage.until_isr(orders, 12, 13)
    stage.produce(orders)
    # T1: broker 12 too. acks=all is refused from here on, acks=1 is not.
    stage.isolate(12)
    stage.until_isr(orders, 13)
    stage.produce(orders, acks_all=False)
    stage.run_ms(5_000)
    stage.capture("t2-last-standing")
    # T2: the last in-sync replica loses power, and with it records that were acknowledged.
    stage.partitions.data_beyond_model = True
    stage.invariants.damage("power cut of the only in-sync replica", broker=13)
    stage.kill_broker(13)
    stage.lose_committed(13, orders, 5)
    # T3: the others are back, and may not lead: the ISR names broker 13 alone.
    stage.heal()
    stage.until(lambda: stage.is_active(11) and stage.is_active(12), "brokers 11 and 12 unfenced")
    # T4: broker 13 leads, and the others cut their logs to its own.
    stage.start_broker(13)
    stage.until_isr(orders, 11, 12, 13)
    stage.produce(orders)
    stage.capture("t4-came-back-uncleanly")


@scenario(
    "last-replica-standing-elr",
    "The same with ELR: the replicas that left cleanly stay eligible, and the partition waits for one of them.",
    raises=("KP002", "KP005"),
    near_miss_of=("KP001", "KP008", "KP020"),
)
def last_replica_standing_elr(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.brokers(11, 12, 13)
    orders = stage.topic("orders", [11, 12, 13], configs=MIN_ISR_2)
    stage.produce(orders)
    stage.stop_broker(11)
    stage.produce(orders)
    stage.stop_broker(12)
    stage.capture("one-in-sync-one-eligible")
    stage.stop_broker(13)
    stage.capture("leaderless-two-eligible")
    stage.start_broker(12)
    stage.until(lambda: stage.partition(orders).leader == 12, "12 leading from the ELR")
    stage.start_broker(11)
    stage.start_broker(13)
    stage.until_isr(orders, 11, 12, 13)
    stage.produce(orders)
    stage.settle()
    stage.capture("recovered")


@scenario(
    "last-known-leader",
    "Every eligible replica comes back uncleanly; the last known leader is elected although unclean election is off.",
    raises=("KP001", "KP002", "KP005", "KP008", "KP020"),
    may_raise=("KQ009",),
    near_miss_of=("KP017",),
)
def last_known_leader(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.brokers(11, 12, 13)
    orders = stage.topic("orders", [11, 12, 13], configs=MIN_ISR_2)
    stage.produce(orders)
    stage.invariants.damage("every eligible replica loses power", partition="orders-0")
    stage.partitions.data_beyond_model = True
    for broker_id in (11, 12, 13):
        stage.kill_broker(broker_id)
    stage.capture("all-down")
    stage.start_broker(12)
    stage.start_broker(13)
    stage.until(lambda: stage.partition(orders).leader == 13, "the last known leader leading")
    stage.capture("elected-recovering")
    stage.until(lambda: stage.partition(orders).recovering == 0, "recovery")
    stage.settle()
    stage.capture("recovered")


@scenario(
    "four-brokers-min-isr-three",
    "Four replicas and min ISR 3: the first loss is harmless, the second stops the high watermark and fills the ELR.",
    raises=("KP005", "KP008"),
    may_raise=("KQ009",),
    near_miss_of=("KP001", "KP002"),
)
def four_brokers(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.brokers(11, 12, 13, 14)
    ledger = stage.topic("ledger", [11, 12, 13, 14], configs={"min.insync.replicas": "3"})
    stage.produce(ledger)
    stage.kill_broker(11, power_cut=False)
    stage.produce(ledger)
    stage.capture("three-left")
    stage.kill_broker(12, power_cut=False)
    stage.run_ms(3_000)
    stage.capture("two-left")
    stage.start_broker(12)
    stage.start_broker(11)
    stage.until_isr(ledger, 11, 12, 13, 14)
    stage.settle()
    stage.capture("whole")
