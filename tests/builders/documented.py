"""Code that a page of the documentation shows."""

from __future__ import annotations

import re
from pathlib import Path

MULTILINE = re.MULTILINE | re.DOTALL


def titled(page: Path) -> dict[str, str]:
    """The blocks that a reader is to save, by the file name that they carry as their title."""
    return dict(re.findall(r'^```\w+ title="([^"]+)"\n(.*?)^```$', page.read_text(encoding="utf-8"), MULTILINE))


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a language, in the order of the page."""
    return re.findall(rf"^```{language}(?: [^\n]*)?\n(.*?)^```$", page.read_text(encoding="utf-8"), MULTILINE)
