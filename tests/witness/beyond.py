"""Runs beyond Raft's model: bounds and states hold up to the damage, and damage that shows is raised or undecided."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from kraft_audit.rules.model import Status
from kraft_audit.rules.registry import check
from kraft_engine import simulate
from tests.witness.audited import FAST_FOLDER, Audited
from tests.witness.comparison import Comparison, bounds, epochs, partitions, voters
from tests.witness.runs import RunResult
from tests.witness.truth import Truth

BEYOND_MODEL = ("random-beyond", "random-raft-beyond")
DAMAGE_RULES = frozenset(
    {
        "KQ001",
        "KQ002",
        "KQ003",
        "KQ004",
        "KQ006",
        "KQ007",
        "KQ008",
        "KQ010",
        "KQ011",
        "KQ012",
        "KQ014",
        "KQ015",
        "KQ020",
    }
)
"""Rules that tell of a log that lost, changed or forked what it held."""


def compare_beyond(scenario: str, seed: int) -> RunResult:
    """Plays one seed with damage; a disagreement counts unless the audit says that the log is damaged."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kraft-witness-", dir=FAST_FOLDER) as folder:
        out = Path(folder) / "run"
        played = simulate(scenario, seed, out)
        found = _compare(out)
        found.counts["events"] += played.event_count
    return RunResult(scenario, seed, found.counts, tuple(found.disagreements), time.monotonic() - start)


def _compare(out: Path) -> Comparison:
    truth = Truth.of(out)
    audited = Audited.of(out, truth.run["dialect"])
    found, result = Comparison(), Comparison()
    without_trace = tuple(f"{name}: high " for name in _looking_behind(truth, audited))
    for compared in (bounds, epochs, voters, partitions):
        told = compared(truth, audited, result.counts)
        found.add(text for text in told if not text.startswith(without_trace))
    result.counts["damaged"] += bool(truth.damage)
    result.counts["told apart"] += bool(found.disagreements)
    undecided = any(one.interval.canonical is None or one.interval.high is None for one in audited.rounds)
    if found.disagreements and not undecided and not _says_damage(audited) and not _left_no_trace(truth, audited):
        result.add(f"nothing is raised, but {text}" for text in found.disagreements)
    if found.disagreements and not truth.damage:
        result.add(f"no damage, but {text}" for text in found.disagreements)
    return result


def _looking_behind(truth: Truth, audited: Audited) -> Iterator[str]:
    """Captures of which an upper bound is wrong as a log ends in what its disk lost: a tail, or from bad bytes on.

    It looks as if it had not got so far when it was read. What was committed is on other disks, and later there again.
    """
    for one in audited.rounds:
        capture, high = truth.captures[one.round.capture], one.interval.high
        if high is None or high >= capture.committed_at_start:
            continue
        ends = truth.log_ends(capture.name)
        for damage in truth.damage_before(capture.name):
            end = ends.get(damage["node"], -1) if "from_offset" in damage else None
            if end is not None and damage["from_offset"] <= end <= high < damage.get("to_offset", high + 1):
                yield capture.name
                break


def _left_no_trace(truth: Truth, audited: Audited) -> bool:
    """Whether no captures show both what was committed first and what stands in its place since.

    So it is where the only voter's disk lost its tail between captures: its log looks as if it had never been longer.
    Or as if it had been cut nowhere, where it was cleaned up beyond that before it was captured again.
    """
    overwritten = [
        line["start_offset"]
        for line in truth.lines["elected"]
        if (epoch := truth.committed_epoch(line["start_offset"])) is not None and epoch < line["epoch"]
    ]
    return bool(overwritten) and not any(_is_seen(truth, audited, lost) for lost in overwritten)


def _is_seen(truth: Truth, audited: Audited, lost: int) -> bool:
    """Whether captures hold the committed record at an offset, in a log or a snapshot, and another one in a log."""
    epoch = truth.committed_epoch(lost)
    held = {one.epoch for one in audited.survey.epochs if one.from_offset <= lost < one.to_offset}
    later = [snapshot for snapshot in audited.survey.snapshots if snapshot.end_offset > lost]
    is_held = epoch in held or any(one.epoch == truth.committed_epoch(one.end_offset - 1) for one in later)
    return is_held and bool(held - {epoch})


def _says_damage(audited: Audited) -> bool:
    findings = check(audited.history, only=DAMAGE_RULES)
    return any(finding.status in (Status.RAISED, Status.UNDECIDED) for finding in findings)


def total(results: list[RunResult]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for one in results:
        counts.update(one.counts)
    return counts
