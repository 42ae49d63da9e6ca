"""The command line as a parser: all that is made of the arguments before a command reads or writes anything."""

from __future__ import annotations

import contextlib
import functools
import io
import os
from collections.abc import Callable, Mapping
from typing import Any, Final
from unittest import mock

import typer

from kraft_audit.commands import cli, dump
from kraft_audit.commands.arguments import place_of, rule_id
from kraft_audit.commands.ending import UsageError
from kraft_audit.commands.results import static_defaults
from kraft_audit.commands.whatif import broker_ids
from kraft_audit.text.exit_codes import EXIT_BUG

SEEDS: Final = tuple(
    "\0".join(arguments).encode()
    for arguments in (
        ("check", "logs", "--fail-on", "high", "--rule", "KB001", "-o", "json"),
        ("state", "logs", "--at", "2026-11-21T03:00:00Z", "--default", "min.insync.replicas=2"),
        ("diff", "logs", "--from", "7", "--to", "committed"),
        ("whatif", "logs", "--lose", "11,12", "--lose", "13", "--default", "controller.quorum.voters=1@a:9093"),
        ("dump", "logs", "--type", "PARTITION_RECORD", "--node", "3", "--output=csv", "--capture", "c"),
        ("simulate", "random", "--seed", "7", "--out", "there"),
        ("lake", "maintain", "lake"),
        ("--version",),
        ("timeline", "--help"),
    )
)


def _rules(given: str | list[str] | None) -> object:
    return [rule_id(text) for text in ([given] if isinstance(given, str) else given or [])]


VALUES: Final[Mapping[str, Callable[[Any], object]]] = {
    "at": functools.partial(place_of, "--at"),
    "from_place": functools.partial(place_of, "--from"),
    "to_place": functools.partial(place_of, "--to"),
    "default": static_defaults,
    "lose": lambda given: broker_ids(given or []),
    "rule": _rules,
}
"""By parameter: what its command makes of it first."""


def parse_command_line(data: bytes) -> None:
    """Raises UsageError where the command would not begin, AssertionError where that were a fault of the program."""
    arguments = data.decode(errors="surrogateescape").split("\0")
    said = io.StringIO()
    program = _without_commands()
    with (
        mock.patch.object(cli, "application", return_value=program),
        mock.patch.dict(os.environ, {"KRAFT_AUDIT_TRACEBACK": "1"}),
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(said),
    ):
        code = cli.run_command(arguments)
    assert code != EXIT_BUG, said.getvalue()
    if code:
        raise UsageError(said.getvalue())


@functools.cache
def _without_commands() -> Any:
    """The program's commands, each of which looks at its values and ends."""
    program: Any = typer.main.get_command(cli.application())
    for command in (*program.commands.values(), *program.commands[cli.LAKE].commands.values()):
        command.callback = _look if command.name != cli.LAKE else None
    return program


@cli.guarded
def _look(**given: Any) -> None:
    for name, value in given.items():
        if name in VALUES:
            VALUES[name](value)
    for name in given.get("record_type") or ():
        dump.type_name(name, given.get("dialect"))
