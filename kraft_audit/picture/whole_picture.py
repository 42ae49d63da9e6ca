"""Makes the picture of one cluster from its tables and its incidents."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from kraft_audit.incidents.incident import IncidentKind, IncidentState
from kraft_audit.incidents.numbering import numbered_incidents
from kraft_audit.picture.broker_lanes import broker_lanes
from kraft_audit.picture.controller_lanes import controller_lanes
from kraft_audit.picture.drawn_log import (
    DatedEnd,
    committed_part,
    dated_ends,
    drawn_branches,
    log_growth,
    newest_branches,
    stalls,
    told_until,
)
from kraft_audit.picture.happened import (
    Bracket,
    DrawnBranch,
    DrawnLoss,
    Lane,
    Picture,
    Series,
    SeriesKind,
    Stall,
    step_series,
)
from kraft_audit.rules.cluster_history import ClusterHistory, TableRow
from kraft_audit.rules.columns.loss_holders import Grade, losses
from kraft_audit.rules.columns.partition_states import alone, offline, partition_states, under_min_isr
from kraft_audit.text.readable import duration, is_time

LANES_MAX: Final = 24
BRACKETS_MAX: Final = 9
SPAN_MS_MIN: Final = 10
SERIES_CONDITIONS: Final = {
    SeriesKind.AT_ONE_REPLICA: alone,
    SeriesKind.OFFLINE: offline,
    SeriesKind.BLOCKED: under_min_isr,
}
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
    """What a picture shows of tables that are too large for a page's history: of disks it is made by `drawn_apart`.

    `spans` have the columns of SPANS; of what is not committed they say nothing. `log_ends` are ends of the canonical
    log with their append times in ms, as plans found them: they stand for `batches` where the history has no such
    table.
    """

    spans: pa.Table
    losses: tuple[DrawnLoss, ...] = ()
    log_ends: tuple[DatedEnd, ...] = ()


def picture_of(
    history: ClusterHistory, incidents: Sequence[TableRow], apart: DrawnApart | None = None
) -> Picture | None:
    """What happened to a cluster; None where no time of its log is known.

    `incidents` are all rows of that table, in any order. `apart` is given where the history's tables are not whole.
    """
    apart = drawn_apart(history) if apart is None else apart
    dated = dated_ends(history, apart.log_ends)
    branches = drawn_branches(history)
    times = [*(time for _, time in dated), *(time for branch in branches for time in (branch.from_ms, branch.to_ms))]
    times = [time for time in times if time > 0 and is_time(time)]
    if not times or history.end_ms is None:
        return None
    log_to = max(history.end_ms, *(branch.to_ms for branch in branches)) if branches else history.end_ms
    brackets, earlier = _brackets(incidents, log_to)
    log_from = min(min(times), log_to)
    from_ms = log_from if not earlier else max(log_from, min(bracket.from_ms for bracket in brackets))
    from_ms -= 0 if from_ms == log_from else max(1_000, (log_to - from_ms) // 50)
    controllers = tuple(controller_lanes(history, from_ms, log_to))
    told = committed_part(history)
    brokers, left_out = _fitting(list(broker_lanes(told, told_until(history, log_to))), LANES_MAX - len(controllers))
    states = partition_states(told) if told.has("partition_changes") else None
    series = () if states is None else tuple(_of_spans(kind, apart.spans) for kind in SeriesKind)
    shown = newest_branches(tuple(branch for branch in branches if branch.to_ms >= from_ms))
    stalled = stalls(history, incidents, branches, log_to)
    growth = log_growth(history, dated, log_to)
    waiting = growth.times_ms[growth.times_ms >= stalled[-1].from_ms] if stalled and stalled[-1].to_ms is None else ()
    moments = _moments((*controllers, *brokers), series, brackets, shown, stalled) | {log_to, *map(int, waiting)}
    return Picture(
        title=history.title,
        from_ms=from_ms,
        to_ms=max(log_to, from_ms + SPAN_MS_MIN),
        controllers=controllers,
        brokers=brokers,
        lanes_left_out=left_out,
        partitions=None if states is None else int(states.exists[states.last_rows].sum()) if len(states) else 0,
        series=series,
        losses=apart.losses,
        log_end=growth,
        brackets=brackets,
        branches=shown,
        branches_left_out=len(branches) - len(shown),
        stalls=stalled,
        earlier=earlier,
        moments_ms=tuple(sorted(moments)),
    )


def _brackets(incidents: Sequence[TableRow], to_ms: int) -> tuple[tuple[Bracket, ...], int]:
    """The open incidents and the newest others, and how many are not drawn."""
    numbered = numbered_incidents(incidents)
    dated = [
        Bracket(
            number,
            _label(row, to_ms),
            min(row["from_ms"], to_ms),
            row["to_ms"],
            row["state"] == IncidentState.OPEN,
        )
        for number, row in enumerate(numbered, start=1)
        if row["from_ms"] is not None and is_time(row["from_ms"]) and row["kind"] != IncidentKind.DECLARED_RESCUE
    ]
    left_out = len(incidents) - len(numbered)
    dated.sort(key=lambda bracket: (not bracket.is_open, -bracket.from_ms))
    shown = sorted(dated[:BRACKETS_MAX], key=lambda bracket: bracket.from_ms)
    return tuple(shown), len(dated) - len(shown) + left_out


def _label(row: TableRow, to_ms: int) -> str:
    """A few words for a bracket; the page has the sentence."""
    kind = row["kind"]
    if kind == IncidentKind.QUORUM:
        return str(row["headline"]).removeprefix("The ")
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
    # Some of them may have stopped in order: then the sentence says who was lost.
    all_lost = row["is_open"] and "in order" not in row["headline"]
    return f"{who} {words.get(IncidentKind(kind), 'lost' if all_lost else 'out')}"


def _fitting(lanes: list[Lane], places: int) -> tuple[tuple[Lane, ...], int]:
    """The lanes that there is room for: those with most trouble, in their order."""
    places = max(places, LANES_MAX // 2)
    if len(lanes) <= places:
        return tuple(lanes), 0
    worst = sorted(range(len(lanes)), key=lambda place: (-lanes[place].trouble_ms, place))[:places]
    return tuple(lanes[place] for place in sorted(worst)), len(lanes) - places


def drawn_apart(history: ClusterHistory) -> DrawnApart:
    """The same of a history whose tables are whole, as they are where it is read from disks."""
    if not history.has("partition_changes"):
        return DrawnApart(SPANS.empty_table())
    states = partition_states(committed_part(history))
    times, columns = states.timestamp_ms, dict[str, list[Any]](from_ms=[], to_ms=[])
    conditions = {FLAGS[kind]: condition(states) for kind, condition in SERIES_CONDITIONS.items()}
    columns |= {flag: [] for flag in conditions}
    for flag, is_met in conditions.items():
        for episode in states.episodes(is_met):
            columns["from_ms"].append(int(times[episode.start]))
            columns["to_ms"].append(None if episode.end is None else int(times[episode.end]))
            for name in conditions:
                columns[name].append(name == flag)
    counts: dict[int, Counter[bool]] = defaultdict(Counter)
    for loss in losses(history):
        if loss.grade.is_reported:
            counts[loss.event.timestamp_ms][loss.grade is Grade.PROVEN] += 1
    lost = tuple(DrawnLoss(at_ms, by[True], by[False]) for at_ms, by in sorted(counts.items()))
    return DrawnApart(pa.table(columns, SPANS), lost)


def _of_spans(kind: SeriesKind, spans: pa.Table) -> Series:
    own = spans.filter(spans[FLAGS[kind]])
    return step_series(kind, own["from_ms"].to_pylist(), own["to_ms"].to_pylist())


def _moments(
    lanes: Sequence[Lane],
    series: Sequence[Series],
    brackets: Sequence[Bracket],
    branches: Sequence[DrawnBranch],
    stalled: Sequence[Stall],
) -> set[int]:
    moments: set[int] = set()
    for lane in lanes:
        moments |= {time for band in lane.bands for time in (band.from_ms, band.to_ms)}
        moments |= {mark.at_ms for mark in lane.marks}
        moments |= {lane.ends_ms} if lane.ends_ms is not None else set()
    for each in series:
        moments.update(each.times_ms.tolist())
    for branch in branches:
        moments |= {branch.from_ms, branch.to_ms}
    spans = [(each.from_ms, each.to_ms) for each in brackets] + [(each.from_ms, each.to_ms) for each in stalled]
    moments |= {time for span in spans for time in span if time is not None}
    return moments
