"""What Typer refuses, in one line and in our words: option, value, what was expected, where to look.

Typer checks values by pydantic from 0.29 on, before that by itself; both say what was wrong in words of their own.
"""

from __future__ import annotations

import re
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
_NOT_A_NUMBER: Final = re.compile(r"'(?P<given>[^']*)' is not a valid (?P<kind>int|float)(eger)?( range)?")
_NOT_IN_RANGE: Final = re.compile(
    r"(?P<given>\S+) is not in the range (?:(?P<low>[^<]+)<=)?x(?:<=(?P<high>.+)|>=(?P<least>.+))?"
)


def usage_text(error: Any) -> str:
    """An error of Typer in one line. It need not have any of what is looked for, whichever release raised it."""
    text = _without_range(_without_type(str(error.format_message()).rstrip(".")))
    for refused in _refused(error)[:1]:
        head, _, _ = text.partition(str(refused.get("msg", "")).rstrip("."))
        text = f"{head}{_expectation(refused)}"
    context = getattr(error, "ctx", None)
    return text if context is None else f"{text} (see `{context.command_path} --help`)"


def _without_type(text: str) -> str:
    """The text of a release without pydantic for what is no number."""
    match = _NOT_A_NUMBER.search(text)
    if match is None:
        return text
    expected = EXPECTED["int_parsing" if match["kind"] == "int" else "float_parsing"]
    return f"{text[: match.start()]}{match['given']!r}: expected {expected}"


def _without_range(text: str) -> str:
    """The text of a release without pydantic for a number that is too small or too large."""
    match = _NOT_IN_RANGE.search(text)
    if match is None:
        return text
    given, low, high = match["given"], match["low"] or match["least"], match["high"]
    is_small = high is None or (low is not None and float(given) < float(low))
    return f"{text[: match.start()]}{given!r}: expected {f'{low} or more' if is_small else f'{high} or less'}"


def _refused(error: Any) -> list[dict[str, Any]]:
    errors = getattr(error.__cause__, "errors", None)
    return list(errors()) if callable(errors) else []


def _expectation(refused: Mapping[str, Any]) -> str:
    kind, given = str(refused.get("type")), refused.get("input")
    if kind in EXPECTED:
        return f"{given!r}: expected {EXPECTED[kind].format(**refused.get('ctx', {}))}"
    text = str(refused.get("msg", "")).rstrip(".")
    return text.removeprefix("Value error, ") if kind == VALUE_ERROR else text
