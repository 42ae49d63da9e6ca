"""How a command ends: an exit code, at most one line on stderr, never a traceback."""

from __future__ import annotations

import functools
import io
import os
import sys
from collections.abc import Callable
from typing import Any, Final, ParamSpec

from kraft_audit.output import neutral
from kraft_codec.errors import ChoiceError, CodecError, InputError

EXIT_FINDINGS: Final = 1
EXIT_USAGE: Final = 2
EXIT_UNREADABLE: Final = 3
EXIT_BUG: Final = 70  # EX_SOFTWARE of sysexits.h
EXIT_INTERRUPTED: Final = 130
EXIT_PIPE_CLOSED: Final = 141  # what a shell reports of a program that wrote into a closed pipe

OUTPUT: Final = "output"
"""The name of standard output in errors."""

Parameters = ParamSpec("Parameters")


class UsageError(Exception):
    """Arguments that cannot be: one line, exit code 2."""


def guarded(command: Callable[Parameters, int | None]) -> Callable[Parameters, int]:
    """The command with its exit code as result, and every expected error told in one line."""

    @functools.wraps(command)
    def ending(*arguments: Parameters.args, **options: Parameters.kwargs) -> int:
        try:
            code = command(*arguments, **options)
            sys.stdout.flush()
            return code or 0
        except (UsageError, ChoiceError) as problem:
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

    ending.__annotations__ = {**command.__annotations__, "return": int}
    return ending


def complain(text: str) -> None:
    """One line on stderr, harmless whatever it quotes."""
    sys.stderr.write(f"kraft-audit: {neutral(text)}\n")
    sys.stderr.flush()


def remark(text: str) -> None:
    """A line for people beside the results: on stderr, so that results stay what they are."""
    sys.stderr.write(f"{neutral(text)}\n")


class _StandardOutput(io.FileIO):
    """Standard output whose errors say that it is it, not what was read."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as problem:
            raise OSError(problem.errno, problem.strerror, OUTPUT) from None


def use_named_output() -> None:
    """What cannot be written is told apart from what cannot be read."""
    raw = _StandardOutput(sys.stdout.fileno(), "wb", closefd=False)
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(raw), line_buffering=raw.isatty())


def use_utf8() -> None:
    """Results are UTF-8 with LF wherever they go; what no encoding holds is shown as an escape."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", newline="\n")


def has_output() -> bool:
    """Whether there is anywhere to write to; says so where not. Without a stderr the exit code alone tells."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123  # until the program ends
    if sys.stdout is None:
        complain(f"{OUTPUT}: standard output is closed")
        return False
    return True


def _discard_output() -> None:
    """Nobody takes it any more: what is still buffered must not fail again when Python closes stdout."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.close(devnull)
