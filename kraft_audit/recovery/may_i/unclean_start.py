"""Partitions that a broker may lead uncleanly once it starts, and what comes before its start.

Where unclean election is on, the first replica that is back leads (PartitionChangeBuilder.electLeader, Kafka 4.3). A
member of the ELR that crashed leaves the ELR when it registers, so even the last leader is then elected uncleanly, and
the others truncate what its disk lacks.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from typing import Final

import numpy as np

from kraft_audit.recovery.may_i.permission import Permission, Question, Verdict
from kraft_audit.rules.cluster_history import ClusterHistory, unclean_election_enabled
from kraft_audit.rules.columns.frame import holders
from kraft_audit.rules.columns.kafka_commands import controller_server, no_unclean_election
from kraft_audit.rules.columns.nodes import absences
from kraft_audit.rules.columns.partition_states import partition_states
from kraft_audit.rules.columns.sure_copies import last_leader
from kraft_audit.text.readable import and_more, any_of, listed

UNCLEAN_TOPICS_NAMED: Final = 3
UNCLEAN_IS_ON: Final = "Unclean election is on for"
"""How the reason begins where unclean election alone stands against a start."""


def led_uncleanly(history: ClusterHistory, broker: int, running: Collection[int]) -> list[int]:
    """Rows of partitions that the broker may lead uncleanly once it is back, while who may hold everything is away.

    A member of ISR or ELR that stopped in order leads cleanly.
    """
    states = partition_states(history)
    is_named = states.in_order(holders(states.changes.lists["replicas"], (broker,)))
    left_cleanly = any(a.broker_id == broker and a.to_offset is None and a.is_clean for a in absences(history))
    risky = []
    for row in np.flatnonzero(is_named & states.is_last & states.exists & (states.leader == -1)).tolist():
        eligible = {*states.nodes("isr", row), *states.nodes("elr", row)}
        away = eligible - {broker, *running}
        is_clean = not away or (broker in eligible and left_cleanly)
        if not is_clean and unclean_election_enabled(history, states.topic(row)):
            risky.append(row)
    return risky


def no_unclean_elections(history: ClusterHistory, topics: Sequence[str]) -> tuple[str, list[str]]:
    """What makes partitions of these topics wait for a replica that may lead: what to do, and the commands."""
    shown = listed(topics[:UNCLEAN_TOPICS_NAMED]) + and_more(len(topics) - UNCLEAN_TOPICS_NAMED)
    server = controller_server(history)
    text = f"Turn unclean election off for {shown} before any start, and copy the disks"
    return text, [no_unclean_election(server, topic) for topic in topics]


def unclean_start(
    question: Question, history: ClusterHistory, risky: Sequence[int], names: str, running: tuple[int, ...]
) -> Permission:
    """Undecided. Unclean election goes off first; then who led last starts, or who may hold everything.

    `risky` are rows of `led_uncleanly`, `names` are their partitions.
    """
    states, broker = partition_states(history), question.node_id
    members: set[int] = set()
    leaders: set[int] = set()
    for row in risky:
        members |= {*states.nodes("isr", row), *states.nodes("elr", row)} - question.gone
        leaders.add(led if (led := last_leader(history, row)) is not None else -1)
    reason = (
        f"{UNCLEAN_IS_ON} {names}, and no leader is left there: broker {broker} may be elected without "
        "records that others hold."
    )
    topics = dict.fromkeys(states.topic(row) for row in risky)
    text, (command, *others) = no_unclean_elections(history, list(topics))
    if leaders == {broker}:
        then = f"Then start {broker}, which led last: of those that crashed it has most"
    elif len(leaders) == 1 and leaders <= members:
        then = f"Then start {any_of(sorted(leaders))} first, which led last"
    else:
        then = f"Then start {any_of(sorted(members))} first" if members else "No member of ISR or ELR is left"
    steps = (f"{text}: {command}", *others, f"{then}: kraft-audit recover-plan {shlex.quote(question.path)}")
    return Permission(Verdict.UNDECIDED, reason, steps, running)
