"""Rules about features, access and settings of the whole cluster, and Kafka's security advisories for its releases.

A registration shows the release line (3.9), not the release (3.9.1): advisories name what to look up on the node, and
are reported on request only.
"""

from __future__ import annotations

import ipaddress
import json
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final

from kraft_audit.rules.cluster_history import (
    UNCLEAN_ELECTION,
    ClusterHistory,
    TableRow,
    elr_level,
    feature_level,
    feature_row,
)
from kraft_audit.rules.columns.kafka_commands import broker_server
from kraft_audit.rules.columns.nodes import RegisteredNode, registered_nodes, registrations
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
    Release,
    parse_release,
    release_text,
    version_text,
)

DENY_VALUES: Final = (2, "DENY")
ALLOW_VALUES: Final = (3, "ALLOW")
ALL_OPERATIONS: Final = (2, "ALL")
LITERAL_VALUES: Final = (3, "LITERAL")
PREFIXED_VALUES: Final = (4, "PREFIXED")
"""Each as the number that an ACL's record has, and as Kafka names it."""
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
        summary = f"{version_text(level)} for {days:.0f} days; every live node supports {version_text(newest)}"
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
    denying = [acl for _, acl in acls.values() if _is_of_everyone(acl, DENY_VALUES) and acl.get("host") == "*"]
    for subject, (row, acl) in sorted(acls.items()):
        if not _is_of_everyone(acl, ALLOW_VALUES) or any(_covers(denied, acl) for denied in denying):
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
    if denying.get("patterntype") in LITERAL_VALUES:
        return name == "*" or (name == wanted and allowing.get("patterntype") in LITERAL_VALUES)
    return denying.get("patterntype") in PREFIXED_VALUES and wanted != "*" and wanted.startswith(name)


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


SASL_PLAINTEXT: Final = 2


@dataclass(frozen=True, slots=True)
class Advisory:
    """One entry of kafka_advisories.toml: `affected` are first and last releases of ranges."""

    cve: str
    year: int
    title: str
    affected: tuple[tuple[Release, Release], ...]
    fixed: tuple[Release, ...]
    only_where: str | None

    def releases_of(self, line: Release) -> str | None:
        """Which releases of a line it names, in words; None where it names none."""
        for first, last in self.affected:
            if first[:2] <= line <= last[:2]:
                first_of_line = max(first, (*line, 0))
                if last[:2] > line:
                    return f"{release_text(line)}.x"
                to_last = "" if first_of_line == last else f" to {release_text(last)}"
                return release_text(first_of_line) + to_last
        return None

    def fixed_of(self, line: Release) -> str:
        """The releases to go to: of the same line where there is one, else the next."""
        own = [release for release in self.fixed if release[:2] == line]
        return release_text(min(own or [release for release in self.fixed if release[:2] > line]))


@cache
def advisories() -> tuple[Advisory, ...]:
    """All that are known, by CVE."""
    text = files("kraft_audit.rules").joinpath("kafka_advisories.toml").read_text(encoding="utf-8")
    return tuple(
        Advisory(
            cve,
            entry["year"],
            entry["title"],
            tuple((parse_release(first), parse_release(last)) for first, last in entry["affected"]),
            tuple(map(parse_release, entry["fixed"])),
            entry.get("only_where"),
        )
        for cve, entry in sorted(tomllib.loads(text).items())
    )


@dataclass(frozen=True, slots=True)
class AdvisoryLimits(Thresholds):
    since_year: float = threshold(0, "report Kafka's advisories of this year and later; 0: none")


@rule(
    "KB006",
    control="access",
    needs=("broker_changes", "controller_changes", "security_changes"),
    thresholds=AdvisoryLimits,
    asked_by="since_year",
)
def kb006(history: ClusterHistory, limits: AdvisoryLimits) -> Iterator[Case]:
    nodes = sorted(registered_nodes(history), key=lambda node: node.name)
    unknown = [node.name for node in nodes if node.line is None]
    for advisory in advisories():
        if advisory.year < limits.since_year:
            continue
        if advisory.only_where is not None and not CONDITIONS[advisory.only_where](history):
            continue
        nodes_by_line: dict[Release, list[RegisteredNode]] = defaultdict(list)
        for node in nodes:
            if node.line is not None and advisory.releases_of(node.line) is not None:
                nodes_by_line[node.line].append(node)
        if nodes_by_line:
            yield _advisory_case(advisory, nodes_by_line)
    if unknown:
        why = "which metadata.version they support is that of no production release known here"
        yield undecided("releases", f"{', '.join(unknown)}: {why}")


def _advisory_case(advisory: Advisory, nodes_by_line: Mapping[Release, list[RegisteredNode]]) -> Case:
    parts = [
        f"{', '.join(node.name for node in nodes)} may run {advisory.releases_of(line)} "
        f"(fixed in {advisory.fixed_of(line)})"
        for line, nodes in sorted(nodes_by_line.items())
    ]
    nodes = [node for nodes_of_line in nodes_by_line.values() for node in nodes_of_line]
    oldest = min(nodes, key=lambda node: int(node.row["from_offset"]))
    facts = tuple(
        evidence_at(
            node.row, f"{node.name} supports metadata.version up to {node.level}: release line {release_text(line)}"
        )
        for line, nodes_of_line in nodes_by_line.items()
        for node in nodes_of_line
    )
    return case_at(oldest.row, advisory.cve, f"{advisory.title}: {'; '.join(parts)}", evidence=facts)


def _migrates(history: ClusterHistory) -> bool:
    return any(rows[-1].get("is_migrating_zk_broker") for rows in registrations(history).values())


def _has_scram_without_tls(history: ClusterHistory) -> bool:
    newest = history.newest_rows("security_changes", "kind", "subject")
    has_scram = any(row["exists"] for (kind, _), row in newest.items() if kind == "SCRAM")
    listeners = [point for rows in registrations(history).values() for point in rows[-1]["end_points"]]
    return has_scram and any(point["security_protocol"] == SASL_PLAINTEXT for point in listeners)


CONDITIONS: Final[Mapping[str, Callable[[ClusterHistory], bool]]] = {
    "zookeeper_migration": _migrates,
    "scram_without_tls": _has_scram_without_tls,
}
"""What else must be true of a cluster, where its log shows it."""
