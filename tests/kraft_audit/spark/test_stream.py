"""The stream gives what is committed, each record once, whatever the limit, and wherever it was restarted."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from kraft_audit.lake.settings import SettingsError
from kraft_audit.spark.readers import TableReader
from kraft_audit.spark.stream import CommittedStreamReader, Proven, prove
from kraft_codec.errors import InputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kraft_audit.capture.plan import ClusterPlan

KEY = ("cluster_id", "offset", "leader_epoch", "record_type")


@pytest.fixture
def rows_between() -> Callable[..., list[tuple[Any, ...]]]:
    def rows(reader: CommittedStreamReader, start: dict[str, int], end: dict[str, int]) -> list[tuple[Any, ...]]:
        # As Spark keeps positions: as JSON.
        start, end = json.loads(json.dumps(start)), json.loads(json.dumps(end))
        batches = [batch for part in reader.partitions(start, end) for batch in reader.read(part)]
        return [tuple(row[name] for name in KEY) for batch in batches for row in batch.to_pylist()]

    return rows


def every_row(path: Path) -> set[tuple[Any, ...]]:
    """All records of the log by the batch reader, committed or not."""
    reader = TableReader({"path": str(path), "table": "records"})
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    found = [row for batch in batches for row in batch.to_pylist() if row["source"] == "log"]
    return {tuple(row[name] for name in KEY) for row in found}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["elr", "divergence", "uncommitted-voter-change", "dynamic-quorum"])
def test_any_limit_gives_the_committed_records_once(
    name: str, small_corpus: Path, rows_between: Callable[..., list[tuple[Any, ...]]]
) -> None:
    path = small_corpus / name
    at_once = CommittedStreamReader({"path": str(path)})
    end = at_once.latestOffset(at_once.initialOffset(), ReadAllAvailable())
    whole = rows_between(at_once, {}, end)
    assert len(whole) == len(set(whole)) > 0
    assert set(whole) <= every_row(path)
    assert len({row[:2] for row in whole}) == len(whole), "two records at one offset cannot both be committed"

    position: dict[str, int] = {}
    pieces: list[tuple[Any, ...]] = []
    while position != end:
        restarted = CommittedStreamReader({"path": str(path)})  # a new process each time, with the checkpoint alone
        restarted.prepareForTriggerAvailableNow()
        further = restarted.latestOffset(position, ReadMaxRows(97))
        assert sum(further.values()) - sum(position.values()) > 0
        pieces += rows_between(CommittedStreamReader({"path": str(path)}), position, further)
        position = further
    assert sorted(pieces) == sorted(whole)


def test_what_was_not_committed_never_comes(
    small_corpus: Path, rows_between: Callable[..., list[tuple[Any, ...]]]
) -> None:
    reader = CommittedStreamReader({"path": str(small_corpus / "divergence")})
    committed = set(rows_between(reader, {}, reader.latestOffset({}, ReadAllAvailable())))
    others = every_row(small_corpus / "divergence") - committed
    assert others, "the sample has two branches"


def test_a_log_that_grows_is_read_on(
    small_corpus: Path, tmp_path: Path, rows_between: Callable[..., list[tuple[Any, ...]]]
) -> None:
    captures = sorted(
        folder for folder in (small_corpus / "elr").iterdir() if folder.is_dir() and folder.name[0].isdigit()
    )
    reader = CommittedStreamReader({"path": str(tmp_path)})
    position: dict[str, int] = {}
    pieces: list[tuple[Any, ...]] = []
    for capture in captures:
        shutil.copytree(capture, tmp_path / capture.name)
        further = reader.latestOffset(position, ReadAllAvailable())
        assert all(further[cluster] >= offset for cluster, offset in position.items())
        pieces += rows_between(reader, position, further)
        position = further
    assert sorted(pieces) == sorted(rows_between(CommittedStreamReader({"path": str(tmp_path)}), {}, position))


@pytest.fixture
def two_clusters(samples: Path, tmp_path: Path) -> Path:
    for name in ("mini-3.9.2.tgz", "torn-write.tgz"):
        shutil.copy(samples / name, tmp_path / name)
    return tmp_path


def test_only_clusters_with_changed_files_are_surveyed_again(
    two_clusters: Path, samples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    surveyed: list[str] = []

    def noted(plan: ClusterPlan) -> Proven | None:
        surveyed.append(plan.cluster_id)
        return prove(plan)

    monkeypatch.setattr("kraft_audit.spark.stream.prove", noted)
    reader = CommittedStreamReader({"path": str(two_clusters)})
    ends = reader.latestOffset({}, ReadAllAvailable())
    assert len(surveyed) == len(set(surveyed)) == len(ends) == 2
    assert reader.latestOffset(ends, ReadAllAvailable()) == ends
    assert len(surveyed) == 2, "nothing was written"
    shutil.copy(samples / "jbod.tgz", two_clusters / "jbod.tgz")
    assert len(reader.latestOffset(ends, ReadAllAvailable())) == 3
    assert len(surveyed) == 3


def test_clusters_are_surveyed_at_once(two_clusters: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(2)

    def waiting(plan: ClusterPlan) -> Proven:
        both.wait(timeout=20)
        return Proven(plan.cluster_id, 0, 1, ((1, 0, 1),))

    monkeypatch.setattr("kraft_audit.spark.stream.prove", waiting)
    assert len(CommittedStreamReader({"path": str(two_clusters)}).latestOffset({}, ReadAllAvailable())) == 2


def test_offsets_that_are_gone_stop_it(small_corpus: Path) -> None:
    path = str(small_corpus / "elr")
    reader = CommittedStreamReader({"path": path})
    ((cluster, end),) = reader.latestOffset({}, ReadAllAvailable()).items()
    with pytest.raises(InputError, match="were proven committed before"):
        reader.partitions({}, {cluster: end + 1})
    first = reader._first(cluster)
    if first > 0:
        with pytest.raises(InputError, match="failOnDataLoss"):
            reader.partitions({cluster: 0}, {cluster: end})


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"table": "batches"}, "table"),
        ({"maxrecordspertrigger": "0"}, "maxRecordsPerTrigger"),
        ({"failondataloss": "x"}, "failOnDataLoss"),
    ],
)
def test_options_that_cannot_be(options: dict[str, str], text: str) -> None:
    with pytest.raises(SettingsError, match=text):
        CommittedStreamReader({"path": "/nowhere", **options})


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_available_now_and_a_restart_from_the_checkpoint(
    spark: SparkSession, small_corpus: Path, tmp_path: Path
) -> None:
    path = small_corpus / "divergence"
    reader = CommittedStreamReader({"path": str(path)})
    expected = sum(
        batch.num_rows
        for part in reader.partitions({}, reader.latestOffset({}, ReadAllAvailable()))
        for batch in reader.read(part)
    )

    def run() -> int:
        stream = spark.readStream.format("kraft").option("maxRecordsPerTrigger", 20).load(str(path))
        written = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = written.option("path", str(tmp_path / "rows")).trigger(availableNow=True).start()
        query.awaitTermination(200)
        assert query.exception() is None
        return len(query.recentProgress)

    assert run() >= 3
    rows = spark.read.parquet(str(tmp_path / "rows"))
    assert rows.count() == rows.select(*KEY).distinct().count() == expected
    run()  # from the checkpoint: nothing is new
    assert spark.read.parquet(str(tmp_path / "rows")).count() == expected
