"""What `check` says of registered nodes that take no part: controllers without a vote, brokers that are gone."""

from __future__ import annotations

from collections.abc import Iterator

from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.broker_stops import LONG_FENCED_MS, Stop, broker_stops, gone_brokers
from kraft_audit.rules.columns.captures import newest_captures, replica_end
from kraft_audit.rules.columns.kafka_commands import add_controller, broker_server, controller_server, unregister_broker
from kraft_audit.rules.columns.nodes import broker_states
from kraft_audit.rules.columns.partition_states import partition_states
from kraft_audit.rules.columns.quorum_standing import QuorumStanding, Standing
from kraft_audit.rules.columns.voter_sets import current_set
from kraft_audit.text.readable import listed, nouns, when


def observers_that_follow(history: ClusterHistory, standing: QuorumStanding) -> list[int]:
    """Registered controllers that never were voters, and whose captured disks hold what the quorum has committed.

    One that was removed as a voter was removed by somebody. One that led, or that a quorum-state names as a voter,
    votes in some node's eyes: KV017 says so.
    """
    rows = history.newest_rows("controller_changes", "controller_id").values()
    registered = {row["controller_id"] for row in rows if row["exists"]}
    follow = {
        row["node_id"]
        for row in newest_captures(history)
        if standing.committed_to and replica_end(row) >= standing.committed_to
    }
    ever = {voter["voter_id"] for row in history.rows("voter_sets") for voter in row["voters"]}
    ever |= {row["leader_id"] for row in history.rows("leader_epochs")}
    ever |= {voter for row in newest_captures(history) for voter in row["current_voters"] or ()}
    return sorted((registered & follow) - ever)


def membership_sentence(history: ClusterHistory, standing: QuorumStanding) -> str | None:
    """Which controllers follow and do not vote; None where there are none."""
    observers = observers_that_follow(history, standing)
    if not observers:
        return None
    one = len(observers) == 1
    verb, not_vote = ("is", "does not vote") if one else ("are", "do not vote")
    voters = nouns("voter", standing.voters)
    text = f"{nouns('Controller', observers)} {verb} registered and follow{'s' * one}, and {not_vote}"
    return f"{text}: {voters} alone decide{'s' * (len(standing.voters) == 1)}. Never added."


def fenced_for_days(history: ClusterHistory) -> dict[int, int]:
    """Registered brokers that have been fenced for longer than a day while others are in service, and since when."""
    ended_ms, gone = history.end_ms, gone_brokers(history)
    if ended_ms is None or not any(states.is_active[-1] for states in broker_states(history).values()):
        return {}
    away = (stop.absence for stop in broker_stops(history) if stop.absence.to_offset is None)
    return {
        absence.broker_id: absence.from_ms
        for absence in away
        if absence.broker_id not in gone and ended_ms - absence.from_ms > LONG_FENCED_MS
    }


def membership_steps(history: ClusterHistory, standing: QuorumStanding) -> Iterator[str]:
    """The lines that let observers vote, and that unregister brokers whose nodes gave up the role."""
    observers, voters = observers_that_follow(history, standing), current_set(history)
    if standing.standing is not Standing.HEALTHY:
        return
    if observers and voters is not None and voters["kraft_version"]:
        line = add_controller(controller_server(history))
        yield f"If {listed(observers)} should vote, on the host of each, one after the other:   {line}"
    fenced = fenced_for_days(history)
    given_up = [stop.absence.broker_id for stop in broker_stops(history) if stop.stop is Stop.ROLE_CHANGED]
    named = _named_brokers(history) if given_up or fenced else set()
    free = [broker for broker in given_up if broker not in named]
    if free:
        lines = "; ".join(unregister_broker(broker_server(history), broker) for broker in free)
        yield f"No partition names {nouns('broker', free)} any more:   {lines}"
    for broker, since_ms in sorted(fenced.items()):
        text = f"Broker {broker} has been fenced since {when(since_ms)}: start it with its disk"
        line = unregister_broker(broker_server(history), broker)
        yield f"{text}, or move its replicas to others." if broker in named else f"{text}, or if it is gone:   {line}"


def _named_brokers(history: ClusterHistory) -> set[int]:
    """Brokers that a replica list names at the end of the log."""
    named: set[int] = set()
    states = partition_states(history)
    for row in states.last_rows[states.exists[states.last_rows]].tolist():
        named.update(states.nodes("replicas", row))
    return named
