"""A step of the procedure that follows a rescue, and what several steps need to know."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kraft_audit.quorum.static_voters import QUORUM_VOTERS
from kraft_audit.quorum.voter_history import Endpoint
from kraft_audit.recovery.lost_quorum.controller_config import BOOTSTRAP_SERVERS
from kraft_audit.recovery.lost_quorum.rescue import Rescue


@dataclass(frozen=True, slots=True)
class ProcedureStep:
    """A step: what to do, the lines that go into a config file, and the commands, as they can be pasted.

    `is_note`: there is nothing to do at once, but something to know. `is_later`: it waits until the cluster works.
    """

    text: str
    settings: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    is_note: bool = False
    is_later: bool = False

    @property
    def sentences(self) -> tuple[str, str]:
        """What to do, in one sentence, and the rest."""
        parts = _SENTENCE_END.split(self.text, maxsplit=1)
        return parts[0], parts[1] if len(parts) > 1 else ""


_SENTENCE_END: Final = re.compile(r"(?<=[.]) (?=[A-Z])")
TEXTS_LISTED: Final = 8
OWN_NOTE: Final = "the note to this step"
"""Is printed with its number."""
Steps = Iterator[ProcedureStep]


def combined_nodes(rescue: Rescue) -> list[int]:
    """The voters that are brokers in the same process (process.roles=broker,controller)."""
    return sorted({broker for broker, _ in rescue.brokers} & set(rescue.plan.voters))


def is_combined(rescue: Rescue) -> bool:
    """Whether the rescued node goes on as a broker too, with the data that it has."""
    return rescue.node.node_id in combined_nodes(rescue)


def loses_nothing(rescue: Rescue) -> bool:
    """Whether all that can have been committed is in the rescued dir."""
    source = rescue.source
    is_whole = source.unknown_from is None and source.lost_from >= source.lost_to and not rescue.lost_after_cut
    is_whole = is_whole and rescue.plan.is_end_proven
    return is_whole and not source.loses and not source.brings_back


def brokers_left(rescue: Rescue) -> set[int]:
    """The brokers to start: neither lost with their disks nor in the process of the rescued controller."""
    return {broker for broker, _ in rescue.brokers} - {*rescue.lost_brokers.brokers, rescue.node.node_id}


def shortened(texts: Sequence[str]) -> str:
    """The first of many texts, and where the others are."""
    more = len(texts) - TEXTS_LISTED
    return "; ".join(texts[:TEXTS_LISTED]) + (f"; {more} more in rescue.json" if more > 0 else "")


def bootstrap_option(rescue: Rescue) -> str:
    """The option that says where the rescued controller is."""
    return f"--bootstrap-controller {shlex.quote(rescue.node.endpoints[0].place)}"


def controller_option(rescue: Rescue) -> str:
    """The options by which Kafka's tools ask the rescued controller, and log in where it takes no others."""
    client = rescue.config.client
    return f"{bootstrap_option(rescue)}{'' if client is None else f' --command-config {shlex.quote(client)}'}"


def quorum_line(rescue: Rescue, endpoint: Endpoint, others: Mapping[int, Sequence[Endpoint]]) -> str:
    """The line of a config that says where the quorum is, for nodes that use this endpoint's listener.

    `others` are voters of a static quorum beside the rescued node, with what is known of their endpoints.
    """
    node = rescue.node
    if not node.is_static:
        return f"{BOOTSTRAP_SERVERS}={endpoint.place}"
    places = {voter: _place(points, endpoint.name) for voter, points in others.items()}
    places[node.node_id] = endpoint.place
    return f"{QUORUM_VOTERS}={','.join(f'{voter}@{places[voter]}' for voter in sorted(places))}"


def _place(points: Sequence[Endpoint], listener: str) -> str:
    return next((point.place for point in points if point.name == listener), "HOST:PORT")
