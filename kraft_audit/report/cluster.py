"""What the page of one cluster shows, as plain values. No HTML here, and no text that the cluster did not give."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kraft_audit.natural_order import natural
from kraft_audit.report.exposure import Exposure, cluster_exposure
from kraft_audit.report.ledger import PartitionLedger, partitions_at_risk
from kraft_audit.report.source import ClusterInput, Row, state_of
from kraft_audit.rules.advice import Advice, distinct_advice
from kraft_audit.rules.canonical import newest_watermark
from kraft_audit.rules.controls import CONTROL_OF, CONTROLS
from kraft_audit.rules.features import feature_level
from kraft_audit.rules.history import ClusterHistory
from kraft_audit.rules.model import Severity
from kraft_audit.rules.registry import rules
from kraft_audit.rules.render import METADATA_VERSIONS

SEVERITIES: Final = tuple(severity.value for severity in sorted(Severity, key=lambda one: -one.rank))
RANK: Final = {severity.value: severity.rank for severity in Severity}
SUBJECTS_SHOWN: Final = 60
"""Findings of one rule that a page lists; all of them stand in findings.csv."""
ADVICE_SHOWN: Final = 8
EPOCHS_SHOWN: Final = 100
SETS_SHOWN: Final = 60


@dataclass(frozen=True, slots=True)
class RuleGroup:
    """Findings of one rule, severity, state and reason (`why`), the oldest first; `count` may exceed those listed.

    `advice` is what to do, what most of all of them need first; `advised_otherwise` counts whom none of it is for.
    """

    rule: str
    name: str
    severity: str
    why: str
    count: int
    since_ms: int | None
    findings: tuple[Row, ...]
    advice: tuple[Advice, ...]
    advised_otherwise: int


@dataclass(frozen=True, slots=True)
class Control:
    """One control: held, broken, undecided or not judged, and by which rules; `rules` are those that looked.

    `since_ms` is the oldest cause that still lasts; `over_by` broke it before, until `over_ms`.
    """

    name: str
    claim: str
    status: str
    since_ms: int | None
    broken_by: tuple[str, ...]
    waived_by: tuple[str, ...]
    undecided_by: tuple[str, ...]
    over_by: tuple[str, ...]
    over_ms: int | None
    rules: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """One captured copy of the metadata log as it was last read."""

    node: str
    directory_id: str | None
    role: str
    row: Row


@dataclass(frozen=True, slots=True, eq=False)
class ClusterView:
    """Everything on a cluster's page. `is_read` is False where nothing of its log was read."""

    cluster_id: str
    name: str | None
    is_read: bool
    metadata_version: str | None
    exposure: Exposure
    watermark: Row | None
    rounds: int
    replicas: tuple[ReplicaView, ...]
    voter_sets: tuple[Row, ...]
    voter_sets_left_out: int
    leader_epochs: tuple[Row, ...]
    leader_epochs_left_out: int
    controls: tuple[Control, ...]
    open_counts: dict[str, int]
    open_groups: tuple[RuleGroup, ...]
    waived: tuple[Row, ...]
    undecided: tuple[RuleGroup, ...]
    closed_groups: tuple[RuleGroup, ...]
    clear_rules: tuple[str, ...]
    ledgers: tuple[PartitionLedger, ...]
    partitions_at_risk: int
    partition_count: int | None

    @property
    def worst(self) -> str | None:
        return next((severity for severity in SEVERITIES if self.open_counts.get(severity)), None)

    @property
    def open_total(self) -> int:
        return sum(self.open_counts.values())

    @property
    def undecided_total(self) -> int:
        return sum(group.count for group in self.undecided)


def cluster_view(given: ClusterInput) -> ClusterView:
    """The view of one cluster. Costs what reading its tables costs; partitions stay in columns."""
    history = given.history
    by_state: dict[str, list[Row]] = defaultdict(list)
    for finding in given.findings:
        if finding["status"] != "clear":
            by_state[state_of(finding)].append(finding)
    sets = sorted(history.rows("voter_sets"), key=lambda row: (row["from_offset"], row["from_epoch"]))
    epochs = sorted(history.rows("leader_epochs"), key=lambda row: (row["epoch"], row["from_offset"] or -1))
    ledgers, at_risk, count = partitions_at_risk(history)
    level = feature_level(history, "metadata.version")
    judged = given.judged_rules if given.judged_rules is not None else frozenset(f["rule"] for f in given.findings)
    raised = {finding["rule"] for finding in given.findings if finding["status"] != "clear"}
    watermark = newest_watermark(history)
    return ClusterView(
        cluster_id=given.cluster_id,
        name=given.name,
        is_read=history.is_read,
        metadata_version=None if level is None else METADATA_VERSIONS.get(level, str(level)),
        exposure=cluster_exposure(given),
        watermark=watermark,
        rounds=len(history.rows("watermarks")),
        replicas=_replicas(history, watermark),
        voter_sets=tuple(sets[-SETS_SHOWN:]),
        voter_sets_left_out=max(0, len(sets) - SETS_SHOWN),
        leader_epochs=tuple(epochs[-EPOCHS_SHOWN:]),
        leader_epochs_left_out=max(0, len(epochs) - EPOCHS_SHOWN),
        controls=tuple(_control(name, given.findings, judged) for name in CONTROLS),
        open_counts={one: sum(f["severity"] == one for f in by_state["open"]) for one in SEVERITIES},
        open_groups=_groups(by_state["open"]),
        waived=tuple(sorted(by_state["waived"], key=lambda f: (f["waiver"]["until"], f["rule"]))),
        undecided=_groups(by_state["undecided"]),
        closed_groups=_groups(by_state["closed"]),
        clear_rules=tuple(sorted(judged - raised)),
        ledgers=ledgers,
        partitions_at_risk=at_risk,
        partition_count=count,
    )


def _groups(findings: Sequence[Row]) -> tuple[RuleGroup, ...]:
    grouped: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for finding in findings:
        grouped[finding["severity"], finding["rule"], finding["why"]].append(finding)
    return tuple(
        _group(severity, rule, group)
        for (severity, rule, _), group in sorted(grouped.items(), key=lambda item: (-RANK[item[0][0]], item[0][1]))
    )


def _group(severity: str, rule: str, group: list[Row]) -> RuleGroup:
    ordered = sorted(group, key=lambda f: (f["from_ms"] is None, f["from_ms"] or 0, natural(f["subject"])))
    first = ordered[0]
    advice = distinct_advice((one["subject"], one["what_to_do"]) for one in ordered)
    return RuleGroup(
        rule,
        first["name"],
        severity,
        first["why"],
        len(ordered),
        first["from_ms"],
        tuple(ordered[:SUBJECTS_SHOWN]),
        tuple(advice[:ADVICE_SHOWN]),
        sum(len(one.subjects) for one in advice[ADVICE_SHOWN:]),
    )


def _control(name: str, findings: Sequence[Row], judged: Collection[str]) -> Control:
    mine = [finding for finding in findings if CONTROL_OF.get(finding["rule"]) == name]
    weighs = [f for f in mine if RANK[f["severity"]] >= Severity.MEDIUM.rank]
    broken = [f for f in weighs if state_of(f) == "open" and f["status"] == "raised"]
    waived = {f["rule"] for f in weighs if state_of(f) == "waived"}
    undecided = {f["rule"] for f in mine if state_of(f) == "undecided"}
    began = [f["from_ms"] for f in broken if f["from_ms"] is not None]
    over = [f for f in weighs if state_of(f) == "closed" and f["status"] == "raised"]
    ended = [f["to_ms"] for f in over if f["to_ms"] is not None]
    looked = tuple(rule for rule in rules() if CONTROL_OF[rule] == name and rule in judged)
    status = "broken" if broken else "undecided" if undecided else "held" if looked else "not judged"
    return Control(
        name.replace("_", " "),
        CONTROLS[name],
        status,
        min(began, default=None),
        tuple(sorted({f["rule"] for f in broken})),
        tuple(sorted(waived)),
        tuple(sorted(undecided)),
        tuple(sorted({f["rule"] for f in over})),
        max(ended, default=None),
        looked,
    )


def _replicas(history: ClusterHistory, watermark: Row | None) -> tuple[ReplicaView, ...]:
    """The newest capture of every replica."""
    newest: dict[tuple[Any, Any, str], Row] = {}
    for row in sorted(
        history.rows("captures"), key=lambda row: (row["plan"], row["capture_number"], row["read_to_ms"])
    ):
        where = "" if row["node_id"] is not None else row["path"]
        newest[row["node_id"], row["directory_id"], where] = row
    voters = [] if watermark is None else watermark["voters"]
    ordered = sorted(newest.values(), key=lambda row: (row["node_id"] is None, row["node_id"] or 0, row["path"]))
    return tuple(
        ReplicaView(
            "unknown" if row["node_id"] is None else str(row["node_id"]),
            row["directory_id"],
            _role(row, voters) if watermark is not None else "not known",
            row,
        )
        for row in ordered
    )


def _role(row: Row, voters: Sequence[Row]) -> str:
    if not row["accepted"]:
        return "foreign"
    same_id = [voter for voter in voters if voter["voter_id"] == row["node_id"]]
    for voter in same_id:
        if voter["directory_id"] is None or row["directory_id"] in (None, voter["directory_id"]):
            return "voter"
    return "other directory of a voter" if same_id else "observer"
