"""Staging: rows become files that no reader sees; a cluster that fails leaves none and harms no neighbour."""

from __future__ import annotations

import re
import weakref
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kraft_audit.capture.plan import ClusterPlan, plan_to_json
from kraft_audit.lake.ledger_state import Manifest, manifest_of
from kraft_audit.lake.staging import stage
from kraft_audit.lake.staging.stage import MANIFEST_SCHEMA, ReadingEnd, Tally, stage_clusters
from kraft_audit.tables.bronze import BRONZE, RECORDS
from kraft_audit.tables.contract import build_batch
from kraft_codec.errors import CodecError, InputError, Reason
from tests.builders.lakes import MakePlan


def records(cluster_id: str, count: int, text: str = "{}") -> pa.RecordBatch:
    columns = {
        "cluster_id": cluster_id, "source": "log", "offset": list(range(count)), "leader_epoch": 1, "batch_crc": 7,
        "timestamp_ms": 0, "is_control": False, "api_key": 2, "control_type": None, "record_type": "TOPIC_RECORD",
        "record_version": 0, "record": text, "value_bytes": 2, "value_hash": None, "is_redacted": False, "plan": 1,
    }  # fmt: skip
    return build_batch(RECORDS, columns, count)


class FakeReading:
    """Yields some batches of records, then perhaps raises."""

    def __init__(self, plan: ClusterPlan, batches: int, rows: int, text: str, problem: Exception | None) -> None:
        self.plan, self.batches, self.count, self.text, self.problem = plan, batches, rows, text, problem

    def rows(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        for _ in range(self.batches):
            yield "records", records(self.plan.cluster_id, self.count, self.text)
        if self.problem is not None:
            raise self.problem

    def end(self) -> ReadingEnd:
        return ReadingEnd(f"state of {self.plan.name}")


def staged(
    lake: Path,
    plans: list[ClusterPlan],
    problems: dict[str, Exception],
    batches: int = 2,
    rows: int = 10,
    text: str = "{}",
) -> Manifest:
    def read(plan: ClusterPlan) -> FakeReading:
        return FakeReading(plan, batches, rows, text, problems.get(plan.name))

    clusters = [(number, plan_to_json(plan)) for number, plan in enumerate(plans)]
    found = list(stage_clusters(str(lake), clusters, read, "plan-1-0"))
    assert all(batch.schema.equals(MANIFEST_SCHEMA) for batch in found)
    return manifest_of(row for batch in found for row in batch.to_pylist())


def rows_of(lake: Path, manifest: Manifest) -> list[tuple[str, int]]:
    tables = [pq.read_table(lake / file.table / file.path, columns=["cluster_id", "offset"]) for file in manifest.files]
    return sorted((row["cluster_id"], row["offset"]) for table in tables for row in table.to_pylist())


def test_small_clusters_share_a_file(tmp_path: Path, make_plan: MakePlan) -> None:
    manifest = staged(tmp_path, [make_plan("a"), make_plan("b")], {})
    assert [file.row_count for file in manifest.files] == [40]
    assert [outcome.failure for outcome in manifest.outcomes] == [None, None]
    assert [outcome.change.redaction_state for outcome in manifest.outcomes] == ["state of a", "state of b"]
    assert manifest.outcomes[0].summary["records"] == {"TOPIC_RECORD": 20}
    schema = pq.read_schema(tmp_path / "records" / manifest.files[0].path)
    assert schema.types == BRONZE["records"].schema.types


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (CodecError(Reason.CHANGED_DURING_READ, 5, "shrank"), "CHANGED_DURING_READ at 5: shrank"),
        (InputError("a\nb", "gone"), "a b: gone"),
        (KeyError("secret"), r"internal error: KeyError at test_stage\.py:\d+ < stage\.py:\d+( < .*)?"),
    ],
)
def test_a_failing_cluster_leaves_nothing(tmp_path: Path, make_plan: MakePlan, problem: Exception, text: str) -> None:
    plans = [make_plan("a"), make_plan("bad"), make_plan("c")]
    manifest = staged(tmp_path, plans, {"bad": problem})
    before, failure, after = (outcome.failure for outcome in manifest.outcomes)
    assert (before, after) == (None, None)
    assert re.fullmatch(text, failure or "")
    assert {cluster for cluster, _ in rows_of(tmp_path, manifest)} == {"a", "c"}


def test_a_large_cluster_has_files_of_its_own(
    tmp_path: Path, make_plan: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "CLUSTER_BYTES", 10_000)
    plans = [make_plan("large"), make_plan("bad"), make_plan("other")]
    manifest = staged(tmp_path, plans, {"bad": InputError("x", "y")}, batches=5, rows=100)
    owners = [
        {row["cluster_id"] for row in pq.read_table(tmp_path / file.table / file.path).to_pylist()}
        for file in manifest.files
    ]
    assert sorted(owners, key=sorted) == [{"large"}, {"other"}]
    on_disk = {file.name for file in (tmp_path / "records").iterdir()}
    assert on_disk == {file.path for file in manifest.files}, "the failed cluster's files are deleted"


def test_row_groups_stay_small(tmp_path: Path, make_plan: MakePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is buffered is bounded, however many rows a cluster has."""
    from kraft_audit.lake import data_files

    monkeypatch.setattr(stage, "CLUSTER_BYTES", 1 << 16)
    monkeypatch.setattr(data_files, "ROW_GROUP_BYTES", 1 << 18)
    manifest = staged(tmp_path, [make_plan("a")], {}, batches=40, rows=1000, text="x" * 100)
    (file,) = manifest.files
    metadata = pq.read_metadata(tmp_path / "records" / file.path)
    assert metadata.num_rows == 40_000
    assert metadata.num_row_groups > 10


def test_a_cluster_and_the_shared_files_wait_in_one_budget(
    tmp_path: Path, make_plan: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of small clusters, a failing one and one that gets files of its own: all that waits is counted together."""
    one_batch = records("a", 100).nbytes
    monkeypatch.setattr(stage, "CLUSTER_BYTES", 6 * one_batch)
    monkeypatch.setattr(stage, "BUFFERED_BYTES", 10 * one_batch)
    given: list[weakref.ref[pa.RecordBatch]] = []
    waiting: dict[str, list[int]] = {}  # how many batches, by cluster

    class Watched(FakeReading):
        def rows(self) -> Iterator[tuple[str, pa.RecordBatch]]:
            for table, batch in super().rows():
                waiting.setdefault(self.plan.name, []).append(sum(item() is not None for item in given))
                given.append(weakref.ref(batch))
                yield table, batch
                del batch  # else this reading would hold it, too

    def read(plan: ClusterPlan) -> Watched:
        return Watched(plan, counts[plan.name], 100, "{}", InputError("x", "y") if plan.name == "bad" else None)

    # At the third a row group is written, so that some of its own rows wait when the large one comes.
    counts = {"a": 5, "b": 5, "c": 4, "bad": 4, "large": 30, "d": 5}
    clusters = [(number, plan_to_json(make_plan(name))) for number, name in enumerate(counts)]
    found = list(stage_clusters(str(tmp_path), clusters, read, "plan-1-0"))
    manifest = manifest_of(row for batch in found for row in batch.to_pylist())
    assert sum(file.row_count for file in manifest.files) == 100 * (sum(counts.values()) - counts["bad"])
    most = {name: max(batches) for name, batches in waiting.items()}
    assert max(most.values()) <= 10 + 1, most
    assert min(most["c"], most["large"]) > 6, "the budget is used"


def test_a_lake_that_cannot_be_written_fails_the_task(tmp_path: Path, make_plan: MakePlan) -> None:
    (tmp_path / "records").write_text("a file where the table's folder belongs")
    with pytest.raises(OSError, match="records"):
        staged(tmp_path, [make_plan("a")], {})


def test_only_valid_batches_of_the_log_say_how_far_it_was_decoded() -> None:
    """A header with a wrong CRC may claim any offset, and a snapshot counts its own."""
    columns = {"source": ["log", "log", "10-1"], "last_offset": [9, 99, 999], "valid": [True, False, True]}
    tally = Tally()
    tally.add("batches", pa.RecordBatch.from_pydict({**columns, "size_bytes": [1, 2, 3]}))
    assert (tally.decoded_to, tally.bytes_read, tally.sources) == (10, 6, {"log", "10-1"})
