"""What the fleet's page and the rules' pages show: sums over clusters, collected while their pages are written."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from kraft_audit.findings.finding_formats import state_of
from kraft_audit.incidents.incident import IncidentKind
from kraft_audit.report.cluster_page import RANK, ClusterView
from kraft_audit.report.control_state import ControlStatus
from kraft_audit.report.control_strips import ControlSpans, control_cells, control_spans
from kraft_audit.report.fleet_trends import incident_spans, trends
from kraft_audit.report.needed_action import NEEDS, OTHER_NEEDS, needed_action
from kraft_audit.report.partition_exposure import Exposure, partition_minutes, spans
from kraft_audit.report.report_source import ClusterInput
from kraft_audit.rules.cluster_history import TableRow
from kraft_audit.rules.frameworks import requirements
from kraft_audit.rules.registry import rules
from kraft_audit.rules.rule_model import CONTROLS
from kraft_audit.tables.gold import SEVERITIES
from kraft_audit.text.readable import DAY_MS, HOUR_MS, is_time, plural

BUCKETS_MAX: Final = 35
"""The columns of the heat map: five weeks, or as many hours if all logs of the fleet are younger than that."""
LEVELS: Final = 4
CAPTURE_AGE_MAX_MS: Final = 2 * HOUR_MS
"""An older capture has its age as a warning: runs are hourly."""
ROWS_MAX: Final = 60
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

    `incidents` are those that have a number on the cluster's page; `incident_times` (from, to; None while it lasts) are
    of all but stops in order.
    """

    cluster_id: str
    page_id: str
    title: str
    name: str | None
    is_read: bool
    worst: str | None
    open_counts: Mapping[str, int]
    undecided: int
    controls_not_met: tuple[str, ...]
    open_rules: tuple[str, ...]
    partitions_at_risk: int
    partition_count: int | None
    captured_voters: int | None
    voters: int | None
    read_to_ms: int | None
    exposure: Exposure
    incidents: tuple[FleetIncident, ...] = ()
    incident_times: tuple[tuple[int | None, int | None], ...] = ()
    labels: tuple[str, ...] = ()
    need: int | None = None
    answer: str = ""
    metadata_version: str | None = None
    leader: tuple[int, int] | None = None
    lag: int | None = None
    statuses: Mapping[str, ControlStatus] = field(default_factory=dict)
    control_spans: ControlSpans = field(default_factory=dict)

    @property
    def open_incidents(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(incident.headline for incident in self.incidents if incident.is_open))


@dataclass(slots=True)
class Fleet:
    """Sums that grow as clusters are added. A finding is held as two times and a severity, a cluster as one line."""

    lines: list[ClusterLine] = field(default_factory=list)
    rule_counts: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(int)))
    rule_clusters: dict[str, list[tuple[ClusterLine, int]]] = field(default_factory=lambda: defaultdict(list))
    waivers: list[tuple[ClusterLine, TableRow]] = field(default_factory=list)
    expired: list[tuple[ClusterLine, TableRow]] = field(default_factory=list)
    times: dict[str, tuple[list[int], list[int]]] = field(default_factory=lambda: defaultdict(lambda: ([], [])))
    timeless: int = 0

    def add(self, given: ClusterInput, view: ClusterView) -> None:
        """Add one cluster."""
        captured_voters, voters = view.voters_captured
        action = needed_action(given)
        line = ClusterLine(
            cluster_id=view.cluster_id,
            page_id=view.page_id,
            title=view.title,
            name=view.name,
            is_read=view.is_read,
            worst=view.worst,
            open_counts=view.open_counts,
            undecided=view.undecided_total,
            controls_not_met=tuple(c.name for c in view.controls if c.status is ControlStatus.NOT_MET),
            open_rules=tuple(dict.fromkeys(group.rule for group in view.open_groups)),
            partitions_at_risk=view.partitions_at_risk,
            partition_count=view.partition_count,
            captured_voters=captured_voters,
            voters=voters,
            read_to_ms=given.history.seen_ms,
            exposure=view.exposure,
            labels=tuple(view.labels.values()),
            incidents=tuple(_incident(row, number) for number, row in enumerate(view.numbered_incidents, start=1)),
            incident_times=tuple(
                (row["from_ms"], None if row["is_open"] else row["to_ms"] or row["from_ms"])
                for row in (*view.open_incidents, *view.resolved_incidents)
                if row["kind"] != IncidentKind.CLUSTER_STOP
            ),
            need=None if action is None else action.place,
            answer="" if view.headline is None else view.headline.text,
            metadata_version=view.metadata_version,
            leader=_leader(view),
            lag=_lag(view),
            statuses={control.name: control.status for control in view.controls},
            control_spans=control_spans(given.findings),
        )
        self.lines.append(line)
        open_counts: dict[str, int] = defaultdict(int)
        for finding in given.findings:
            if finding["status"] != "clear":
                self._count(line, finding, open_counts)
        for rule, count in open_counts.items():
            self.rule_clusters[rule].append((line, count))

    def _count(self, line: ClusterLine, finding: TableRow, open_counts: dict[str, int]) -> None:
        state = state_of(finding)
        self.rule_counts[finding["rule"]][state] += 1
        if state == "open":
            open_counts[finding["rule"]] += 1
            if finding.get("expired_waiver"):
                self.expired.append((line, finding))
        if state == "waived":
            self.waivers.append((line, finding))
        if state in ("undecided", "waived", "stopped"):
            return
        begun = finding["from_ms"]
        if begun is None or not is_time(begun):
            self.timeless += 1
            return
        ended = finding["to_ms"] if finding["to_ms"] is not None else finding.get("closed_ms")
        if ended is None:
            # A finding that lasts reaches the end of any axis. Of a resolved one without an end, only the start shows.
            ended = begun if state == "closed" else max(begun, (line.exposure.to_ms or begun) + 2 * 366 * DAY_MS)
        starts, ends = self.times[finding["severity"]]
        starts.append(begun)
        ends.append(ended)


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


def needs_in_words(lines: Sequence[ClusterLine]) -> tuple[str, str]:
    """How many clusters need action, and for what: each counts once, for its worst need. Empty where none does."""
    urgent = Counter(line.need for line in lines if line.need is not None)
    if not urgent:
        return "", ""
    count = urgent.total()
    words = [words for _, words in NEEDS] + [OTHER_NEEDS]
    parts = [
        f"{urgent[place]} {words[place].format(has='has' if urgent[place] == 1 else 'have')}"
        for place in sorted(urgent)
    ]
    verb = "needs" if count == 1 else "need"
    return f"{count} of {plural(len(lines), 'cluster')} {verb} action:", f"{', '.join(parts)}."


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


def _matrix(lines: Sequence[ClusterLine], edges: Sequence[int], unit: str) -> list[dict[str, Any]]:
    """The clusters with most trouble, each with its controls."""
    return [
        {"line": line, "cells": control_cells(line.statuses, line.control_spans, edges, line.exposure.covered, unit)}
        for line in lines[:ROWS_MAX]
        if line.is_read
    ]


def fleet_view(fleet: Fleet) -> dict[str, Any]:
    """The fleet's page as values for its template."""
    lines = fleet.lines
    edges, step = _axis(lines)
    unit = "hour" if step == HOUR_MS else "day"
    exposures = [(line, line.exposure.within(edges) if edges else []) for line in lines]
    largest = max((value for _, values in exposures for value in values if value is not None), default=0.0)
    exposures.sort(key=lambda row: _order(row[0]))
    dated = [(incident, line) for line in lines for incident in line.incidents if not incident.is_stop]
    dated.sort(key=lambda row: (not row[0].is_open, -(row[0].from_ms or 0)))
    need, needs = needs_in_words(lines)
    return {
        "need": need,
        "needs": needs,
        "sound": sum(line.need is None and line.is_read and not line.undecided for line in lines),
        "matrix": _matrix([line for line, _ in exposures], edges, unit),
        "matrix_left_out": max(0, len(lines) - ROWS_MAX),
        "controls": [(name.replace("_", " "), " · ".join(map(str, requirements(name)))) for name in CONTROLS],
        "incidents": dated[:FLEET_INCIDENTS_SHOWN],
        "incidents_left_out": max(0, len(dated) - FLEET_INCIDENTS_SHOWN),
        "lines": [
            {"line": line, "strip": strip(values, largest), **_exposure_in_words(values, edges, unit)}
            for line, values in exposures
        ],
        "edges": edges,
        "capture_age_max_ms": CAPTURE_AGE_MAX_MS,
        "step": unit,
        "largest": largest,
        **_trends(fleet, [values for _, values in exposures], edges, unit),
        "severities": SEVERITIES,
        "quiet": sum(line.worst is None and line.is_read for line in lines),
        "logless": sum(not line.is_read for line in lines),
        "rules": sorted(
            ((rule, counts, len(fleet.rule_clusters.get(rule, ()))) for rule, counts in fleet.rule_counts.items()),
            key=lambda row: (-row[2], row[0]),
        ),
        "names": rules(),
        "waivers": sorted(fleet.waivers, key=lambda waived: waived[1]["waiver"]["until"])[:WAIVERS_SHOWN],
        "waived": len(fleet.waivers),
        "expired": sorted(fleet.expired, key=lambda waived: waived[1]["expired_waiver"]["until"])[:WAIVERS_SHOWN],
        "waivers_expired": len(fleet.expired),
        "timeless": fleet.timeless,
        "uncertain": sum(bool(line.undecided) for line in lines),
    }


def _trends(
    fleet: Fleet, exposures: Sequence[Sequence[float | None]], edges: Sequence[int], unit: str
) -> dict[str, Any]:
    findings = {severity: spans(*fleet.times.get(severity, ([], []))) for severity in SEVERITIES}
    times = [each for line in fleet.lines for each in line.incident_times]
    return trends(findings, incident_spans(times, edges[-1] if edges else 0), exposures, edges, unit)


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
    need = len(NEEDS) + 1 if line.need is None else line.need
    worst = -1 if line.worst is None else RANK[line.worst]
    counts = tuple(-line.open_counts[severity] for severity in SEVERITIES)
    return (need, -worst, *counts, line.title)


def _exposure_in_words(values: Sequence[float | None], edges: Sequence[int], unit: str) -> dict[str, Any]:
    """The strip in `words`, for people who cannot see it, and its `sum`; None where nothing is known."""
    known = [(value, edge) for value, edge in zip(values, edges, strict=False) if value is not None]
    if not known:
        return {"words": "not covered by the log", "sum": None}
    exposed = [(value, start) for value, start in known if value > 0]
    covered = plural(len(known), unit)
    if not exposed:
        return {"words": f"no exposure in {covered}", "sum": 0.0}
    worst, at_ms = max(exposed)
    at = f"{datetime.fromtimestamp(at_ms / 1000, UTC):{'%Y-%m-%d' if unit == 'day' else '%Y-%m-%d %H:00'}}"
    words = f"exposed in {len(exposed)} of {covered}, most {partition_minutes(worst)} on {at}"
    return {"words": words, "sum": sum(value for value, _ in exposed)}


def strip(values: Sequence[float | None], largest: float) -> list[tuple[str, str]]:
    """A strip of cells as one path for each level: hundreds of clusters stay small on the page."""
    paths: dict[str, str] = {}
    for place, value in enumerate(values):
        kind = _level(value, largest)
        paths[kind] = f"{paths.get(kind, '')}M{place * 10} 0h9v12h-9z"
    return sorted(paths.items())


def _level(value: float | None, largest: float) -> str:
    """`level0` for no exposure, `level1` to LEVELS by powers of ten below the largest; `none` where it is not known."""
    if value is None:
        return "none"
    if value <= 0 or largest <= 0:
        return "level0"
    share = math.log10(max(value, largest / 1000) / largest) / 3 + 1
    return f"level{min(LEVELS, 1 + int(share * (LEVELS - 0.001)))}"
