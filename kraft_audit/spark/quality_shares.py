"""Parts of a table that the gate looks at one after the other, as conditions in SQL.

What must be grouped or sorted is held in memory where DataFusion does it, and a lake holds more than that. Rows that
are compared with each other are in one part: those of a cluster, and of a large one those of an offset.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from kraft_audit.spark.lake import DeltaLake, Lake, sql_text
from kraft_codec.contract import Table
from kraft_codec.tables import BATCHES

SHARE_ROWS: Final = 1_000_000
"""Rows of a part: some 200 MB while their keys are grouped."""
SLICE_OFFSETS: Final = 1 << 16
OFFSETS: Final = ("offset", "base_offset", "from_offset")
EVERYTHING: Final = "TRUE"
REPLICA: Final = ("cluster_id", "node_id", "directory_id", "root", "path")
"""One replica's own log."""


def rows_beside_new(table: Table, every: str, first: int) -> str:
    """Of `every` (a query in brackets) the rows of the plans from `first` on, and older ones that may have their keys.

    Where a key has an offset these are, of a cluster with news, the ones from the first new offset on.
    """
    offset = next((name for name in OFFSETS if name in table.key), None)
    if offset is None or "cluster_id" not in table.key:
        return every
    # Offsets of a snapshot's records are those inside it.
    same = [name for name in ("cluster_id", "source") if name in table.key]
    return f"""(SELECT every.* FROM {every} AS every JOIN (
            SELECT {", ".join(same)}, min({table.name}.{offset}) AS first_offset
            FROM {every} AS {table.name} WHERE plan >= {first} GROUP BY {", ".join(same)}
        ) AS news ON every.{offset} >= news.first_offset AND {_equal(same)})"""  # noqa: S608


def rows_beside_new_batches(first: int, closed: int) -> str:
    """Batches of the plans from `first` on, each replica's older ones behind them, and the one before the first."""
    rows = f"SELECT * FROM {BATCHES.name} WHERE plan <= {closed}"  # noqa: S608
    if first <= 1:
        return f"({rows})"
    names = ", ".join(REPLICA)
    news = f"""SELECT {names}, min(base_offset) AS first_offset FROM ({rows}) AS every
        WHERE plan >= {first} AND source = 'log' GROUP BY {names}"""  # noqa: S608
    before = f"""SELECT {", ".join(f"news.{name}" for name in REPLICA)}, min(news.first_offset) AS first_offset,
            max(every.base_offset) AS offset_before
        FROM ({news}) AS news LEFT JOIN (SELECT * FROM ({rows}) AS log WHERE source = 'log') AS every
            ON every.base_offset < news.first_offset AND {_equal(REPLICA)}
        GROUP BY {", ".join(f"news.{name}" for name in REPLICA)}"""  # noqa: S608
    return f"""(SELECT every.* FROM ({rows}) AS every JOIN ({before}) AS news
        ON every.base_offset >= coalesce(news.offset_before, news.first_offset) AND {_equal(REPLICA)})"""  # noqa: S608


def _equal(names: Sequence[str]) -> str:
    """That rows of `every` and `news` agree in these columns; one that may be null is null in both."""
    return " AND ".join(f"(every.{name} IS NOT DISTINCT FROM news.{name})" for name in names)


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


def _slices(lake: Lake, table: Table, rows: str, share: str, column: str, *beside: str) -> Iterator[str]:
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
