"""Controls by cluster: the state of each now, and over the time of the fleet's axis as a strip.

A strip has a cell for each bucket of the axis. Its height is the worst severity of what was open then, so that it can
be read without colour; a bucket that no log covers is never shown as well.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kraft_audit.rules.cluster_history import TableRow
from kraft_audit.rules.registry import control_of
from kraft_audit.rules.rule_model import CONTROLS, ControlName
from kraft_audit.text.readable import is_time

CELL: Final = 10
HEIGHTS: Final = {"medium": 6, "high": 9, "critical": 12}
"""Pixels of a cell by what was open in it; one in which the control held has a line."""
HELD: Final = 2
ROWS_MAX: Final = 60

TimeSpan = tuple[int, int | None]
"""From when, and until when; None while it lasts."""
Broken = Mapping[ControlName, Mapping[str, Sequence[TimeSpan]]]
"""When each control was broken, by severity: spans that do not overlap."""


@dataclass(frozen=True, slots=True)
class ControlCell:
    """One control of one cluster: a word, a strip as (class, path), and the strip in words."""

    name: str
    word: str
    css: str
    strip: tuple[tuple[str, str], ...]
    in_words: str


def broken_spans(findings: Sequence[TableRow]) -> dict[ControlName, dict[str, tuple[TimeSpan, ...]]]:
    """When findings that break a control were open."""
    spans: dict[ControlName, dict[str, list[TimeSpan]]] = defaultdict(lambda: defaultdict(list))
    for finding in findings:
        control = control_of(finding["rule"])
        begun = finding["from_ms"]
        is_dated = begun is not None and is_time(begun)
        if control is None or not is_dated or finding["severity"] not in HEIGHTS or finding["status"] != "raised":
            continue
        state = finding["state"]
        if state == "open":
            spans[control][finding["severity"]].append((begun, None))
        elif state == "resolved":
            ended = finding["to_ms"] if finding["to_ms"] is not None else finding.get("closed_ms")
            spans[control][finding["severity"]].append((begun, begun if ended is None else ended))
    return {
        control: {severity: _joined(each) for severity, each in by_severity.items()}
        for control, by_severity in spans.items()
    }


def _joined(spans: Sequence[TimeSpan]) -> tuple[TimeSpan, ...]:
    joined: list[TimeSpan] = []
    for begin, end in sorted(spans, key=lambda span: span[0]):
        last = joined[-1] if joined else None
        if last is not None and (last[1] is None or begin <= last[1]):
            joined[-1] = (last[0], None if last[1] is None or end is None else max(last[1], end))
        else:
            joined.append((begin, end))
    return tuple(joined)


def control_cells(
    statuses: Mapping[str, str], broken: Broken, edges: Sequence[int], covered: tuple[int, int] | None, unit: str
) -> tuple[ControlCell, ...]:
    """The row of one cluster. `statuses` by control, as the cluster's page shows them; `covered` is its log's time."""
    return tuple(
        _cell(name, statuses[name.replace("_", " ")], broken.get(name, {}), edges, covered, unit) for name in CONTROLS
    )


def _cell(
    name: ControlName,
    status: str,
    broken: Mapping[str, Sequence[TimeSpan]],
    edges: Sequence[int],
    covered: tuple[int, int] | None,
    unit: str,
) -> ControlCell:
    worst = [_worst(broken, edges[place], edges[place + 1], covered) for place in range(max(0, len(edges) - 1))]
    was_broken = sum(level in HEIGHTS for level in worst)
    word, css = (status, status.replace(" ", "-"))
    if status == "held" and was_broken:
        word, css = "broken before, now held", "was-broken"
    known = sum(level is not None for level in worst)
    in_words = f"{name.replace('_', ' ')}: {word}; broken in {was_broken} of {known} {unit}s that the log covers"
    return ControlCell(name.replace("_", " "), word, css, _strip(worst), in_words)


def _worst(
    broken: Mapping[str, Sequence[TimeSpan]], begin: int, end: int, covered: tuple[int, int] | None
) -> str | None:
    """The worst severity that was open between two moments, `held`, or None where the log does not cover them."""
    for severity in reversed(HEIGHTS):
        if any(start < end and (to is None or to >= begin) for start, to in broken.get(severity, ())):
            return severity if covered is not None and begin <= covered[1] else None
    return "held" if covered is not None and covered[0] < end and begin <= covered[1] else None


def _strip(worst: Sequence[str | None]) -> tuple[tuple[str, str], ...]:
    paths: dict[str, str] = {}
    for place, level in enumerate(worst):
        if level is not None:
            height = HEIGHTS.get(level, HELD)
            path = f"M{place * CELL} {12 - height}h{CELL - 1}v{height}h-{CELL - 1}z"
            paths[level] = paths.get(level, "") + path
    return tuple(sorted(paths.items()))
