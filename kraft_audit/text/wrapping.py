"""Sentences in the lines of a terminal: the one place that breaks them.

No word is cut: one that is longer than a line, such as a path, stands alone. A line goes on below its own text, not
below its label. A command that ends a sentence and does not fit behind it has a line of its own; one that is longer
than a line goes on after a backslash, so that it can be pasted as it stands.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Final

_LABEL: Final = re.compile(r" *(?:\S{1,12} {2,}(?=\S))?")
"""What a line may begin with: its indent, and a word with room after it, as `NEXT        ` or `01:34:04  `."""
_PARTS: Final = re.compile(r"( {3,})")
"""Between the parts of a line. One that does not fit behind the others begins a line."""
_PROGRAM: Final = r"(?:kraft-audit [a-z]|kafka-[a-z-]+(?:\.sh)? .*-|echo '.*' > \S+; k)"
_COMMAND: Final = re.compile(rf"(?:^ *|: +| {{3,}})(?={_PROGRAM})")
_NEXT_PROGRAM: Final = re.compile(r"(?:kraft-audit|kafka-[a-z-]+(?:\.sh)?)$")
"""What begins the second of two commands in one line."""
_SHELL_WORD: Final = re.compile(r"""(?:[^\s'"]|'[^']*'|"[^"]*")+""")
CONTINUED: Final = " \\"
DEEPER: Final = 4
"""How much further a command's later lines are set in."""


def text_width(text: str) -> int:
    """The columns that a terminal gives a text: two for a wide character, none for one that combines."""
    return len(text) if text.isascii() else sum(map(_character_width, text))


def _character_width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def wrapped(text: str, room: int, hanging: int | None = None) -> list[str]:
    """A line as lines of at most `room` columns, the later ones set in by `hanging`; by default below its text."""
    if text_width(text) <= room:
        return [text]
    if hanging is None:
        label = _LABEL.match(text)
        start = label.end() if label else 0
        hanging = start if text[:start].strip() else start + 2
    hanging = min(hanging, room // 2)
    sentence, command = _parted(text)
    if command is None:
        return list(_filled(text, room, hanging))
    head = sentence.ljust(hanging)
    if text_width(head) > hanging:
        return [*_filled(sentence, room, hanging), *_continued(" " * hanging, command, room)]
    return list(_continued(head, command, room))


def wrapped_script(line: str, room: int) -> list[str]:
    """A line of a shell script as lines that a shell takes for it: comments stay comments, commands go on.

    What a command reads from a here-document stays as it is.
    """
    line, *document = line.split("\n")
    if document:
        return [*wrapped_script(line, room), *document]
    if text_width(line) <= room:
        return [line]
    if line.startswith("#"):
        start = len(line) - len(line.lstrip("# "))
        mark = "#".ljust(min(start + 2, room // 2))
        return [(mark if number else "") + part.strip() for number, part in enumerate(wrapped(line, room, len(mark)))]
    is_whole = " ".join(_SHELL_WORD.findall(line)) == line
    return list(_continued("", line, room)) if is_whole else [line]


def ends_with_command(text: str) -> bool:
    """Whether a text is a command, or a sentence with a command at its end."""
    return _parted(text)[1] is not None


def _filled(text: str, room: int, hanging: int) -> Iterator[str]:
    line, indent = "", " " * hanging
    pieces = _PARTS.split(text)
    for gap, part in zip(["", *pieces[1::2]], pieces[::2], strict=True):
        ends = text_width(line) + len(gap)
        if line.strip() and ends > hanging and ends + text_width(part) > room:
            yield line
            line, gap = indent, ""  # the gap is where the line was broken
        for number, (space, word) in enumerate(re.findall(r"( *)(\S+)", part)):
            before = space if number else gap + space
            if line.strip() and text_width(line) + len(before) + text_width(word) > room:
                yield line
                line, before = indent, ""
            line += before + word
    yield line


def _parted(text: str) -> tuple[str, str | None]:
    """A sentence and the command that ends it; None where there is none."""
    for start in _COMMAND.finditer(text):
        command = text[start.end() :]
        words = _SHELL_WORD.findall(command)
        if " ".join(words) == command and not any(map(_ends_sentence, words, [*words[1:], ""])):
            return text[: start.end()].rstrip(), command
    return text, None


def _ends_sentence(word: str, following: str) -> bool:
    """Whether a word of what may be a command is followed by more of a sentence: `.` alone is a folder."""
    if word[-1] == ";" and _NEXT_PROGRAM.match(following):
        return False
    return word[-1] in ".,;:" and (word != "." or bool(following))


def _continued(head: str, command: str, room: int) -> Iterator[str]:
    """A command after `head`, in several lines where it is longer than one; an option stays with its value.

    A second command after a semicolon begins a line.
    """
    if text_width(head) + text_width(command) <= room:
        yield head + command
        return
    indent = " " * (text_width(head) + DEEPER)
    line = head
    for number, part in enumerate(_command_parts(command)):
        is_second = line.endswith(";") and _NEXT_PROGRAM.match(part)
        if number and (is_second or text_width(line) + 1 + text_width(part) + len(CONTINUED) > room):
            yield line + CONTINUED
            line = indent + part
        else:
            line += f" {part}" if number else part
    yield line


def _command_parts(command: str) -> Iterator[str]:
    """The words of a command, an option together with the word after it."""
    option = ""
    for word in _SHELL_WORD.findall(command):
        if option and not word.startswith("-"):
            yield f"{option} {word}"
            option = ""
            continue
        if option:
            yield option
        option = word if word.startswith("-") and "=" not in word else ""
        if not option:
            yield word
    if option:
        yield option
