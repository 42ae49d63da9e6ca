"""Options about the terminal, which a command takes without a parameter of its own: `--wide` and `--quiet`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Final, TypeVar

import typer

from kraft_audit.commands.arguments import Quiet

_Command = TypeVar("_Command", bound=Callable[..., Any])
_MARK: Final = "prints_tables"
WIDE_OPTION: Final = inspect.Parameter(
    "wide",
    inspect.Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[bool, typer.Option("--wide", help="Show all columns, on several lines per row if necessary.")],
)
QUIET_OPTION: Final = inspect.Parameter("quiet", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Quiet)


def prints_tables(command: _Command) -> _Command:
    """Gives a command the option `--wide`."""
    setattr(command, _MARK, True)
    return command


def terminal_options(command: Callable[..., Any], own: Iterable[inspect.Parameter]) -> list[inspect.Parameter]:
    """Those that a command takes beside its own."""
    names = {parameter.name for parameter in own}
    asked = [*([WIDE_OPTION] if getattr(command, _MARK, False) else []), QUIET_OPTION]
    return [parameter for parameter in asked if parameter.name not in names]
