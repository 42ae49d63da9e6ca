"""Rules about snapshots: when they were written, and whether they say what the log and other nodes' snapshots say."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from kraft_audit.rules.cluster_history import ClusterHistory, SnapshotCheck
from kraft_audit.rules.columns.altered_runs import named_replicas
from kraft_audit.rules.columns.captures import (
    capture_evidence,
    captures_in_order,
    is_emptied,
    newest_captures,
    replica_name,
    watermarks_in_order,
)
from kraft_audit.rules.columns.declared_recovery import fitting_recoveries
from kraft_audit.rules.columns.log_batches import OFF_AFTER_MS, CanonicalBatches, canonical_log
from kraft_audit.rules.columns.nodes import registered_nodes
from kraft_audit.rules.families.log_files import SNAPSHOT_DAMAGE, damage_case, is_snapshot_file
from kraft_audit.rules.registry import rule, words_for
from kraft_audit.rules.rule_model import Case, Evidence, Severity, Thresholds, threshold, undecided
from kraft_audit.tables.number_arrays import Rows
from kraft_audit.text.readable import HOUR_MS, listed
from kraft_codec.errors import Reason
from kraft_codec.file_names import printable
from kraft_codec.schemas.releases import (
    FIRST_LEVEL_WITH_TIMED_SNAPSHOTS,
    LAST_LEVEL_WITH_SNAPSHOTS_INSIDE_BATCHES,
    METADATA_VERSION_FEATURE,
)

STATE_DIFFERENCES_SHOWN: Final = 20
CONFIG_OF_TOPIC: Final = "config TOPIC "
ONLY_THERE: Final = ": only in the snapshot"


@rule("KQ011", control="log_integrity", needs=("captures", "batches", "decode_errors"))
def kq011(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    emptied = {(row["root"], row["path"]) for row in history.rows("captures") if is_emptied(row)}
    for row in history.rows("decode_errors"):
        if (row["root"], row["path"]) in emptied:
            continue
        if row["reason"] in SNAPSHOT_DAMAGE and (is_snapshot_file(row) or row["reason"] == Reason.SNAPSHOT_INCOMPLETE):
            yield damage_case(row, f"{row['reason']}: {row['detail']}")
    by_snapshot: dict[tuple[int, int], list[SnapshotCheck]] = defaultdict(list)
    for check in history.snapshot_checks or ():
        by_snapshot[check.end_offset, check.epoch].append(check)
    for checks in by_snapshot.values():
        if any(check.differences for check in checks):
            yield from _differing(history, _sides(checks))
    yield from _off_boundary(history)


@dataclass(frozen=True, slots=True)
class _Side:
    """The copies of one snapshot that say the same, as one check with all their holders."""

    check: SnapshotCheck

    @property
    def nodes(self) -> int:
        return len(
            {(replica.node_id, replica.path if replica.node_id is None else "") for replica in self.check.holders}
        )

    @property
    def who(self) -> str:
        return named_replicas(self.check.holders) if self.check.holders else "this copy"


def _sides(checks: Sequence[SnapshotCheck]) -> list[_Side]:
    """What most nodes say comes first."""
    joined: dict[tuple[str, ...], SnapshotCheck] = {}
    for check in checks:
        known = joined.get(check.differences)
        holders = check.holders if known is None else (*known.holders, *check.holders)
        joined[check.differences] = SnapshotCheck(
            check.end_offset, check.epoch, check.differences, check.path, holders, check.is_replayed
        )
    return sorted(map(_Side, joined.values()), key=lambda side: -side.nodes)


def _differing(history: ClusterHistory, sides: Sequence[_Side]) -> Iterator[Case]:
    """Which side is the outlier: a snapshot, other nodes' snapshots of the same id, or the replay of the log."""
    check = sides[0].check
    unknown = history.unknown_before(check.end_offset - 1) if check.is_replayed else None
    equal = next((side for side in sides if not side.check.differences), None)
    if check.is_replayed and unknown is None:
        if equal is not None:
            agreeing = f"the replay of the log and the snapshot{'s' * (equal.nodes > 1)}{_of_nodes(equal)} agree"
            for side in sides:
                if side is not equal:
                    yield from _outlier(history, side, agreeing)
        elif len(sides) == 1 and sides[0].nodes > 1:
            yield _replay_case(sides[0])
        elif len(sides) == 1:
            text = "no other node's snapshot of that offset was captured: the log and this one are one against one"
            yield from _outlier(history, sides[0], text, is_outlier=False)
        else:
            for side in sides:
                text = "the replay of the log and the copies of other nodes say something else, and not the same"
                yield from _outlier(history, side, text, is_outlier=False)
    elif len(sides) == 1:
        reason = f"its state differs from the replayed one, but {unknown}"
        yield undecided(_snapshot_name(check), reason, from_offset=check.end_offset)
    elif sides[0].nodes > sides[1].nodes:
        for side in sides[1:]:
            yield from _outlier(history, side, f"the snapshots{_of_nodes(sides[0])} agree, and no replay reaches them")
    else:
        for side in (side for side in sides if side.check.differences):
            others = listed([each.who for each in sides if each is not side])
            text = f"{others} hold another state, and no replay says which is right"
            yield from _outlier(history, side, text, is_outlier=False)


def _outlier(history: ClusterHistory, side: _Side, others: str, *, is_outlier: bool = True) -> Iterator[Case]:
    """A case for each node that holds what differs."""
    check = side.check
    name = _snapshot_name(check)
    first = check.differences[0] if check.differences else "it is what others differ from"
    side_text = f"the outlier is this snapshot: {others}" if is_outlier else others
    compared = f"the replayed state at offset {check.end_offset}" if check.is_replayed else "that of other copies"
    words = _words_of_left(check) if is_config_left(history, check) else {}
    bug = "; Kafka's ConfigurationsDelta bug: configs of a deleted topic are left" if words else ""
    at: dict[str, Any] = {"from_offset": check.end_offset, "epoch": check.epoch, **words}
    summary = f"its state is not {compared}: {first}; {side_text}{bug}"
    texts = check.differences[:STATE_DIFFERENCES_SHOWN]
    if not check.holders:
        yield Case(name, summary, evidence=tuple(Evidence(text, path=check.path) for text in texts), **at)
    for replica in check.holders:
        path = printable(replica.path)
        facts = tuple(Evidence(text, path=path, node_id=replica.node_id, offset=check.end_offset) for text in texts)
        subject = f"{named_replicas([replica])} {name}"
        yield Case(subject, summary, evidence=facts, **at)


def _replay_case(side: _Side) -> Case:
    check = side.check
    summary = (
        f"the snapshots{_of_nodes(side)} agree, and the replay of the log is the outlier at offset {check.end_offset}: "
        f"{check.differences[0]}"
    )
    facts = tuple(
        Evidence(text, path=printable(replica.path), node_id=replica.node_id)
        for text in check.differences[:STATE_DIFFERENCES_SHOWN]
        for replica in check.holders[:1]
    )
    words = words_for("KQ011", "replay_differs")
    return Case(_snapshot_name(check), summary, check.end_offset, epoch=check.epoch, evidence=facts, **words)


def is_config_left(history: ClusterHistory, check: SnapshotCheck) -> bool:
    """Whether all that differs are configs of topics that the log created, configured and deleted before.

    ConfigurationsDelta.replay(RemoveTopicRecord) deletes the configs that the image before the delta has: what was set
    within the same delta stays (seen in Kafka 4.3.1; a node that starts replays its log as one delta).
    """
    deleted = {row["topic"] for row in _before(history, "topic_changes", check) if not row["exists"]}
    written = {
        f"{row['resource_name']} {row['name']}"
        for row in _before(history, "config_changes", check)
        if row["resource_type"] == "TOPIC"
    }
    return bool(check.differences) and all(
        text.startswith(CONFIG_OF_TOPIC)
        and text.endswith(ONLY_THERE)
        and (key := text[len(CONFIG_OF_TOPIC) : -len(ONLY_THERE)]) in written
        and key.partition(" ")[0] in deleted
        for text in check.differences
    )


def _words_of_left(check: SnapshotCheck) -> dict[str, Any]:
    """With the first topic's name in the commands."""
    words = words_for("KQ011", "config_left")
    topic = check.differences[0][len(CONFIG_OF_TOPIC) :].partition(" ")[0]
    return {**words, "what_to_do": words["what_to_do"].replace("NAME", topic)}


def _before(history: ClusterHistory, table: str, check: SnapshotCheck) -> Iterator[dict[str, Any]]:
    return (row for row in history.rows_by_offset(table) if row["from_offset"] < check.end_offset)


def _snapshot_name(check: SnapshotCheck) -> str:
    return f"snapshot {check.end_offset}-{check.epoch}"


def _of_nodes(side: _Side) -> str:
    return f" of {side.who}" if side.check.holders else ""


def _off_boundary(history: ClusterHistory) -> Iterator[Case]:
    log = canonical_log(history)
    snapshots = {row["snapshot_end_offset"]: row for row in reversed(captures_in_order(history))}
    for end, row in reversed(snapshots.items()):
        batch = log.row_of(end) if end and log.start_offset < end < log.end_offset else None
        if batch is None or int(log.base_offset[batch]) == end:
            continue
        text = f"offset {end} lies inside the batch [{int(log.base_offset[batch])}, {int(log.last_offset[batch]) + 1})"
        yield Case(
            f"snapshot {end}-{row['snapshot_epoch']}",
            f"does not end at a batch boundary: {text}",
            from_offset=end,
            epoch=row["snapshot_epoch"],
            severity=Severity.LOW if _may_end_inside_batch(history) else Severity.HIGH,
            evidence=(capture_evidence(row, text, offset=end),),
        )


def _may_end_inside_batch(history: ClusterHistory) -> bool:
    """Whether the controllers may end a snapshot inside a batch, by the newest level they support (KAFKA-17713)."""
    supported = [
        feature["max_supported_version"]
        for row in history.rows("controller_changes")
        for feature in row["features"]
        if feature["name"] == METADATA_VERSION_FEATURE
    ]
    changes = history.rows("feature_changes")
    levels = supported or [row["feature_level"] for row in changes if row["name"] == METADATA_VERSION_FEATURE]
    return bool(levels) and int(max(levels)) <= LAST_LEVEL_WITH_SNAPSHOTS_INSIDE_BATCHES


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
    stops = np.flatnonzero(np.diff(times_ms) > OFF_AFTER_MS)
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
