"""The membership protocols that never shipped, in their own dialects."""

from __future__ import annotations

from kraft_codec.schemas import Dialect
from kraft_engine.consensus.leader import append
from kraft_engine.consensus.messages import AddRaftVoterRequest, RemoveRaftVoterRequest
from kraft_engine.drafts.kip642 import Kip642, ReassignRequest
from kraft_engine.drafts.kip856 import Kip856, voter_record
from kraft_engine.invariants.switches import ALL_ON
from kraft_engine.runs.scenario_stage import Stage
from kraft_engine.scenarios.scenario import scenario
from kraft_engine.world.encoding import assignment_fields


def bootstrap(stage: Stage) -> None:
    stage.invariants.one_voter_per_id = False
    stage.settings.pre_vote = False
    stage.controllers(1, 2, 3, static=True)
    rules = stage.cluster.membership
    leader = stage.leader()
    stage.until(lambda: leader.leader is not None and rules.data_allowed(leader, leader.leader), "bootstrapping")


@scenario(
    "kip856-disk-replaced",
    "{1,2,3} -> {1,2,3,3'} -> {1,2,3'}: KIP-856's own story of a disk.",
    raises=("KV008",),
    near_miss_of=("KV801", "KV802", "KV803"),
    rules=Kip856(),
    dialect=Dialect.KIP856,
)
def kip856_disk(stage: Stage) -> None:
    bootstrap(stage)
    leader = stage.leader()
    victim = next(node.id for node in stage.cluster.nodes() if node.id != leader.id)
    old = stage.node(victim).key
    stage.replace_disk(victim)
    stage.until(lambda: stage.caught_up(victim), "the new disk catching up")
    process = stage.cluster.processes[stage.slot(victim)]
    added = stage.cluster.ask(
        leader.slot, AddRaftVoterRequest(stage.settings.cluster_id, stage.cluster.voter_of(process))
    )
    stage.until(lambda: added in stage.cluster.replies, "the new disk added")
    stage.capture("four-of-three-ids")
    removed = stage.cluster.ask(leader.slot, RemoveRaftVoterRequest(stage.settings.cluster_id, old))
    stage.until(lambda: removed in stage.cluster.replies, "the old disk removed")
    stage.run_ms(500)
    stage.capture("replaced")


@scenario(
    "kip856-change-while-pending",
    "A new disk is added and the old one removed before the addition is committed.",
    raises=("KV005", "KV801"),
    near_miss_of=("KV802",),
    rules=Kip856(),
    dialect=Dialect.KIP856,
    switches=ALL_ON.without("change_waits_for_committed_predecessor"),
)
def kip856_pending(stage: Stage) -> None:
    add_and_remove(stage, removes_new=False)


@scenario(
    "kip856-removed-before-added",
    "A new disk is added and taken out again before the addition is committed.",
    raises=("KV005", "KV801", "KV802", "KV008"),
    rules=Kip856(),
    dialect=Dialect.KIP856,
    switches=ALL_ON.without("change_waits_for_committed_predecessor"),
)
def kip856_removed(stage: Stage) -> None:
    add_and_remove(stage, removes_new=True)


def add_and_remove(stage: Stage, *, removes_new: bool) -> None:
    """An add and a removal by a leader that is cut off, so that neither is committed."""
    bootstrap(stage)
    stage.invariants.damage("changes do not wait for each other")
    leader = stage.leader()
    victim = next(node.id for node in stage.cluster.nodes() if node.id != leader.id)
    old = stage.node(victim).key
    stage.replace_disk(victim)
    stage.until(lambda: stage.caught_up(victim), "the new disk catching up")
    stage.isolate(leader.id)
    new = stage.node(victim).key
    append(leader, (voter_record("ADD_VOTER", new),), is_control=True)
    stage.run_ms(2)
    append(leader, (voter_record("REMOVE_VOTER", new if removes_new else old),), is_control=True)
    stage.capture("both-pending")
    stage.run_ms(50)
    stage.capture("both-still-pending")


@scenario(
    "kip642-reassigned",
    "{1,2,3} becomes {3,4,5} in single steps, the leader last.",
    near_miss_of=("KV601", "KV602"),
    rules=Kip642(),
    dialect=Dialect.KIP642,
)
def kip642_reassigned(stage: Stage) -> None:
    stage.settings.pre_vote = False
    stage.controllers(1, 2, 3, static=True)
    static = stage.cluster.processes[0].static_voters
    for node_id in (4, 5):
        process = stage.cluster.add_process(node_id)
        process.static_voters = static
        stage.cluster.start(process)
    stage.run_ms(2_000)
    stage.cluster.ask(stage.leader().slot, ReassignRequest(stage.settings.cluster_id, frozenset((3, 4, 5))))
    stage.until(lambda: _voters(stage) == (3, 4, 5), "the reassignment")
    stage.run_ms(2_000)
    stage.capture("moved")


@scenario(
    "kip642-target-changed",
    "The target is changed while a step towards the old one is not committed.",
    raises=("KV005", "KV601"),
    may_raise=("KV007",),
    rules=Kip642(),
    dialect=Dialect.KIP642,
    switches=ALL_ON.without("change_waits_for_committed_predecessor"),
)
def kip642_changed(stage: Stage) -> None:
    stage.settings.pre_vote = False
    stage.controllers(1, 2, 3, static=True)
    stage.settle()
    stage.invariants.damage("changes do not wait for each other")
    leader = stage.leader()
    stage.isolate(leader.id)
    first, second = [node.id for node in stage.cluster.nodes() if node.id != leader.id]
    for target in ((leader.id, first), (leader.id, second)):
        stage.cluster.ask(leader.slot, ReassignRequest(stage.settings.cluster_id, frozenset(target)))
    stage.capture("uncommitted")
    stage.run_ms(1)
    stage.capture("still-uncommitted")


def _voters(stage: Stage) -> tuple[int, ...]:
    voters = stage.leader().voters
    return voters.ids if voters is not None and voters.target is None else ()


@scenario(
    "kip856-bootstrap-split",
    "The bootstrapping AddVoter records stand in two batches.",
    raises=("KV803",),
    rules=Kip856(),
    dialect=Dialect.KIP856,
)
def kip856_split(stage: Stage) -> None:
    stage.invariants.one_voter_per_id = False
    stage.settings.pre_vote = False
    stage.cluster.format_static((1, 2, 3))
    stage.invariants.damage("bootstrapping in two batches")
    started = [stage.cluster.start(process) for process in stage.cluster.processes[:2]]
    leader = stage.leader()
    keys = [node.key for node in started]
    append(leader, (voter_record("ADD_VOTER", keys[0]),), is_control=True)
    stage.run_ms(2)
    append(leader, tuple(voter_record("ADD_VOTER", key) for key in keys[1:]), is_control=True)
    stage.run_ms(1_000)
    stage.capture("split")


@scenario(
    "kip642-two-voters-a-step",
    "One assignment adds two voters at once.",
    raises=("KV001", "KV002", "KV602"),
    rules=Kip642(),
    dialect=Dialect.KIP642,
)
def kip642_two(stage: Stage) -> None:
    stage.settings.pre_vote = False
    stage.controllers(1, 2, 3, static=True)
    stage.settle()
    stage.invariants.damage("two voters in one step")
    fields = assignment_fields(stage.settings.cluster_id, (1, 2, 3, 4, 5), frozenset((1, 2, 3, 4, 5)))
    append(stage.leader(), (("VOTER_ASSIGNMENT", 0, fields),), is_control=True)
    stage.run_ms(500)
    stage.capture("two")
