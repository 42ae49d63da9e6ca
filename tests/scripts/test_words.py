"""The words that this project no longer uses are found where people read them, and stored values are left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.words import STORED_VALUES, words


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("a.py", '"""What is told."""\n\nnews = 1  # read anew\n', [(1, "told"), (3, "identifier news"), (3, "anew")]),
        ("a.py", "def told_rows(one): ...\n", [(1, "identifier told_rows"), (1, "identifier one")]),
        ("a.py", 'kind = "some rows"\nsomebody = retold\n', []),
        ("a.md", "Fine.\n\nNobody tells.\n", [(3, "Nobody"), (3, "tells")]),
        ("a.html", "one\n{% for one in rows %}{{ row.one }}{{ 'x' }}\n", [(2, "identifier one")]),
        ("a.sql", "SELECT 'burnt' -- burnt\n", [(1, "burnt")]),
        ("a.png", "told", []),
    ],
)
def test_words_to_replace(tmp_path: Path, name: str, text: str, found: list[tuple[int, str]]) -> None:
    (tmp_path / name).write_text(text)
    assert list(words(tmp_path / name)) == found


@pytest.mark.parametrize("value", STORED_VALUES)
def test_a_stored_value_stays_where_it_is_quoted(tmp_path: Path, value: str) -> None:
    (tmp_path / "a.py").write_text(f'ended_by = "{value}"\n')
    assert not list(words(tmp_path / "a.py"))
    (tmp_path / "a.py").write_text(f'"""It was {value} then."""\n')
    assert list(words(tmp_path / "a.py"))
