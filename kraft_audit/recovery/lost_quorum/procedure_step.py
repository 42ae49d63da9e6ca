"""One step of a printed procedure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProcedureStep:
    """A step: what to do, the lines that go into a config file, and the commands, as they can be pasted."""

    text: str
    settings: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
