"""What the fleet's page and the rules' pages show: sums over clusters, gathered while their pages are written."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from kraft_audit.report.cluster import RANK, SEVERITIES, ClusterView
from kraft_audit.report.exposure import DAY_MS, HOUR_MS, Exposure, partition_minutes, spans
from kraft_audit.report.plots import stacked, strip
from kraft_audit.report.source import ClusterInput, Row, state_of
from kraft_audit.rules.registry import rules
from kraft_audit.times import is_time

BUCKETS_MAX: Final = 35
"""The columns of the heat map: five weeks, or as many hours where the whole fleet's logs are younger than that."""


@dataclass(frozen=True, slots=True, eq=False)
class ClusterLine:
    """One cluster on the fleet's page."""

    cluster_id: str
    name: str | None
    page: str
    is_read: bool
    worst: str | None
    open_counts: Mapping[str, int]
    undecided: int
    waived: int
    broken_controls: tuple[str, ...]
    undecided_controls: tuple[str, ...]
    open_rules: tuple[str, ...]
    partitions_at_risk: int
    partition_count: int | None
    captured_voters: int | None
    voters: int | None
    low: int | None
    end_offset: int | None
    read_to_ms: int | None
    exposure: Exposure


@dataclass(slots=True)
class Fleet:
    """Sums that grow as clusters are added; a finding is kept as two times and a severity, a cluster as one line."""

    lines: list[ClusterLine] = field(default_factory=list)
    rule_counts: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(int)))
    rule_clusters: dict[str, list[tuple[ClusterLine, int]]] = field(default_factory=lambda: defaultdict(list))
    waivers: list[tuple[ClusterLine, Row]] = field(default_factory=list)
    expired: list[tuple[ClusterLine, Row]] = field(default_factory=list)
    times: dict[str, tuple[list[int], list[int]]] = field(default_factory=lambda: defaultdict(lambda: ([], [])))
    timeless: int = 0

    def add(self, given: ClusterInput, view: ClusterView, page: str) -> None:
        """Take one cluster in."""
        watermark = view.watermark
        line = ClusterLine(
            cluster_id=view.cluster_id,
            name=view.name,
            page=page,
            is_read=view.is_read,
            worst=view.worst,
            open_counts=view.open_counts,
            undecided=view.undecided_total,
            waived=len(view.waived),
            broken_controls=tuple(one.name for one in view.controls if one.status == "broken"),
            undecided_controls=tuple(one.name for one in view.controls if one.status == "undecided"),
            open_rules=tuple(dict.fromkeys(group.rule for group in view.open_groups)),
            partitions_at_risk=view.partitions_at_risk,
            partition_count=view.partition_count,
            captured_voters=None if watermark is None else len(watermark["captured_voters"]),
            voters=None if watermark is None else len(watermark["voters"]),
            low=None if watermark is None else watermark["low"],
            end_offset=None if watermark is None else watermark["canonical_end_offset"],
            read_to_ms=given.history.seen_ms,
            exposure=view.exposure,
        )
        self.lines.append(line)
        opened: dict[str, int] = defaultdict(int)
        for finding in given.findings:
            self._count(line, finding, opened)
        for rule, count in opened.items():
            self.rule_clusters[rule].append((line, count))

    def _count(self, line: ClusterLine, finding: Row, opened: dict[str, int]) -> None:
        if finding["status"] == "clear":
            return
        state = state_of(finding)
        self.rule_counts[finding["rule"]][state] += 1
        if state == "open":
            opened[finding["rule"]] += 1
        if state == "waived":
            self.waivers.append((line, finding))
        if state == "open" and finding.get("expired_waiver"):
            self.expired.append((line, finding))
        if state in ("undecided", "waived"):
            return
        if finding["from_ms"] is None or not is_time(finding["from_ms"]):
            self.timeless += 1
            return
        starts, ends = self.times[finding["severity"]]
        starts.append(finding["from_ms"])
        # what lasts, lasts to the end of any axis; what is over without a known end is shown for its first moment
        lasting = line.exposure.to_ms or finding["from_ms"]
        ends.append(_end_of(state, finding, lasting))


def _end_of(state: str, finding: Row, lasting: int) -> int:
    ended = finding["to_ms"] if finding["to_ms"] is not None else finding.get("closed_ms")
    if ended is not None:
        return int(ended)
    return int(finding["from_ms"]) if state == "closed" else max(int(finding["from_ms"]), lasting + 2 * 366 * DAY_MS)


def axis(lines: Sequence[ClusterLine], *, days_only: bool = False) -> tuple[list[int], int]:
    """The edges of the time axis and the length of its buckets: days, or hours where all logs are young."""
    begun = [line.exposure.from_ms for line in lines if line.exposure.from_ms is not None]
    ended = [_credible_end(line) for line in lines if line.exposure.to_ms is not None]
    if not begun or not ended:
        return [], DAY_MS
    last, first = max(ended), min(begun)
    step = DAY_MS if days_only or last - first > BUCKETS_MAX * HOUR_MS else HOUR_MS
    end = (last // step + 1) * step
    start = max((first // step) * step, end - BUCKETS_MAX * step)
    return list(range(start, end + step, step)), step


def _credible_end(line: ClusterLine) -> int:
    """A clock that ran ahead of the capture by more than a day must not push everybody else off the axis."""
    end = line.exposure.to_ms or 0
    return end if line.read_to_ms is None else min(end, line.read_to_ms + DAY_MS)


def fleet_view(fleet: Fleet, *, days_only: bool = False) -> dict[str, Any]:
    """The fleet's page as values for its template."""
    edges, step = axis(fleet.lines, days_only=days_only)
    moments = edges[1:]
    series = []
    for severity in SEVERITIES:
        starts, ends = fleet.times.get(severity, ([], []))
        series.append((severity, spans(starts, ends).open_at([moment - 1 for moment in moments])))
    rows = [(line, line.exposure.within(edges) if edges else []) for line in fleet.lines]
    largest = max((value for _, values in rows for value in values if value is not None), default=0.0)
    ordered = sorted(rows, key=lambda row: _order(row[0]))
    trend = stacked([(name, values) for name, values in reversed(series)])
    return {
        "lines": [
            {"line": line, "strip": strip(values, largest), "said": _said(values, edges, step), "sum": _sum(values)}
            for line, values in ordered
        ],
        "edges": edges,
        "step": "hour" if step == HOUR_MS else "day",
        "largest": largest,
        "trend": trend,
        "labels": _labels(edges, step, trend["pitch"]),
        "trend_rows": [(start, [values[place] for _, values in series]) for place, start in enumerate(edges[:-1])],
        "severities": SEVERITIES,
        "clusters_by_worst": {one: sum(line.worst == one for line in fleet.lines) for one in SEVERITIES},
        "open_by_severity": {one: sum(line.open_counts[one] for line in fleet.lines) for one in SEVERITIES},
        "quiet": sum(line.worst is None and line.is_read for line in fleet.lines),
        "logless": sum(not line.is_read for line in fleet.lines),
        "rules": sorted(
            ((rule, counts, len(fleet.rule_clusters.get(rule, ()))) for rule, counts in fleet.rule_counts.items()),
            key=lambda row: (-row[2], row[0]),
        ),
        "names": rules(),
        "waivers": sorted(fleet.waivers, key=lambda one: one[1]["waiver"]["until"]),
        "expired": fleet.expired,
        "timeless": fleet.timeless,
        "uncertain": sum(bool(line.undecided) for line in fleet.lines),
    }


def _order(line: ClusterLine) -> tuple[Any, ...]:
    worst = -1 if line.worst is None else RANK[line.worst]
    counts = tuple(-line.open_counts[severity] for severity in SEVERITIES)
    return (-worst, *counts, line.name or line.cluster_id)


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _said(values: Sequence[float | None], edges: Sequence[int], step: int) -> str:
    """The strip in words, for those who cannot see it."""
    known = [(value, edges[place]) for place, value in enumerate(values) if value is not None]
    word = "hour" if step == HOUR_MS else "day"
    if not known:
        return "the log does not tell of this time"
    exposed = [one for one in known if one[0] > 0]
    if not exposed:
        return f"no exposure in {len(known)} {word}{'s' if len(known) != 1 else ''}"
    worst, at = max(exposed)
    moment = datetime.fromtimestamp(at / 1000, UTC)
    when = f"{moment:%Y-%m-%d}" if step == DAY_MS else f"{moment:%Y-%m-%d %H:00}"
    of_known = f"{len(known)} {word}{'s' if len(known) != 1 else ''}"
    return f"exposed in {len(exposed)} of {of_known}, most {partition_minutes(worst)} on {when}"


def _labels(edges: Sequence[int], step: int, pitch: float) -> list[tuple[float, str]]:
    """Labels under the axis that do not touch: (x of the bucket, text)."""
    if len(edges) < 2:
        return []
    count = len(edges) - 1
    every = max(1, math.ceil(60 / pitch))
    form = "%d %b" if step == DAY_MS else "%H:00"
    return [
        (round(place * pitch, 2), f"{datetime.fromtimestamp(edges[place] / 1000, UTC):{form}}")
        for place in range(0, count, every)
    ]
