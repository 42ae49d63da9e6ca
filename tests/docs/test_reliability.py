"""The page on reliability names tests that exist, for every class of harm."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

CLASSES = {*(f"C{n}" for n in range(1, 17)), *(f"J{n}" for n in range(1, 10)), *(f"S{n}" for n in range(1, 14))}
ROW = re.compile(r"^\| ([CJS]\d+) \|.*$", re.MULTILINE)
HELD = re.compile(r"`(tests/[\w/]+\.py)`(?:: ((?:`\w+`(?:, )?)+))?")


@pytest.fixture(scope="module")
def page(project_root: Path) -> str:
    return (project_root / "docs" / "reliability.md").read_text(encoding="utf-8")


def test_every_class_has_a_row_and_a_test(page: str) -> None:
    rows = {found[1]: found[0] for found in ROW.finditer(page)}
    assert rows.keys() == CLASSES
    assert all(HELD.search(row) for row in rows.values())


def test_every_test_that_is_named_exists(page: str, project_root: Path) -> None:
    named = list(HELD.finditer(page))
    assert len(named) > len(CLASSES)
    for found in named:
        source = (project_root / found[1]).read_text(encoding="utf-8")
        for name in re.findall(r"\w+", found[2] or ""):
            assert f"def {name}(" in source, (found[1], name)
