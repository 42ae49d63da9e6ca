"""A cluster that several tasks read gives the rows that one task gives, and leaves a state of the same use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from kraft_audit.capture.path_plans import plan_path
from kraft_audit.capture.plan import ClusterPlan
from kraft_audit.findings import analysis
from kraft_audit.findings.analysis import TABLES, Continuation, analyze
from kraft_audit.findings.kept_state import KeptState
from kraft_audit.findings.shares import FIRST, PartsFound, ShareFound, joined
from kraft_audit.reading import ClusterReading, ReadingSettings
from kraft_audit.rules.carried.carried_rows import CarriedRows, facts_of, history_from
from kraft_codec.file_names import segment_name
from kraft_codec.records.redaction import Redactor
from kraft_codec.storage.opener import open_storage
from kraft_engine import Options, simulate
from tests.builders.damaged_batches import with_right_crcs
from tests.builders.hourly_disks import LOG_DIR, HourlyDisks, dialect_of, log_batches

KINDS: Final = ("random-wide", "random-storm", "random", "random-beyond")
EPOCH_AT: Final = slice(12, 16)
"""Where a batch says its leader epoch (DefaultRecordBatch, Kafka 4.3.0)."""
Rows = dict[str, Counter[str]]


def disks(kind: str, seed: int, folder: Path) -> Path:
    """The disks of a random run, two hours in: cut at different offsets, with snapshots, old segments deleted; the last
    batches of the shortest are of a leader whom no other disk knows."""
    found = HourlyDisks(kind, seed, folder / "disks", events=6_000)
    for share in (0.6, 1.0):
        found.pass_hour(len(found.captures) - 1, share=share, deletes=seed % 3 == 1, stands_still=0.0)
    logs = {name: log_batches(found.root / name / LOG_DIR) for name in found.nodes}
    shortest = min((name for name in logs if len(logs[name]) > 2), key=lambda name: logs[name][-1][0])
    log_dir, batches = found.root / shortest / LOG_DIR, logs[shortest]
    own, cut = batches[:-2], batches[-2:]
    epoch = 1 + max(int.from_bytes(log[-1][1][EPOCH_AT]) for log in logs.values() if log)
    strange = [batch[: EPOCH_AT.start] + epoch.to_bytes(4) + batch[EPOCH_AT.stop :] for _, batch in cut]
    # Which epochs there are is said beside the segments, too; without that the log counts.
    for file in (*log_dir.glob("*.log"), log_dir / "leader-epoch-checkpoint"):
        file.unlink()
    content = b"".join([*(batch for _, batch in own), with_right_crcs(b"".join(strange))])
    (log_dir / segment_name(batches[0][0])).write_bytes(content)
    return found.root


def plan_of(folder: Path, kind: str) -> ClusterPlan:
    plans = plan_path(str(folder), open_storage=open_storage, captured_at_ms=1, dialect=dialect_of(kind))
    return replace(max(plans, key=lambda each: len(each.replicas)), number=1, keeps_state=True)


def settings() -> ReadingSettings:
    return ReadingSettings(open_storage, Redactor(b"k" * 32), clock_ms=lambda: 5)


def taken(rows: Rows, batches: Any) -> None:
    for name, batch in batches:
        rows.setdefault(name, Counter()).update(map(repr, batch.to_pylist()))


def read_at_once(plan: ClusterPlan) -> tuple[Rows, KeptState | None]:
    rows, continuation = Rows(), Continuation()
    taken(rows, analyze(plan, settings(), TABLES, continuation))
    return rows, continuation.next_state


def read_by(shares: int, plan: ClusterPlan) -> tuple[Rows, KeptState | None]:
    """The rows of all tasks; what goes from one to another goes as bytes."""
    rows, found = Rows(), list[ShareFound]()
    for share in range(shares):
        each = ShareFound()
        taken(rows, each.analyze(replace(plan, shares=shares, share=share), settings()))
        found.append(each)
    first = found[FIRST]
    assert first.history is not None
    history = history_from(facts_of(first.history), plan, first.history.tables)
    sent = [
        ShareFound(
            PartsFound.from_bytes(each.at_end.to_bytes()),
            None if each.settled is None else PartsFound.from_bytes(each.settled.to_bytes()),
        )
        for each in found
    ]
    continuation = Continuation()
    taken(rows, joined(replace(plan, shares=shares, share=shares), history, first.state, sent, continuation))
    return rows, continuation.next_state


def carried_rows(state: KeptState) -> dict[str, Counter[str]]:
    carried = CarriedRows.from_bytes(state.rules)
    tables = {name: Counter(map(repr, table.to_pylist())) for name, table in carried.tables.items()}
    rest = replace(carried, tables={})
    return {**tables, "all else": Counter([repr(rest)])}


def without_empty(rows: Rows) -> Rows:
    return {name: counts for name, counts in rows.items() if counts}


def assert_equal_shares(plan: ClusterPlan, counts: Sequence[int]) -> Rows:
    whole, state = read_at_once(plan)
    for shares in counts:
        split, split_state = read_by(shares, plan)
        assert without_empty(split) == without_empty(whole), shares
        assert (state is None) == (split_state is None)
        if state is not None and split_state is not None:
            assert split_state.settled == state.settled
            assert split_state.survey.to_bytes() == state.survey.to_bytes()
            assert carried_rows(split_state) == carried_rows(state)
    return whole


@pytest.fixture(autouse=True)
def _partitions_by_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of a large cluster are."""
    monkeypatch.setattr(analysis, "PARTITION_BYTES_MAX", 0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_the_rows_are_those_of_one_task(seed: int, tmp_path: Path) -> None:
    kind = KINDS[seed % len(KINDS)]
    plan = plan_of(disks(kind, seed, tmp_path), kind)
    with ClusterReading(plan, settings()) as reading:
        assert len(reading.survey.branches) > 1
        assert reading.survey.snapshots
    rows = assert_equal_shares(plan, (2, 5))
    assert rows["findings"]
    is_without = kind == "random-storm" or any("contradict each other" in row for row in rows["replays"])
    assert is_without or rows["partition_changes"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["random-wide", "random-lifelike"])
def test_captures_of_several_moments(kind: str, tmp_path: Path) -> None:
    """Their order is proven by what they hold."""
    simulate(kind, 1, tmp_path / "run", Options(events=6_000))
    assert_equal_shares(plan_of(tmp_path / "run", kind), (2, 3))


@pytest.mark.slow
def test_more_tasks_than_topics(tmp_path: Path) -> None:
    assert_equal_shares(plan_of(disks("random-wide", 3, tmp_path), "random-wide"), (1, 16))
