"""What the commands that judge are told: thresholds and waivers, each by a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from kraft_audit.commands.ending import UsageError
from kraft_codec.errors import InputError

if TYPE_CHECKING:
    from kraft_audit.rules.model import Thresholds, Waiver

_Loaded = TypeVar("_Loaded")

SettingsFile = Annotated[
    Path | None,
    typer.Option("--settings", metavar="FILE", show_default=False, help="Thresholds: a conf/rules.yaml."),
]
WaiversFile = Annotated[
    Path | None,
    typer.Option(
        "--waivers", metavar="FILE", show_default=False, help="Accepted findings: a file as conf/waivers.example.yaml."
    ),
]


def thresholds_of(file: Path | None) -> dict[str, Thresholds]:
    """The thresholds that a file sets, by rule; none without one. Raises UsageError, InputError."""
    from kraft_audit.rules.settings import load_rule_settings

    return {} if file is None else _loaded(load_rule_settings, file)


def waivers_of(file: Path | None) -> tuple[Waiver, ...]:
    """The waivers of a file; none without one. Raises UsageError, InputError."""
    from kraft_audit.rules.waivers import load_waivers

    return () if file is None else _loaded(load_waivers, file)


def _loaded(load: Callable[[Path], _Loaded], file: Path) -> _Loaded:
    from kraft_audit.rules.settings import RuleSettingsError

    try:
        return load(file)
    except RuleSettingsError as problem:
        raise UsageError(str(problem)) from None
    except (OSError, UnicodeDecodeError) as problem:
        raise InputError(str(file), getattr(problem, "strerror", None) or "no UTF-8 text") from None
