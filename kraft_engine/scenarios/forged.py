"""Logs that no healthy cluster writes: edited, mixed up, restored from the wrong place. Every one is beyond the
model.
"""

from __future__ import annotations

from kraft_engine.brokers import controller_admin as admin
from kraft_engine.brokers.image import BROKER, ELR_FEATURE, METADATA_VERSION, MIN_ISR
from kraft_engine.brokers.image_records import config, feature
from kraft_engine.consensus.leader import append
from kraft_engine.consensus.log_batches import Batch
from kraft_engine.consensus.raft import RaftNode
from kraft_engine.consensus.replica_log import Snapshot
from kraft_engine.invariants.switches import ALL_ON
from kraft_engine.runs.scenario_stage import MIN_ISR_2, Stage
from kraft_engine.runs.schedule import make_snapshot
from kraft_engine.scenarios.scenario import scenario
from kraft_engine.world.disk_accidents import cut_front
from kraft_engine.world.world import MS

EPOCH_AT = 12
"""Where a batch has its partitionLeaderEpoch (DefaultRecordBatch, Kafka 4.3)."""


def stopped_follower(stage: Stage) -> RaftNode:
    """A settled cluster with some records, and a follower of it that has just been stopped."""
    stage.controllers(1, 2, 3)
    for _ in range(10):
        append(stage.leader(), (("NoOpRecord", 0, {}),), is_control=False)
        stage.run_ms(10)
    stage.settle()
    follower = next(node for node in stage.cluster.nodes() if node.leader is None)
    stage.stop(follower.id)
    return follower


@scenario(
    "epoch-went-back",
    "A follower's log holds a batch of an epoch below the one before it.",
    raises=("KQ001", "KQ004", "KQ005"),
)
def epoch_went_back(stage: Stage) -> None:
    follower = stopped_follower(stage)
    stage.invariants.damage("a forged batch of an old epoch", node=follower.id)
    log = follower.disk.log
    last = log.batches[-1]
    log.append(Batch(log.end_offset, last.epoch - 1, last.timestamp_ms, False, (("NoOpRecord", 0, {}),), last))
    stage.capture("forged")


@scenario("altered-batch", "A follower's disk holds other bytes at an offset, with a valid CRC.", raises=("KQ022",))
def altered_batch(stage: Stage) -> None:
    follower = stopped_follower(stage)
    stage.invariants.damage("a batch with other bytes and a renewed CRC", node=follower.id)
    batches = follower.disk.log.batches
    true = batches[-3]
    batches[-3] = Batch(
        true.base_offset, true.epoch, true.timestamp_ms + 1, true.is_control, true.records, true.previous
    )
    stage.capture("altered")


@scenario("offset-gap", "A batch is missing from the middle of a follower's log.", raises=("KQ007",))
def offset_gap(stage: Stage) -> None:
    follower = stopped_follower(stage)
    stage.invariants.damage("a batch cut out of the log", node=follower.id)
    log = follower.disk.log
    del log.batches[-3], log.bases[-3]
    stage.capture("gap")


@scenario(
    "cut-at-the-front",
    "A follower's first segment was deleted by hand: its log begins later, and no snapshot reaches its start.",
    raises=("KQ007",),
)
def cut_at_the_front(stage: Stage) -> None:
    follower = stopped_follower(stage)
    stage.disk_accident("cut at the front", follower.id, change=lambda disk: cut_front(disk, disk.log.end_offset // 2))
    stage.capture("cut")


@scenario(
    "copies-of-different-moments",
    "Two voters are copied, then more is committed, then the leader is copied: together they seem to contradict.",
    near_miss_of=("KQ002", "KQ007", "KQ015"),
)
def copies_of_different_moments(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.settle()
    leader = stage.leader()
    stage.capture("copied", *(node_id for node_id in (1, 2, 3) if node_id != leader.id))
    for _ in range(10):
        append(leader, (("NoOpRecord", 0, {}),), is_control=False)
        stage.run_ms(10)
    stage.settle()
    stage.crash(leader.id)
    stage.until(lambda: stage.leader().id != leader.id, "another leader")
    stage.start(leader.id)
    stage.settle()
    stage.capture("copied", leader.id)


@scenario("foreign-replica", "One of the dirs belongs to another cluster.", raises=("KQ010", "KV007"))
def foreign_replica(stage: Stage) -> None:
    stage.controllers(1, 2)
    stage.settle()
    stage.invariants.damage("a dir of another cluster")
    foreign = Stage(stage.world.seed + 1_000_003, stage.recorder.out)
    foreign.controllers(3)
    foreign.capture("mixed")
    stage.capture("mixed")


@scenario(
    "node-id-changed",
    "The disk of a stopped controller got another node id in meta.properties, as where a node was renumbered.",
    raises=("KV018",),
)
def node_id_changed(stage: Stage) -> None:
    follower = stopped_follower(stage)
    stage.invariants.damage("another node id in meta.properties", node=follower.id)
    meta = stage.capture("renumbered") / f"node-{follower.id}" / "meta.properties"
    meta.write_text(meta.read_text().replace(f"node.id={follower.id}", "node.id=4"))


@scenario(
    "epoch-bit",
    "A bit flips in the epoch of a stopped controller's last batch, which no CRC covers: it contradicts itself.",
    raises=("KQ013",),
    near_miss_of=("KQ001", "KQ003", "KQ022", "KQ023"),
)
def epoch_bit(stage: Stage) -> None:
    follower = stopped_follower(stage)
    stage.invariants.damage("a bit of the last batch's epoch", node=follower.id)
    path = stage.capture("flipped") / f"node-{follower.id}" / "__cluster_metadata-0" / "00000000000000000000.log"
    content, last, after = bytearray(path.read_bytes()), 0, 0
    while after < len(content):
        last, after = after, after + 12 + int.from_bytes(content[after + 8 : after + 12], "big")
    content[last + EPOCH_AT + 3] ^= 2
    path.write_bytes(content)


@scenario("bad-snapshot", "A snapshot does not hold what the log below it says.", raises=("KP010", "KQ011"))
def bad_snapshot(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.brokers(11, 12, 13)
    stage.topic("orders", [11, 12, 13])
    stage.settle()
    stage.invariants.damage("a snapshot with another state")
    leader = stage.leader()
    snapshot = make_snapshot(leader)
    if snapshot is None:
        raise AssertionError("there is something to snapshot")
    snapshot.image.replay("ConfigRecord", config(2, "orders", MIN_ISR, "3")[2])
    stage.capture("bad")


@scenario("good-snapshot", "The same snapshot, unedited.", raises=("KP010",), near_miss_of=("KQ011", "KQ012"))
def good_snapshot(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.brokers(11, 12, 13)
    stage.topic("orders", [11, 12, 13])
    stage.settle()
    make_snapshot(stage.leader())
    stage.capture("good")


@scenario(
    "renamed-snapshot",
    "A controller's snapshot got a name with a later offset: its own log and all others end long before that.",
    raises=("KQ013",),
    may_raise=("KP010",),
)
def renamed_snapshot(stage: Stage) -> None:
    snapshot = snapshots_of_all(stage)[0]
    stage.invariants.damage("a snapshot with another name", node=1)
    offset, epoch = snapshot.id
    folder = stage.capture("renamed") / "node-1" / "__cluster_metadata-0"
    name = folder / f"{offset:020}-{epoch:010}.checkpoint"
    name.rename(folder / f"{1_000_000:020}-{epoch:010}.checkpoint")


@scenario(
    "altered-snapshot",
    "One node's snapshot says something else than the others' of the same offset, with right checksums.",
    raises=("KP010", "KQ011"),
)
def altered_snapshot(stage: Stage) -> None:
    altered = snapshots_of_all(stage)[1]
    stage.invariants.damage("a snapshot with another state")
    altered.image.replay("ConfigRecord", config(2, "orders", MIN_ISR, "3")[2])
    stage.capture("altered")


@scenario(
    "config-left-in-snapshot",
    "A topic came and went, and one node's snapshot kept its config: Kafka's ConfigurationsDelta bug.",
    raises=("KQ011",),
    may_raise=("KP010",),
)
def config_left_in_snapshot(stage: Stage) -> None:
    altered = snapshots_of_all(stage, passing="passing")[1]
    stage.invariants.damage("a snapshot with another state")
    altered.image.replay("ConfigRecord", config(2, "passing", MIN_ISR, "1")[2])
    stage.capture("left")


@scenario(
    "equal-snapshots",
    "Three nodes wrote the same snapshot, each at its own time; a topic with a config came and went before.",
    near_miss_of=("KQ011",),
    may_raise=("KP010",),
)
def equal_snapshots(stage: Stage) -> None:
    snapshots_of_all(stage, passing="passing")
    stage.capture("equal")


def snapshots_of_all(stage: Stage, *, passing: str | None = None) -> list[Snapshot]:
    """Each controller's snapshot at the same offset, by ascending id; `passing` is a topic that was deleted."""
    stage.controllers(1, 2, 3)
    stage.brokers(11, 12, 13)
    stage.topic("orders", [11, 12, 13])
    if passing is not None:
        admin.delete_topic(stage.controller(), stage.topic(passing, [11, 12, 13], configs={MIN_ISR: "1"}))
    stage.settle()
    stage.until(lambda: len({node.high_watermark for node in stage.cluster.nodes()}) == 1, "one high watermark")
    snapshots = [snapshot for node_id in (1, 2, 3) if (snapshot := make_snapshot(stage.node(node_id))) is not None]
    if len({snapshot.id for snapshot in snapshots}) != 1 or len(snapshots) != 3:
        raise AssertionError("three nodes that hold the same have the same to snapshot")
    return snapshots


@scenario("stale-snapshot", "The newest snapshot is a day old while the log has grown.", raises=("KQ019",))
def stale_snapshot(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.settle()
    make_snapshot(stage.leader())
    for _ in range(26 * 60):
        stage.world.leap(59_000 * MS)
        append(stage.leader(), (("NoOpRecord", 0, {}),), is_control=False)
        stage.run_ms(50)
    stage.settle()
    stage.capture("stale")


@scenario(
    "metadata-version-missing",
    "The record that sets metadata.version stands in no log.",
    raises=("KB007", "KV011"),
    metadata_version=7,
)
def metadata_version_missing(stage: Stage) -> None:
    stage.controllers(1, 2, 3, static=True)
    stage.brokers(11, 12, 13)
    stage.settle()
    stage.invariants.damage("the record that sets metadata.version is taken out of every log")
    level = feature(METADATA_VERSION, 7)
    for process in stage.cluster.processes:
        batches = process.disk.log.batches
        for place, true in enumerate(batches):
            if level in true.records:
                records = tuple(("NoOpRecord", 0, {}) if record == level else record for record in true.records)
                batches[place] = Batch(true.base_offset, true.epoch, true.timestamp_ms, False, records, true.previous)
    stage.capture("unversioned")


@scenario(
    "epoch-without-leader-change",
    "A leader writes a record before its LeaderChange, as 3.5.2 once did.",
    raises=("KQ005", "KV011"),
    switches=ALL_ON.without("leader_change_is_first"),
)
def late_leader_change(stage: Stage) -> None:
    stage.cluster.format_static((1, 2, 3))
    stage.invariants.damage("data before the LeaderChange")
    for process in stage.cluster.processes:
        stage.cluster.start(process)
    stage.leader()
    stage.settle()
    stage.capture("late")


@scenario("replay-mismatch", "A change names a topic that was never created.", raises=("KP013",))
def replay_mismatch(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.settle()
    stage.invariants.damage("a change of a topic that is not there")
    fields = {"partitionId": 0, "topicId": stage.world.chance.uuid(), "isr": [11]}
    append(stage.leader(), (("PartitionChangeRecord", 2, fields),), is_control=False)
    stage.run_ms(500)
    stage.capture("mismatch")


@scenario(
    "isr-on-dead-broker",
    "A controller fences a broker and forgets to take it out of the ISR.",
    raises=("KP016",),
    may_raise=("KQ009",),
    switches=ALL_ON.without("fenced_broker_leaves_isr"),
)
def isr_on_dead_broker(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.brokers(11, 12, 13)
    stage.topic("orders", [11, 12, 13], configs=MIN_ISR_2)
    stage.invariants.damage("fenced brokers stay in the ISR")
    stage.kill_broker(11, power_cut=False)
    stage.run_ms(500)
    stage.capture("fenced-leader")


@scenario(
    "isr-leavers-forgotten",
    "A controller takes brokers out of the ISR below min ISR and does not put them into the ELR.",
    raises=("KP001", "KP005", "KP006", "KP019"),
    may_raise=("KQ009",),
    switches=ALL_ON.without("isr_leavers_join_elr"),
)
def isr_leavers_forgotten(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.brokers(11, 12, 13)
    stage.topic("orders", [11, 12, 13], configs=MIN_ISR_2)
    stage.invariants.damage("who leaves the ISR does not join the ELR")
    stage.stop_broker(11)
    stage.stop_broker(12)
    stage.run_ms(500)
    stage.capture("forgotten")


@scenario(
    "loose-min-isr-scope",
    "A node-level min.insync.replicas was left behind while ELR is on, and the cluster has no value of its own.",
    raises=("KB005",),
    near_miss_of=("KP018",),
    elr=0,
)
def loose_min_isr(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.brokers(11, 12, 13)
    controller = stage.controller()
    controller.write([config(BROKER, "11", MIN_ISR, "2")])
    stage.invariants.damage("ELR switched on without its configs")
    controller.write([feature(ELR_FEATURE, 1)])
    stage.settle()
    stage.capture("loose")


@scenario("endpoint-drift", "A controller moved: the voter set follows, its registration does not.", raises=("KV009",))
def endpoint_drift(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.settle()
    follower = next(node for node in stage.cluster.nodes() if node.leader is None)
    stage.stop(follower.id)
    stage.cluster.processes[follower.slot].endpoint = ("127.0.0.1", 9093)
    stage.start(follower.id)
    voters_before = stage.leader().history.last_offset
    stage.until(lambda: stage.leader().history.last_offset != voters_before, "the voter set following")
    stage.settle()
    stage.capture("moved")
