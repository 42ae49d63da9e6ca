"""Parts of a table that the gate looks at one after the other, as conditions in SQL.

What must be grouped or sorted is held in memory where DataFusion does it, and a lake holds more than that. Rows that
are compared with each other are in one part: those of a cluster, and of a large one those of an offset.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from kraft_audit.spark.lake import DeltaLake, Lake, sql_text
from kraft_codec.contract import Table

SHARE_ROWS: Final = 1_000_000
"""Rows of a part: some 200 MB while their keys are grouped."""
SLICE_OFFSETS: Final = 1 << 16
OFFSETS: Final = ("offset", "base_offset", "from_offset")
EVERYTHING: Final = "TRUE"


def shares_of(lake: Lake, table: Table, rows: str, *beside: str) -> Iterator[str]:
    """Conditions that part `rows` (a query in brackets that also reads the tables `beside`) by cluster and offset."""
    offset = next((name for name in OFFSETS if name in table.key), None)
    for share, count in _cluster_shares(lake, table, rows, *beside):
        if count > SHARE_ROWS and offset is not None:
            yield from (f"{share} AND {part}" for part in _slices(lake, table, rows, share, offset, *beside))
        else:
            yield share


def cluster_shares_of(lake: Lake, table: Table, rows: str, *beside: str) -> Iterator[str]:
    """Conditions that part `rows` by cluster alone."""
    return (share for share, _ in _cluster_shares(lake, table, rows, *beside))


def _cluster_shares(lake: Lake, table: Table, rows: str, *beside: str) -> Iterator[tuple[str, int]]:
    """Some clusters together, or a large one: the condition, and how many rows it has."""
    if not isinstance(lake, DeltaLake) or "cluster_id" not in table.key:
        yield EVERYTHING, 0  # Spark groups and sorts on disk; other keys are of small tables
        return
    sql = f"SELECT cluster_id, count(*) AS n FROM {rows} AS every GROUP BY cluster_id ORDER BY cluster_id"  # noqa: S608
    clusters, count = list[str](), 0
    found = lake.query(sql, table.name, *beside).to_pylist()
    if sum(row["n"] for row in found) <= SHARE_ROWS:
        yield EVERYTHING, 0
        return
    for row in found:
        if row["cluster_id"] is None:
            yield "cluster_id IS NULL", row["n"]
            continue
        if clusters and count + row["n"] > SHARE_ROWS:
            yield f"cluster_id IN ({', '.join(clusters)})", count
            clusters, count = [], 0
        clusters.append(sql_text(row["cluster_id"]))
        count += row["n"]
    if clusters:
        yield f"cluster_id IN ({', '.join(clusters)})", count


def _slices(lake: DeltaLake | Lake, table: Table, rows: str, share: str, column: str, *beside: str) -> Iterator[str]:
    """Ranges of offsets, in the order in which `maintain` puts rows into files."""
    quoted = f'"{column}"'
    sql = f"""SELECT {quoted} / {SLICE_OFFSETS} AS slice, count(*) AS n FROM {rows} AS every WHERE {share}
        GROUP BY {quoted} / {SLICE_OFFSETS} ORDER BY slice"""  # noqa: S608
    starts, count = list[int](), 0
    for row in lake.query(sql, table.name, *beside).to_pylist():
        if row["slice"] is None:
            yield f"{quoted} IS NULL"
            continue
        if not starts or count + row["n"] > SHARE_ROWS:
            starts.append(_start_of(row["slice"]))
            count = 0
        count += row["n"]
    # The first part begins and the last one ends nowhere: together they are all rows, whatever offsets claim.
    bounds = [None, *starts[1:], None]
    for start, end in pairwise(bounds):
        conditions = [] if start is None else [f"{quoted} >= {start}"]
        conditions += [] if end is None else [f"{quoted} < {end}"]
        yield " AND ".join(conditions) or f"{quoted} IS NOT NULL"


def _start_of(number: int) -> int:
    """The first offset of a slice; SQL's division goes towards zero."""
    return number * SLICE_OFFSETS if number > 0 else (number - 1) * SLICE_OFFSETS + 1
