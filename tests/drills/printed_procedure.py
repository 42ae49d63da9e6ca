"""The procedure that `rescue` printed, taken apart again: steps, lines for config files, commands."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

INDENT: Final = " " * 6
STEP: Final = re.compile(r"[0-9]+\. +(.*)")
SETTING: Final = re.compile(r"[a-z.]+=.*")
COMMAND: Final = re.compile(r"(?:[A-Z_]+=\S+ )?(kafka-[a-z-]+|kraft-audit|cat|cp|mv|rm|printf|bash|find) .*")
NOTES: Final = "To know:"
LATER: Final = "Later, back to a majority:"
NOTE: Final = re.compile(r"(?:([0-9]+)\.)? +(.*)")
PROGRAM: Final = re.compile(
    r"\b(?:kafka-[a-z-]+\.sh|kafka-(?:topics|storage|metadata-quorum|acls|configs)|kraft-audit)\b"
)


@dataclass(frozen=True, slots=True)
class PrintedStep:
    """A step: its sentences, its settings by name, its commands in order."""

    text: str
    settings: dict[str, str]
    commands: tuple[str, ...]


def printed_steps(output: str) -> list[PrintedStep]:
    """The steps of what the command printed, each with its notes; what is only a note is a step at the end.

    A command within a sentence, which no reader can paste, fails.
    """
    steps: list[PrintedStep] = []
    printed, _, notes = output.partition(f"\n{NOTES}\n")
    for line in printed.splitlines():
        started = STEP.fullmatch(line)
        if started is not None:
            assert PROGRAM.search(started[1]) is None, f"a command within a sentence: {line}"
            steps.append(PrintedStep(started[1], {}, ()))
        elif steps and line != LATER:
            assert line.startswith(INDENT), line
            step, text = steps[-1], line.removeprefix(INDENT)
            if SETTING.fullmatch(text):
                name, _, value = text.partition("=")
                step.settings[name] = value
            else:
                assert COMMAND.fullmatch(text), f"neither a setting nor a command: {line}"
                steps[-1] = PrintedStep(step.text, step.settings, (*step.commands, text))
    assert steps, output
    for line in notes.splitlines():
        note = NOTE.fullmatch(line)
        assert note is not None, line
        if SETTING.fullmatch(note[2]):
            name, _, value = note[2].partition("=")
            step.settings[name] = value
        elif note[1] is None:
            steps.append(PrintedStep(note[2], {}, ()))
        else:
            step = steps[int(note[1]) - 1]
            steps[int(note[1]) - 1] = PrintedStep(f"{step.text} {note[2]}", step.settings, step.commands)
    return steps
