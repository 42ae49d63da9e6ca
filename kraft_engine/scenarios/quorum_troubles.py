"""Elections and logs: leaders cut off, elections without a winner, torn tails, and disks that lose what they synced."""

from __future__ import annotations

from kraft_engine.consensus.leader import append
from kraft_engine.runs.scenario_stage import Stage
from kraft_engine.runs.schedule import clean, make_snapshot
from kraft_engine.scenarios.scenario import scenario
from kraft_engine.world.disks import Damage


def write_alone(stage: Stage, node_id: int, count: int) -> None:
    """A leader that is cut off goes on appending."""
    for _ in range(count):
        node = stage.node(node_id)
        if node.leader is not None and node.leader.writable:
            append(node, (("NoOpRecord", 0, {}),), is_control=False)
        stage.run_ms(20)


@scenario(
    "zombie-leader",
    "A leader is cut off and appends alone until it notices that its quorum is gone; the others have elected another.",
    raises=("KQ001",),
    near_miss_of=("KQ004", "KQ016", "KV014"),
)
def zombie_leader(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.settle()
    old = stage.leader()
    stage.isolate(old.id)
    write_alone(stage, old.id, 20)
    stage.until(lambda: stage.leader().id != old.id, "another leader")
    stage.capture("two-leaders-two-epochs")
    stage.run_ms(5_000)
    stage.heal()
    stage.settle()
    stage.capture("healed")


@scenario(
    "divergent-suffix",
    "The leader dies with records that no follower fetched; its disk still has them when the others have gone on.",
    raises=("KQ001",),
    near_miss_of=("KQ002", "KQ003", "KQ009", "KQ015", "KQ020", "KQ022"),
)
def divergent_suffix(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.settle()
    old = stage.leader()
    stage.isolate(old.id)
    write_alone(stage, old.id, 12)
    stage.crash(old.id)
    stage.heal()
    stage.until(lambda: stage.leader().id != old.id, "another leader")
    stage.run_ms(2_000)
    stage.capture("suffix-on-disk")
    stage.start(old.id)
    stage.settle()
    stage.capture("truncated")


@scenario(
    "figure-8",
    "A record of an old epoch reaches a majority under a later leader, and is still not committed by that alone.",
    raises=("KQ001",),
    near_miss_of=("KQ002",),
)
def figure_8(stage: Stage) -> None:
    stage.controllers(1, 2, 3, 4, 5)
    stage.settle()
    first = stage.leader()
    near = next(node.id for node in stage.cluster.nodes() if node.id != first.id)
    stage.isolate(first.id, near)
    write_alone(stage, first.id, 5)
    stage.crash(first.id)
    stage.crash(near)
    stage.until(lambda: stage.leader().epoch > 1, "a second leader")
    second = stage.leader()
    stage.isolate(second.id)
    write_alone(stage, second.id, 5)
    stage.crash(second.id)
    stage.heal()
    stage.start(first.id)
    stage.start(near)
    stage.until(lambda: stage.leader().epoch > second.epoch, "a third leader")
    stage.run_ms(300)
    stage.capture("third-leader")
    stage.start(second.id)
    stage.settle()
    stage.capture("agreed")


@scenario(
    "gridlocked-election",
    "Every vote request is lost for a while: epoch after epoch has no leader.",
    raises=("KQ016",),
    near_miss_of=("KQ005", "KQ014", "KQ023"),
)
def gridlocked(stage: Stage) -> None:
    stage.settings.pre_vote = False
    stage.controllers(1, 2, 3)
    stage.settle()
    leader = stage.leader()
    stage.crash(leader.id)
    others = [node.id for node in stage.cluster.nodes()]
    stage.isolate(others[0])
    stage.run_ms(120_000)
    stage.capture("nobody-leads")
    stage.heal()
    stage.start(leader.id)
    stage.settle()
    stage.capture("elected")


@scenario("torn-tail", "A controller loses power in the middle of a write.", raises=("KQ009",), near_miss_of=("KQ008",))
def torn_tail(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.settle()
    leader = stage.leader()
    process = stage.cluster.processes[leader.slot]
    for _ in range(60):
        process.disk.dies_before_sync = True
        append(stage.leader(), tuple(("NoOpRecord", 0, {}) for _ in range(20)), is_control=False)
        if process.disk.torn_octets > 61:
            break
        stage.start(leader.id)
        stage.until(lambda: stage.cluster.ready_leader() is not None, "a leader")
        leader = stage.leader()
        process = stage.cluster.processes[leader.slot]
    stage.capture("torn")
    stage.start(leader.id)
    stage.settle()
    stage.capture("recovered")


@scenario(
    "bit-rot",
    "A bit flips in the middle of a controller's log: Kafka would cut the log there at its next start.",
    raises=("KQ008",),
)
def bit_rot(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.settle()
    follower = next(node for node in stage.cluster.nodes() if node.leader is None)
    stage.invariants.damage("bit rot", node=follower.id)
    follower.disk.damage = Damage("bit rot", follower.log.batches[-2].base_offset)
    stage.run_ms(500)
    stage.capture("rotten")


@scenario(
    "wiped-voter",
    "A voter's log is wiped under its old directory id; with a lagging one it elects a history that lacks commits.",
    raises=("KQ002", "KQ015", "KQ020"),
)
def wiped_voter(stage: Stage) -> None:
    elect_without_commits(stage, 4)


@scenario(
    "wiped-voter-outgrown",
    "The same, found late: the new history is longer than the lost one, and no log ends before what was committed.",
    raises=("KQ002", "KQ020"),
)
def wiped_voter_outgrown(stage: Stage) -> None:
    elect_without_commits(stage, 40)


def elect_without_commits(stage: Stage, written_after: int) -> None:
    """A majority that lacks the newest commits elects a leader of its own, which appends from there."""
    stage.controllers(1, 2, 3)
    leader = stage.leader()
    lagging, holder = (node.id for node in stage.cluster.nodes() if node.id != leader.id)
    stage.settle()
    stage.isolate(lagging)
    write_alone(stage, leader.id, 30)
    stage.run_ms(500)
    stage.capture("committed-on-two")
    stage.wipe_disk(holder)
    stage.crash(leader.id)
    stage.heal()
    stage.start(holder)
    stage.until(lambda: stage.cluster.ready_leader() is not None, "a leader without the records")
    write_alone(stage, stage.leader().id, written_after)
    stage.capture("history-without-them")


@scenario(
    "open-transaction",
    "The log ends inside a metadata transaction: its records have not taken effect.",
    raises=("KQ017",),
)
def open_transaction(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    controller = stage.controller()
    controller.write([("BeginTransactionRecord", 0, {"name": "half"}), ("NoOpRecord", 0, {})])
    stage.settle()
    stage.capture("open")


@scenario(
    "aborted-transaction",
    "A new controller aborts the transaction that the old one left open.",
    near_miss_of=("KQ017",),
)
def aborted_transaction(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    controller = stage.controller()
    topic_id = stage.world.chance.uuid()
    controller.write(
        [
            ("BeginTransactionRecord", 0, {"name": "half"}),
            ("TopicRecord", 0, {"name": "never", "topicId": topic_id}),
        ]
    )
    stage.settle()
    leader = stage.leader()
    stage.crash(leader.id)
    stage.until(lambda: stage.leader().id != leader.id, "another leader")
    stage.start(leader.id)
    stage.settle()
    stage.capture("aborted")


@scenario(
    "snapshots-and-cleaning",
    "Snapshots are made and the log is cleaned; a node that was away starts from a snapshot.",
    raises=("KP010",),
    near_miss_of=("KQ007", "KQ011", "KQ012", "KQ013"),
    segment_limit_bytes=4_000,
)
def snapshots(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.brokers(11, 12, 13)
    stage.topic("orders", [11, 12, 13], [12, 13, 11])
    leader = stage.leader()
    away = next(node.id for node in stage.cluster.nodes() if node.id != leader.id and node.id < 10)
    stage.crash(away)
    for _ in range(4):
        write_alone(stage, stage.leader().id, 30)
        for node in stage.cluster.nodes():
            make_snapshot(node)
            clean(node)
    stage.start(away)
    stage.settle()
    stage.capture("cleaned")


@scenario(
    "snapshot-above-commit",
    "A controller with a bug snapshots what is not committed.",
    raises=("KQ002", "KQ012", "KQ015"),
)
def snapshot_above_commit(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.settle()
    leader = stage.leader()
    stage.isolate(leader.id)
    write_alone(stage, leader.id, 5)
    stage.invariants.damage("a snapshot above the high watermark", node=leader.id)
    leader.switches = leader.switches.without("snapshot_below_high_watermark")
    make_snapshot(leader)
    stage.capture("too-high")
    stage.run_ms(200)
    stage.capture("still-not-committed")


@scenario(
    "epoch-checkpoint-mismatch",
    "leader-epoch-checkpoint says something else than the log.",
    raises=("KQ013",),
)
def epoch_checkpoint_mismatch(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.settle()
    follower = next(node for node in stage.cluster.nodes() if node.leader is None)
    stage.crash(follower.id)
    stage.invariants.damage("an edited leader-epoch-checkpoint", node=follower.id)
    epoch, start = follower.disk.log.epoch_starts[-1]
    follower.disk.log.epoch_starts[-1] = (epoch, start + 3)
    stage.capture("mismatch")


@scenario(
    "voter-alone",
    "Two of three controllers die; the third stands for election again and again, and no voter is left to vote for it.",
    raises=("KQ026",),
    near_miss_of=("KQ002", "KQ023", "KQ024", "KQ025"),
    may_raise=("KQ009", "KQ016", "KV013", "KV014"),
)
def voter_alone(stage: Stage) -> None:
    _two_die(stage, 1, 2, 3)


@scenario(
    "cut-off-voter",
    "A voter without pre-vote (3.9) is cut off: it raises its epoch again and again, and the others work on.",
    raises=("KQ026",),
    near_miss_of=("KQ002", "KQ003", "KQ023", "KQ024", "KQ025"),
    may_raise=("KQ016", "KV013", "KV014"),
)
def cut_off_voter(stage: Stage) -> None:
    stage.settings.pre_vote = False
    stage.controllers(1, 2, 3)
    stage.settle()
    leader = stage.leader()
    stage.isolate(next(node.id for node in stage.cluster.nodes() if node.id != leader.id))
    for name in ("one-is-cut-off", "half-a-minute-later"):
        for _ in range(60):
            stage.controller().write([("NoOpRecord", 0, {})])
            stage.run_ms(500)
        stage.capture(name)


@scenario(
    "no-leader",
    "Two of four controllers die; the others stand for election again and again, and are no majority.",
    raises=("KQ023",),
    near_miss_of=("KQ002", "KQ024", "KQ025", "KQ026"),
    may_raise=("KQ009", "KQ016", "KV007", "KV013", "KV014"),
)
def no_leader(stage: Stage) -> None:
    _two_die(stage, 1, 2, 3, 4)


def _two_die(stage: Stage, *controllers: int) -> None:
    """The leader and a follower die; the rest stand for election for ten seconds."""
    stage.settings.pre_vote = False
    stage.controllers(*controllers)
    stage.settle()
    leader = stage.leader()
    follower = next(node.id for node in stage.cluster.nodes() if node.id != leader.id)
    stage.crash(leader.id)
    stage.crash(follower)
    stage.run_ms(10_000)
    stage.capture("candidates-are-left")


@scenario(
    "stalled-quorum",
    "Two of three controllers die and the leader does not notice: it writes on for half a minute, and nothing commits.",
    raises=("KQ024",),
    near_miss_of=("KQ023", "KQ025", "KQ002"),
    may_raise=("KQ001", "KQ009", "KV013", "KV014"),
)
def stalled_quorum(stage: Stage) -> None:
    stage.settings.check_quorum_us = 120_000_000
    stage.controllers(1, 2, 3)
    stage.settle()
    leader = stage.leader()
    for node in list(stage.cluster.nodes()):
        if node.id != leader.id:
            stage.crash(node.id)
    write_alone(stage, leader.id, 50)
    stage.capture("waits-for-a-majority")
    write_alone(stage, leader.id, 1_000)
    stage.capture("still-waits")


@scenario(
    "majority-lost",
    "The disks of two of three controllers are gone for good: no restart brings a leader back.",
    raises=("KQ025",),
    near_miss_of=("KQ002", "KQ024"),
    may_raise=("KQ009", "KQ023"),
    gone=(1, 2),
)
def majority_lost(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.settle()
    stage.crash(1)
    stage.crash(2)
    stage.run_ms(1_000)
    stage.capture("one-disk-is-left", 3)


@scenario(
    "one-voter-lost",
    "The disk of one of three controllers is gone; the other two elect a leader and go on.",
    near_miss_of=("KQ023", "KQ024", "KQ025"),
    may_raise=("KV014",),
    gone=(3,),
)
def one_voter_lost(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.settle()
    stage.crash(3)
    stage.until(lambda: stage.leader().id != 3, "a leader")
    stage.settle()
    stage.capture("two-are-left", 1, 2)
