"""Rules about leader epochs: how each begins, and how many there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from kraft_audit.capture.plan import identity_of
from kraft_audit.rules.cluster_history import ClusterHistory, TableRow
from kraft_audit.rules.columns.captures import moment_number
from kraft_audit.rules.columns.declared_recovery import FENCE_KEY, fitting_recoveries
from kraft_audit.rules.columns.epoch_checkpoints import torn_reason
from kraft_audit.rules.columns.log_batches import HeldBatches, canonical_log, log_batches
from kraft_audit.rules.registry import rule, words_for
from kraft_audit.rules.rule_model import Case, Evidence, Thresholds, case_at, threshold, undecided
from kraft_audit.tables.number_arrays import Mask
from kraft_audit.tables.silver import WITHOUT_LEADER
from kraft_audit.text.readable import HOUR_MS, nouns
from kraft_codec.schemas import Dialect

EVIDENCE_EPOCHS_MAX: Final = 10


def epoch_evidence(row: TableRow) -> Evidence:
    """An epoch with its leader, where it begins."""
    leader = "no leader known" if row["leader_id"] is None else f"leader {row['leader_id']}"
    side = "" if row["canonical"] else " (not on the canonical log)"
    return Evidence(
        f"epoch {row['epoch']}: {leader}, from offset {row['from_offset']}{side}",
        offset=row["leader_change_offset"] if row["leader_change_offset"] is not None else row["from_offset"],
        epoch=row["epoch"],
        timestamp_ms=row["timestamp_ms"],
    )


@rule("KQ005", control="quorum_safety", needs=("leader_epochs", "batches"))
def kq005(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    late: list[TableRow] = []
    torn = torn_reason(history)
    for row in history.rows("leader_epochs"):
        first, change = row["from_offset"], row["leader_change_offset"]
        if first is None or (change is None and _begins_what_was_read(history, first, row["epoch"])):
            continue
        if torn is not None and (change is None or change > first):
            yield undecided(f"epoch {row['epoch']}", torn, from_offset=first)
        elif change is None:
            subject = f"epoch {row['epoch']}"
            summary = f"{subject} begins at offset {first} without a LeaderChange"
            yield case_at(row, subject, summary, epoch=row["epoch"], evidence=(epoch_evidence(row),))
        elif change > first and not _is_first_batch_of_draft(history, first, change):
            late.append(row)
    if late:
        epochs = nouns("epoch", [row["epoch"] for row in late])
        facts = tuple(map(epoch_evidence, late[:EVIDENCE_EPOCHS_MAX]))
        summary = f"the LeaderChange of {epochs} is not the first record"
        words = words_for("KQ005", "late")
        yield case_at(late[0], "LeaderChange records", summary, epoch=late[0]["epoch"], evidence=facts, **words)


def _begins_what_was_read(history: ClusterHistory, first: int, epoch: int) -> bool:
    """Whether no log held what comes before that offset, or one held a record of that epoch there: it began before.

    So it did where an earlier capture ends at `first` in the same epoch, and a later one begins there. What stood below
    a log that was cleaned up to `first` may have been cut and written again before.
    """
    if any(row["epoch"] == epoch and row["to_offset"] == first for row in history.rows("leader_epochs")):
        return True
    batches = log_batches(history)
    cleaned = {
        (identity_of(row), moment_number(row)) for row in history.rows("captures") if row["log_start_offset"] == first
    }
    begins = batches.as_held((batches.base_offset == first) & (batches.leader_epoch == epoch))
    ends = batches.as_held(batches.last_offset == first - 1)
    if (ends.leader_epoch == epoch).any():
        return True
    return first > 0 and not any(
        ((ends.replica == begins.replica[row]) & _at_one_time(ends, begins, row)).any()
        for row in range(len(begins.row))
        if (begins.identities[begins.replica[row]], int(begins.since[row])) not in cleaned
    )


def _at_one_time(batches: HeldBatches, others: HeldBatches, row: int) -> Mask:
    """Which batches a replica held in the same capture as one of others."""
    together: Mask = (batches.since < others.until[row]) & (others.since[row] < batches.until)
    return together


def _is_first_batch_of_draft(history: ClusterHistory, first: int, change: int) -> bool:
    """KIP-642: the first leader writes the configured voters as an assignment, in one batch with its LeaderChange."""
    if history.dialect is not Dialect.KIP642:
        return False
    log = canonical_log(history)
    return log.row_of(first) is not None and log.row_of(first) == log.row_of(change)


@dataclass(frozen=True, slots=True)
class ElectionStormLimits(Thresholds):
    max_epochs_an_hour: int = threshold(12, "leader epochs within any hour")
    max_leaderless_epochs: int = threshold(20, "epochs in a row without a leader", key="max_burnt_epochs")


@rule(
    "KQ016",
    control="quorum_safety",
    needs=("leader_epochs", "voter_sets", "broker_changes", "controller_changes"),
    thresholds=ElectionStormLimits,
)
def kq016(history: ClusterHistory, limits: ElectionStormLimits) -> Iterator[Case]:
    rows = [row for row in history.rows("leader_epochs") if row["canonical"]]
    # An epoch has several rows where a gap between captures lies in it: it began once.
    began = {
        row["epoch"]: row
        for row in sorted(rows, key=lambda row: row["from_offset"] or 0, reverse=True)
        if row["timestamp_ms"] is not None
    }
    for storm, busiest in _storms([began[epoch] for epoch in sorted(began)], limits.max_epochs_an_hour):
        yield _storm_case(history, storm, busiest, limits.max_epochs_an_hour)
    leaderless = sorted(row["epoch"] for row in rows if row["ended_by"] == WITHOUT_LEADER)
    newest_led = max((row["epoch"] for row in rows if row["leader_id"] is not None), default=-1)
    limit = limits.max_leaderless_epochs
    for recovery in fitting_recoveries(history):
        passed = [epoch for epoch in leaderless if epoch in recovery.fence]
        key = FENCE_KEY.format(recovery.rescue.offset)
        for case in _longest_leaderless_run(passed, limit, recovery.rescue.epoch + 1):
            yield case._replace(subject=key)
        leaderless = [epoch for epoch in leaderless if epoch not in recovery.fence]
    yield from _longest_leaderless_run(leaderless, limit, newest_led)


def _storms(timed: list[TableRow], limit: int) -> Iterator[tuple[list[TableRow], int]]:
    """Each run of epochs that goes on while the hour before the newest of them holds more than `limit`, and how many
    its busiest hour held."""
    busiest = start = first = 0
    for end, row in enumerate(timed):
        while row["timestamp_ms"] - timed[start]["timestamp_ms"] > HOUR_MS:
            start += 1
        count = end - start + 1
        if count > limit:
            first = first if busiest else start
            busiest = max(busiest, count)
        elif busiest:
            yield timed[first:end], busiest
            busiest = 0
    if busiest:
        yield timed[first:], busiest


def _storm_case(history: ClusterHistory, epochs: list[TableRow], busiest: int, limit: int) -> Case:
    """A storm of elections, or starts of voters where these explain its epochs: each start of a leader begins one."""
    first, last = epochs[0], epochs[-1]
    text = f"{busiest} epochs within an hour, from epoch {first['epoch']}"
    if len(epochs) > busiest:
        text = f"up to {busiest} epochs within an hour, {len(epochs)} from epoch {first['epoch']} to {last['epoch']}"
    words: dict[str, Any] = {}
    is_sole = all(row["voters"] is not None and len(row["voters"]) == 1 for row in epochs)
    starts = len(epochs) if is_sole else _voter_starts(history, first["timestamp_ms"], last["timestamp_ms"])
    if len(epochs) - starts <= limit:
        words = words_for("KQ016", "restarts")
        text += f": voters were started {starts} times meanwhile"
    is_over = (history.end_ms or last["timestamp_ms"]) - last["timestamp_ms"] > HOUR_MS
    facts = tuple(map(epoch_evidence, epochs[:EVIDENCE_EPOCHS_MAX]))
    at = {"epoch": first["epoch"], "evidence": facts, "is_over": is_over}
    return case_at(first, "leader epochs", text, **at, **words)


def _voter_starts(history: ClusterHistory, from_ms: int, to_ms: int) -> int:
    """How often voters registered as new processes in a time: as controllers, before 3.7 as the broker on that node."""
    voters = {voter["voter_id"] for row in history.rows("voter_sets") for voter in row["voters"]}
    starts: Counter[str] = Counter()
    for kind in ("controller", "broker"):
        processes = {
            (row[f"{kind}_id"], row["incarnation_id"])
            for row in history.rows(f"{kind}_changes")
            if row[f"{kind}_id"] in voters and row["exists"] and from_ms <= row["timestamp_ms"] <= to_ms
        }
        starts[kind] = len(processes)
    return max(starts.values())


def _longest_leaderless_run(leaderless: list[int], limit: int, newest_led: int) -> Iterator[Case]:
    """The longest run of epochs without a leader: none has an offset or a time that could make it a finding's own."""
    longest = run = range(0)
    for epoch in leaderless:
        run = range(run.start, epoch + 1) if run and run.stop == epoch else range(epoch, epoch + 1)
        longest = max(longest, run, key=len)
    if len(longest) > limit:
        first, last = longest[0], longest[-1]
        fact = Evidence(f"epochs {first} to {last} have no record", epoch=last)
        summary = f"{len(longest)} epochs in a row had no leader, {first} to {last}"
        yield Case("burnt epochs", summary, epoch=first, evidence=(fact,), is_over=newest_led > last)
