"""How a command ends: an exit code, at most one line on stderr, never a traceback."""

from __future__ import annotations

import functools
import io
import os
import sys
from collections.abc import Callable
from typing import Final, ParamSpec

from kraft_audit.output import neutral
from kraft_codec.errors import CodecError, InputError

EXIT_FINDINGS: Final = 1
EXIT_USAGE: Final = 2
EXIT_UNREADABLE: Final = 3
EXIT_BUG: Final = 70  # EX_SOFTWARE of sysexits.h
EXIT_INTERRUPTED: Final = 130
EXIT_PIPE_CLOSED: Final = 141  # what a shell reports of a program that wrote into a closed pipe

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
        except UsageError as problem:
            complain(str(problem))
            return EXIT_USAGE
        except (InputError, CodecError) as problem:
            complain(str(problem))
            return EXIT_UNREADABLE
        except BrokenPipeError:
            _discard_output()
            return EXIT_PIPE_CLOSED
        except KeyboardInterrupt:
            return EXIT_INTERRUPTED
        except MemoryError:
            complain("out of memory")
            return EXIT_UNREADABLE
        except OSError as problem:
            complain(f"{problem.filename or 'input'}: {problem.strerror or problem}")
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


def use_utf8() -> None:
    """Results are UTF-8 with LF wherever they go; what no encoding holds is shown as an escape."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", newline="\n")


def _discard_output() -> None:
    """Whoever read is gone: what is still buffered must not fail again when Python closes stdout."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.close(devnull)
