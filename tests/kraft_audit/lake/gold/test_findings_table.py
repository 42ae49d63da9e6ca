"""The table `findings` over many plans, against a plain model of what a finding's life is."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from kraft_audit.findings.finding_formats import findings_batch
from kraft_audit.lake.delta import DeltaLake, DeltaMerges
from kraft_audit.lake.gold import gold_merge
from kraft_audit.lake.gold.findings_table import STAGED_FINDINGS, FindingsTable, waived_rows
from kraft_audit.lake.gold.gold_merge import GoldLake
from kraft_audit.lake.ledger import Ledger
from kraft_audit.lake.ledger_state import ClusterOutcome, Manifest, PlannedCluster, StateChange
from kraft_audit.lake.quality.quality_gate import judge_lake
from kraft_audit.rules.registry import rules
from kraft_audit.rules.rule_model import (
    DECLARED_BY,
    FOR_EVER,
    Case,
    Finding,
    Rule,
    Scope,
    Waiver,
    finding_of,
    undecided,
)
from kraft_audit.spark.gold_engine import SparkGold
from kraft_audit.tables.gold import FINDINGS, JUDGED_FINDINGS
from kraft_audit.tables.silver import REPLAYS
from kraft_codec.errors import InputError
from tests.builders.lakes import MakePlan, no_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KP001: Rule = rules()["KP001"]
KB003: Rule = rules()["KB003"]
DAY_MS = 86_400_000
NOW_MS = 1_800_000_000_000


class Plans:
    """A ledger whose plans close at once, with what the rules said in each of them."""

    def __init__(self, lake: DeltaLake, make_plan: MakePlan) -> None:
        self.lake = lake
        self.ledger = Ledger(lake)
        self.ledger.create()
        self.make_plan = make_plan
        self.said: list[dict[str, list[Finding] | None]] = []

    def close(self, said: dict[str, list[Finding] | None], split: dict[str, str] | None = None) -> int:
        """One more plan: what was found in each cluster; None: the cluster could not be read.

        `split` has the history that another one was a part of so far.
        """
        number = self.commit(said, split)
        assert self.ledger.close_plan(number, {})
        return number

    def commit(self, said: dict[str, list[Finding] | None], split: dict[str, str] | None = None) -> int:
        """The same, and the plan stays open."""
        self.said.append(said)
        number = len(self.said)
        origins = split or {}
        clusters = [
            PlannedCluster(replace(self.make_plan(name, number), split_from=origins.get(name, ""))) for name in said
        ]
        assert self.ledger.open_plan(clusters, "key")
        outcomes = [
            ClusterOutcome(place, name, name, "unreadable" if found is None else None, StateChange(), {})
            for place, (name, found) in enumerate(said.items())
        ]
        assert self.ledger.record_staged(number, Manifest(tuple(outcomes), ()))
        found = [finding for value in said.values() for finding in value or ()]
        rows = findings_batch(found, seen_ms=number * 1000, plan=number)
        self.write_staged(pa.Table.from_batches([rows]))
        return number

    def write_staged(self, rows: pa.Table) -> None:
        from deltalake import write_deltalake

        write_deltalake(self.lake.table_uri(STAGED_FINDINGS), rows.cast(JUDGED_FINDINGS.schema), mode="append")


@pytest.fixture
def plans(tmp_path: Path, make_plan: MakePlan) -> Plans:
    return Plans(DeltaLake(str(tmp_path / "lake")), make_plan)


@pytest.fixture
def table(plans: Plans) -> FindingsTable:
    return FindingsTable(GoldLake(plans.lake, no_session))


def found(cluster: str, subject: str, *, rule: Rule = KP001, is_over: bool = False, summary: str = "alone") -> Finding:
    case = Case(subject, summary, from_offset=5, from_ms=500, to_ms=700 if is_over else None, is_over=is_over)
    return finding_of(rule, cluster, case)


def rows(lake: DeltaLake) -> dict[str, dict[str, Any]]:
    read = lake.query("SELECT * FROM findings", "findings").to_pylist()
    by_id = {row["finding_id"]: row for row in read}
    assert len(by_id) == len(read), "a finding has two rows"
    return by_id


def model(said: list[dict[str, list[Finding] | None]]) -> dict[str, dict[str, Any]]:
    """What the table must hold, kept in dictionaries."""
    known: dict[str, dict[str, Any]] = {}
    for number, clusters in enumerate(said, 1):
        for cluster, findings in clusters.items():
            if findings is None:
                continue
            now = {finding.finding_id: finding for finding in findings}
            for finding_id, row in known.items():
                if row["cluster"] == cluster and finding_id not in now and row["state"] != "resolved":
                    row.update(state="resolved", closed_by="not_found", plan=number)
            for finding_id, finding in now.items():
                row = known.setdefault(
                    finding_id, {"cluster": cluster, "first": number, "reopened": 0, "state": None, "last": 0}
                )
                was_closed = row["state"] == "resolved"
                row.update(state="resolved" if finding.is_over else "open", last=number, plan=number)
                row["closed_by"] = "ended" if finding.is_over else None
                row["summary"] = finding.summary
                row["reopened"] += was_closed and not finding.is_over
    return known


def seen(lake: DeltaLake) -> dict[str, dict[str, Any]]:
    return {
        finding_id: {
            "cluster": row["cluster_id"],
            "first": row["first_seen_ms"] // 1000,
            "reopened": row["reopened_count"],
            "state": row["state"],
            "last": row["last_seen_ms"] // 1000,
            "closed_by": row["closed_by"],
            "plan": row["plan"],
            "summary": row["summary"],
        }
        for finding_id, row in rows(lake).items()
    }


SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 4))]


def live(plans: Plans, table: FindingsTable, plan_count: int, seed: int) -> None:
    """Random plans, merged one by one or several at once, each merge asked for twice."""
    chance = random.Random(seed)  # noqa: S311  # a seed, no secret
    for number in range(1, plan_count + 1):
        said: dict[str, list[Finding] | None] = {}
        for cluster in ("a", "b", "c"):
            if chance.random() < 0.3:
                continue
            subjects = [subject for subject in ("t-0", "t-1", "u-0") if chance.random() < 0.6]
            over = {subject: chance.random() < 0.3 for subject in subjects}
            reported = [
                found(cluster, subject, is_over=over[subject], summary=f"plan {number}") for subject in subjects
            ]
            said[cluster] = None if chance.random() < 0.15 else reported
        plans.close(said or {"a": []})
        if chance.random() < 0.5:
            table.update(NOW_MS)
    table.update(NOW_MS)
    version = plans.lake.open("findings").version()
    assert table.update(NOW_MS) == []
    assert plans.lake.open("findings").version() == version
    assert seen(plans.lake) == model(plans.said)


@pytest.mark.ci
@pytest.mark.parametrize("seed", SEEDS)
def test_lives_of_findings(plans: Plans, table: FindingsTable, seed: int) -> None:
    live(plans, table, 12, seed)


@pytest.mark.ci
@pytest.mark.parametrize("seed", SEEDS)
def test_lives_of_findings_of_plans_that_close_in_any_order(plans: Plans, table: FindingsTable, seed: int) -> None:
    """An open plan's findings are not merged, whichever plan closes; each is merged once, in the order of closing."""
    chance = random.Random(seed)  # noqa: S311  # a seed, no secret
    open_: dict[str, int] = {}
    closed: list[int] = []
    merged: list[int] = []
    for _ in range(24):
        cluster = chance.choice("abc")
        if cluster not in open_:
            subjects = [subject for subject in ("t-0", "t-1") if chance.random() < 0.6]
            open_[cluster] = plans.commit({cluster: [found(cluster, subject) for subject in subjects]})
            continue
        number = open_.pop(cluster)
        closed.append(number)
        assert plans.ledger.close_plan(number, {})
        if chance.random() < 0.5:
            merged += table.update(NOW_MS)
            done = plans.ledger.status().done
            assert all(row["plan"] in done for row in rows(plans.lake).values())
    merged += table.update(NOW_MS)
    assert merged == closed
    assert merged != sorted(merged), "the seed closes a plan before an earlier one"
    said = [said if number in closed else {} for number, said in enumerate(plans.said, 1)]
    assert seen(plans.lake) == model(said)


def first_seen(lake: DeltaLake, table: str = "findings") -> dict[str, int]:
    """The plan at whose time each finding, or its only episode, was first seen, by finding id."""
    read = lake.query(f"SELECT finding_id, first_seen_ms, first_plan FROM {table}", table).to_pylist()  # noqa: S608
    assert all(row["first_seen_ms"] == row["first_plan"] * 1000 for row in read)
    return {row["finding_id"]: row["first_plan"] for row in read}


@pytest.mark.slow
def test_a_history_that_is_split_off_keeps_when_its_findings_were_first_seen(
    plans: Plans, table: FindingsTable
) -> None:
    """Findings of the log itself were about the mix: those that are not found again are closed, even by the archive."""
    of_log = rules()["KQ001"]
    mixed = [found("a", "t-0"), found("a", "t-1"), found("a", "node 1", rule=of_log)]
    plans.close({"a": mixed})
    table.update(NOW_MS)
    part = "a.h0000000f"
    parts = [found(part, "t-1"), found(part, "t-2")]
    plans.close({"a": mixed[:1], part: parts}, split={part: "a"})
    table.update(NOW_MS)
    plans.close({"a": mixed[:1], part: [*parts, found(part, "node 1", rule=of_log)]}, split={part: "a"})
    table.update(NOW_MS)
    late = found(part, "node 1", rule=of_log).finding_id
    expected = {finding.finding_id: 1 for finding in mixed} | {parts[0].finding_id: 1, parts[1].finding_id: 2, late: 3}
    assert first_seen(plans.lake) == expected
    assert first_seen(plans.lake, "finding_episodes") == expected
    states = {row["finding_id"]: row["state"] for row in rows(plans.lake).values()}
    assert {id_ for id_, state in states.items() if state == "open"} == {
        finding.finding_id for finding in (mixed[0], *parts)
    } | {late}


@pytest.mark.long
def test_many_findings_are_merged_by_spark_alike(
    plans: Plans, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gold_merge, "SMALL_ROWS", -1)
    live(plans, FindingsTable(GoldLake(plans.lake, lambda: SparkGold(plans.lake, lambda: spark))), 2, seed=7)


def test_the_same_plan_is_merged_once_whoever_comes_first(plans: Plans, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that looked before another committed meets the other's transaction, and finds it done."""
    plans.close({"a": []})
    table, findings_table = (
        FindingsTable(GoldLake(plans.lake, no_session)),
        FindingsTable(GoldLake(plans.lake, no_session)),
    )
    assert table.update(NOW_MS) == [1]
    plans.close({"a": [found("a", "t-0")]})
    merge, stale = findings_table.merge_of(2), plans.lake.open("findings")
    assert table.update(NOW_MS) == [2]
    before = plans.lake.open("findings").version()
    opened = [stale]
    fresh = DeltaLake.latest

    def look(lake: DeltaLake, name: str) -> DeltaTable:
        return opened.pop() if opened and name == "findings" else fresh(lake, name)

    monkeypatch.setattr(DeltaLake, "latest", look)
    assert not findings_table.gold.merge("findings", merge, 2)
    assert not opened
    assert plans.lake.open("findings").version() == before
    assert seen(plans.lake) == model(plans.said)


@pytest.mark.parametrize("problem", [OSError(28, "\x1b[31mNo space left\nat all"), pa.ArrowInvalid("cut\x1b[0m")])
def test_a_disk_that_fails_in_a_merge_is_reported_in_one_line(
    plans: Plans, table: FindingsTable, monkeypatch: pytest.MonkeyPatch, problem: Exception
) -> None:
    """Whatever class the library raises, and without the colours of its own stack."""
    plans.close({"a": [found("a", "t-0")]})

    def fails(*_: object) -> NoReturn:
        raise problem

    with monkeypatch.context() as patched:
        patched.setattr(DeltaMerges, "_merge", fails)
        with pytest.raises(InputError, match="findings: cannot be merged into: ") as reported:
            table.update(NOW_MS)
    assert not set("\x1b\n") & set(str(reported.value))
    table.update(NOW_MS)
    assert seen(plans.lake) == model(plans.said)


@pytest.mark.slow
def test_waivers_hold_until_their_day_and_no_longer(plans: Plans, table: FindingsTable) -> None:
    plans.close({"a": [found("a", "t-0"), found("a", "t-1"), found("a", "old", is_over=True)]})
    until = Waiver("KP001", "a", "t-*", "team", "planned", "2027-01-15")
    assert table.update(NOW_MS) == [1]
    assert table.counts().open == {"critical": 2, "high": 0, "medium": 0, "low": 0}
    waived = FindingsTable(table.gold, [until])
    day_ms = 1_799_971_200_000  # 2027-01-15, midnight
    waived.update(day_ms)
    assert (waived.counts().open["critical"], waived.counts().waived) == (0, 2)
    # Seen again it stays waived; gone it is closed and its waiver ends.
    plans.close({"a": [found("a", "t-0", summary="again")]})
    waived.update(day_ms)
    states = {row["subject"]: (row["state"], row["waiver"]) for row in rows(plans.lake).values()}
    who = {"who": "team", "why": "planned", "until": "2027-01-15"}
    assert states == {"t-0": ("waived", who), "t-1": ("resolved", None), "old": ("resolved", None)}
    waived.update(day_ms + DAY_MS)
    (row,) = [row for row in rows(plans.lake).values() if row["subject"] == "t-0"]
    assert (row["state"], row["waiver"], row["expired_waiver"]) == ("open", None, who)
    assert (waived.counts().open["critical"], waived.counts().expired) == (1, 1)
    # Every step of it can be followed in the change feed.
    feed = pa.table(plans.lake.open("findings").load_cdf(starting_version=1).read_all())
    rows_of_feed = feed.select(["subject", "state", "_change_type"]).to_pylist()
    reported = [(row["subject"], row["state"]) for row in rows_of_feed if row["_change_type"] != "update_preimage"]
    assert {("t-0", "waived"), ("t-0", "open"), ("t-1", "resolved")} <= set(reported)


@pytest.mark.slow
def test_what_a_rescue_declares_is_waived_as_long_as_plans_say_so(plans: Plans, table: FindingsTable) -> None:
    """A plan's own rows say it; another episode of the same finding that lasts is an open finding."""
    declared = Waiver("KP001", "a", "t-0", DECLARED_BY, "a rescue", FOR_EVER)
    explained = found("a", "t-0")._replace(waiver=declared)
    who = {"who": DECLARED_BY, "why": "a rescue", "until": FOR_EVER}

    def state_after(*said: Finding) -> tuple[str, dict[str, str] | None]:
        plans.close({"a": [*said]})
        table.update(NOW_MS)
        (row,) = [row for row in rows(plans.lake).values() if row["subject"] == "t-0"]
        return row["state"], row["waiver"]

    assert state_after(explained) == ("waived", who)
    assert table.counts().open["critical"] == 0
    assert state_after(explained._replace(summary="again")) == ("waived", who)
    assert state_after(explained, found("a", "t-0")._replace(from_offset=9)) == ("open", None)
    assert state_after(explained, found("a", "t-0", is_over=True)._replace(from_offset=9)) == ("waived", who)
    assert state_after(found("a", "t-0")) == ("open", None)
    assert state_after() == ("resolved", None)


def test_the_table_is_its_contract_and_plain(plans: Plans, table: FindingsTable) -> None:
    plans.close({"a": [found("a", "t-0")]})
    table.update(NOW_MS)
    opened = plans.lake.open("findings")
    assert [field.name for field in opened.schema().fields] == list(FINDINGS.column_names)
    assert {field.name for field in opened.schema().fields if not field.nullable} == {
        column.name for column in FINDINGS.columns if not column.nullable
    }
    assert opened.protocol().min_reader_version == 1
    assert opened.metadata().configuration["delta.enableChangeDataFeed"] == "true"


def test_waivers_that_change_nothing_give_no_rows() -> None:
    waiver = Waiver("KP001", "*", "t-0", "team", "why", "2027-01-15")
    row = {"finding_id": "1", "rule": "KP001", "cluster_id": "a", "subject": "t-0", "from_ms": 1}
    fresh = {**row, "state": "open", "waiver": None, "expired_waiver": None}
    (changed,) = waived_rows([fresh], [waiver], 0)
    assert changed["state"] == "waived"
    assert list(waived_rows([{**row, **changed}], [waiver], 0)) == []
    assert list(waived_rows([{**fresh, "subject": "t-1"}], [waiver], 0)) == []
    (sibling,) = waived_rows([{**fresh, "cluster_id": "a.h0123abcd"}], [replace(waiver, cluster="a")], 0)
    assert sibling["state"] == "waived", "every history of the cluster id"
    (back,) = waived_rows([{**row, **changed}], [replace(waiver, subject="x")], 0)
    assert back["state"] == "open"


@pytest.mark.slow
def test_a_rule_that_could_not_look_closes_nothing(plans: Plans, table: FindingsTable) -> None:
    """As where the log is gone; what it does not say of one subject alone, it closes."""
    plans.close({"a": [found("a", "t-0"), found("a", "node 1", rule=KB003)]})
    not_looked = finding_of(KP001, "a", undecided("", "nothing of the metadata log was read"))
    plans.close({"a": [not_looked, finding_of(KB003, "a", undecided("node 2", "not captured"))]})
    table.update(NOW_MS)
    states = {row["subject"]: row["state"] for row in rows(plans.lake).values()}
    assert states == {"t-0": "open", "node 1": "resolved", "": "undecided", "node 2": "undecided"}
    verdicts = judge_lake(plans.lake, now_ms=NOW_MS, docs="").verdicts
    assert [verdict.passed for verdict in verdicts if verdict.clause == "open_off_the_plan"] == [True]
    plans.close({"a": []})
    table.update(NOW_MS)
    assert {row["state"] for row in rows(plans.lake).values()} == {"resolved"}


def began_at(cluster: str, subject: str, offset: int, *, rule: Rule = KP001) -> Finding:
    return finding_of(rule, cluster, Case(subject, "alone", from_offset=offset, from_ms=offset * 100))


def test_what_began_on_records_that_the_quorum_did_not_keep_is_reverted(plans: Plans, table: FindingsTable) -> None:
    """P·X, then P·Y: the log of plan 2 parts from that of plan 1 at offset 20. What began on X is closed as reverted,
    what began on P and is no longer found is not, nor what a rule says of the disks."""
    of_disks = next(rule for rule in rules().values() if rule.scope is Scope.LOG)
    on_p, lasting, on_x = (began_at("a", subject, at) for subject, at in (("p-0", 5), ("l-0", 6), ("x-0", 20)))
    on_disk = began_at("a", "branches", 25, rule=of_disks)
    elsewhere = began_at("b", "x-0", 30)
    plans.close({"a": [on_p, lasting, on_x, on_disk], "b": [elsewhere]})
    parted = dict.fromkeys(REPLAYS.column_names) | {"cluster_id": "a", "plan": 2, "contradicted_from": 20}
    schema = pa.schema([field.with_nullable(True) for field in REPLAYS.schema])
    parting = pa.Table.from_pylist([parted], schema=schema)
    write_deltalake(plans.lake.table_uri(REPLAYS.name), parting, mode="overwrite", schema_mode="overwrite")
    plans.close({"a": [lasting], "b": []})
    assert table.update(NOW_MS) == [1, 2]
    closed_by = {finding_id: row["closed_by"] for finding_id, row in rows(plans.lake).items()}
    assert closed_by == {
        on_p.finding_id: "not_found",
        lasting.finding_id: None,
        on_x.finding_id: "reverted",
        on_disk.finding_id: "not_found",
        elsewhere.finding_id: "not_found",
    }
    episodes = plans.lake.query("SELECT finding_id, closed_by FROM finding_episodes", "finding_episodes").to_pylist()
    assert {row["finding_id"]: row["closed_by"] for row in episodes} == closed_by


@pytest.mark.slow
def test_a_loss_stays_open_when_no_plan_finds_it_any_more_until_it_is_acknowledged(
    plans: Plans, table: FindingsTable
) -> None:
    """Kafka deletes the record of the loss; only a person ends it, and the next loss is open again."""
    kp020 = rules()["KP020"]
    plans.close({"a": [found("a", "t-0", rule=kp020), found("a", "t-1")]})
    plans.close({"a": []})
    table.update(NOW_MS)
    states = {row["rule"]: row["state"] for row in rows(plans.lake).values()}
    assert states == {"KP020": "open", "KP001": "resolved"}
    waiver = Waiver("KP020", "a", "*", "payments", "sent again", FOR_EVER, before_ms=501)
    FindingsTable(table.gold, [waiver]).update(NOW_MS)
    assert {row["rule"]: row["state"] for row in rows(plans.lake).values()}["KP020"] == "acknowledged"
    later = finding_of(kp020, "a", Case("t-0", "again", from_offset=9, from_ms=501, key="t-0 7"))
    plans.close({"a": [later]})
    FindingsTable(table.gold, [waiver]).update(NOW_MS)
    assert rows(plans.lake)[later.finding_id]["state"] == "open"
