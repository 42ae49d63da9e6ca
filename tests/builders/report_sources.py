"""Clusters to report on: real captures, and the same with harm in every text."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import kraft_audit
from kraft_audit.report.report_source import AsOf, ClusterInput, HasPage, PathSource, no_page
from kraft_audit.rules.cluster_history import ClusterHistory
from tests.builders.payloads import PAYLOADS

NOW_MS = 1_795_300_000_000
HARMED_COPIES, STEP = 11, 41
"""So many clusters of each kind, each begun elsewhere, until every payload has been on a page of a cluster."""


@dataclass(slots=True)
class GivenSource:
    """Clusters that are there already."""

    given: list[ClusterInput]

    def as_of(self) -> AsOf:
        return AsOf("given", "a test", NOW_MS, "0", "0")

    def clusters(self, has_page: HasPage = no_page) -> Iterator[ClusterInput]:
        yield from self.given


def path_source(path: Path, **options: Any) -> PathSource:
    histories = ((cluster.history, cluster.permissions()) for cluster in kraft_audit.open(str(path)))
    return PathSource(str(path), histories, now_ms=NOW_MS, **options)


def one_input(path: Path) -> ClusterInput:
    """The one cluster below a path."""
    (given,) = path_source(path).clusters()
    return given


@pytest.fixture(scope="session")
def last_replica(samples: Path) -> ClusterInput:
    """The cluster of which one broker alone holds what was acknowledged."""
    (given,) = path_source(samples / "elr-06-kill-13-last-replica.tgz").clusters()
    return given


@pytest.fixture(scope="session")
def reverted_change(small_corpus: Path) -> ClusterInput:
    """The cluster whose voter change was undone by the next leader."""
    (given,) = path_source(small_corpus / "uncommitted-voter-change").clusters()
    return given


KEPT = {"status", "severity", "state", "rule", "rules", "name", "scope", "record_type", "kind"}


def harmful(given: ClusterInput, first: int = 0) -> ClusterInput:
    """The cluster with a payload wherever somebody else may have written text: names, ids, paths, evidence, waivers.

    The payloads follow each other from the `first` on.
    """
    payloads = itertools.cycle((*PAYLOADS[first:], *PAYLOADS[:first]))

    def harmed(value: Any) -> Any:
        if isinstance(value, str):
            return next(payloads)
        if isinstance(value, list):
            return [harmed(inner) for inner in value]
        if isinstance(value, dict):
            return {key: inner if key in KEPT else harmed(inner) for key, inner in value.items()}
        return value

    history = given.history
    tables = {}
    for name, table in history.tables.items():
        if name in ("batches", "config_changes", "security_changes"):
            tables[name] = table
            continue
        tables[name] = type(table).from_pylist([harmed(row) for row in table.to_pylist()], table.schema)
    findings = [harmed(dict(finding)) for finding in given.findings]
    for number, finding in enumerate(findings):
        if number % 3 == 0 and not finding["is_over"]:
            finding["waiver"] = {"who": next(payloads), "why": next(payloads), "until": next(payloads)}
        if number % 4 == 0:
            finding["expired_waiver"] = {"who": next(payloads), "until": next(payloads)}
    cluster_id = next(payloads)
    cluster_history = ClusterHistory(cluster_id, tables, defaults={}, contradictions=(), snapshot_checks=())
    incidents = [harmed(dict(incident)) for incident in given.incidents]
    lines = tuple(replace(line, text=next(payloads)) for line in given.situation.lines)
    shown = replace(given, incidents=incidents, situation=replace(given.situation, lines=lines))
    return replace(shown, history=cluster_history, findings=findings, name=next(payloads))


@pytest.fixture(scope="session")
def harmed_clusters(last_replica: ClusterInput, reverted_change: ClusterInput) -> list[ClusterInput]:
    """Clusters whose pages show every payload between them."""
    given = []
    for copy in range(HARMED_COPIES):
        first = copy * STEP
        given += [harmful(last_replica, first), harmful(reverted_change, len(PAYLOADS) // 2 + first)]
    return given
