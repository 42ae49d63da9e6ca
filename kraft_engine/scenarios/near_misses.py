"""Clusters and logs that look like trouble and are not: what the findings about them must leave alone."""

from __future__ import annotations

from kraft_engine.brokers import controller_admin as admin
from kraft_engine.brokers.broker_messages import SSL, Listener
from kraft_engine.brokers.image import BROKER, ELR_FEATURE, MIN_ISR
from kraft_engine.brokers.image_records import config
from kraft_engine.consensus.leader import append
from kraft_engine.runs.scenario_stage import MIN_ISR_2, Stage
from kraft_engine.runs.schedule import make_snapshot
from kraft_engine.scenarios.quorum_troubles import write_alone
from kraft_engine.scenarios.scenario import scenario
from kraft_engine.world.encoding import LATER_RECORD
from kraft_engine.world.world import DAY_US


@scenario(
    "rolling-restart",
    "Every broker is stopped and started once, one after the other, each in good order.",
    near_miss_of=("KB001", "KP001", "KP002", "KP006", "KP008", "KP012", "KP016", "KP019"),
)
def rolling_restart(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.brokers(11, 12, 13)
    orders = stage.topic("orders", [11, 12, 13], [12, 13, 11], [13, 11, 12], configs=MIN_ISR_2)
    for broker_id in (11, 12, 13):
        stage.stop_broker(broker_id)
        stage.start_broker(broker_id)
        stage.until_isr(orders, 11, 12, 13)
        stage.until_isr(orders, 11, 12, 13, index=1)
        stage.until_isr(orders, 11, 12, 13, index=2)
    stage.settle()
    stage.capture("restarted")


@scenario(
    "previous-metadata-version",
    "metadata.version is one release behind, since a month ago.",
    near_miss_of=("KB002", "KB006"),
    metadata_version=29,
)
def previous_metadata_version(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.world.leap(30 * DAY_US)
    stage.brokers(11, 12, 13)
    stage.settle()
    make_snapshot(stage.leader())
    stage.capture("one-behind")


@scenario(
    "plaintext-listeners",
    "Controllers and brokers listen without TLS.",
    raises=("KB003",),
)
def plaintext_listeners(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.brokers(11, 12, 13)
    stage.settle()
    stage.capture("plaintext")


@scenario(
    "tls-listeners",
    "The same cluster, every listener with TLS.",
    near_miss_of=("KB003",),
)
def tls_listeners(stage: Stage) -> None:
    stage.bootstrap.controller_listener = Listener("CONTROLLER", 9093, security_protocol=3)
    stage.controllers(1, 2, 3)
    stage.brokers(11, 12, 13, listener=SSL)
    stage.settle()
    stage.capture("tls")


@scenario(
    "node-min-isr-removed",
    "A node-level min.insync.replicas is taken back when ELR is switched on, and the cluster has its own value.",
    near_miss_of=("KB005",),
    elr=0,
)
def node_min_isr_removed(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.brokers(11, 12, 13)
    stage.controller().write([config(BROKER, "11", MIN_ISR, "2")])
    admin.set_feature(stage.controller(), ELR_FEATURE, 1)
    stage.settle()
    stage.capture("tight")


@scenario(
    "two-of-three-in-one-rack",
    "Two of three in-sync replicas share a rack, the third stands elsewhere; min ISR is 2 of 3.",
    near_miss_of=("KP009", "KP010"),
)
def two_of_three(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.brokers(11, 12, 13, racks=("a", "a", "b"))
    stage.topic("orders", [11, 12, 13], configs=MIN_ISR_2)
    stage.settle()
    stage.capture("racks")


@scenario(
    "unclean-election-forbidden",
    "unclean.leader.election.enable is written out as false.",
    near_miss_of=("KP011",),
)
def unclean_forbidden(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.brokers(11, 12, 13)
    stage.topic("orders", [11, 12, 13], configs=MIN_ISR_2)
    stage.controller().topic_config("orders", "unclean.leader.election.enable", "false")
    stage.settle()
    stage.capture("forbidden")


@scenario(
    "topic-created-again",
    "A topic is deleted while a replica is away and created again under its name: the old id is never heard of again.",
    near_miss_of=("KP013",),
)
def topic_created_again(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.brokers(11, 12, 13)
    orders = stage.topic("orders", [11, 12, 13], configs=MIN_ISR_2)
    stage.stop_broker(13)
    admin.delete_topic(stage.controller(), orders)
    again = stage.topic("orders", [11, 12], configs={MIN_ISR: "1"})
    stage.start_broker(13)
    stage.until_isr(again, 11, 12)
    stage.settle()
    stage.capture("again")


@scenario(
    "old-cluster-without-elr",
    "metadata.version is too old for ELR: that it is off is no fault.",
    near_miss_of=("KP018",),
    metadata_version=21,
)
def old_cluster(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.brokers(11, 12, 13)
    stage.topic("orders", [11, 12, 13], configs=MIN_ISR_2)
    stage.settle()
    stage.capture("3.9")


@scenario(
    "killed-between-writes",
    "A controller is killed with everything it wrote synced: its log ends with a whole batch.",
    near_miss_of=("KQ008", "KQ009"),
)
def killed_between_writes(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.settle()
    stage.run_ms(200)
    stage.crash(stage.leader().id)
    stage.capture("killed")


@scenario(
    "record-of-a-later-release",
    "The log holds a record type that this release of the codec does not know.",
    raises=("KQ018",),
)
def later_record(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    # Frame 1, api key 60, version 0, no fields, no tagged fields.
    append(stage.leader(), ((LATER_RECORD, 0, {"octets": bytes((1, 60, 0, 0))}),), is_control=False)
    stage.settle()
    stage.capture("later")


@scenario(
    "newest-known-record",
    "The log holds the newest record type there is: a controller unregistered, as 4.4 can.",
    near_miss_of=("KP013", "KQ018"),
)
def newest_known_record(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.spare_controller(4)
    controller = stage.controller()
    if 4 not in controller.image.controllers:
        controller.write([controller.controller_registration(4)])
    controller.write([("UnregisterControllerRecord", 0, {"controllerId": 4})])
    stage.settle()
    stage.capture("unregistered")


@scenario(
    "snapshot-of-today",
    "Three quiet days, and then a snapshot: the log behind it is short and young.",
    near_miss_of=("KQ019",),
)
def snapshot_of_today(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.settle()
    make_snapshot(stage.leader())
    stage.world.leap(3 * DAY_US)
    write_alone(stage, stage.leader().id, 20)
    stage.settle()
    make_snapshot(stage.leader())
    write_alone(stage, stage.leader().id, 5)
    stage.settle()
    stage.capture("fresh")


@scenario(
    "voter-a-little-behind",
    "A voter is cut off for a moment: a few hundred records behind, as a slow disk would be.",
    near_miss_of=("KV013", "KV014"),
)
def a_little_behind(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    leader = stage.leader()
    stage.isolate(next(node.id for node in stage.cluster.nodes() if node.id != leader.id))
    for _ in range(600):
        stage.controller().write([("NoOpRecord", 0, {})])
        stage.run_ms(1)
    stage.capture("behind")


@scenario(
    "removed-controller-still-runs",
    "A removed controller goes on as an observer: still registered, and still there.",
    raises=("KV007",),
    near_miss_of=("KQ006", "KV010", "KV015", "KB008"),
)
def still_runs(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    leader = stage.leader()
    stage.remove_voter(next(node.id for node in stage.cluster.nodes() if node.id != leader.id))
    stage.settle()
    stage.capture("two-voters")


@scenario(
    "endpoint-moved-and-registered",
    "A controller moved, and so did its registration.",
    near_miss_of=("KV009",),
)
def moved_and_registered(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.settle()
    follower = next(node for node in stage.cluster.nodes() if node.leader is None)
    stage.stop(follower.id)
    stage.cluster.processes[follower.slot].endpoint = ("controller-moved", 9093)
    stage.start(follower.id)
    voters_before = stage.leader().history.last_offset
    stage.until(lambda: stage.leader().history.last_offset != voters_before, "the voter set following")
    controller = stage.controller()
    name, version, fields = controller.controller_registration(follower.id)
    endpoints = [{**endpoint, "host": "controller-moved"} for endpoint in fields["endPoints"]]
    controller.write([(name, version, {**fields, "endPoints": endpoints})])
    stage.settle()
    stage.capture("moved")
