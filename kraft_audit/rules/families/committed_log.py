"""Rules about what a majority holds: divergence, lost commits, logs that went back."""

from __future__ import annotations

from collections.abc import Iterator

from kraft_audit.capture.found_log import VoterKey
from kraft_audit.quorum.quorum_evidence import majority
from kraft_audit.rules.cluster_history import ClusterHistory, TableRow
from kraft_audit.rules.columns.altered_runs import open_version
from kraft_audit.rules.columns.captures import (
    audit_command,
    capture_evidence,
    captures_in_order,
    held_low,
    lacks_its_log,
    newest_captures,
    newest_round,
    newest_watermark,
    replica_end,
    replica_name,
    watermarks_in_order,
)
from kraft_audit.rules.columns.declared_recovery import waiting_recovery
from kraft_audit.rules.columns.epoch_checkpoints import torn_reason
from kraft_audit.rules.columns.log_batches import CanonicalBatches, canonical_log, log_batches
from kraft_audit.rules.columns.log_runs import is_held
from kraft_audit.rules.columns.lost_records import ends_before_its_snapshot, missing_before
from kraft_audit.rules.columns.voter_sets import canonical_sets, is_voter_disk, keys_of, set_at
from kraft_audit.rules.registry import rule, texts
from kraft_audit.rules.rule_model import Case, Evidence, Thresholds, undecided
from kraft_audit.text.readable import offset_span


@rule("KQ002", control="log_integrity", needs=("captures", "batches", "watermarks", "voter_sets"))
def kq002(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    newest, log = newest_watermark(history), canonical_log(history)
    if newest is None:
        return
    if (torn := torn_reason(history)) is not None:
        yield undecided("log", torn, from_offset=newest["low"])
        return
    taken = newest_round(history)
    if taken and all(row["log_end_offset"] is None for row in taken) and any(map(lacks_its_log, taken)):
        end = max(row["snapshot_end_offset"] or 0 for row in taken)
        missing = missing_before(history, 0, end) if end else "the newest copy has no segment"
        yield undecided("log", f"{missing}; copy the log again to decide", from_offset=newest["low"])
        return
    if newest["canonical_end_offset"] is None and len(log_batches(history).row):
        if (reason := ends_before_its_snapshot(history, newest["low"])) is not None:
            yield undecided("log", reason, from_offset=newest["low"])
            return
        if (reason := open_version(history)) is not None:
            yield undecided("log", reason, from_offset=newest["low"])
            return
        yield Case(
            "log",
            "there is no canonical log: two branches share a last epoch, or all end below what was committed",
            from_offset=newest["low"],
            evidence=tuple(Evidence(text) for text in newest["low_evidence"]),
        )
        return
    ask = f"What each disk may still do:   {audit_command(history, 'quorum')}"
    for case in (*_contradicted(history, log), *_too_few_hold(history, newest)):
        yield case._replace(what_to_do=f"{texts()['KQ002']['what_to_do']} {ask}")


def _contradicted(history: ClusterHistory, log: CanonicalBatches) -> Iterator[Case]:
    """What was proven committed once, and is not what the canonical log says now.

    A log that merely ends before a snapshot contradicts nothing: it needs a second branch, or an earlier round that
    proved more.
    """
    proofs, only_snapshots = _proofs(history)
    rescued = waiting_recovery(history)
    waiting = () if rescued is None else ((rescued.rescue.offset, rescued.rescue.epoch),)
    for (end, epoch), proof in sorted(proofs.items()):
        epoch_there = log.epoch_at(end - 1)
        in_a_gap = epoch_there is None and end <= log.end_offset
        if end <= log.start_offset or epoch_there == epoch or in_a_gap:
            continue
        if epoch_there is not None and not _is_held_now(history, end - 1, epoch_there):
            continue  # the end of a log that lags, where only snapshots show what came after
        if (end, epoch) in waiting:
            continue  # the snapshot of a rescue: its node was not started yet
        if epoch_there is None and (end, epoch) in only_snapshots:
            reason = f"{missing_before(history, log.end_offset, end)}; copy the log again to decide"
            yield undecided("log", reason, from_offset=end - 1)
            continue
        now = "ends before it" if epoch_there is None else f"has epoch {epoch_there} there"
        summary = f"offset {end - 1} was committed in epoch {epoch}; the canonical log {now}"
        yield Case("log", summary, end - 1, epoch=epoch, evidence=(proof,))


def _proofs(history: ClusterHistory) -> tuple[dict[tuple[int, int], Evidence], set[tuple[int, int]]]:
    """(end, epoch) of what was ever proven committed, with the evidence; and those that only snapshots prove."""
    proofs: dict[tuple[int, int], Evidence] = {}
    watermarks, newest = history.rows("watermarks"), newest_watermark(history)
    for row in watermarks:
        low, epoch = held_low(row)
        if low > 0:
            text = f"earlier captures prove offsets before {low} committed, in epoch {epoch}"
            fact = Evidence(text, offset=low - 1, timestamp_ms=row["read_to_ms"])
            proofs.setdefault((low, epoch), fact)
    by_rounds = set(proofs)
    snapshots = [row for row in captures_in_order(history) if row["snapshot_end_offset"]]
    for row in snapshots:
        end, epoch = row["snapshot_end_offset"], row["snapshot_epoch"]
        text = f"a snapshot of {replica_name(row)} ends at {end} in epoch {epoch}"
        proofs.setdefault((end, epoch), capture_evidence(row, text, offset=end - 1))
    if newest is not None and any(row["snapshot_end_offset"] == newest["low"] for row in history.rows("captures")):
        by_rounds = {held_low(row) for row in watermarks if row != newest}
    return proofs, proofs.keys() - by_rounds


def _is_held_now(history: ClusterHistory, offset: int, epoch: int) -> bool:
    """Whether a log that was captured last holds a record of that epoch at an offset, and goes on after it."""
    is_end = canonical_log(history).end_offset == offset + 1
    going_on = [row for row in newest_captures(history) if is_end or (row["log_end_offset"] or 0) > offset + 1]
    return any(is_held(history, row, offset, epoch) for row in going_on)


def _too_few_hold(history: ClusterHistory, newest: TableRow) -> Iterator[Case]:
    """Whether no set that may have committed a proven record still has a majority that holds it."""
    # What this round itself proves may be newer than the copies that were read first.
    earlier = [row for row in watermarks_in_order(history) if row != newest and is_after(newest, row)]
    low, epoch = max(map(held_low, earlier), default=(0, -1))
    if low == 0:
        return
    at_low = set_at(history, low - 1)
    later = [row for row in canonical_sets(history) if row["from_offset"] >= low]
    holders: list[TableRow] = []
    lacking: list[TableRow] = []
    for voter_set in [at_low, *later] if at_low is not None else []:
        voters = keys_of(voter_set["voters"])
        holders, lacking = _holders_of(history, voters, low)
        if len(holders) + len(lacking) != len(voters) or len(holders) >= majority(len(voters)):
            return
    if lacking:
        offset = low - 1
        span = offset_span(min(replica_end(row) for row in lacking), low)
        held = f"only {len(holders)} of {len(holders) + len(lacking)} voters still hold{'s' * (len(holders) == 1)}"
        yield Case(
            "log",
            f"CONTRADICTION: offset {offset} was committed, but {held} {span}",
            from_offset=offset,
            epoch=epoch,
            evidence=tuple(capture_evidence(row, f"{replica_name(row)} ends at {replica_end(row)}") for row in lacking),
        )


def _holders_of(
    history: ClusterHistory, voters: frozenset[VoterKey], end: int
) -> tuple[list[TableRow], list[TableRow]]:
    """The newest captures of voters that hold everything below an offset, and of those that do not."""
    captured = [row for row in newest_captures(history) if is_voter_disk(row, voters)]
    return [row for row in captured if replica_end(row) >= end], [row for row in captured if replica_end(row) < end]


@rule("KQ015", control="log_integrity", needs=("watermarks",))
def kq015(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    best: TableRow | None = None
    for row in watermarks_in_order(history):
        proven = 0 if best is None else held_low(best)[0]
        if best is not None and is_after(row, best) and row["high"] is not None and row["high"] < proven:
            high, low = row["high"], proven
            yield Case(
                "log",
                f"offset {low - 1} was committed; later only offsets before {high} can be",
                from_offset=high,
                from_ms=row["read_from_ms"],
                evidence=(
                    *(Evidence(text, timestamp_ms=best["read_to_ms"]) for text in best["low_evidence"]),
                    *(Evidence(text, timestamp_ms=row["read_from_ms"]) for text in row["high_evidence"]),
                ),
            )
        if best is None or held_low(row)[0] > proven:
            best = row


def is_after(later: TableRow, earlier: TableRow) -> bool:
    """Whether a row is about a later time than all that another is about.

    Copies are ordered by their number, not by when they are read.
    """
    if later["capture_number"] != earlier["capture_number"]:
        return int(later["capture_number"]) > int(earlier["capture_number"])
    return bool(later["read_from_ms"] >= earlier["read_to_ms"])
