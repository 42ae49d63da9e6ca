"""A script of Kafka's own commands that brings a state back on another cluster, and what it cannot bring back.

Replicas are assigned as they were: the state comes out the same, each partition's order of preference too, and a
cluster whose brokers have other ids refuses the command instead of placing replicas anywhere. Where it has others,
`any_brokers` leaves the choice to Kafka. Nothing in the script acts on a terminal, whatever things are called, and it
can be run again after it failed.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

from kraft_audit.recovery.restore.lost_state import LostLog
from kraft_audit.recovery.restore.restorable_state import RestorableState, RestorableTopic
from kraft_audit.recovery.restore.restore_commands import LeftOut, RestoreCommands, Restored
from kraft_audit.replay.cluster_state import ClusterState, Moment, missing_text
from kraft_audit.text.output import neutral
from kraft_audit.text.readable import capitalized, duration, listed, plural, when
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

    @property
    def server(self) -> tuple[str | Blank, ...]:
        """The options that say where Kafka is, and how to reach it."""
        place = SERVER if self.bootstrap_server is None else self.bootstrap_server
        return (
            "--bootstrap-server",
            place,
            *(("--command-config", self.command_config) if self.command_config else ()),
        )


@dataclass(frozen=True, slots=True)
class RestoreKit:
    """The commands in their order, the blanks to fill in first, and what no command brings back.

    `wanted` is the state that they bring back, `topics` the topics in it that they create, with the ids that they had;
    of topics that get more partitions these partitions.
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
    """The kit for a state. `known`: topics that the cluster has already; one that was made again is deleted first."""
    known = {name: topic for name, topic in (known or {}).items() if _is_same(topic, state.topics.get(name))}
    wanted, left_out = (state, []) if request.internal_topics else without_internal_topics(state)
    commands = RestoreCommands(wanted, request.server, any_brokers=request.any_brokers)
    restored: list[Restored] = []
    for step in commands.steps(known):
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
    for name in (step.subject for step in restored if step.kind == "partitions"):
        old = known[name].replicas
        added = {number: replicas for number, replicas in wanted.topics[name].replicas.items() if number not in old}
        topics[name] = replace(wanted.topics[name], replicas=added)
    return RestoreKit(tuple(restored), tuple(left_out), tuple(blanks.values()), wanted, topics)


def _is_same(known: RestorableTopic, wanted: RestorableTopic | None) -> bool:
    return wanted is None or wanted.topic_id == known.topic_id


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


def kit_heading(
    title: str, moment: Moment, state: ClusterState, kit: RestoreKit, lost: Sequence[LostLog] | None
) -> Iterator[str]:
    """What the script is for, and how far that is known. `lost`: the logs whose state it is, None for the cluster's."""
    if lost is None:
        yield f"State of cluster {title} after offset {state.offset}: {kit.object_count} objects."
    else:
        yield f"What cluster {title} lacks after offset {state.offset}: {kit.object_count} objects."
        for log in lost:
            yield f"Lost: {log.name}{'' if log.is_complete else ' (INCOMPLETE: records are missing)'}."
        if not lost:
            yield "No captured log goes on otherwise or further."
    yield f"{moment.proof_text(state.offset)}."
    if not state.has_beginning:
        yield "INCOMPLETE: the log begins after offset 0 and no snapshot reaches its start."
    if state.undecoded:
        yield f"INCOMPLETE: {state.undecoded.count} records could not be decoded."
    if state.gaps:
        yield f"INCOMPLETE: {missing_text(state.gaps)}."


FAILURE_TRAP: Final = (
    """trap 'echo "$0: line $LINENO failed: $(sed -n "${LINENO}p" "$0" 2>/dev/null)" >&2; """
    """echo "Nothing after it ran. Mend the cause and run the script again: it may be run twice." >&2' ERR"""
)
"""Shows the line that failed as it stands in the script: with the names of blanks, not what they hold."""
COMMAND_S: Final = 2.5
"""Each command starts a JVM: 2.4 to 2.8 s on two processors, 5 s on busy ones (Kafka's scripts, 3.9.2 and 4.3.1)."""


def script(kit: RestoreKit, heading: Iterable[str], steps: Iterable[str] = ()) -> Iterator[str]:
    """The lines of the script. `steps`: what is to be done by hand after it."""
    yield "#!/usr/bin/env bash"
    yield from (_comment(line) for line in heading)
    if kit.left_out:
        yield "#"
        yield "# Not brought back:"
        yield from (_comment(f"  {each.kind} {each.subject}: {each.reason}") for each in kit.left_out)
    if kit.restored:
        yield "#"
        yield _comment(
            f"{plural(len(kit.restored), 'command')}, each in a JVM of its own: about "
            f"{duration(int(len(kit.restored) * COMMAND_S * 1000))}, twice that on a busy machine. It can be run again."
        )
    else:
        yield "# No command is left to run."
    yield "set -euo pipefail"
    yield from _blanks(kit.blanks)
    programs = {step.command.program for step in kit.restored}
    for tool in TOOLS:
        if tool in programs:
            yield f'command -v {tool} >/dev/null || {tool}() {{ {tool}.sh "$@" || return $?; }}'
    if kit.restored:
        yield FAILURE_TRAP
    done = 0
    for kind, group in groupby(kit.restored, lambda step: step.kind):
        steps_of_kind = list(group)
        yield ""
        yield f"# {capitalized(kind)}"
        span = f"commands {done + 1} to {done + len(steps_of_kind)} of {len(kit.restored)}"
        yield f"echo {shlex.quote(f'{kind}: {span}')} >&2"
        yield from (step.command.text for step in steps_of_kind)
        done += len(steps_of_kind)
    for number, line in enumerate(steps):
        if number == 0:
            yield ""
        yield _comment(line)


def _blanks(blanks: Sequence[Blank]) -> Iterator[str]:
    """Lines that name every blank that is not set, and end the script before its first command where one is not."""
    for blank in blanks:
        meaning = blank.meaning if blank is SERVER else _words(blank.meaning)
        says = shlex.quote(f"{blank.name} is not set: {meaning}")
        yield f'[ -n "${{{blank.name}:-}}" ] || {{ echo {says} >&2; missing=yes; }}'
    if blanks:
        yield '[ -z "${missing:-}" ] || exit 1'


def _words(text: str) -> str:
    """A text without what a shell could take for its own."""
    return " ".join("".join(character if character.isalnum() else " " for character in neutral(text)).split())


def _comment(text: str) -> str:
    return f"# {neutral(text)}".rstrip()
