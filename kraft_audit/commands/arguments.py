"""Arguments that several commands share: same concept, same name, same place."""

from __future__ import annotations

from typing import Annotated

import typer

from kraft_audit.commands.ending import UsageError
from kraft_audit.output import Format
from kraft_codec.schemas import Dialect

Path = Annotated[
    str, typer.Argument(metavar="PATH", show_default=False, help="Log dir, node dir, folder or archive of them, URI.")
]
OutputFormat = Annotated[Format, typer.Option("--output", "-o", help="Table for people; the others for programs.")]
Capture = Annotated[
    str | None,
    typer.Option("--capture", metavar="NAME", show_default=False, help="Only the capture (folder) of this name."),
]
DialectOption = Annotated[
    Dialect, typer.Option("--dialect", help="Membership protocol that wrote the log, as its owner knows.")
]


def check_range(from_offset: int | None, to_offset: int | None) -> None:
    """Raises UsageError for offsets between which nothing can be."""
    if from_offset is not None and to_offset is not None and to_offset <= from_offset:
        raise UsageError(f"--to: {to_offset}: expected an offset above --from {from_offset}")


Defaults = Annotated[
    list[str] | None,
    typer.Option(
        "--default",
        metavar="NAME=VALUE",
        show_default=False,
        help="Static broker config that no log holds, as min.insync.replicas=2.",
    ),
]
