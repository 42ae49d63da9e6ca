"""The requirements of each framework that a control is evidence for: many to many, from one file a framework.

The files lie in the folder `framework_mappings` beside this module. A mapping is ours, no auditor's opinion: a control
that holds is evidence for a requirement, and never the whole of it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, get_args

from kraft_audit.rules.rule_model import CONTROLS, ControlName


@dataclass(frozen=True, slots=True)
class Framework:
    """One framework: the ids of its requirements by control, and why a control has none."""

    name: str
    edition: str
    controls: Mapping[ControlName, tuple[str, ...]]
    not_mapped: Mapping[ControlName, str]


@dataclass(frozen=True, slots=True)
class Requirements:
    """The requirements of one framework that one control is evidence for."""

    framework: str
    ids: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.framework} {', '.join(self.ids)}"


@cache
def frameworks() -> tuple[Framework, ...]:
    """All frameworks, by name. Raises ValueError for a file that names no control of ours, or leaves one out."""
    folder = files("kraft_audit.rules").joinpath("framework_mappings")
    all_frameworks = [
        _framework(file.name, tomllib.loads(file.read_text(encoding="utf-8")))
        for file in folder.iterdir()
        if file.name.endswith(".toml")
    ]
    return tuple(sorted(all_frameworks, key=lambda framework: framework.name))


def requirements(control: ControlName) -> tuple[Requirements, ...]:
    """What a control is evidence for, framework by framework.

    >>> [str(each) for each in requirements("change_management")][-1]
    'SOC 2 CC8.1'
    """
    return tuple(
        Requirements(framework.name, framework.controls[control])
        for framework in frameworks()
        if control in framework.controls
    )


def _framework(file: str, document: Mapping[str, Any]) -> Framework:
    controls, not_mapped = document.get("controls", {}), document.get("not_mapped", {})
    name, edition = document.get("name"), document.get("edition")
    are_tables = isinstance(controls, dict) and isinstance(not_mapped, dict)
    if not (are_tables and isinstance(name, str) and isinstance(edition, str)):
        raise ValueError(f"{file}: expected name, edition, a table controls and perhaps a table not_mapped")
    if {*controls, *not_mapped} != set(CONTROLS) or controls.keys() & not_mapped.keys():
        raise ValueError(f"{file}: expected each of {', '.join(get_args(ControlName))} once, in controls or not_mapped")
    return Framework(name, edition, {control: tuple(ids) for control, ids in controls.items()}, not_mapped)
