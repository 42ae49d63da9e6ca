"""Fenced blocks of the documentation: code to run, files to save, commands and the output that a page shows of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Final

FENCE: Final = re.compile(r"^```(?P<language>\w*)(?P<info>[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
TITLE: Final = re.compile(r' title="([^"]+)"')
PROMPT: Final = "$ "
EXIT_CODE: Final = re.compile(r"\s+# exit (\d+)$")
ELISION: Final = "…"
"""A line of shown output that stands for any number of lines, also none."""


@dataclass(frozen=True, slots=True)
class Example:
    """A command line of a console block, or a whole Python block, with what the page shows of its output."""

    language: str
    source: str
    """What the page has: a line with its prompt, or the block without the comments at its end."""
    code: str
    """What a reader types."""
    exit_code: int = 0
    output: tuple[str, ...] = field(default=())
    """The lines shown; empty where the page shows none."""


def titled(page: Path) -> dict[str, str]:
    """The blocks that a reader is to save, by the file name that they carry as their title."""
    fences = FENCE.finditer(page.read_text(encoding="utf-8"))
    return {title[1]: fence["body"] for fence in fences if (title := TITLE.fullmatch(fence["info"]))}


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a language, in the order of the page."""
    fences = FENCE.finditer(page.read_text(encoding="utf-8"))
    return [fence["body"] for fence in fences if fence["language"] == language]


def languages(page: Path) -> set[str]:
    """The languages of a page's fenced blocks, "" for a block that names none."""
    return {fence["language"] for fence in FENCE.finditer(page.read_text(encoding="utf-8"))}


def examples(text: str) -> list[Example]:
    """The commands and untitled Python blocks of a page, in order: a later one may use what an earlier one made."""
    return [example for fence in FENCE.finditer(text) for example in _examples_of(fence)]


def with_outputs(text: str, outputs: Iterable[tuple[str, ...]]) -> str:
    """The page with these outputs, one for each of its examples; an example that shows none keeps none."""
    remaining = iter(outputs)

    def renewed(fence: re.Match[str]) -> str:
        body = "".join(_as_shown(example, next(remaining)) for example in _examples_of(fence))
        opening = fence[0].partition("\n")[0]
        return f"{opening}\n{body}```" if body else fence[0]

    return FENCE.sub(renewed, text)


def is_shown_as(shown: Iterable[str], printed: Iterable[str]) -> bool:
    """Whether the printed lines are those that a page shows; a line `…` stands for any number of lines."""
    pattern = "".join(r"(?:.*\n)*?" if line == ELISION else re.escape(line) + r"\n" for line in shown)
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in printed)) is not None


def elided(printed: tuple[str, ...], shown: tuple[str, ...]) -> tuple[str, ...]:
    """As much of the printed lines as a page shows: as many before its line `…`, and as many after it.

    Raises:
        ValueError: More than one line `…` is shown: which lines they leave out is for a person to say.
    """
    if ELISION not in shown:
        return printed
    first, *rest = (place for place, line in enumerate(shown) if line == ELISION)
    if rest:
        raise ValueError(f"{len(rest) + 1} lines {ELISION} in one output: write it by hand")
    last_count = len(shown) - first - 1
    if first + last_count >= len(printed):
        return printed
    return (*printed[:first], ELISION, *printed[len(printed) - last_count :])


def _examples_of(fence: re.Match[str]) -> Iterator[Example]:
    lines = fence["body"].splitlines()
    if fence["language"] == "python" and not TITLE.fullmatch(fence["info"]):
        comments = tuple(takewhile(lambda line: line.startswith("# "), reversed(lines)))[::-1]
        code = "\n".join(lines[: len(lines) - len(comments)])
        yield Example("python", code, code, output=tuple(line.removeprefix("# ") for line in comments))
    elif fence["language"] == "console":
        starts = [place for place, line in enumerate(lines) if line.startswith(PROMPT)]
        for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
            line = lines[start]
            expected = EXIT_CODE.search(line)
            code = EXIT_CODE.sub("", line.removeprefix(PROMPT))
            yield Example("console", line, code, int(expected[1]) if expected else 0, tuple(lines[start + 1 : end]))


def _as_shown(example: Example, output: tuple[str, ...]) -> str:
    mark = "# " if example.language == "python" else ""
    lines = (example.source, *(f"{mark}{line}" for line in output if example.output))
    return "".join(f"{line}\n" for line in lines)
