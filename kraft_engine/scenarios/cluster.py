"""Brokers, features and access: the findings about a cluster as a whole."""

from __future__ import annotations

from kraft_engine import controller_admin as admin
from kraft_engine.image import MIN_ISR
from kraft_engine.scenarios.model import scenario
from kraft_engine.stage import Stage
from kraft_engine.world import MS

DAY_US = 24 * 3_600_000 * MS


@scenario(
    "broker-flapping",
    "A broker is fenced and unfenced all the time, and never gets as far as the ISR.",
    raises=("KB001",),
    near_miss_of=("KP012",),
)
def broker_flapping(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.brokers(11, 12, 13)
    stage.topic("orders", [11, 12, 13], configs={MIN_ISR: "2"})
    for _ in range(20):
        stage.kill_broker(13, power_cut=False)
        stage.start_broker(13)
    stage.settle()
    stage.capture("flapping")


@scenario(
    "old-metadata-version",
    "Brokers of 4.3 at metadata.version 3.3, and still after more than a year.",
    raises=("KB002", "KQ019", "KV011"),
    metadata_version=7,
)
def old_metadata_version(stage: Stage) -> None:
    stage.controllers(1, 2, 3, static=True)
    stage.controller()
    stage.settle()
    stage.world.leap(400 * DAY_US)
    stage.brokers(11, 12, 13)
    stage.topic("orders", [11, 12, 13], configs={MIN_ISR: "2"})
    stage.stop_broker(13)
    stage.start_broker(13)
    stage.settle()
    stage.capture("old")


@scenario(
    "release-with-advisory",
    "Nodes of 4.1.0, which takes any OAUTHBEARER token for a login.",
    raises=("KB006",),
    release="4.1.0",
    metadata_version=27,
)
def release_with_advisory(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.brokers(11, 12, 13)
    stage.settle()
    stage.capture("4.1.0")


@scenario("open-acl", "Everyone may do everything.", raises=("KB004",))
def open_acl(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    controller = stage.controller()
    controller.write([admin.acl_record(stage.world.chance.uuid(), "*", operation=2)])
    stage.settle()
    stage.capture("open")


@scenario("narrow-acl", "One user may read: nothing is open.", near_miss_of=("KB004",))
def narrow_acl(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    controller = stage.controller()
    controller.write([admin.acl_record(stage.world.chance.uuid(), "alice", operation=3, host="10.0.0.1")])
    stage.settle()
    stage.capture("narrow")


@scenario(
    "every-record-type",
    "Quotas, SCRAM, tokens, ACLs, producer ids, configs, directories: nearly every record type once.",
    may_raise=("KQ009",),
)
def every_record_type(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.brokers(11, 12, 13, log_dirs=2)
    orders = stage.topic("orders", [11, 12, 13], configs={"retention.ms": "86400000"})
    controller = stage.controller()
    for _ in range(60):
        admin.security_change(controller)
        stage.run_ms(20)
    admin.allocate_producer_ids(controller, 11)
    admin.broker_config(controller, "11", "log.cleaner.threads", "2")
    directory = controller.image.brokers[11]["logDirs"][0]
    admin.assign_directory(controller, 11, orders, 0, directory)
    broker = stage.machine.broker_by_id[12]
    broker.offline_dirs.append(broker.log_dirs[1])
    stage.run_ms(3_000)
    admin.delete_topic(stage.controller(), orders)
    stage.kill_broker(13, power_cut=False)
    stage.controller().unregister(13)
    stage.run_ms(500)
    stage.capture("all")
