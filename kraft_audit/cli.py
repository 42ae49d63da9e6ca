"""`kraft-audit`: the commands, and how any of them ends.

Only what `--help` needs is imported here; each command imports the rest when it runs.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from typing import Annotated, Final

import typer

from kraft_audit.commands.check import check
from kraft_audit.commands.diverge import diverge
from kraft_audit.commands.doctor import doctor
from kraft_audit.commands.dump import dump
from kraft_audit.commands.ending import EXIT_BUG, EXIT_USAGE, complain, guarded, use_utf8
from kraft_audit.commands.evidence import evidence
from kraft_audit.commands.partitions import partitions
from kraft_audit.commands.planning import recover_plan, whatif
from kraft_audit.commands.quorum import quorum
from kraft_audit.commands.rules import explain, rules
from kraft_audit.commands.run import run
from kraft_audit.commands.state import diff, state
from kraft_audit.commands.tables import tables
from kraft_audit.commands.timeline import timeline
from kraft_audit.commands.voters import voters

WITHOUT_SPARK: Final = "Any log dir, no Spark, no Java"
WITH_SPARK: Final = "Fleets and lakes: pip install 'kraft-audit\\[spark]'"

LAPTOP_COMMANDS: Final = (
    *(check, explain, rules, whatif, recover_plan, evidence),
    *(timeline, quorum, voters, state, diff, partitions, diverge, dump),
)
FAULT_CHARACTERS_MAX: Final = 200

app = typer.Typer(
    name="kraft-audit",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)


def _unwrapped(text: str) -> str:
    """Paragraphs as one line each, for the terminal to break; those that begin with a backspace stay as they are."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(p if p.startswith("\b") else " ".join(p.split()) for p in paragraphs)


def command_name(command: Callable[..., int | None]) -> str:
    """What is typed: `recover-plan` for recover_plan."""
    return command.__name__.replace("_", "-")


def _add(panel: str, *commands: Callable[..., int | None]) -> None:
    for command in commands:
        app.command(command_name(command), rich_help_panel=panel, help=_unwrapped(command.__doc__ or ""))(
            guarded(command)
        )


_add(WITHOUT_SPARK, *LAPTOP_COMMANDS)
_add(WITH_SPARK, run, tables, doctor)


def _version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

        sys.stdout.write(f"kraft-audit {version('kraft-audit')}\n")
        raise typer.Exit


@app.callback()
def kraft_audit(
    version: Annotated[bool, typer.Option("--version", help="Print the version.", callback=_version)] = False,
) -> None:
    """Audit the metadata logs of Apache Kafka's KRaft controllers: what was unsafe, when, and why.

    PATH is a log dir, a node dir, a folder of node dirs, a folder of captures, or an archive (tar, tgz, zip) of any of
    these, here or in an object store. Nothing is ever written there, and no live cluster is asked.

    Exit codes: 0 fine, 1 findings, 2 usage, 3 unreadable input.
    """


def main() -> None:
    """The program: runs a command, and leaves with its exit code."""
    use_utf8()
    arguments = sys.argv[1:]
    if arguments and arguments[0] in {command_name(command) for command in LAPTOP_COMMANDS}:
        sys.meta_path.insert(0, _NoPandas())
    sys.exit(run_command(arguments))


class _NoPandas:
    """pyarrow imports pandas, where there is one, to make its first array: half a second and 50 MB for nothing here."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not used by this command", name=name)


def run_command(arguments: list[str]) -> int:
    """The exit code of a command line; whatever goes wrong is one line on stderr."""
    try:
        code = app(arguments, prog_name="kraft-audit", standalone_mode=False)
    except typer.Abort:
        return 130
    except Exception as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            return EXIT_USAGE
        if not hasattr(error, "format_message"):
            if os.environ.get("KRAFT_AUDIT_TRACEBACK"):
                raise
            what = f"{type(error).__name__}: {error}".splitlines()[0][:FAULT_CHARACTERS_MAX]
            complain(f"a fault of kraft-audit itself: {what} (KRAFT_AUDIT_TRACEBACK=1 tells more)")
            return EXIT_BUG
        complain(error.format_message())
        return EXIT_USAGE
    return code if isinstance(code, int) else 0
