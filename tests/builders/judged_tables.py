"""A gate that judges some tables alone: each test of one wrong table needs not judge twenty right ones again."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import pytest

from kraft_audit.lake.quality import expectations


def judge_only(monkeypatch: pytest.MonkeyPatch, names: Collection[str]) -> None:
    """Expect nothing of the tables with other names."""
    for name in ("table_expectations", "gold_expectations"):
        every = getattr(expectations, name)

        def chosen(table: Any, *arguments: Any, every: Any = every) -> Iterator[Any]:
            return every(table, *arguments) if table.name in names else iter(())

        monkeypatch.setattr(expectations, name, chosen)
