"""A script of Kafka's own commands that brings a state back on another cluster, and what it cannot bring back.

Replicas are assigned as they were: the state comes out the same, each partition's order of preference too, and a
cluster whose brokers have other ids refuses the command instead of placing replicas anywhere. Where it has others,
`any_brokers` leaves the choice to Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from kraft_audit.recovery.restore.restorable_state import RestorableState, RestorableTopic
from kraft_audit.recovery.restore.restore_commands import LeftOut, RestoreCommands, Restored
from kraft_audit.text.readable import listed, when
from kraft_audit.text.shell_commands import Blank, UnwritableError
from kraft_codec.schemas.releases import METADATA_VERSION_FEATURE, METADATA_VERSIONS

INTERNAL_TOPICS: Final[Mapping[str, str]] = {
    "__consumer_offsets": "Kafka creates it for the first group; committed offsets are in its records, not here",
    "__transaction_state": "Kafka creates it for the first transaction; transactions are in its records, not here",
    "__share_group_state": "Kafka creates it for the first share group; positions are in its records, not here",
}
"""Left out unless asked for (Topic.INTERNAL_TOPICS, Kafka 4.3)."""
SERVER: Final = Blank("BOOTSTRAP_SERVER", "HOST:PORT of a broker of the cluster to restore to")
TOOLS: Final = ("kafka-topics", "kafka-configs", "kafka-acls", "kafka-reassign-partitions")


@dataclass(frozen=True, slots=True)
class KitRequest:
    """What is asked for. `command_config`: a file with what the tools need to reach the cluster."""

    any_brokers: bool = False
    internal_topics: bool = False
    bootstrap_server: str | None = None
    command_config: str | None = None


@dataclass(frozen=True, slots=True)
class RestoreKit:
    """The commands in their order, the blanks to fill in first, and what no command brings back.

    `wanted` is the state that they bring back, `topics` the topics in it that they create, with the ids that they had.
    """

    restored: tuple[Restored, ...]
    left_out: tuple[LeftOut, ...]
    blanks: tuple[Blank, ...]
    wanted: RestorableState
    topics: Mapping[str, RestorableTopic]

    @property
    def object_count(self) -> int:
        """How many things there are to create or set."""
        return self.wanted.object_count


def restore_kit(
    state: RestorableState, request: KitRequest, known: Mapping[str, RestorableTopic] | None = None
) -> RestoreKit:
    """The kit for a state. `known`: topics that the cluster has already."""
    wanted, left_out = (state, []) if request.internal_topics else without_internal_topics(state)
    server = SERVER if request.bootstrap_server is None else request.bootstrap_server
    config = () if request.command_config is None else ("--command-config", request.command_config)
    commands = RestoreCommands(wanted, ("--bootstrap-server", server, *config), any_brokers=request.any_brokers)
    restored: list[Restored] = []
    for step in commands.steps(known or {}):
        if isinstance(step, LeftOut):
            left_out.append(step)
            continue
        try:
            step.command.text  # noqa: B018  # whether a shell can pass it on
            restored.append(step)
        except UnwritableError as problem:
            left_out.append(LeftOut(step.kind, step.subject, f"no shell can name it: {problem}"))
    left_out += _never_restored(state)
    blanks = {blank.name: blank for step in restored for blank in step.command.blanks}
    created = {step.subject for step in restored if step.kind == "topic"}
    topics = {name: topic for name, topic in wanted.topics.items() if name in created}
    return RestoreKit(tuple(restored), tuple(left_out), tuple(blanks.values()), wanted, topics)


def with_notes(kit: RestoreKit, notes: Iterable[LeftOut]) -> RestoreKit:
    """The kit with what else is left out, before the rest."""
    return replace(kit, left_out=(*notes, *kit.left_out))


def without_internal_topics(state: RestorableState) -> tuple[RestorableState, list[LeftOut]]:
    """The state without Kafka's own topics and their configs, and these named."""
    left = [LeftOut("topic", name, INTERNAL_TOPICS[name]) for name in state.topics if name in INTERNAL_TOPICS]
    topics = {name: topic for name, topic in state.topics.items() if name not in INTERNAL_TOPICS}
    configs = {
        resource: values
        for resource, values in state.configs.items()
        if resource[0] != "TOPIC" or resource[1] not in INTERNAL_TOPICS
    }
    return replace(state, topics=topics, configs=configs), left


def _never_restored(state: RestorableState) -> Iterator[LeftOut]:
    """What only a new start, or whoever it belongs to, can make again."""
    for name, level in sorted(state.features.items()):
        shown = METADATA_VERSIONS.get(level, level) if name == METADATA_VERSION_FEATURE else level
        how = "--release-version" if name == METADATA_VERSION_FEATURE else f"--feature {name}={level}"
        yield LeftOut("feature", f"{name} {shown}", f"kafka-storage format sets it ({how}), later kafka-features does")
    for token in state.tokens.values():
        until = when(int(token["max_timestamp"]))
        reason = f"a token cannot be set, only issued: it was valid until {until} UTC at most"
        yield LeftOut("delegation token", f"of {token['owner']}, renewed by {listed(token['renewers'])}", reason)
    if state.next_producer_id is not None:
        reason = "Kafka counts from 0 again: this matters only where old logs are moved into the new cluster"
        yield LeftOut("producer ids", f"next {state.next_producer_id}", reason)
