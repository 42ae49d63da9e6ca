"""How figures are measured and printed.

A figure is one ratio: ours over a peer's, both taken in turns in the same run, so that what else the machine does hits
both. Of the pairs the median ratio is kept. Work of one thread in this process is measured by its processor time, for
others that run beside it do not count; other processes by the clock. Absolute rates are printed for reading, not for
comparing.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Figure:
    """`ratio` is how many times faster than the peer (above 1 is faster); `asked` what the project wants of it."""

    name: str
    ratio: float
    asked: float
    ours: str
    peer: str


@dataclass(frozen=True, slots=True)
class Skipped:
    """A figure that could not be taken here, and why."""

    name: str
    reason: str


RECORD = "KRAFT_AUDIT_BENCH_RECORD"
"""Names the file to which figures are added, a line of JSON each, beside being printed."""
LEAST_SECONDS = 0.1
"""Shorter work is repeated: a switch to another process in the middle must not decide."""


def seconds(work: Callable[[], object]) -> float:
    """The time of one call by the clock."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def processor_seconds(work: Callable[[], object]) -> float:
    """The processor time that one call takes, of as many as fill LEAST_SECONDS."""
    calls = 0
    started = time.process_time()
    while (took := time.process_time() - started) < LEAST_SECONDS:
        work()
        calls += 1
    return took / calls


def paired(ours: Callable[[], object], peer: Callable[[], object], pairs: int) -> tuple[float, float, float]:
    """(median of peer's time over ours, our best time, the peer's best time) of calls in turns, after one of each.

    Both must be work of one thread in this process.
    """
    ours()
    peer()
    # What this process made before, logs and histories, is no work of either: a collection must not walk through it.
    gc.collect()
    gc.freeze()
    times = [(processor_seconds(ours), processor_seconds(peer)) for _ in range(pairs)]
    ratio = statistics.median(theirs / mine for mine, theirs in times)
    return ratio, min(mine for mine, _ in times), min(theirs for _, theirs in times)


def rate(size_bytes: int, records: int, took_seconds: float) -> str:
    """Bytes and records a second, for people."""
    per_second = f"{size_bytes / took_seconds / 1e6:,.0f} MB/s"
    return f"{per_second}, {records / took_seconds / 1e6:.3g} million records/s" if records else per_second


def print_figures(figures: Sequence[Figure | Skipped]) -> None:
    """One line a figure; recorded too where RECORD says so."""
    record(figures)
    width = max(len(figure.name) for figure in figures)
    for figure in figures:
        if isinstance(figure, Skipped):
            print(f"{figure.name:{width}}  skipped: {figure.reason}")
            continue
        verdict = "reached" if figure.ratio >= figure.asked else "MISSED"
        print(
            f"{figure.name:{width}}  {figure.ratio:8.3g} ×  (asked {figure.asked:g} ×, {verdict})   "
            f"{figure.ours}   against {figure.peer}"
        )


def record(figures: Sequence[Figure | Skipped]) -> None:
    """Adds what was measured to the file that the environment names."""
    file = os.environ.get(RECORD)
    if file is None:
        return
    with Path(file).open("a", encoding="utf-8") as lines:
        for figure in figures:
            if isinstance(figure, Figure):
                lines.write(json.dumps({"name": figure.name, "ratio": figure.ratio, "asked": figure.asked}) + "\n")
