"""Controllers with a rule missing: what the findings about Raft itself look like. Every one is beyond the model."""

from __future__ import annotations

from kraft_engine.consensus.leader import append
from kraft_engine.consensus.messages import AddRaftVoterRequest, RemoveRaftVoterRequest
from kraft_engine.invariants.switches import ALL_ON
from kraft_engine.runs.scenario_stage import Stage
from kraft_engine.scenarios.scenario import scenario


@scenario(
    "single-server-bug",
    "A leader changes the voters before its own epoch is committed: the bug of single-server membership changes.",
    raises=("KQ001", "KV003", "KV005", "KV006"),
    switches=ALL_ON.without("change_waits_for_epoch_commit").without("change_waits_for_committed_predecessor"),
)
def single_server_bug(stage: Stage) -> None:
    stage.controllers(1, 2, 3, 4)
    stage.spare_controller(5)
    stage.settle()
    stage.invariants.damage("voter changes do not wait for the epoch's commit")
    first = stage.leader()
    stage.isolate(first.id, 5)
    spare = stage.cluster.voter_of(stage.cluster.processes[stage.slot(5)])
    stage.cluster.ask(first.slot, AddRaftVoterRequest(stage.settings.cluster_id, spare))
    stage.run_ms(100)
    stage.until(lambda: any(node.epoch > first.epoch for node in stage.leaders()), "a second leader")
    second = next(node for node in stage.leaders() if node.epoch > first.epoch)
    request = RemoveRaftVoterRequest(stage.settings.cluster_id, (first.id, first.directory))
    stage.cluster.ask(second.slot, request)
    stage.capture("before-commit")
    stage.run_ms(1_000)
    stage.capture("after")


@scenario(
    "overlapping-changes",
    "Two voter changes are under way at once, neither committed.",
    raises=("KV004", "KV005"),
    switches=ALL_ON.without("change_waits_for_committed_predecessor"),
)
def overlapping_changes(stage: Stage) -> None:
    stage.controllers(1, 2, 3, 4, 5)
    stage.settle()
    stage.invariants.damage("voter changes do not wait for each other")
    leader = stage.leader()
    others = [node for node in stage.cluster.nodes() if node.id != leader.id]
    stage.isolate(leader.id)
    for node in others[:2]:
        request = RemoveRaftVoterRequest(stage.settings.cluster_id, node.key)
        stage.cluster.ask(leader.slot, request)
    stage.capture("both-uncommitted")
    stage.run_ms(50)
    stage.capture("both-still-uncommitted")


@scenario(
    "voters-swapped",
    "A voter set written by hand swaps one voter for another: Kafka's own test passes, its majorities need not meet.",
    raises=("KV001", "KV002"),
)
def voters_swapped(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.spare_controller(4)
    stage.settle()
    stage.invariants.damage("a voter set written by hand")
    leader = stage.leader()
    voters = leader.voters
    if voters is None:
        raise AssertionError("a leader has a voter set")
    gone = next(key for key in voters.keys if key != leader.key)
    swapped = voters.removing(gone).adding(stage.cluster.voter_of(stage.cluster.processes[stage.slot(4)]))
    append(leader, (("KRAFT_VOTERS", 0, swapped.fields()),), is_control=True)
    stage.run_ms(1_000)
    stage.capture("swapped")


@scenario(
    "removed-leader-goes-on",
    "A removed leader never resigns: it writes for a minute after its removal was committed.",
    raises=("KV007", "KV010"),
    switches=ALL_ON.without("removed_leader_resigns_at_commit"),
)
def removed_leader_goes_on(stage: Stage) -> None:
    stage.controllers(1, 2, 3)
    stage.settle()
    stage.invariants.damage("a removed leader does not resign")
    leader = stage.leader()
    stage.remove_voter(leader.id)
    stage.settle_controllers()
    stage.capture("removal-committed")
    for _ in range(70):
        if leader.leader is not None:
            append(leader, (("NoOpRecord", 0, {}),), is_control=False)
        stage.run_ms(1_000)
    stage.capture("a-minute-later")


@scenario(
    "two-leaders-one-epoch",
    "Voters that vote twice elect two leaders in one epoch.",
    raises=("KQ002", "KQ003", "KQ014"),
    switches=ALL_ON.without("one_vote_per_epoch"),
)
def two_leaders(stage: Stage) -> None:
    stage.settings.pre_vote = False
    stage.cluster.format_initial_controllers((1, 2, 3, 4, 5))
    stage.invariants.damage("voters vote more than once in an epoch")
    for process in stage.cluster.processes:
        stage.cluster.start(process)
    for _ in range(200):
        leader = stage.leader()
        first, second = [node for node in stage.cluster.nodes() if node.id != leader.id][:2]
        stage.settle()
        stage.crash(leader.id)
        stage.cluster.network.split(([first.slot], [second.slot]))
        for node in (first, second):
            node.become_candidate()
            node.poll()
        stage.run_ms(12)
        epochs = [node.epoch for node in stage.leaders()]
        if len(set(epochs)) < len(epochs):
            break
        stage.cluster.network.heal()
        stage.start(leader.id)
    stage.capture("two-leaders")


@scenario(
    "leader-without-majority",
    "A candidate takes office with its own vote alone.",
    raises=("KQ006",),
    switches=ALL_ON.without("votes_from_a_majority"),
)
def leader_without_majority(stage: Stage) -> None:
    stage.cluster.format_initial_controllers((1, 2, 3))
    stage.invariants.damage("one vote is enough")
    for process in stage.cluster.processes:
        stage.cluster.start(process)
    stage.run_ms(6_000)
    stage.capture("self-elected")
