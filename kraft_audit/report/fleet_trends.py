"""What the fleet's page shows over time: open findings, open incidents and exposure, bucket by bucket."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from kraft_audit.report.partition_exposure import Spans, spans
from kraft_audit.text.readable import is_time

TREND_WIDTH: Final = 900
TREND_HEIGHT: Final = 150
FINDINGS_PLOT, INCIDENTS_PLOT, EXPOSURE_PLOT = "findings", "incidents", "exposure"


def trends(
    findings: Mapping[str, Spans],
    incidents: Spans,
    exposures: Sequence[Sequence[float | None]],
    edges: Sequence[int],
    unit: str,
) -> dict[str, Any]:
    """The plots by what they show, labels under their axis, and a row of numbers for each bucket.

    `findings` by severity, and `incidents`, count as open at the end of a bucket; `exposures` are the partition-minutes
    of each cluster by bucket, None where its log does not cover one.
    """
    moments = [edge - 1 for edge in edges[1:]]
    open_findings = {severity: of_severity.open_at(moments) for severity, of_severity in findings.items()}
    open_incidents = incidents.open_at(moments)
    by_bucket = zip(*exposures, strict=True) if exposures else ((),) * len(moments)
    exposure = [sum(value or 0.0 for value in values) for values in by_bucket]
    plots = {
        FINDINGS_PLOT: trend_plot(open_findings),
        INCIDENTS_PLOT: trend_plot({"low": open_incidents}),
        EXPOSURE_PLOT: trend_plot({"level4": exposure}),
    }
    return {
        "trends": plots,
        "labels": _labels(edges, unit, plots[FINDINGS_PLOT]["pitch"]),
        "trend_rows": list(
            zip(edges, zip(*open_findings.values(), strict=True), open_incidents, exposure, strict=False)
        ),
    }


def incident_spans(times: Sequence[tuple[int | None, int | None]], end_ms: int) -> Spans:
    """Incidents from when to when; one that lasts, to the end of the axis. Without a known beginning: none."""
    known = [(begun, ended) for begun, ended in times if begun is not None and is_time(begun)]
    return spans(
        [begun for begun, _ in known], [max(begun, end_ms) if ended is None else ended for begun, ended in known]
    )


def _labels(edges: Sequence[int], unit: str, pitch: float) -> list[tuple[float, str]]:
    """Labels under the axis, as (x of the bucket, text), far enough apart."""
    form = "%d %b" if unit == "day" else "%H:00"
    return [
        (round(place * pitch, 2), f"{datetime.fromtimestamp(edges[place] / 1000, UTC):{form}}")
        for place in range(0, len(edges) - 1, max(1, math.ceil(60 / pitch)))
    ]


def trend_plot(counts: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Columns of stacked values, the first kind on top, scaled to the tallest; `pitch` is from column to column."""
    totals = [sum(column) for column in zip(*counts.values(), strict=True)]
    tallest = max(totals, default=0)
    pitch = TREND_WIDTH / max(1, len(totals))
    columns = []
    for place in range(len(totals)):
        top, parts = float(TREND_HEIGHT), []
        for kind in reversed(list(counts)):
            if count := counts[kind][place]:
                height = TREND_HEIGHT * count / tallest
                top -= height
                parts.append({"kind": kind, "y": round(top, 2), "height": round(height, 2)})
        columns.append({"x": round(place * pitch, 2), "parts": parts})
    width = round(len(totals) * pitch, 2)
    return {"columns": columns, "tallest": tallest, "height": TREND_HEIGHT, "width": width, "pitch": pitch}
