"""`kraft-audit`: the commands, and how any of them ends.

A command is imported when it is asked for, all of them for `--help`; each imports the rest when it runs.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import inspect
import io
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields, is_dataclass
from importlib import import_module
from types import ModuleType
from typing import Annotated, Any, Final, get_args, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import ArgumentInfo

from kraft_audit.commands.completion import COMPLETE_VARIABLE
from kraft_audit.commands.ending import UsageError, complain
from kraft_audit.commands.help_text import CommandWithHelp
from kraft_audit.commands.refused_arguments import usage_text
from kraft_audit.commands.terminal_options import QUIET_OPTION, WIDE_OPTION, terminal_options
from kraft_audit.text.exit_codes import EXIT_BUG, EXIT_INTERRUPTED, EXIT_PIPE_CLOSED, EXIT_UNREADABLE, EXIT_USAGE
from kraft_audit.text.hidden_pandas import hide_pandas
from kraft_audit.text.status_line import status_line
from kraft_audit.text.terminal import all_columns
from kraft_audit.text.watched_work import erase
from kraft_codec.errors import ChoiceError, CodecError, InputError, MissingPackageError

OUTPUT: Final = "output"
"""The name of standard output in errors."""
FAULT_CHARACTERS_MAX: Final = 200
COLLECT_AFTER: Final = (50_000, 20, 50)
"""Thresholds of Python's garbage collector, which looks for objects that refer to each other in circles.

A command makes many rows and findings, which live until it ends, and hardly any circles. With Python's own thresholds
the collector goes through all of them again and again, which took a tenth of a command's time.
"""
GROUPS: Final[Mapping[str, Mapping[str, str]]] = {
    "Incident": {
        "check": "Say what was unsafe, when, why, and what to do",
        "may-i": "Say whether you may start, wipe or scale in a node",
        "rescue": "Recover a quorum whose majority is lost for good",
        "salvage": "Copy lost records from the disk of a stopped broker",
        "recover-plan": "Say which brokers to start for partitions without a leader",
        "whatif": "Say what would go offline if brokers crashed now",
        "restore-kit": "Print Kafka commands that recreate topics, configs and ACLs",
        "upgrade-check": "Say which nodes block a change of feature levels",
    },
    "Look": {
        "timeline": "Show events in order, with the state of each node",
        "state": "Show topics, brokers and configs as of an offset or time",
        "diff": "Show what changed between two offsets or times",
        "quorum": "Show each replica's log end and vote, and what is committed",
        "partitions": "Show each change of leader, ISR and ELR, with its cause",
        "changes": "Show what admins changed, and who did it",
        "cost": "Show what fills the metadata log",
        "dump": "Print every record, as a table or as kafka-dump-log would",
    },
    "Share": {
        "report": "Write findings as an HTML site, as files or as metrics",
        "evidence": "Write or verify a zip of findings and the records behind them",
    },
    "Fleet": {
        "run": "Read a fleet's log dirs into Delta tables",
        "notify": "Send messages when incidents open, worsen, return or end",
        "lake": "Show, check, maintain, register or export a lake",
    },
    "Rules": {"rules": "List all rules, or explain one"},
    "Lab": {"simulate": "Write the log dirs of a simulated incident"},
    "Machine": {"doctor": "Check this machine, and say how to fix problems"},
}
"""The commands as `--help` groups them, each with its line there."""
LAKE: Final = "lake"
"""The command that has commands of its own."""
LAKE_COMMANDS: Final[Mapping[str, str]] = {
    "lake tables": "Show what a lake's tables hold",
    "lake quality": "Check a lake's tables: keys, nulls, values, freshness",
    "lake maintain": "Join small files, delete old rows and unused files",
    "lake register": "Print the SQL that registers a lake in a catalog",
    "lake export": "Write part of the archived log as a node dir",
}
LAKE_HELP: Final = """Show, check, maintain, register or export a lake, the Delta tables that `run` writes.

\b
Examples:
  kraft-audit lake tables .demo/lake
  kraft-audit lake quality .demo/lake --new
"""
IMPORT_PANDAS: Final = frozenset({"run", "notify", LAKE, "doctor"})
"""The commands that may use Spark or check it; no other command needs pandas."""
SUMMARIES: Final = {name: summary for group in GROUPS.values() for name, summary in group.items()}
COMMANDS: Final = {**{name: summary for name, summary in SUMMARIES.items() if name != LAKE}, **LAKE_COMMANDS}
"""Every command that has a function, as it is typed."""


class CommandGroups(TyperGroup):
    """The program, whose help shows the commands in their groups."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a section for each group."""
        width = max(map(len, SUMMARIES))
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), summary) for name, summary in commands.items()])


def function_of(command: str) -> Callable[..., int | None]:
    """The function of a command: that of its name in the module of its name."""
    function: Callable[..., int | None] = getattr(_module_of(command), _module_name(command))
    return function


def _class_of(command: str) -> type[TyperCommand]:
    """How a command's words are read: as its module says, where it says so."""
    read: type[TyperCommand] = getattr(_module_of(command), "COMMAND_CLASS", CommandWithHelp)
    return read


def _module_of(command: str) -> ModuleType:
    return import_module(f"kraft_audit.commands.{_module_name(command)}")


def _module_name(command: str) -> str:
    return command.split()[-1].replace("-", "_")


@functools.cache
def application(*commands: str) -> typer.Typer:
    """The program with these commands; with all of them where none is named, which takes a tenth of a second."""
    app = _typer(name="kraft-audit", cls=CommandGroups, add_completion=False)
    app.callback()(kraft_audit)
    lake = _typer(name=LAKE, short_help=SUMMARIES[LAKE], help=LAKE_HELP)
    for command in commands or COMMANDS:
        group = lake if command in LAKE_COMMANDS else app
        name = command.split()[-1]
        group.command(name, short_help=COMMANDS[command], cls=_class_of(command))(guarded(function_of(command)))
    if lake.registered_commands:
        app.add_typer(lake)
    return app


def _typer(**settings: Any) -> typer.Typer:
    """A group of commands: the program, or `lake`."""
    return typer.Typer(
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # plain help is there in half the time, and its examples can be copied
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
        **settings,
    )


def guarded(command: Callable[..., int | None]) -> Callable[..., int]:
    """The command as Typer calls it: with its exit code, and every expected error as one line on stderr.

    A parameter whose class is a dataclass stands on the command line as the fields of that class.
    """
    hints = get_type_hints(command, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if isinstance(hint, type) and is_dataclass(hint)}

    @functools.wraps(command)
    def ending(**options: Any) -> int:
        try:
            for name, group in groups.items():
                given = {field.name: options.pop(field.name) for field in fields(group)}
                if isinstance(given.get("path"), list):
                    given["path"] = _one_path(given["path"])
                options[name] = group(**given)
            has_all_columns = all_columns(options.pop(WIDE_OPTION.name, False))
            with has_all_columns, _progress(command, options):
                code = command(**options)
            sys.stdout.flush()
            return code or 0
        except (UsageError, ChoiceError, MissingPackageError) as problem:
            complain(str(problem))
            return EXIT_USAGE
        except (InputError, CodecError) as problem:
            complain(str(problem))
            return EXIT_UNREADABLE
        except BrokenPipeError:
            _discard_output()
            return EXIT_PIPE_CLOSED
        except KeyboardInterrupt:
            _discard_output()
            return EXIT_INTERRUPTED
        except MemoryError:
            complain("out of memory")
            return EXIT_UNREADABLE
        except OSError as problem:
            complain(f"{problem.filename or 'input'}: {problem.strerror or problem}")
            if problem.filename == OUTPUT:
                _discard_output()
            return EXIT_UNREADABLE

    parameters = _parameters(command, hints, groups)
    ending.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    ending.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return ending


def _progress(command: Callable[..., Any], options: dict[str, Any]) -> AbstractContextManager[None]:
    """What shows how far a command is: nothing where its own --quiet, or that of shared options, was given."""
    is_quiet = any(
        getattr(value, QUIET_OPTION.name, name == QUIET_OPTION.name and value) for name, value in options.items()
    )
    if QUIET_OPTION.name not in inspect.signature(command).parameters:
        options.pop(QUIET_OPTION.name, None)
    return nullcontext() if is_quiet else status_line(sys.stderr, f"running {command.__name__.replace('_', '-')}")


def _parameters(
    command: Callable[..., Any], hints: Mapping[str, Any], groups: Mapping[str, type]
) -> list[inspect.Parameter]:
    """A command's own arguments, PATH, its own options, then those that commands share."""
    own = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints.get(name, Any))
        for name, parameter in inspect.signature(command).parameters.items()
        if name not in groups and parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    shared = [parameter for group in groups.values() for parameter in _shared(group)]
    first = [parameter for parameter in own if groups and _is_argument(parameter)]
    rest = [parameter for parameter in own if parameter not in first]
    about_terminal = terminal_options(command, [*own, *shared])
    return [*first, *shared[:1], *rest, *about_terminal, *shared[1:]]


def _one_path(paths: list[str]) -> str:
    """Several PATHs as the one text that stands for them. Raises UsageError."""
    if len(paths) == 1:
        return paths[0]
    from kraft_codec.storage.path_patterns import several_paths

    try:
        return several_paths(paths)
    except ValueError as problem:
        raise UsageError(str(problem)) from None


def _is_argument(parameter: inspect.Parameter) -> bool:
    return any(isinstance(about, ArgumentInfo) for about in getattr(parameter.annotation, "__metadata__", ()))


@functools.cache
def _shared(group: type) -> list[inspect.Parameter]:
    types = get_type_hints(group, include_extras=True)
    if "path" in types:  # a group's PATH may be given several times
        _, *about = get_args(types["path"])
        types["path"] = Annotated[list[str], *about]
    return [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=types[name])
        for name, parameter in inspect.signature(group).parameters.items()
    ]


def _version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

        sys.stdout.write(f"kraft-audit {version('kraft-audit')}\n")
        raise typer.Exit


def kraft_audit(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.", callback=_version)] = False,
) -> None:
    """Audit the metadata logs of Apache Kafka's KRaft controllers: find what was unsafe, when, and why.

    PATH is a log dir, a node dir, the output of kraft-capture, a folder of node dirs or of captures, or an archive
    (.tar, .tar.gz, .tgz or .zip) of log dirs or archives. It may be a URI in an object store. You can give several
    PATHs, and a PATH may contain * and **. kraft-audit never writes to PATH, and never connects to a live cluster.

    LAKE is a folder or URI with the Delta tables that `run` writes. Commands for a lake need more packages:

    \b
      with a lake      pip install 'kraft-audit[lake]'
      `run` on Spark   pip install 'kraft-audit[spark]'

    Exit codes: 0 fine; 1 findings at or above --fail-on, or the answer is no; 2 wrong usage; 3 unreadable input or
    unwritable output; 4 data is missing that would decide the answer.

    \b
    Examples:
      kraft-audit check samples/elr-06-kill-13-last-replica.tgz
      kraft-audit timeline samples/divergence.tgz
    """


def main() -> None:
    """The program: run a command and exit with its code."""
    if not open_outputs():
        sys.exit(EXIT_UNREADABLE)
    arguments = sys.argv[1:]
    if arguments and arguments[0] in SUMMARIES.keys() - IMPORT_PANDAS:
        hide_pandas()
        gc.set_threshold(*COLLECT_AFTER)
    code = run_command(arguments)
    if STORE_FILES in sys.modules:
        _end_at_once(code)
    sys.exit(code)


STORE_FILES: Final = "deltalake.fs"
"""The module of the files of a lake in an object store, which Arrow's threads read through Python."""


def _end_at_once(code: int) -> None:
    """Ends the process without what Python does after the last line, unless standard output cannot be written.

    Python, before 3.14, stops a thread of Arrow that lets go of a Python file then. C++ does not allow that within a
    destructor, and one run in a hundred aborts: "terminate called without an active exception".
    """
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
        atexit._run_exitfuncs()
        os._exit(code)


class _StandardOutput(io.FileIO):
    """Standard output, whose errors name it, so that they are not taken for errors of an input. No status line stands
    where it writes: on a terminal."""

    def write(self, data: Any, /) -> int:
        if self.isatty():
            erase()
        try:
            return super().write(data)
        except OSError as problem:
            raise OSError(problem.errno, problem.strerror, OUTPUT) from None


def open_outputs() -> bool:
    """Make results UTF-8 with LF wherever they go, and an error of writing distinct from an error of reading.

    What no encoding holds is shown as an escape. False where there is no standard output: stderr says so, if there is
    one.
    """
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123  # until the program ends
    if sys.stdout is None:
        complain(f"{OUTPUT}: standard output is closed")
        return False
    raw = _StandardOutput(sys.stdout.fileno(), "wb", closefd=False)
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(raw), line_buffering=raw.isatty())
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", newline="\n")
    return True


def _discard_output() -> None:
    """Drop what is still buffered: its reader has left, and it must not fail again when Python closes stdout."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.close(devnull)


def _asked(arguments: list[str]) -> list[str]:
    """The command of a command line where it comes first, as it nearly always does; of `lake` alone all that it has."""
    if COMPLETE_VARIABLE in os.environ:
        return []
    typed = (arguments[0], " ".join(arguments[:2])) if arguments else ()
    return [name for name in typed if name in COMMANDS] or (list(LAKE_COMMANDS) if LAKE in typed else [])


def run_command(arguments: list[str]) -> int:
    """The exit code of a command line; whatever goes wrong is one line on stderr."""
    if COMPLETE_VARIABLE in os.environ:
        from typer.completion import completion_init  # type: ignore[attr-defined]

        completion_init()
    try:
        code = application(*_asked(arguments))(arguments, prog_name="kraft-audit", standalone_mode=False)
    except typer.Abort:
        return EXIT_INTERRUPTED
    except Exception as error:
        if type(error).__name__ == "NoArgsIsHelpError" and hasattr(error, "ctx"):
            sys.stderr.write(f"{error.ctx.get_help()}\n")
            return EXIT_USAGE
        if not hasattr(error, "format_message"):
            if os.environ.get("KRAFT_AUDIT_TRACEBACK"):
                raise
            what = f"{type(error).__name__}: {error}".splitlines()[0][:FAULT_CHARACTERS_MAX]
            complain(f"a bug in kraft-audit: {what} (set KRAFT_AUDIT_TRACEBACK=1 to see where)")
            return EXIT_BUG
        complain(usage_text(error))
        return EXIT_USAGE
    return code if isinstance(code, int) else 0
