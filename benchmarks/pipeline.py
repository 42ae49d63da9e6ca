"""The pipeline against its own floors: `python -m benchmarks.pipeline [--mib 128] [--without-java]`.

What is asked: an unchanged re-run costs at most 3 % of a full run, net of session start; five replicas of one log at
most 1.3 times one; rows reach Delta at 0.7 of what pyarrow alone needs to write the same Parquet, and five times as
fast as through the data source and Spark's Delta writer.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from benchmarks.figures import Figure, Skipped, paired, print_figures, rate
from benchmarks.synthetic_log import synthetic_log
from kraft_audit.capture.path_plans import plan_cluster
from kraft_audit.capture.plan import plan_to_json
from kraft_audit.lake.data_files import ROW_GROUP_BYTES, parquet_options
from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.ledger import Ledger, delta_schema
from kraft_audit.lake.ledger_state import manifest_of
from kraft_audit.lake.pipeline import Run
from kraft_audit.lake.settings import FleetSettings, load_fleet
from kraft_audit.lake.staging.cluster_reading import pipeline_reading
from kraft_audit.lake.staging.stage import stage_clusters
from kraft_audit.pipeline.analysis import analyze
from kraft_audit.reading import BRONZE_TABLES, ReadingSettings
from kraft_audit.spark.run_fleet import SparkStager
from kraft_codec.records.redaction import Redactor
from kraft_codec.storage.opener import open_storage

ROWS = frozenset({"records", "partition_changes"})
"""What the goals of writing are about: the two tables of nearly all rows."""
CLUSTER_ID = "SyntheticSyntheticSynA"
KEY = "00" * 32


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=128, help="size of the log")
    parser.add_argument("--pairs", type=int, default=3, help="how often each pair is timed")
    parser.add_argument("--without-java", action="store_true", help="leave out what needs Spark")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        log = synthetic_log(given.mib << 20)
        one_node, five = write_nodes(folder / "one", log, 1), write_nodes(folder / "five", log, 5)
        replayed = write_nodes(folder / "replayed", synthetic_log(given.mib << 20, connected=True), 1)
        figures = [replicas_figure(one_node, five, folder, given.pairs), parquet_figure(replayed, folder, given.pairs)]
        if given.without_java:
            names = ("full run against an unchanged re-run", "rows in Delta against Spark's Delta writer")
            print_figures([*figures, *(Skipped(name, "--without-java") for name in names)])
            return 0
        print_figures([*figures, *spark_figures(one_node, replayed, folder, log.nbytes)])
    return 0


def write_nodes(folder: Path, log: npt.NDArray[np.uint8], count: int) -> Path:
    """Node dirs that all hold the same log."""
    for node in range(1, count + 1):
        log_dir = folder / f"node-{node}" / "__cluster_metadata-0"
        log_dir.mkdir(parents=True)
        (log_dir / "00000000000000000000.log").write_bytes(log.data)
        directory = f"Node{node}Node{node}Node{node}Node{node}Q"[:21] + "A"
        properties = f"#\nnode.id={node}\ndirectory.id={directory}\nversion=1\ncluster.id={CLUSTER_ID}\n"
        (log_dir.parent / "meta.properties").write_text(properties)
    return folder


def stage(paths: Path | Sequence[Path], lake: Path, tables: frozenset[str] = BRONZE_TABLES) -> Callable[[], None]:
    """Reading a cluster and writing its rows, in this process and on one core, as a Spark task does."""
    roots = [str(path) for path in ([paths] if isinstance(paths, Path) else paths)]
    plan = plan_cluster(roots, open_storage=open_storage, captured_at_ms=0, name="synthetic", number=1)

    def work() -> None:
        reading = pipeline_reading(str(lake), KEY, None, tables)
        for _ in stage_clusters(str(lake), [(0, plan_to_json(plan))], reading, "bench"):
            pass

    return work


def replicas_figure(one_node: Path, five: Path, folder: Path, pairs: int) -> Figure:
    ratio, ours, peer = paired(stage(five, folder / "lake-5"), stage(one_node, folder / "lake-1"), pairs)
    return Figure("five replicas against one", ratio, 1 / 1.3, f"{ours:.2f} s for five", f"{peer:.2f} s for one")


def to_delta(nodes: Path, lake_uri: str) -> None:
    """A log's rows in files, then one commit a table: what a run does with them, without its plan."""
    plan = plan_cluster([str(nodes)], open_storage=open_storage, captured_at_ms=0, name="synthetic", number=1)
    reading = pipeline_reading(lake_uri, KEY, None, ROWS)
    staged = stage_clusters(lake_uri, [(0, plan_to_json(plan))], reading, "bench")
    files = manifest_of(row for batch in staged for row in batch.to_pylist()).files
    lake = DeltaLake(lake_uri)
    for table in sorted(ROWS):
        lake.create(table, delta_schema(table), "")
        lake.commit(table, [file for file in files if file.table == table], delta_schema(table), "bench", 1)


def parquet_figure(one_node: Path, folder: Path, pairs: int) -> Figure:
    """The same rows, held in memory, written by pyarrow alone with the same options."""
    plan = plan_cluster([str(one_node)], open_storage=open_storage, captured_at_ms=0, name="synthetic", number=1)
    batches: dict[str, list[pa.RecordBatch]] = {}
    for name, batch in analyze(plan, ReadingSettings(open_storage, Redactor(bytes(32))), ROWS):
        if batch.num_rows:
            batches.setdefault(name, []).append(batch)
    tables = {name: pa.Table.from_batches(found) for name, found in batches.items()}

    def alone() -> None:
        for name, rows in tables.items():
            rows_a_group = max(1, rows.num_rows * ROW_GROUP_BYTES // max(1, rows.nbytes))
            with pq.ParquetWriter(folder / f"{name}.parquet", rows.schema, **parquet_options(rows.schema)) as writer:
                writer.write_table(rows, row_group_size=rows_a_group)

    ratio, ours, peer = paired(stage(one_node, folder / "lake-parquet", ROWS), alone, pairs)
    size = sum(file.size_bytes for replica in plan.replicas for file in replica.files)
    count = tables["records"].num_rows
    return Figure(
        "log to rows in data files against pyarrow writing them", ratio, 0.7,
        rate(size, count, ours), rate(size, count, peer),
    )  # fmt: skip


def spark_figures(nodes: Path, replayed: Path, folder: Path, size_bytes: int) -> list[Figure]:
    from kraft_audit.spark.session import spark_session

    spark = spark_session("kraft-audit benchmark", settings={"spark.master": "local[1]"})
    spark.range(1).write.format("delta").save(str(folder / "warm"))
    spark.read.format("kraft").load(str(nodes)).limit(1).collect()
    full: list[float] = []
    unchanged: list[float] = []
    for number in range(2):
        fleet = fleet_of(folder, nodes, f"lake-run-{number}")
        for times in (full, unchanged):
            started = time.perf_counter()
            lake = DeltaLake(fleet.lake)
            result = Run(fleet, lake, SparkStager(fleet, lake, lambda: spark), lambda _: None).all_steps()
            times.append(time.perf_counter() - started)
            assert result.failed == {}
        assert Ledger(lake).status().closed == 1
    records = lake.query("SELECT count(*) AS n FROM records", "records").column("n")[0].as_py()
    started = time.perf_counter()
    for table in sorted(ROWS):
        rows = spark.read.format("kraft").option("table", table).load(str(replayed))
        rows.write.format("delta").save(str(folder / f"{table}-by-spark"))
    by_spark = time.perf_counter() - started
    spark.stop()
    started = time.perf_counter()
    to_delta(replayed, str(folder / "lake-of-rows"))
    staged = time.perf_counter() - started
    return [
        Figure(
            "full run against an unchanged re-run", min(full) / min(unchanged), 1 / 0.03,
            f"{min(unchanged):.3f} s unchanged", f"{min(full):.2f} s full, {rate(size_bytes, 0, min(full))}",
        ),
        Figure(
            "rows in Delta against the data source and Spark's Delta writer", by_spark / staged, 5,
            rate(size_bytes, records, staged), rate(size_bytes, records, by_spark),
        ),
    ]  # fmt: skip


def fleet_of(folder: Path, nodes: Path, lake: str) -> FleetSettings:
    file = folder / f"{lake}.yaml"
    file.write_text(yaml.safe_dump({"lake": lake, "clusters": [{"name": "synthetic", "paths": [str(nodes)]}]}))
    for node in nodes.rglob("*"):
        os.utime(node, (1_700_000_000.5, 1_700_000_000.5))
    return load_fleet(file, environment={})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
