"""Partitions in trouble, and partitions that only look it: ISR, ELR, elections, reassignments, configs."""

from __future__ import annotations

from kraft_engine.brokers import controller_admin as admin
from kraft_engine.brokers.elr import PREFERRED, UNCLEAN
from kraft_engine.brokers.image import ELR_FEATURE, METADATA_VERSION
from kraft_engine.runs.scenario_stage import MIN_ISR_2, Stage
from kraft_engine.scenarios.scenario import scenario
from kraft_engine.world.world import HOUR_US


def three_brokers(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.brokers(11, 12, 13)


@scenario(
    "elr-wiped-by-config",
    "A harmless-looking write of min.insync.replicas clears the ELR just when it is needed.",
    raises=("KP001", "KP005", "KP007"),
)
def elr_wiped_by_config(stage: Stage) -> None:
    three_brokers(stage)
    orders = stage.topic("orders", [11, 12, 13], configs=MIN_ISR_2)
    stage.produce(orders)
    stage.stop_broker(11)
    stage.stop_broker(12)
    stage.capture("eligible-12")
    stage.controller().topic_config("orders", "min.insync.replicas", "2")
    stage.run_ms(500)
    stage.capture("wiped")


@scenario(
    "min-isr-written-while-whole",
    "The same write while every replica is in sync: there is no ELR to lose.",
    near_miss_of=("KP007",),
)
def min_isr_written(stage: Stage) -> None:
    three_brokers(stage)
    orders = stage.topic("orders", [11, 12, 13], configs=MIN_ISR_2)
    stage.produce(orders)
    stage.controller().topic_config("orders", "min.insync.replicas", "2")
    stage.settle()
    stage.capture("whole")


@scenario(
    "elr-wiped-by-directory",
    "Up to 4.2.0 an AssignReplicasToDirs request wiped the ELR of a partition below min ISR.",
    raises=("KP001", "KP005", "KP006", "KP007"),
    release="4.2.0",
)
def elr_wiped_by_directory(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.brokers(11, 12, 13, log_dirs=2)
    orders = stage.topic("orders", [11, 12, 13], configs=MIN_ISR_2)
    stage.produce(orders)
    stage.stop_broker(11)
    stage.stop_broker(12)
    stage.capture("eligible-12")
    stage.invariants.damage("the 4.2.0 bug of AssignReplicasToDirs")
    controller = stage.controller()
    directory = controller.image.brokers[13]["logDirs"][0]
    admin.assign_directory(controller, 13, orders, 0, directory)
    stage.run_ms(500)
    stage.capture("wiped")


@scenario(
    "unclean-shutdown-of-eligible",
    "An ELR member comes back uncleanly and loses its place; the one that left cleanly keeps it.",
    raises=("KP001", "KP005", "KP008"),
    may_raise=("KQ009",),
)
def unclean_eligible(stage: Stage) -> None:
    three_brokers(stage)
    orders = stage.topic("orders", [11, 12, 13], configs=MIN_ISR_2)
    stage.produce(orders)
    stage.stop_broker(11)
    stage.kill_broker(12, power_cut=False)
    stage.capture("eligible-12")
    stage.isolate(12)
    stage.heal()
    stage.start_broker(12, wait=False)
    stage.until(lambda: 12 not in stage.partition(orders).elr, "12 out of the ELR")
    stage.capture("12-not-eligible")
    stage.until_isr(orders, 12, 13)
    stage.capture("12-in-sync-again")


@scenario(
    "reassigned-below-min-isr",
    "A reassignment completes although the ISR is below min ISR, and leaves an ELR of brokers that are no replicas.",
    raises=("KP005", "KP006", "KP010", "KP014"),
    may_raise=("KQ009",),
)
def reassigned_below(stage: Stage) -> None:
    three_brokers(stage)
    orders = stage.topic("orders", [11, 12, 13], [12, 13, 11], configs=MIN_ISR_2)
    stage.produce(orders, index=1)
    stage.kill_broker(11, power_cut=False)
    stage.kill_broker(12, power_cut=False)
    admin.reassign(stage.controller(), orders, 1, [13])
    stage.run_ms(1_000)
    stage.capture("one-replica-left")


@scenario(
    "reassigned-in-good-order",
    "A replica moves from one broker to another while everything is in sync.",
    near_miss_of=("KP006", "KP014", "KP015"),
)
def reassigned_well(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.brokers(11, 12, 13, 14)
    orders = stage.topic("orders", [11, 12, 13], configs=MIN_ISR_2)
    stage.produce(orders)
    admin.reassign(stage.controller(), orders, 0, [12, 13, 14])
    stage.until(lambda: stage.partition(orders).replicas == [12, 13, 14], "the move")
    stage.settle()
    stage.capture("moved")


@scenario(
    "reassignment-stuck",
    "The broker that a replica should move to is down: adding and removing replicas stay for more than a day.",
    raises=("KP015",),
    may_raise=("KQ001", "KQ009"),
)
def reassignment_stuck(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.brokers(11, 12, 13, 14)
    orders = stage.topic("orders", [11, 12, 13], configs=MIN_ISR_2)
    stage.kill_broker(14, power_cut=False)
    admin.reassign(stage.controller(), orders, 0, [12, 13, 14])
    stage.settle_controllers()
    stage.world.leap(30 * HOUR_US)
    stage.controller().write([("NoOpRecord", 0, {})])
    stage.settle_controllers()
    stage.capture("still-moving")


@scenario(
    "unclean-election",
    "Unclean election is allowed: a replica from outside ISR and ELR leads, what the others had is forfeited.",
    raises=("KP001", "KP002", "KP005", "KP011", "KP020"),
    may_raise=("KQ009",),
)
def unclean_election(stage: Stage) -> None:
    three_brokers(stage)
    orders = stage.topic("orders", [11, 12, 13], configs=MIN_ISR_2)
    stage.produce(orders)
    stage.invariants.damage("unclean election enabled", topic="orders")
    stage.partitions.data_beyond_model = True
    stage.kill_broker(11, power_cut=False)
    stage.produce(orders)
    stage.kill_broker(12, power_cut=False)
    stage.kill_broker(13, power_cut=False)
    stage.controller().topic_config("orders", "unclean.leader.election.enable", "true")
    stage.start_broker(11)
    stage.controller().elect(UNCLEAN, stage.partition(orders))
    stage.until(lambda: stage.partition(orders).leader == 11, "11 leading")
    stage.run_ms(300)
    stage.capture("unclean-leader")


@scenario(
    "fenced-last-known-leader",
    "4.0 elects the last known leader while it is fenced.",
    raises=("KB006", "KP001", "KP002", "KP005", "KP008", "KP016", "KP017", "KP020"),
    release="4.0.1",
    metadata_version=25,
    elr=1,
)
def fenced_last_known_leader(stage: Stage) -> None:
    three_brokers(stage)
    orders = stage.topic("orders", [11, 12, 13], configs=MIN_ISR_2)
    stage.produce(orders)
    stage.invariants.damage("the 4.0 bug of the last known leader")
    stage.partitions.data_beyond_model = True
    for broker_id in (11, 12, 13):
        stage.kill_broker(broker_id)
    for broker_id in (11, 12, 13):
        stage.start_broker(broker_id, wait=False)
        stage.run_ms(900)
    stage.capture("fenced-leader")


@scenario(
    "preferred-leaders",
    "Leaders move away and back without any loss.",
    near_miss_of=("KB001", "KP008", "KP012", "KP016", "KP020"),
)
def preferred_leaders(stage: Stage) -> None:
    three_brokers(stage)
    orders = stage.topic("orders", [11, 12, 13], configs=MIN_ISR_2)
    stage.stop_broker(11)
    stage.start_broker(11)
    stage.until_isr(orders, 11, 12, 13)
    stage.controller().elect(PREFERRED, stage.partition(orders))
    stage.settle()
    stage.capture("back")


@scenario("weak-durability", "Replication factor 1, min ISR 1 of 3, min ISR 3 of 3.", raises=("KP010",))
def weak_durability(stage: Stage) -> None:
    three_brokers(stage)
    stage.topic("one-copy", [11])
    stage.topic("one-is-enough", [11, 12, 13], configs={"min.insync.replicas": "1"})
    stage.topic("all-or-nothing", [11, 12, 13], configs={"min.insync.replicas": "3"})
    stage.settle()
    stage.capture("weak")


@scenario("one-rack", "Every in-sync replica of a partition stands in one rack.", raises=("KP009", "KP010"))
def one_rack(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.brokers(11, 12, 13, 14, racks=("a", "a", "b", "b"))
    stage.topic("same-rack", [11, 12], configs=MIN_ISR_2)
    stage.topic("two-racks", [11, 13], configs=MIN_ISR_2)
    stage.settle()
    stage.capture("racks")


@scenario(
    "replicas-on-nobody",
    "A broker is unregistered for good, and a topic still counts on a copy there.",
    raises=("KP021",),
    near_miss_of=("KP001", "KP002"),
)
def replicas_on_nobody(stage: Stage) -> None:
    three_brokers(stage)
    orders = stage.topic("orders", [11, 12, 13], configs=MIN_ISR_2)
    stage.stop_broker(13)
    stage.until_isr(orders, 11, 12)
    stage.controller().unregister(13)
    stage.settle()
    stage.capture("unregistered")


@scenario(
    "broker-unregistered",
    "A broker is unregistered that no partition counts on.",
    near_miss_of=("KP021",),
)
def broker_unregistered(stage: Stage) -> None:
    three_brokers(stage)
    stage.brokers(14)
    stage.topic("orders", [11, 12, 13], configs=MIN_ISR_2)
    stage.stop_broker(14)
    stage.controller().unregister(14)
    stage.settle()
    stage.capture("unregistered")


@scenario("elr-off", "metadata.version allows ELR, the feature is off.", raises=("KP018",), elr=0)
def elr_off(stage: Stage) -> None:
    three_brokers(stage)
    stage.topic("orders", [11, 12, 13], configs=MIN_ISR_2)
    stage.settle()
    stage.capture("off")


@scenario(
    "elr-switched-on",
    "A cluster of 3.9 is upgraded and ELR switched on.",
    near_miss_of=("KP018",),
    metadata_version=21,
)
def elr_switched_on(stage: Stage) -> None:
    three_brokers(stage)
    orders = stage.topic("orders", [11, 12, 13], configs=MIN_ISR_2)
    stage.settle()
    stage.capture("before")
    admin.set_feature(stage.controller(), METADATA_VERSION, 30)
    admin.set_feature(stage.controller(), ELR_FEATURE, 1)
    stage.stop_broker(11)
    stage.start_broker(11)
    stage.until_isr(orders, 11, 12, 13)
    stage.settle()
    stage.capture("after")


@scenario("isr-flapping", "A follower falls out of the ISR and back, again and again.", raises=("KB001", "KP012"))
def isr_flapping(stage: Stage) -> None:
    three_brokers(stage)
    orders = stage.topic("orders", [11, 12, 13], configs=MIN_ISR_2)
    for _ in range(40):
        stage.stop_broker(13)
        stage.start_broker(13)
        stage.until_isr(orders, 11, 12, 13)
    stage.settle()
    stage.capture("flapping")


@scenario(
    "healthy",
    "Three controllers, three brokers, nothing wrong.",
    near_miss_of=("KP001", "KP002", "KP005", "KP009", "KP010", "KQ001"),
)
def healthy(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.brokers(11, 12, 13, racks=("a", "b", "c"))
    orders = stage.topic("orders", [11, 12, 13], [12, 13, 11], [13, 11, 12], configs=MIN_ISR_2)
    stage.produce(orders)
    stage.settle()
    stage.capture("healthy")
