"""What Kafka removed between two captures is a gap: what was known before ends there, and a snapshot goes on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.quality.quality_gate import judge_lake
from kraft_audit.lake.settings import FleetSettings
from kraft_audit.lake.views import query_of
from kraft_audit.report.cluster_page import cluster_view
from kraft_audit.report.lake_source import LakeSource
from kraft_audit.tables.bronze import PLANS
from kraft_audit.tables.silver import SILVER
from kraft_codec.file_names import snapshot_name
from kraft_codec.records.batch import Batch, read_batches
from kraft_codec.records.record import write_metadata_value
from tests.builders.lakes import MakeFleet, written_at
from tests.builders.logs import Log, write_node

pytestmark = pytest.mark.ci

RunOver = Callable[..., FleetSettings]
FIRST_END = 58
"""Where the first capture ends: two topics are created and one is removed after it, and before the second begins."""
SECOND_START = 142
NODES = ("node-1", "node-2")


def captured(source: Path, live: Path, *, from_offset: int, to_offset: int | None, epoch: int, when_s: float) -> None:
    """A real cluster's disks as they were when their logs held these offsets: whole batches, as Kafka rolls them."""
    shutil.rmtree(live, ignore_errors=True)
    for node in NODES:
        shutil.copytree(source / node, live / node)
        folder = live / node / "__cluster_metadata-0"
        log = folder / f"{0:020d}.log"
        content = log.read_bytes()
        places = {
            batch.header.base_offset: batch.header.position
            for batch in read_batches(content)
            if isinstance(batch, Batch)
        }
        end = len(content) if to_offset is None else places[to_offset]
        for file in [*folder.glob("*.log"), *folder.glob("*index")]:
            file.unlink()
        (folder / f"{from_offset:020d}.log").write_bytes(content[places[from_offset] : end])
        for snapshot in folder.glob("*.checkpoint"):
            if not from_offset <= int(snapshot.name[:20]) <= (to_offset or 1 << 40):
                snapshot.unlink()
        state = json.loads((folder / "quorum-state").read_text())
        (folder / "quorum-state").write_text(json.dumps({**state, "leaderEpoch": epoch, "leaderId": min(epoch, 2)}))
        (folder / "leader-epoch-checkpoint").unlink()
    written_at(live, when_s)


def rows_of(lake: str, view: str) -> list[dict[str, Any]]:
    return DeltaLake(lake).queries(PLANS.name, *SILVER)(query_of(view, str)).to_pylist()


@pytest.fixture
def run_over(small_corpus: Path, tmp_path: Path, make_fleet: MakeFleet, without_spark: ModuleType) -> RunOver:
    """Runs over a real cluster's disks as they were when their logs held these offsets, into one lake."""

    def run(from_offset: int, to_offset: int | None, defaults: dict[str, str] | None = None) -> FleetSettings:
        fleet = make_fleet({"mini": [tmp_path / "live"]}, defaults=defaults)
        is_first = to_offset is not None
        epoch, when_s = (1, 1_700_000_000.5) if is_first else (3, 1_700_000_100.5)
        source = small_corpus / "mini-3.9.2" / "04-stopped"
        captured(source, tmp_path / "live", from_offset=from_offset, to_offset=to_offset, epoch=epoch, when_s=when_s)
        assert without_spark.run(fleet).failed == {}
        return fleet

    return run


def view_rows(lake: str, view: str) -> set[str]:
    """The rows of a view, whichever plan emitted them."""
    rows = [json.dumps({name: value for name, value in row.items() if name != "plan"}) for row in rows_of(lake, view)]
    assert len(set(rows)) == len(rows)
    return set(rows)


def test_a_gap_between_two_captures_is_a_history_gap(run_over: RunOver) -> None:
    fleet = run_over(0, FIRST_END)
    assert rows_of(fleet.lake, "history_gap") == []
    before = rows_of(fleet.lake, "replays")[0]
    topics = {row["topic"]: row for row in rows_of(fleet.lake, "topic_changes")}
    assert topics.keys() == {"m1"}
    assert topics["m1"]["to_offset"] is None
    run_over(SECOND_START, None)
    (gap,) = rows_of(fleet.lake, "history_gap")
    assert (gap["from_offset"], gap["to_offset"]) == (before["settled_offset"], SECOND_START)
    assert gap["snapshot"].startswith(f"{SECOND_START:020d}-0000000001")
    topics = {row["topic"]: row for row in rows_of(fleet.lake, "topic_changes")}
    assert topics.keys() == {"m1", "m2", "m3"}
    assert topics["m1"]["to_offset"] == SECOND_START, "it was gone when the next snapshot was taken"
    assert topics["m2"]["to_offset"] is topics["m3"]["to_offset"] is None
    assert {row["cause"] for row in rows_of(fleet.lake, "partition_changes") if row["topic"] == "m2"} >= {"snapshot"}
    in_gap = [
        row
        for table in SILVER
        if table.endswith("_changes")
        for row in rows_of(fleet.lake, table)
        if gap["from_offset"] <= row["from_offset"] < SECOND_START - 1
    ]
    assert in_gap == []
    partitions = [row for row in rows_of(fleet.lake, "partition_changes") if row["topic"] == "m1"]
    assert all(row["to_offset"] is not None and row["to_offset"] <= SECOND_START for row in partitions)


def test_who_was_gone_after_a_gap_is_exposed_no_longer(run_over: RunOver) -> None:
    """Exposed where the first capture ends, deleted before the second begins."""
    fleet = run_over(0, 45)
    (given,) = LakeSource(fleet.lake).clusters()
    assert given.exposed_spans is not None
    assert set(given.exposed_spans["to_ms"].to_pylist()) == {None}
    run_over(SECOND_START, None)
    (snapshot_ms,) = {
        row["timestamp_ms"]
        for row in rows_of(fleet.lake, "partition_changes")
        if row["from_offset"] == SECOND_START - 1
    }
    (m1,) = {row["topic_id"] for row in rows_of(fleet.lake, "topic_changes") if row["topic"] == "m1"}
    (given,) = LakeSource(fleet.lake).clusters()
    assert given.exposed_spans is not None
    ends = {row["to_ms"] for row in given.exposed_spans.to_pylist() if row["topic_id"] == m1}
    assert ends == {snapshot_ms}
    view = cluster_view(given)
    assert (view.partition_count, view.partitions_at_risk) == (80, 80), "40 of m2 and 40 of m3"
    assert not any(ledger.name.startswith("m1-") for ledger in view.ledgers)
    shown = [row for row in given.history.rows("partition_changes") if row["topic_id"] == m1]
    assert [(row["exists"], row["from_offset"]) for row in shown] == [(False, SECOND_START - 1)] * 6


def test_a_history_gap_breaks_no_promise(run_over: RunOver) -> None:
    """What Kafka removed before it was read cannot be mended. A batch that the lake lost is still found."""
    run_over(0, FIRST_END)
    fleet = run_over(SECOND_START, None)
    lake = DeltaLake(fleet.lake)

    def broken() -> set[tuple[str, str]]:
        found = judge_lake(lake, now_ms=1_700_000_200_000).verdicts
        return {
            (judgement.table, judgement.clause)
            for judgement in found
            if not judgement.passed and judgement.severity == "critical"
        }

    assert broken() == set()
    lake.open("batches").delete(f"base_offset = {SECOND_START + 5} AND source = 'log'")
    assert ("batches", "offset_gaps") in broken()


def test_captures_that_overlap_leave_no_gap(
    run_over: RunOver, small_corpus: Path, make_fleet: MakeFleet, without_spark: ModuleType
) -> None:
    run_over(0, SECOND_START + 3)
    fleet = run_over(SECOND_START, None)
    source = small_corpus / "mini-3.9.2" / "04-stopped"
    assert rows_of(fleet.lake, "history_gap") == []
    whole = make_fleet({"mini": [source / node for node in NODES]}, lake="whole")
    assert without_spark.run(whole).failed == {}
    for table in ("topic_changes", "partition_changes", "broker_changes"):
        assert view_rows(fleet.lake, table) == view_rows(whole.lake, table), table


@pytest.mark.parametrize("from_offset", [0, SECOND_START])
def test_what_another_default_began_ends_with_the_default_that_holds(
    run_over: RunOver, tmp_path: Path, make_fleet: MakeFleet, without_spark: ModuleType, from_offset: int
) -> None:
    """Partitions are emitted again from the first state that disks still hold, without a gap before it."""
    live, strict, lax = tmp_path / "live", {"min.insync.replicas": "3"}, {"min.insync.replicas": "1"}
    fleet = run_over(from_offset, 314, strict)
    (end,) = {row["to_offset"] for row in rows_of(fleet.lake, "exposure_changes") if row["topic"] == "m3"}
    assert end is None, "they wait for their second replica"
    fleet = run_over(from_offset, None, lax)
    whole = make_fleet({"mini": [live]}, lake="whole", defaults=lax)
    assert without_spark.run(whole).failed == {}
    for table in ("topic_changes", "partition_changes", "broker_changes"):
        assert view_rows(fleet.lake, table) == view_rows(whole.lake, table), table
    # A snapshot emits all partitions that may have been exposed before it, by whichever default.
    wanted, exposures = view_rows(whole.lake, "exposure_changes"), view_rows(fleet.lake, "exposure_changes")
    assert wanted <= exposures
    more = [json.loads(row) for row in exposures - wanted]
    assert not any(row["is_last_replica"] or row["is_offline"] or row["is_under_min_isr"] for row in more)
    assert rows_of(fleet.lake, "history_gap") == []
    # Once: the default is known by now.
    written_at(live, 1_700_000_200.5)
    assert without_spark.run(fleet).failed == {}
    replays = sorted(rows_of(fleet.lake, "replays"), key=lambda row: row["plan"])
    assert [row["from_offset"] for row in replays[:2]] == [0, max(0, from_offset - 1)]
    assert all(row["from_offset"] == replays[1]["settled_offset"] for row in replays[2:])


def test_a_run_from_the_archive_passes_a_gap_as_the_captures_did(run_over: RunOver, without_spark: ModuleType) -> None:
    """It holds both sides: what was created in the gap is in the snapshot after it, what was removed is not."""
    fleet = run_over(0, 45)
    run_over(SECOND_START, None)
    views = [*(name for name in SILVER if name.endswith("_changes")), "history_gap"]
    before = {view: view_rows(fleet.lake, view) for view in views}
    assert without_spark.run_from_archive(fleet) == 3
    for view in views:
        gap = {'"snapshot": null': '"snapshot": "00000000000000000142-0000000001"'}
        again = {row.replace(*pair) for row in view_rows(fleet.lake, view) for pair in gap.items()}
        assert again == before[view], view


def topic_records(name: str) -> list[bytes]:
    """A topic of one partition, which two of its three replicas hold."""
    topic = {"name": name, "topicId": name.encode().ljust(16, b".")}
    nodes = {"replicas": [1, 2, 3], "isr": [1, 2], "removingReplicas": [], "addingReplicas": []}
    partition = {"partitionId": 0, "topicId": topic["topicId"], "leader": 1, "leaderEpoch": 0, "partitionEpoch": 0}
    return [
        write_metadata_value("TopicRecord", 0, topic),
        write_metadata_value("PartitionRecord", 0, {**partition, **nodes}),
    ]


def topic_log() -> Log:
    """Topic "gone" at 1 and 2, "kept" at 3 and 4; the first one is removed at 5; two more follow."""
    log = Log()
    log.lead(1, epoch=1)
    gone = write_metadata_value("RemoveTopicRecord", 0, {"topicId": b"gone".ljust(16, b".")})
    for value in (*topic_records("gone"), *topic_records("kept"), gone, *topic_records("a"), *topic_records("b")):
        log.append(value)
    return log


def held(live: Path, *, from_offset: int, to_offset: int, when_s: float) -> None:
    """One node's disk that holds these offsets of `topic_log`, from 6 on with the snapshot that ends there."""
    shutil.rmtree(live, ignore_errors=True)
    content = Log()
    content.control("SNAPSHOT_HEADER", {"version": 0, "lastContainedLogTimestamp": Log().timestamp_ms + 6})
    for value in topic_records("kept"):
        content.append(value)
    content.control("SNAPSHOT_FOOTER", {"version": 0})
    files = {snapshot_name(6, 1): content.content} if from_offset == 6 else {}
    write_node(live, 1, {from_offset: b"".join(topic_log().batches[from_offset:to_offset])}, files=files)
    written_at(live, when_s)


def exposed_to(lake: str) -> dict[str, set[int | None]]:
    """By topic, where what exposed its partition ended; None of what lasts."""
    found: dict[str, set[int | None]] = {}
    for row in rows_of(lake, "exposure_changes"):
        if row["is_under_min_isr"]:
            found.setdefault(row["topic"], set()).add(row["to_offset"])
    return found


def test_who_was_removed_by_the_last_record_of_a_snapshot_stays_so_with_another_default(
    tmp_path: Path, make_fleet: MakeFleet, without_spark: ModuleType
) -> None:
    """Everything is emitted again from the snapshot on, that record too: the snapshot only lacks what it removed."""
    live, strict, lax = tmp_path / "live", {"min.insync.replicas": "3"}, {"min.insync.replicas": "1"}
    held(live, from_offset=0, to_offset=8, when_s=1_700_000_000.5)
    fleet = make_fleet({"one": [live]}, defaults=strict)
    assert without_spark.run(fleet).failed == {}
    assert exposed_to(fleet.lake) == {"gone": {5}, "kept": {None}, "a": {None}}
    held(live, from_offset=6, to_offset=10, when_s=1_700_000_100.5)
    fleet = make_fleet({"one": [live]}, defaults=lax)
    assert without_spark.run(fleet).failed == {}
    assert exposed_to(fleet.lake) == {"gone": {6}, "kept": {5}}
    for table in ("topic_changes", "partition_changes"):
        there = {row["topic"] for row in rows_of(fleet.lake, table) if row["exists"] and row["to_offset"] is None}
        assert there == {"kept", "a", "b"}, table
    assert rows_of(fleet.lake, "history_gap") == []


def test_a_default_that_changed_after_a_gap_and_back_again_leaves_no_partition_exposed(
    tmp_path: Path, make_fleet: MakeFleet, without_spark: ModuleType
) -> None:
    """The snapshot after the gap was emitted with the other default, not with the one known before."""
    live, strict, lax = tmp_path / "live", {"min.insync.replicas": "3"}, {"min.insync.replicas": "1"}
    exposed = []
    for number, (from_offset, to_offset, defaults) in enumerate(((0, 3, lax), (6, 8, strict), (6, 10, lax))):
        held(live, from_offset=from_offset, to_offset=to_offset, when_s=1_700_000_000.5 + number)
        fleet = make_fleet({"one": [live]}, defaults=defaults)
        assert without_spark.run(fleet).failed == {}
        exposed.append({topic for topic, ends in exposed_to(fleet.lake).items() if None in ends})
    assert exposed == [set(), {"kept", "a"}, set()]


@pytest.mark.long
def test_a_copy_that_is_captured_later_fills_what_was_missing_by_the_archive(
    small_corpus: Path, tmp_path: Path, make_fleet: MakeFleet, without_spark: ModuleType
) -> None:
    """Until then the gate warns of it: hourly runs go on after what they emitted."""
    source, live = small_corpus / "mini-3.9.2" / "04-stopped", tmp_path / "live"
    fleet, whole = make_fleet({"mini": [live]}), make_fleet({"mini": [source]}, lake="whole")
    assert without_spark.run(whole).failed == {}
    shutil.copytree(source / "node-1", live / "node-1")
    log = live / "node-1" / "__cluster_metadata-0" / f"{0:020d}.log"
    content = log.read_bytes()
    places = {
        batch.header.base_offset: batch.header.position for batch in read_batches(content) if isinstance(batch, Batch)
    }
    log.write_bytes(content[: places[45]] + content[places[SECOND_START] :])
    written_at(live, 1_700_000_000.5)
    assert without_spark.run(fleet).failed == {}
    shutil.copytree(source / "node-2", live / "node-2")
    assert without_spark.run(fleet).failed == {}

    def warned() -> list[str]:
        found = judge_lake(DeltaLake(fleet.lake), fresh_hours=10**6, docs="").verdicts
        return [judgement.clause for judgement in found if not judgement.passed]

    views = [name for name in SILVER if name.endswith("_changes")]
    assert any(view_rows(fleet.lake, view) != view_rows(whole.lake, view) for view in views)
    assert warned() == ["incomplete_replays"]
    assert without_spark.run_from_archive(fleet) == 3
    for view in views:
        assert view_rows(fleet.lake, view) == view_rows(whole.lake, view), view
    assert warned() == []
