"""Every command that takes a path, as lines to run: what holds of all commands is tried on each of them."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import typer

from kraft_audit.commands.cli import IMPORT_PANDAS, SUMMARIES, application

WITHOUT_PATH: Final = {"rules", "simulate"}
STATE_PARTS: Final = ("topics", "configs", "security", "brokers", "features")
DUMPED: Final = ("batches", "captures", "files", "decode_errors")
LINES: Final = (
    *("check PATH --fail-on never", "check PATH --fail-on never --full"),
    *("check --incidents PATH --fail-on never", "whatif PATH --lose 1"),
    *("may-i restart 1 PATH", "upgrade-check PATH --to 4.4", "recover-plan PATH"),
    *("rescue --plan PATH", "rescue --plan PATH --gone 1,2,3", "rescue PATH --gone 1,2,3 --from 1 --out MADE/rescued"),
    *("salvage PATH --plan", "salvage PATH --out MADE/salvaged"),
    *("restore-kit PATH --out MADE/kit", "evidence PATH --out MADE/pack.zip", "evidence --verify MADE/pack.zip"),
    *(f"report PATH --output {form} --out MADE/{form}" for form in ("html", "csv", "parquet", "openmetrics")),
    *("timeline PATH", "timeline PATH --all", "changes PATH", "cost PATH", "quorum PATH", "quorum --voters PATH"),
    *("state PATH", *(f"state PATH --only {part}" for part in STATE_PARTS)),
    *("diff PATH --from 0", "diff PATH --from 0 --only configs", "partitions PATH", "quorum --diverge PATH"),
    "partitions --describe PATH",
    *("dump PATH", "dump PATH --format kafka", *(f"dump PATH --table {table}" for table in DUMPED)),
    "doctor PATH",
)
"""PATH stands for the log dirs, MADE for a new folder. Each command in every form in which it reads or shows otherwise,
but for the formats of `--output`."""

CODES: Final = {"may-i": 1, "rescue": 1, "upgrade-check": 4}
"""Of a cluster of a single controller, whose log names no metadata.version: no, refused, undecided."""


def taking_a_path() -> set[str]:
    """The names of the commands that need no lake and take a path."""
    return SUMMARIES.keys() - IMPORT_PANDAS - WITHOUT_PATH | {"doctor"}


def path_commands(path: Path, made: Path) -> list[list[str]]:
    """All lines, with `made` as the folder that they write to."""
    made.mkdir(exist_ok=True)
    return [[part.replace("PATH", str(path)).replace("MADE", str(made)) for part in line.split()] for line in LINES]


def typed_commands() -> Iterator[tuple[str, Any]]:
    """Every command as it is typed, `lake tables` too, with what reads its words."""
    group: Any = typer.main.get_command(application())
    for name, command in group.commands.items():
        below = getattr(command, "commands", None)
        yield from ((name, command),) if below is None else ((f"{name} {last}", each) for last, each in below.items())


def code_of(line: list[str]) -> int:
    """The exit code of a line, asked of such a cluster: a rescue is refused unless disks are said to be gone."""
    if line[:2] == ["rescue", "--plan"]:
        return 0 if "--gone" in line else 1
    return CODES.get(line[0], 0)


def printed_in(*formats: str) -> list[list[str]]:
    """Each line that prints its answer in one of these formats of `--output`, with that format."""
    commands = dict(typed_commands())
    lines = []
    for parts in map(str.split, LINES):
        kind = typing.get_type_hints(commands[parts[0]].callback).get("output")
        if kind is None or {"--out", "--format", "--describe"} & set(parts):
            continue
        allowed = typing.get_args(kind) or [each.value for each in kind]
        if parts == ["state", "PATH"]:
            allowed = [form for form in allowed if form != "csv"]  # which holds rows of one part
        lines += [[*parts, "--output", form] for form in formats if form in allowed]
    return lines
