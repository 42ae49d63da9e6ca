"""What the fleet's page and the rules' pages show: sums over clusters, collected while their pages are written."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from kraft_audit.findings.situation import NOT_ASKED, Situation, needs_in_words
from kraft_audit.incidents.incident import IncidentKind
from kraft_audit.report.cluster_page import ClusterView
from kraft_audit.report.cluster_standing import Footing, advice_of, since_of, standing_of, state_in_words
from kraft_audit.report.control_state import ControlStatus
from kraft_audit.report.control_strips import ControlSpans, control_cells, control_spans
from kraft_audit.report.fleet_trends import incident_spans, trends
from kraft_audit.report.partition_exposure import Exposure, partition_minutes
from kraft_audit.report.report_source import ClusterInput
from kraft_audit.rules.cluster_history import TableRow
from kraft_audit.rules.frameworks import requirements
from kraft_audit.rules.rule_model import ACCEPTED, CONTROLS
from kraft_audit.text.readable import DAY_MS, HOUR_MS, plural

BUCKETS_MAX: Final = 35
"""Cells of a strip: five weeks, or as many hours if all logs of the fleet are younger than that."""
AGE_MAX_MS: Final = 2 * HOUR_MS
"""An older log or reading has its age as a warning: runs are hourly."""
FLEET_INCIDENTS_SHOWN: Final = 40
WAIVERS_SHOWN: Final = 100


@dataclass(frozen=True, slots=True)
class FleetIncident:
    """One incident as the fleet's page shows it; `anchor` is where it stands on its cluster's page."""

    incident_id: str
    headline: str
    from_ms: int | None
    is_open: bool
    is_stop: bool
    effects: tuple[str, ...]
    anchor: str


@dataclass(frozen=True, slots=True, eq=False)
class ClusterLine:
    """One cluster on the fleet's page.

    `action` is what it needs now. `state` is one sentence that names its trouble, and `since_ms` is when that began.
    `incidents` are those that have a number on the cluster's page; `incident_times` (from, to; None while it lasts) are
    of all but stops in order.
    """

    cluster_id: str
    page_id: str
    title: str
    name: str | None
    is_read: bool
    standing: Footing
    action: Situation | None
    state: str
    since_ms: int | None
    advice: str
    open_counts: Mapping[str, int]
    undecided: int
    open_rules: tuple[str, ...]
    partitions_at_risk: int
    partition_count: int | None
    captured_voters: int | None
    voters: int | None
    read_to_ms: int | None
    exposure: Exposure
    incidents: tuple[FleetIncident, ...]
    incident_times: tuple[tuple[int | None, int | None], ...]
    labels: Mapping[str, str]
    answer: str
    metadata_version: str | None
    leader: tuple[int, int] | None
    lag: int | None
    statuses: Mapping[str, ControlStatus]
    control_spans: ControlSpans

    @property
    def need(self) -> int | None:
        """The place in NEEDS of what needs action; None where nothing does."""
        return None if self.action is None else self.action.need

    @property
    def open_incidents(self) -> tuple[FleetIncident, ...]:
        return tuple(incident for incident in self.incidents if incident.is_open and not incident.is_stop)

    @property
    def findings_in_words(self) -> str:
        """Open findings by severity, and cases that could not be decided."""
        counts = [f"{count} {severity}" for severity, count in self.open_counts.items() if count]
        undecided = [f"{plural(self.undecided, 'case')} undecided"] if self.undecided else []
        return ", ".join([*counts, *undecided]) or "none open"

    @property
    def quorum_in_words(self) -> str:
        """Who leads, by how much a captured voter lags, and how many voters were captured."""
        led = "no leader known" if self.leader is None else f"node {self.leader[0]} leads epoch {self.leader[1]}"
        lag = f", lag {self.lag:,}" if self.lag else ""
        voters = "voters not known"
        if self.voters is not None:
            voters = f"{self.captured_voters} of {plural(self.voters, 'voter')} captured"
        return f"{led}{lag}; {voters}"


@dataclass(slots=True)
class Fleet:
    """Sums that grow as clusters are added: a cluster is held as one line."""

    lines: list[ClusterLine] = field(default_factory=list)
    rule_counts: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(int)))
    rule_clusters: dict[str, list[tuple[ClusterLine, int]]] = field(default_factory=lambda: defaultdict(list))
    waivers: list[tuple[ClusterLine, TableRow]] = field(default_factory=list)
    expired: list[tuple[ClusterLine, TableRow]] = field(default_factory=list)

    def add(self, given: ClusterInput, view: ClusterView) -> None:
        """Add one cluster."""
        line = _line(given, view)
        self.lines.append(line)
        open_counts: dict[str, int] = defaultdict(int)
        for finding in given.findings:
            if finding["status"] == "clear":
                continue
            state = finding["state"]
            self.rule_counts[finding["rule"]][state] += 1
            if state == "open":
                open_counts[finding["rule"]] += 1
                if finding.get("expired_waiver"):
                    self.expired.append((line, finding))
            if state in ACCEPTED:
                self.waivers.append((line, finding))
        for rule, count in open_counts.items():
            self.rule_clusters[rule].append((line, count))


def _line(given: ClusterInput, view: ClusterView) -> ClusterLine:
    captured_voters, voters = view.voters_captured
    standing = standing_of(view)
    return ClusterLine(
        cluster_id=view.cluster_id,
        page_id=view.page_id,
        title=view.title,
        name=view.name,
        is_read=view.is_read,
        standing=standing,
        action=view.action,
        state=state_in_words(view),
        since_ms=since_of(view),
        advice=advice_of(view),
        open_counts=view.open_counts,
        undecided=view.undecided_total,
        open_rules=tuple(dict.fromkeys(group.rule for group in view.open_groups)),
        partitions_at_risk=view.partitions_at_risk,
        partition_count=view.partition_count,
        captured_voters=captured_voters,
        voters=voters,
        read_to_ms=view.read_to_ms,
        exposure=view.exposure,
        labels=view.labels,
        incidents=tuple(_incident(row, number) for number, row in enumerate(view.numbered_incidents, start=1)),
        incident_times=tuple(
            (row["from_ms"], None if row["is_open"] else row["to_ms"] or row["from_ms"])
            for row in (*view.open_incidents, *view.resolved_incidents)
            if row["kind"] != IncidentKind.CLUSTER_STOP
        ),
        answer="" if view.headline is None else view.headline.text,
        metadata_version=view.metadata_version,
        leader=_leader(view),
        lag=_lag(view),
        statuses={control.name: control.status for control in view.controls},
        control_spans=control_spans(given.findings),
    )


def _incident(row: TableRow, number: int) -> FleetIncident:
    is_stop = row["kind"] == IncidentKind.CLUSTER_STOP
    return FleetIncident(
        row["incident_id"],
        row["headline"],
        row["from_ms"],
        row["is_open"],
        is_stop,
        tuple(row["effects"]),
        f"incident-{number}",
    )


def _leader(view: ClusterView) -> tuple[int, int] | None:
    """(node, epoch) of the newest leader that the canonical log names; None where it names none."""
    last = next((row for row in reversed(view.leader_epochs) if row["canonical"]), None)
    return None if last is None or last["leader_id"] is None else (last["leader_id"], last["epoch"])


def _lag(view: ClusterView) -> int | None:
    """By how many records the captured voter that lags most lags; None where no voter was captured."""
    voters = [row["log_end_offset"] for row in view.replicas if row["role"] == "voter"]
    ends = [end_offset for end_offset in voters if end_offset is not None]
    end = None if view.watermark is None else view.watermark["canonical_end_offset"]
    return None if not ends or end is None else max(0, end - min(ends))


def known_incidents(lines: Sequence[ClusterLine]) -> list[dict[str, Any]]:
    """The incidents of all clusters, those of stops in order left out, as the next report compares them."""
    return [
        {
            "cluster_id": line.cluster_id,
            "page_id": line.page_id,
            "title": line.title,
            "incident_id": incident.incident_id,
            "headline": incident.headline,
            "is_open": incident.is_open,
        }
        for line in lines
        for incident in line.incidents
        if not incident.is_stop
    ]


def fleet_view(fleet: Fleet) -> dict[str, Any]:
    """The fleet's page as values for its template."""
    lines = sorted(fleet.lines, key=_order)
    edges, step = _axis(lines)
    unit = "hour" if step == HOUR_MS else "day"
    exposures = [line.exposure.within(edges) if edges else [] for line in lines]
    dated = [(incident, line) for line in lines for incident in line.incidents if not incident.is_stop]
    dated.sort(key=lambda row: (not row[0].is_open, -(row[0].from_ms or 0)))
    need, needs = needs_in_words([line.need for line in lines])
    times = [each for line in lines for each in line.incident_times]
    return {
        "need": need,
        "needs": needs,
        "standings": [(standing, sum(line.standing is standing for line in lines)) for standing in Footing],
        "controls": [(name, " · ".join(map(str, requirements(name)))) for name in CONTROLS],
        "incidents": dated[:FLEET_INCIDENTS_SHOWN],
        "incidents_left_out": max(0, len(dated) - FLEET_INCIDENTS_SHOWN),
        "rows": [
            {
                "line": line,
                "cells": control_cells(line.statuses, line.control_spans, edges, line.exposure.covered, unit),
                "exposed": _exposure_in_words(values, edges, unit),
            }
            for line, values in zip(lines, exposures, strict=True)
        ],
        "edges": edges,
        "age_max_ms": AGE_MAX_MS,
        "step": unit,
        **trends(incident_spans(times, edges[-1] if edges else 0), exposures, edges, unit),
        "waivers": sorted(fleet.waivers, key=lambda waived: waived[1]["waiver"]["until"])[:WAIVERS_SHOWN],
        "waived": len(fleet.waivers),
        "expired": sorted(fleet.expired, key=lambda waived: waived[1]["expired_waiver"]["until"])[:WAIVERS_SHOWN],
        "waivers_expired": len(fleet.expired),
    }


def _axis(lines: Sequence[ClusterLine]) -> tuple[list[int], int]:
    """The edges of the time axis and the length of its buckets in ms: days, or hours where all logs are young."""
    begun = [line.exposure.from_ms for line in lines if line.exposure.from_ms is not None]
    ended = [_credible_end(line) for line in lines if line.exposure.to_ms is not None]
    if not begun or not ended:
        return [], DAY_MS
    last, first = max(ended), min(begun)
    by_day = any(line.exposure.by_day is not None for line in lines)
    step = DAY_MS if by_day or last - first > BUCKETS_MAX * HOUR_MS else HOUR_MS
    end = (last // step + 1) * step
    start = max((first // step) * step, end - BUCKETS_MAX * step)
    return list(range(start, end + step, step)), step


def _credible_end(line: ClusterLine) -> int:
    """The log's end, at most a day after its capture: a clock that ran ahead must not move other logs off the axis."""
    end = line.exposure.to_ms or 0
    return end if line.read_to_ms is None else min(end, line.read_to_ms + DAY_MS)


def _order(line: ClusterLine) -> tuple[Any, ...]:
    """By blast radius: the worst need first, of equals the one that hits most partitions, then the oldest."""
    urgency = (NOT_ASKED if line.action is None else line.action).urgency
    oldest = math.inf if line.since_ms is None else line.since_ms
    standings = list(Footing)
    return (urgency, standings.index(line.standing), -(line.partition_count or 0), oldest, line.title)


def _exposure_in_words(values: Sequence[float | None], edges: Sequence[int], unit: str) -> str:
    """How long partitions of one cluster were exposed in the time of the axis."""
    known = [(value, edge) for value, edge in zip(values, edges, strict=False) if value is not None]
    if not known:
        return "not covered by the log"
    exposed = [(value, start) for value, start in known if value > 0]
    covered = plural(len(known), unit)
    if not exposed:
        return f"none in {covered}"
    worst, at_ms = max(exposed)
    at = f"{datetime.fromtimestamp(at_ms / 1000, UTC):{'%Y-%m-%d' if unit == 'day' else '%Y-%m-%d %H:00'}}"
    return f"exposed in {len(exposed)} of {covered}, most {partition_minutes(worst)} on {at}"
