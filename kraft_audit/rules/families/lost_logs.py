"""Rules about voters that lost what they held: a log that went back, an empty log."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Any

import numpy as np

from kraft_audit.rules.cluster_history import ClusterHistory, TableRow, newest_append_ms
from kraft_audit.rules.columns.captures import (
    capture_evidence,
    is_log_unread,
    lacks_its_log,
    newest_captures,
    order_in_doubt,
    replica_end,
    replica_name,
    rounds_in_order,
    watermarks_in_order,
)
from kraft_audit.rules.columns.kafka_commands import what_to_do
from kraft_audit.rules.columns.log_batches import log_batches
from kraft_audit.rules.columns.log_runs import is_held
from kraft_audit.rules.columns.lost_records import LostRecords, LostVoters, disk_loss, lost_voters, start_is_safe
from kraft_audit.rules.columns.rivals import CAUSES_OF_LOSS, DiskLoss
from kraft_audit.rules.columns.voter_sets import current_set, voter_ids
from kraft_audit.rules.families.committed_log import is_after
from kraft_audit.rules.registry import rule, texts, words_for
from kraft_audit.rules.rule_model import Case, Thresholds, undecided
from kraft_audit.text.readable import capitalized, listed

VOTER_TABLES = ("captures", "batches", "watermarks", "voter_sets", "leader_epochs")
EMPTY_FOR_MS = 30_000
"""A voter that runs and reaches the leader has fetched its first records long before."""


@rule("KQ020", control="log_integrity", needs=VOTER_TABLES)
def kq020(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    losses = lost_voters(history)
    proven = {replica_name(each.row) for each in losses.proven}
    went_back = [case for case in _went_back(history, losses) if case.undecided is None or case.subject not in proven]
    yield from went_back
    known = {case.subject for case in went_back if case.undecided is None}
    open_proofs = [each for each in losses.lost if each.needed is not None]
    if losses.is_majority_lost and (losses.proven or known & {replica_name(row) for row in losses.lacking}):
        yield _set_case(history, losses, [row["node_id"] for row in losses.lacking if replica_name(row) in known])
    elif losses.is_majority_lost and open_proofs:
        subject = _set_subject(losses)
        yield undecided(subject, "; ".join(each.sentence for each in open_proofs), from_offset=losses.from_offset)
        return
    else:
        for lost in losses.proven:
            if replica_name(lost.row) not in known:
                yield _voter_case(history, losses, lost)
    said = {case.subject for case in went_back}
    for lost in open_proofs:
        if replica_name(lost.row) in said:
            continue
        yield undecided(replica_name(lost.row), lost.sentence, from_offset=lost.end_offset)
    rows = history.rows("captures")
    if rows and not any(row["directory_id"] is not None for row in rows) and not _votes_by_id(history):
        yield undecided("replicas", "no captured replica has a directory id, so a replaced disk looks like the old one")


def _set_subject(losses: LostVoters) -> str:
    return f"voters {listed([row['node_id'] for row in losses.lacking])}"


def _set_case(history: ClusterHistory, losses: LostVoters, went_back: list[int]) -> Case:
    sentences = [each.sentence for each in losses.proven]
    lost = {each.node_id for each in losses.lost}
    behind = [row for row in losses.lacking if row["node_id"] not in lost]
    facts = [fact for each in losses.proven for fact in each.evidence]
    facts += [capture_evidence(row, f"ends at {replica_end(row)}: behind, as far as is known") for row in behind]
    return Case(
        _set_subject(losses),
        ". ".join(map(capitalized, (*sentences, losses.sentence))),
        from_offset=losses.from_offset,
        evidence=tuple(facts),
        **_words("KQ020", history, losses, {each.became for each in losses.proven}, went_back),
    )


def _words(
    rule_id: str,
    history: ClusterHistory,
    losses: LostVoters,
    became: Collection[DiskLoss],
    went_back: Collection[int] = (),
) -> dict[str, Any]:
    """What to do, and why it matters, where no election can lose anything too; with what became of the disks."""
    why = words_for(rule_id, "held_by_others") if start_is_safe(history, losses) else {}
    words = {**why, "what_to_do": what_to_do(history, losses, went_back)}
    return {**words, "why": _why(rule_id, words, became)}


def _why(rule_id: str, words: Mapping[str, Any], became: Collection[DiskLoss]) -> str:
    """Why it matters, after the situations that leave such a disk."""
    rivals = [CAUSES_OF_LOSS[each].text for each in DiskLoss if each in became]
    return " ".join(filter(None, (*rivals, words.get("why", texts()[rule_id]["why"]))))


def _voter_case(history: ClusterHistory, losses: LostVoters, lost: LostRecords) -> Case:
    return Case(
        replica_name(lost.row),
        f"{lost.sentence}; offset {losses.low - 1} is committed",
        from_offset=lost.end_offset,
        evidence=lost.evidence,
        **_words("KQ020", history, losses, {lost.became}),
    )


@rule("KQ021", control="log_integrity", needs=VOTER_TABLES)
def kq021(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    losses = lost_voters(history)
    proofs = {each.node_id: each for each in losses.lost}
    stayed_empty = _stayed_empty(history)
    for row in losses.lacking:
        if replica_end(row) or is_log_unread(row):
            continue
        name, lost = replica_name(row), proofs.get(row["node_id"])
        if lost is not None and lost.needed is None:
            summary, evidence = lost.sentence, lost.evidence
        elif row["node_id"] in stayed_empty:
            summary = f"{name} runs, and its log stays empty while offset {losses.low - 1} is committed"
            evidence = (capture_evidence(row, "ends at 0 in two captures"),)
        else:
            copy = f"copy {name} again half a minute later, while it runs" if lost is None else lost.needed
            why = "it is new or behind, as far as is known" if lost is None else f"it {lost.proof}"
            yield undecided(name, f"{name}'s log is empty; {why}: {copy}", from_offset=0)
            continue
        words = _words("KQ021", history, losses, {disk_loss(history, row)} if lost is None else {lost.became})
        yield Case(name, summary, from_offset=0, evidence=evidence, **words)
    if (case := _all_empty(history)) is not None:
        yield case


def _stayed_empty(history: ClusterHistory) -> set[int]:
    """Nodes whose logs were empty in two rounds half a minute of log time apart, and run, as the operator says."""
    if not history.operator.is_running:
        return set()
    rounds = [(newest_append_ms(taken) or 0, taken) for taken, _ in rounds_in_order(history)]
    return {
        row["node_id"]
        for (before_ms, before), (now_ms, now) in pairwise(rounds)
        if before_ms and now_ms - before_ms >= EMPTY_FOR_MS
        for row in now
        if not (replica_end(row) or is_log_unread(row))
        and any(e["node_id"] == row["node_id"] and not (replica_end(e) or is_log_unread(e)) for e in before)
    }


def _all_empty(history: ClusterHistory) -> Case | None:
    """All voters' logs are empty, and their own files name epochs that they held records of."""
    ids, rows = voter_ids(current_set(history)), newest_captures(history)
    voters = [row for row in rows if row["node_id"] in ids and row["log_end_offset"] is not None]
    if {row["node_id"] for row in voters} != ids or any(replica_end(row) for row in voters):
        return None
    # A first start may have begun its first epoch between the copies of the log and of this file.
    named = [row for row in voters if len(row["leader_epoch_checkpoint"] or ()) > 1]
    if not named:
        return None
    facts = [
        capture_evidence(row, f"its leader-epoch-checkpoint names {len(row['leader_epoch_checkpoint'])} epochs")
        for row in named
    ]
    return Case(
        "voters",
        "every voter's log is empty, and files beside them show that they held records",
        0,
        evidence=tuple(facts),
    )


def _votes_by_id(history: ClusterHistory) -> bool:
    """Whether a voter is known by its id alone, so that it votes with any disk."""
    voter_set = current_set(history)
    return voter_set is not None and all(voter["directory_id"] is None for voter in voter_set["voters"])


def _went_back(history: ClusterHistory, losses: LostVoters) -> Iterator[Case]:
    """Replicas that held more in an earlier capture: by id alone where a static voter votes with any directory."""
    reached: dict[tuple[int, str | None], tuple[int, TableRow]] = {}
    lows = watermarks_in_order(history)
    by_id = _votes_by_id(history)
    for taken, _newest in rounds_in_order(history):
        for row in taken:
            if row["node_id"] is None or (row["directory_id"] is None and not by_id) or lacks_its_log(row):
                continue
            key = (row["node_id"], None if by_id else row["directory_id"])
            proven, earlier = reached.get(key, (0, row))
            lost = _lacked_from(history, earlier, row, proven)
            if lost is not None:
                yield _went_back_case(history, losses, earlier, row, (lost, proven))
                reached.pop(key)
                continue
            watermark = counted_watermark(history, row, lows)
            counted = 0 if watermark is None else watermark["low"]
            # What was read and had not reached the disk vanishes with the page cache: that is no loss.
            held = row.get("held_end_offset")
            reached[key] = (max(counted if held is None else min(counted, held), proven), row)


def counted_watermark(
    history: ClusterHistory, row: TableRow, lows: Sequence[TableRow] | None = None
) -> TableRow | None:
    """The watermark that proves the most of what a captured replica holds as a voter; None where none does."""
    lows = watermarks_in_order(history) if lows is None else lows
    counted = (w for w in lows if _proves_for(w, row) and _is_counted(history, w, row))
    return max(counted, key=itemgetter("low"), default=None)


def _went_back_case(
    history: ClusterHistory, losses: LostVoters, earlier: TableRow, row: TableRow, lost: tuple[int, int]
) -> Case:
    """`lost`: the offsets that the earlier copy held and this one lacks."""
    name, (from_offset, to_offset), number = replica_name(row), lost, row["node_id"]
    if (doubt := order_in_doubt(history, earlier, row)) is not None:
        reason = f"one copy of {name} holds offsets {from_offset}–{to_offset - 1}, another lacks them; {doubt}"
        return undecided(name, reason, from_offset=from_offset)
    voter_set, became, words = current_set(history), {disk_loss(history, row, earlier)}, dict[str, Any]()
    if voter_set is not None and len(voter_set["voters"]) == 1:
        words = words_for("KQ020", "only_voter")
    elif number in {lacking["node_id"] for lacking in losses.lacking}:
        words = _words("KQ020", history, losses, (), [number])
    words["why"] = _why("KQ020", words, became)
    return Case(
        name,
        f"{name} lacks what was committed from {from_offset} on, and held it up to {to_offset} before",
        from_offset=from_offset,
        evidence=(
            capture_evidence(earlier, f"ended at {replica_end(earlier)}"),
            capture_evidence(row, f"ends at {replica_end(row)}"),
        ),
        **words,
    )


def _proves_for(watermark: TableRow, capture: TableRow) -> bool:
    """Whether what a watermark proves held when a capture was taken: it is of the same set of captures, or older."""
    if watermark["capture"] and watermark["capture"] == capture["capture"]:
        return True
    return not is_after(watermark, capture)


def _lacked_from(history: ClusterHistory, earlier: TableRow, row: TableRow, proven: int) -> int | None:
    """From where on a replica lacks batches below `proven` that it held in an earlier capture; None where it has them.

    What its log start or a snapshot has passed is no loss, unless another batch stands there now.
    """
    if replica_end(row) < proven:
        return replica_end(row)
    batches = log_batches(history)
    known_to = max(row["log_start_offset"] or 0, row["snapshot_end_offset"] or 0)
    held = batches.held_by(row)
    lost = batches.held_by(earlier) & ~held & (batches.last_offset < proven)
    if not lost.any():
        return None
    lost &= (batches.base_offset >= known_to) | np.isin(batches.base_offset, batches.base_offset[held])
    return int(batches.base_offset[lost].min()) if lost.any() else None


def _is_counted(history: ClusterHistory, watermark: TableRow, row: TableRow) -> bool:
    """Whether a replica is a voter that holds the last record that a watermark proves, and so everything below it."""
    is_voter = any(
        voter["voter_id"] == row["node_id"] and voter["directory_id"] in (None, row["directory_id"])
        for voter in watermark["voters"]
    )
    last = watermark["low"] - 1
    if not is_voter or last < 0:
        return False
    is_in_snapshot = (row["snapshot_end_offset"] or 0) > last
    return is_in_snapshot or is_held(history, row, last, watermark["low_epoch"])
