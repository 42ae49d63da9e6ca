"""The page about terminals names every order in which a table drops columns."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import kraft_audit.commands
from kraft_audit.text.output import ShownColumn

PAGE = Path(__file__).resolve().parents[2] / "docs" / "terminal.md"


def tables() -> Iterator[tuple[ShownColumn, ...]]:
    """The columns of every table that a command prints."""
    for module in pkgutil.iter_modules(kraft_audit.commands.__path__):
        for value in vars(import_module(f"kraft_audit.commands.{module.name}")).values():
            for columns in value.values() if isinstance(value, Mapping) else [value]:
                if _are_columns(columns):
                    yield columns


def _are_columns(value: Any) -> bool:
    return isinstance(value, tuple) and bool(value) and all(isinstance(part, ShownColumn) for part in value)


def test_the_page_names_every_order() -> None:
    rows = [line.split("|")[2].strip() for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    orders = []
    for columns in tables():
        dropped = [column for column in columns if column.drop_rank is not None]
        if dropped:
            orders.append(
                ", ".join(column.title for column in sorted(dropped, key=lambda column: column.drop_rank or 0))
            )
    assert sorted(orders) == sorted(rows[: len(orders)])
