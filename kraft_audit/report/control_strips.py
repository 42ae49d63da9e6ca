"""The controls of one cluster beside its row: the state of each now, and over the time of the fleet's axis as a strip.

A strip has a cell for each bucket of the axis. Its height is the worst severity of what was open then, so that it can
be read without colour; a bucket that no log covers is left empty.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Final

from kraft_audit.findings.urgent_steps import URGENT
from kraft_audit.report.control_state import ControlStatus, is_acknowledged_loss
from kraft_audit.rules.cluster_history import TableRow
from kraft_audit.rules.registry import control_of
from kraft_audit.rules.rule_model import CONTROLS, ControlName
from kraft_audit.text.readable import is_time, plural

CELL: Final = 10
STRIP_HEIGHT: Final = 12
WEAKENING: Final = "medium"
HEIGHTS: Final = {WEAKENING: 6, "high": 9, "critical": STRIP_HEIGHT}
"""Pixels of a cell by what was open in it; one in which the control was met has a line."""
MET_HEIGHT: Final = 2

TimeSpan = tuple[int, int | None]
"""From when, and until when; None while it lasts."""
ControlSpans = Mapping[ControlName, Mapping[str, Sequence[TimeSpan]]]
"""When each control was weakened or not met, by severity: spans that do not overlap."""


@dataclass(frozen=True, slots=True)
class ControlCell:
    """One control of one cluster: its status, a strip as (class, path), and the strip in words."""

    name: str
    status: ControlStatus
    strip: tuple[tuple[str, str], ...]
    in_words: str


def control_spans(findings: Sequence[TableRow]) -> dict[ControlName, dict[str, tuple[TimeSpan, ...]]]:
    """When findings of severity medium and up were open. An acknowledged loss weakens at its own time alone."""
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
        elif is_acknowledged_loss(finding):
            spans[control][WEAKENING].append((begun, begun))
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
    statuses: Mapping[str, ControlStatus],
    spans: ControlSpans,
    edges: Sequence[int],
    covered: tuple[int, int] | None,
    unit: str,
) -> tuple[ControlCell, ...]:
    """The cells of one cluster. `statuses` by control, as its page shows them; `covered` is its log's time."""
    return tuple(
        _cell(name, statuses[name.replace("_", " ")], spans.get(name, {}), edges, covered, unit) for name in CONTROLS
    )


def _cell(
    name: ControlName,
    status: ControlStatus,
    spans: Mapping[str, Sequence[TimeSpan]],
    edges: Sequence[int],
    covered: tuple[int, int] | None,
    unit: str,
) -> ControlCell:
    worst = [_worst(spans, begin, end, covered) for begin, end in pairwise(edges)]
    known = sum(level is not None for level in worst)
    counts = [("not met", sum(level in URGENT for level in worst)), ("weakened", worst.count(WEAKENING))]
    history = " and ".join(f"{word} in {count}" for word, count in counts if count) or "neither not met nor weakened"
    title = name.replace("_", " ")
    in_words = f"{title}: {status.words}; {history} of {plural(known, unit)} that the log covers"
    return ControlCell(title, status, _strip(worst), in_words)


def _worst(
    spans: Mapping[str, Sequence[TimeSpan]], begin: int, end: int, covered: tuple[int, int] | None
) -> str | None:
    """The worst severity that was open between two moments, `met`, or None where the log does not cover them."""
    for severity in reversed(HEIGHTS):
        if any(start < end and (to is None or to >= begin) for start, to in spans.get(severity, ())):
            return severity if covered is not None and begin <= covered[1] else None
    return ControlStatus.MET.value if covered is not None and covered[0] < end and begin <= covered[1] else None


def _strip(worst: Sequence[str | None]) -> tuple[tuple[str, str], ...]:
    """One path for each level, with one box for each run of equal cells: thousands of strips stay small."""
    paths: dict[str, str] = defaultdict(str)
    place = 0
    for level, cells in groupby(worst):
        count = len(list(cells))
        if level is not None:
            height, width = HEIGHTS.get(level, MET_HEIGHT), count * CELL - 1
            paths[level] += f"M{place * CELL} {STRIP_HEIGHT - height}h{width}v{height}h-{width}z"
        place += count
    return tuple(sorted(paths.items()))
