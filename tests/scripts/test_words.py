"""The words that this project no longer uses are found where people read them, and stored values are left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.words import STORED_VALUES, identifiers_in, words


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


@pytest.mark.parametrize(
    ("folder", "is_replaced"),
    [
        ("kraft_audit", True),
        ("kraft_codec/records", True),
        ("kraft_engine", True),
        ("kraft_capture", True),
        ("scripts", True),
        ("tests/kraft_audit", False),
        ("benchmarks", False),
        ("airflow", False),
        ("notebooks", False),
    ],
)
def test_only_in_packages_and_scripts_found_has_another_name(tmp_path: Path, folder: str, is_replaced: bool) -> None:
    texts = {"a.py": "found = 'found'  # found\n", "a.html": "found\n{{ found }}{{ row.found }}\n"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    lines = [
        line
        for name in texts
        for line, word in words(tmp_path / name, identifiers_in(f"{folder}/{name}"))
        if word == "identifier found"
    ]
    assert lines == ([1, 2] if is_replaced else [])


@pytest.mark.parametrize("value", STORED_VALUES)
def test_a_stored_value_stays_where_it_is_quoted(tmp_path: Path, value: str) -> None:
    (tmp_path / "a.py").write_text(f'ended_by = "{value}"\n')
    assert not list(words(tmp_path / "a.py"))
    (tmp_path / "a.py").write_text(f'"""It was {value} then."""\n')
    assert list(words(tmp_path / "a.py"))
