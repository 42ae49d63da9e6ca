"""Several logs under one cluster id in a lake: each a history of its own, as `check` judges them, and found again."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import ModuleType

import pytest

import kraft_audit
from kraft_audit.capture.plan import BatchKey, ClusterPlan, FilePlan, FileScan, ReplicaPlan, history_id
from kraft_audit.lake import known_histories
from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.known_histories import LedgerIndex, read_histories
from kraft_audit.lake.ledger_state import LedgerFile, LedgerState
from kraft_audit.lake.settings import FleetSettings
from kraft_audit.rules.rule_model import Status
from kraft_codec.file_names import FileKind, segment_name
from tests.builders.history_lakes import histories, rows, write
from tests.builders.lakes import MakeFleet
from tests.builders.logs import CLUSTER_ID, led, with_topics


@pytest.mark.parametrize("ids", [("first", "second"), ("second", "first")])
def test_a_folder_is_the_history_of_its_newest_batch(ids: tuple[str, str]) -> None:
    """Its segments were read under two ids, and lie there unchanged: no byte of them is read."""
    known = {"first": CLUSTER_ID, "second": history_id(CLUSTER_ID, ["another"])}
    files, ledger = [], {}
    for base_offset, name in zip((0, 10), ids, strict=True):
        scan = FileScan(100, 5, 100, BatchKey(0, base_offset, base_offset + 9, 1, 7), 1, 10, 0, 0, 0)
        file = segment_name(base_offset)
        files.append(FilePlan(file, FileKind.SEGMENT, base_offset, None, scan.size_bytes, scan.mtime_ms, scan))
        place = ("/logs", "node-1", file)
        ledger[place] = LedgerFile(*place, known[name], 1, None, "", 0, FileKind.SEGMENT, base_offset, None, scan)
    index = LedgerIndex.of(ledger, {id_: LedgerState(aliases=(id_,)) for id_ in known.values()})
    replica = ReplicaPlan("/logs", "node-1", "", 0, 0, CLUSTER_ID, 1, None, tuple(files))
    (found,) = read_histories(ClusterPlan(1, "", CLUSTER_ID, "kip853", (replica,)), index, pytest.fail)
    assert (found.plan.history_id, found.ids) == (known[ids[1]], {known[ids[1]]})


def judged_by_lake(fleet: FleetSettings) -> set[tuple[object, ...]]:
    plans: dict[object, object] = {}
    for row in rows(fleet, "findings_staged"):
        plans[row["cluster_id"]] = max(row["plan"], plans.get(row["cluster_id"], 0))  # type: ignore[call-overload]
    return {
        tuple(row[name] for name in ("finding_id", "rule", "status", "subject", "from_offset", "to_offset"))
        for row in rows(fleet, "findings_staged")
        if row["status"] != "clear" and row["plan"] == plans[row["cluster_id"]]
    }


def judged_by_check(path: Path) -> set[tuple[object, ...]]:
    with kraft_audit.open(str(path)) as clusters:
        return {
            (each.finding_id, each.rule, each.status, each.subject, each.from_offset, each.to_offset)
            for cluster in clusters
            for each in cluster.check()
            if each.status is not Status.CLEAR
        }


@pytest.mark.slow
def test_each_log_of_a_cluster_id_is_judged_as_check_judges_it(
    tmp_path: Path, make_fleet: MakeFleet, without_spark: ModuleType
) -> None:
    for number, folder in enumerate(("monday", "tuesday")):
        write(
            tmp_path / "logs" / folder,
            with_topics(led(1, [1], start_ms=1_700_000_000_000 + 900_000 * number)),
            1,
            number,
        )
    fleet = make_fleet({"twice": [tmp_path / "logs"]})
    assert without_spark.run(fleet).failed == {}
    found = judged_by_lake(fleet)
    assert found == judged_by_check(tmp_path / "logs")
    assert "KB009" in {rule for _, rule, *_ in found}
    ids = {row["cluster_id"] for row in rows(fleet, "leader_epochs")}
    assert len(ids) == 2
    assert CLUSTER_ID in ids
    assert set(histories(fleet)) == ids
    assert {row["cluster_id"] for row in histories(fleet).values()} == {CLUSTER_ID}
    of_cluster = "SELECT history_id FROM histories WHERE cluster_id = '{}'"
    lake = DeltaLake(fleet.lake)
    query = f"SELECT * FROM findings_staged WHERE cluster_id IN ({of_cluster.format(CLUSTER_ID)})"  # noqa: S608
    assert lake.query(query, "findings_staged", "histories").num_rows == len(rows(fleet, "findings_staged"))


@pytest.mark.slow
def test_a_disk_formatted_again_begins_another_history_and_the_first_keeps_its_id(
    tmp_path: Path, make_fleet: MakeFleet, without_spark: ModuleType
) -> None:
    old, new = with_topics(led(1, [1])), with_topics(led(1, [1], start_ms=1_700_000_900_000))
    write(tmp_path / "logs" / "monday", old)
    fleet = make_fleet({"again": [tmp_path / "logs"]})
    without_spark.run(fleet)
    write(tmp_path / "logs" / "tuesday", new, 1, 1)
    assert without_spark.run(fleet).plans == [2]
    known = histories(fleet)
    assert known[CLUSTER_ID]["first_plan"] == 1
    (second,) = known.keys() - {CLUSTER_ID}
    assert known[second]["first_plan"] == 2
    assert {
        row["cluster_id"]
        for row in rows(fleet, "findings_staged")
        if row["rule"] == "KB009" and row["status"] == "raised"
    } == {second}
    with_topics(new, 2)
    write(tmp_path / "logs" / "tuesday", new, 1, 1)
    assert without_spark.run(fleet).plans == [3]
    assert set(histories(fleet)) == {CLUSTER_ID, second}, "an id is given once"
    assert max(row["last_offset"] for row in rows(fleet, "batches") if row["cluster_id"] == second) == 5  # type: ignore[type-var]
    assert without_spark.run(fleet).plans == []


@pytest.mark.slow
def test_copies_that_begin_later_join_the_history_that_holds_their_batches(
    tmp_path: Path, make_fleet: MakeFleet, without_spark: ModuleType
) -> None:
    log = with_topics(led(1, [1]), 8)
    write(tmp_path / "one", log)
    fleet = make_fleet({"kept": [tmp_path / "*"]})
    without_spark.run(fleet)
    (tmp_path / "one").rename(tmp_path / "lake.gone")
    write(tmp_path / "two", log, 2, 1, first=5)
    without_spark.run(fleet)
    assert set(histories(fleet)) == {CLUSTER_ID}


def read_as_one(plan: ClusterPlan, _: object) -> list[ClusterPlan]:
    """As a release did that did not tell histories apart."""
    return [plan]


@pytest.mark.slow
def test_a_run_from_the_archive_takes_apart_what_was_read_as_one(
    tmp_path: Path,
    make_fleet: MakeFleet,
    without_spark: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The archive of two logs read as one says what `run` says of the same log dirs; a later `run` keeps it so."""
    for number, folder in enumerate(("monday", "tuesday")):
        log = with_topics(led(1, [1], start_ms=1_700_000_000_000 + 900_000 * number), 3 + number)
        write(tmp_path / "logs" / folder, log, 1, number)
    roots: list[Path | str] = [tmp_path / "logs"]
    apart, mixed = make_fleet({"twice": roots}, lake="apart"), make_fleet({"twice": roots}, lake="mixed")
    without_spark.run(apart)
    with monkeypatch.context() as earlier:
        earlier.setattr(known_histories, "split_histories", read_as_one)
        without_spark.run(mixed)
    assert {row["cluster_id"] for row in rows(mixed, "leader_epochs")} == {CLUSTER_ID}
    number = without_spark.run_from_archive(mixed)

    def epochs(fleet: FleetSettings, plan: int) -> list[tuple[object, ...]]:
        names = ("cluster_id", "from_offset", "to_offset", "epoch", "leader_id")
        found = [row for row in rows(fleet, "leader_epochs") if row["plan"] == plan]
        return sorted(tuple(row[name] for name in names) for row in found)

    assert epochs(mixed, number) == epochs(apart, 1)
    assert len({cluster for cluster, *_ in epochs(mixed, number)}) == 2
    known = histories(mixed)
    assert {id_: (row["aliases"], row["first_plan"]) for id_, row in known.items()} == {
        id_: (row["aliases"], 1) for id_, row in histories(apart).items()
    }
    assert judged_by_lake(mixed) == judged_by_lake(apart)
    # The ids hold: from the archive once more, and from the log dirs, of which one is gone.
    again = without_spark.run_from_archive(mixed)
    assert epochs(mixed, again) == epochs(mixed, number)
    shutil.rmtree(tmp_path / "logs" / "tuesday")
    write(tmp_path / "logs" / "monday", with_topics(led(1, [1]), 4), 1, 0)
    without_spark.run(mixed)
    (last,) = {row["cluster_id"] for row in rows(mixed, "leader_epochs") if row["plan"] == again + 1}
    (older,) = known.keys() - {CLUSTER_ID}
    assert last == older, "the log of Monday is the older one"
    assert set(histories(mixed)) == set(known)
