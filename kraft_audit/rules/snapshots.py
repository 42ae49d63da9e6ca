"""Rules about snapshots: whole, equal to the replayed state, never above what was committed, not too old."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from kraft_audit.rules.canonical import canonical_log, watermarks_in_order
from kraft_audit.rules.captured import Row, capture_evidence, captures_in_order, newest_captures, replica_name
from kraft_audit.rules.history import ClusterHistory
from kraft_audit.rules.log_damage import CORRUPT, TAILS, damage_case, is_snapshot_file
from kraft_audit.rules.model import Case, Evidence, Scope, Severity, Threshold, Thresholds, undecided
from kraft_audit.rules.registry import rule
from kraft_codec.errors import Reason

LAST_METADATA_VERSION_OF_3_9: Final = 21
SNAPSHOT_DAMAGE: Final = {Reason.SNAPSHOT_INCOMPLETE, *CORRUPT, *TAILS}


@rule("KQ011", "bad-snapshot", Severity.HIGH, Scope.LOG, needs=("captures", "batches", "decode_errors"))
def kq011(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    for row in history.rows("decode_errors"):
        if row["reason"] in SNAPSHOT_DAMAGE and (is_snapshot_file(row) or row["reason"] == Reason.SNAPSHOT_INCOMPLETE):
            yield damage_case(row, f"{row['reason']}: {row['detail']}")
    for check in history.snapshot_checks or ():
        unknown = history.unknown_before(check.end_offset - 1)
        if check.differences and unknown is not None:
            yield undecided(
                f"snapshot {check.end_offset}-{check.epoch}",
                f"its state is not the replayed one, of which {unknown}",
                from_offset=check.end_offset,
            )
        elif check.differences:
            yield Case(
                f"snapshot {check.end_offset}-{check.epoch}",
                f"its state is not the replayed state at offset {check.end_offset}: {check.differences[0]}",
                from_offset=check.end_offset,
                epoch=check.epoch,
                evidence=tuple(Evidence(text, path=check.path) for text in check.differences[:20]),
            )
    yield from _off_boundary(history)


def _off_boundary(history: ClusterHistory) -> Iterator[Case]:
    log = canonical_log(history)
    seen: set[int] = set()
    for row in captures_in_order(history):
        end = row["snapshot_end_offset"]
        if not end or end in seen or not log.start_offset < end < log.end_offset:
            continue
        seen.add(end)
        batch = log.row_of(end)
        if batch is not None and int(log.base_offset[batch]) != end:
            text = (
                f"offset {end} lies inside the batch [{int(log.base_offset[batch])}, {int(log.last_offset[batch]) + 1})"
            )
            yield Case(
                f"snapshot {end}-{row['snapshot_epoch']}",
                f"does not end at a batch boundary: {text}",
                from_offset=end,
                epoch=row["snapshot_epoch"],
                severity=Severity.LOW if _writer_is_3_9(history) else Severity.HIGH,
                evidence=(capture_evidence(row, text, offset=end),),
            )


def _writer_is_3_9(history: ClusterHistory) -> bool:
    """Up to 3.9.1 a snapshot may end inside a batch (KAFKA-17713): told by what the controllers support."""
    supported = [
        feature["max_supported_version"]
        for row in history.rows("controller_changes")
        for feature in row["features"]
        if feature["name"] == "metadata.version"
    ]
    levels = [row["feature_level"] for row in history.rows("feature_changes") if row["name"] == "metadata.version"]
    return int(max(supported or levels or [LAST_METADATA_VERSION_OF_3_9 + 1])) <= LAST_METADATA_VERSION_OF_3_9


@rule("KQ012", "snapshot-above-commit", Severity.CRITICAL, Scope.LOG, needs=("captures", "watermarks"))
def kq012(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    """`high` bounds what was committed when reading began, and the nodes of one set of captures may have been copied
    one after another: only a later set proves that a snapshot stood above it."""
    seen: set[tuple[str, int, int]] = set()
    for row in captures_in_order(history):
        end, epoch = row["snapshot_end_offset"], row["snapshot_epoch"]
        if not end or (replica_name(row), end, epoch) in seen:
            continue
        bounds = [one for one in watermarks_in_order(history) if one["high"] is not None and one["high"] < end]
        later = next((one for one in bounds if _is_of_later_set(one, row)), None)
        if later is not None:
            seen.add((replica_name(row), end, epoch))
            yield Case(
                replica_name(row),
                f"its snapshot ends at {end}, and later still nothing above {later['high']} was committed",
                from_offset=end,
                epoch=epoch,
                evidence=(
                    capture_evidence(row, f"snapshot {end}-{epoch}", offset=end),
                    *(Evidence(text) for text in later["high_evidence"]),
                ),
            )
        elif any(_is_of_same_set(one, row) for one in bounds):
            seen.add((replica_name(row), end, epoch))
            reason = "its snapshot ends above what the others hold; they may have been copied before it was committed"
            yield undecided(replica_name(row), reason, from_offset=end)


def _is_of_later_set(watermark: Row, capture: Row) -> bool:
    return int(watermark["capture_number"]) > int(capture["capture_number"])


def _is_of_same_set(watermark: Row, capture: Row) -> bool:
    return bool(watermark["capture_number"] == capture["capture_number"])


@rule(
    "KQ019",
    "stale-snapshot",
    Severity.LOW,
    Scope.LOG,
    needs=("captures", "batches"),
    thresholds=(
        Threshold("max_age_hours", 24, "age of the newest snapshot; Kafka writes one an hour"),
        Threshold("max_log_since_bytes", 200 * 1024 * 1024, "log behind the newest snapshot; Kafka allows 20 MiB"),
    ),
)
def kq019(history: ClusterHistory, thresholds: Thresholds) -> Iterator[Case]:
    log = canonical_log(history)
    ends = [row["snapshot_end_offset"] for row in newest_captures(history) if row["snapshot_end_offset"]]
    if not len(log.base_offset) or history.end_ms is None:
        return
    newest = max(ends, default=0)
    began_ms = log.time_at(newest - 1) if newest else int(log.timestamp_ms[0])
    since_bytes = int(log.size_bytes[log.base_offset >= newest].sum())
    if began_ms is None:
        row = int(np.searchsorted(log.base_offset, newest))
        if row == len(log.base_offset):
            yield undecided("snapshot", "the log around the newest snapshot was not read", from_offset=newest)
            return
        began_ms = int(log.timestamp_ms[row])
    hours = (history.end_ms - began_ms) / 3_600_000
    what = f"the newest snapshot ends at {newest}" if newest else "there is no snapshot"
    if hours > float(thresholds["max_age_hours"]) or since_bytes > int(thresholds["max_log_since_bytes"]):
        yield Case(
            "snapshot",
            f"{what}: {hours:.0f} h and {since_bytes / 2**20:.0f} MiB of log since",
            from_offset=newest,
            from_ms=began_ms,
            evidence=(Evidence(what, offset=newest, timestamp_ms=began_ms),),
        )
