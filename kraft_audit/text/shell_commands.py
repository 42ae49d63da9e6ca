"""Commands for a shell to run, whatever their arguments hold: names that anyone may have chosen, blanks to fill in.

Written for bash, as text in which nothing acts on a terminal: what `shlex.quote` would print as it is, a control
character or a bidirectional mark, becomes `$'…'` with escapes.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from kraft_audit.text.output import neutral

END_OF_FILE: Final = "END"
"""What ends a file within a script; a properties or JSON file has no such line."""
_NAME_CHARACTERS: Final = re.compile(r"[^A-Za-z0-9_]+")
_ESCAPED: Final = re.compile(rb"[^ -&(-\[\]-~]")


class UnwritableError(ValueError):
    """An argument that no shell can pass on."""


@dataclass(frozen=True, slots=True)
class Blank:
    """A value that is not known: a shell variable that whoever runs the command sets first."""

    name: str
    meaning: str


Argument = tuple[str | Blank, ...]
"""The parts of one argument."""


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """A program, its arguments, and the text of the file that it reads as /dev/stdin, where it reads one."""

    program: str
    arguments: tuple[Argument, ...]
    stdin: str | None = None

    @property
    def blanks(self) -> Iterator[Blank]:
        return (part for argument in self.arguments for part in argument if isinstance(part, Blank))

    @property
    def text(self) -> str:
        """The command as bash takes it. Raises UnwritableError."""
        line = " ".join([self.program, *map(_argument_text, self.arguments)])
        return line if self.stdin is None else f"{line} <<'{END_OF_FILE}'\n{self.stdin}{END_OF_FILE}"


def shell_command(program: str, *arguments: str | Blank | Argument, stdin: str | None = None) -> ShellCommand:
    """A command; an argument of several parts is a tuple of them."""
    return ShellCommand(program, tuple(each if isinstance(each, tuple) else (each,) for each in arguments), stdin)


def written_by_echo(name: str, parts: Iterable[str]) -> str:
    """Writes the parts, with a space between them, into a file. A terminal breaks the command between two parts."""
    return f"echo {' '.join(map(shlex.quote, parts))} > {name}"


def json_parts(heading: str, entries: Iterable[object]) -> Iterator[str]:
    """An object of JSON in parts of one entry each: `heading` is its text up to the list of entries, which ends it."""
    texts = list(map(json.dumps, entries))
    yield f"{heading}["
    yield from (f"{text}," for text in texts[:-1])
    yield from texts[-1:]
    yield "]}"


def with_copy(quoted_path: str) -> str:
    """A quoted PATH and COPY beside it, as arguments of a command; several PATHs in one text are `{a,b}`."""
    path = shlex.split(quoted_path)[0] if quoted_path else ""
    if path[:1] == "{" and path[-1:] == "}":
        return shlex.quote(f"{path[:-1]},COPY}}")
    return f"{quoted_path} COPY"


def quoted(text: str) -> str:
    """One word that bash reads as this text. Raises UnwritableError."""
    if "\0" in text:
        raise UnwritableError("it holds the character 0, which ends an argument")
    if neutral(text) == text:
        return shlex.quote(text)
    try:
        octets = text.encode("utf-8")
    except UnicodeEncodeError:
        raise UnwritableError("it is not valid UTF-8") from None
    return "$'" + _ESCAPED.sub(lambda match: f"\\x{match[0][0]:02x}".encode(), octets).decode("ascii") + "'"


def variable_name(prefix: str, name: str, taken: Iterable[str] = ()) -> str:
    """A name for a shell variable, like `PASSWORD_OF_alice`, that is not taken."""
    wanted = f"{prefix}_{_NAME_CHARACTERS.sub('_', name)}"
    variable, number = wanted, 1
    while variable in taken:
        number += 1
        variable = f"{wanted}_{number}"
    return variable


def properties_text(values: Mapping[str, str]) -> str:
    """A file of properties as Java reads it (java.util.Properties.load: ISO 8859-1, with escapes)."""
    return "".join(f"{_property(key, is_key=True)}={_property(value)}\n" for key, value in values.items())


def _property(text: str, *, is_key: bool = False) -> str:
    units = text.encode("utf-16-be", "surrogatepass")
    codes = [int.from_bytes(units[place : place + 2], "big") for place in range(0, len(units), 2)]
    return "".join(_property_character(code, is_first=place == 0 or is_key) for place, code in enumerate(codes))


def _property_character(code: int, *, is_first: bool) -> str:
    character = chr(code)
    if not 0x20 <= code <= 0x7E:
        return f"\\u{code:04x}"
    return f"\\{character}" if character in "\\=:#!" or (character == " " and is_first) else character


def _argument_text(argument: Argument) -> str:
    words = [f'"${part.name}"' if isinstance(part, Blank) else quoted(part) for part in argument if part != ""]
    return "".join(words) or "''"
