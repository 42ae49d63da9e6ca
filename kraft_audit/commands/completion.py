"""`completion`: what a shell needs to complete commands and options."""

from __future__ import annotations

import enum
import os
from typing import Annotated, Final

import typer

from kraft_audit.output import Output

PROGRAM: Final = "kraft-audit"
COMPLETE_VARIABLE: Final = "_KRAFT_AUDIT_COMPLETE"


class Shell(enum.StrEnum):
    """Shells that Typer writes a script for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[Shell, typer.Argument(metavar="SHELL", show_default=False, help="bash, zsh or fish.")],
) -> None:
    """Print the script by which a shell completes commands, options and their values.

    \b
    Examples:
      kraft-audit completion bash > ~/.local/share/bash-completion/completions/kraft-audit
      kraft-audit completion zsh > ~/.zfunc/_kraft-audit
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    lines = Output()
    script = get_completion_script(prog_name=PROGRAM, complete_var=COMPLETE_VARIABLE, shell=shell.value)
    for line in script.splitlines():
        lines.text(line)


def answer_shells() -> None:
    """Let the command line answer a shell that asks for completions, where one does."""
    if COMPLETE_VARIABLE in os.environ:
        from typer.completion import completion_init  # type: ignore[attr-defined]

        completion_init()
