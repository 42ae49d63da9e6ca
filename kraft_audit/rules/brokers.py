"""Rules about brokers, listeners, access and settings of the whole cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from kraft_audit.rules.broker_states import broker_states
from kraft_audit.rules.features import elr_level, feature_level, feature_row
from kraft_audit.rules.history import ClusterHistory
from kraft_audit.rules.model import Case, Evidence, Scope, Severity, Threshold, Thresholds
from kraft_audit.rules.registry import rule

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
PROTOCOLS: Final = {0: "PLAINTEXT", 1: "SSL", 2: "SASL_PLAINTEXT", 3: "SASL_SSL"}
WITHOUT_TLS: Final = {0, 2}
ALLOW: Final = 3
ALL_OPERATIONS: Final = 2


@rule(
    "KB001",
    "broker-flapping",
    Severity.LOW,
    Scope.BROKER,
    needs=("broker_changes",),
    thresholds=(Threshold("max_changes_an_hour", 6, "times fenced or unfenced within any hour"),),
)
def kb001(history: ClusterHistory, thresholds: Thresholds) -> Iterator[Case]:
    limit = int(thresholds["max_changes_an_hour"])
    for broker, states in broker_states(history).items():
        turns = [
            after
            for before, after in zip(states.rows, states.rows[1:], strict=False)
            if before["exists"] and after["exists"] and before["fenced"] != after["fenced"]
        ]
        for first, last in zip(turns, turns[limit:], strict=False):
            if last["timestamp_ms"] - first["timestamp_ms"] <= HOUR_MS:
                yield Case(
                    f"broker {broker}",
                    f"fenced and unfenced more than {limit} times within an hour",
                    from_offset=first["from_offset"],
                    from_ms=first["timestamp_ms"],
                    evidence=tuple(_turn(row) for row in turns[:20]),
                )
                break


def _turn(row: dict[str, Any]) -> Evidence:
    return Evidence(
        "fenced" if row["fenced"] else "unfenced", offset=row["from_offset"], timestamp_ms=row["timestamp_ms"]
    )


@rule(
    "KB002",
    "version-drift",
    Severity.LOW,
    Scope.CLUSTER,
    needs=("feature_changes",),
    thresholds=(
        Threshold("baseline_metadata_version", 0, "metadata.version that the fleet agreed on; 0: none"),
        Threshold("newest_metadata_version", 30, "metadata.version of the newest release in use (30: 4.3)"),
        Threshold("max_age_days", 365, "how long a level below the newest may stay"),
    ),
)
def kb002(history: ClusterHistory, thresholds: Thresholds) -> Iterator[Case]:
    level, row = feature_level(history, "metadata.version"), feature_row(history, "metadata.version")
    if level is None or row is None:
        return
    baseline, newest = int(thresholds["baseline_metadata_version"]), int(thresholds["newest_metadata_version"])
    where = {"from_offset": row["from_offset"], "from_ms": row["timestamp_ms"]}
    fact = (Evidence(f"metadata.version {level}", offset=row["from_offset"], timestamp_ms=row["timestamp_ms"]),)
    if baseline and level != baseline:
        yield Case("metadata.version", f"{level}, the fleet's baseline is {baseline}", evidence=fact, **where)
    days = ((history.end_ms or row["timestamp_ms"]) - row["timestamp_ms"]) / DAY_MS
    if level < newest and days > float(thresholds["max_age_days"]):
        yield Case(
            "metadata.version age", f"{level} for {days:.0f} days, {newest} is the newest", evidence=fact, **where
        )


@rule("KB003", "plaintext-listener", Severity.MEDIUM, Scope.BROKER, needs=("broker_changes", "controller_changes"))
def kb003(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    for table, id_column, kind in (
        ("broker_changes", "broker_id", "broker"),
        ("controller_changes", "controller_id", "controller"),
    ):
        began: dict[int, dict[str, Any]] = {}
        for row in sorted(history.rows(table), key=lambda row: row["from_offset"]):
            if not (row["exists"] and _open_listeners(row)):
                began.pop(row[id_column], None)
            elif row[id_column] not in began:
                began[row[id_column]] = row
        for node, row in sorted(began.items()):
            texts = [
                f"{e['name']} {PROTOCOLS.get(e['security_protocol'], e['security_protocol'])} {e['host']}:{e['port']}"
                for e in _open_listeners(row)
            ]
            yield Case(
                f"{kind} {node}",
                f"listens without TLS: {', '.join(texts)}",
                from_offset=row["from_offset"],
                from_ms=row["timestamp_ms"],
                evidence=(Evidence("its registration", offset=row["from_offset"], timestamp_ms=row["timestamp_ms"]),),
            )


def _open_listeners(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [endpoint for endpoint in row["end_points"] if endpoint["security_protocol"] in WITHOUT_TLS]


@rule("KB004", "open-acl", Severity.HIGH, Scope.CLUSTER, needs=("security_changes",))
def kb004(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    newest: dict[str, dict[str, Any]] = {}
    for row in sorted(history.rows("security_changes"), key=lambda row: row["from_offset"]):
        if row["kind"] == "ACL":
            newest[row["subject"]] = row
    for subject, row in sorted(newest.items()):
        state = {key.replace("_", "").lower(): value for key, value in json.loads(row["state"] or "{}").items()}
        is_open = (
            row["exists"]
            and state.get("principal") == "User:*"
            and state.get("permissiontype") in (ALLOW, "ALLOW")
            and state.get("operation") in (ALL_OPERATIONS, "ALL")
        )
        if is_open:
            name = state.get("resourcename")
            yield Case(
                f"ACL {subject}",
                f"everybody may do everything with {name} from {state.get('host')}",
                from_offset=row["from_offset"],
                from_ms=row["timestamp_ms"],
                evidence=(Evidence("the ACL", offset=row["from_offset"], after=row["state"]),),
            )


@rule("KB005", "loose-min-isr-scope", Severity.LOW, Scope.CLUSTER, needs=("feature_changes", "config_changes"))
def kb005(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    if elr_level(history) == 0:
        return
    newest: dict[str, dict[str, Any]] = {}
    for row in sorted(history.rows("config_changes"), key=lambda row: row["from_offset"]):
        if row["resource_type"] == "BROKER" and row["name"] == "min.insync.replicas":
            newest[row["resource_name"]] = row
    elr = feature_row(history, "eligible.leader.replicas.version")
    if "" not in newest or not newest[""]["exists"]:
        yield Case(
            "all brokers",
            "the ELR is on and there is no cluster-level min.insync.replicas",
            from_offset=newest[""]["from_offset"] if "" in newest else None if elr is None else elr["from_offset"],
        )
    for node, row in sorted(newest.items()):
        if node and row["exists"]:
            yield Case(
                f"broker {node}",
                f"min.insync.replicas {row['value']} for node {node} alone, with the ELR on",
                from_offset=row["from_offset"],
                from_ms=row["timestamp_ms"],
                evidence=(Evidence("the write", offset=row["from_offset"], timestamp_ms=row["timestamp_ms"]),),
            )
