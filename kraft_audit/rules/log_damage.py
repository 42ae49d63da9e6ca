"""Rules about bytes: damage, gaps, torn tails, and files that disagree with the log beside them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from kraft_audit.replay.continuity import is_repeated
from kraft_audit.replay.damage import leaves_unread
from kraft_audit.rules.canonical import LogBatches, canonical_log, log_batches, newest_watermark
from kraft_audit.rules.captured import Row, capture_evidence, captures_in_order, replica_name
from kraft_audit.rules.history import ClusterHistory
from kraft_audit.rules.model import Case, Evidence, Scope, Severity, Thresholds
from kraft_audit.rules.registry import rule
from kraft_codec.errors import Reason
from kraft_codec.verdicts import DECOMPRESSES_ALL, READS_AS_VERSION_2, STOPS_AT_REPLAY

GAPS: Final = {Reason.GAP, Reason.OVERLAP, Reason.SNAPSHOT_MISSING}
TAILS: Final = {Reason.TORN_TAIL, Reason.ZERO_TAIL}
UNKNOWN: Final = {
    Reason.UNKNOWN_FRAME_VERSION,
    Reason.UNKNOWN_RECORD_TYPE,
    Reason.UNKNOWN_RECORD_VERSION,
    Reason.UNKNOWN_CONTROL_TYPE,
}
CORRUPT: Final = {
    Reason.BAD_LENGTH,
    Reason.BAD_MAGIC,
    Reason.BAD_CRC,
    Reason.BAD_VARINT,
    Reason.BAD_RECORD,
    Reason.BAD_STRING,
    Reason.BAD_COMPRESSION,
    Reason.DECOMP_LIMIT,
}

_REPEATED: Final[dict[str, Any]] = {
    "why": "Nothing is missing: offsets that the log holds already come again, which Kafka does not notice. It never "
    "writes them so: something else put this file together, and what stands there twice may be applied twice.",
    "what_to_do": "Compare this file with another replica's (`dump`). If the others do not have it so, replace this "
    "disk and let the node fetch anew.",
}
_READ_BY_KAFKA: Final[dict[str, Any]] = {
    "severity": Severity.HIGH,
    "why": "Kafka does not cut the log here, and reads a batch that this tool does not: what it says is missing here.",
    "what_to_do": "Keep a copy of the log dir. Compare the batch with another replica's (`dump`): if theirs is another "
    "one, a byte changed on this disk.",
}
_STOPS: Final[dict[str, Any]] = {
    "why": "Kafka keeps the batch, as its CRC is right, and a node that replays the record stops with a fatal fault.",
    "what_to_do": "Copy the log dir before the node starts. If other replicas hold another batch at that offset "
    "(`diverge`), replace this disk; if all hold the same, it was written so, and each of them stops at it.",
}
_OTHERWISE: Final[dict[str, dict[str, Any]]] = {
    f"Kafka {READS_AS_VERSION_2}": _READ_BY_KAFKA,
    f"Kafka {DECOMPRESSES_ALL}": _READ_BY_KAFKA,
    f"Kafka {STOPS_AT_REPLAY}": _STOPS,
}
"""What is said of a batch at which Kafka does not cut the log, by the verdict on it."""


def place(row: Row) -> str:
    """Which file of which replica, as people name it."""
    name = f"node {row['node_id']}" if row["node_id"] is not None else row["path"] or row["root"]
    return f"{name} {row['file_name'] or ''}".strip()


def damage_case(row: Row, summary: str, **more: Any) -> Case:
    """A case about one row of `decode_errors`."""
    fact = Evidence(
        f"{row['reason']}: {row['detail']}; {row['kafka_verdict']}",
        offset=row["base_offset"],
        node_id=row["node_id"],
        path=row["path"] or row["root"],
        file_name=row["file_name"],
        position=row["position"],
    )
    subject = f"{place(row)} at byte {row['position']}"
    return Case(subject, summary, from_offset=row["base_offset"], evidence=(fact,), **more)


def is_snapshot_file(row: Row) -> bool:
    return (row["file_name"] or "").endswith(".checkpoint")


def _rows(history: ClusterHistory, reasons: set[Reason]) -> Iterator[Row]:
    return (row for row in history.rows("decode_errors") if row["reason"] in reasons)


@rule("KQ004", "epoch-went-back", Severity.CRITICAL, Scope.LOG, needs=("batches", "decode_errors"))
def kq004(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    for row in _rows(history, {Reason.EPOCH_WENT_BACK}):
        if (row["file_name"] or "").endswith("leader-epoch-checkpoint"):
            continue  # KQ013 compares it with the log
        yield damage_case(row, f"leader epoch decreases: {row['detail']}")


@rule("KQ007", "offset-gap", Severity.CRITICAL, Scope.LOG, needs=("batches", "decode_errors"))
def kq007(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    for row in _rows(history, GAPS):
        text = _REPEATED if is_repeated(row["reason"], row["detail"]) else {}
        yield damage_case(row, row["detail"], **text)


@rule("KQ008", "corrupt-batch", Severity.CRITICAL, Scope.LOG, needs=("captures", "batches", "decode_errors"))
def kq008(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    for row in history.rows("decode_errors"):
        if row["file_name"] is None and leaves_unread(row["reason"], row["detail"]):
            reason = f"{row['detail']}: what was not read there may be damaged, and whole replicas may be missing"
            yield damage_case(row, reason, undecided=reason)
    captures = {(row["root"], row["path"]): row for row in history.rows("captures")}
    for row in _rows(history, CORRUPT):
        if is_snapshot_file(row):
            continue
        capture = captures.get((row["root"], row["path"]))
        otherwise = _OTHERWISE.get(row["kafka_verdict"])
        lost = ""
        if (
            otherwise is None
            and capture is not None
            and capture["reachable_end_offset"] is not None
            and capture["log_end_offset"] is not None
        ):
            count = capture["log_end_offset"] - capture["reachable_end_offset"]
            if count > 0:
                lost = f"; Kafka would cut the log at {capture['reachable_end_offset']}, {count} records are behind it"
        yield damage_case(row, f"{row['reason']} in {row['length_bytes']} bytes{lost}", **(otherwise or {}))


@rule("KQ009", "torn-tail", Severity.LOW, Scope.LOG, needs=("decode_errors",))
def kq009(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    for row in _rows(history, TAILS):
        if not is_snapshot_file(row):
            yield damage_case(row, f"{row['length_bytes']} bytes after the last whole batch: {row['detail']}")


@rule("KQ013", "epoch-checkpoint-mismatch", Severity.MEDIUM, Scope.LOG, needs=("captures", "batches"))
def kq013(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    batches = log_batches(history)
    for row in captures_in_order(history):
        if row["leader_epoch_checkpoint"] is None or row["log_end_offset"] is None:
            continue
        start, end = _checkpointed_from(row), row["log_end_offset"]
        held = {epoch: max(offset, start) for epoch, offset in _epochs_of(batches, row, start, end).items()}
        told = {entry["epoch"]: entry["start_offset"] for entry in row["leader_epoch_checkpoint"]}
        wrong = {epoch: offset for epoch, offset in told.items() if start <= offset < end and held.get(epoch) != offset}
        missing = {epoch: offset for epoch, offset in held.items() if epoch not in told}
        if wrong or missing:
            before = " ".join(f"{epoch}@{offset}" for epoch, offset in sorted(held.items()))
            after = " ".join(f"{epoch}@{offset}" for epoch, offset in sorted(told.items()))
            first = min([*wrong.values(), *missing.values()])
            yield Case(
                replica_name(row),
                f"leader-epoch-checkpoint says {after}, the log {before}",
                from_offset=first,
                evidence=(
                    capture_evidence(
                        row, "log → checkpoint", file_name="leader-epoch-checkpoint", before=before, after=after
                    ),
                ),
            )


def _checkpointed_from(row: Row) -> int:
    """The log start as the checkpoint knows it: cleaning moves the first entry up to a snapshot's end, which may lie
    inside the oldest segment that is left (UnifiedLog.maybeIncrementLogStartOffset, LeaderEpochFileCache 4.3.0)."""
    start = int(row["log_start_offset"] or 0)
    snapshot_end = row["snapshot_end_offset"] or 0
    # Without an entry: the log is empty behind its newest snapshot, or began anew there.
    first = min((entry["start_offset"] for entry in row["leader_epoch_checkpoint"]), default=snapshot_end)
    return first if start < first <= snapshot_end else start


def _epochs_of(batches: LogBatches, capture: Row, start: int, end: int) -> dict[int, int]:
    """The first offset of each epoch in one captured log [start, end)."""
    rows = np.flatnonzero(batches.held_by(capture) & (batches.last_offset < end) & (batches.last_offset >= start))
    # Epochs ascend along a log: what is older than the log's first batch was there before the log began anew.
    at_start = rows[batches.base_offset[rows] <= start]
    if len(at_start):
        rows = rows[batches.leader_epoch[rows] >= batches.leader_epoch[at_start].max()]
    order = np.lexsort((batches.base_offset[rows], batches.leader_epoch[rows]))
    epochs, first = np.unique(batches.leader_epoch[rows][order], return_index=True)
    offsets = batches.base_offset[rows][order][first]
    return dict(zip(epochs.tolist(), offsets.tolist(), strict=True))


@rule("KQ017", "open-transaction", Severity.MEDIUM, Scope.LOG, needs=("records", "watermarks"))
def kq017(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    newest = newest_watermark(history)
    end = newest["low"] if newest is not None and newest["low"] else canonical_log(history).end_offset
    markers = sorted(
        (
            row
            for row in history.rows("records")
            if row["source"] == "log" and row["record_type"].endswith("TRANSACTION_RECORD") and row["offset"] < end
        ),
        key=lambda row: (row["offset"], row["leader_epoch"]),
    )
    if markers and markers[-1]["record_type"].startswith("BEGIN"):
        last = markers[-1]
        name = json.loads(last["record"] or "{}").get("name")
        yield Case(
            "metadata transaction",
            f"begun at offset {last['offset']} ({name}), neither ended nor aborted by {end}",
            from_offset=last["offset"],
            from_ms=last["timestamp_ms"],
            epoch=last["leader_epoch"],
            evidence=(Evidence("BeginTransactionRecord", offset=last["offset"], timestamp_ms=last["timestamp_ms"]),),
        )


@rule("KQ018", "unknown-record", Severity.LOW, Scope.LOG, needs=("decode_errors",))
def kq018(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    seen: set[tuple[str, int | None]] = set()
    for row in _rows(history, UNKNOWN):
        key = (row["detail"], row["base_offset"])
        if key not in seen:
            seen.add(key)
            yield damage_case(row, row["detail"])
