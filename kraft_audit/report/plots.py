"""Plots as numbers: where each mark lies. The templates draw them, so that every text passes the one escaping sink."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from kraft_audit.report.source import Row

HUES: Final = 6
LEVELS: Final = 4


@dataclass(frozen=True, slots=True)
class Mark:
    """A rectangle from x for width (0 to 1000), of a kind that the style sheet knows, and what it says."""

    x: float
    width: float
    kind: str
    title: str = ""


def offsets_scale(start: int, end: int) -> float:
    return 1000.0 / max(1, end - start)


def interval_marks(replicas: Sequence[Any], watermark: Row | None) -> dict[str, Any] | None:
    """Each replica's log as a bar along the offsets, and `low` and `high` across them; None without any log."""
    known = [one for one in replicas if one.row["log_end_offset"] is not None]
    if not known:
        return None
    start = min(_start(one.row) for one in known)
    end = max(one.row["log_end_offset"] for one in known)
    bounds = [] if watermark is None else [watermark["low"], watermark["high"]]
    end = max([end, *(bound for bound in bounds if bound is not None)])
    scale = offsets_scale(start, end)
    bars = [
        {
            "label": f"node {one.node}",
            "role": one.role,
            "bar": Mark((_start(one.row) - start) * scale, max(2.0, _length(one.row) * scale), "log"),
            "end": one.row["log_end_offset"],
        }
        for one in known
    ]
    low, high = (None if bound is None else (bound - start) * scale for bound in (bounds or [None, None]))
    return {"start": start, "end": end, "bars": bars, "low": low, "high": high, "height": 26 * len(bars)}


def _length(row: Row) -> int:
    return int(row["log_end_offset"]) - _start(row)


def _start(row: Row) -> int:
    return int(row["log_start_offset"] or 0)


def voter_columns(sets: Sequence[Row]) -> dict[str, Any]:
    """Voters as rows and voter sets as columns: who was in which set."""
    names: list[tuple[int, str | None]] = []
    for row in sets:
        for voter in [*row["voters"], *row["removed"]]:
            key = (voter["voter_id"], voter["directory_id"])
            if key not in names:
                names.append(key)
    names.sort(key=lambda key: (key[0], key[1] or ""))
    cells = [
        [
            {
                "in": any((v["voter_id"], v["directory_id"]) == key for v in row["voters"]),
                "canonical": row["canonical"],
            }
            for row in sets
        ]
        for key in names
    ]
    return {"names": names, "cells": cells, "sets": list(sets)}


def epoch_marks(epochs: Sequence[Row]) -> dict[str, Any] | None:
    """Canonical leader epochs along the offsets, a hue a leader."""
    known = [row for row in epochs if row["canonical"] and row["from_offset"] is not None]
    if not known:
        return None
    start = min(row["from_offset"] for row in known)
    end = max(row["to_offset"] if row["to_offset"] is not None else row["from_offset"] for row in known)
    scale = offsets_scale(start, end)
    leaders = sorted({row["leader_id"] for row in known if row["leader_id"] is not None})
    marks = []
    for row in known:
        to = row["to_offset"] if row["to_offset"] is not None else row["from_offset"]
        kind = "unknown" if row["leader_id"] is None else f"hue{leaders.index(row['leader_id']) % HUES}"
        marks.append(
            {
                "mark": Mark((row["from_offset"] - start) * scale, max(1.5, (to - row["from_offset"]) * scale), kind),
                "epoch": row["epoch"],
                "leader": row["leader_id"],
            }
        )
    legend = [(leader, f"hue{place % HUES}") for place, leader in enumerate(leaders)]
    return {"start": start, "end": end, "marks": marks, "legend": legend}


def level_of(value: float | None, largest: float) -> int | None:
    """0 for none, 1 to LEVELS by powers of ten below the largest; None stays unknown."""
    if value is None:
        return None
    if value <= 0 or largest <= 0:
        return 0
    share = math.log10(max(value, largest / 1000) / largest) / 3 + 1
    return min(LEVELS, 1 + int(share * (LEVELS - 0.001)))


def strip(values: Sequence[float | None], largest: float) -> list[tuple[str, str]]:
    """A strip of cells as one path for each level: hundreds of clusters stay small on the page."""
    paths: dict[str, list[str]] = {}
    place = 0
    while place < len(values):
        level = level_of(values[place], largest)
        run = 1
        while place + run < len(values) and level_of(values[place + run], largest) == level:
            run += 1
        kind = "none" if level is None else f"level{level}"
        paths.setdefault(kind, []).extend(f"M{one * 10} 0h9v12h-9z" for one in range(place, place + run))
        place += run
    return [(kind, "".join(parts)) for kind, parts in sorted(paths.items())]


def stacked(series: Sequence[tuple[str, Sequence[int]]], width: int = 900, height: int = 150) -> dict[str, Any]:
    """Columns stacked from the first series upward, scaled to the tallest; `pitch` is from column to column."""
    count = max((len(values) for _, values in series), default=0)
    totals = [sum(values[place] for _, values in series) for place in range(count)]
    tallest = max(totals, default=0)
    pitch = min(64.0, width / max(1, count))
    columns = []
    for place in range(count):
        top, parts = float(height), []
        for name, values in series:
            size = height * values[place] / tallest if tallest else 0.0
            top -= size
            if size:
                parts.append({"kind": name, "y": round(top, 2), "height": round(size, 2)})
        columns.append({"x": round(place * pitch, 2), "parts": parts, "total": totals[place]})
    return {"columns": columns, "tallest": tallest, "height": height, "width": round(count * pitch, 2), "pitch": pitch}
