"""What only a node's other files, or its configuration, say: each story ends when the advice was followed."""

from __future__ import annotations

import shlex
import shutil
import struct
import time
from collections.abc import Iterable
from typing import Final

from kraft_audit.recovery.lost_quorum.rescued_dir import new_directory_id
from tests.builders.live_log import whole_batches
from tests.drills.advised_operator import NO, UNDECIDED, YES, Operator, Said
from tests.drills.kafka_node import KafkaNode, quiet_port
from tests.drills.real_cluster import RealCluster, wait_for

LATE: Final = "doomed"
"""The topic that `RealCluster.live` creates last."""
ELECTIONS: Final = 5
SILENT_S: Final = 12
"""A leader that works writes a NoOp every half second: after 10 s without one, live dirs show that there is none."""


def static_scale_out(operator: Operator) -> None:
    """A static quorum of one gets two empty controllers while all are stopped"""
    cluster = operator.cluster
    for node in (*cluster.brokers.values(), cluster.controllers[1]):
        node.stop()
    added = [cluster.new_controller(node_id, {}) for node_id in (2, 3)]
    cluster.point_to(cluster.quorum_nodes.values())
    for node in added:
        node.extra = dict(cluster.controllers[1].extra)
        node.log_dir = cluster.nodes / node.log_dir.name
        node.format(cluster.tools, cluster.cluster_id)
    operator.copy_disks()
    said = operator.may_i("start", 2, 3)
    assert said.verdict == NO, said
    with operator.against(said):
        _start(added)
        operator.leads(2, 3)
        for node in added:  # in the epoch that node 1 led, its answers end them (IllegalStateException, 4.3.1)
            node.kill()
        _start(added)
        operator.leads(2, 3)
        cluster.controllers[1].start()
        wait_for("all topics to be lost", lambda: operator.lacks(cluster.controllers[1], "orders", LATE))
    operator.start_the_rest()


def voters_dropped(operator: Operator) -> None:
    """controller.quorum.voters is replaced by bootstrap servers at kraft.version 0, and node 1 is restarted"""
    cluster = operator.cluster
    _drop_first(operator)
    said = operator.may_i("restart", 2)
    assert said.verdict == NO, said
    assert "Set controller.quorum.voters alike on 1, 2 and 3 first" in said.text
    cluster.point_to(cluster.controllers.values())
    operator.follow(operator.take(said, "may-i restart 1"))
    wait_for("its quorum-state", lambda: '"voterId":1' in cluster.controllers[1].quorum_state)
    operator.copy_disks()
    operator.follow(operator.may_i("restart", 2))


def voters_dropped_everywhere(operator: Operator) -> None:
    """The same on all three, one after the other and against the advice: no node can be elected any more"""
    cluster = operator.cluster
    _drop_first(operator)
    said = operator.may_i("restart", 2)
    assert said.verdict == NO, said
    for node_id in (2, 3):
        _drop_voters(operator, node_id)
    time.sleep(SILENT_S)
    assert cluster.leader(*cluster.controllers.values()) is None
    said = operator.ask("check", cluster.nodes, "--running")
    assert said.code == 1
    assert "QUORUM      No leader " in said.text, said
    assert "Stop all controllers, set controller.quorum.voters alike" in said.text
    for node in cluster.controllers.values():
        node.stop()
    cluster.point_to(cluster.controllers.values())
    operator.follow(operator.take(said, "may-i start 1 "))
    operator.start_the_rest()


def _drop_first(operator: Operator) -> None:
    node = operator.cluster.controllers[1]
    _drop_voters(operator, 1)
    wait_for("its quorum-state", lambda: '"currentVoters":[]' in node.quorum_state)
    operator.copy_disks()


def _drop_voters(operator: Operator, node_id: int) -> None:
    """The node is restarted with a config that names bootstrap servers alone."""
    controllers = operator.cluster.controllers
    node = controllers[node_id]
    node.stop()
    node.quorum = {"controller.quorum.bootstrap.servers": ",".join(each.place for each in controllers.values())}
    node.start()


def controllers_emptied(operator: Operator) -> None:
    """All controllers lose their disks, which are formatted anew, and the brokers keep theirs"""
    cluster = operator.cluster
    _empty_controllers(operator)
    operator.copy_disks()
    check = operator.check()
    assert check.code == 1
    said = operator.may_i("start", 1, 2, 3)
    assert said.verdict != YES, said
    with operator.against(said):
        _start(cluster.controllers.values())
        operator.leads(1, 2, 3)
        assert operator.lacks(cluster.controllers[1], "orders", LATE)
    operator.rescue(operator.take(check, "rescue --plan"))


def controllers_emptied_and_started(operator: Operator) -> None:
    """The same, and the empty controllers elected a leader before anybody asked"""
    cluster = operator.cluster
    _empty_controllers(operator)
    _start(cluster.controllers.values())
    operator.leads(1, 2, 3)
    for node in cluster.controllers.values():
        node.kill()
    operator.copy_disks()
    check = operator.check()
    assert check.code == 1
    kept, new = [command for command in check.commands if command.startswith("kraft-audit rescue --plan ")]
    assert "orders) live only on nodes 101 and 102" in check.text, check
    assert "(no topic) live only on nodes 1, 2 and 3" in check.text, check
    assert (kept.rpartition(":")[2], new.rpartition(":")[2]) == ("101", "1"), "whoever knows the topics can choose"
    operator.rescue(operator.ask(*shlex.split(kept)[1:]))


def _empty_controllers(operator: Operator) -> None:
    cluster = operator.cluster
    cluster.kill_all()
    for node in cluster.controllers.values():
        shutil.rmtree(node.log_dir)
        node.format(cluster.tools, cluster.cluster_id)


def foreign_disk(operator: Operator) -> None:
    """Node 3 gets a disk that was formatted for another cluster"""
    cluster = operator.cluster
    node, own_disk = cluster.controllers[3], cluster.work / "own-disk"
    node.kill()
    shutil.move(node.log_dir, own_disk)
    node.format(cluster.tools, new_directory_id())
    operator.copy_disks()
    check = operator.check()
    assert check.code == 1
    assert "KQ010" in check.text
    said = operator.may_i("start", 3)
    assert said.verdict == NO, said
    node.start()  # against the advice
    wait_for("a refusal", lambda: "INCONSISTENT_CLUSTER_ID" in node.output.read_text())
    assert operator.fetched(node) == 0
    node.kill()
    shutil.rmtree(node.log_dir)
    shutil.move(own_disk, node.log_dir)
    operator.copy_disks()
    operator.follow(operator.take(said, "may-i"))


def set_aside_voter(operator: Operator) -> None:
    """The log of voter 1 ends early, and one bit makes the leader epoch of its last batch later than all others"""
    cluster = operator.cluster
    cluster.kill_all()
    _cut_and_raise(cluster.controllers[1])
    operator.copy_disks()
    check = operator.check()
    assert check.code == 1
    said = operator.may_i("start", 1, 2)
    assert said.verdict == UNDECIDED, said
    with operator.against(said):
        _start(cluster.controllers[node] for node in (1, 2))
        assert operator.leads(1, 2) == 1
        cluster.controllers[3].start()
        for node in (2, 3):
            wait_for("a topic to be lost", lambda node=node: operator.lacks(cluster.controllers[node], LATE))
    operator.copy_disks()
    said = operator.take(check, "may-i")
    assert said.verdict == UNDECIDED, said
    assert "keep node 1 stopped" in said.text
    operator.follow(operator.may_i("start", 1))
    operator.stays_down = 1
    operator.start_the_rest()


def _cut_and_raise(node: KafkaNode) -> None:
    """Cuts the log before its last topic, and raises the epoch of the batch that is the last then by four."""
    folder = node.log_dir / "__cluster_metadata-0"
    (log,) = folder.glob("*.log")
    batches = [bytes(batch.data) for batch in whole_batches(log.read_bytes())]
    kept = batches[: next(at for at, batch in enumerate(batches) if LATE.encode() in batch)]
    (epoch,) = struct.unpack_from(">i", kept[-1], 12)
    kept[-1] = kept[-1][:12] + struct.pack(">i", epoch + 4) + kept[-1][16:]
    log.write_bytes(b"".join(kept))
    for index in (*folder.glob("*.index"), *folder.glob("*.timeindex"), *folder.glob("*.snapshot")):
        index.unlink()


def voter_cut_off(operator: Operator) -> None:
    """A voter is cut off on a release without pre-vote, and raises its epoch while the others go on"""
    cluster = operator.cluster
    node = cluster.controllers[1]
    port, quorum = node.port, node.quorum
    node.kill()
    node.port = quiet_port()
    dead = [f"{other}@127.0.0.1:{quiet_port()}" for other in (2, 3)]
    node.quorum = {"controller.quorum.voters": ",".join([f"1@{node.place}", *dead])}
    node.start()
    leader = operator.leads(2, 3)
    _wait_for_elections(node)
    said = undecided_alone(operator, 1, leader)
    said = operator.ask("check", cluster.nodes, "--running")
    assert said.code == 1
    operator.has_times = True
    operator.copy_disks()
    said = operator.check()
    assert "it is cut off, the others wrote records after its last election" in said.text, said
    assert "look at this voter's network and listeners" in said.text
    node.port, node.quorum = port, quorum
    operator.follow(operator.may_i("restart", 1))


def majority_dead(operator: Operator) -> None:
    """The leader and another voter are killed on a release without pre-vote; the one that is left campaigns alone"""
    cluster = operator.cluster
    nodes = cluster.controllers
    leader = operator.leads(1, 2, 3)
    alone, other = sorted(nodes.keys() - {leader})
    nodes[alone].pause()
    _commit_late(cluster)
    for node_id in (leader, other):
        nodes[node_id].kill()
    nodes[alone].go_on()
    _wait_for_elections(nodes[alone])
    said = undecided_alone(operator, alone, leader)
    operator.has_times = True
    operator.copy_disks()
    with_times = operator.check()
    assert "the others wrote nothing more before its last election, and are dead" in with_times.text, with_times
    operator.follow(operator.take(said, f"may-i start {leader}"))
    operator.start_the_rest()


def disk_went_back(operator: Operator) -> None:
    """A voter's disk is restored from a backup, and a capture from before that lies beside the newest one"""
    cluster = operator.cluster
    nodes, backup, captures = cluster.controllers, cluster.work / "backup", cluster.work / "captures"
    nodes[1].stop()
    operator.leads(2, 3)
    nodes[3].pause()
    shutil.copytree(nodes[3].log_dir, backup)
    nodes[3].go_on()
    _commit_late(cluster)
    captures.mkdir()
    cluster.copy_disks(captures / "2026-11-28")
    cluster.kill_all()
    shutil.rmtree(nodes[3].log_dir)
    shutil.move(backup, nodes[3].log_dir)
    cluster.copy_disks(captures / "2026-11-29")
    said = operator.ask("may-i", "start", 1, captures, "--stopped", f"2,{min(cluster.brokers)}")
    assert said.verdict == NO, said
    assert "The disk of node 3 went back between captures 2026-11-28 and 2026-11-29" in said.text, said
    with operator.against(said):
        _start(nodes[node] for node in (1, 3))
        operator.leads(1, 3)
        assert all(operator.lacks(nodes[node], "late") for node in (1, 3))
    operator.follow(operator.ask("may-i", "start", 2, captures, "--stopped", f"1,3,{min(cluster.brokers)}"))
    operator.start_the_rest()


def _commit_late(cluster: RealCluster) -> None:
    """A topic with records, which one controller does not know."""
    cluster.topic("late", "--replica-assignment", str(min(cluster.brokers)))
    cluster.send("late", "late-")
    cluster.truth = wait_for("a state that rests", cluster.resting_state)


def undecided_alone(operator: Operator, alone: int, leader: int) -> Said:
    """The same bytes in both situations: from a copy without the times of files `check` names both, and starts none."""
    operator.has_times = False
    operator.copy_disks()
    said = operator.check()
    others = [str(node) for node in operator.cluster.controllers if node != alone]
    assert said.code == 1, said
    assert f"Either voter {alone} is cut off and the others work, or {' and '.join(others)} are dead" in said.text, said
    assert f"Otherwise start node {leader}, the last leader, with its own disk before any other" in said.text
    assert [each for each in said.commands if "may-i" in each] == [
        f"kraft-audit may-i start {leader} {operator.copy} --stopped {','.join(set(others) - {str(leader)})}"
    ]
    return said


def _wait_for_elections(node: KafkaNode) -> None:
    """Until it has lost many elections."""
    epoch = node.persisted_epoch
    wait_for("lost elections", lambda: node.persisted_epoch >= epoch + ELECTIONS)


def _start(nodes: Iterable[KafkaNode]) -> None:
    for node in nodes:
        node.start()
