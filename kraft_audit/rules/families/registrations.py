"""Rules about registered brokers and controllers: listeners, restarts, failed log dirs, and who blocks an upgrade."""

from __future__ import annotations

import ipaddress
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np

from kraft_audit.rules.cluster_history import ClusterHistory, TableRow, feature_level
from kraft_audit.rules.columns.captures import audit_command
from kraft_audit.rules.columns.kafka_commands import (
    broker_server,
    controller_server,
    unregister_broker,
    unregister_controller,
)
from kraft_audit.rules.columns.nodes import (
    RegisteredNode,
    broker_states,
    is_ghost_controller,
    registered_nodes,
    registrations,
)
from kraft_audit.rules.columns.storms import storms
from kraft_audit.rules.registry import rule, words_for
from kraft_audit.rules.rule_model import (
    Case,
    Evidence,
    Severity,
    Thresholds,
    case_at,
    evidence_at,
    threshold,
)
from kraft_audit.text.readable import HOUR_MS, listed, nouns
from kraft_codec.schemas.releases import (
    FIRST_LEVEL_THAT_UNREGISTERS_CONTROLLERS,
    METADATA_VERSION_FEATURE,
    METADATA_VERSIONS,
    version_text,
)

PROTOCOLS: Final = {0: "PLAINTEXT", 1: "SSL", 2: "SASL_PLAINTEXT", 3: "SASL_SSL"}
WITHOUT_TLS: Final = {0, 2}
TURNS_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class BrokerFlappingLimits(Thresholds):
    max_fencings_an_hour: int = threshold(3, "times fenced and unfenced without a restart, within any hour")
    max_restarts_an_hour: int = threshold(6, "restarts within any hour")


@rule(
    "KB001",
    control="durability",
    needs=("broker_changes",),
    thresholds=BrokerFlappingLimits,
)
def kb001(history: ClusterHistory, limits: BrokerFlappingLimits) -> Iterator[Case]:
    for broker, states in broker_states(history).items():
        for is_restart, limit, text, words in (
            (False, limits.max_fencings_an_hour, "fenced and unfenced without a restart", {}),
            (True, limits.max_restarts_an_hour, "restarted", words_for("KB001", "restarts")),
        ):
            turns = _restarts(states.rows) if is_restart else _fencings(states.rows)
            times_ms = np.array([row["timestamp_ms"] for row in turns], np.int64)
            for first, last in storms(times_ms, np.zeros_like(times_ms), limit):
                yield _storm_case(history, broker, turns[first : last + 1], text, words)


def _storm_case(
    history: ClusterHistory, broker: int, storm: Sequence[TableRow], text: str, words: Mapping[str, Any]
) -> Case:
    """A storm with its first turn and its last hour; it is over an hour after its last turn."""
    last_ms = int(storm[-1]["timestamp_ms"])
    within = [row for row in storm[1:] if last_ms - row["timestamp_ms"] <= HOUR_MS]
    count = len(within) + (last_ms - storm[0]["timestamp_ms"] <= HOUR_MS)
    facts = tuple(evidence_at(row, text) for row in (storm[0], *within[-TURNS_SHOWN + 1 :]))
    is_over = (history.end_ms or last_ms) - last_ms > HOUR_MS
    return case_at(
        storm[0],
        f"broker {broker}",
        f"{text} {count} times within an hour",
        evidence=facts,
        is_over=is_over,
        to_ms=last_ms + HOUR_MS if is_over else None,
        **words,
    )


def _fencings(rows: Sequence[TableRow]) -> list[TableRow]:
    """Where a broker was fenced, and unfenced again while the same process ran: its heartbeats were late."""
    fencings: list[TableRow] = []
    fenced: TableRow | None = None
    for before, after in pairwise(rows):
        if after["incarnation_id"] != before["incarnation_id"] or not after["exists"]:
            fenced = None
        elif after["fenced"] and not before["fenced"]:
            fenced = after
        elif before["fenced"] and not after["fenced"] and fenced is not None:
            fencings.append(fenced)
            fenced = None
    return fencings


def _restarts(rows: Sequence[TableRow]) -> list[TableRow]:
    """Registrations of another process than the one before (BrokerRegistration.incarnationId)."""
    return [
        after
        for before, after in pairwise(rows)
        if after["exists"] and after["incarnation_id"] != before["incarnation_id"]
    ]


@rule("KB003", control="access", needs=("broker_changes", "controller_changes"))
def kb003(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    for kind in ("broker", "controller"):
        by_node: dict[int, list[TableRow]] = defaultdict(list)
        for row in history.rows_by_offset(f"{kind}_changes"):
            by_node[row[f"{kind}_id"]].append(row)
        for node, rows in sorted(by_node.items()):
            yield from _listener_cases(f"{kind} {node}", rows)


def _listener_cases(name: str, rows: Sequence[TableRow]) -> Iterator[Case]:
    """A case for each time during which a node's worst listener was equally reachable."""
    began: Case | None = None
    for row in rows:
        exposed = sorted(_listeners_without_tls(row), key=lambda listener: -listener[0].rank)
        severity = exposed[0][0] if exposed else None
        if began is not None and began.severity is not severity:
            yield began._replace(to_offset=row["from_offset"], to_ms=row["timestamp_ms"])
            began = None
        if began is None and severity is not None:
            listeners = ", ".join(text for _, text in exposed)
            summary = f"advertises without TLS: {listeners}"
            began = case_at(row, name, summary, severity=severity, evidence=(evidence_at(row, "its registration"),))
    if began is not None:
        yield began


def _listeners_without_tls(row: TableRow) -> Iterator[tuple[Severity, str]]:
    for point in row["end_points"] if row["exists"] else ():
        if point["security_protocol"] in WITHOUT_TLS:
            severity, where = _reach(point["host"])
            address = f"{point['host']}:{point['port']}"
            yield severity, f"{point['name']} {PROTOCOLS[point['security_protocol']]} {address} ({where})"


def _reach(host: str) -> tuple[Severity, str]:
    """Who can reach an advertised address. Of a name only the loopback ones are known."""
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        if host == "localhost" or host.endswith(".localhost"):
            return Severity.LOW, "loopback"
        return Severity.MEDIUM, "a name"
    if address.is_loopback:
        return Severity.LOW, "loopback"
    return (Severity.HIGH, "a public address") if address.is_global else (Severity.MEDIUM, "a private address")


@rule("KB008", control="change_management", needs=("captures", "voter_sets", "controller_changes", "broker_changes"))
def kb008(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    nodes = registered_nodes(history)
    newest = max((node.level for node in nodes if not node.is_ghost), default=0)
    level = feature_level(history, METADATA_VERSION_FEATURE) or 0
    ranged = set()
    for node in nodes:
        ranged.add(node.name)
        blocks = node.level < newest and node.level >= level
        if blocks or (node.is_ghost and node.kind == "controller"):
            yield _blocking_case(history, node, level, newest if blocks else None)
    for (kind, node_id), rows in registrations(history).items():
        name = f"{kind} {node_id}"
        if kind == "controller" and name not in ranged and is_ghost_controller(history, node_id):
            summary = f"{name} is registered, is no voter and was not captured; its registration states no range"
            yield case_at(rows[-1], name, summary, severity=Severity.LOW)


def _blocking_case(history: ClusterHistory, node: RegisteredNode, level: int, newest: int | None) -> Case:
    """A registration that blocks levels up to `newest`; None where it blocks nothing that another node supports."""
    supported = f"metadata.version {version_text(node.lowest_level)} to {version_text(node.level)}"
    state = {
        ("controller", True): "is no voter and was not captured: a ghost where that controller is gone",
        ("controller", False): "is part of the cluster",
        ("broker", True): "is fenced: a ghost where that broker is gone",
        ("broker", False): "is active",
    }[node.kind, node.is_ghost]
    summary = f"its registration supports {supported}; it {state}"
    severity = Severity.LOW
    if newest is not None:
        summary += f"; no upgrade past {version_text(node.level)} passes, the others support {version_text(newest)}"
        severity = Severity.HIGH if node.is_ghost else Severity.MEDIUM
    fact = evidence_at(node.row, f"its registration: {supported}", epoch=node.row["from_epoch"])
    advice = _way_out(history, node, level, newest)
    return case_at(node.row, node.name, summary, severity=severity, evidence=(fact,), what_to_do=advice)


def _way_out(history: ClusterHistory, node: RegisteredNode, level: int, newest: int | None) -> str:
    """What removes the registration (KIP-1312, KAFKA-20295), and the command that prints each step of it."""
    release = METADATA_VERSIONS.get(newest or node.level + 1)
    removal, command = _removal(history, node, level, newest)
    if release is None:
        return removal if command is None else f"{removal}   {command}"
    return (
        f"{removal} All that blocks it, and each command:   {audit_command(history, 'upgrade-check', '--to', release)}"
    )


def _removal(history: ClusterHistory, node: RegisteredNode, level: int, newest: int | None) -> tuple[str, str | None]:
    """What to do, and Kafka's command for it where one is enough."""
    if not node.is_ghost:
        return f"Upgrade the software of {node.name} before you raise metadata.version.", None
    if node.kind == "broker":
        text = f"Start broker {node.node_id} with the new release, or unregister it if it is gone for good."
        return text, unregister_broker(broker_server(history), node.node_id)
    if level >= FIRST_LEVEL_THAT_UNREGISTERS_CONTROLLERS:
        text = f"Unregister controller {node.node_id} if it is gone for good."
        return text, unregister_controller(controller_server(history), node.node_id)
    if newest is None:
        text = (
            f"Nothing now: below metadata.version {version_text(FIRST_LEVEL_THAT_UNREGISTERS_CONTROLLERS)} no command "
            f"removes it. It will block the first upgrade past {version_text(node.level)}; `rules KB008` says "
            "how to pass it."
        )
        return text, None
    text = (
        f"Unregistering is refused at metadata.version {version_text(level)}. If controller {node.node_id} is gone for "
        "good, an empty one with its node.id and the new release has to replace the registration."
    )
    return text, None


@rule("KB010", control="durability", needs=("broker_changes",))
def kb010(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    for broker, states in broker_states(history).items():
        began: Case | None = None
        for before, row in pairwise(states.rows):
            is_registered_again = not row["exists"] or row["incarnation_id"] != before["incarnation_id"]
            if began is not None and is_registered_again:
                yield began._replace(to_offset=row["from_offset"], to_ms=row["timestamp_ms"])
                began = None
            failed = sorted(set(before["log_dirs"]) - set(row["log_dirs"]))
            if began is None and failed and not is_registered_again:
                dirs = nouns("log dir", failed)
                summary = (
                    f"lost {dirs}; {len(row['log_dirs'])} of {len(before['log_dirs'])} left: their replicas are gone"
                )
                change = {"before": listed(before["log_dirs"]), "after": listed(row["log_dirs"])}
                fact = evidence_at(row, "its online log dirs", **change)
                began = case_at(row, f"broker {broker}", summary, evidence=(fact,))
        if began is not None:
            yield began


@dataclass(frozen=True, slots=True)
class StartsLimits(Thresholds):
    min_starts: int = threshold(3, "how often controllers must have started before the silence of all brokers counts")


@rule(
    "KB011",
    control="durability",
    needs=("broker_changes", "controller_changes", "leader_epochs"),
    thresholds=StartsLimits,
)
def kb011(history: ClusterHistory, limits: StartsLimits) -> Iterator[Case]:
    if broker_states(history) or not history.is_complete or history.unknown_from is not None:
        return
    starts = _controller_starts(history)
    if len(starts) < limits.min_starts:
        return
    first, last = starts[0], starts[-1]
    minutes = (last.timestamp_ms - first.timestamp_ms) / 60_000 if last.timestamp_ms and first.timestamp_ms else 0
    summary = (
        f"no broker has registered since the first start: {len(starts)} starts of controllers in {minutes:.0f} min, "
        "and no client was ever served"
    )
    yield Case("brokers", summary, first.offset, from_ms=first.timestamp_ms, evidence=tuple(starts[:TURNS_SHOWN]))


def _controller_starts(history: ClusterHistory) -> list[Evidence]:
    """Starts of the controller that started most: its new processes, or its epochs while it was the only voter."""
    by_controller: dict[int, list[Evidence]] = defaultdict(list)
    seen: set[str] = set()
    for row in history.rows_by_offset("controller_changes"):
        if row["exists"] and row["incarnation_id"] not in seen:
            seen.add(row["incarnation_id"])
            text = f"controller {row['controller_id']} registered a new process"
            by_controller[row["controller_id"]].append(evidence_at(row, text))
    for controller_id, epochs in _sole_epochs(history).items():
        by_controller[controller_id] = max(by_controller[controller_id], epochs, key=len)
    return max(by_controller.values(), key=len, default=[])


def _sole_epochs(history: ClusterHistory) -> dict[int, list[Evidence]]:
    """The epochs that each controller led as the only voter: no other node can end one, so each is a start."""
    evidence_of: dict[int, list[Evidence]] = defaultdict(list)
    for row in history.rows("leader_epochs"):
        leader = row["leader_id"]
        if row["canonical"] and leader is not None and row["voters"] == [leader]:
            text = f"node {leader}, the only voter, began epoch {row['epoch']}"
            offset, time_ms = row["leader_change_offset"], row["timestamp_ms"]
            evidence_of[leader].append(Evidence(text, offset=offset, epoch=row["epoch"], timestamp_ms=time_ms))
    return evidence_of
