"""The quorum that a small model explores, and that a counterexample's trace begins with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kraft_engine.consensus.membership import Kip853
from kraft_engine.consensus.protocols import Membership
from kraft_engine.consensus.raft_settings import Settings
from kraft_engine.invariants.run_invariants import RaftInvariants
from kraft_engine.runs.options import Options
from kraft_engine.runs.schedule import CLUSTER_ID
from kraft_engine.traces.untimed import FirstChance, UntimedQuorum
from kraft_engine.world.processes import Cluster
from kraft_engine.world.world import World


def small_quorum(quorum: Mapping[str, Any], without: tuple[str, ...]) -> UntimedQuorum:
    """Controllers 1 to `voters`, then `spares` that are no voters, formatted and not started.

    `static` is kraft.version 0, `pre_vote` KIP-996's (off by default: Kafka 3.9 has none), `dialect` kip853 or one of
    the drafts, whose quorums are static at first. Raises ValueError for an unknown key or dialect.
    """
    unknown = set(quorum) - {"voters", "spares", "static", "pre_vote", "dialect"}
    if unknown:
        raise ValueError(f"a model has no {', '.join(sorted(unknown))}")
    dialect = str(quorum.get("dialect", "kip853"))
    rules = _rules(dialect)
    is_static = bool(quorum.get("static", dialect != "kip853"))
    world = World(0)
    invariants = RaftInvariants(world, is_static=is_static and dialect == "kip853")
    invariants.one_voter_per_id = dialect != "kip856"
    settings = Settings(CLUSTER_ID, pre_vote=bool(quorum.get("pre_vote", False)))
    cluster = Cluster(world, settings, rules, invariants, switches=Options(without=without).switches)
    invariants.cluster = cluster
    ids = tuple(range(1, int(quorum.get("voters", 3)) + 1))
    if is_static:
        cluster.format_static(ids)
    else:
        cluster.format_initial_controllers(ids)
    for spare in range(int(quorum.get("spares", 0))):
        cluster.add_process(len(ids) + 1 + spare)
    return UntimedQuorum(cluster, invariants, FirstChance)


def _rules(dialect: str) -> Membership:
    from kraft_engine.drafts import Kip642, Kip856

    rules: dict[str, type[Membership]] = {"kip853": Kip853, "kip856": Kip856, "kip642": Kip642}
    if dialect not in rules:
        raise ValueError(f"a model has the dialects {', '.join(rules)}, not {dialect}")
    return rules[dialect]()
