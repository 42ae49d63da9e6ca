"""Evidence that is made when it is asked for is evidence."""

from __future__ import annotations

from kraft_audit.rules.rule_model import DeferredEvidence, Evidence


def test_evidence_that_is_reported_late_is_evidence() -> None:
    calls: list[int] = []

    def make(number: int) -> tuple[Evidence, ...]:
        calls.append(number)
        return (Evidence("a"), Evidence("b"))

    late = DeferredEvidence(make, 7)
    assert calls == []
    assert (len(late), late[0], late[1:]) == (2, Evidence("a"), (Evidence("b"),))
    assert late == (Evidence("a"), Evidence("b"))
    assert late != (Evidence("a"),)
    assert late != 3
    assert hash(late) == hash(tuple(late))
    assert calls == [7], "once"
