"""Elections that lose acknowledged or readable records: every way in which a leader comes to lack them.

Brokers flush only when a story says so: kill -9 leaves the page cache, a power cut leaves what was flushed.
"""

from __future__ import annotations

from kraft_engine.brokers import controller_admin as admin
from kraft_engine.brokers.elr import UNCLEAN
from kraft_engine.runs.scenario_stage import MIN_ISR_2, Stage
from kraft_engine.scenarios.scenario import scenario

NEVER_MS = 1 << 40
UNCLEAN_CONFIG = "unclean.leader.election.enable"


def brokers_that_never_flush(stage: Stage, why: str, *, log_dirs: int = 1) -> None:
    stage.controllers(1, 2, 3)
    stage.brokers(11, 12, 13, log_dirs=log_dirs)
    stage.flush_every(NEVER_MS, 11, 12, 13)
    stage.partitions.allow_data_loss(why)


def cut_power_at_once(stage: Stage, *broker_ids: int) -> None:
    for broker_id in broker_ids:
        stage.kill_broker(broker_id, wait=False)
    for broker_id in broker_ids:
        stage.until(lambda broker_id=broker_id: not stage.is_active(broker_id), f"broker {broker_id} fenced")  # type: ignore[misc]


def elect_uncleanly(stage: Stage, topic_id: bytes, broker_id: int) -> None:
    """An administrator allows unclean elections, and the only replica that runs is elected."""
    stage.controller().topic_config("orders", UNCLEAN_CONFIG, "true")
    stage.start_broker(broker_id)
    stage.controller().elect(UNCLEAN, stage.partition(topic_id))
    stage.until(lambda: stage.partition(topic_id).leader == broker_id, f"broker {broker_id} leading")
    stage.produce(topic_id, 2, acks_all=False)
    stage.settle_controllers()


def left_behind(stage: Stage, why: str) -> bytes:
    """Broker 11 lacks the second ten records of orders-0, brokers 12 and 13 have them."""
    brokers_that_never_flush(stage, why)
    orders = stage.topic("orders", [11, 12, 13], configs=MIN_ISR_2)
    stage.produce(orders)
    stage.kill_broker(11, power_cut=False)
    stage.produce(orders)
    stage.run_ms(300)
    return orders


@scenario(
    "loss-holders-down",
    "A replica that was out of the ISR is elected uncleanly; the disks of two killed brokers hold what it lacks.",
    raises=("KP001", "KP002", "KP005", "KP011", "KP020"),
    may_raise=("KQ009",),
    follows_losses=True,
)
def holders_down(stage: Stage) -> None:
    orders = left_behind(stage, "unclean election past two killed brokers")
    stage.kill_broker(12, power_cut=False)
    stage.kill_broker(13, power_cut=False)
    elect_uncleanly(stage, orders, 11)
    stage.capture("unclean-leader")


@scenario(
    "loss-holders-stopped",
    "The same while both brokers that have every record were stopped in order: their disks surely hold them.",
    raises=("KP001", "KP002", "KP005", "KP011", "KP020"),
    may_raise=("KQ009",),
    follows_losses=True,
)
def holders_stopped(stage: Stage) -> None:
    orders = left_behind(stage, "unclean election past two stopped brokers")
    stage.stop_broker(12)
    stage.stop_broker(13)
    elect_uncleanly(stage, orders, 11)
    stage.capture("unclean-leader")


@scenario(
    "loss-holders-came-back",
    "After an unclean election the brokers that still had the records are started, and truncate them.",
    raises=("KP001", "KP002", "KP005", "KP011", "KP020"),
    may_raise=("KQ009",),
    follows_losses=True,
)
def holders_came_back(stage: Stage) -> None:
    orders = left_behind(stage, "unclean election, and the holders truncate")
    stage.stop_broker(12)
    stage.stop_broker(13)
    elect_uncleanly(stage, orders, 11)
    stage.capture("held")
    stage.start_broker(12)
    stage.start_broker(13)
    stage.until_isr(orders, 11, 12, 13)
    stage.settle()
    stage.capture("truncated")


@scenario(
    "loss-last-known-leader",
    "All brokers lose power at once: the last known leader is elected without the records that nobody had flushed.",
    raises=("KP001", "KP002", "KP005", "KP008", "KP020"),
    may_raise=("KQ009",),
    follows_losses=True,
)
def last_known_leader_lost(stage: Stage) -> None:
    brokers_that_never_flush(stage, "every broker loses power")
    orders = stage.topic("orders", [11, 12, 13], configs=MIN_ISR_2)
    stage.produce(orders)
    stage.run_ms(300)
    stage.flush(11, 12, 13)
    stage.produce(orders)
    stage.run_ms(6_000)
    cut_power_at_once(stage, 11, 12, 13)
    last = stage.partition(orders).last_known_elr[0]
    for broker_id in (11, 12, 13):
        stage.start_broker(broker_id)
    stage.until(lambda: stage.partition(orders).leader == last, "the last known leader leading")
    stage.produce(orders, 2)
    stage.until_isr(orders, 11, 12, 13)
    stage.settle()
    stage.capture("recovered")


@scenario(
    "loss-came-back-alone",
    "T0 to T4 of KIP-966 with ELR off: the only ISR member loses power and leads again; its followers have more.",
    raises=("KP001", "KP002", "KP005", "KP018", "KP020"),
    may_raise=("KQ009",),
    follows_losses=True,
    elr=0,
)
def came_back_alone(stage: Stage) -> None:
    brokers_that_never_flush(stage, "the only in-sync replica loses power")
    orders = stage.topic("orders", [11, 12, 13], configs=MIN_ISR_2)
    stage.produce(orders)
    stage.run_ms(300)
    stage.flush(13)
    stage.isolate(11)
    stage.until_isr(orders, 12, 13)
    stage.produce(orders)
    stage.run_ms(300)
    stage.isolate(12)
    stage.until_isr(orders, 13)
    stage.kill_broker(13)
    stage.heal()
    stage.until(lambda: stage.is_active(11) and stage.is_active(12), "brokers 11 and 12 unfenced")
    stage.start_broker(13)
    stage.until_isr(orders, 11, 12, 13)
    stage.produce(orders, 2)
    stage.settle()
    stage.capture("back")


@scenario(
    "loss-disk-replaced",
    "A log dir with the only copy of a partition is replaced by an empty one: the broker leads it from offset 0 again.",
    raises=("KB010", "KP002", "KP005", "KP008", "KP010", "KP020"),
    may_raise=("KQ009",),
    follows_losses=True,
)
def disk_replaced(stage: Stage) -> None:
    brokers_that_never_flush(stage, "a disk with the only copy is replaced", log_dirs=2)
    orders = stage.topic("orders", [11, 12, 13], configs=MIN_ISR_2)
    alone = stage.topic("alone", [12])
    broker = stage.machine.broker_by_id[12]
    stage.until(lambda: stage.partition(alone).directory_of(12) in broker.log_dirs, "the dir of alone-0 reported")
    stage.produce(orders)
    stage.produce(alone)
    stage.run_ms(6_000)
    number = broker.log_dirs.index(stage.partition(alone).directory_of(12))
    stage.data_disks.fail(broker, number)
    stage.until(lambda: stage.partition(alone).leader == -1, "alone-0 without a leader")
    stage.capture("dir-failed")
    stage.stop_broker(12)
    stage.data_disks.replace(broker, number)
    stage.start_broker(12)
    stage.until(lambda: stage.partition(alone).leader == 12, "12 leading alone-0 again")
    stage.produce(alone, 2)
    stage.until_isr(orders, 11, 12, 13)
    stage.settle()
    stage.capture("new-dir-in-use")


@scenario(
    "loss-disk-emptied",
    "A log dir is emptied under its old directory id: only the copies of its files from before show what is gone.",
    raises=("KP002", "KP005", "KP008", "KP010", "KP020"),
    may_raise=("KQ009",),
    follows_losses=True,
)
def disk_emptied(stage: Stage) -> None:
    brokers_that_never_flush(stage, "a disk with the only copy is emptied")
    alone = stage.topic("alone", [12])
    stage.produce(alone)
    stage.run_ms(6_000)
    stage.capture("before")
    stage.stop_broker(12)
    stage.data_disks.empty(stage.machine.broker_by_id[12], 0)
    stage.start_broker(12)
    stage.until(lambda: stage.partition(alone).leader == 12, "12 leading alone-0 again")
    stage.produce(alone, 2)
    stage.settle()
    stage.capture("after")


@scenario(
    "loss-stale-eligible",
    "A replica that a reassignment removed stays in the ELR: assigned again, and still empty, it is elected cleanly.",
    raises=("KP005", "KP006", "KP010", "KP014", "KP020"),
    may_raise=("KQ009",),
    follows_losses=True,
)
def stale_eligible(stage: Stage) -> None:
    brokers_that_never_flush(stage, "an emptied ELR member is elected")
    # Partition 0 keeps three replicas, and by these the controller measures min ISR for partition 1 too.
    orders = stage.topic("orders", [11, 12, 13], [11, 12, 13], configs=MIN_ISR_2)
    stage.produce(orders, index=1)
    stage.run_ms(300)
    admin.reassign(stage.controller(), orders, 1, [11])
    stage.until(lambda: stage.partition(orders, 1).replicas == [11], "one replica left")
    stage.run_ms(1_000)
    network = stage.cluster.network
    for other in (12, 13):
        network.block(stage.slot(11), stage.slot(other))
        network.block(stage.slot(other), stage.slot(11))
    admin.reassign(stage.controller(), orders, 1, [11, 12])
    stage.run_ms(1_000)
    stage.kill_broker(11, power_cut=False)
    stage.until(lambda: stage.partition(orders, 1).leader == 12, "12 leading")
    stage.produce(orders, 2, index=1, acks_all=False)
    stage.settle_controllers()
    stage.capture("elected-cleanly")


@scenario(
    "loss-min-isr-lowered",
    "min ISR is lowered to 1 while one ISR member is left: what it acknowledges alone the next leader lacks.",
    raises=("KP001", "KP002", "KP005", "KP007", "KP010", "KP011", "KP020"),
    may_raise=("KQ009",),
    follows_losses=True,
)
def min_isr_lowered(stage: Stage) -> None:
    brokers_that_never_flush(stage, "an unclean election past the only member")
    orders = stage.topic("orders", [11, 12, 13], configs=MIN_ISR_2)
    stage.produce(orders)
    stage.run_ms(300)
    stage.kill_broker(11, power_cut=False)
    stage.stop_broker(12)
    stage.until_isr(orders, 13)
    stage.controller().topic_config("orders", "min.insync.replicas", "1")
    stage.run_ms(500)
    stage.produce(orders)
    stage.run_ms(300)
    stage.kill_broker(13, power_cut=False)
    elect_uncleanly(stage, orders, 12)
    stage.capture("unclean-leader")
