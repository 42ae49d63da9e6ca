"""Findings and figures as one file; it appears whole or not at all, as collectors read it at any moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from kraft_audit.report.exports import write_csv, write_parquet
from kraft_audit.report.folders import created_folders
from kraft_audit.report.openmetrics import openmetrics
from kraft_audit.report.source import ClusterInput, Source
from kraft_audit.whole_file import whole_file
from kraft_codec.errors import ChoiceError, InputError


def write_file(source: Source, format_: str, out: Path) -> int:
    """Write csv, parquet or openmetrics to `out`; how many clusters it tells of. Raises InputError."""
    if out.is_dir():
        raise ChoiceError(str(out), "is a folder; a file is needed")
    try:
        with created_folders(out.parent), whole_file(out) as unfinished:
            count = WRITERS[format_](source, unfinished)
    except OSError as problem:
        raise InputError(str(out), f"cannot be written: {problem.strerror or problem}") from None
    return count


def _csv(source: Source, path: Path) -> int:
    return write_csv(source.clusters(), path)


def _parquet(source: Source, path: Path) -> int:
    return write_parquet(source.clusters(), path)


def _openmetrics(source: Source, path: Path) -> int:
    count = 0

    def counted() -> Iterator[ClusterInput]:
        nonlocal count
        for given in source.clusters():
            count += 1
            yield given

    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(openmetrics(counted(), source.as_of()))
    return count


WRITERS: Final[Mapping[str, Callable[[Source, Path], int]]] = {
    "csv": _csv,
    "parquet": _parquet,
    "openmetrics": _openmetrics,
}
