"""One Spark session for all tests of this folder; fleets of small clusters; lakes as comparable rows."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from kraft_audit.capture.plan import ClusterPlan, FilePlan, ReplicaPlan
from kraft_audit.lake.closed_plans import ClosedPlans
from kraft_audit.lake.data_files import TableWriter
from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.ledger import Ledger
from kraft_audit.lake.settings import FleetSettings, load_fleet
from kraft_audit.tables import LAKE_TABLES
from kraft_audit.tables.bronze import FILES, PLANS
from kraft_codec.records.batch import Batch, read_batches
from tests.builders import without_spark as without_spark_module
from tests.builders.reading_times import WHEN, without_reading_times

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MakePlan = Callable[..., ClusterPlan]
MakeFleet = Callable[..., FleetSettings]
CopyAged = Callable[[Path, Path], None]
CLUSTERS = ("mini-3.9.2", "divergence", "torn-write")
"""A small fleet of captures of the small corpus: a whole cluster, two branches of one log, a log that is cut."""
# A second more than a file system's coarsest clock, so that no file counts as changed while it was planned.
AGE_S = 60


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from kraft_audit.spark.session import spark_session

    session = spark_session("kraft-audit tests", settings={"spark.master": "local[2]"})
    yield session
    session.stop()


@pytest.fixture(scope="session")
def script() -> Path:
    """The program that runs a fleet without Spark, for tests that kill it."""
    return Path(without_spark_module.__file__ or "")


@pytest.fixture(scope="session")
def without_spark() -> ModuleType:
    return without_spark_module


@pytest.fixture
def make_plan() -> MakePlan:
    """A plan of one cluster with one replica whose log has `size_bytes`."""

    def make(name: str, number: int = 1, size_bytes: int = 1000) -> ClusterPlan:
        log = FilePlan("__cluster_metadata-0/00000000000000000000.log", "log", 0, None, size_bytes, 0)
        replica = ReplicaPlan("/nowhere", "node-1", "", 0, 0, name, 1, None, (log,))
        return ClusterPlan(number, name, name, "kip853", (replica,))

    return make


@pytest.fixture
def make_fleet(tmp_path: Path) -> MakeFleet:
    """A fleet file in `tmp_path`: cluster name → paths; the lake beside it unless named; `defaults` of all clusters."""

    return partial(write_fleet, tmp_path)


def copied_lake(lake: Path, folder: Path) -> DeltaLake:
    """A copy of a lake in another folder, with the redaction key that lies beside it."""
    shutil.copy(f"{lake}.redaction-key", folder)
    return DeltaLake(str(shutil.copytree(lake, folder / lake.name)))


def write_fleet(
    folder: Path,
    clusters: Mapping[str, Sequence[Path | str]],
    lake: str = "lake",
    file: str = "fleet.yaml",
    defaults: dict[str, str] | None = None,
) -> FleetSettings:
    """A fleet file in a folder, as `make_fleet` writes it."""
    entries = [
        {"name": name, "paths": [str(path) for path in paths], "defaults": defaults or {}}
        for name, paths in clusters.items()
    ]
    (folder / file).write_text(yaml.safe_dump({"lake": lake, "clusters": entries}))
    return load_fleet(folder / file, environment={})


@pytest.fixture(scope="session")
def copy_aged() -> CopyAged:
    """Copies a tree with its holes, over what is there, its files a minute old."""

    def copy(source: Path, target: Path) -> None:
        shutil.copytree(source, target, dirs_exist_ok=True)
        for file in target.rglob("*"):
            if file.is_file():
                then = file.stat().st_mtime - AGE_S
                os.utime(file, (then, then))

    return copy


def written_at(folder: Path, when_s: float) -> None:
    """Gives every file of a folder the same time."""
    for file in filter(Path.is_file, folder.rglob("*")):
        os.utime(file, (when_s,) * 2)


def replace_live(live: Path, capture: Path, number: int) -> None:
    """Live dirs become what a capture holds, as time did it; `number` tells the times of captures apart."""
    shutil.rmtree(live, ignore_errors=True)
    shutil.copytree(capture, live)
    written_at(live, 1_700_000_000.5 + number)


def captures_of(scenario: Path) -> list[Path]:
    """The captures of a scenario in the order in which they were taken."""
    return sorted(path for path in scenario.iterdir() if (path / "node-1").is_dir())


@pytest.fixture
def in_steps_and_whole(
    tmp_path: Path, make_fleet: Callable[..., FleetSettings], copy_aged: Callable[[Path, Path], None],
    without_spark: ModuleType,
) -> Callable[[str, list[Path]], tuple[str, str]]:  # fmt: skip
    """Runs over captures that arrive one by one, and one run over all of them; the two lakes."""

    def run(name: str, captures: list[Path]) -> tuple[str, str]:
        roots: list[Path | str] = []
        for capture in captures:
            copy_aged(capture, tmp_path / "logs" / capture.name)
            roots.append(tmp_path / "logs" / capture.name)
            assert without_spark.run(make_fleet({name: roots}, lake="steps")).failed == {}
        assert without_spark.run(make_fleet({name: roots}, lake="whole")).failed == {}
        return str(tmp_path / "steps"), str(tmp_path / "whole")

    return run


def _rows(lake: DeltaLake, table: str, closed: ClosedPlans, but: frozenset[str]) -> list[str]:
    found = lake.query(f"SELECT * FROM {table} WHERE {closed.where()}", table)  # noqa: S608
    remaining = [name for name in LAKE_TABLES[table].column_names if name not in WHEN | but]
    rows = without_reading_times(found.select(remaining).to_pylist())
    return sorted(json.dumps(row, default=str) for row in rows)


@pytest.fixture
def rows_of() -> Callable[..., list[str]]:
    """A table's rows of closed plans as sorted JSON lines, without the columns that say when, and those in `but`."""

    def rows(lake_uri: str, table: str, but: frozenset[str] = frozenset()) -> list[str]:
        lake = DeltaLake(lake_uri)
        return _rows(lake, table, Ledger(lake).status().done, but)

    return rows


@pytest.fixture(scope="session")
def lake_hash() -> Callable[..., dict[str, str]]:
    """One hash a table over its sorted rows: equal hashes are equal tables."""

    def hashes(lake_uri: str, but: frozenset[str] = frozenset()) -> dict[str, str]:
        lake = DeltaLake(lake_uri)
        closed = Ledger(lake).status().done
        return {
            table: hashlib.sha256("\n".join(_rows(lake, table, closed, but)).encode()).hexdigest()
            for table in LAKE_TABLES
            if table != PLANS.name
        }

    return hashes


@pytest.fixture
def archived() -> Callable[[str], list[str]]:
    """The batches in a lake's archive, each as source, cluster and hash of its bytes: runs may be cut anywhere."""

    def batches(lake_uri: str) -> list[str]:
        rows = DeltaLake(lake_uri).query("SELECT cluster_id, source, content FROM archive", "archive").to_pylist()
        return sorted(
            f"{row['cluster_id']} {row['source']} {hashlib.sha256(row['content'][start:end]).hexdigest()}"
            for row in rows
            for found in read_batches(row["content"])
            if isinstance(found, Batch)
            for start, end in [(found.header.position, found.header.position + found.header.size_bytes)]
        )

    return batches


@pytest.fixture
def table_versions() -> Callable[[str], dict[str, Any]]:
    """How many transactions each table has seen: nothing was committed where it stays."""

    def versions(lake_uri: str) -> dict[str, Any]:
        return {table: DeltaLake(lake_uri).open(table).version() for table in LAKE_TABLES}

    return versions


def plan_rows(lake: str, table: str, plan: int) -> list[str]:
    """A table's rows of one plan as sorted JSON lines, without the plan's number."""
    found = DeltaLake(lake).query(f"SELECT * FROM {table} WHERE plan = {plan}", table).to_pylist()  # noqa: S608
    return sorted(json.dumps({name: row[name] for name in row if name != "plan"}, default=str) for row in found)


def no_session() -> NoReturn:
    """Stands where a Spark session could be asked for, and none may be."""
    raise AssertionError("Spark was started")


def staged_at_once(lake: DeltaLake, table: str, folder: Path) -> int:
    """Bytes of one writing of a table's rows, by the writer that stages, in the order in which runs wrote them."""
    actions = pa.table(lake.open(table).get_add_actions(flatten=True)).select(["path", "modification_time"])
    ordered = actions.sort_by([("modification_time", "ascending"), ("path", "ascending")])
    schema = pa.schema([field.remove_metadata() for field in LAKE_TABLES[table].schema])
    writer = TableWriter(str(folder), table, schema, "at-once")
    for path in ordered.column("path").to_pylist():
        for batch in pq.read_table(Path(lake.table_uri(table), path)).cast(schema).to_batches():
            writer.write(batch)
    return sum(file.size_bytes for file in writer.close())


def file_row(plan: int, name: str, size_bytes: int, *, present: bool = True) -> dict[str, object]:
    row = dict.fromkeys(FILES.column_names)
    row |= {
        "cluster_id": "a", "captured_at_ms": plan, "captured_at": 0, "capture": "", "capture_number": 0, "root": "/r",
        "path": "node-1",
        "file_name": name, "kind": "log", "present": present, "size_bytes": size_bytes, "mtime_ms": 5,
        "scanned_to": size_bytes, "last_position": 0, "last_base_offset": 0, "last_offset": 9, "last_leader_epoch": 1,
        "last_crc": 2**32 - 1, "batch_count": 1, "record_count": 10, "damage_count": 0, "bytes_seen": size_bytes,
        "bytes_decoded": size_bytes, "bytes_quarantined": 0, "bytes_unread": 0, "plan": plan,
    }  # fmt: skip
    return row
