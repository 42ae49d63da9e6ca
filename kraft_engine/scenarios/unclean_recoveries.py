"""KIP-966's unclean recovery, which never shipped: the longest log leads."""

from __future__ import annotations

from kraft_engine.brokers.unclean_recovery import Strategy
from kraft_engine.runs.scenario_stage import MIN_ISR_2, Stage
from kraft_engine.scenarios.scenario import scenario


def lose_everyone(stage: Stage, strategy: Strategy) -> bytes:
    stage.controllers(1, 2, 3)
    stage.brokers(11, 12, 13)
    stage.machine.recover_uncleanly(strategy)
    orders = stage.topic("orders", [11, 12, 13], configs=MIN_ISR_2)
    stage.produce(orders, 20)
    stage.invariants.damage("every replica loses power", partition="orders-0", strategy=str(strategy))
    stage.partitions.data_beyond_model = True
    for broker_id in (11, 12, 13):
        stage.kill_broker(broker_id)
    stage.capture("all-down")
    return orders


def longest(stage: Stage, orders: bytes, *broker_ids: int) -> int:
    """The broker with the highest (last epoch, end offset)."""
    replicas = {broker_id: stage.machine.broker_by_id[broker_id].replicas[orders, 0] for broker_id in broker_ids}
    best = max((replica.last_epoch, replica.end_offset) for replica in replicas.values())
    return next(
        broker_id for broker_id, replica in sorted(replicas.items())
        if (replica.last_epoch, replica.end_offset) == best
    )  # fmt: skip


@scenario(
    "unclean-recovery-balanced",
    "Balanced recovery waits until every member that the ELR lost is back, then elects the longest log.",
    raises=("KP001", "KP002", "KP005", "KP008", "KP020"),
    may_raise=("KQ009",),
)
def balanced(stage: Stage) -> None:
    orders = lose_everyone(stage, Strategy.BALANCED)
    stage.start_broker(11)
    stage.start_broker(12)
    stage.run_ms(8_000)
    if stage.partition(orders).leader != -1:
        raise AssertionError("a member of LastKnownElr is still away")
    stage.capture("waiting")
    stage.start_broker(13)
    expected = longest(stage, orders, 11, 12, 13)
    stage.until(lambda: stage.partition(orders).leader == expected, "the longest log leading")
    stage.until(lambda: stage.partition(orders).recovering == 0, "recovery")
    stage.settle()
    stage.capture("recovered")


@scenario(
    "unclean-recovery-aggressive",
    "Aggressive recovery takes the best of those that answer within its timeout.",
    raises=("KP001", "KP002", "KP005", "KP008", "KP020"),
    may_raise=("KQ009",),
)
def aggressive(stage: Stage) -> None:
    orders = lose_everyone(stage, Strategy.AGGRESSIVE)
    stage.start_broker(12)
    stage.until(lambda: stage.partition(orders).leader == 12, "the only one that answers leading")
    stage.settle_controllers()
    stage.capture("recovered")


@scenario(
    "unclean-recovery-none",
    "Strategy None: the partition waits for an operator, who designates a leader.",
    raises=("KP001", "KP002", "KP005", "KP008", "KP020"),
    may_raise=("KQ009",),
)
def none(stage: Stage) -> None:
    orders = lose_everyone(stage, Strategy.NONE)
    for broker_id in (11, 12, 13):
        stage.start_broker(broker_id)
    stage.run_ms(8_000)
    partition = stage.partition(orders)
    if partition.leader != -1 or stage.machine.recovery is None:
        raise AssertionError("no replica may lead before an operator has chosen it")
    stage.capture("waiting")
    if stage.machine.recovery.elect(stage.controller(), partition, "DESIGNATION", 13):
        raise AssertionError("a live replica of a partition without a leader can be designated")
    stage.until(lambda: stage.partition(orders).recovering == 0, "recovery")
    stage.settle()
    stage.capture("designated")
