"""`doctor --completion`: what a shell needs to complete commands and options."""

from __future__ import annotations

from typing import Final, Literal

PROGRAM: Final = "kraft-audit"
COMPLETE_VARIABLE: Final = "_KRAFT_AUDIT_COMPLETE"
Shell = Literal["bash", "zsh", "fish"]


def completion_script(shell: Shell) -> str:
    """The script with which a shell completes commands, options and their values."""
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    script: str = get_completion_script(prog_name=PROGRAM, complete_var=COMPLETE_VARIABLE, shell=shell)
    return script
