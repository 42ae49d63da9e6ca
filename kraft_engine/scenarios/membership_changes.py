"""Voters come and go: disks and nodes that fail, changes that commit, hang, or are taken back."""

from __future__ import annotations

from kraft_engine.consensus.messages import AddRaftVoterRequest, RemoveRaftVoterRequest
from kraft_engine.consensus.raft import RaftNode
from kraft_engine.runs.scenario_stage import Stage
from kraft_engine.scenarios.scenario import scenario


@scenario(
    "controller-disk-failure",
    "Controller 3 loses its disk and comes back under a new directory id; the voter set still has the old one.",
    raises=("KV008",),
    near_miss_of=("KV018",),
)
def disk_failure(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.settle()
    stage.capture("before")
    stage.replace_disk(3)
    stage.run_ms(3_000)
    stage.capture("phantom-voter")


@scenario(
    "controller-disk-replaced",
    "The same disk failure, repaired: the old (id, directory) is removed, then the new one added.",
    near_miss_of=("KB009", "KV001", "KV002", "KV008", "KV015"),
)
def disk_replaced(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.replace_disk(3)
    stage.until(lambda: stage.caught_up(3), "controller 3 catching up")
    if stage.add_voter(3) != "DUPLICATE_VOTER":
        raise AssertionError("an id that is a voter must be removed first")
    stage.remove_voter(3)
    stage.until(lambda: stage.add_voter(3) == "", "controller 3 added again")
    stage.settle()
    stage.capture("repaired")


@scenario(
    "controller-node-failure",
    "Controller 3 dies for good; a fourth one takes its place, one change at a time.",
    raises=("KB008",),
    near_miss_of=("KV001", "KV004", "KV007"),
)
def node_failure(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.run_ms(500)
    stage.crash(3)
    stage.spare_controller(4)
    stage.until(lambda: stage.add_voter(4) == "", "controller 4 added")
    stage.remove_voter(3)
    stage.run_ms(1_000)
    stage.capture("replaced", 1, 2, 4)


@scenario(
    "even-voters",
    "A fourth voter is added: one more to ask, not one more to lose.",
    raises=("KV007",),
    near_miss_of=("KV005", "KV012"),
)
def even_voters(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.spare_controller(4)
    stage.until(lambda: stage.add_voter(4) == "", "controller 4 added")
    stage.settle()
    stage.capture("four")


@scenario("single-voter", "A standalone controller: no fault is survived.", raises=("KV007",))
def single_voter(stage: Stage) -> None:
    stage.controllers(1)
    stage.settle()
    stage.capture("alone")


@scenario("static-quorum", "controller.quorum.voters: kraft.version 0.", raises=("KV011",), metadata_version=20)
def static_quorum(stage: Stage) -> None:
    stage.controllers(1, 2, 3, static=True)
    stage.settle()
    stage.capture("static")


@scenario(
    "static-to-dynamic",
    "A static quorum is upgraded to kraft.version 1 and then gains a voter.",
    raises=("KV007",),
    near_miss_of=("KV001", "KV002", "KV011"),
)
def static_to_dynamic(stage: Stage) -> None:
    stage.controllers(1, 2, 3, static=True)
    stage.run_ms(2_000)
    stage.capture("static")
    leader = stage.leader()
    rules = stage.cluster.membership
    upgrade = getattr(rules, "upgrade_kraft_version")  # noqa: B009 - of the shipped rules alone
    stage.until(lambda: upgrade(leader) == "", "the upgrade")
    stage.settle()
    stage.capture("dynamic")
    process = stage.cluster.add_process(4)
    stage.cluster.start(process)
    stage.until(lambda: stage.caught_up(4), "controller 4 catching up")
    stage.until(lambda: stage.add_voter(4) == "", "controller 4 added")
    stage.settle()
    stage.capture("four")


@scenario(
    "uncommitted-voter-change",
    "A leader cut off from the others appends a new voter: in force where it stands, committed nowhere; then undone.",
    raises=("KV005", "KV006", "KQ001"),
)
def uncommitted_voter_change(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.spare_controller(4)
    stage.settle()
    leader = stage.leader()
    stage.isolate(leader.id, 4)
    request = AddRaftVoterRequest(
        stage.settings.cluster_id, stage.cluster.voter_of(stage.cluster.processes[stage.slot(4)])
    )
    stage.cluster.ask(leader.slot, request)
    stage.run_ms(200)
    stage.capture("appended")
    stage.until(lambda: stage.leader().id != leader.id, "another leader")
    stage.run_ms(500)
    stage.capture("two-histories")
    stage.heal()
    stage.settle()
    stage.capture("reverted")


@scenario(
    "voter-change-committed-late",
    "The same, but the others only pause for a moment: the change commits.",
    raises=("KV007",),
    near_miss_of=("KV005", "KV006", "KQ001"),
)
def committed_late(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.spare_controller(4)
    stage.settle()
    leader = stage.leader()
    committed = leader.log.end_offset
    others = [node.slot for node in stage.cluster.nodes() if node.id not in (leader.id, 4)]
    for slot in others:
        stage.cluster.pause(slot)
    request = AddRaftVoterRequest(
        stage.settings.cluster_id, stage.cluster.voter_of(stage.cluster.processes[stage.slot(4)])
    )
    stage.cluster.ask(leader.slot, request)
    stage.until(lambda: leader.log.end_offset > committed, "the change appended")
    for slot in others:
        stage.cluster.resume(slot)
    stage.settle()
    stage.capture("committed")


@scenario(
    "removed-leader",
    "The leader removes itself: it leads until that is committed, without counting itself, then resigns.",
    raises=("KV007", "KB008"),
    near_miss_of=("KV010", "KQ006"),
)
def removed_leader(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.run_ms(500)
    leader = stage.leader()
    stage.remove_voter(leader.id)
    stage.until(lambda: stage.leader().id != leader.id, "another leader")
    stage.run_ms(1_000)
    stage.capture("two-left", *(node.id for node in stage.cluster.nodes() if node.id != leader.id))


def _voter_ids(leader: RaftNode) -> tuple[int, ...]:
    """The voters of the leader's own set; none while it has none."""
    return () if leader.voters is None else leader.voters.ids


@scenario(
    "removed-controller-rejoins",
    "A removed controller is left running with auto join on: it makes itself a voter again.",
    raises=("KV015",),
)
def rejoins(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.settings.auto_join = True
    leader = stage.leader()
    follower = next(node.id for node in stage.cluster.nodes() if node.id != leader.id)
    stage.remove_voter(follower)
    stage.crash(leader.id)
    stage.start(leader.id)
    stage.until(lambda: follower in _voter_ids(stage.leader()), "the controller rejoining")
    stage.settle()
    stage.capture("back-again")


@scenario(
    "split-standalone",
    "Two controllers were formatted --standalone with one cluster id: two quorums that know nothing of each other.",
    raises=("KB009", "KV007", "KV012"),
    near_miss_of=("KQ010",),
)
def split_standalone(stage: Stage) -> None:
    stage.controllers(1)
    stage.invariants.damage("two quorums under one cluster id")
    second = Stage(stage.world.seed + 1_000_003, stage.recorder.out, cluster_id=stage.settings.cluster_id)
    second.controllers(2)
    second.run_ms(5_000)
    stage.run_ms(5_000)
    second.capture("both")
    stage.capture("both")


@scenario(
    "voter-behind",
    "A voter is cut off while the others go on: one more loss and nothing commits.",
    raises=("KV013", "KV014"),
)
def voter_behind(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    leader = stage.leader()
    follower = next(node.id for node in stage.cluster.nodes() if node.id != leader.id)
    stage.isolate(follower)
    for _ in range(1_200):
        stage.controller().write([("NoOpRecord", 0, {})])
        stage.run_ms(5)
    stage.capture("behind")


@scenario(
    "voters-removed-in-a-row",
    "Two voters are removed one after the other, each once the last was committed.",
    raises=("KB008",),
    near_miss_of=("KV002", "KV003", "KV004", "KV007"),
)
def removed_in_a_row(stage: Stage) -> None:
    stage.controllers(1, 2, 3, 4, 5)
    leader = stage.leader()
    others = [node.id for node in stage.cluster.nodes() if node.id != leader.id]
    for node_id in others[:2]:
        request = RemoveRaftVoterRequest(stage.settings.cluster_id, (node_id, stage.node(node_id).directory))
        stage.until(lambda request=request: _accepted(stage, request), f"removing {node_id}")  # type: ignore[misc]
    stage.run_ms(1_000)
    stage.capture("three-left", *(node.id for node in stage.cluster.nodes() if node.id not in others[:2]))


def _accepted(stage: Stage, request: RemoveRaftVoterRequest) -> bool:
    reply = stage.cluster.ask(stage.leader().slot, request)
    stage.until(lambda: reply in stage.cluster.replies, "an answer")
    return not stage.cluster.replies[reply].error


@scenario(
    "formatted-again",
    "The only controller is stopped and its disk formatted again with the same cluster id: a second log begins.",
    raises=("KB009", "KV007", "KV011"),
)
def formatted_again(stage: Stage) -> None:
    stage.controllers(1, static=True)
    stage.settle()
    stage.capture("first-log")
    stage.invariants.damage("formatted again with the same cluster id")
    stage.stop(1)
    stage.run_ms(1_000)
    stage.replace_disk(1)
    stage.run_ms(2_000)
    stage.capture("second-log")
