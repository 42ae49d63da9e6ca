"""Exposure and compliance by each engine, against loops over minutes and days in plain Python."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from kraft_audit.capture.plan import ClusterPlan
from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.gold import gold_merge
from kraft_audit.lake.gold.gold_merge import GoldEngine, GoldLake, LocalGold
from kraft_audit.lake.gold.risk import RiskTables
from kraft_audit.lake.ledger import Ledger
from kraft_audit.lake.ledger_state import ClusterOutcome, Manifest, PlannedCluster, StateChange
from kraft_audit.rules.registry import control_of, rules
from kraft_audit.rules.rule_model import CONTROLS
from kraft_audit.spark.gold_engine import SparkGold
from kraft_audit.tables.bronze import BATCHES, CAPTURES
from kraft_audit.tables.contract import Table
from kraft_audit.tables.gold import (
    CLUSTER_COMPLIANCE,
    FINDING_EPISODES,
    FINDINGS,
    INCIDENTS,
    PARTITION_RISK,
)
from kraft_audit.tables.silver import EXPOSURE_CHANGES, SILVER
from tests.builders.expected_exposures import exposure_rows_of

MINUTE_MS = 60_000
DAY_MINUTES = 1440
START = 20_000 * DAY_MINUTES
"""The minute, since 1970, at which the logs of these tests begin: a midnight."""
RACKS = {1: "r1", 2: "r2", 3: None}


def _zero(column: Any) -> Any:
    if column.nullable:
        return None
    if pa.types.is_list(column.type):
        return []
    if pa.types.is_timestamp(column.type) or pa.types.is_integer(column.type):
        return 0
    return False if pa.types.is_boolean(column.type) else ""


class SmallLake:
    """A lake with a few rows of its tables, and closed plans."""

    def __init__(self, uri: Path, make_plan: Callable[..., ClusterPlan]) -> None:
        self.lake = DeltaLake(str(uri))
        self.ledger = Ledger(self.lake)
        self.ledger.create()
        self.make_plan = make_plan
        self.plan = 0

    def close(self, *clusters: str) -> None:
        self.plan += 1
        assert self.ledger.open_plan(
            [PlannedCluster(self.make_plan(cluster, self.plan)) for cluster in clusters], "key"
        )
        outcomes = [
            ClusterOutcome(place, cluster, cluster, None, StateChange(), {}) for place, cluster in enumerate(clusters)
        ]
        assert self.ledger.record_staged(self.plan, Manifest(tuple(outcomes), ()))
        assert self.ledger.close_plan(self.plan, {})

    def write(self, table: Table, rows: list[dict[str, Any]], mode: Any = "append") -> None:
        whole = [{column.name: row.get(column.name, _zero(column)) for column in table.columns} for row in rows]
        write_deltalake(self.lake.table_uri(table.name), pa.Table.from_pylist(whole, schema=table.schema), mode=mode)

    def write_findings(self, findings: list[dict[str, Any]], mode: Any = "append") -> None:
        """Findings of one episode each, without incidents."""
        self.write(FINDINGS, findings, mode=mode)
        self.write(FINDING_EPISODES, findings, mode=mode)
        self.write(INCIDENTS, [])

    def end(self, cluster: str, minute: int) -> None:
        """The log's last record as this plan's captures know it."""
        where = {"cluster_id": cluster, "plan": self.plan + 1}
        self.write(
            CAPTURES, [{**where, "last_timestamp_ms": minute * MINUTE_MS, "read_to_ms": (minute + 9) * MINUTE_MS}]
        )
        self.write(BATCHES, [{**where, "source": "log", "valid": True, "base_timestamp_ms": START * MINUTE_MS}])

    def replayed(self, plan: int, from_offset: int, *clusters: str, gap_to: int | None = None) -> None:
        """From which offset on the plan's rows stand for those of earlier ones, and where a gap before them ends."""
        reported = {"plan": plan, "from_offset": from_offset, "to_offset": 1 << 40, "gap_to_offset": gap_to}
        rows = [{"cluster_id": cluster, **reported} for cluster in clusters]
        self.write(SILVER["replays"], rows)

    def rows(self, table: Table) -> list[dict[str, Any]]:
        found = self.lake.query(f"SELECT * FROM {table.name}", table.name).to_pylist()  # noqa: S608  # our own name
        assert len({tuple(row[name] for name in table.key) for row in found}) == len(found), "a key has two rows"
        return found


NewEngine = Callable[[DeltaLake], GoldEngine]


@pytest.fixture(
    params=[
        pytest.param("DataFusion", marks=pytest.mark.slow),
        pytest.param("handed to Spark", marks=pytest.mark.ci),
        pytest.param("read and merged by Spark", marks=pytest.mark.long),
    ]
)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> NewEngine:
    if request.param == "DataFusion":
        return LocalGold
    if request.param == "read and merged by Spark":
        monkeypatch.setattr(gold_merge, "SMALL_ROWS", -1)
    session = request.getfixturevalue("spark")
    return lambda lake: SparkGold(lake, lambda: session)


@pytest.fixture
def small(tmp_path: Path, make_plan: Callable[..., ClusterPlan]) -> SmallLake:
    return SmallLake(tmp_path / "lake", make_plan)


def states_of(chance: random.Random, cluster: str, from_minute: int, to_minute: int) -> Iterator[dict[str, Any]]:
    """Random changes of four partitions, each at a whole minute."""
    for topic, partition in (("t", 0), ("t", 1), ("u", 0), ("v", 0)):
        replicas = [3] if topic == "v" else [1, 2, 3]
        minutes = sorted(chance.sample(range(from_minute, to_minute), 12))
        for place, minute in enumerate(minutes):
            isr = [replica for replica in replicas if chance.random() < 0.5]
            others = [replica for replica in replicas if replica not in isr]
            yield {
                "cluster_id": cluster,
                "topic_id": f"id-of-{topic}",
                "topic": topic,
                "partition": partition,
                "from_offset": minute,
                "timestamp_ms": minute * MINUTE_MS,
                "exists": topic != "u" or place < 11,
                "replicas": replicas,
                "isr": isr,
                "elr": [broker_id for broker_id in others if chance.random() < 0.4],
                "leader": isr[0] if isr and chance.random() < 0.8 else -1,
                "effective_min_isr": min(2, len(replicas)),
            }


def minutes_by_hand(changes: list[dict[str, Any]], ends: dict[str, int]) -> dict[tuple[Any, ...], list[int]]:
    """(cluster, day, topic, rack) → minutes as last replica, offline, under min ISR, any: one minute at a time."""
    by_partition = defaultdict(list)
    for row in changes:
        by_partition[row["cluster_id"], row["topic"], row["partition"]].append(row)
    counted: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for (cluster, topic, _), rows in by_partition.items():
        for minute in range(START, ends[cluster]):
            newest = [row for row in rows if row["from_offset"] <= minute][-1:]
            if not newest or not newest[0]["exists"]:
                continue
            (row,) = newest
            holders = {*row["isr"], *row["elr"]}
            is_last = len(holders) == 1 and len(row["replicas"]) > 1
            unsafe = (is_last, row["leader"] == -1, len(row["isr"]) < row["effective_min_isr"])
            keeper = row["leader"] if row["leader"] != -1 else next(iter(row["isr"] or row["elr"]), None)
            if any(unsafe):
                key = (
                    cluster,
                    date(1970, 1, 1) + timedelta(days=minute // DAY_MINUTES),
                    topic,
                    RACKS.get(keeper) or "",
                )
                counted[key] = [n + bool(add) for n, add in zip(counted[key], (*unsafe, True), strict=True)]
    return dict(counted)


def minutes_in(rows: list[dict[str, Any]]) -> dict[tuple[Any, ...], list[int]]:
    names = ("last_replica_minutes", "offline_minutes", "under_min_isr_minutes", "exposure_minutes")
    return {tuple(row[name] for name in PARTITION_RISK.key): [row[name] for name in names] for row in rows}


def test_exposure_is_what_a_count_of_minutes_gives(small: SmallLake, engine: NewEngine) -> None:
    """Two plans: the second goes on with one cluster, and leaves the other's rows alone."""
    chance = random.Random(11)  # noqa: S311  # a seed, no secret
    risk = RiskTables(GoldLake(small.lake, lambda: engine(small.lake)))
    ends = {"a": START + DAY_MINUTES + 700, "b": START + 300}
    changes: list[dict[str, Any]] = []
    brokers = [
        {"cluster_id": cluster, "broker_id": broker_id, "exists": True, "rack": rack, "plan": 1}
        for cluster in ends
        for broker_id, rack in RACKS.items()
    ]
    small.write(SILVER["broker_changes"], brokers)
    for cluster in ends:
        changes += [{**row, "plan": 1} for row in states_of(chance, cluster, START, ends[cluster])]
        small.end(cluster, ends[cluster])
    small.write(EXPOSURE_CHANGES, exposure_rows_of(changes))
    small.replayed(1, START, "a", "b")
    small.close("a", "b")
    risk.update()
    assert minutes_in(small.rows(PARTITION_RISK)) == minutes_by_hand(changes, ends)
    more = [{**row, "plan": 2} for row in states_of(chance, "a", ends["a"], ends["a"] + 900)]
    ends["a"] += 2000
    # The first of them end what lasts of the changes before.
    every = exposure_rows_of(changes + more)
    small.write(EXPOSURE_CHANGES, [row for row in every if row["plan"] == 2])
    small.replayed(2, min(row["from_offset"] for row in more), "a")
    small.end("a", ends["a"])
    small.close("a")
    risk.update()
    assert minutes_in(small.rows(PARTITION_RISK)) == minutes_by_hand(changes + more, ends)
    assert {row["plan"] for row in small.rows(PARTITION_RISK) if row["cluster_id"] == "b"} == {1}
    version = small.lake.open(PARTITION_RISK.name).version()
    assert risk.update() == []
    assert small.lake.open(PARTITION_RISK.name).version() == version
    assert small.lake.open(PARTITION_RISK.name).protocol().min_reader_version == 1


def test_who_was_gone_after_a_history_gap_is_exposed_to_its_end(small: SmallLake, engine: NewEngine) -> None:
    """A topic that was deleted in a gap: the snapshot after it has brokers, but not the topic."""
    risk = RiskTables(GoldLake(small.lake, lambda: engine(small.lake)))
    end = START + 700
    where = {"cluster_id": "a", "plan": 1, "is_offline": True, "topic": "t", "topic_id": "id-of-t"}
    small.write(EXPOSURE_CHANGES, [{**where, "from_offset": 5, "timestamp_ms": (START + 60) * MINUTE_MS}])
    small.replayed(1, 0, "a")
    small.end("a", START + 300)
    small.close("a")
    risk.update()
    assert [row["offline_minutes"] for row in small.rows(PARTITION_RISK)] == [240]
    broker = {"cluster_id": "a", "plan": 2, "broker_id": 1, "exists": True}
    small.write(SILVER["broker_changes"], [{**broker, "from_offset": 99, "timestamp_ms": (START + 500) * MINUTE_MS}])
    small.replayed(2, 8, "a", gap_to=100)
    small.end("a", end)
    small.close("a")
    risk.update()
    assert [row["offline_minutes"] for row in small.rows(PARTITION_RISK)] == [440]


def finding(
    number: int, cluster: str, rule: str, severity: str, days: tuple[float | None, float | None], **more: Any
) -> dict[str, Any]:
    """A finding that lasted from one day of the test to another; None: no record dates it, or it lasts."""
    begin, end = (None if day is None else int((START + day * DAY_MINUTES) * MINUTE_MS) for day in days)
    return {
        "finding_id": str(number),
        "cluster_id": cluster,
        "rule": rule,
        "severity": severity,
        "status": "raised",
        "from_ms": begin,
        "to_ms": end,
        "is_over": end is not None,
        "state": "open" if end is None else "resolved",
        "first_seen_ms": (START + 3 * DAY_MINUTES) * MINUTE_MS,
        "changed_ms": 1,
        "plan": 1,
        **more,
    }


def compliance_by_hand(findings: list[dict[str, Any]], ends: dict[str, int]) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    first = datetime.fromtimestamp(START * 60, UTC).date()
    table: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for cluster, end in ends.items():
        last = datetime.fromtimestamp(end * 60, UTC).date()
        for control in CONTROLS:
            before, running = None, 0
            for number in range((last - first).days + 1):
                day = first + timedelta(days=number)
                mine = [f for f in findings if f["cluster_id"] == cluster and control_of(f["rule"]) == control]
                mine = [f for f in mine if _lasts(f, day, last)]
                raised = [f for f in mine if f["status"] == "raised"]
                waived = [f for f in raised if f["state"] == "waived" and day.isoformat() <= f["waiver"]["until"]]
                active = [f for f in raised if f not in waived and f["severity"] != "low"]
                severe = [f for f in active if f["severity"] in ("high", "critical")]
                losses = [f for f in waived if f["rule"] == "KP020" and _begins(f, last) == day]
                weakening = [f for f in active if f not in severe] + losses
                unsure = [f for f in mine if f["status"] == "undecided"]
                running = running + 1 if severe else 0
                status = "not_met" if severe else "undecided" if unsure else "weakened" if weakening else "met"
                trend = "first" if before is None else ("same", "worse", "better")[_sign(len(active) - before)]
                before = len(active)
                rules = [sorted({f["rule"] for f in chosen}) for chosen in (severe, weakening, waived, unsure)]
                counts = (len(active), len(losses), len(waived))
                table[cluster, day, control] = (status, *rules, *counts, trend, running)
    return table


def day_of(time_ms: int) -> date:
    return datetime.fromtimestamp(time_ms / 1000, UTC).date()


def _sign(number: int) -> int:
    return (number > 0) - (number < 0)


def _lasts(row: dict[str, Any], day: date, last: date) -> bool:
    begin = _begins(row, last)
    end = day_of(row["to_ms"] - 1) if row["is_over"] else last
    return begin <= day <= max(begin, min(end, last))


def _begins(row: dict[str, Any], last: date) -> date:
    return min(last, day_of(row["from_ms"] if row["from_ms"] is not None else row["first_seen_ms"]))


def compliance_in(rows: list[dict[str, Any]]) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    names = (
        "status",
        "not_met_by",
        "weakened_by",
        "waived_by",
        "undecided_by",
        "open_findings",
        "acknowledged_losses",
        "waived_findings",
        "trend",
        "not_met_days",
    )
    return {tuple(row[name] for name in CLUSTER_COMPLIANCE.key): tuple(row[name] for name in names) for row in rows}


def test_controls_are_met_weakened_and_not_met_day_by_day(small: SmallLake, engine: NewEngine) -> None:
    risk = RiskTables(GoldLake(small.lake, lambda: engine(small.lake)))
    ends = {"a": START + 5 * DAY_MINUTES + 10, "healthy": START + DAY_MINUTES + 5}
    until = (date(1970, 1, 1) + timedelta(days=20_003)).isoformat()
    waived = {"state": "waived", "waiver": {"who": "x", "why": "y", "until": until}}
    findings = [
        finding(1, "a", "KP001", "critical", (1.5, 3.0)),
        finding(2, "a", "KP005", "high", (1.2, 1.4)),
        finding(3, "a", "KP010", "medium", (0.0, None), **waived),
        finding(4, "a", "KP018", "low", (0.0, None)),
        finding(5, "a", "KV008", "critical", (None, None)),
        finding(6, "a", "KQ002", "critical", (2.0, None), status="undecided"),
        finding(7, "a", "KB003", "medium", (0.5, None)),
        finding(
            8,
            "a",
            "KP020",
            "critical",
            (4.2, None),
            **{**waived, "waiver": {**waived["waiver"], "until": "9999-12-31"}},
        ),
        finding(9, "healthy", "KP020", "high", (0.1, None)),
    ]
    for cluster, end in ends.items():
        small.end(cluster, end)
    small.close(*ends)
    small.write_findings(findings)
    assert risk.update() == [CLUSTER_COMPLIANCE.name] or small.lake.exists(PARTITION_RISK.name)
    assert compliance_in(small.rows(CLUSTER_COMPLIANCE)) == compliance_by_hand(findings, ends)
    worst = {row["worst_severity"] for row in small.rows(CLUSTER_COMPLIANCE) if row["control"] == "durability"}
    assert worst == {None, "critical", "high", "medium"}
    version = small.lake.open(CLUSTER_COMPLIANCE.name).version()
    risk.update()
    assert small.lake.open(CLUSTER_COMPLIANCE.name).version() == version
    # A waiver that expires weakens the control without any plan.
    findings[2].update(state="open", waiver=None, changed_ms=2)
    small.write_findings(findings, mode="overwrite")
    risk.update()
    assert compliance_in(small.rows(CLUSTER_COMPLIANCE)) == compliance_by_hand(findings, ends)


def test_no_control_is_met_where_nothing_of_the_log_was_read(small: SmallLake, engine: NewEngine) -> None:
    """One row a control on the day on which that was seen, and none that is met."""
    seen_ms = (START + DAY_MINUTES) * MINUTE_MS
    small.write(CAPTURES, [{"cluster_id": "unread", "plan": 1, "read_to_ms": seen_ms}])
    small.close("unread")
    not_looked = {"status": "undecided", "first_seen_ms": seen_ms}
    small.write_findings(
        [finding(number, "unread", rule, "high", (None, None), **not_looked) for number, rule in enumerate(rules())],
    )
    # A look at all of the batches must not need one.
    small.write(BATCHES, [])
    RiskTables(GoldLake(small.lake, lambda: engine(small.lake))).update()
    reported = [(row["day"], row["control"], row["status"]) for row in small.rows(CLUSTER_COMPLIANCE)]
    day = datetime.fromtimestamp(seen_ms / 1000, UTC).date()
    assert sorted(reported) == sorted((day, control, "undecided") for control in CONTROLS)


def test_days_begin_where_the_oldest_log_does(small: SmallLake, engine: NewEngine) -> None:
    """Whichever plan emits it: only later plans are read, and their rows are compared with what is known."""
    risk = RiskTables(GoldLake(small.lake, lambda: engine(small.lake)))
    end = START + 4 * DAY_MINUTES
    small.end("a", end)
    small.write_findings([finding(1, "a", "KP018", "low", (2.0, None))])
    first_days = []
    for begins in (START + 2 * DAY_MINUTES, START + 3 * DAY_MINUTES, START + DAY_MINUTES, 0, START + 3 * DAY_MINUTES):
        row = {"cluster_id": "a", "source": "log", "valid": True, "base_timestamp_ms": begins * MINUTE_MS}
        small.write(BATCHES, [{**row, "plan": small.plan + 1}], mode="overwrite")
        small.close("a")
        risk.update()
        first_days.append(min(row["day"] for row in small.rows(CLUSTER_COMPLIANCE)))
    midnight = date(1970, 1, 1) + timedelta(days=START // DAY_MINUTES)
    assert [(day - midnight).days for day in first_days] == [2, 2, 1, 1, 1]
