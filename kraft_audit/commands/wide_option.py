"""`--wide`: the option of every command that prints tables."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Final, TypeVar

import typer

_Command = TypeVar("_Command", bound=Callable[..., Any])
_MARK: Final = "prints_tables"
WIDE: Final = inspect.Parameter(
    "wide",
    inspect.Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[bool, typer.Option("--wide", help="Show all columns, in several lines a row if need be.")],
)


def prints_tables(command: _Command) -> _Command:
    """Gives a command the option `--wide`, which needs no parameter of its own."""
    setattr(command, _MARK, True)
    return command


def has_wide(command: Callable[..., Any]) -> bool:
    """Whether a command takes `--wide`."""
    return getattr(command, _MARK, False)
