"""The results of all controls as OSCAL 1.2: a catalogue of our controls, an assessment plan and assessment results.

A target is satisfied where its control is met, or is weakened: then an observation says by what. A control that is not
met is not satisfied with the reason fail; one that is undecided, or was not judged, with the reason other, and a remark
says why. Ids come from what they
name (UUID version 5), and times from the lake's plan, or of log dirs from the newest log: the same lake gives the same
bytes again.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from kraft_audit.report.auditor_page import Audit, ControlResult
from kraft_audit.report.control_state import ControlStatus
from kraft_audit.report.report_source import AsOf
from kraft_audit.rules.frameworks import frameworks
from kraft_audit.rules.registry import rules
from kraft_audit.rules.rule_model import CONTROLS, ControlName, Rule
from kraft_audit.text.output import neutral
from kraft_audit.text.readable import capitalized, moment_of, plural

OSCAL_FOLDER: Final = "oscal"
CATALOG, PLAN, RESULTS = "catalog.json", "assessment-plan.json", "assessment-results.json"
OSCAL_VERSION: Final = "1.2.1"
OSCAL_NAMESPACE: Final = uuid.UUID("5f3d3a52-5f1b-5c52-9d4e-0f6b6a2c7d10")
"""Of all ids: it must never change."""
PROPERTY_NAMESPACE: Final = "https://kraft-audit.invalid/oscal"
TOOL: Final = "kraft-audit"
NO_PLAN: Final = (
    "No system security plan exists for these clusters: the population is what fleet.yaml, or the given path, holds."
)
TOOL_KEY: Final = ("component", TOOL)
STATUS: Final = {
    ControlStatus.MET: ("satisfied", "pass"),
    ControlStatus.WEAKENED: ("satisfied", "pass"),
    ControlStatus.NOT_MET: ("not-satisfied", "fail"),
    ControlStatus.UNDECIDED: ("not-satisfied", "other"),
    ControlStatus.NOT_JUDGED: ("not-satisfied", "other"),
}
"""State and reason of a target by its control's result."""
REMARKS: Final = {
    ControlStatus.WEAKENED: "Weakened: the observations name what weakens this control. Nothing severe is open.",
    ControlStatus.UNDECIDED: (
        "Undecided: the captures do not decide every case of this control. That is no failure, and no pass."
    ),
    ControlStatus.NOT_JUDGED: "Not judged: no rule of this control could be asked. That is no failure, and no pass.",
}


def write_document(document: Mapping[str, Any], target: Path) -> None:
    """One document as a file."""
    text = json.dumps(document, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    target.write_text(text, encoding="utf-8", newline="\n")


def oscal_documents(audit: Audit, as_of: AsOf) -> dict[str, dict[str, Any]]:
    """The documents by the names of their files."""
    ends = [each.period[1] for results in audit.results.values() for each in results if each.period is not None]
    at = _time(as_of.closed_ms if as_of.closed_ms is not None else max(ends, default=None)) or "1970-01-01T00:00:00Z"
    edition = f"{as_of.tool_version}, rules {as_of.rules_version}"
    return {
        CATALOG: _document("catalog", "Controls of kraft-audit", at, edition, _catalog()),
        PLAN: _document("assessment-plan", "How kraft-audit tests controls", at, edition, _plan()),
        RESULTS: _document(
            "assessment-results",
            "Controls of Kafka's KRaft metadata, as kraft-audit found them",
            at,
            at if as_of.plan is None else f"plan {as_of.plan}",
            _results(audit, at),
            _not_read(as_of),
        ),
    }


def _document(
    kind: str, title: str, at: str, version: str, content: Mapping[str, Any], remarks: str | None = None
) -> dict[str, Any]:
    """A document whose own id is made from all that it holds."""
    metadata = {"title": title, "last-modified": at, "version": _line(version), "oscal-version": OSCAL_VERSION}
    body = {"metadata": metadata | ({"remarks": remarks} if remarks else {}), **content}
    return {kind: {"uuid": _id(kind, json.dumps(body, sort_keys=True)), **body}}


def _not_read(as_of: AsOf) -> str | None:
    lines = [f"{_line(each.name)} could not be read: {_line(each.why)}" for each in as_of.not_read]
    return "\n".join(lines) or None


def _catalog() -> dict[str, Any]:
    return {"controls": [_control(name, claim) for name, claim in CONTROLS.items()]}


def _control(name: ControlName, claim: str) -> dict[str, Any]:
    required = [
        {"name": "requirement", "ns": PROPERTY_NAMESPACE, "value": id_, "class": framework.name.replace(" ", "-")}
        for framework in frameworks()
        for id_ in framework.controls.get(name, ())
    ]
    return {
        "id": name,
        "title": _title(name),
        "props": required,
        "parts": [
            {"id": f"{name}_smt", "name": "statement", "prose": claim},
            {"id": _objective(name), "name": "assessment-objective", "prose": claim},
        ],
    }


def _plan() -> dict[str, Any]:
    return {
        "import-ssp": {"href": f"#{_id('resource', 'plan')}", "remarks": NO_PLAN},
        "local-definitions": {"activities": [_activity(rule) for rule in rules().values()]},
        "reviewed-controls": _reviewed(list(CONTROLS)),
        "assessment-subjects": [{"type": "component", "include-all": {}}],
        "assessment-assets": {
            "components": [_component(TOOL_KEY, "software", TOOL, "Reads copies of KRaft metadata logs, and judges.")],
            "assessment-platforms": [
                {"uuid": _id("platform"), "uses-components": [{"component-uuid": _id(*TOOL_KEY)}]},
            ],
        },
        "back-matter": {
            "resources": [
                {"uuid": _id("resource", "plan"), "title": "No system security plan", "description": NO_PLAN},
                {"uuid": _id("resource", CATALOG), "title": "The controls", "rlinks": [{"href": CATALOG}]},
            ]
        },
    }


def _activity(rule: Rule) -> dict[str, Any]:
    return {
        "uuid": _rule_id(rule.id),
        "title": f"{rule.id} {rule.name}",
        "description": rule.text.raised_when,
        "related-controls": _reviewed([rule.control]),
    }


def _results(audit: Audit, at: str) -> dict[str, Any]:
    results = [_result(each, at) for each in zip(*audit.results.values(), strict=True)]
    none = {
        "uuid": _id("result", "none"),
        "title": "No cluster was found",
        "start": at,
        "description": "Nothing was tested.",
        "reviewed-controls": _reviewed(list(CONTROLS)),
    }
    return {"import-ap": {"href": PLAN}, "results": results or [none]}


def _result(of_cluster: Sequence[ControlResult], at: str) -> dict[str, Any]:
    """One cluster: a target for each control, and the observations that it rests on."""
    first = of_cluster[0]
    begin, end = (None, None) if first.period is None else map(_time, first.period)
    subject = _component(
        ("cluster", first.page_id), "service", _line(first.title), f"Cluster {_line(first.cluster_id)}"
    )
    findings, observations = [], []
    for name, result in zip(CONTROLS, of_cluster, strict=True):
        seen = list(_observations(name, result, subject["uuid"], at))
        observations += seen
        findings.append(_finding(name, result, [each["uuid"] for each in seen]))
    return {
        "uuid": _id("result", first.page_id, at),
        "title": subject["title"],
        "description": f"The controls of cluster {_line(first.cluster_id)}, from copies of its metadata log.",
        "start": begin or at,
        **({"end": end} if begin and end else {}),
        "local-definitions": {"components": [subject]},
        "reviewed-controls": _reviewed(list(CONTROLS)),
        "observations": observations,
        "findings": findings,
    }


def _finding(name: ControlName, result: ControlResult, observations: Sequence[str]) -> dict[str, Any]:
    state, reason = STATUS[result.result]
    status = {"state": state, "reason": reason}
    if result.result in REMARKS:
        status["remarks"] = REMARKS[result.result]
    elif result.waived:
        status["remarks"] = f"{plural(len(result.waived), 'finding')} waived: an accepted risk is no exception here."
    return {
        "uuid": _id("finding", result.page_id, name),
        "title": f"{_title(name)}: {result.result.words}",
        "description": CONTROLS[name],
        "origins": [_origin()],
        "target": {"type": "objective-id", "target-id": _objective(name), "status": status},
        "related-observations": [{"observation-uuid": each} for each in observations],
    }


def _observations(name: ControlName, result: ControlResult, subject: str, at: str) -> Iterator[dict[str, Any]]:
    """What was tested, then each rule with exceptions, acknowledged losses, undecided cases and waived findings."""
    checked = result.control.rules
    voters = "" if result.voters is None else f" {result.captured_voters} of {result.voters} voters were captured."
    tested = f"{plural(len(checked), 'rule')} asked: {', '.join(checked) or 'none'}.{voters}"
    yield _observation((result.page_id, name, "tested"), "What was tested", tested, (), subject, at)
    for place, group in enumerate(result.exceptions):
        said = f"{plural(group.count, 'open finding')} of severity {group.severity}. {_line(group.why)}"
        began = _time(group.since_ms)
        said += f" The oldest began at {began}." if began else ""
        key = (result.page_id, name, "open", str(place), group.rule)
        yield _observation(key, f"{group.rule} {_line(group.name)}", said, (group.rule,), subject, at)
    for place, loss in enumerate(result.control.acknowledged):
        said = f"{_line(loss['subject'])} {_line(loss['summary'])} Acknowledged by {_waiver(loss)}."
        key = (result.page_id, name, "acknowledged", str(place), loss["rule"])
        yield _observation(key, "A loss that was acknowledged", said, (loss["rule"],), subject, at)
    for rule in result.control.undecided_by:
        said = "A case that the captures do not decide."
        yield _observation((result.page_id, name, "undecided", rule), f"{rule} undecided", said, (rule,), subject, at)
    for rule in result.control.waived_by:
        said = "; ".join(dict.fromkeys(map(_waiver, (row for row in result.waived if row["rule"] == rule))))
        said = said or "Waived."
        yield _observation((result.page_id, name, "waived", rule), f"{rule} waived", said, (rule,), subject, at)


def _observation(
    key: tuple[str, ...], title: str, said: str, of_rules: Sequence[str], subject: str, at: str
) -> dict[str, Any]:
    props = [{"name": "rule", "ns": PROPERTY_NAMESPACE, "value": rule} for rule in of_rules]
    return {
        "uuid": _id("observation", *key),
        "title": title,
        "description": said,
        **({"props": props} if props else {}),
        "methods": ["TEST"],
        "types": ["finding" if of_rules else "control-objective"],
        "origins": [_origin()],
        "subjects": [{"subject-uuid": subject, "type": "component"}],
        "relevant-evidence": [{"href": "../findings.csv", "description": "Every finding with its evidence."}],
        "collected": at,
    }


def _waiver(row: Mapping[str, Any]) -> str:
    waiver = row["waiver"]
    return _line(f"{waiver['who']} until {waiver['until']}: {waiver['why']}")


def _origin() -> dict[str, Any]:
    return {"actors": [{"type": "tool", "actor-uuid": _id(*TOOL_KEY)}]}


def _component(key: Sequence[str], kind: str, title: str, description: str) -> dict[str, Any]:
    state = {"state": "operational"} if kind == "software" else {"state": "other", "remarks": "As its log was copied."}
    return {"uuid": _id(*key), "type": kind, "title": title, "description": description, "status": state}


def _reviewed(names: Sequence[str]) -> dict[str, Any]:
    return {"control-selections": [{"include-controls": [{"control-id": name} for name in names]}]}


def _rule_id(rule: str) -> str:
    return _id("rule", rule)


def _objective(name: str) -> str:
    return f"{name}_obj"


def _title(name: str) -> str:
    return capitalized(name.replace("_", " "))


def _id(*parts: str) -> str:
    return str(uuid.uuid5(OSCAL_NAMESPACE, json.dumps(parts)))


def _line(text: str) -> str:
    """A text from outside as OSCAL takes it: one line that is not empty."""
    return " ".join(neutral(text).split()) or "none"


def _time(time_ms: int | None) -> str | None:
    moment = None if time_ms is None else moment_of(time_ms)
    return None if moment is None or time_ms is None else f"{moment:%Y-%m-%dT%H:%M:%S}.{time_ms % 1000:03d}Z"
