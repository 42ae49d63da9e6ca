"""Findings as OCSF 1.5.0 events of the class Compliance Finding (2003), for SIEMs: a JSON object a line.

The schema (https://schema.ocsf.io/1.5.0) leaves control and standards to the producer: here every event has both. What
could not be decided is Unknown, never Pass. What is resolved stays Fail: it says what was found between start_time and
end_time, and the activity Close says that it is history.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.frameworks import frameworks, requirements
from kraft_audit.rules.registry import control_of
from kraft_audit.rules.rule_model import CONTROLS
from kraft_audit.text.readable import is_time

OCSF_VERSION: Final = "1.5.0"
CATEGORY: Final = (2, "Findings")
CLASS: Final = (2003, "Compliance Finding")
PRODUCT: Final = "kraft-audit"
RULE_ANALYTIC: Final = (1, "Rule")


class Code(NamedTuple):
    """A number of an OCSF enumeration and its caption."""

    id: int
    caption: str


CREATE, UPDATE, CLOSE = Code(1, "Create"), Code(2, "Update"), Code(3, "Close")
SEVERITY: Final = {
    "critical": Code(5, "Critical"),
    "high": Code(4, "High"),
    "medium": Code(3, "Medium"),
    "low": Code(2, "Low"),
}
NO_SEVERITY: Final = Code(1, "Informational")
"""Of a check that passed."""
COMPLIANCE: Final = {"raised": Code(3, "Fail"), "undecided": Code(0, "Unknown"), "clear": Code(1, "Pass")}
UNMAPPED: Final = ("from_offset", "to_offset", "epoch", "evidence", "waiver", "state", "severity_now", "incident_id")
STOPPED_IN_ORDER: Final = "it lasts because the cluster was stopped in order"
LIFECYCLE: Final = {
    "open": Code(1, "New"),
    "folded": Code(3, "Suppressed"),
    "waived": Code(3, "Suppressed"),
    "acknowledged": Code(3, "Suppressed"),
    "resolved": Code(4, "Resolved"),
    "undecided": Code(0, "Unknown"),
    "clear": Code(4, "Resolved"),
}
"""status_id of an event by the state of its finding."""


def ocsf_events(rows: Iterable[Mapping[str, Any]], version: str) -> list[dict[str, Any]]:
    """Rows of the table `findings`, judged or of a lake, as events by time; `version` is that of kraft-audit."""
    events = [_event(row, version) for row in rows]
    return sorted(events, key=lambda event: (event["time"], event["metadata"]["uid"]))


def without_nulls(value: Any) -> Any:
    """An event as JSON has it: an attribute without a value is left out."""
    if isinstance(value, dict):
        return {name: without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [without_nulls(inner) for inner in value] if isinstance(value, list) else value


def compliance_of(rule: str) -> dict[str, Any]:
    """Control, standards and requirements that a rule is evidence for; of a rule of another version the rule alone."""
    control = control_of(rule)
    if control is None:
        return {"control": rule, "desc": None, "standards": [], "requirements": []}
    return {
        "control": control,
        "desc": CONTROLS[control],
        "standards": [f"{each.name} ({each.edition})" for each in frameworks() if control in each.controls],
        "requirements": [f"{each.framework} {id_}" for each in requirements(control) for id_ in each.ids],
    }


def _event(row: Mapping[str, Any], version: str) -> dict[str, Any]:
    state = row["state"]
    activity = _activity(row, state)
    lifecycle = LIFECYCLE[state]
    severity = NO_SEVERITY if state in ("clear", "folded") else SEVERITY[row["severity"]]
    check = COMPLIANCE[row["status"]]
    time_ms = _time_ms(row, activity)
    seen_ms = _seen_ms(row)
    began = row["from_ms"] if row["from_offset"] is None else row["from_offset"]
    subject, summary = row["subject"], row["summary"]
    first_seen_ms, changed_ms = row.get("first_seen_ms", seen_ms), row.get("changed_ms", seen_ms)
    waiver = row["waiver"]
    detail = row["reason"] if waiver is None else f"{waiver['who']} until {waiver['until']}: {waiver['why']}"
    detail = STOPPED_IN_ORDER if state == "folded" else detail
    return {
        "category_uid": CATEGORY[0],
        "category_name": CATEGORY[1],
        "class_uid": CLASS[0],
        "class_name": CLASS[1],
        "activity_id": activity.id,
        "activity_name": activity.caption,
        "type_uid": CLASS[0] * 100 + activity.id,
        "type_name": f"{CLASS[1]}: {activity.caption}",
        "time": time_ms,
        "start_time": row["from_ms"],
        "end_time": row["to_ms"],
        "severity_id": severity.id,
        "severity": severity.caption,
        "status_id": lifecycle.id,
        "status": lifecycle.caption,
        "status_detail": detail,
        "message": f"{subject}: {summary}" if subject else summary or row["name"],
        "metadata": {
            "version": OCSF_VERSION,
            "uid": f"{row['finding_id']}.{began or 0}.{time_ms}",
            "event_code": row["rule"],
            "product": {"name": PRODUCT, "vendor_name": PRODUCT, "version": version},
        },
        "finding_info": {
            "uid": row["finding_id"],
            "title": summary or row["name"],
            "desc": row["why"],
            "types": [row["scope"]],
            "first_seen_time": first_seen_ms,
            "last_seen_time": row.get("last_seen_ms", seen_ms),
            "created_time": first_seen_ms,
            "modified_time": changed_ms,
            "analytic": {
                "uid": row["rule"],
                "name": row["name"],
                "type_id": RULE_ANALYTIC[0],
                "type": RULE_ANALYTIC[1],
            },
        },
        "compliance": {**compliance_of(row["rule"]), "status_id": check.id, "status": check.caption},
        "remediation": {"desc": row["what_to_do"]} if row["what_to_do"] else None,
        "resources": [
            {
                "uid": f"{row['cluster_id']}/{subject}",
                "name": subject or row["cluster_id"],
                "type": row["scope"],
                "namespace": row["cluster_id"],
            }
        ],
        "unmapped": {name: row[name] for name in UNMAPPED},
    }


def _activity(row: Mapping[str, Any], state: str) -> Code:
    """A finding of a lake is updated by each plan that sees it again; what reads log dirs knows of no run before."""
    if state == "resolved":
        return CLOSE
    return UPDATE if row.get("first_plan", row["plan"]) != row["plan"] else CREATE


def _time_ms(row: Mapping[str, Any], activity: Code) -> int:
    seen_ms = _seen_ms(row)
    if activity is CREATE:
        return int(row.get("first_seen_ms", seen_ms))
    changed_ms = int(row.get("changed_ms", seen_ms))
    return changed_ms if activity is CLOSE else max(changed_ms, int(row.get("last_seen_ms", seen_ms)))


def _seen_ms(row: Mapping[str, Any]) -> int:
    return int(row["seen_ms"] or row["to_ms"] or row["from_ms"] or 0)


def observed_ms(history: ClusterHistory) -> int | None:
    """When findings of log dirs were observed: as of the newest log, so that the same logs give the same bytes again.

    Where its clock was no clock, when it was read.
    """
    end_ms = history.end_ms
    return end_ms if end_ms is not None and is_time(end_ms) else history.seen_ms
