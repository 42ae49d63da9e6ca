"""Logs and voters that look like trouble and are not: what the findings about them must leave alone."""

from __future__ import annotations

from kraft_engine.consensus.leader import append
from kraft_engine.runs.scenario_stage import Stage
from kraft_engine.runs.schedule import make_snapshot
from kraft_engine.scenarios.quorum_troubles import write_alone
from kraft_engine.scenarios.scenario import scenario
from kraft_engine.world.encoding import LATER_RECORD
from kraft_engine.world.world import MS

DAY_US = 24 * 3_600_000 * MS


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
