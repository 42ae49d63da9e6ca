"""A file that keeps what each seed gave, so that a sweep that was interrupted goes on where it was."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TypeVar

_Job = TypeVar("_Job", bound=Hashable)
_Result = TypeVar("_Result")
SPAWN = multiprocessing.get_context("spawn")
"""A fork of a process that ran other tests would close their connections once more, and die of it."""


def kept_lines(journal: Path | None) -> list[str]:
    """The lines of an earlier sweep. A line that an interruption cut short is taken away: it is played again."""
    if journal is None or not journal.exists():
        return []
    lines = [line for line in journal.read_text(encoding="utf-8").splitlines(keepends=True) if line.endswith("\n")]
    journal.write_text("".join(lines), encoding="utf-8")
    return lines


def played_in_pool(
    wanted: Iterable[_Job],
    journal: Path | None,
    play: Callable[[_Job], _Result],
    *,
    job_of: Callable[[_Result], _Job],
    read: Callable[[str], _Result],
    written: Callable[[_Result], str],
    jobs_at_a_time: int,
) -> Iterator[_Result]:
    """What was played before and is wanted, then what is played now, each written down before it is given."""
    found = {job_of(result): result for result in map(read, kept_lines(journal))}
    wanted = list(wanted)
    yield from (found[job] for job in wanted if job in found)
    kept_in = journal or Path(os.devnull)
    with ProcessPoolExecutor(os.cpu_count(), SPAWN) as pool, kept_in.open("a", encoding="utf-8") as remaining:
        for result in pool.map(play, [job for job in wanted if job not in found], chunksize=jobs_at_a_time):
            remaining.write(f"{written(result)}\n")
            remaining.flush()
            yield result
