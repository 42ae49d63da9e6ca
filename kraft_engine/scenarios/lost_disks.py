"""Voters whose disk was wiped, formatted again or emptied, before anything is lost by it; and disks that look so.

Copies keep the times of files here, as tar does: they show that a disk was read after its node led or voted.
"""

from __future__ import annotations

from kraft_engine.consensus.leader import append
from kraft_engine.runs.scenario_stage import Stage
from kraft_engine.scenarios.quorum_troubles import write_alone
from kraft_engine.scenarios.scenario import scenario
from kraft_engine.world.disk_accidents import empty_segments, lose_last_segments

LATER_MS = 120_000


def committed_without(stage: Stage, *ids: int, static: bool = False, lagging: int = 1) -> tuple[int, list[int]]:
    """All controllers down, the leader's and some followers' logs ahead of `lagging` others; the leader comes first."""
    stage.recorder.keeps_times = True
    stage.controllers(*ids, static=static)
    leader = stage.leader().id
    others = [node_id for node_id in ids if node_id != leader]
    stage.settle()
    if lagging:
        stage.isolate(*others[:lagging])
    for _ in range(28):
        append(stage.leader(), (("NoOpRecord", 0, {}),), is_control=False)
        stage.run_ms(500)
    for node_id in (*others, leader):
        stage.cluster.crash(stage.slot(node_id), power_cut=False)
    stage.run_ms(LATER_MS)
    return leader, others


def wipe(stage: Stage, *node_ids: int) -> None:
    for node_id in node_ids:
        stage.wipe_disk(node_id)


@scenario(
    "wiped-voter-before-the-loss",
    "The leader's disk is wiped while all are down; with the one that is behind it can lead without commits.",
    raises=("KQ020", "KQ021"),
    near_miss_of=("KQ002", "KQ015", "KV008"),
    may_raise=("KV013", "KV014"),
)
def wiped_before_the_loss(stage: Stage) -> None:
    leader, _ = committed_without(stage, 1, 2, 3)
    wipe(stage, leader)
    stage.capture("all-down")


@scenario(
    "static-voter-formatted-again",
    "A static voter's disk is formatted again under a new directory id: it still is that voter, and empty.",
    raises=("KQ020", "KQ021", "KV011"),
    near_miss_of=("KV008",),
    may_raise=("KV013", "KV014"),
)
def static_voter_formatted_again(stage: Stage) -> None:
    leader, _ = committed_without(stage, 1, 2, 3, static=True)
    directory, now_ms = stage.world.chance.uuid(), stage.world.wall_ms()
    stage.disk_accident("formatted again", leader, change=lambda disk: disk.wipe(directory, now_ms))
    stage.capture("all-down")


@scenario(
    "voter-formatted-again",
    "A voter's disk is formatted again under a new directory id: the voter itself is gone, and cannot vote.",
    raises=("KV008",),
    near_miss_of=("KQ020", "KQ021"),
    may_raise=("KV013", "KV014"),
)
def voter_formatted_again(stage: Stage) -> None:
    leader, _ = committed_without(stage, 1, 2, 3, lagging=0)
    directory, now_ms = stage.world.chance.uuid(), stage.world.wall_ms()
    stage.disk_accident("formatted again", leader, change=lambda disk: disk.wipe(directory, now_ms))
    stage.capture("all-down")


@scenario(
    "three-of-five-wiped",
    "Three of five disks are wiped: started together they begin a new log, and the true one is two disks' only.",
    raises=("KQ020", "KQ021"),
    near_miss_of=("KQ002", "KB009"),
    may_raise=("KV013", "KV014"),
)
def three_of_five_wiped(stage: Stage) -> None:
    leader, others = committed_without(stage, 1, 2, 3, 4, 5, lagging=0)
    wipe(stage, leader, *others[:2])
    stage.capture("all-down")


@scenario(
    "controllers-emptied",
    "The controllers' disks are ephemeral and all of them are emptied at once; a broker's disk holds the whole log.",
    raises=("KQ020",),
    near_miss_of=("KQ002", "KB009", "KV012"),
    may_raise=("KQ021", "KV007", "KV013", "KV014", "KP010"),
)
def controllers_emptied(stage: Stage) -> None:
    stage.recorder.keeps_times = True
    stage.controllers(1, 2, 3)
    stage.brokers(11)
    stage.topic("orders", [11])
    stage.settle()
    for node_id in (1, 2, 3):
        stage.cluster.crash(stage.slot(node_id), power_cut=False)
    stage.run_ms(LATER_MS)
    wipe(stage, 1, 2, 3)
    stage.capture("brokers-persist")


@scenario(
    "emptied-segments",
    "A follower's segments were emptied; its leader-epoch-checkpoint still names the epochs that they held.",
    raises=("KQ020", "KQ021"),
    near_miss_of=("KV008",),
    may_raise=("KQ009", "KQ013", "KV013", "KV014"),
)
def emptied_segments(stage: Stage) -> None:
    stage.controllers(1, 2, 3, 4, 5)
    led = {stage.leader().id}
    for _ in range(2):
        stage.run_ms(11_000)
        old = stage.leader().id
        stage.crash(old)
        stage.until(lambda old=old: stage.leader().id != old, "another leader")  # type: ignore[misc]
        led.add(stage.leader().id)
        stage.start(old)
        stage.settle()
    victim = next(node.id for node in stage.cluster.nodes() if node.id not in led)
    stage.disk_accident("segments emptied", victim, change=empty_segments)
    stage.capture("emptied")


@scenario(
    "voter-only-behind",
    "A voter was cut off and everybody stopped: it ends early, and nothing shows that it ever held more.",
    near_miss_of=("KQ020", "KQ021", "KQ015"),
    may_raise=("KV013", "KV014"),
)
def only_behind(stage: Stage) -> None:
    committed_without(stage, 1, 2, 3)
    stage.capture("all-down")


@scenario(
    "first-start-one-by-one",
    "One disk is copied before the first start, the others after it: the copy is older than the vote that it gave.",
    near_miss_of=("KQ020", "KQ021", "KV008"),
    may_raise=("KV013", "KV014"),
)
def first_start(stage: Stage) -> None:
    stage.recorder.keeps_times = True
    processes = stage.cluster.format_initial_controllers((1, 2, 3))
    stage.capture("mixed", 3)
    for process in processes:
        stage.cluster.start(process)
    stage.settle()
    write_alone(stage, stage.leader().id, 30)
    stage.run_ms(LATER_MS)
    stage.capture("mixed", 1, 2)


@scenario(
    "last-segments-missing",
    "Every voter's log was copied without its last segments; leader-epoch-checkpoint names an epoch that they held.",
    raises=("KQ013",),
    near_miss_of=("KQ001", "KQ002", "KQ023"),
)
def last_segments_missing(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.brokers(11, 12)
    stage.topic("orders", [11, 12])
    stage.settle()
    end = min(node.log.end_offset for node in stage.cluster.nodes())
    leader = stage.leader()
    stage.stop_broker(12)
    stage.stop(leader.id)
    stage.until(lambda: stage.leader().id != leader.id, "another leader")
    stage.start(leader.id)
    stage.settle_controllers()
    stage.stop_broker(11)
    stage.settle_controllers()
    change = lambda disk: lose_last_segments(disk, end)  # noqa: E731
    stage.disk_accident("last segments missing", 1, 2, 3, change=change)
    stage.capture("older-logs", 1, 2, 3)
