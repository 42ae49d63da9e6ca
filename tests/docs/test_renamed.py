"""The table of old and new names has every rule that was renamed, and leads to rules and commands that are there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from kraft_audit.commands.cli import SUMMARIES
from kraft_audit.rules.registry import RENAMED, rules
from tests.builders.path_commands import typed_commands

ROWS = re.compile(r"^\| (command|rule, waiver) \| (.+?) \| (.+?) \|$", re.MULTILINE)


def test_renamed_rules_are_those_of_the_registry(project_root: Path) -> None:
    renamed = {}
    for kind, old, new in ROWS.findall((project_root / "docs" / "renamed.md").read_text()):
        if kind != "command":
            id_, name = new.split(", ")
            assert rules()[id_].name == name
            renamed |= dict.fromkeys(old.split(", "), id_)
    assert renamed == RENAMED


def test_an_old_command_is_gone_and_the_new_one_is_there(project_root: Path) -> None:
    typed = dict(typed_commands())
    for kind, old, new in ROWS.findall((project_root / "docs" / "renamed.md").read_text()):
        if kind == "command":
            _, gone, *_ = shlex.split(old.strip("`"))
            assert gone not in SUMMARIES
            _, command, *words = shlex.split(new.split("`")[1])
            name = f"{command} {words.pop(0)}" if command == "lake" else command
            options = [word for word in words if word.startswith("--")]
            assert {text for parameter in typed[name].params for text in parameter.opts} >= set(options), new
