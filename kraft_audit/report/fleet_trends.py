"""What the fleet's page shows over time: exposure and open incidents, bucket by bucket."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from kraft_audit.report.partition_exposure import Spans, spans
from kraft_audit.text.readable import is_time

TREND_WIDTH: Final = 900
TREND_HEIGHT: Final = 90


def trends(
    incidents: Spans, exposures: Sequence[Sequence[float | None]], edges: Sequence[int], unit: str
) -> dict[str, Any]:
    """Two plots, labels under their axis, and a row of numbers for each bucket.

    `incidents` count as open at the end of a bucket; `exposures` are the partition-minutes of each cluster by bucket,
    None where its log does not cover one.
    """
    open_incidents = incidents.open_at([edge - 1 for edge in edges[1:]])
    by_bucket = zip(*exposures, strict=True) if exposures else ((),) * len(open_incidents)
    exposure = [sum(value or 0.0 for value in values) for values in by_bucket]
    return {
        "trends": {"exposure": trend_plot(exposure), "incidents": trend_plot(open_incidents)},
        "labels": _labels(edges, unit),
        "trend_rows": list(zip(edges, open_incidents, exposure, strict=False)),
    }


def incident_spans(times: Sequence[tuple[int | None, int | None]], end_ms: int) -> Spans:
    """Incidents from when to when; one that lasts, to the end of the axis. Without a known beginning: none."""
    known = [(begun, ended) for begun, ended in times if begun is not None and is_time(begun)]
    return spans(
        [begun for begun, _ in known], [max(begun, end_ms) if ended is None else ended for begun, ended in known]
    )


def _labels(edges: Sequence[int], unit: str) -> list[tuple[float, str]]:
    """Labels under the axis, as (x of the bucket, text), far enough apart."""
    form = "%d %b" if unit == "day" else "%H:00"
    pitch = TREND_WIDTH / max(1, len(edges) - 1)
    return [
        (round(place * pitch, 2), f"{datetime.fromtimestamp(edges[place] / 1000, UTC):{form}}")
        for place in range(0, len(edges) - 1, max(1, math.ceil(60 / pitch)))
    ]


def trend_plot(values: Sequence[float]) -> dict[str, Any]:
    """A column for each bucket, scaled to the tallest; `width` is that of a column."""
    tallest = max(values, default=0)
    pitch = TREND_WIDTH / max(1, len(values))
    columns = [
        (round(place * pitch, 2), round(TREND_HEIGHT * value / tallest, 2))
        for place, value in enumerate(values)
        if value
    ]
    return {"columns": columns, "tallest": tallest, "height": TREND_HEIGHT, "width": round(pitch - 3, 2)}
