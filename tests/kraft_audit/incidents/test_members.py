"""An incident says of findings that it does not hold what it says of those that it holds."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kraft_audit.incidents.folding import Folding, fold_into
from kraft_audit.incidents.incident import Incident, IncidentEvent, IncidentKind, incident_row
from kraft_audit.rules.registry import rules
from kraft_audit.rules.rule_model import Case, Finding, Severity, Waiver, finding_of

WAIVER = Waiver("KP001", "c", "t-0", "ann", "known", "2030-01-01")
INCIDENTS = [
    Incident(
        *(IncidentKind.BROKER_LOSS, "1", "Broker 1 was lost", 10, 100, to_offset, 200),
        is_open=is_open,
        events=(IncidentEvent(100, "broker 1 fenced"), IncidentEvent(None, "later")),
    )
    for to_offset, is_open in ((20, False), (None, True))
]


@st.composite
def findings(draw: st.DrawFn) -> Finding:
    rule = rules()[draw(st.sampled_from(["KP001", "KP002", "KP005", "KP020"]))]
    begin, ends = draw(st.integers(8, 24)), draw(st.booleans())
    case = Case(
        *(f"t-{draw(st.integers(0, 3))}", "a summary", begin, begin + 1 if ends else None),
        draw(st.sampled_from([100, 101, None])),
        draw(st.sampled_from([150, 5_000_000, None])) if ends else None,
        severity=draw(st.sampled_from([*Severity, None])),
    )
    finding = finding_of(rule, "c", case)
    # Ids that end in zeros, as one in 65,536 does.
    id_ = draw(st.sampled_from([finding.finding_id, finding.finding_id[:28] + "0000", "0" * 32]))
    return finding._replace(finding_id=id_, waiver=draw(st.sampled_from([None, None, WAIVER])))


@given(st.lists(findings(), max_size=30), st.sampled_from(INCIDENTS))
def test_a_row_of_findings_that_are_gone_is_that_of_findings_that_are_held(
    found: list[Finding], incident: Incident
) -> None:
    folding = Folding([incident], keeps_ids=True)
    for finding in found:
        folding.add(finding)
    (row,) = folding.rows("c")
    # What was lost belongs to it by time: the record that elects follows the one that ends an absence.
    explained = tuple(
        finding
        for finding in found
        if 10 <= (finding.from_offset or 0) <= (99 if finding.rule == "KP020" else incident.to_offset or 99)
    )
    (held,) = fold_into([incident], found).incidents
    assert [each._replace(incident_id=None) for each in held.findings] == list(explained)
    ids = row.pop("finding_ids")
    assert isinstance(ids, pa.Array)
    assert ids.to_pylist() == sorted({finding.finding_id for finding in explained})
    expected = incident_row("c", held)
    assert expected.pop("finding_ids") == ids.to_pylist()
    assert row == expected
    counted = [f for f in explained if f.waiver is None and not (incident.is_open and f.is_over)]
    assert row["severity"] == max((f.severity for f in counted), key=lambda each: each.rank, default=Severity.LOW)
    for rule, text in (
        ("KP001", "one replica that can lead"),
        ("KP002", "without a leader"),
        ("KP005", "below min ISR"),
    ):
        subjects = {finding.subject for finding in explained if finding.rule == rule}
        (effect,) = [each for each in row["effects"] if text in each] or [None]
        assert (effect is None) == (not subjects)
        assert effect is None or effect.startswith(f"{len(subjects)} partition")


def test_a_restart_without_findings_is_not_shown() -> None:
    quiet = replace(INCIDENTS[0], kind=IncidentKind.BROKER_RESTART)
    assert Folding([quiet]).rows("c") == []
    assert len(Folding([INCIDENTS[0]]).rows("c")) == 1
