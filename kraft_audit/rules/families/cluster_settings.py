"""Rules about features, access and settings of the whole cluster."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kraft_audit.rules.cluster_history import (
    UNCLEAN_ELECTION,
    ClusterHistory,
    TableRow,
    elr_level,
    feature_level,
    feature_row,
)
from kraft_audit.rules.columns.nodes import registered_nodes
from kraft_audit.rules.columns.server_addresses import broker_server
from kraft_audit.rules.registry import rule
from kraft_audit.rules.rule_model import (
    Case,
    Evidence,
    Severity,
    Thresholds,
    case_at,
    evidence_at,
    threshold,
    undecided,
)
from kraft_audit.text.readable import DAY_MS
from kraft_codec.schemas.releases import (
    ELR_FEATURE,
    FIRST_LEVEL_WITH_ACL_RANGES,
    FIRST_LEVEL_WITH_ELR,
    METADATA_VERSION_FEATURE,
    METADATA_VERSIONS,
    release_text,
)

DENY: Final = (2, "DENY")
ALLOW: Final = (3, "ALLOW")
ALL_OPERATIONS: Final = (2, "ALL")
LITERAL: Final = (3, "LITERAL")
PREFIXED: Final = (4, "PREFIXED")
EVERYONE: Final = "User:*"


@dataclass(frozen=True, slots=True)
class VersionDriftLimits(Thresholds):
    baseline_metadata_version: int = threshold(0, "metadata.version that the fleet agreed on; 0: none")
    newest_metadata_version: int = threshold(0, "level that clusters should reach; 0: what all live nodes support")
    max_age_days: float = threshold(365, "how long a level below the newest may stay")


@rule(
    "KB002",
    control="change_management",
    needs=("feature_changes", "broker_changes", "controller_changes"),
    thresholds=VersionDriftLimits,
)
def kb002(history: ClusterHistory, limits: VersionDriftLimits) -> Iterator[Case]:
    level, row = feature_level(history, METADATA_VERSION_FEATURE), feature_row(history, METADATA_VERSION_FEATURE)
    if level is None or row is None:
        return
    baseline = limits.baseline_metadata_version
    newest = limits.newest_metadata_version or min(
        (node.level for node in registered_nodes(history) if not node.is_ghost), default=0
    )
    fact = (evidence_at(row, f"metadata.version {level}"),)
    if baseline and level != baseline:
        yield case_at(row, METADATA_VERSION_FEATURE, f"{level}, the fleet's baseline is {baseline}", evidence=fact)
    days = ((history.end_ms or row["timestamp_ms"]) - row["timestamp_ms"]) / DAY_MS
    if level < newest and days > limits.max_age_days:
        names = [
            f"{each} ({METADATA_VERSIONS[each]})" if each in METADATA_VERSIONS else each for each in (level, newest)
        ]
        summary = f"{names[0]} for {days:.0f} days; every live node supports {names[1]}"
        advice = f"kafka-features.sh {broker_server(history)} upgrade --feature metadata.version={newest}"
        yield case_at(row, "metadata.version age", summary, evidence=fact, what_to_do=advice)


@rule("KB007", control="change_management", needs=("feature_changes", "broker_changes", "controller_changes"))
def kb007(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    """The controller writes the level at offset 0 of a new log, and never into one that has records without it
    (ActivationRecordsGenerator.recordsForNonEmptyLog)."""
    first = next(iter(history.rows_by_offset("broker_changes")), None)
    if first is None or feature_row(history, METADATA_VERSION_FEATURE) is not None:
        return
    if not history.is_complete or history.unknown_from is not None:
        reason = "no metadata.version was read, and the log was not read from its beginning"
        yield undecided(METADATA_VERSION_FEATURE, reason)
        return
    lines = sorted({node.line for node in registered_nodes(history) if node.line is not None})
    software = (
        f"nodes run {', '.join(map(release_text, lines))}" if lines else "nodes run 3.2 or older, which wrote none"
    )
    summary = f"no record sets it, so that controllers take the log for 3.0-IV1; {software}"
    yield case_at(first, METADATA_VERSION_FEATURE, summary, evidence=(evidence_at(first, "the first registration"),))


@rule("KB004", control="access", needs=("security_changes", "feature_changes"))
def kb004(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    newest = history.newest_rows("security_changes", "kind", "subject")
    acls = {subject: (row, _acl(row)) for (kind, subject), row in newest.items() if kind == "ACL" and row["exists"]}
    level = feature_level(history, METADATA_VERSION_FEATURE)
    denying = [acl for _, acl in acls.values() if _is_of_everyone(acl, DENY) and acl.get("host") == "*"]
    for subject, (row, acl) in sorted(acls.items()):
        if not _is_of_everyone(acl, ALLOW) or any(_covers(denied, acl) for denied in denying):
            continue
        severity, hosts = _hosts(str(acl.get("host")), level)
        if severity is not None:
            summary = f"every user may do everything with {acl.get('resourcename')} from {hosts}"
            fact = Evidence("the ACL", offset=row["from_offset"], after=row["state"])
            yield case_at(row, f"ACL {subject}", summary, severity=severity, evidence=(fact,))


def _acl(row: TableRow) -> Mapping[str, Any]:
    return {key.replace("_", "").lower(): value for key, value in json.loads(row["state"] or "{}").items()}


def _is_of_everyone(acl: Mapping[str, Any], permission: tuple[object, ...]) -> bool:
    is_for_all = acl.get("principal") == EVERYONE and acl.get("operation") in ALL_OPERATIONS
    return is_for_all and acl.get("permissiontype") in permission


def _covers(denying: Mapping[str, Any], allowing: Mapping[str, Any]) -> bool:
    """Whether a DENY takes back all that an ALLOW gives: DENY wins (StandardAuthorizerData)."""
    if denying.get("resourcetype") != allowing.get("resourcetype"):
        return False
    name, wanted = str(denying.get("resourcename")), str(allowing.get("resourcename"))
    if denying.get("patterntype") in LITERAL:
        return name == "*" or (name == wanted and allowing.get("patterntype") in LITERAL)
    return denying.get("patterntype") in PREFIXED and wanted != "*" and wanted.startswith(name)


def _hosts(host: str, level: int | None) -> tuple[Severity | None, str]:
    """Who is meant by an ACL's host; no severity where no client can have it (address ranges came with 4.4)."""
    if host == "*":
        return Severity.HIGH, "any host"
    if "/" in host and level is not None and level < FIRST_LEVEL_WITH_ACL_RANGES:
        return None, host
    try:
        network = ipaddress.ip_network(host, strict=False)
    except ValueError:
        return Severity.MEDIUM, f"host {host}"
    if network.prefixlen == 0:
        return Severity.HIGH, f"any host ({host})"
    if network.is_loopback:
        return Severity.LOW, f"{host}, which is loopback"
    return (
        Severity.MEDIUM,
        f"host {host}" if network.num_addresses == 1 else f"the {network.num_addresses} hosts of {host}",
    )


@rule("KB005", control="durability", needs=("feature_changes", "config_changes"))
def kb005(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    if elr_level(history) == 0:
        return
    writes = {
        node: row
        for (kind, node, name), row in sorted(
            history.newest_rows("config_changes", "resource_type", "resource_name", "name").items()
        )
        if kind == "BROKER" and name == "min.insync.replicas"
    }
    if "" not in writes or not writes[""]["exists"]:
        began = writes.get("") or feature_row(history, ELR_FEATURE) or {}
        summary = "the ELR is on and there is no cluster-level min.insync.replicas"
        yield Case("all brokers", summary, from_offset=began.get("from_offset"))
    for node, row in writes.items():
        if node and row["exists"]:
            summary = f"min.insync.replicas {row['value']} for node {node} alone, with the ELR on"
            yield case_at(row, f"broker {node}", summary, evidence=(evidence_at(row, "the write"),))


@rule("KP011", control="durability", needs=("config_changes",))
def kp011(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    open_writes: dict[tuple[str, str], TableRow] = {}
    for row in history.rows_by_offset("config_changes"):
        if row["name"] != UNCLEAN_ELECTION:
            continue
        key = (row["resource_type"], row["resource_name"])
        if row["exists"] and (row["value"] or "").strip().lower() == "true":
            open_writes.setdefault(key, row)
        elif key in open_writes:
            case = _unclean_case(open_writes.pop(key))
            yield case._replace(to_offset=row["from_offset"], to_ms=row["timestamp_ms"])
    yield from map(_unclean_case, open_writes.values())


def _unclean_case(row: TableRow) -> Case:
    kind = "topic" if row["resource_type"] == "TOPIC" else "broker"
    name = f"{kind} {row['resource_name']}" if row["resource_name"] else "all brokers"
    fact = evidence_at(row, f"{UNCLEAN_ELECTION} := true")
    return case_at(row, name, f"{UNCLEAN_ELECTION} is true for {name}", evidence=(fact,))


@rule("KP018", control="durability", needs=("feature_changes",))
def kp018(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    version = feature_level(history, METADATA_VERSION_FEATURE)
    row = feature_row(history, ELR_FEATURE) or feature_row(history, METADATA_VERSION_FEATURE)
    if row is not None and version is not None and version >= FIRST_LEVEL_WITH_ELR and elr_level(history) == 0:
        yield case_at(row, ELR_FEATURE, f"off, while metadata.version {version} allows it")
