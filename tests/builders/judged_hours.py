"""A cluster judged hour by hour with what earlier hours showed, beside `check` over all captures of all hours."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from kraft_audit.capture.path_plans import plan_path
from kraft_audit.capture.plan import ClusterPlan, SilverPosition
from kraft_audit.pipeline.analysis import TABLES, CaptureMemory, analyze
from kraft_audit.pipeline.history_collector import read_history
from kraft_audit.reading import ClusterReading, ReadingSettings
from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.judging import check
from kraft_audit.rules.rule_model import Finding, Status
from kraft_codec.records.redaction import Redactor
from kraft_codec.storage.opener import open_storage
from tests.builders.hourly_disks import CountedBytes, HourlyDisks, PlannedLake, dialect_of, position_of, remembered
from tests.builders.memory_lake import KEY

Rows = dict[str, list[dict[str, Any]]]
Shown = tuple[Any, ...]
FACT = ("offset", "epoch", "timestamp_ms", "node_id", "text")


READ = frozenset({"batches", "decode_errors", "files", "replays", "watermarks", "findings"})
"""The tables that are read here."""
OF_WHAT_IS_ON_DISK = frozenset({"KQ007", "KQ013", "KQ019"})
"""Rules about what a disk holds, not about what happened."""
PROVEN = ("low", "high", "canonical_epoch", "canonical_end_offset")
KNOWN_LOW = "an earlier capture proved"
"""A lake asks for this proof only where the captures of the hour prove less."""


class JudgedHours:
    """The hours of one cluster.

    `is_cut_off`: the disks no longer hold records that an earlier hour judged, or records that no hour saw are gone.
    From then on only a lake's archive could say the same as all captures. `has_gap`: records that no hour saw are gone.
    `started_at`: where the last hour's replay began.
    """

    def __init__(self, reading: Any, disks: HourlyDisks) -> None:
        self.disks = disks
        self.lake = PlannedLake(reading, dialect_of(disks.kind))
        self.position: SilverPosition | None = None
        self.state: bytes | None = None
        self.short_values: dict[str, list[str]] = {}
        self.started_at = 0
        self.hours = disks.root.parent / "all"
        self.rounds: list[ClusterPlan] = []
        self.rows: Rows = {}
        self.watermarks: list[dict[str, Any]] = []
        self.is_cut_off = self.has_gap = False
        self.compared = 0

    def pass_hour(self) -> None:
        """Judges what the disks are now."""
        plan = self.lake.next_plan(self.disks.root)
        if plan is None:
            return
        plan = replace(plan, silver=self.position)
        memory = remembered(self.state)
        self.rows = self._rows(plan, memory)
        assert memory.kept is not None
        self.state = memory.kept.to_bytes()
        (replayed,) = self.rows["replays"]
        began_later = len(self.watermarks) > 0 and replayed["started_at"] > self.started_at
        self.has_gap = self.has_gap or replayed["gap_to_offset"] is not None
        self.is_cut_off = self.is_cut_off or began_later or self.has_gap
        self.started_at = replayed["started_at"]
        self.lake.take(self.rows)
        self.position = position_of(self.rows)
        self.watermarks += self.rows["watermarks"]
        self._keep_round(plan)

    def differences(self) -> list[str]:
        """Where the last hour and a judgement of all captures differ, each on one line.

        Of a suffix (KQ001) whose batches are on no disk any more an hour knows the offsets, and neither times nor
        places. Damage that a disk does not have any more is over: only captures that are all read again still show it.
        """
        history = all_captures(self.rounds)
        # Captures alone do not always prove their order, nor does one know the voters that others show.
        if self.is_cut_off or intervals(history.rows("watermarks")) != intervals(self.watermarks):
            return []
        self.compared += 1
        wanted = shown_findings(check(history))
        found = {key(row): said(row) for row in self.rows["staged_findings"] if row["status"] != "clear"}
        mended = [each for each in wanted.keys() - found.keys() if each[0] in OF_WHAT_IS_ON_DISK]
        if mended:
            still_there = shown_findings(check(all_captures(self.rounds[-1:])))
            wanted = {each: what for each, what in wanted.items() if each not in mended or each in still_there}
        lost = [each for each in found.keys() & wanted.keys() if each[0] == "KQ001" and found[each][1][2] is None]
        for known in (wanted, found):
            known.update({each: offsets_alone(known[each]) for each in lost})
        return [
            f"{episode}: all captures {wanted.get(episode)}, the chain {found.get(episode)}"
            for episode in sorted(wanted.keys() | found.keys(), key=str)
            if wanted.get(episode) != found.get(episode)
        ]

    def _rows(self, plan: ClusterPlan, memory: CaptureMemory) -> Rows:
        number = self.lake.number
        redactor = Redactor(KEY, self.short_values)
        settings = ReadingSettings(
            CountedBytes().open, redactor, clock_ms=lambda: number, known=self.lake, stop_on_change=True
        )
        found: Rows = {"staged_findings": []}
        for name, batch in analyze(plan, settings, TABLES, memory):
            if name not in READ:
                continue
            found.setdefault("staged_findings" if name == "findings" else name, []).extend(batch.to_pylist())
        self.short_values = redactor.short_values()
        return found

    def _keep_round(self, plan: ClusterPlan) -> None:
        hour = self.hours / f"hour-{len(self.rounds):02d}"
        shutil.copytree(self.disks.root, hour)
        plans = plan_path(
            str(hour), open_storage=open_storage, captured_at_ms=self.lake.number, dialect=dialect_of(self.disks.kind)
        )
        own = max(plans, key=lambda each: len(each.replicas))
        number = len(self.rounds)
        replicas = tuple(replace(each, capture_number=number) for each in own.replicas)
        self.rounds.append(replace(plan, replicas=replicas, context=()))


def all_captures(rounds: Sequence[ClusterPlan]) -> ClusterHistory:
    """The history that all captures show, each read when its hour was."""
    replicas = tuple(replica for each in rounds for replica in each.replicas)
    whole = replace(
        rounds[-1], replicas=replicas, context=(), silver=None, decoded_to=0, known_sources=(), known_damages=()
    )
    settings = ReadingSettings(open_storage, Redactor(KEY), clock_ms=lambda: 1)
    with ClusterReading(whole, settings) as reading:
        history = read_history([reading])
    read_ms = {each.replicas[0].capture_number: each.replicas[0].captured_at_ms for each in rounds}
    tables = dict(history.tables)
    for name, columns in (("captures", ("read_from_ms", "read_to_ms")), ("watermarks", ("read_from_ms", "read_to_ms"))):
        table = tables[name]
        times = pa.array([read_ms[number] for number in table["capture_number"].to_pylist()], pa.int64())
        for column in columns:
            place = table.column_names.index(column)
            table = table.set_column(place, table.schema.field(column), times)
        tables[name] = table
    tables["decode_errors"] = once_each(tables["decode_errors"])
    return replace(history, tables=tables, _shared={})


def once_each(damage: pa.Table) -> pa.Table:
    """Damage as a lake has it: once, not once a capture."""
    names = ("node_id", "directory_id", "file_name", "position", "reason", "detail")
    rows: dict[Shown, int] = {}
    for number, row in enumerate(damage.select(names).to_pylist()):
        rows.setdefault(tuple(row.values()), number)
    return damage.take(pa.array(list(rows.values()), pa.int64()))


def intervals(watermarks: Sequence[dict[str, Any]]) -> list[Shown]:
    """What was committed, as each round shows it, in time."""
    ordered = sorted(watermarks, key=lambda row: row["read_to_ms"])
    return [(*(row[name] for name in PROVEN), row["high_evidence"]) for row in ordered]


def key(row: dict[str, Any]) -> Shown:
    return row["rule"], row["finding_id"], row["from_ms"] if row["from_offset"] is None else row["from_offset"]


def said(row: dict[str, Any]) -> Shown:
    """What two judgements must agree in: places on disk may differ."""
    facts = [tuple(fact[name] for name in FACT) for fact in row["evidence"] if not fact["text"].startswith(KNOWN_LOW)]
    span = tuple(row[name] for name in ("from_offset", "to_offset", "from_ms", "to_ms"))
    words = (str(row["status"]), str(row["severity"]), row["subject"], row["summary"])
    return row["is_over"], span, row["epoch"], words, facts


def offsets_alone(what: Shown) -> Shown:
    """What is said of a suffix, but for the time and the places of its batches."""
    is_over, (from_offset, to_offset, _, to_ms), epoch, words, facts = what
    return is_over, (from_offset, to_offset, to_ms), epoch, words, facts[:1]


def shown_findings(findings: Iterable[Finding]) -> dict[Shown, Shown]:
    """What each raised or undecided episode says."""
    found = {}
    for finding in findings:
        if finding.status is not Status.CLEAR:
            facts = [{name: getattr(fact, name) for name in FACT} for fact in finding.evidence]
            row = {**finding._asdict(), "evidence": facts}
            found[key(row)] = said(row)
    return found
