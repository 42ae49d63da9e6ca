"""Every control, and so every rule, is evidence for requirements of each framework, or its file says why not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kraft_audit.rules.frameworks import _framework, frameworks, requirements
from kraft_audit.rules.registry import rules
from kraft_audit.rules.rule_model import CONTROLS

FORMS = {
    "SOC 2": r"(CC\d|A1|PI1)\.\d",
    "ISO 27001": r"A\.[5-8]\.\d{1,2}",
    "PCI DSS": r"\d{1,2}(\.\d{1,2}){1,2}",
    "NIST 800-53": r"(AC|AU|CM|CP|SC|SI)-\d{1,2}",
    "DORA": r"Art\. \d{1,2}(\(\d\)(\([a-g]\))?)?",
}
EVERY = {control: ["1"] for control in CONTROLS}


def test_each_rule_maps_to_each_framework_or_the_file_says_why_not() -> None:
    assert {framework.name for framework in frameworks()} == FORMS.keys()
    for rule in rules().values():
        named = {each.framework for each in requirements(rule.control)}
        for framework in frameworks():
            assert (framework.name in named) is (rule.control in framework.controls)
            assert framework.name in named or len(framework.not_mapped[rule.control]) > 20


def test_ids_have_the_form_of_their_framework() -> None:
    for framework in frameworks():
        for ids in framework.controls.values():
            assert ids
            assert len(ids) == len(set(ids))
            assert all(re.fullmatch(FORMS[framework.name], id_) for id_ in ids), (framework.name, ids)


def test_the_files_are_where_people_look(project_root: Path) -> None:
    files = {path.stem for path in (project_root / "conf" / "frameworks").glob("*.toml")}
    assert files == {"soc2", "iso27001", "pci_dss", "nist_800_53", "dora"}


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"name": "X", "edition": "1", "controls": {**EVERY, "other": ["1"]}},
        {"name": "X", "edition": "1", "controls": {"access": ["1"]}},
        {"name": "X", "edition": "1", "controls": EVERY, "not_mapped": {"access": "why"}},
        {"name": "X", "edition": "1", "controls": []},
    ],
)
def test_a_file_that_leaves_a_control_out_is_refused(document: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"x\.toml: expected"):
        _framework("x.toml", document)
