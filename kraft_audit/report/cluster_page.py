"""What the page of one cluster shows, as plain values: no HTML, and no text that does not come from the cluster.

Plots are numbers, the place of each mark from 0 to 1000: the template draws them, so that all text is escaped.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from kraft_audit.capture.plan import Identity, identity_of
from kraft_audit.findings.answer import SHOW_FINDINGS, AnswerLine
from kraft_audit.findings.finding_formats import Advice, distinct_advice
from kraft_audit.findings.situation import Situation
from kraft_audit.incidents.numbering import incidents_in_order, numbered_incidents
from kraft_audit.picture.happened import Picture
from kraft_audit.picture.whole_picture import picture_of
from kraft_audit.recovery.may_i.permission_table import PermissionLine, Permissions, permission_lines
from kraft_audit.report.control_state import Control, control_state
from kraft_audit.report.partition_exposure import Exposure, PartitionLedger, cluster_exposure, partitions_at_risk
from kraft_audit.report.report_source import ClusterInput
from kraft_audit.report.weakness import Weakness, weakness
from kraft_audit.rules.cluster_history import ClusterHistory, TableRow, feature_level
from kraft_audit.rules.columns.captures import newest_watermark
from kraft_audit.rules.rule_model import ACCEPTED, CONTROLS, Severity
from kraft_audit.tables.gold import SEVERITIES
from kraft_audit.text.readable import natural
from kraft_codec.schemas.releases import METADATA_VERSION_FEATURE, METADATA_VERSIONS

RANK: Final = {severity.value: severity.rank for severity in Severity}
SUBJECTS_SHOWN: Final = 60
"""Findings of one rule that a page lists; findings.csv has all of them."""
SUMMARY_INCIDENTS_SHOWN: Final = 5
"""Open incidents in the summary, which has two pages on paper; the others follow in the appendix."""
ADVICE_ON_PAGE: Final = 8
LEADER_EPOCHS_SHOWN: Final = 100
SETS_SHOWN: Final = 60
HUES: Final = 6
NEXT_WORD, AT_REST_WORD = "NEXT", "AT REST"
"""How lines of the answer begin."""


@dataclass(frozen=True, slots=True)
class RuleGroup:
    """Findings of one rule, severity, state and reason (`why`), the oldest first; `count` may exceed those listed.

    `advice` is what to do, most frequent first; `advised_otherwise` counts findings that need other advice.
    """

    rule: str
    name: str
    severity: str
    why: str
    count: int
    since_ms: int | None
    findings: tuple[TableRow, ...]
    advice: tuple[Advice, ...]
    advised_otherwise: int


@dataclass(frozen=True, slots=True, eq=False)
class ClusterView:
    """Everything on a cluster's page. `is_read` is False if nothing of its log was read.

    `replicas` are rows of `captures` with the columns `node` and `role`. `numbered_incidents` are those that have a
    number, in its order: the open ones, then resolved ones as far as the page lists them.
    """

    cluster_id: str
    page_id: str
    title: str
    name: str | None
    is_read: bool
    metadata_version: str | None
    read_to_ms: int | None
    exposure: Exposure
    watermark: TableRow | None
    rounds: int
    replicas: tuple[TableRow, ...]
    voter_sets: tuple[TableRow, ...]
    voter_sets_left_out: int
    leader_epochs: tuple[TableRow, ...]
    leader_epochs_left_out: int
    controls: tuple[Control, ...]
    open_counts: dict[str, int]
    open_groups: tuple[RuleGroup, ...]
    waived: tuple[TableRow, ...]
    undecided: tuple[RuleGroup, ...]
    stopped_groups: tuple[RuleGroup, ...]
    closed_groups: tuple[RuleGroup, ...]
    clear_rules: tuple[str, ...]
    ledgers: tuple[PartitionLedger, ...]
    partitions_at_risk: int
    partition_count: int | None
    answer: tuple[AnswerLine, ...]
    open_incidents: tuple[TableRow, ...]
    resolved_incidents: tuple[TableRow, ...]
    numbered_incidents: tuple[TableRow, ...]
    permissions: Permissions | None
    permission_lines: tuple[PermissionLine, ...]
    labels: Mapping[str, str]
    picture: Picture | None
    action: Situation | None
    weakness: Weakness | None

    @property
    def voters_captured(self) -> tuple[int | None, int | None]:
        """How many voters were captured, of how many; None where that is not known."""
        mark = self.watermark
        return (None, None) if mark is None else (len(mark["captured_voters"]), len(mark["voters"]))

    @property
    def headline(self) -> AnswerLine | None:
        """The line of the answer that comes first on a page: the first that alarms, else what the quorum does."""
        alarming = (line for line in self.answer if line.severity is Severity.CRITICAL)
        return next(alarming, self.answer[0] if self.answer else None)

    @property
    def is_at_rest(self) -> bool:
        """Whether all of it was stopped in order: what its partitions then lack is no trouble."""
        return any(line.word == AT_REST_WORD for line in self.answer)

    @property
    def next_line(self) -> AnswerLine | None:
        """The line of the answer that says what to do first."""
        return next((line for line in self.answer if line.word == NEXT_WORD), None)

    @property
    def worst(self) -> str | None:
        return next((severity for severity in SEVERITIES if self.open_counts.get(severity)), None)

    @property
    def undecided_total(self) -> int:
        return sum(group.count for group in self.undecided)


def cluster_view(given: ClusterInput, *, is_drawn: bool = True) -> ClusterView:
    """The view of one cluster. Costs no more than reading its tables; partitions stay in columns."""
    history = given.history
    by_state: dict[str, list[TableRow]] = defaultdict(list)
    for finding in given.findings:
        if finding["status"] != "clear":
            by_state[finding["state"]].append(finding)
    sets = sorted(history.rows("voter_sets"), key=lambda row: (row["from_offset"], row["from_epoch"]))
    epochs = sorted(history.rows("leader_epochs"), key=lambda row: (row["epoch"], row["from_offset"] or -1))
    ledgers, at_risk, count = partitions_at_risk(history)
    level = feature_level(history, METADATA_VERSION_FEATURE)
    judged = given.judged_rules if given.judged_rules is not None else frozenset(f["rule"] for f in given.findings)
    raised = {finding["rule"] for finding in given.findings if finding["status"] != "clear"}
    watermark, exposure = newest_watermark(history), cluster_exposure(given)
    controls = tuple(control_state(name, given.findings, judged, exposure.covered) for name in CONTROLS)
    accepted = [finding for finding in given.findings if finding["state"] in ACCEPTED]
    open_incidents, resolved_incidents = _incidents(given, is_open=True), _incidents(given, is_open=False)
    return ClusterView(
        cluster_id=given.cluster_id,
        page_id=given.page_id,
        title=given.title,
        name=given.name,
        is_read=history.is_read,
        metadata_version=None if level is None else METADATA_VERSIONS.get(level, str(level)),
        read_to_ms=history.seen_ms,
        exposure=exposure,
        watermark=watermark,
        rounds=len(history.rows("watermarks")),
        replicas=_replicas(history, watermark),
        voter_sets=tuple(sets[-SETS_SHOWN:]),
        voter_sets_left_out=max(0, len(sets) - SETS_SHOWN),
        leader_epochs=tuple(epochs[-LEADER_EPOCHS_SHOWN:]),
        leader_epochs_left_out=max(0, len(epochs) - LEADER_EPOCHS_SHOWN),
        controls=controls,
        open_counts={
            severity: sum(finding["severity"] == severity for finding in by_state["open"]) for severity in SEVERITIES
        },
        open_groups=_groups(by_state["open"]),
        waived=tuple(sorted(accepted, key=lambda f: (f["waiver"]["until"], f["rule"]))),
        undecided=_groups(by_state["undecided"]),
        stopped_groups=_groups(by_state["folded"]),
        closed_groups=_groups(by_state["resolved"]),
        clear_rules=tuple(sorted(judged - raised)),
        ledgers=ledgers,
        partitions_at_risk=at_risk,
        partition_count=count,
        answer=tuple(replace(line, text=line.text.replace(SHOW_FINDINGS, "")) for line in given.situation.lines),
        open_incidents=open_incidents,
        resolved_incidents=resolved_incidents,
        numbered_incidents=tuple(numbered_incidents(given.incidents)),
        permissions=given.permissions,
        permission_lines=() if given.permissions is None else tuple(permission_lines(given.permissions)),
        labels=given.labels,
        picture=picture_of(given.drawn or history, given.incidents, given.apart) if is_drawn else None,
        action=given.situation if given.situation.needs_action else None,
        weakness=weakness(given, [loss for control in controls for loss in control.acknowledged]),
    )


def _incidents(given: ClusterInput, *, is_open: bool) -> tuple[TableRow, ...]:
    """The incidents that last, or those that are resolved: the worst first, then the newest."""
    return tuple(row for row in incidents_in_order(given.incidents) if row["is_open"] == is_open)


def _groups(findings: Sequence[TableRow]) -> tuple[RuleGroup, ...]:
    grouped: dict[tuple[str, str, str], list[TableRow]] = defaultdict(list)
    for finding in findings:
        grouped[finding["severity"], finding["rule"], finding["why"]].append(finding)
    return tuple(
        _group(severity, rule, group)
        for (severity, rule, _), group in sorted(grouped.items(), key=lambda item: (-RANK[item[0][0]], item[0][1]))
    )


def _group(severity: str, rule: str, group: list[TableRow]) -> RuleGroup:
    ordered = sorted(group, key=lambda f: (f["from_ms"] is None, f["from_ms"] or 0, natural(f["subject"])))
    first = ordered[0]
    advice = distinct_advice((finding["subject"], finding["what_to_do"]) for finding in ordered)
    return RuleGroup(
        rule,
        first["name"],
        severity,
        first["why"],
        len(ordered),
        first["from_ms"],
        tuple(ordered[:SUBJECTS_SHOWN]),
        tuple(advice[:ADVICE_ON_PAGE]),
        sum(len(left_out.subjects) for left_out in advice[ADVICE_ON_PAGE:]),
    )


def _replicas(history: ClusterHistory, watermark: TableRow | None) -> tuple[TableRow, ...]:
    """The newest capture of every replica."""
    newest: dict[Identity, TableRow] = {}
    for row in sorted(
        history.rows("captures"), key=lambda row: (row["plan"], row["capture_number"], row["read_to_ms"])
    ):
        newest[identity_of(row)] = row
    voters = [] if watermark is None else watermark["voters"]
    ordered = sorted(newest.values(), key=lambda row: (row["node_id"] is None, row["node_id"] or 0, row["path"]))
    return tuple(
        {
            **row,
            "node": "unknown" if row["node_id"] is None else str(row["node_id"]),
            "role": "not known" if watermark is None else _role(row, voters),
        }
        for row in ordered
    )


def _role(row: TableRow, voters: Sequence[TableRow]) -> str:
    if not row["accepted"]:
        return "foreign"
    same_id = [voter for voter in voters if voter["voter_id"] == row["node_id"]]
    for voter in same_id:
        if voter["directory_id"] is None or row["directory_id"] in (None, voter["directory_id"]):
            return "voter"
    return "other directory of a voter" if same_id else "observer"


def interval_plot(view: ClusterView) -> dict[str, Any] | None:
    """Each replica's log as a bar along the offsets, and `low` and `high` across them; None without any log."""
    replicas = [row for row in view.replicas if row["log_end_offset"] is not None]
    if not replicas:
        return None
    low, high = (None, None) if view.watermark is None else (view.watermark["low"], view.watermark["high"])
    starts = [row["log_start_offset"] or 0 for row in replicas]
    start = min(starts)
    end = max(offset for offset in (low, high, *(row["log_end_offset"] for row in replicas)) if offset is not None)
    scale = 1000.0 / max(1, end - start)
    bars = [
        {
            "label": f"node {row['node']}, {row['role']}",
            "x": (own_start - start) * scale,
            "width": max(2.0, (row["log_end_offset"] - own_start) * scale),
            "end": row["log_end_offset"],
        }
        for row, own_start in zip(replicas, starts, strict=True)
    ]
    low_x, high_x = (None if bound is None else (bound - start) * scale for bound in (low, high))
    return {"start": start, "end": end, "bars": bars, "low": low_x, "high": high_x, "height": 26 * len(bars)}


def voter_plot(sets: Sequence[TableRow]) -> dict[str, Any]:
    """Voters as rows and voter sets as columns: which voter was in which set."""
    members = [{(voter["voter_id"], voter["directory_id"]) for voter in row["voters"]} for row in sets]
    removed = ((voter["voter_id"], voter["directory_id"]) for row in sets for voter in row["removed"])
    names = sorted({*removed, *(key for keys in members for key in keys)}, key=lambda key: (key[0], key[1] or ""))
    kinds = ["member" if row["canonical"] else "reverted" for row in sets]
    cells = [[kind if key in keys else "absent" for kind, keys in zip(kinds, members, strict=True)] for key in names]
    return {"names": names, "cells": cells, "sets": sets}


def epoch_plot(epochs: Sequence[TableRow]) -> dict[str, Any] | None:
    """Canonical leader epochs along the offsets, a hue for each leader."""
    known = [row for row in epochs if row["canonical"] and row["from_offset"] is not None]
    if not known:
        return None
    ends = [row["from_offset"] if row["to_offset"] is None else row["to_offset"] for row in known]
    start, end = min(row["from_offset"] for row in known), max(ends)
    scale = 1000.0 / max(1, end - start)
    leaders = sorted({row["leader_id"] for row in known if row["leader_id"] is not None})
    hues = {leader: f"hue{place % HUES}" for place, leader in enumerate(leaders)}
    marks = [
        {
            "x": (row["from_offset"] - start) * scale,
            "width": max(1.5, (to - row["from_offset"]) * scale),
            "kind": hues.get(row["leader_id"], "unknown"),
        }
        for row, to in zip(known, ends, strict=True)
    ]
    return {"start": start, "end": end, "marks": marks, "legend": list(hues.items())}
