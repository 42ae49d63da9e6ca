"""Replay against truth: every disagreement between what the audit says of an engine run and what happened in it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

from tests.witness.audited import Audited
from tests.witness.truth import STATE_COLUMNS, CaptureTruth, Subject, Truth, VoterKeys, voter_keys

DISAGREEMENTS_MAX = 20
COSTLY_SHARE = 0.25
"""Of so many seeds the whole history is read once more for another order, and for a part, of the replicas."""


@dataclass
class Comparison:
    """`disagreements` of one run (at most the first few of a kind), and how much was compared."""

    disagreements: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, found: Iterator[str]) -> None:
        for text in found:
            if len(self.disagreements) < DISAGREEMENTS_MAX:
                self.disagreements.append(text)


def compare_run(out: Path, *, chance: random.Random | None = None) -> Comparison:
    """Compares one run within the model, all captures together and each alone. `chance` draws orders and subsets."""
    truth = Truth.of(out)
    drawn = chance or random.Random(0)  # noqa: S311  # not a secret
    result = Comparison()
    together = Audited.of(out)
    result.add(captures(truth, together, result.counts))
    result.add(bounds(truth, together, result.counts))
    result.add(subsets(truth, together, result.counts))
    result.add(epochs(truth, together, result.counts))
    result.add(voters(truth, together, result.counts))
    result.add(partitions(truth, together, result.counts))
    result.add(order(together, drawn, result.counts))
    for name in truth.captures:
        alone = Audited.of(out, capture=name)
        result.add(f"{name} alone: {text}" for text in bounds(truth, alone, result.counts))
    last = Audited.of(out, capture=truth.run["captures"][-1])
    for name, found in (("last capture", last), ("part of all", _part(together, drawn))):
        if name == "part of all" and drawn.random() < COSTLY_SHARE:
            result.add(f"{name}: {text}" for text in partitions(truth, found, result.counts))
        result.add(f"{name}: {text}" for text in bounds(truth, found, result.counts))
        result.add(f"{name}: {text}" for text in epochs(truth, found, result.counts))
        result.add(f"{name}: {text}" for text in voters(truth, found, result.counts))
    result.add(f"last capture: {text}" for text in partitions(truth, last, result.counts))
    return result


def compare_quickly(truth: Truth, together: Audited, *, chance: random.Random) -> Comparison:
    """The same of one run within the model by a single reading: what is costly to read again is taken from it.

    Partitions are compared where the run has any.
    """
    result = Comparison()
    for compared in (captures, bounds, subsets, epochs, voters):
        result.add(compared(truth, together, result.counts))
    result.add(orders_of_rounds(together, chance, result.counts))
    if truth.partitions:
        result.add(partitions(truth, together, result.counts))
    return result


def _part(together: Audited, drawn: random.Random) -> Audited:
    numbers = [number for number in range(len(together.plan.replicas)) if drawn.random() < 0.5]
    return together.keeping(tuple(numbers or [0]))


def captures(truth: Truth, audited: Audited, counts: Counter[str]) -> Iterator[str]:
    """The captures of one cluster are put in the order in which they were taken.

    Where nothing was committed between two, and a crash took a tail that was not synced, nothing says their order, and
    nothing is concluded from it; nor does anything where all disks were found alike. What is said to be proven of their
    order is so.
    """
    reported = [audited_round.capture for audited_round in audited.rounds]
    counts["captures"] += len(reported)
    taken = [truth.captures[name] for name in reported]
    is_in_time = all(
        early.committed_at_end <= late.committed_at_start or truth.read_state(early.name) == truth.read_state(late.name)
        for early, late in pairwise(taken)
    )
    if sorted(reported) != sorted(truth.run["captures"]) or not is_in_time:
        yield f"captures were taken in the order {truth.run['captures']}, reported {reported}"
    numbers = [audited_round.number for audited_round in audited.rounds]
    if numbers != sorted(numbers):
        yield f"captures are numbered {numbers}, reported in the order {reported}"
    name_of = {audited_round.number: audited_round.capture for audited_round in audited.rounds}
    place = {name: number for number, name in enumerate(truth.run["captures"])}
    for audited_round in audited.rounds:
        for before in (name_of[number] for number in audited_round.follows):
            counts["orders proven"] += 1
            if place[before] > place[audited_round.capture]:
                yield f"{before} was taken after {audited_round.capture}, reported as proven to be earlier"


def bounds(truth: Truth, audited: Audited, counts: Counter[str]) -> Iterator[str]:
    """low ≤ committed at the end of reading; committed at the start of reading ≤ high; low's epoch is the record's.

    What captures proved once, those known to be later prove too.
    """
    low_of: dict[int, int] = {}
    for audited_round in audited.rounds:
        capture = truth.captures[audited_round.capture]
        counts["rounds"] += 1
        known = max((low_of[number] for number in audited_round.follows), default=0)
        if audited_round.interval.low < known:
            yield f"{capture.name}: low {audited_round.interval.low}, though an earlier capture proved {known}"
        low_of[audited_round.number] = audited_round.interval.low
        counts["points"] += audited_round.interval.low == audited_round.interval.high
        yield from _interval(truth, capture, audited_round.interval, f"{capture.name}")


def _interval(truth: Truth, capture: CaptureTruth, interval: Any, where: str) -> Iterator[str]:
    if interval.low > capture.committed_at_end:
        evidence = interval.low_evidence[:2]
        yield f"{where}: low {interval.low} > committed {capture.committed_at_end} at the end: {evidence}"
    elif interval.low and truth.committed_epoch(interval.low - 1) != interval.low_epoch:
        yield f"{where}: low epoch {interval.low_epoch}, committed is {truth.committed_epoch(interval.low - 1)}"
    if interval.high is not None and interval.high < capture.committed_at_start:
        yield (
            f"{where}: high {interval.high} < committed {capture.committed_at_start} at the start: "
            f"{interval.high_evidence[:2]}"
        )


def subsets(truth: Truth, audited: Audited, counts: Counter[str]) -> Iterator[str]:
    """One disk alone, and all but one: the bounds hold, and are no closer than what all of them prove."""
    for audited_round in audited.rounds:
        members = audited_round.replicas
        whole = audited.interval_of(members)
        yield from _interval(truth, truth.captures[audited_round.capture], whole, f"{audited_round.capture} alone")
        sizes = {1, len(members) - 1} - {0, len(members)}
        for chosen in (chosen for size in sorted(sizes) for chosen in combinations(members, size)):
            part = audited.interval_of(chosen)
            counts["subsets"] += 1
            where = f"{audited_round.capture}, nodes {[audited.plan_node(number) for number in chosen]}"
            yield from _interval(truth, truth.captures[audited_round.capture], part, where)
            if part.low > whole.low:
                yield f"{where}: low {part.low} above {whole.low}, which all of them prove"
            # A disk that was copied later may have a snapshot that proves more than the others' logs hold.
            if part.high is not None and (part.high >= whole.low if whole.high is None else part.high < whole.high):
                yield f"{where}: high {part.high} below {whole.high}, which all of them prove"


def epochs(truth: Truth, audited: Audited, counts: Counter[str]) -> Iterator[str]:
    """Every committed epoch of which a log was captured: who led it, where what was captured of it begins and ends.

    What was not proven may have been cut later by a leader that held another branch: its epoch is reported beside.
    """
    reached = min(audited.canonical_end, truth.committed_offset)
    agreed = agreed_end(truth, audited)
    rows = {
        (row["epoch"], row["from_offset"]): row
        for row in audited.quorum["leader_epochs"]
        if row["canonical"] or (row["from_offset"] is not None and row["from_offset"] >= agreed)
    }
    for line in truth.lines["committed_epoch"]:
        epoch, to_offset = line["epoch"], min(line["to_offset"], reached)
        pieces = [
            (epoch_run.from_offset, min(epoch_run.to_offset, to_offset))
            for epoch_run in audited.survey.epochs
            if epoch_run.epoch == epoch and epoch_run.from_offset < to_offset
        ]
        if not pieces:
            continue
        counts["epochs"] += 1
        from_offset, end = min(pieces)
        row = rows.get((epoch, from_offset))
        if row is None:
            yield f"epoch {epoch} is committed and captured from {from_offset}, and is not reported"
        elif row["to_offset"] is not None and row["to_offset"] < end:
            yield f"epoch {epoch} was captured to {end}, reported {row['to_offset']}"
        elif row["leader_id"] != truth.leader_of(epoch) and not (
            row["leader_id"] is None and from_offset > line["from_offset"]
        ):
            yield f"epoch {epoch} was led by {truth.leader_of(epoch)}, reported {row['leader_id']}"


def agreed_end(truth: Truth, audited: Audited) -> int:
    """Up to where what was captured is what was committed, then or later: a leader that came after may have cut it."""
    for run in audited.canonical_runs:
        for line in truth.lines["committed_epoch"]:
            from_offset = max(run.from_offset, line["from_offset"])
            if from_offset < min(run.to_offset, line["to_offset"]) and line["epoch"] != run.epoch:
                return from_offset
    return truth.committed_offset


def voters(truth: Truth, audited: Audited, counts: Counter[str]) -> Iterator[str]:
    """The set in effect at every committed change of it; every set on another branch was appended there."""
    reached = min(audited.canonical_end, agreed_end(truth, audited))
    rows = audited.quorum["voter_sets"]
    reported = sorted((row["from_offset"], row_voters(row)) for row in rows if row["canonical"])
    happened = truth.committed_voters()
    log_start = reported[0][0] if reported else reached
    for offset in sorted({offset for offset, _ in reported + happened if max(log_start, 0) <= offset < reached}):
        wanted, given = _in_effect(happened, offset), _in_effect(reported, offset)
        if wanted is not None and is_captured(truth, audited, offset):
            counts["voter sets"] += 1
            unseen = offset < min((branch.from_offset for branch in audited.survey.branches), default=0)
            if given is None or (wanted != given and not (unseen and _same_voters(given, wanted))):
                yield f"voters from {offset} on were {wanted}, reported {given}"
    for line in truth.lines["elected"]:
        if truth.committed_epoch(line["start_offset"]) == line["epoch"] and log_start < line["start_offset"] < reached:
            given = _in_effect(reported, line["start_offset"] - 1)
            is_seen = is_captured(truth, audited, line["start_offset"])
            if given is not None and is_seen and not _same_voters(given, voter_keys(line["voters"])):
                yield f"epoch {line['epoch']} was elected by {voter_keys(line['voters'])}, reported {given}"
    for row in rows:
        is_uncommitted = not row["canonical"] or truth.committed_epoch(row["from_offset"]) != row["from_epoch"]
        if is_uncommitted and row["from_offset"] >= 0 and row["source"] == "log":
            wanted = truth.appended_voters(row["from_offset"], row["from_epoch"])
            counts["voter sets elsewhere"] += 1
            if wanted != row_voters(row):
                yield f"reverted voters at {row['from_offset']} were {wanted}, reported {row_voters(row)}"


def row_voters(row: dict[str, Any]) -> VoterKeys:
    return tuple((voter["voter_id"], voter["directory_id"]) for voter in row["voters"])


def is_captured(truth: Truth, audited: Audited, offset: int) -> bool:
    """Whether some log holds the record that was committed there, and not just another that a later leader cut."""
    epoch = truth.committed_epoch(offset)
    return any(
        epoch_run.epoch == epoch and epoch_run.from_offset <= offset < epoch_run.to_offset
        for epoch_run in audited.survey.epochs
    )


def _same_voters(voter_keys: VoterKeys, wanted: VoterKeys) -> bool:
    """Where the first checkpoint is gone, only ids are known of those who voted first."""
    ids_alone = all(directory is None for _, directory in voter_keys)
    return voter_keys == wanted or (ids_alone and [key[0] for key in voter_keys] == [key[0] for key in wanted])


def _in_effect(sets: list[tuple[int, VoterKeys]], offset: int) -> VoterKeys | None:
    return next((keys for from_offset, keys in reversed(sets) if from_offset <= offset), None)


def partitions(truth: Truth, audited: Audited, counts: Counter[str]) -> Iterator[str]:
    """The state of every partition after every committed change; no contradiction, no snapshot that differs."""
    history = audited.history
    for problem in history.contradictions or ():
        yield f"contradiction at {problem.offset}: {problem.problem}"
    for check in history.snapshot_checks or ():
        counts["snapshots"] += 1
        if check.differences:
            yield f"snapshot {check.end_offset}-{check.epoch} differs: {check.differences[:3]}"
    if not history.is_complete:
        counts["incomplete"] += 1
        return
    yield from _partition_rows(truth, audited, counts)


def _partition_rows(truth: Truth, audited: Audited, counts: Counter[str]) -> Iterator[str]:
    reached = min(audited.canonical_end, agreed_end(truth, audited))
    state: dict[Subject, dict[str, Any]] = {}
    reported: set[tuple[Subject, int]] = set()
    start = -1
    rows = sorted(enumerate(audited.history.rows("partition_changes")), key=lambda row: (row[1]["from_offset"], row[0]))
    for _, row in rows:
        subject, offset = (row["topic_id"], row["partition"]), row["from_offset"]
        if offset >= reached:
            break
        now = {column: row[column] for column in STATE_COLUMNS}
        if row["cause"] == "snapshot":
            start = max(start, offset)
        elif not row["exists"]:
            if truth.removals.get(subject[0]) != offset:
                yield f"{subject} is reported as removed at {offset}"
            state.pop(subject, None)
            continue
        elif (subject, offset) in truth.partitions:
            reported.add((subject, offset))
            counts["partition states"] += 1
            if now != truth.partitions[(subject, offset)]:
                yield f"{subject} at {offset}: {_difference(truth.partitions[(subject, offset)], now)}"
        elif now != state.get(subject):
            yield f"{subject} changed, it says, at {offset} ({row['cause']}): {_difference(state.get(subject), now)}"
        state[subject] = now
        if row["cause"] == "snapshot" and truth.partitions_at(offset).get(subject) != now:
            yield f"{subject} in the snapshot at {offset}: {_difference(truth.partitions_at(offset).get(subject), now)}"
    for subject, offset in truth.partitions:
        if start < offset < reached and (subject, offset) not in reported:
            yield f"{subject} changed at {offset}, which is not reported"
    wanted = truth.partitions_at(reached - 1)
    for subject in wanted.keys() | state.keys():
        if wanted.get(subject) != state.get(subject):
            yield f"{subject} at the end: {_difference(wanted.get(subject), state.get(subject))}"


def _difference(wanted: dict[str, Any] | None, given: dict[str, Any] | None) -> str:
    if wanted is None or given is None:
        return f"was {wanted}, reported {given}"
    return "; ".join(
        f"{column} was {wanted[column]}, reported {given[column]}"
        for column in STATE_COLUMNS
        if wanted[column] != given[column]
    )


def orders_of_rounds(audited: Audited, drawn: random.Random, counts: Counter[str]) -> Iterator[str]:
    """Any order of a round's replicas proves the same."""
    for audited_round in audited.rounds:
        numbers = list(audited_round.replicas)
        wanted = audited.interval_of(tuple(numbers))
        drawn.shuffle(numbers)
        counts["orders"] += 1
        if audited.interval_of(tuple(numbers)) != wanted:
            yield f"{audited_round.capture}: another order of the replicas proves another interval"


def order(audited: Audited, drawn: random.Random, counts: Counter[str]) -> Iterator[str]:
    """Any order of the replicas in a plan gives the same tables."""
    numbers = list(range(len(audited.plan.replicas)))
    drawn.shuffle(numbers)
    second = audited.keeping(tuple(numbers))
    counts["orders"] += 1
    for name, rows in audited.quorum.items():
        if rows != second.quorum[name]:
            yield f"another order of the replicas gives other rows of {name}"
    if drawn.random() >= COSTLY_SHARE:
        return
    for name, table in audited.history.tables.items():
        mine, theirs = (
            found.drop_columns([c for c in ("read_from_ms", "read_to_ms") if c in found.column_names])
            for found in (table, second.history.tables[name])
        )
        if not mine.equals(theirs):
            yield f"another order of the replicas gives another table {name}"
