"""Rows of the table `losses`: loss events with their grade, bounds and holders."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kraft_audit.losses.replica_disks import ReplicaLog
from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.kept_logs import kept_logs
from kraft_audit.rules.columns.loss_holders import Loss, losses
from kraft_audit.rules.columns.loss_texts import holder_text, loss_text, proof_text


def loss_rows(
    history: ClusterHistory,
    plan: int = 0,
    kept: dict[tuple[str, int], tuple[ReplicaLog, ...]] | None = None,
    since: int = 0,
) -> Iterator[dict[str, Any]]:
    """A row an event, in the order of the log: of those that are new, whose holders changed, or whose disks were
    captured anew.

    `kept` gets what later judgements need of those disks. Events and changes from the metadata offset `since` on are
    new.
    """
    logs = kept_logs(history)
    if kept is not None:
        kept |= logs
    for loss in losses(history):
        is_captured = any(
            log.capture_number >= history.captured_from
            for log in logs.get((loss.event.topic, loss.event.partition), ())
        )
        changed_at = max([loss.event.offset, *(h.until_offset for h in loss.holders if h.until_offset is not None)])
        if changed_at >= since or is_captured:
            yield _row(history.cluster_id, loss, plan)


def _row(cluster_id: str, loss: Loss, plan: int) -> dict[str, Any]:
    event, own, proof = loss.event, loss.event.own, loss.proof
    facts = [loss_text(loss), proof_text(loss)]
    facts += [f"broker {holder.broker_id}: {holder_text(holder)}" for holder in loss.holders]
    return {
        "cluster_id": cluster_id,
        **{name: getattr(event, name) for name in ("topic", "topic_id", "partition", "leader_epoch", "leader_id")},
        **{name: getattr(event, name) for name in ("replaced_leader_id", "offset", "timestamp_ms")},
        "label": event.label.value,
        "doubt": "own_crash" if event.is_own_crash else "passed_over",
        "since_offset": None if own is None else own.offset,
        "since_ms": None if own is None else own.timestamp_ms,
        "since_leader_epoch": None if own is None else own.leader_epoch,
        "grade": loss.grade.value,
        "severity": loss.severity.value,
        "severity_now": loss.severity_now.value,
        "from_offset": proof.from_offset,
        "to_offset": proof.to_offset,
        "lost_ranges": [
            {name: getattr(each, name) for name in ("leader_epoch", "from_offset", "to_offset")}
            for each in proof.ranges
        ],
        "witnesses": sorted(event.witnesses),
        "holders": [
            {
                "broker_id": holder.broker_id,
                "directory_id": holder.directory_id,
                "is_witness": holder.is_witness,
                "state_then": holder.then.value,
                "state_now": holder.now.value,
                "until_offset": holder.until_offset,
            }
            for holder in loss.holders
        ],
        "saved_until": loss.saved_until,
        "evidence": [fact for fact in facts if fact],
        "plan": plan,
    }
