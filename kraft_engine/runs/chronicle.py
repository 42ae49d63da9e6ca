"""The record of a run: a timeline for people, events for the truth, and the violation that ends it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from kraft_engine.consensus.raft import RaftNode
from kraft_engine.world.world import MS, World

if TYPE_CHECKING:
    from kraft_engine.invariants.run_invariants import RaftInvariants
    from kraft_engine.world.processes import Cluster

TIMELINE_LIMIT = 4_000
LEGEND = "time, then one column a node: U unattached  P prospective  C candidate  L leader  F follower  R resigned"
NODE_WIDTH = 14


class InvariantViolationError(Exception):
    """A safety rule did not hold. `name` is the invariant; the message ends with the last events before it."""

    def __init__(self, name: str, detail: str, seed: int, event: int, timeline: list[str]) -> None:
        tail = "\n".join(timeline[-40:])
        super().__init__(f"{name}: {detail} (seed {seed}, event {event})\n{tail}")
        self.name = name
        self.detail = detail
        self.seed = seed
        self.event = event


class Chronicle:
    """One run's record. Checks report what they find through `fail`."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.beyond_model: list[str] = []
        self.damage_effects: list[tuple[str, str]] = []
        self.timeline: list[str] = []
        self.events: list[tuple[int, str, dict[str, Any]]] = []
        self.check_count = 0
        # How often each kind of event happened: a run without an event proves nothing about it.
        self.seen: Counter[str] = Counter()

    def fail(self, name: str, detail: str) -> None:
        """Stops the run, or records what labelled damage has led to."""
        if self.beyond_model:
            if len(self.damage_effects) < TIMELINE_LIMIT:
                self.damage_effects.append((name, detail))
                self.record("damage_effect", invariant=name, detail=detail)
            return
        raise InvariantViolationError(name, detail, self.world.seed, self.world.event_count, self.timeline)

    def record(self, kind: str, **fields: Any) -> None:
        """One line of the truth."""
        self.events.append((self.world.now_us, kind, fields))

    def say(self, slot: int, text: str) -> None:
        timeline = self.timeline
        timeline.append(f"{self.world.now_us // MS:>9} ms  {'':{slot * NODE_WIDTH}}[{slot}] {text}")
        if len(timeline) > TIMELINE_LIMIT:
            del timeline[: TIMELINE_LIMIT // 2]

    def note(self, node: RaftNode, text: str) -> None:
        self.say(node.slot, f"node {node.id} {text}")

    def damage(self, label: str, **fields: Any) -> None:
        """An event beyond Raft's model: from here on a violation is an effect of it."""
        self.beyond_model.append(label)
        self.record("damage", label=label, **fields)
        self.say(0, f"BEYOND THE MODEL: {label}")


def timeline_text(cluster: Cluster, invariants: RaftInvariants) -> str:
    """The legend, a head with the node ids, then what the run noted, oldest first."""
    head = f"{'':>12}  " + "".join(f"node {process.id}".ljust(NODE_WIDTH) for process in cluster.processes)
    lines = [f"seed {cluster.world.seed}, {cluster.world.event_count} events, {cluster.world.now_us // MS} ms", LEGEND]
    lines.append(head.rstrip())
    lines += invariants.timeline
    return "\n".join(lines) + "\n"
