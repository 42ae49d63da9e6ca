"""Rules about when snapshots were written: never above what is committed, and often enough."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kraft_audit.rules.carried.merged_batches import OFF_AFTER_MS, is_run
from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.captures import (
    capture_evidence,
    captures_in_order,
    newest_captures,
    replica_name,
    watermarks_in_order,
)
from kraft_audit.rules.columns.declared_recovery import fitting_recoveries
from kraft_audit.rules.columns.frame import Rows
from kraft_audit.rules.columns.log_batches import CanonicalBatches, canonical_log
from kraft_audit.rules.columns.nodes import registered_nodes
from kraft_audit.rules.registry import rule
from kraft_audit.rules.rule_model import Case, Evidence, Thresholds, threshold, undecided
from kraft_audit.text.readable import HOUR_MS
from kraft_codec.schemas.releases import FIRST_LEVEL_WITH_TIMED_SNAPSHOTS


@rule("KQ012", control="log_integrity", needs=("captures", "watermarks"))
def kq012(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    """`high` bounds what was committed when reading began, and the nodes of one set of captures may have been copied
    one after another: only a later set proves that a snapshot stood above it."""
    reported: set[tuple[str, int, int]] = set()
    rescued = {(each.rescue.offset, each.rescue.epoch) for each in fitting_recoveries(history)}
    for row in captures_in_order(history):
        end, epoch, number = row["snapshot_end_offset"], row["snapshot_epoch"], row["capture_number"]
        name = replica_name(row)
        if not end or (name, end, epoch) in reported or (end, epoch) in rescued:
            continue  # a rescue puts its snapshot above everything
        bounds = [bound for bound in watermarks_in_order(history) if bound["high"] is not None and bound["high"] < end]
        later = next((bound for bound in bounds if bound["capture_number"] > number), None)
        if later is not None:
            summary = f"its snapshot ends at {end}, and later still nothing above {later['high']} was committed"
            fact = capture_evidence(row, f"snapshot {end}-{epoch}", offset=end)
            facts = (fact, *map(Evidence, later["high_evidence"]))
            yield Case(name, summary, end, epoch=epoch, evidence=facts, directory_id=row["directory_id"] or "")
        elif any(bound["capture_number"] == number for bound in bounds):
            reason = "its snapshot ends above what the others hold; they may have been copied before it was committed"
            yield undecided(name, reason, from_offset=end)
        else:
            continue
        reported.add((name, end, epoch))


@dataclass(frozen=True, slots=True)
class SnapshotAgeLimits(Thresholds):
    max_age_hours: float = threshold(24, "age of the newest snapshot; Kafka writes one an hour")
    max_log_since_bytes: int = threshold(200 * 1024 * 1024, "log after the newest snapshot; Kafka allows 20 MiB")


@rule(
    "KQ019",
    control="log_integrity",
    needs=("captures", "batches", "leader_epochs", "feature_changes", "broker_changes", "controller_changes"),
    thresholds=SnapshotAgeLimits,
)
def kq019(history: ClusterHistory, limits: SnapshotAgeLimits) -> Iterator[Case]:
    log = canonical_log(history)
    if not len(log.base_offset) or history.end_ms is None:
        return
    newest = max((row["snapshot_end_offset"] or 0 for row in newest_captures(history)), default=0)
    since = np.flatnonzero(log.base_offset >= newest)
    since_bytes = int(log.size_bytes[since].sum())
    began_ms = _running_since(history, log, since)
    if began_ms is None:
        return
    hours = (history.end_ms - began_ms) / HOUR_MS if _writes_timed_snapshots(history) else 0.0
    what = f"the newest snapshot ends at {newest}" if newest else "there is no snapshot"
    if hours > limits.max_age_hours or since_bytes > limits.max_log_since_bytes:
        yield Case(
            "snapshot",
            f"{what}: {hours:.0f} h of running time and {since_bytes / 2**20:.0f} MiB of log since",
            from_offset=newest,
            from_ms=began_ms,
            evidence=(Evidence(what, offset=newest, timestamp_ms=began_ms),),
        )


def _running_since(history: ClusterHistory, log: CanonicalBatches, since: Rows) -> int | None:
    """From when on the nodes ran without a stop and without a new snapshot; None where nothing was written since.

    The hour of a timed snapshot begins again with each start (SnapshotGenerator, Kafka 4.3.0). A leader writes NoOps
    when it is idle: where it wrote nothing for five minutes it was off. A sole voter begins an epoch with each start.
    """
    if not len(since):
        return None
    times_ms = log.timestamp_ms[since]
    is_one_batch = ~is_run(history.chunked_table("batches"))[log.row[since]]  # no batch within a run comes after a stop
    stops = np.flatnonzero((np.diff(times_ms) > OFF_AFTER_MS) & is_one_batch[1:])
    began_ms = int(times_ms[stops[-1] + 1] if len(stops) else times_ms[0])
    starts = (
        row["timestamp_ms"]
        for row in history.rows("leader_epochs")
        if row["canonical"] and row["timestamp_ms"] is not None and len(row["voters"] or ()) == 1
    )
    return max((began_ms, *(int(start) for start in starts)))


def _writes_timed_snapshots(history: ClusterHistory) -> bool:
    """Whether all nodes that say what they support run a release with timed snapshots (KIP-876)."""
    levels = [node.level for node in registered_nodes(history)]
    return bool(levels) and min(levels) >= FIRST_LEVEL_WITH_TIMED_SNAPSHOTS
