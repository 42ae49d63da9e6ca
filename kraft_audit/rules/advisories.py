"""Advisories about the releases that nodes may run: told where somebody asks, as a log names release lines only.

A registration says up to which metadata.version the node's software goes. That is the release line (3.9), not the
release (3.9.1): a finding names what to look up on the node, and raises nothing of a line without affected releases.
"""

from __future__ import annotations

import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import groupby
from typing import Any, Final

from kraft_audit.rules.broker_states import broker_states
from kraft_audit.rules.history import ClusterHistory
from kraft_audit.rules.model import Case, Evidence, Scope, Severity, Threshold, Thresholds, undecided
from kraft_audit.rules.registry import rule

Release = tuple[int, ...]
LINE_OF_LEVEL: Final[Mapping[int, Release]] = {
    1: (3, 0), 2: (3, 1), 3: (3, 2), 7: (3, 3), 8: (3, 4), 11: (3, 5), 14: (3, 6), 19: (3, 7), 20: (3, 8), 21: (3, 9),
    25: (4, 0), 27: (4, 1), 29: (4, 2), 30: (4, 3), 33: (4, 4),
}  # fmt: skip
"""The latest production metadata.version of each release line (MetadataVersion of those releases)."""
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
                if last[:2] > line:
                    return f"{_text(line)}.x"
                first_of_line = max(first, (*line, 0))
                return _text(last) if first_of_line == last else f"{_text(first_of_line)} to {_text(last)}"
        return None

    def fixed_of(self, line: Release) -> str:
        """The releases to go to: of the same line where there is one, else the next."""
        own = [release for release in self.fixed if release[:2] == line]
        return _text(min(own or [release for release in self.fixed if release[:2] > line]))


@dataclass(frozen=True, slots=True)
class Node:
    """A registered node and the release line that its registration tells; `row` is the first that tells it so."""

    name: str
    level: int
    row: Mapping[str, Any]

    @property
    def line(self) -> Release | None:
        return LINE_OF_LEVEL.get(self.level)

    def evidence(self) -> Evidence:
        line = "no release line that is known here" if self.line is None else f"release line {_text(self.line)}"
        return Evidence(
            f"{self.name} supports metadata.version up to {self.level}: {line}",
            offset=self.row["from_offset"],
            timestamp_ms=self.row["timestamp_ms"],
        )


@cache
def advisories() -> tuple[Advisory, ...]:
    """All that are known, by CVE."""
    text = files("kraft_audit.rules").joinpath("kafka_advisories.toml").read_text(encoding="utf-8")
    return tuple(
        Advisory(
            cve,
            entry["year"],
            entry["title"],
            tuple((_release(first), _release(last)) for first, last in entry["affected"]),
            tuple(_release(one) for one in entry["fixed"]),
            entry.get("only_where"),
        )
        for cve, entry in sorted(tomllib.loads(text).items())
    )


@rule(
    "KB006",
    "release-with-advisory",
    Severity.LOW,
    Scope.CLUSTER,
    needs=("broker_changes", "controller_changes", "security_changes"),
    thresholds=(Threshold("since_year", 0, "Kafka's advisories of this year and later are told; 0: none is"),),
    asked_by="since_year",
)
def kb006(history: ClusterHistory, thresholds: Thresholds) -> Iterator[Case]:
    nodes = sorted(_nodes(history), key=lambda node: node.name)
    unknown = [node.name for node in nodes if node.line is None]
    for advisory in advisories():
        if advisory.year < float(thresholds["since_year"]):
            continue
        if advisory.only_where is not None and not CONDITIONS[advisory.only_where](history):
            continue
        named: dict[Release, list[Node]] = defaultdict(list)
        for node in nodes:
            if node.line is not None and advisory.releases_of(node.line) is not None:
                named[node.line].append(node)
        if named:
            yield _case(advisory, named)
    if unknown:
        why = "which metadata.version they support is that of no production release known here"
        yield undecided("releases", f"{', '.join(unknown)}: {why}")


def _case(advisory: Advisory, named: Mapping[Release, list[Node]]) -> Case:
    parts = [
        f"{', '.join(node.name for node in nodes)} may run {advisory.releases_of(line)} "
        f"(fixed in {advisory.fixed_of(line)})"
        for line, nodes in sorted(named.items())
    ]
    nodes = [node for some in named.values() for node in some]
    oldest = min(nodes, key=lambda node: int(node.row["from_offset"]))
    return Case(
        advisory.cve,
        f"{advisory.title}: {'; '.join(parts)}",
        from_offset=oldest.row["from_offset"],
        from_ms=oldest.row["timestamp_ms"],
        evidence=tuple(node.evidence() for node in nodes),
    )


def _nodes(history: ClusterHistory) -> Iterator[Node]:
    """Every node that is registered at the end of the log and says which metadata.version it supports."""
    for name, rows in _registrations(history).items():
        level = _level(rows[-1])
        if level is not None:
            # A restart registers anew: the finding keeps its beginning while the release line is the same.
            _, same = next(groupby(reversed(rows), key=_level))
            yield Node(name, level, list(same)[-1])


def _registrations(history: ClusterHistory) -> dict[str, Sequence[dict[str, Any]]]:
    """The states of every broker and controller that is registered at the end of the log, oldest first."""
    return history.known("registrations", lambda: _registered(history))


def _registered(history: ClusterHistory) -> dict[str, Sequence[dict[str, Any]]]:
    controllers: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in sorted(history.rows("controller_changes"), key=lambda row: row["from_offset"]):
        controllers[row["controller_id"]].append(row)
    found: dict[str, Sequence[dict[str, Any]]] = {
        **{f"broker {number}": states.rows for number, states in broker_states(history).items()},
        **{f"controller {number}": rows for number, rows in controllers.items()},
    }
    return {name: rows for name, rows in found.items() if rows[-1]["exists"]}


def _level(row: Mapping[str, Any]) -> int | None:
    levels = {one["name"]: int(one["max_supported_version"]) for one in row["features"]} if row["exists"] else {}
    return levels.get("metadata.version")


def _migrates(history: ClusterHistory) -> bool:
    return any(rows[-1].get("is_migrating_zk_broker") for rows in _registrations(history).values())


def _has_scram_without_tls(history: ClusterHistory) -> bool:
    changes = sorted(history.rows("security_changes"), key=lambda row: row["from_offset"])
    scram = {row["subject"]: row["exists"] for row in changes if row["kind"] == "SCRAM"}
    listeners = [point for rows in _registrations(history).values() for point in rows[-1]["end_points"]]
    return any(scram.values()) and any(point["security_protocol"] == SASL_PLAINTEXT for point in listeners)


CONDITIONS: Final[Mapping[str, Callable[[ClusterHistory], bool]]] = {
    "zookeeper_migration": _migrates,
    "scram_without_tls": _has_scram_without_tls,
}
"""What else must be true of a cluster, where its log tells it."""


def _release(text: str) -> Release:
    return tuple(int(part) for part in text.split("."))


def _text(release: Release) -> str:
    return ".".join(map(str, release))
