"""Several plans open at once: each has clusters of its own, they close in any order, and only what is done is seen."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

from kraft_audit.capture.plan import plan_from_json
from kraft_audit.lake import waves as waves_module
from kraft_audit.lake.closed_plans import ClosedPlans
from kraft_audit.lake.data_files import write_rows
from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.ledger import Ledger
from kraft_audit.lake.ledger_state import ClusterOutcome, Manifest, PlannedCluster, StateChange
from kraft_audit.lake.pipeline import Step
from kraft_audit.lake.plan_commits import commit_tables
from kraft_audit.lake.plan_events import PlanStatus
from kraft_audit.lake.settings import FleetSettings
from kraft_audit.lake.staging.stage import StageError
from kraft_audit.lake.staging.staging_tasks import planned_bytes
from kraft_audit.lake.views import query_of
from kraft_audit.lake.waves import LARGE_BYTES, numbered, waves_of
from kraft_audit.tables.bronze import FILES
from kraft_audit.tables.contract import build_rows
from kraft_audit.tables.gold import HISTORIES
from kraft_codec.errors import InputError
from tests.builders.lakes import MakeFleet, MakePlan, file_row

FIRST, SECOND = "torn-write", "mini-3.9.2"


class Waves:
    """A ledger of plans that write one row of `histories` for each of their clusters, in any order of steps."""

    def __init__(self, uri: str, make_plan: MakePlan, checkpoint_plans: int = 100) -> None:
        self.ledger = Ledger(DeltaLake(uri), checkpoint_plans)
        self.ledger.create()
        self.make_plan = make_plan
        self.clusters: dict[int, tuple[str, ...]] = {}

    def open(self, *clusters: str) -> int:
        number = self.ledger.newest_plan() + 1
        assert self.ledger.open_plan([PlannedCluster(self.make_plan(name, number)) for name in clusters], "key")
        self.clusters[number] = clusters
        return number

    def stage(self, number: int) -> bool:
        rows = [
            {"cluster_id": name, "history_id": name, "name": name, "aliases": [], "first_plan": 1, "plan": number}
            for name in self.clusters[number]
        ]
        batch = build_rows(HISTORIES, [{**dict.fromkeys(HISTORIES.column_names), **row} for row in rows])
        uri = self.ledger.lake.uri
        file = write_rows(uri, HISTORIES.name, pa.Table.from_batches([batch]), f"plan-{number}")
        outcomes = [
            ClusterOutcome(place, name, name, None, StateChange(number, (f"{number}-0",)), {})
            for place, name in enumerate(self.clusters[number])
        ]
        return self.ledger.record_staged(number, Manifest(tuple(outcomes), (file,)))

    def commit(self, number: int) -> list[bool]:
        return [is_new for _, _, is_new in commit_tables(self.ledger, number, self.ledger.manifest(number))]

    def close(self, number: int) -> bool:
        return self.ledger.close_plan(number, {})

    def seen(self) -> list[tuple[str, int]]:
        """The rows that the lake shows, by a view that looks the closed plans up and by one that is given them."""
        lake = DeltaLake(self.ledger.lake.uri)
        found = []
        for closed in (None, self.ledger.status().done):
            rows = lake.query(query_of(HISTORIES.name, str, closed), "plans", HISTORIES.name)
            found.append(sorted((row["cluster_id"], row["plan"]) for row in rows.to_pylist()))
        assert found[0] == found[1]
        return found[0]


@pytest.fixture
def waves(tmp_path: Path, make_plan: MakePlan) -> Waves:
    return Waves(str(tmp_path / "lake"), make_plan)


@pytest.mark.slow
def test_a_plan_that_commits_after_a_later_one_keeps_its_rows(waves: Waves) -> None:
    first, second = waves.open("a"), waves.open("b")
    assert waves.stage(first)
    assert waves.stage(second)
    assert waves.commit(second) == [True]
    assert waves.close(second)
    assert waves.ledger.status() == PlanStatus(2, 1, (1,), ClosedPlans(0, (2,)))
    assert waves.commit(first) == [True], "its rows must not count as committed because a later plan's are"
    assert waves.seen() == [("b", 2)], "an open plan's rows are not seen although a later one closed"
    assert waves.close(first)
    assert waves.seen() == [("a", 1), ("b", 2)]
    assert waves.commit(first) == waves.commit(second) == [False]
    assert waves.ledger.status() == PlanStatus(2, 2, (), ClosedPlans(2))
    assert waves.ledger.closings(0) == [(1, 2), (2, 1)]
    assert waves.ledger.closings(1) == [(2, 1)]


@pytest.mark.slow
def test_an_abandoned_plan_is_never_seen(waves: Waves) -> None:
    first, second = waves.open("a"), waves.open("b")
    assert waves.ledger.abandon(first)
    assert not waves.ledger.abandon(first)
    assert not waves.stage(first), "a run that was still reading learns that nothing counts"
    assert waves.ledger.manifest(first) == Manifest((), ())
    waves.stage(second)
    waves.commit(second)
    waves.close(second)
    assert waves.ledger.close_plan(first, {}, is_abandoned=True)
    third = waves.open("a")
    assert waves.ledger.first_plan("a") == third, "what it named was not read"
    waves.stage(third)
    assert not waves.ledger.abandon(third), "what is left of a staged plan needs no cluster"
    waves.commit(third)
    waves.close(third)
    assert waves.seen() == [("a", 3), ("b", 2)]
    assert waves.ledger.closings(0) == [(1, 2), (3, 3)]
    for closed in (None, waves.ledger.status().done):
        rows = DeltaLake(waves.ledger.lake.uri).query(query_of("plans", str, closed), "plans")
        assert set(rows["plan"].to_pylist()) == {2, 3}


def test_a_plan_is_opened_only_by_who_saw_all_before_it(waves: Waves) -> None:
    """Two runs that looked at the same time: the second one's plan could read the same cluster."""
    number = waves.open("a")
    assert not waves.ledger.open_plan([PlannedCluster(waves.make_plan("a", number))], "key")
    claims = waves.ledger.claims(waves.ledger.status().open)
    assert claims.plan_of("a", None) == claims.plan_of("another name", "a") == number
    assert claims.plan_of("b", "b") is None


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_what_the_next_plan_must_know_in_any_order_of_closing(seed: int, tmp_path: Path, make_plan: MakePlan) -> None:
    """Checkpoints and the newest states of files, against a plain model that only knows what closed as done."""
    chance = random.Random(seed)  # noqa: S311
    waves = Waves(str(tmp_path / "lake"), make_plan, checkpoint_plans=chance.choice([1, 2, 3]))
    free, states, files, order = {"a", "b", "c", "d"}, dict[str, list[int]](), dict[str, int](), list[int]()
    open_: list[int] = []
    for _ in range(24):
        if free and (not open_ or chance.random() < 0.5):
            name = chance.choice(sorted(free))
            free.discard(name)
            open_.append(waves.open(name))
            continue
        number = chance.choice(open_)
        open_.remove(number)
        (name,) = waves.clusters[number]
        free.add(name)
        if chance.random() < 0.25:
            assert waves.ledger.abandon(number)
            assert waves.ledger.close_plan(number, {}, is_abandoned=True)
            continue
        waves.stage(number)
        row = file_row(number, f"{name}.log", number)
        rows = pa.Table.from_batches([build_rows(FILES, [{**row, "cluster_id": name}])])
        waves.ledger.lake.append_rows("files", rows, waves.ledger.plan_application("files", number), number)
        waves.close(number)
        states.setdefault(name, []).append(number)
        files[f"{name}.log"] = number
        order.append(number)
    found = waves.ledger.states()
    assert {name: state.decoded_to for name, state in found.items()} == {n: max(of) for n, of in states.items()}
    assert {name: set(state.known_sources) for name, state in found.items()} == {
        name: {f"{number}-0" for number in numbers} for name, numbers in states.items()
    }
    assert {key[2]: file.scan.size_bytes for key, file in waves.ledger.files().items()} == files
    assert [plan for _, plan in waves.ledger.closings(0)] == order
    status = waves.ledger.status()
    assert set(status.open) == set(open_)
    abandoned = waves.clusters.keys() - set(order) - set(open_)
    assert {number for number in waves.clusters if number in status.done} - abandoned == set(order)


@pytest.fixture
def fleet(small_corpus: Path, tmp_path: Path, make_fleet: MakeFleet, copy_aged: Callable[[Path, Path], None]) -> Any:
    """A function that gives a fleet of these clusters, with one lake."""
    for name in (FIRST, SECOND):
        copy_aged(small_corpus / name, tmp_path / "logs" / name)
    return lambda *names, **more: make_fleet({name: [tmp_path / "logs" / name] for name in names}, **more)


@pytest.mark.slow
def test_no_cluster_waits_for_one_in_an_open_plan(
    fleet: Any, without_spark: ModuleType, lake_hash: Callable[..., dict[str, str]]
) -> None:
    """A run left a plan open. The next one reads every other cluster to the end before it goes on with that one."""
    alone = fleet(FIRST, SECOND, lake="alone")
    without_spark.run(alone)
    without_spark.run(fleet(FIRST), only=Step.PLAN)
    both = fleet(FIRST, SECOND)
    staged: list[tuple[int, PlanStatus]] = []

    def stage(number: int) -> Manifest:
        staged.append((number, Ledger(DeltaLake(both.lake)).status()))
        return without_spark.stager(both)(number)  # type: ignore[no-any-return]

    result = without_spark.run(both, stage=stage)
    assert (result.plans, result.failed, result.clusters) == ([2, 1], {}, 2)
    assert staged[1] == (1, PlanStatus(2, 1, (1,), ClosedPlans(0, (2,)))), "plan 2 is closed when plan 1 is read"
    but = frozenset({"plan", "first_plan"})
    assert lake_hash(both.lake, but) == lake_hash(alone.lake, but)
    assert without_spark.run(both).plans == []


@pytest.mark.slow
def test_a_run_leaves_the_open_plans_of_other_fleets_alone(fleet: Any, without_spark: ModuleType) -> None:
    """Tasks of a schedule that have a cluster each do not read each other's; what is staged is ended by any of them."""
    without_spark.run(fleet(FIRST), only=Step.PLAN)
    assert without_spark.run(fleet(SECOND)).plans == [2]
    lake = DeltaLake(fleet(SECOND).lake)
    assert Ledger(lake).status().open == (1,)
    without_spark.run(fleet(FIRST), only=Step.STAGE)
    assert without_spark.run(fleet(SECOND)).plans == [1]
    assert Ledger(lake).status().open == ()


@pytest.mark.slow
def test_a_cluster_that_cannot_be_staged_stops_no_other(fleet: Any, without_spark: ModuleType) -> None:
    """Its plan loses its job at every run; what others read is closed and seen all the same."""
    without_spark.run(fleet(FIRST), only=Step.PLAN)
    both = fleet(FIRST, SECOND)

    def stage(number: int) -> Manifest:
        if number == 1:
            raise InputError("plan 1", "its job is lost")
        return without_spark.stager(both)(number)  # type: ignore[no-any-return]

    for _ in range(2):
        with pytest.raises(InputError, match="its job is lost"):
            without_spark.run(both, stage=stage)
    assert Ledger(DeltaLake(both.lake)).status() == PlanStatus(2, 1, (1,), ClosedPlans(0, (2,)))


@pytest.mark.slow
def test_an_abandoned_plan_is_planned_again(
    fleet: Any, without_spark: ModuleType, lake_hash: Callable[..., dict[str, str]]
) -> None:
    alone, both = fleet(FIRST, SECOND, lake="alone"), fleet(FIRST, SECOND)
    without_spark.run(alone)
    lines: list[str] = []
    run = without_spark.Run(both, DeltaLake(both.lake), without_spark.stager(both), lines.append)
    run.one_step(Step.PLAN)
    with pytest.raises(InputError, match="plan 7 is not open"):
        run.abandon(7)
    assert run.abandon(1).plans == []
    assert any("plan 1 is abandoned" in line for line in lines)
    assert run.all_steps().plans == [2]
    but = frozenset({"plan", "first_plan"})
    assert lake_hash(both.lake, but) == lake_hash(alone.lake, but)
    with pytest.raises(InputError, match="plan 2 is not open"):
        run.abandon(2)


@pytest.mark.slow
def test_a_staged_plan_is_finished_not_abandoned(fleet: Any, without_spark: ModuleType) -> None:
    first = fleet(FIRST)
    run = without_spark.Run(first, DeltaLake(first.lake), without_spark.stager(first), lambda _: None)
    run.one_step(Step.PLAN)
    run.one_step(Step.STAGE)
    with pytest.raises(InputError, match="plan 1 is staged, and cannot be abandoned"):
        run.abandon(1)
    assert run.all_steps().plans == [1]


@pytest.mark.slow
def test_a_run_killed_while_it_abandons_is_ended_by_the_next(fleet: Any, without_spark: ModuleType) -> None:
    first = fleet(FIRST)
    without_spark.run(first, only=Step.PLAN)
    assert Ledger(DeltaLake(first.lake)).abandon(1)
    result = without_spark.run(first)
    assert (result.plans, result.failed) == ([2], {})
    assert Ledger(DeltaLake(first.lake)).closings(0) == [(2, 2)]


@pytest.mark.slow
def test_a_plan_abandoned_while_another_run_reads_it_is_not_committed(fleet: Any, without_spark: ModuleType) -> None:
    first = fleet(FIRST)

    def stage(number: int) -> Manifest:
        manifest = without_spark.stager(first)(number)
        if number == 1:
            without_spark.Run(first, DeltaLake(first.lake), stage, lambda _: None).abandon(1)
        return manifest  # type: ignore[no-any-return]

    assert without_spark.run(first, stage=stage).plans == []
    lake = DeltaLake(first.lake)
    assert lake.query("SELECT count(*) AS n FROM batches", "batches")["n"][0].as_py() == 0
    assert without_spark.run(first, stage=stage).plans == [2]


def test_large_clusters_and_those_that_failed_before_have_plans_of_their_own(make_plan: MakePlan) -> None:
    def cluster(name: str, size_bytes: int, history: str = "") -> PlannedCluster:
        return PlannedCluster(replace(make_plan(name, 5, size_bytes), history_id=history or name, first_plan=5))

    small, little, large, bad = cluster("s", 9), cluster("o", 9), cluster("l", 2 * LARGE_BYTES), cluster("b", 9)
    halves = [cluster("h", LARGE_BYTES // 2 + 9, f"h{place}") for place in range(2)]
    found = waves_of([bad, large, small, *halves, little], {"b"})
    assert found == [(small, little), (large, *halves), (bad,)], "the histories of an entry are in one plan"
    assert waves_of([small], set()) == [(small,)]
    assert waves_of([], set()) == []
    (again,) = numbered((replace(small, plan=replace(small.plan, first_plan=2)),), 8)
    assert (again.plan.number, again.plan.first_plan) == (8, 2), "it was read before"
    (new,) = numbered((small,), 8)
    assert (new.plan.number, new.plan.first_plan) == (8, 8)


@pytest.mark.slow
def test_a_large_cluster_that_cannot_be_staged_stops_no_small_one(
    fleet: Any, without_spark: ModuleType, lake_hash: Callable[..., dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One run, two plans: the first is closed before the second is read; either may stay open, and the other ends."""
    alone = fleet(FIRST, SECOND, lake="alone")
    without_spark.run(alone)
    costs = [planned_bytes(plan_from_json(text)) for _, text in Ledger(DeltaLake(alone.lake)).planned(1)]
    monkeypatch.setattr(waves_module, "LARGE_BYTES", max(costs))
    for lost in (1, 2):
        both = fleet(FIRST, SECOND, lake=f"lake-{lost}")

        def stage(number: int, both: FleetSettings = both, lost: int = lost) -> Manifest:
            if number == lost:
                raise StageError(number, "its job is lost")
            return without_spark.stager(both)(number)  # type: ignore[no-any-return]

        with pytest.raises(StageError, match="its job is lost"):
            without_spark.run(both, stage=stage)
        status = Ledger(DeltaLake(both.lake)).status()
        assert (status.open, status.closed) == ((lost,), 1)
        assert without_spark.run(both).plans == [lost]
        but = frozenset({"plan", "first_plan"})
        assert lake_hash(both.lake, but) == lake_hash(alone.lake, but)


@pytest.mark.slow
def test_a_cluster_that_failed_at_all_attempts_is_left_alone_for_a_while(
    fleet: Any, without_spark: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    only = fleet(FIRST)

    def stage(number: int) -> Manifest:
        ((place, text),) = Ledger(DeltaLake(only.lake)).planned(number)
        plan = plan_from_json(text)
        why, attempts = "3 attempts failed", {"attempts": 3}
        return Manifest((ClusterOutcome(place, plan.name, plan.key, why, StateChange(), attempts),), ())

    hour_ns, begun_ns = 3_600 * 10**9, time.time_ns()
    hours = 0.0
    monkeypatch.setattr(time, "time_ns", lambda: begun_ns + int(hours * hour_ns))
    assert without_spark.run(only, stage=stage).plans == [1]
    for hours, is_tried in (
        (0.5, False), (1.1, True), (3.0, False), (3.2, True), (7.1, False), (7.3, True), (15.2, False), (15.4, True),
        (23.3, False), (23.5, True),
    ):  # fmt: skip
        result = without_spark.run(only, stage=stage)
        assert result.exit_code == 3
        assert result.failed.keys() == {FIRST}
        assert ([FIRST] in [_names(only.lake, number) for number in result.plans]) == is_tried, hours
        if not is_tried:
            assert "3 attempts failed; it is tried again after 20" in result.failed[FIRST]
            assert result.failed[FIRST].count("tried again") == 1
    hours += 9
    assert without_spark.run(only).failed == {}


def _names(lake: str, number: int) -> list[str]:
    """The clusters that a plan reads."""
    return [plan_from_json(text).name for _, text in Ledger(DeltaLake(lake)).planned(number)]
