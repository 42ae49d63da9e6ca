"""Log dirs put together from the archive tell the same as those that were read."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kraft_audit
from kraft_audit.archive import runs
from kraft_audit.archive.archived_captures import ArchivedCluster, ArchivedRedactor, archived_cluster
from kraft_audit.archive.exported_log import Exported, canonical_log, exported_files
from kraft_audit.archive.runs import ArchivedRuns
from kraft_audit.capture import archiver
from kraft_audit.capture.path_plans import plan_path
from kraft_audit.capture.plan import ClusterPlan, SilverPosition
from kraft_audit.capture.replica import OpenStorage
from kraft_audit.clusters import open_copies
from kraft_audit.lake.lake_copies import LakeCopies
from kraft_audit.reading import ClusterReading, ReadingSettings
from kraft_audit.recovery.may_i.permission_table import PermissionRow
from kraft_audit.replay.silver_rows import SILVER_TABLES
from kraft_codec.errors import CodecError, InputError
from kraft_codec.file_names import FileKind
from kraft_codec.records.redaction import Redactor
from kraft_codec.schemas import Dialect
from kraft_codec.storage.opener import open_storage
from kraft_codec.storage.random_access import join
from kraft_engine import simulate
from tests.builders import readings
from tests.builders.archive_tables import MemoryTables
from tests.builders.snapshot_files import secret_snapshot

KEY = b"k" * 32
WHEN = {"read_from_ms", "read_to_ms", "capture_number"}
Rows = dict[str, list[str]]


def silver_rows(plan: ClusterPlan, opener: OpenStorage, redactor: Redactor) -> Rows:
    found: Rows = {name: [] for name in SILVER_TABLES}
    for name, batch in readings.silver_rows(plan, open_storage=opener, redactor=redactor):
        for row in batch.to_pylist():
            remaining = {key: value for key, value in row.items() if key not in WHEN}
            found[name].append(json.dumps(remaining, sort_keys=True, default=str))
    return {name: sorted(rows) for name, rows in found.items()}


def archived(plan: ClusterPlan, redactor: Redactor, **options: Any) -> ArchivedCluster:
    tables = frozenset({"captures", "batches", "archive"})
    rows = readings.bronze_rows(plan, tables, open_storage=open_storage, redactor=redactor)
    return archived_cluster(
        MemoryTables.of(rows),
        location="archive",
        cluster_id=plan.cluster_id,
        dialect=Dialect(plan.dialect),
        defaults=plan.defaults,
        **options,
    )


def both(plan: ClusterPlan, **options: Any) -> tuple[Rows, Rows]:
    """The silver rows from the logs and from the archive, which goes on from what was proven, as the ledger has it.

    Watermarks come from disks alone: a snapshot that the archive has no need of may have been their evidence.
    """
    redactor = Redactor(KEY)
    again = archived(plan, redactor, **options)
    reported = silver_rows(plan, open_storage, redactor)
    (replay,) = map(json.loads, reported["replays"])
    proven = SilverPosition(0, 0, replay["low"], replay["low_epoch"], 0) if replay["began_at"] == 0 else None
    found = silver_rows(replace(again.plan, silver=proven), again.open_storage, ArchivedRedactor(KEY))
    assert len(found.pop("watermarks")) == len(reported.pop("watermarks")) or options
    return reported, found


SCENARIOS = (
    "divergence", "dynamic-quorum", "elr", "jbod", "mini-3.9.2", "mini-4.4.0", "static-to-dynamic-upgrade",
    "torn-write", "uncommitted-voter-change",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_samples_report_the_same_from_the_archive(name: str, small_corpus: Path, reading: Any) -> None:
    for plan in reading.plans(small_corpus / name):
        first, again = both(plan)
        assert again == first
        assert first["voter_sets"]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SCENARIOS, "crash", pytest.param("volume", marks=pytest.mark.ci)])
def test_captures_report_the_same_from_the_archive(name: str, captured_logs: Path, reading: Any) -> None:
    for plan in reading.plans(captured_logs / name):
        first, again = both(plan)
        assert again == first


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scenario", "seed"), [("random", 3), ("random", 11), ("random-kip856", 2), ("random-kip642", 5)]
)
def test_engine_runs_report_the_same_from_the_archive(scenario: str, seed: int, tmp_path: Path) -> None:
    simulate(scenario, seed, tmp_path / "run")
    now = {"open_storage": open_storage, "captured_at_ms": 0}
    plans = plan_path(str(tmp_path / "run"), **now)
    plan = max(plans, key=lambda archived_plan: len(archived_plan.replicas))
    first, again = both(plan)
    assert again == first
    if scenario == "random":
        kinds = [json.loads(row)["kind"] for row in first["security_changes"]]
        assert {"SCRAM", "DELEGATION_TOKEN"} & set(kinds), "the run has secrets"


def test_secrets_and_unknown_records_report_the_same(tmp_path: Path, reading: Any, node: Any, log: Any) -> None:
    from kraft_codec.records.record import write_metadata_value

    log.lead(1, epoch=1)
    password = {"resourceType": 4, "resourceName": "1", "name": "ssl.key.password", "value": "pw"}
    for value in ("pw", "other", "pw", "a password of many characters"):
        log.append(write_metadata_value("ConfigRecord", 0, password | {"value": value}))
    log.append(b"\x01\x7e\x00an unknown record", write_metadata_value("ConfigRecord", 0, password))
    token = {"owner": "User:al", "tokenId": "a-token"}
    log.append(write_metadata_value("DelegationTokenRecord", 0, token))
    node(tmp_path, 1, log.content)
    first, again = both(reading.plan(tmp_path))
    assert again == first
    values = [json.loads(row)["value"] for row in first["config_changes"]]
    assert len(values) == 5
    assert len(set(values)) == 3, "equal secrets have equal forms, in the archive as in the log"


def test_the_snapshot_that_a_log_goes_on_from_is_there_again(tmp_path: Path, reading: Any, node: Any, log: Any) -> None:
    """And a log without a batch is there at its place: on node 2, which loaded the snapshot and fetched nothing yet."""
    log.lead(1, epoch=1)
    for number in range(9):
        log.topic(f"topic-{number}")
    files = secret_snapshot(5) | secret_snapshot(8)
    node(tmp_path, 1, {4: b"".join(log.batches[4:])}, files=files)
    node(tmp_path, 2, {5: b""}, files=secret_snapshot(5))
    plan = reading.plan(tmp_path)
    cluster = archived(plan, Redactor(KEY))
    held = {
        replica.node_id: {f.name.rpartition("/")[2]: f.size_bytes for f in replica.files}
        for replica in cluster.plan.replicas
    }
    (remaining,) = secret_snapshot(5)
    (second,) = secret_snapshot(8)
    assert remaining in held[1]
    assert remaining in held[2]
    assert second not in held[1], "the log itself says what it contains"
    assert held[1]["00000000000000000004.log"] == sum(map(len, log.batches[4:]))
    assert held[2]["00000000000000000005.log"] == 0


@pytest.mark.slow
def test_what_later_captures_do_not_contain_is_never_left_out(small_corpus: Path, reading: Any) -> None:
    """With no room for captures that others repeat, branches that were cut off are there still."""
    plan = reading.plan(small_corpus / "divergence")
    first, again = both(plan, captures_bytes=0)
    whole, few = (archived(plan, Redactor(KEY), **more) for more in ({}, {"captures_bytes": 0}))
    assert len(few.plan.replicas) < len(whole.plan.replicas)
    for name in SILVER_TABLES - {"watermarks", "replays"}:
        assert again[name] == first[name], name


@pytest.mark.slow
@pytest.mark.parametrize("scenario", ["random", "random-harsh", "random-kip642", "random-storm"])
def test_rounds_that_say_nothing_new_change_no_permission(scenario: str, tmp_path: Path) -> None:
    """A round stays whole: of disks that were copied together some say what the others are."""
    simulate(scenario, 77_100, tmp_path / "run")
    last = max((tmp_path / "run").glob("capture-*"))
    for quiet_hour in range(3):
        shutil.copytree(last, last.with_name(f"{last.name}-{quiet_hour}"))
    with kraft_audit.open(str(tmp_path / "run")) as clusters:
        plans = [cluster.plan for cluster in clusters]
    rows = []
    for plan in plans:
        whole, few = (archived(plan, Redactor(KEY), **more) for more in ({}, {"only_telling": True}))
        assert len(few.plan.replicas) < len(whole.plan.replicas)
        sizes = [Counter(replica.capture for replica in each.plan.replicas) for each in (whole, few)]
        assert all(count == sizes[0][capture] for capture, count in sizes[1].items())
        rows.append([permission_rows(cluster) for cluster in (whole, few)])
    assert rows
    assert all(of_whole == of_few for of_whole, of_few in rows)


def permission_rows(cluster: ArchivedCluster) -> list[PermissionRow]:
    copies = LakeCopies(cluster.plan, {cluster.storage.location: cluster.storage})
    with open_copies("lake", copies) as clusters:
        return [row for each in clusters for row in each.permissions("PATH").rows]


def test_blocks_are_fetched_as_they_are_needed(
    tmp_path: Path, reading: Any, node: Any, log: Any, monkeypatch: pytest.MonkeyPatch
) -> None:

    monkeypatch.setattr(archiver, "RUN_BYTES", 500)
    monkeypatch.setattr(runs, "BLOCK_BYTES", 1500)
    log.lead(1, epoch=1)
    for number in range(300):
        log.topic(f"topic-{number}")
    node(tmp_path, 1, log.content)
    plan = reading.plan(tmp_path)
    first, again = both(plan)
    assert again == first
    redactor = Redactor(KEY)
    tables = MemoryTables.of(readings.bronze_rows(plan, open_storage=open_storage, redactor=redactor))
    cluster = archived_cluster(tables, location="archive", cluster_id=plan.cluster_id)
    indexed = tables.contents_asked
    assert indexed > 10
    (segment,) = [file for file in cluster.plan.replicas[0].files if file.kind == "segment"]
    with cluster.storage.open(f"{cluster.plan.replicas[0].path}/{segment.name}") as file:
        assert file.read_at(0, file.size_bytes).tobytes() == log.content
        assert tables.contents_asked == 2 * indexed
        assert file.read_at(1234, 4321).tobytes() == log.content[1234 : 1234 + 4321]


def test_batches_of_many_runs_hold_less_than_their_bytes(
    tmp_path: Path, reading: Any, node: Any, log: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run's index has room for as many batches as there might be, which may not be kept for a column or two."""
    monkeypatch.setattr(archiver, "RUN_BYTES", 20_000)
    log.lead(1, epoch=1)
    for number in range(1_500):
        log.topic(f"topic-{number}")
    node(tmp_path, 1, log.content)
    redactor = Redactor(KEY)
    tables = MemoryTables.of(readings.bronze_rows(reading.plan(tmp_path), open_storage=open_storage, redactor=redactor))
    runs = ArchivedRuns(tables)
    numbers = range(tables.runs().num_rows)
    assert len(numbers) > 5
    size_bytes = sum(len(runs.content(number)) for number in numbers)
    before_bytes = pa.total_allocated_bytes()
    indexed = [runs._indexed(number) for number in numbers]
    assert sum(len(columns[0]) for columns in indexed) == len(log.batches)
    assert pa.total_allocated_bytes() - before_bytes < size_bytes / 10


def test_an_archive_is_looked_through_like_log_dirs(tmp_path: Path, reading: Any, node: Any, usual_log: Any) -> None:
    node(tmp_path, 1, usual_log.content)
    node(tmp_path, 2, {4: b"".join(usual_log.batches[4:])}, files=secret_snapshot(5))
    plan = reading.plan(tmp_path)
    from_archive = replace(plan.replicas[1], medium="archive")
    cluster = archived(replace(plan, replicas=(plan.replicas[0], from_archive)), Redactor(KEY))
    (found,) = plan_path("archive", open_storage=cluster.open_storage, captured_at_ms=0)
    assert [replica.medium for replica in found.replicas] == ["directory", "archive"]
    for looked, planned in zip(found.replicas, cluster.plan.replicas, strict=True):
        assert (looked.identity, looked.path, looked.medium) == (planned.identity, planned.path, planned.medium)
        assert looked.files == planned.files
    with pytest.raises(CodecError, match="no such file"):
        cluster.storage.open("000000/0000/another-file")
    path = join(found.replicas[0].path, "meta.properties")
    with cluster.storage.open(path) as file, pytest.raises(CodecError, match="were planned"):
        cluster.storage.open(path, file.size_bytes + 1)


def test_the_newest_of_every_node_is_read_together(tmp_path: Path, reading: Any, node: Any, usual_log: Any) -> None:
    """The later capture has node 1 alone: what the nodes hold now comes from it and the earlier one of node 2."""
    older = b"".join(usual_log.batches[:-2])
    for number in (1, 2):
        node(tmp_path / "01", number, older)
    node(tmp_path / "02", 1, usual_log.content)
    replicas = archived(reading.plan(tmp_path), Redactor(KEY)).plan.replicas
    sizes = [
        (replica.capture_number, replica.node_id, file.size_bytes)
        for replica in replicas
        for file in replica.files
        if file.kind is FileKind.SEGMENT
    ]
    late, early = len(usual_log.content), len(older)
    assert sorted(sizes) == [(0, 1, early), (0, 2, early), (1, 1, late), (2, 1, late), (2, 2, early)]


def test_a_node_dir_without_meta_properties_is_there_again(
    tmp_path: Path, reading: Any, node: Any, usual_log: Any
) -> None:
    node(tmp_path, 1, usual_log.content)
    node(tmp_path, 2, b"".join(usual_log.batches[:-1]), cluster_id=None)
    cluster = archived(reading.plan(tmp_path), Redactor(KEY))
    sizes = {
        replica.node_id: {file.name.rpartition("/")[2]: file.size_bytes for file in replica.files}
        for replica in cluster.plan.replicas
    }
    assert set(sizes) == {1, None}
    assert "meta.properties" in sizes[1]
    assert "meta.properties" not in sizes[None]
    assert sizes[None]["00000000000000000000.log"] == len(usual_log.content) - len(usual_log.batches[-1])


def exported(cluster: ArchivedCluster, from_offset: int, to_offset: int) -> tuple[dict[str, bytes], Exported]:
    done = Exported()
    files: dict[str, bytes] = {}
    with ClusterReading(cluster.plan, ReadingSettings(cluster.open_storage, ArchivedRedactor(KEY))) as reading:
        for name, content in exported_files(canonical_log(cluster, reading), from_offset, to_offset, done):
            files[name] = files.get(name, b"") + content
    return files, done


def test_an_export_is_the_canonical_log(small_corpus: Path, reading: Any, headers: Any) -> None:
    """Of a cluster whose replicas part: the bytes of the node that holds what was committed."""
    cluster = archived(reading.plan(small_corpus / "divergence"), Redactor(KEY))
    files, done = exported(cluster, 0, 1 << 40)
    log = "__cluster_metadata-0/00000000000000000000.log"
    kafkas = (small_corpus / "divergence/12-after-truncation/node-1" / log).read_bytes()
    assert files[log] == kafkas
    assert (done.from_offset, done.to_offset) == (0, headers(kafkas)[-1].last_offset + 1)
    assert (
        files["__cluster_metadata-0/leader-epoch-checkpoint"].decode()
        == (
            small_corpus / "divergence/12-after-truncation/node-1/__cluster_metadata-0/leader-epoch-checkpoint"
        ).read_text()
    )
    part, done = exported(cluster, 30, 40)
    inside = [header for header in headers(kafkas) if header.last_offset >= 30 and header.base_offset < 40]
    (name,) = [name for name in part if name.endswith(".log")]
    assert name == f"__cluster_metadata-0/{inside[0].base_offset:020d}.log"
    assert part[name] == kafkas[inside[0].position : inside[-1].position + inside[-1].size_bytes]
    with pytest.raises(InputError, match="nothing between 5000 and 6000: the archive has offsets 0 to"):
        exported(cluster, 5000, 6000)


def test_nothing_is_exported_where_two_histories_claim_an_epoch(
    tmp_path: Path, reading: Any, node: Any, usual_log: Any
) -> None:
    second = usual_log.copy()
    for leader_id, log in ((1, usual_log), (2, second)):
        log.lead(leader_id, epoch=3)
        node(tmp_path, leader_id, log.content)
    cluster = archived(reading.plan(tmp_path), Redactor(KEY))
    with pytest.raises(InputError, match=r"no canonical log to export: .*two histories claim epoch 3"):
        exported(cluster, 0, 1 << 40)


class WithoutContents(MemoryTables):
    """Every run is listed, and none can be read any more."""

    def contents(self, source: str, from_offset: int, to_offset: int) -> pa.Table:
        return super().contents(source, from_offset, to_offset).slice(0, 0)


class WithLaterRuns(MemoryTables):
    """Other runs came after the list of runs was read."""

    def contents(self, source: str, from_offset: int, to_offset: int) -> pa.Table:
        runs = super().contents(source, from_offset, to_offset)
        place = runs.schema.get_field_index("leader_epoch")
        later = runs.set_column(place, runs.schema.field(place), pc.add(runs["leader_epoch"], 1).cast(pa.int32()))
        return pa.concat_tables([later, runs, later])


class WithoutHoldings(MemoryTables):
    """The rows of `batches` are gone."""

    def holdings(self) -> pa.Table:
        return super().holdings().slice(0, 0)


def segments_of(tables: MemoryTables, cluster_id: str) -> list[bytes]:
    cluster = archived_cluster(tables, location="archive", cluster_id=cluster_id)
    paths = [
        join(replica.path, file.name)
        for replica in cluster.plan.replicas
        for file in replica.files
        if file.kind is FileKind.SEGMENT
    ]
    return [cluster.storage.read_small(path) for path in paths]


def test_a_lake_that_changes_meanwhile(tmp_path: Path, reading: Any, node: Any, usual_log: Any) -> None:
    """What came since is left alone. What is gone is reported, or no replica held it."""
    plan = reading.plan(node(tmp_path, 1, usual_log.content))
    rows = list(readings.bronze_rows(plan, open_storage=open_storage, redactor=Redactor(KEY)))
    assert segments_of(WithLaterRuns(rows), plan.cluster_id) == [usual_log.content]
    assert segments_of(WithoutHoldings(rows), plan.cluster_id) == [b""]
    with pytest.raises(InputError, match="run 0 is gone: is the lake being vacuumed"):
        segments_of(WithoutContents(rows), plan.cluster_id)


def test_an_archive_that_was_tampered_with_is_refused(small_corpus: Path, reading: Any) -> None:
    plan = reading.plan(small_corpus / "divergence")
    tables = MemoryTables.of(readings.bronze_rows(plan, open_storage=open_storage, redactor=Redactor(KEY)))
    batch = next(batch for name, batch in tables.rows if name == "archive" and batch["source"][0].as_py() == "log")
    row = batch.to_pylist()[0]
    content = bytearray(row["content"])
    content[100] ^= 1
    from kraft_audit.tables.bronze import ARCHIVE
    from kraft_audit.tables.contract import build_rows

    tables.rows[tables.rows.index(("archive", batch))] = (
        "archive",
        build_rows(ARCHIVE, [{**row, "content": bytes(content)}]),
    )
    with pytest.raises(InputError, match="is not what was written"):
        archived_cluster(tables, location="archive", cluster_id=plan.cluster_id)


def test_nothing_archived_is_said_in_one_line(small_corpus: Path, reading: Any) -> None:
    plan = reading.plan(small_corpus / "divergence")
    nothing = replace(plan, replicas=())
    with pytest.raises(InputError, match="the archive holds nothing of cluster"):
        archived(nothing, Redactor(KEY))
