"""Makes the picture of one cluster from its tables and its incidents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kraft_audit.incidents.incident import IncidentKind
from kraft_audit.picture.happened import Bracket, Lane, LogGrowth, Picture, Series, SeriesKind, step_series
from kraft_audit.picture.node_lanes import broker_lanes, controller_lanes
from kraft_audit.rules.cluster_history import ClusterHistory, TableRow
from kraft_audit.rules.columns.captures import newest_watermark
from kraft_audit.rules.columns.log_batches import canonical_log
from kraft_audit.rules.columns.loss_holders import losses
from kraft_audit.rules.columns.partition_states import alone, offline, partition_states, under_min_isr
from kraft_audit.text.readable import duration, is_time

LANES_MAX: Final = 24
BRACKETS_MAX: Final = 9
POINTS_MAX: Final = 400
DATED_TABLES: Final = ("leader_epochs", "voter_sets", "broker_changes", "controller_changes", "feature_changes")
FLAGS: Final = {
    SeriesKind.AT_ONE_REPLICA: "is_last_replica",
    SeriesKind.OFFLINE: "is_offline",
    SeriesKind.BLOCKED: "is_under_min_isr",
}
SPANS: Final = pa.schema(
    [("from_ms", pa.int64()), ("to_ms", pa.int64()), *((name, pa.bool_()) for name in FLAGS.values())]
)
"""Spans of time in which a partition was exposed, and how; `to_ms` is null while that lasts."""


@dataclass(frozen=True, slots=True, eq=False)
class DrawnApart:
    """What a picture shows of tables that are too large for a page's history.

    `spans` (columns of SPANS) and `losses` (time in ms, how many partitions) stand for the rows of `partition_changes`
    that the history lacks. `log_ends` are ends of the canonical log with their append times in ms, as plans found them:
    they stand for `batches` where the history has no such table.
    """

    spans: pa.Table
    losses: tuple[tuple[int, int], ...] = ()
    log_ends: tuple[tuple[int, int], ...] = ()


def picture_of(
    history: ClusterHistory, incidents: Sequence[TableRow], apart: DrawnApart | None = None
) -> Picture | None:
    """What happened to a cluster; None where no time of its log is known.

    `incidents` are rows of that table in the order in which they are numbered. `apart` is given where the history's
    tables are not whole.
    """
    dated = [*_dated(history, () if apart is None else apart.log_ends)]
    times = [time for _, time in dated]
    if not times or history.end_ms is None:
        return None
    log_to = history.end_ms
    brackets, earlier = _brackets(incidents, log_to)
    log_from = min(min(times), log_to)
    from_ms = log_from if not earlier else max(log_from, min(bracket.from_ms for bracket in brackets))
    from_ms -= 0 if from_ms == log_from else max(1_000, (log_to - from_ms) // 50)
    controllers = tuple(controller_lanes(history, from_ms, log_to))
    brokers, left_out = _fitting(list(broker_lanes(history, log_to)), LANES_MAX - len(controllers))
    series, lost, partitions = _partitions(history, apart)
    lanes = (*controllers, *brokers)
    return Picture(
        title=history.title,
        from_ms=from_ms,
        to_ms=max(log_to, from_ms + 1_000),
        controllers=controllers,
        brokers=brokers,
        lanes_left_out=left_out,
        partitions=partitions,
        series=series,
        losses=lost,
        log_end=_log_end(history, dated, log_to),
        brackets=brackets,
        earlier=earlier,
        moments_ms=tuple(sorted(_moments(lanes, series, brackets, log_to))),
    )


def _dated(history: ClusterHistory, log_ends: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """(offset after, time) of what the log itself holds, nothing of what a disk was formatted with or of snapshots."""
    log = canonical_log(history) if history.has("batches") else None
    if log is not None and len(log.row):
        yield from zip((log.last_offset + 1).tolist(), log.timestamp_ms.tolist(), strict=True)
        return
    yield from ((end, time) for end, time in log_ends if time > 0 and is_time(time))
    for name in DATED_TABLES:
        for row in history.rows(name):
            offset, time = row["from_offset"], row["timestamp_ms"]
            is_of_log = row.get("cause") != "snapshot" and row.get("source") in (None, "log")
            if offset is not None and offset >= 0 and is_of_log and time is not None and time > 0 and is_time(time):
                yield offset + 1, time


def _log_end(history: ClusterHistory, dated: Sequence[tuple[int, int]], to_ms: int) -> LogGrowth:
    points = sorted({(offset, time) for offset, time in dated if 0 < time <= to_ms and is_time(time)})
    offsets = np.asarray([offset for offset, _ in points], np.int64)
    times = np.maximum.accumulate(np.asarray([time for _, time in points], np.int64)) if points else offsets
    if len(points) > POINTS_MAX:
        chosen = np.unique(np.linspace(0, len(points) - 1, POINTS_MAX).astype(np.int64))
        offsets, times = offsets[chosen], times[chosen]
    mark = newest_watermark(history)
    return LogGrowth(times, offsets, None if mark is None else mark["low"])


def _brackets(incidents: Sequence[TableRow], to_ms: int) -> tuple[tuple[Bracket, ...], int]:
    """The open incidents and the newest others, and how many are not drawn."""
    dated = [
        Bracket(
            number,
            _label(row, to_ms),
            min(row["from_ms"], to_ms),
            row["to_ms"],
            row["is_open"] and row["kind"] != IncidentKind.CLUSTER_STOP,
            row["kind"] in (IncidentKind.NO_LEADER, IncidentKind.QUORUM),
        )
        for number, row in enumerate(incidents, start=1)
        if row["from_ms"] is not None and is_time(row["from_ms"]) and row["kind"] != IncidentKind.DECLARED_RESCUE
    ]
    dated.sort(key=lambda bracket: (not bracket.is_open, -bracket.from_ms))
    shown = sorted(dated[:BRACKETS_MAX], key=lambda bracket: bracket.from_ms)
    return tuple(shown), len(dated) - len(shown)


def _label(row: TableRow, to_ms: int) -> str:
    """A few words for a bracket; the page has the sentence."""
    kind = row["kind"]
    if kind == IncidentKind.QUORUM:
        return "quorum stopped"
    if kind == IncidentKind.NO_LEADER:
        end = to_ms if row["to_ms"] is None else row["to_ms"]
        return f"no leader {duration(end - row['from_ms'])}"
    nodes = row["subject"].split(", ")
    who = ", ".join(nodes) if len(nodes) <= 3 else f"{len(nodes)} brokers"
    words = {
        IncidentKind.CLUSTER_STOP: "stopped in order",
        IncidentKind.BROKER_STOP: "stopped",
        IncidentKind.BROKER_RESTART: "restarted",
        IncidentKind.BROKER_FREEZE: "cut off",
        IncidentKind.RESTART_LOOP: "in a loop",
        IncidentKind.ROLL_TOO_FAST: "rolled too fast",
        IncidentKind.ROLE_CHANGE: "given up",
    }
    return f"{who} {words.get(IncidentKind(kind), 'lost' if row['is_open'] else 'out')}"


def _fitting(lanes: list[Lane], places: int) -> tuple[tuple[Lane, ...], int]:
    """The lanes that there is room for: those with most trouble, in their order."""
    places = max(places, LANES_MAX // 2)
    if len(lanes) <= places:
        return tuple(lanes), 0
    worst = sorted(range(len(lanes)), key=lambda place: (-lanes[place].trouble_ms, place))[:places]
    return tuple(lanes[place] for place in sorted(worst)), len(lanes) - places


def _partitions(
    history: ClusterHistory, apart: DrawnApart | None
) -> tuple[tuple[Series, ...], tuple[tuple[int, int], ...], int | None]:
    """The counts of exposed partitions, how many may have lost records by time, and how many partitions exist."""
    if apart is not None:
        states = partition_states(history)
        count = int(states.exists[states.last_rows].sum()) if len(states) else 0
        return tuple(_of_spans(kind, apart.spans) for kind in SeriesKind), apart.losses, count
    if not history.has("partition_changes"):
        return (), (), None
    bounds_of: dict[SeriesKind, tuple[list[int], list[int | None]]] = {kind: ([], []) for kind in SeriesKind}
    states = partition_states(history)
    times = states.timestamp_ms
    conditions: dict[SeriesKind, Any] = {
        SeriesKind.AT_ONE_REPLICA: alone,
        SeriesKind.OFFLINE: offline,
        SeriesKind.BLOCKED: under_min_isr,
    }
    for kind, condition in conditions.items():
        starts, ends = bounds_of[kind]
        for episode in states.episodes(condition(states)):
            starts.append(int(times[episode.start]))
            ends.append(None if episode.end is None else int(times[episode.end]))
    lost = Counter(loss.event.timestamp_ms for loss in losses(history) if loss.grade.is_reported)
    count = int(states.exists[states.last_rows].sum()) if len(states) else 0
    series = tuple(step_series(kind, starts, ends) for kind, (starts, ends) in bounds_of.items())
    return series, tuple(sorted(lost.items())), count


def _of_spans(kind: SeriesKind, spans: pa.Table) -> Series:
    own = spans.filter(spans[FLAGS[kind]])
    return step_series(kind, own["from_ms"].to_pylist(), own["to_ms"].to_pylist())


def _moments(lanes: Sequence[Lane], series: Sequence[Series], brackets: Sequence[Bracket], to_ms: int) -> set[int]:
    moments = {to_ms}
    for lane in lanes:
        moments |= {time for band in lane.bands for time in (band.from_ms, band.to_ms)}
        moments |= {mark.at_ms for mark in lane.marks}
        moments |= {lane.ends_ms} if lane.ends_ms is not None else set()
    for each in series:
        moments.update(each.times_ms.tolist())
    for bracket in brackets:
        moments |= {bracket.from_ms, *((bracket.to_ms,) if bracket.to_ms is not None else ())}
    return moments
