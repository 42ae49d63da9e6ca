"""Arguments that the command line's library refuses, in our words: what was given, what was expected, where to look."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

EXPECTED: Final[Mapping[str, str]] = {
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number",
    "int_from_float": "a whole number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "greater_than_equal": "{ge:.15g} or more",
    "less_than_equal": "{le:.15g} or less",
}
"""What an option takes, by the kind of error in which pydantic, below Typer, says that it got something else."""
VALUE_ERROR: Final = "value_error"


def usage_text(error: Any) -> str:
    """An error of Typer in one line. It need not have any of what is looked for, whichever release raised it."""
    told = str(error.format_message()).rstrip(".")
    for refused in _refused(error)[:1]:
        head, _, _ = told.partition(str(refused.get("msg", "")).rstrip("."))
        told = f"{head}{_expectation(refused)}"
    context = getattr(error, "ctx", None)
    return told if context is None else f"{told} (see `{context.command_path} --help`)"


def _refused(error: Any) -> list[dict[str, Any]]:
    errors = getattr(error.__cause__, "errors", None)
    return list(errors()) if callable(errors) else []


def _expectation(refused: Mapping[str, Any]) -> str:
    kind, given = str(refused.get("type")), refused.get("input")
    if kind in EXPECTED:
        return f"{given!r}: expected {EXPECTED[kind].format(**refused.get('ctx', {}))}"
    text = str(refused.get("msg", "")).rstrip(".")
    return text.removeprefix("Value error, ") if kind == VALUE_ERROR else text
