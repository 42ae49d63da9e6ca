"""The rule about Kafka's security advisories.

A registration shows the release line (3.9), not the release (3.9.1): advisories name what to look up on the node, and
are reported on request only.
"""

from __future__ import annotations

import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.nodes import RegisteredNode, registered_nodes, registrations
from kraft_audit.rules.registry import rule
from kraft_audit.rules.rule_model import Case, Thresholds, case_at, evidence_at, threshold, undecided
from kraft_codec.schemas.releases import Release, parse_release, release_text

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
