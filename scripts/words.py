"""Finds words that this project no longer uses, in text and in identifiers: `python scripts/words.py [PATH …]`.

Text is comments, docstrings and strings of Python, and every line of documentation, templates, queries and settings.
Data that others wrote (samples, captures, fuzz inputs, locks) is left out, and so are the values that were stored under
an old word. Prints PATH:LINE: WORD, and what to write; exits 1 where a word stands.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
PLAIN_WORDS: Final = {
    "told": "reported",
    "untold": "unreported",
    "tells": "says",
    "anew": "again",
    "nobody": "none",
    "burnt": "an epoch without a leader",
    "held against": "compared with",
    "news": "changes",
}
TEXT_WORDS: Final = re.compile(rf"\b({'|'.join(PLAIN_WORDS)})\b", re.IGNORECASE)
IDENTIFIERS: Final = frozenset({"one", "some", "other", "ways", "news", "kept"})
"""A name says what the thing is: replica, batch, row, changes."""
IDENTIFIERS_OF_PACKAGES: Final = frozenset({"found"})
"""Only in packages and scripts: in a test `found` may be what the check under test has found."""
PACKAGES: Final = ("kraft_audit/", "kraft_codec/", "kraft_engine/", "kraft_capture/", "scripts/")
IDENTIFIER_PARTS: Final = frozenset({"told", "untold", "tells", "anew", "nobody", "burnt"})
STORED_VALUES: Final = {
    "burnt": "leader_epochs.ended_by in every lake, and board queries that compare with it",
    "burnt epochs": "the subject of a finding: the ids of findings are made from it",
    "exposure_changes/untold": "an application id in the transaction log of every lake",
    "nobody-leads": "the name of a capture in a pinned tree of the engine",
}
"""Values that others read or that are on disk, so that they stay, and why; a quoted one is no word to replace."""
TEXT_SUFFIXES: Final = frozenset(
    {".md", ".toml", ".html", ".yaml", ".yml", ".css", ".js", ".json", ".sh", ".cfg", ".in", ".sql"}
)
OTHERS_DATA: Final = (
    "samples/",
    "tests/data/",
    "tests/fuzz/inputs/",
    "requirements.lock",
    "airflow/requirements",
    "LICENSE",
)
_QUOTED_VALUE: Final = re.compile(rf"""(["'`])({"|".join(map(re.escape, STORED_VALUES))})\1""")
_TEMPLATE_CODE: Final = re.compile(r"\{[{%].*?[%}]\}")
_NAME_IN_TEMPLATE: Final = re.compile(r"(?<![.\w])[A-Za-z_]\w*")
SELF: Final = ("scripts/words.py", "tests/scripts/test_words.py")
PROSE_IN_TOKENS: Final = frozenset({tokenize.COMMENT, tokenize.STRING})


def main(arguments: list[str]) -> int:
    """Checks the files that git tracks, below the given paths where some are given."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    count = 0
    for name in sorted(set(listed.stdout.splitlines())):
        if name.startswith(OTHERS_DATA) or name in SELF or not (ROOT / name).is_file():
            continue
        for line, word in words(ROOT / name, identifiers_in(name)):
            print(f"{name}:{line}: {word} ({PLAIN_WORDS.get(word.lower(), 'name what it is')})")
            count += 1
    print(f"{count} words to replace" if count else "no word to replace")
    return 1 if count else 0


def identifiers_in(name: str) -> frozenset[str]:
    """The identifiers to replace in a file of this name, which is relative to the project's folder."""
    return IDENTIFIERS | IDENTIFIERS_OF_PACKAGES if name.startswith(PACKAGES) else IDENTIFIERS


def words(file: Path, identifiers: frozenset[str] = IDENTIFIERS) -> Iterator[tuple[int, str]]:
    """(line, word) of each word to replace in a file; none in a file that is neither Python nor text."""
    if file.suffix == ".py":
        yield from python_words(file.read_text(encoding="utf-8"), identifiers)
    elif file.suffix in TEXT_SUFFIXES or file.name in ("Makefile", "run"):
        text = file.read_text(encoding="utf-8")
        yield from text_words(1, text)
        if file.suffix == ".html":
            yield from template_names(text, identifiers)


def python_words(source: str, identifiers: frozenset[str]) -> Iterator[tuple[int, str]]:
    """Words in comments and strings, identifiers and their parts."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        line = token.start[0]
        if token.type in PROSE_IN_TOKENS:
            yield from text_words(line, token.string)
        elif token.type == tokenize.NAME and (
            token.string in identifiers or IDENTIFIER_PARTS & set(token.string.lower().split("_"))
        ):
            yield line, f"identifier {token.string}"


def text_words(first_line: int, text: str) -> Iterator[tuple[int, str]]:
    """Words in running text, with the line that each stands in."""
    text = _QUOTED_VALUE.sub("", text)
    for match in TEXT_WORDS.finditer(text):
        yield first_line + text.count("\n", 0, match.start()), match.group()


def template_names(text: str, identifiers: frozenset[str]) -> Iterator[tuple[int, str]]:
    """Identifiers in the code of a Jinja template; texts in it are left out."""
    for number, line in enumerate(text.splitlines(), start=1):
        code = re.sub(r'"[^"]*"', "", " ".join(_TEMPLATE_CODE.findall(line)))
        for name in sorted(identifiers.intersection(_NAME_IN_TEMPLATE.findall(code))):
            yield number, f"identifier {name}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
