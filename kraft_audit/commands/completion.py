"""`completion`: what a shell needs to complete commands and options."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import typer

from kraft_audit.text.output import Output

PROGRAM: Final = "kraft-audit"
COMPLETE_VARIABLE: Final = "_KRAFT_AUDIT_COMPLETE"


def completion(
    shell: Annotated[
        Literal["bash", "zsh", "fish"],
        typer.Argument(metavar="SHELL", show_default=False, help="bash, zsh or fish."),
    ],
) -> None:
    """Print the script with which your shell completes commands, options and their values.

    \b
    Examples:
      kraft-audit completion bash > ~/.local/share/bash-completion/completions/kraft-audit
      kraft-audit completion zsh > ~/.zfunc/_kraft-audit
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    script = get_completion_script(prog_name=PROGRAM, complete_var=COMPLETE_VARIABLE, shell=shell)
    Output().line(script)
