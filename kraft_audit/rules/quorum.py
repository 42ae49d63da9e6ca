"""Rules about what a majority holds: divergence, lost commits, logs that went back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kraft_audit.rules.canonical import (
    FOR_EVER,
    CanonicalLog,
    LogBatches,
    canonical_log,
    identity_of,
    is_after,
    log_batches,
    newest_watermark,
    proves_for,
    watermarks_in_order,
)
from kraft_audit.rules.captured import (
    capture_evidence,
    captures_in_order,
    moments,
    newest_captures,
    replica_end,
    replica_name,
)
from kraft_audit.rules.history import ClusterHistory
from kraft_audit.rules.majorities import majority_size
from kraft_audit.rules.model import Case, Evidence, Scope, Severity, Thresholds, undecided
from kraft_audit.rules.registry import rule
from kraft_audit.rules.voter_view import canonical_sets, set_at


@rule("KQ001", "divergent-suffix", Severity.MEDIUM, Scope.LOG, needs=("captures", "batches", "watermarks"))
def kq001(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    batches, log = log_batches(history), canonical_log(history)
    if not len(log.base_offset):
        return
    apart = ~batches.is_canonical & (batches.last_offset >= log.start_offset)
    for number in np.unique(batches.replica[apart]).tolist():
        mine = np.flatnonzero(apart & (batches.replica == number))
        for suffix in _suffixes(batches, mine):
            rows = _unproven(history, batches, suffix)
            if any(_is_told(log, int(batches.base_offset[row])) for row in rows):
                yield _suffix_case(history, batches, log, rows)


def _is_told(log: CanonicalLog, offset: int) -> bool:
    """Whether the canonical log tells of an offset, or ends before it: between captured pieces it does not."""
    return log.holds(offset) or offset >= log.end_offset


def _unproven(history: ClusterHistory, batches: LogBatches, suffix: list[int]) -> list[int]:
    """A suffix without what captures once proved committed: losing that is no stale suffix, KQ002 judges it."""
    epochs, starts = batches.leader_epoch[suffix], batches.base_offset[suffix]
    ends = batches.last_offset[suffix] + 1
    end = max(
        (
            row["low"]
            for row in history.rows("watermarks")
            if ((epochs == row["low_epoch"]) & (starts < row["low"]) & (row["low"] <= ends)).any()
        ),
        default=0,
    )
    return [row for row in suffix if batches.base_offset[row] >= end]


def _suffixes(batches: LogBatches, rows: Any) -> list[list[int]]:
    """A replica's divergent batches by suffix: a run of offsets, seen in one capture or growing through several.

    A batch that was cut off and came back, as from a restored disk, stands there as it was held last.
    """
    order = np.lexsort((batches.until[rows], batches.base_offset[rows], batches.leader_epoch[rows]))
    ordered = rows[order].tolist()
    found: list[list[int]] = []
    for row in ordered:
        before = found[-1][-1] if found else None
        if before is not None and batches.last_offset[before] + 1 == batches.base_offset[row]:
            found[-1].append(row)
        elif before is not None and _is_same_batch(batches, before, row):
            found[-1][-1] = row
        else:
            found.append([row])
    return found


def _is_same_batch(batches: LogBatches, one: int, other: int) -> bool:
    return bool(batches.base_offset[one] == batches.base_offset[other] and batches.crc[one] == batches.crc[other])


def _suffix_case(history: ClusterHistory, batches: LogBatches, log: CanonicalLog, rows: list[int]) -> Case:
    first = rows[0]
    node_id, where = batches.identities[int(batches.replica[first])]
    name = f"node {node_id}" if node_id is not None else f"replica at {where.split(chr(0))[-1]}"
    offset, epoch = int(batches.base_offset[first]), int(batches.leader_epoch[first])
    end = int(batches.last_offset[rows[-1]]) + 1
    is_over = all(batches.until[row] != FOR_EVER for row in rows) or not _is_newest(history, batches, first)
    return Case(
        name,
        f"holds [{offset}, {end}) of epoch {epoch}, which the canonical log does not"
        + ("; it was cut off later" if is_over else ""),
        from_offset=offset,
        from_ms=int(batches.timestamp_ms[first]),
        epoch=epoch,
        evidence=(*_both_sides(batches, log, first), *_places(history, batches, rows)),
        is_over=is_over,
    )


def _is_newest(history: ClusterHistory, batches: LogBatches, row: int) -> bool:
    """Whether the replica that holds this batch is still what its node was captured with last."""
    identity = batches.identities[int(batches.replica[row])]
    return any(identity_of(capture) == identity for capture in newest_captures(history))


def _both_sides(batches: LogBatches, log: CanonicalLog, row: int) -> Iterator[Evidence]:
    offset = int(batches.base_offset[row])
    other = log.row_of(offset)
    theirs = "nothing: the canonical log ends before it" if other is None else _batch_text(log, other)
    epoch = int(batches.leader_epoch[row])
    yield Evidence(
        "the first batch that differs", offset=offset, epoch=epoch, before=theirs, after=_batch_text(batches, row)
    )


def _batch_text(batches: LogBatches | CanonicalLog, row: int) -> str:
    offsets = f"[{int(batches.base_offset[row])}, {int(batches.last_offset[row]) + 1})"
    return f"batch {offsets} epoch {int(batches.leader_epoch[row])} crc {int(batches.crc[row]):08x}"


def _places(history: ClusterHistory, batches: LogBatches, rows: list[int]) -> Iterator[Evidence]:
    table = history.as_told("batches")
    for row in rows[:5]:
        told = table.slice(int(batches.row[row]), 1).to_pylist()[0]
        yield Evidence(
            "held there",
            node_id=told["node_id"],
            path=told["path"] or told["root"],
            file_name=told["file_name"],
            position=told["position"],
        )


@rule(
    "KQ002",
    "committed-divergence",
    Severity.CRITICAL,
    Scope.LOG,
    needs=("captures", "batches", "watermarks", "voter_sets"),
)
def kq002(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    newest, log = newest_watermark(history), canonical_log(history)
    if newest is None:
        return
    if newest["canonical_end_offset"] is None and len(log_batches(history).row):
        yield Case(
            "log",
            "there is no canonical log: two branches share a last epoch, or all end below what was committed",
            from_offset=newest["low"],
            evidence=tuple(Evidence(text) for text in newest["low_evidence"]),
        )
        return
    yield from _contradicted(history, log)
    yield from _too_few_hold(history, newest)


def _contradicted(history: ClusterHistory, log: CanonicalLog) -> Iterator[Case]:
    """What was proven committed once, and is not what the canonical log says now."""
    proofs: dict[tuple[int, int], Evidence] = {}
    for row in history.rows("watermarks"):
        if row["low"] > 0:
            text = f"committed below {row['low']} in epoch {row['low_epoch']} by the captures of then"
            proofs.setdefault(
                (row["low"], row["low_epoch"]), Evidence(text, offset=row["low"] - 1, timestamp_ms=row["read_to_ms"])
            )
    for row in captures_in_order(history):
        end, epoch = row["snapshot_end_offset"], row["snapshot_epoch"]
        if end:
            text = f"a snapshot of {replica_name(row)} ends at {end} in epoch {epoch}"
            proofs.setdefault((end, epoch), capture_evidence(row, text, offset=end - 1))
    for (end, epoch), proof in sorted(proofs.items()):
        found = log.epoch_at(end - 1)
        in_a_gap = found is None and end <= log.end_offset
        if end <= log.start_offset or found == epoch or in_a_gap:
            continue
        if found is not None and not _is_held_now(history, end - 1, found):
            continue  # the end of a log that stayed behind, where only snapshots tell what came after
        now = "ends before it" if found is None else f"has epoch {found} there"
        yield Case(
            "log",
            f"offset {end - 1} was committed in epoch {epoch}; the canonical log {now}",
            from_offset=end - 1,
            epoch=epoch,
            evidence=(proof,),
        )


def _is_held_now(history: ClusterHistory, offset: int, epoch: int) -> bool:
    """Whether a log that was captured last holds a record of that epoch at an offset, and goes on after it."""
    batches = log_batches(history)
    holds = (batches.base_offset <= offset) & (batches.last_offset >= offset) & (batches.leader_epoch == epoch)
    is_end = canonical_log(history).end_offset == offset + 1
    going_on = [row for row in newest_captures(history) if is_end or (row["log_end_offset"] or 0) > offset + 1]
    return any(bool((holds & batches.held_by(row)).any()) for row in going_on)


def _too_few_hold(history: ClusterHistory, newest: dict[str, Any]) -> Iterator[Case]:
    """Whether no set that may have committed a proven record still has a majority that holds it."""
    # What this round itself proves may be newer than the copies that were read first.
    earlier = [row for row in watermarks_in_order(history) if row != newest and is_after(newest, row)]
    proven = max(earlier, key=lambda row: int(row["low"]), default=None)
    if proven is None or proven["low"] == 0:
        return
    at_low = set_at(history, proven["low"] - 1)
    later = [row for row in canonical_sets(history) if row["from_offset"] >= proven["low"]]
    lacking: list[dict[str, Any]] = []
    count = 0
    for voter_set in [at_low, *later] if at_low is not None else []:
        voters = {(v["voter_id"], v["directory_id"]) for v in voter_set["voters"]}
        holders, lacking = _holders(history, voters, proven["low"])
        count = len(holders)
        if len(holders) + len(lacking) != len(voters) or len(holders) >= majority_size(len(voters)):
            return
    if lacking:
        yield Case(
            "log",
            f"only {count} of {count + len(lacking)} voters still hold offset {proven['low'] - 1}, which was committed",
            from_offset=proven["low"] - 1,
            epoch=proven["low_epoch"],
            evidence=tuple(capture_evidence(row, f"{replica_name(row)} ends at {replica_end(row)}") for row in lacking),
        )


def _holders(
    history: ClusterHistory, voters: set[tuple[int, str | None]], end_offset: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The newest captures of some voters that hold everything below an offset, and those that do not."""
    holders: list[dict[str, Any]] = []
    lacking: list[dict[str, Any]] = []
    for row in newest_captures(history):
        is_voter = any(row["node_id"] == id_ and directory in (None, row["directory_id"]) for id_, directory in voters)
        if is_voter or (row["directory_id"] is None and row["node_id"] in {id_ for id_, _ in voters}):
            (holders if replica_end(row) >= end_offset else lacking).append(row)
    return holders, lacking


@rule("KQ010", "foreign-replica", Severity.CRITICAL, Scope.LOG, needs=("captures", "decode_errors"))
def kq010(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    seen: set[str] = set()
    for row in history.rows("captures"):
        other = row["meta_cluster_id"]
        is_foreign = not row["accepted"] or (other is not None and history.cluster_id and other != history.cluster_id)
        where = row["path"] or row["root"]
        if is_foreign and where not in seen:
            seen.add(where)
            fact = capture_evidence(
                row, "meta.properties", file_name="meta.properties", before=history.cluster_id, after=other
            )
            yield Case(f"replica at {where}", f"{replica_name(row)} belongs to cluster {other}", evidence=(fact,))
    for row in history.rows("decode_errors"):
        where = row["path"] or row["root"]
        if row["reason"] == "CLUSTER_MISMATCH" and where not in seen:
            seen.add(where)
            yield Case(f"replica at {where}", row["detail"], evidence=(Evidence(row["detail"], path=where),))


@rule("KQ015", "commit-went-back", Severity.CRITICAL, Scope.LOG, needs=("watermarks",))
def kq015(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    rows = watermarks_in_order(history)
    best: dict[str, Any] | None = None
    for row in rows:
        is_later = best is not None and is_after(row, best)
        if best is not None and is_later and row["high"] is not None and row["high"] < best["low"]:
            yield Case(
                "log",
                f"committed to {best['low']} once, and at most to {row['high']} later",
                from_offset=row["high"],
                from_ms=row["read_from_ms"],
                evidence=(
                    *(Evidence(text, timestamp_ms=best["read_to_ms"]) for text in best["low_evidence"]),
                    *(Evidence(text, timestamp_ms=row["read_from_ms"]) for text in row["high_evidence"]),
                ),
            )
        if best is None or row["low"] > best["low"]:
            best = row


@rule("KQ020", "log-went-back", Severity.CRITICAL, Scope.LOG, needs=("captures", "watermarks"))
def kq020(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    reached: dict[tuple[int, str], tuple[int, dict[str, Any]]] = {}
    lows = watermarks_in_order(history)
    for taken, _newest in moments(history):
        for row in taken:
            if row["node_id"] is None or row["directory_id"] is None:
                continue
            key = (row["node_id"], row["directory_id"])
            end = replica_end(row)
            proven, earlier = reached.get(key, (0, row))
            lost = _lacked_from(history, earlier, row, proven)
            if lost is not None:
                yield Case(
                    replica_name(row),
                    f"lacks what was committed from {lost} on; the same directory held it up to {proven} before",
                    from_offset=lost,
                    evidence=(
                        capture_evidence(earlier, f"ended at {replica_end(earlier)}"),
                        capture_evidence(row, f"ends at {end}"),
                    ),
                )
                reached.pop(key)
                continue
            counted = max((w["low"] for w in lows if proves_for(w, row) and _is_counted(history, w, row)), default=0)
            reached[key] = (max(counted, proven), row)
    if not any(row["directory_id"] is not None for row in history.rows("captures")) and history.rows("captures"):
        yield undecided("replicas", "no captured replica has a directory id, so a replaced disk looks like the old one")


def _lacked_from(history: ClusterHistory, earlier: dict[str, Any], row: dict[str, Any], proven: int) -> int | None:
    """From where on a replica lacks batches below `proven` that it held in an earlier capture; None where it has them.

    What its log start or a snapshot has passed is no loss.
    """
    if replica_end(row) < proven:
        return replica_end(row)
    batches = log_batches(history)
    kept = max(row["log_start_offset"] or 0, row["snapshot_end_offset"] or 0)
    lost = batches.held_by(earlier) & ~batches.held_by(row) & (batches.last_offset < proven)
    lost &= batches.base_offset >= kept
    return int(batches.base_offset[lost].min()) if lost.any() else None


def _is_counted(history: ClusterHistory, watermark: dict[str, Any], row: dict[str, Any]) -> bool:
    """Whether a replica is a voter that holds the last record which a watermark proves: everything below, then, too."""
    is_voter = any(
        voter["voter_id"] == row["node_id"] and voter["directory_id"] in (None, row["directory_id"])
        for voter in watermark["voters"]
    )
    last = watermark["low"] - 1
    if not is_voter or last < 0:
        return False
    if (row["snapshot_end_offset"] or 0) > last:
        return True
    batches = log_batches(history)
    holds = (batches.base_offset <= last) & (batches.last_offset >= last)
    holds &= batches.leader_epoch == watermark["low_epoch"]
    return bool((holds & batches.held_by(row)).any())
