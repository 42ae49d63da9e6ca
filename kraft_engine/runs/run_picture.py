"""A run as a picture: a row an event, a column a node."""

from __future__ import annotations

from kraft_engine.invariants.run_invariants import RaftInvariants
from kraft_engine.world.processes import Cluster
from kraft_engine.world.world import MS

LEGEND = "time, then one column a node: U unattached  P prospective  C candidate  L leader  F follower  R resigned"
WIDTH = 14


def timeline_text(cluster: Cluster, invariants: RaftInvariants) -> str:
    """The legend, a head with the node ids, then what the run noted, oldest first."""
    head = f"{'':>12}  " + "".join(f"node {process.id}".ljust(WIDTH) for process in cluster.processes)
    lines = [f"seed {cluster.world.seed}, {cluster.world.event_count} events, {cluster.world.now_us // MS} ms", LEGEND]
    lines.append(head.rstrip())
    lines += invariants.timeline
    return "\n".join(lines) + "\n"
