"""Brokers, features and access: the findings about a cluster as a whole."""

from __future__ import annotations

from kraft_engine.brokers import controller_admin as admin
from kraft_engine.brokers.image import METADATA_VERSION
from kraft_engine.runs.scenario_stage import MIN_ISR_2, Stage
from kraft_engine.scenarios.scenario import scenario
from kraft_engine.world.world import DAY_US


@scenario(
    "broker-flapping",
    "A broker is fenced and unfenced all the time, and never gets as far as the ISR.",
    raises=("KB001",),
    near_miss_of=("KP012",),
)
def broker_flapping(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.brokers(11, 12, 13)
    stage.topic("orders", [11, 12, 13], configs=MIN_ISR_2)
    for _ in range(20):
        stage.kill_broker(13, power_cut=False)
        stage.start_broker(13)
    stage.settle()
    stage.capture("flapping")


@scenario(
    "old-metadata-version",
    "Brokers of 4.3 at metadata.version 3.3, and still after more than a year.",
    raises=("KB002", "KV011"),
    near_miss_of=("KQ019",),
    metadata_version=7,
)
def old_metadata_version(stage: Stage) -> None:
    stage.controllers(1, 2, 3, static=True)
    stage.controller()
    stage.settle()
    stage.world.leap(400 * DAY_US)
    stage.brokers(11, 12, 13)
    stage.topic("orders", [11, 12, 13], configs=MIN_ISR_2)
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


@scenario(
    "narrow-acl",
    "One user may read, and what everyone is allowed is denied to everyone: nothing is open.",
    near_miss_of=("KB004",),
)
def narrow_acl(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    controller = stage.controller()
    for allow in (True, False):
        controller.write([admin.acl_record(stage.world.chance.uuid(), "*", operation=2, allow=allow)])
    controller.write([admin.acl_record(stage.world.chance.uuid(), "alice", operation=3, host="10.0.0.1")])
    stage.settle()
    stage.capture("narrow")


@scenario(
    "upgrade-blocked-by-ghost",
    "Controller 3 is removed and gone; the others and the broker go on to 4.4, its registration stays at 4.3.",
    raises=("KB008", "KV007"),
)
def upgrade_blocked(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.run_ms(500)
    stage.crash(3)
    stage.remove_voter(3)
    controller = stage.controller()
    for node_id in (1, 2):
        name, version, fields = controller.controller_registration(node_id)
        features = [
            {**feature, "maxSupportedVersion": 33} if feature["name"] == METADATA_VERSION else feature
            for feature in fields["features"]
        ]
        restarted = {"incarnationId": stage.world.chance.uuid(), "features": features}
        controller.write([(name, version, {**fields, **restarted})])
    stage.settle_controllers()
    stage.capture("blocked", 1, 2)


@scenario(
    "log-dir-failed",
    "One of a broker's two log dirs fails, and it goes on with the other.",
    raises=("KB010",),
)
def log_dir_failed(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.brokers(11, 12, 13, log_dirs=2)
    broker = stage.machine.broker_by_id[12]
    broker.offline_dirs.append(broker.log_dirs[1])
    stage.run_ms(3_000)
    stage.settle()
    stage.capture("one-left")


@scenario(
    "log-dir-back",
    "All log dirs of a broker are online after a restart, as before it.",
    near_miss_of=("KB008", "KB010", "KB011"),
)
def log_dir_back(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.brokers(11, 12, 13, log_dirs=2)
    stage.stop_broker(12)
    stage.start_broker(12)
    stage.settle()
    stage.capture("both-again")


@scenario(
    "no-broker-ever",
    "The only controller is started five times; no broker ever finds it.",
    raises=("KB011", "KV007"),
    near_miss_of=("KB007", "KQ016"),
)
def no_broker_ever(stage: Stage) -> None:
    stage.controllers(1)
    for _ in range(4):
        stage.settle()
        stage.stop(1)
        stage.run_ms(30_000)
        stage.start(1)
    stage.settle()
    stage.capture("alone")


@scenario(
    "every-record-type",
    "Quotas, SCRAM, tokens, ACLs, producer ids, configs, directories: nearly every record type once.",
    raises=("KB010",),
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
