"""`doctor`: whether this machine can do what is asked of it, each answer with its remedy."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from kraft_audit.commands.arguments import OutputFormat
from kraft_audit.output import Column, Format, Output

COLUMNS: Final = (
    Column("status", ""),
    Column("what", "what"),
    Column("found", "found", is_wide=True),
    Column("remedy", "remedy", is_wide=True),
)


def doctor(
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PATH]...", show_default=False, help="Log dirs, archives or a lake to look at, too."),
    ] = None,
    output: OutputFormat = Format.TABLE,
) -> int:
    """Check Java, jars, packages, the kernel cache, disk and permissions, and say how to mend what is wrong.

    Exit code 1 where something fails; what only Spark needs is a warning where its packages are not installed.

    \b
    Examples:
      kraft-audit doctor
      kraft-audit doctor samples/elr-06-kill-13-last-replica.tgz --output json
    """
    from kraft_audit.commands.doctor_checks import Status, all_checks

    checks = all_checks(paths or [])
    Output(output).rows(
        [{"status": c.status.value, "what": c.what, "found": c.found, "remedy": c.remedy} for c in checks], COLUMNS
    )
    return 1 if any(check.status is Status.FAIL for check in checks) else 0
