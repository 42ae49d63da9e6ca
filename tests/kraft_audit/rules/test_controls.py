"""Every rule is evidence for exactly one control."""

from kraft_audit.rules.controls import _RULES, CONTROL_OF, CONTROLS
from kraft_audit.rules.registry import rules


def test_every_rule_has_one_control() -> None:
    assert CONTROL_OF.keys() == rules().keys()
    assert sum(map(len, _RULES.values())) == len(CONTROL_OF)
    assert _RULES.keys() == CONTROLS.keys()
