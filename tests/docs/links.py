"""Relative links of Markdown pages, and the anchors that they may name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tests.builders.documented import FENCE

LINK: Final = re.compile(r"\[[^\]]*\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")
HEADING: Final = re.compile(r"^#+ .+$", re.MULTILINE)


def dead_links(page: Path) -> list[str]:
    """The relative links of a page that lead to no file, or to no heading of one."""
    found = []
    for path, anchor in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            found.append(f"{path}#{anchor}" if anchor else path)
    return found


def anchors(page: Path) -> set[str]:
    """What links call the headings of a page."""
    return {anchor_of(line) for line in HEADING.findall(FENCE.sub("", page.read_text(encoding="utf-8")))}


def anchor_of(line: str) -> str:
    """What links call the heading of this line; "" if the line is no heading."""
    if not HEADING.fullmatch(line):
        return ""
    return re.sub(r"[^\w\- ]", "", line.lstrip("#").strip().lower()).replace(" ", "-")
