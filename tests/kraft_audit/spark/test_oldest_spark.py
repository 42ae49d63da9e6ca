"""The oldest claimed Spark writes what the newest does, by either committer: `make spark-oldest-setup` brings it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.maintenance import lake_tables
from kraft_audit.lake.settings import FleetSettings
from kraft_audit.spark.session import use_java
from tests.builders.reading_times import WHEN, without_reading_times

pytestmark = [pytest.mark.ci, pytest.mark.long, pytest.mark.timeout(1500)]

SAMPLES = ("mini-3.9.2.tgz", "divergence.tgz")
OF_THE_LEDGER = ("plans",)
WHEN_WRITTEN = {"as_of_ms", "changed_ms", "closed_ms", "first_seen_ms", "last_seen_ms", "valid_from_ms"}


@pytest.fixture(scope="module")
def oldest_python(project_root: Path) -> Path:
    """The Python that has the oldest claimed Spark."""
    found = project_root / ".spark-oldest" / "venv" / "bin" / "python"
    if not (project_root / ".spark-oldest" / "installed").exists():
        pytest.skip("the oldest Spark is not here: make spark-oldest-setup")
    return found


def ran(python: Path | str, project_root: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    environment |= {"PYTHONPATH": str(project_root), "JAVA_HOME": str(use_java())}
    return subprocess.run(
        [python, *map(str, arguments)], env=environment, capture_output=True, text=True, timeout=700, check=False
    )


def rows_of_all(uri: str) -> dict[str, list[str]]:
    """Every row of every table as sorted JSON, without what says when, and without ids of this lake."""
    lake = DeltaLake(uri)
    tables = [table for table in lake_tables(lake) if table not in OF_THE_LEDGER]
    return {
        table: sorted(
            json.dumps({name: row[name] for name in sorted(row.keys() - WHEN - WHEN_WRITTEN)}, default=str)
            for row in without_reading_times(lake.query(f"SELECT * FROM {table}", table).to_pylist())  # noqa: S608
        )
        for table in tables
    }


@pytest.mark.parametrize("committer", ["deltalake", "spark"])
def test_oldest_and_newest_write_the_same_tables(
    committer: str, oldest_python: Path, project_root: Path, samples: Path, tmp_path: Path
) -> None:
    clusters = [{"name": name, "paths": [str(samples / name)]} for name in SAMPLES]
    written = {}
    for name, python, version in (("newest", sys.executable, "4.2."), ("oldest", oldest_python, "4.0.")):
        file = tmp_path / f"{name}.yaml"
        fleet = {"lake": name, "committer": committer, "redaction_key_file": "key", "clusters": clusters}
        file.write_text(yaml.safe_dump(fleet))
        done = ran(python, project_root, "-m", "kraft_audit", "run", file, "--engine", "spark")
        assert done.returncode == 0, done.stderr[-4000:]
        assert f"Spark {version}" in done.stderr
        written[name] = rows_of_all(str(tmp_path / name))
    assert {table: len(rows) for table, rows in written["oldest"].items()} == {
        table: len(rows) for table, rows in written["newest"].items()
    }
    different = [table for table, rows in written["newest"].items() if rows != written["oldest"][table]]
    assert different == []
    assert len(written["newest"]["records"]) > 500
    assert {"findings", "incidents", "partition_risk", "cluster_compliance"} <= written["newest"].keys()


SOURCE = """
import sys
from kraft_audit.spark.session import spark_session
spark = spark_session("oldest")
records = spark.read.format("kraft").load(sys.argv[1])
print(records.count(), records.where("record_type = 'PARTITION_RECORD' AND offset < 200").count())
try:
    spark.readStream.format("kraft").load(sys.argv[1]).writeStream.format("noop").trigger(availableNow=True).start().processAllAvailable()
except Exception as problem:
    print("expected Spark 4.2" in str(problem))
"""


def test_format_kraft_on_the_oldest(oldest_python: Path, project_root: Path, samples: Path) -> None:
    """Found without a registration. Filters are not pushed before Spark 4.1, and streams need 4.2: said in one line."""
    from kraft_audit.lake.staging.cluster_reading import read_table
    from kraft_audit.spark.planned_paths import plans_below
    from kraft_codec.schemas import Dialect

    path = samples / SAMPLES[0]
    done = ran(oldest_python, project_root, "-c", SOURCE, path)
    assert done.returncode == 0, done.stderr[-4000:]
    counts, refused = done.stdout.splitlines()
    from kraft_audit.capture.plan import plan_to_json

    rows = [
        row
        for plan in plans_below([str(path)], Dialect.KIP853, None)
        for batch in read_table(plan_to_json(plan), "records", None, None, bytes(16).hex())
        for row in batch.select(["record_type", "offset"]).to_pylist()
    ]
    chosen = [row for row in rows if row["record_type"] == "PARTITION_RECORD" and row["offset"] < 200]
    assert counts.split() == [str(len(rows)), str(len(chosen))]
    assert chosen
    assert refused == "True"


def test_a_lake_in_the_oldest_catalog(
    oldest_python: Path, project_root: Path, samples: Path, make_fleet: Callable[..., FleetSettings], tmp_path: Path
) -> None:
    """`lake register --catalog hive --execute`: every statement is one of that Spark."""
    fleet = make_fleet({"mini": [samples / SAMPLES[0]]})
    local = ran(sys.executable, project_root, "-m", "kraft_audit", "run", tmp_path / "fleet.yaml", "--engine", "local")
    assert local.returncode == 0, local.stderr[-4000:]
    conf = tmp_path / "catalog.conf"
    conf.write_text(f"spark.sql.warehouse.dir {tmp_path / 'warehouse'}\n")
    command = ("lake", "register", fleet.lake, "--catalog", "hive", "--execute", "--spark-conf", conf)
    done = ran(oldest_python, project_root, "-m", "kraft_audit", *command)
    assert done.returncode == 0, done.stderr[-4000:]
    shutil.rmtree(tmp_path / "warehouse", ignore_errors=True)
