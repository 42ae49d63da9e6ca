"""What each encoding of each column of a data file costs and saves: `python -m benchmarks.writing [PATH …]`.

This table decides the choices of `parquet_options`: milliseconds of processor and bytes of each column, written
alone as it is now, with a dictionary, plain, and as differences; and of the whole table at several levels of
compression. Figures are bytes and time of the two tables of nearly all rows, of what pyarrow makes by its own defaults.
Without a path, a synthetic log, a simulated fleet and the largest real log that lies beside the project are read. Last,
one table is read back by pyarrow, deltalake and, with --spark, Spark.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.decode import largest_real_log
from benchmarks.figures import Figure, print_figures
from benchmarks.pipeline import KEY, ROWS, write_nodes
from benchmarks.synthetic_log import synthetic_log
from kraft_audit.capture.path_plans import plan_cluster
from kraft_audit.lake.data_files import ROW_GROUP_BYTES, parquet_options, write_rows
from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.ledger import delta_schema
from kraft_audit.lake.staging.cluster_reading import pipeline_reading
from kraft_audit.pipeline.analysis import TABLES
from kraft_codec.storage.opener import open_storage
from kraft_engine.runs.fleet_logs import simulate_fleet

TURNS = 3
SHOWN = ("records", "batches", "archive", "partition_changes")


def rows_of(path: Path) -> dict[str, pa.Table]:
    """All rows that the pipeline makes of one cluster, by table."""
    plan = plan_cluster([str(path)], open_storage=open_storage, captured_at_ms=0, name="bench", number=1)
    batches: dict[str, list[pa.RecordBatch]] = {}
    for table, batch in pipeline_reading(str(path / "no-lake"), KEY, None, TABLES)(plan).rows():
        batches.setdefault(table, []).append(batch)
    return {table: pa.Table.from_batches(found) for table, found in batches.items()}


def written(rows: pa.Table, options: dict[str, Any]) -> tuple[float, int]:
    """(milliseconds of processor, bytes) of a file of these rows in memory, the best of some turns."""
    took = []
    for _ in range(TURNS):
        sink = pa.BufferOutputStream()
        started = time.process_time()
        with pq.ParquetWriter(sink, rows.schema, **options) as writer:
            writer.write_table(rows, row_group_size=max(1, rows.num_rows * ROW_GROUP_BYTES // max(1, rows.nbytes)))
        took.append(1000 * (time.process_time() - started))
        size = sink.getvalue().size
    return min(took), size


def print_columns(rows: pa.Table) -> None:
    """A line a column: every encoding that its type can have."""
    for name in rows.schema.names:
        column = rows.select([name])
        now = parquet_options(column.schema)
        bare = {key: value for key, value in now.items() if key != "column_encoding"}
        variants = {
            "now": now,
            "dictionary": bare | {"use_dictionary": True},
            "plain": bare | {"use_dictionary": False},
        }
        if pa.types.is_integer(column.schema.field(0).type):
            encoding = {name: "DELTA_BINARY_PACKED"}
            variants["differences"] = bare | {"use_dictionary": False, "column_encoding": encoding}
        measured = (f"{variant} {ms:7.1f} ms {size:10,}" for variant, (ms, size) in _each(column, variants))
        print(f"  {name:26} {' | '.join(measured)}")


def print_levels(rows: pa.Table) -> None:
    now = parquet_options(rows.schema)
    variants = {f"zstd {level}": now | {"compression_level": level} for level in (-5, 1, 3, 6)}
    variants |= {"lz4": now | {"compression": "lz4"}, "no bounds": now | {"write_statistics": False}}
    measured = (f"{variant} {ms:.0f} ms {size:,}" for variant, (ms, size) in _each(rows, variants))
    print(f"  whole table: {' | '.join(measured)}")


def _each(rows: pa.Table, variants: dict[str, dict[str, Any]]) -> Iterator[tuple[str, tuple[float, int]]]:
    for variant, options in variants.items():
        yield variant, written(rows, options)


def figures_of(label: str, table: str, rows: pa.Table) -> list[Figure]:
    """Bytes and time of our options, of pyarrow's own (a dictionary for each column, Snappy)."""
    (ours_ms, ours), (theirs_ms, theirs) = written(rows, parquet_options(rows.schema)), written(rows, {})
    return [
        Figure(f"{label}: {table}, bytes, of pyarrow's defaults", theirs / ours, 1, f"{ours:,}", f"{theirs:,}"),
        Figure(
            f"{label}: {table}, time, of pyarrow's defaults", theirs_ms / ours_ms, 0.5,
            f"{ours_ms:.0f} ms", f"{theirs_ms:.0f} ms",
        ),
    ]  # fmt: skip


def print_reading_back(rows: pa.Table, table: str, folder: Path, *, with_spark: bool) -> None:
    """The same file by every reader that the project promises."""
    lake = DeltaLake(str(folder))
    lake.create(table, delta_schema(table), table)
    lake.commit(table, [write_rows(lake.data_uri, table, rows, "bench")], delta_schema(table), "bench", 1)
    counted = f"SELECT count(*) AS n FROM {table} WHERE cluster_id <> ''"  # noqa: S608
    readers: dict[str, Callable[[], int]] = {
        "pyarrow": lambda: sum(pq.read_table(path).num_rows for path in (folder / table).glob("*.parquet")),
        "deltalake": lambda: int(lake.query(counted, table).column("n")[0].as_py()),
    }
    if with_spark:
        from kraft_audit.spark.session import spark_session

        spark = spark_session("kraft-audit benchmark", settings={"spark.master": "local[1]"})
        readers["Spark"] = lambda: spark.read.format("delta").load(lake.table_uri(table)).cache().count()
    for name, read in readers.items():
        started = time.perf_counter()
        assert read() == rows.num_rows, name
        print(f"  read back by {name}: {rows.num_rows:,} rows in {time.perf_counter() - started:.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path, help="node dirs, or folders of them")
    parser.add_argument("--mib", type=int, default=32, help="of the synthetic log")
    parser.add_argument("--spark", action="store_true", help="read back by Spark too")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        paths = given.paths
        real = None
        if not paths:
            paths = [write_nodes(folder / "synthetic", synthetic_log(given.mib << 20), 1)]
            simulate_fleet(folder / "fleet", clusters=1, partitions=20_000, changes=200_000, is_aged=True)
            paths.append(folder / "fleet" / "cluster-0")
            if (log := largest_real_log()) is not None:
                paths.append(real := log.parents[2])
        figures = []
        for path in paths:
            tables = rows_of(path)
            label = "real" if path == real else path.name
            for table in SHOWN:
                if table in tables:
                    rows = tables[table]
                    if table in ROWS:
                        figures += figures_of(label, table, rows)
                    print(f"{label}: {table}, {rows.num_rows:,} rows, {rows.nbytes / 1e6:,.0f} MB in memory")
                    print_columns(rows)
                    print_levels(rows)
            with tempfile.TemporaryDirectory() as lake:
                print_reading_back(tables["records"], "records", Path(lake), with_spark=given.spark)
    print_figures(figures)


if __name__ == "__main__":
    main()
