"""Elections that look as if they lost records, and lose none."""

from __future__ import annotations

from kraft_engine.brokers import controller_admin as admin
from kraft_engine.runs.scenario_stage import MIN_ISR_2, Stage
from kraft_engine.scenarios.scenario import scenario


def three_brokers(stage: Stage, *, log_dirs: int = 1) -> None:
    stage.controllers(1, 2, 3)
    stage.brokers(11, 12, 13, log_dirs=log_dirs)


@scenario(
    "reassigned-and-elected",
    "One record adds a replica to the ISR, completes the reassignment to it and elects it.",
    raises=("KP001", "KP010"),
    near_miss_of=("KP020",),
    follows_losses=True,
)
def reassigned_and_elected(stage: Stage) -> None:
    three_brokers(stage)
    alone = stage.topic("alone", [11])
    stage.produce(alone)
    admin.reassign(stage.controller(), alone, 0, [12])
    stage.until(lambda: stage.partition(alone).leader == 12, "12 leading")
    stage.produce(alone, 2)
    stage.settle()
    stage.capture("moved")


@scenario(
    "sole-replica-restarted",
    "The broker of a partition with one replica is stopped in order and started again.",
    raises=("KP002", "KP005", "KP010"),
    near_miss_of=("KP020",),
    follows_losses=True,
)
def sole_replica_restarted(stage: Stage) -> None:
    three_brokers(stage)
    alone = stage.topic("alone", [12])
    stage.produce(alone)
    stage.stop_broker(12)
    stage.start_broker(12)
    stage.until(lambda: stage.partition(alone).leader == 12, "12 leading again")
    stage.produce(alone, 2)
    stage.settle()
    stage.capture("back")


@scenario(
    "moved-between-dirs",
    "A replica moves to another log dir of its broker; both dirs are registered.",
    raises=("KP002", "KP005", "KP010"),
    near_miss_of=("KP020",),
    follows_losses=True,
)
def moved_between_dirs(stage: Stage) -> None:
    three_brokers(stage, log_dirs=2)
    alone = stage.topic("alone", [12])
    broker = stage.machine.broker_by_id[12]
    stage.until(lambda: stage.partition(alone).directory_of(12) in broker.log_dirs, "the dir reported")
    stage.produce(alone)
    other = next(directory for directory in broker.log_dirs if directory != stage.partition(alone).directory_of(12))
    admin.assign_directory(stage.controller(), 12, alone, 0, other)
    stage.stop_broker(12)
    stage.start_broker(12)
    stage.until(lambda: stage.partition(alone).leader == 12, "12 leading again")
    stage.produce(alone, 2)
    stage.settle()
    stage.capture("moved")


@scenario(
    "eligible-elected",
    "All three brokers are stopped; the ELR member that comes back first leads with all that was readable.",
    raises=("KP002", "KP005"),
    near_miss_of=("KP020",),
    follows_losses=True,
)
def eligible_elected(stage: Stage) -> None:
    three_brokers(stage)
    orders = stage.topic("orders", [11, 12, 13], configs=MIN_ISR_2)
    stage.produce(orders)
    stage.stop_broker(11)
    stage.produce(orders)
    stage.stop_broker(12)
    # Below min ISR the high watermark waits: these are no more than an answer to acks=1, and nobody could read them.
    stage.produce(orders, 5, acks_all=False)
    stage.stop_broker(13)
    stage.start_broker(12)
    stage.until(lambda: stage.partition(orders).leader == 12, "12 leading from the ELR")
    stage.start_broker(11)
    stage.start_broker(13)
    stage.until_isr(orders, 11, 12, 13)
    stage.produce(orders, 2)
    stage.settle()
    stage.capture("recovered")
