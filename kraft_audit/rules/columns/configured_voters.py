"""Which voters the nodes of a static quorum go by, and where they differ.

At kraft.version 0 no record names the voters: each node goes by its own controller.quorum.voters. quorum-state repeats
what a node read there at its last start (FileQuorumStateStore of Kafka 4.3 writes `currentVoters` in version 0). Where
nodes name different voters, a part of them can elect a leader that lacks what the others committed: on Kafka 4.1.2 two
new controllers of a static quorum of one elected themselves, and the old one truncated its log.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from kraft_audit.capture.node_card import configuration_of
from kraft_audit.quorum.quorum_evidence import majority
from kraft_audit.rules.cluster_history import ClusterHistory, TableRow, once_per_history
from kraft_audit.rules.columns.captures import newest_round, replica_end
from kraft_audit.rules.columns.nodes import broker_states, registrations
from kraft_audit.text.readable import any_of, listed, nouns

Ids = frozenset[int]


@dataclass(frozen=True)
class ConfiguredVoters:
    """What the captured disks and configurations of a static quorum say of their voters.

    `named`: by node, the voters in its quorum-state, or in its configuration where it has no quorum-state, of all nodes
    whose configuration matters to an election; `observers`: the others with a quorum-state. `unstarted`: nodes whose
    dir was formatted and holds neither a quorum-state nor a record; `outside`: controllers that are registered and in
    no named set. `files`: by node, the configuration that was captured and its controller.quorum.voters, by which the
    node goes from its next start on; `unread`: those of them that have no quorum-state.
    """

    named: Mapping[int, Ids]
    observers: Ids
    unstarted: Ids
    outside: Ids
    files: Mapping[int, tuple[str, Ids]] = field(default_factory=dict)
    unread: Ids = frozenset()

    @property
    def voters(self) -> Ids:
        """Every id that a quorum-state or a configuration names."""
        return frozenset().union(*self.named.values(), *(ids for _, ids in self.files.values()))

    @property
    def emptied(self) -> list[int]:
        """Nodes whose configuration named no voters when they were started last."""
        return sorted(node for node, ids in (*self.named.items(), *self._changed.items()) if not ids)

    @property
    def suggested(self) -> list[int]:
        """The voters to ask about: all that any disk names, and what was formatted beside them."""
        return sorted(self.voters | self.unstarted)

    @property
    def are_different(self) -> bool:
        """Whether two nodes name different voters, or one names none."""
        return len({*self.named.values(), *self._changed.values()}) > 1

    @property
    def _changed(self) -> Mapping[int, Ids]:
        """By node, the voters in its configuration where they are others than it goes by until it is started again."""
        return {node: ids for node, (_, ids) in self.files.items() if ids != self.named.get(node)}

    @property
    def sets_text(self) -> str:
        """Who names which voters: `voter 1 on nodes 1 and 11, voters 1, 2 and 3 on node 2`."""
        by_file = {node: ids for node, (_, ids) in self.files.items() if node in self._changed or node in self.unread}
        said = (
            ("quorum-state names", {node: ids for node, ids in self.named.items() if node not in self.unread}),
            ("controller.quorum.voters reads", by_file),
        )
        return ", and ".join(f"{verb} {_sets_on_nodes(sets)}" for verb, sets in said if sets)

    @property
    def who_elects_text(self) -> str:
        """Who could be elected by whom: each set by itself, as its nodes do not ask the others."""
        texts, named = [], [*self.named.items(), *self._changed.items()]
        for ids in sorted({ids for _, ids in named}, key=sorted):
            own = sorted({node for node, its in named if its == ids and node in ids})
            if own:
                voters = f"{majority(len(ids))} of {listed(sorted(ids))}" if len(ids) > 1 else f"{min(ids)} alone"
                texts.append(f"{any_of(own)} can be elected by {voters}")
        texts += [f"{listed(self.emptied)} cannot be elected"] if self.emptied else []
        return "; ".join(texts)

    def reason_self_elected(self, running: Collection[int], low: int) -> str | None:
        """That formatted nodes among `running` elect one of themselves, if their configuration names all of them.

        None where they are no majority then, or no record below `low` is there to lose.
        """
        known = frozenset().union(*(ids for node, ids in self.named.items() if node not in self.unread))
        new = sorted(set(running) & self.unstarted - known)
        if not low or not self.voters or len(new) < majority(len(self.voters | self.unstarted)):
            return None
        return (
            f"{nouns('Node', new)} {_were(new)} formatted and never started; {self.sets_text}. If "
            f"controller.quorum.voters on {listed(new)} reads {','.join(map(str, self.suggested))}, they elect "
            f"{any_of(new)} with an empty log, and the committed records through offset {low - 1} are lost."
        )

    def condition(self, node_id: int) -> str:
        """What must still hold when a yes is followed."""
        return condition_text(self.voters, self.voters | {node_id})

    def reason_undecided(self, node_id: int) -> str | None:
        """Why the voters that a node would go by are not known; None where they are."""
        if node_id not in self.named and node_id not in self.observers:
            return (
                f"Nothing shows which voters node {node_id} goes by: no quorum-state of it lists currentVoters, and "
                "at kraft.version 0 they are those of its controller.quorum.voters."
            )
        if self.emptied:
            return (
                f"quorum-state of {nouns('node', self.emptied)} names no voters: controller.quorum.voters was not set "
                "at the last start, and at kraft.version 0 a node without it cannot be elected."
            )
        unknown = self.unstarted - self.unread
        if emptied := sorted(unknown & self.voters):
            return (
                f"Of {nouns('voter', emptied)} the disk has neither a record nor a quorum-state: it was emptied or "
                "never started, and nothing shows which voters its configuration names."
            )
        if unknown:
            new = sorted(unknown)
            return (
                f"{nouns('Node', new)} {_were(new)} formatted and never started, so nothing "
                f"shows which voters {'they name' if len(new) > 1 else 'it names'}."
            )
        if self.outside:
            return (
                f"No quorum-state names registered {nouns('controller', sorted(self.outside))} as voter: what "
                "controller.quorum.voters reads there is not known."
            )
        return None


@once_per_history
def configured_voters(history: ClusterHistory) -> ConfiguredVoters:
    """What the newest captures say of a quorum at kraft.version 0."""
    rows = [row for row in newest_round(history) if row["node_id"] is not None]
    brokers = broker_states(history)
    said = {row["node_id"]: frozenset(row["current_voters"]) for row in rows if row["current_voters"] is not None}
    epochs = {row["node_id"]: row["leader_epoch"] for row in rows if row["leader_epoch"] is not None}
    voters: Ids = frozenset().union(*said.values())
    oldest = min((epochs[node] for node in said if node in voters), default=0)
    named = {}
    for node, ids in said.items():
        # What a broker read before the voters' newest epochs began says nothing of their configuration now, and a
        # broker needs no controller.quorum.voters where it has controller.quorum.bootstrap.servers.
        is_observer = node not in voters and (voters or node in brokers)
        if not is_observer or (ids and epochs[node] >= oldest):
            named[node] = ids
    unstarted = frozenset(
        row["node_id"]
        for row in rows
        if row["leader_epoch"] is None
        and not replica_end(row)
        and (row["node_id"] in voters or row["node_id"] not in brokers)
    )
    controllers = {node for (kind, node) in registrations(history) if kind == "controller"}
    files = {node: (file, ids) for node, file, ids in _configurations(rows) if ids or node in voters}
    unread = frozenset(files) - frozenset(said)
    named |= {node: files[node][1] for node in unread}
    voters = voters.union(*(ids for _, ids in files.values()))
    observers, outside = frozenset(said) - frozenset(named), frozenset(controllers) - voters - unstarted
    return ConfiguredVoters(named, observers, unstarted, outside, files, unread)


def _configurations(rows: Iterable[TableRow]) -> Iterator[tuple[int, str, Ids]]:
    """Node id, file and voters of each captured configuration that says by whom its own node can be elected."""
    for row in rows:
        captured = configuration_of(row)
        if captured is None or captured.problem is not None or captured.voters is None:
            continue
        if captured.roles == ("broker",):  # it asks the voters for their leader, and elects nobody
            continue
        if captured.node_id in (None, row["node_id"]):
            yield row["node_id"], captured.file, frozenset(captured.voters)


def _sets_on_nodes(sets: Mapping[int, Ids]) -> str:
    """`voter 1 on nodes 1 and 11; voters 1, 2 and 3 on node 2`."""
    nodes: dict[Ids, list[int]] = defaultdict(list)
    for node, ids in sorted(sets.items()):
        nodes[ids].append(node)
    return "; ".join(
        f"{nouns('voter', sorted(ids)) if ids else 'no voters'} on {nouns('node', own)}" for ids, own in nodes.items()
    )


def _were(nodes: Collection[int]) -> str:
    return "were" if len(nodes) > 1 else "was"


def condition_text(voters: Collection[int], nodes: Collection[int]) -> str:
    """The condition of a yes at kraft.version 0."""
    ids = ",".join(map(str, sorted(voters)))
    return f"This holds while controller.quorum.voters on {listed(sorted(nodes))} still reads {ids}."
