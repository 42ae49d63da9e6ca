"""Which voters the nodes of a quorum at kraft.version 0 named, and when.

No record holds a voter set there: each node goes by its own controller.quorum.voters. A leader is elected by the voters
of its own configuration, and its LeaderChange lists them (LeaderState.appendStartOfEpochControlRecords, Kafka 4.3.0):
`voter_history` follows these records. quorum-state repeats in `currentVoters` what a node read at its last start, which
says who voted where no LeaderChange is left, and who will vote where the next leader is not elected yet.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kraft_audit.capture.decoded_records import ControlRecord
from kraft_audit.capture.plan import ClusterPlan, ReplicaPlan
from kraft_audit.capture.survey import LEADER_CHANGE, Survey
from kraft_audit.text.readable import nouns
from kraft_codec.files.configuration import NodeConfiguration
from kraft_codec.schemas import Dialect

VoterIds = tuple[int, ...]
QUORUM_VOTERS: Final = "controller.quorum.voters"


@dataclass(frozen=True, slots=True)
class StaticVoters:
    """The voters that stand in no voter set of a record, each group of ids ascending.

    `declared` is the user's controller.quorum.voters. `led`: by epoch, what its leader named, in a LeaderChange on any
    log or in its quorum-state. `named`: (epoch, voters) of the other quorum-states, in the order of the replicas.
    `configured`: what the captured configurations read, where they agree.
    """

    declared: VoterIds = ()
    led: Mapping[int, VoterIds] = field(default_factory=dict)
    named: tuple[tuple[int, VoterIds], ...] = ()
    configured: VoterIds = ()

    def first_of(self, epoch: int | None, controls: Sequence[ControlRecord]) -> VoterIds:
        """The voters of a log that begins in an epoch, None where it holds no record; empty where nothing names any.

        `controls` are its control records. Where its first leader named them nowhere, the user's word counts, then what
        was named soonest after that epoch.
        """
        own = {record.leader_epoch: ids for record in controls if (ids := listed_voters(record))}
        if epoch is not None and (led := own.get(epoch) or self.led.get(epoch)):
            return led
        if self.declared:
            return self.declared
        known = [*own.items(), *self.led.items(), *self.named]
        later = [entry for entry in known if epoch is not None and entry[0] >= epoch]
        if later:
            return min(later, key=lambda entry: entry[0])[1]
        return max(known, key=lambda entry: entry[0], default=(0, self.configured))[1]


def listed_voters(record: ControlRecord) -> VoterIds:
    """The voters that a LeaderChange lists; empty for another record."""
    if record.name != LEADER_CHANGE:
        return ()
    return tuple(sorted(voter["voter_id"] for voter in record.fields["voters"]))


def declared_voters(defaults: Mapping[str, str]) -> VoterIds:
    """The ids in the user's controller.quorum.voters, which has ids or id@host:port."""
    word = defaults.get(QUORUM_VOTERS)
    return tuple(sorted(int(voter.split("@")[0]) for voter in word.split(","))) if word else ()


def static_voters(survey: Survey, plan: ClusterPlan) -> StaticVoters:
    """What configurations, quorum-states and LeaderChanges of a plan say of voters.

    The sets of the drafts begin with a configured one and change by records, and a quorum-state names the set of its
    own time: there the first LeaderChange says all.
    """
    declared = declared_voters(dict(plan.defaults))
    records = [record for log in survey.earlier_logs for record in log.controls]
    changes = [record for record in (*records, *(own for _, own in survey.controls)) if listed_voters(record)]
    states = list(_named(survey))
    if plan.read_as is not Dialect.KIP853:
        said = (declared, *map(listed_voters, changes), *(state.voters for state in states))
        return StaticVoters(next(filter(None, said), ()))
    led: dict[int, set[VoterIds]] = defaultdict(set)
    for record in changes:
        led[record.leader_epoch].add(listed_voters(record))
    for state in states:
        if state.is_leader:
            led[state.epoch].add(state.voters)
    # Two leaders of one epoch may have had different voters: each log says its own.
    sole = {epoch: next(iter(sets)) for epoch, sets in led.items() if len(sets) == 1}
    named = tuple((state.epoch, state.voters) for state in states if not state.is_leader)
    texts = {replica.plan.configuration for replica in survey.replicas if replica.plan.configuration}
    read = {ids for text in texts if (ids := NodeConfiguration.from_json(text).voters)}
    return StaticVoters(declared, sole, named, tuple(sorted(next(iter(read)))) if len(read) == 1 else ())


class NamedVoters(NamedTuple):
    """The voters by which a node goes since its last start, as its quorum-state has them, beside its epoch."""

    node_id: int | None
    epoch: int
    leader_id: int
    voters: VoterIds

    @property
    def is_leader(self) -> bool:
        """Whether the node leads that epoch."""
        return self.node_id is not None and self.node_id == self.leader_id


def _named(survey: Survey) -> Iterator[NamedVoters]:
    for replica in survey.replicas:
        state = replica.quorum_state
        if replica.is_accepted and state is not None and state.current_voters:
            voters = tuple(sorted(state.current_voters))
            yield NamedVoters(replica.plan.node_id, state.leader_epoch, state.leader_id, voters)


def voters_named_since(
    states: Iterable[NamedVoters],
    voters: Collection[int],
    epoch: int,
    leader_id: int | None,
    declared: VoterIds = (),
) -> VoterIds | None:
    """The voters by whom the next leader is elected, where they are others than `voters`; None where they are not.

    `voters` are those of the newest leader, `epoch` its epoch. The user's word (`declared`) counts first. Others count
    once that leader itself was started again with them, or a node that names them is in a later epoch; and only where
    every voter that was captured, of them and of those before, names the same ones.
    """
    if declared:
        return None if set(declared) == set(voters) else declared
    known = [state for state in states if state.voters]
    named = {state.voters for state in known if state.epoch > epoch or state.node_id == leader_id}
    if len(named) != 1:
        return None
    since = next(iter(named))
    if set(since) == set(voters):
        return None
    voting = {*since, *voters}
    return since if all(state.voters == since for state in known if state.node_id in voting) else None


def files_naming(survey: Survey) -> dict[VoterIds, list[str]]:
    """By configured voters, what names them: LeaderChanges, quorum-state files and configurations, each with nodes.

    Of several captures the earliest is named in which a file says so.
    """
    epochs: dict[VoterIds, set[int]] = defaultdict(set)
    for _, record in survey.controls:
        if ids := listed_voters(record):
            epochs[ids].add(record.leader_epoch)
    files: dict[tuple[str, VoterIds], list[ReplicaPlan]] = defaultdict(list)
    for replica in survey.replicas:
        state, plan = replica.quorum_state, replica.plan
        if replica.is_accepted and state is not None and state.current_voters:
            files["quorum-state", tuple(sorted(state.current_voters))].append(plan)
        if plan.configuration and (read := NodeConfiguration.from_json(plan.configuration).voters):
            files[QUORUM_VOTERS, tuple(sorted(read))].append(plan)
    captures = {replica.plan.capture_number for replica in survey.replicas}
    named: dict[VoterIds, list[str]] = defaultdict(list)
    for ids, own in sorted(epochs.items()):
        named[ids].append(f"LeaderChange of {nouns('epoch', sorted(own))}")
    for (name, ids), plans in sorted(files.items(), key=lambda entry: (entry[0][0] != "quorum-state", entry[0])):
        nodes = sorted({plan.node_id for plan in plans if plan.node_id is not None})
        since = min(plans, key=lambda plan: plan.capture_number).capture
        named[ids].append(f"{name} of {nouns('node', nodes)}" + (f" since {since}" if len(captures) > 1 else ""))
    return named
