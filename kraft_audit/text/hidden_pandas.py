"""Hides pandas, which pyarrow imports to make its first array: that takes long, and few programs need it."""

from __future__ import annotations

import sys


class _NoPandas:
    """Finds no pandas, whatever is installed."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not used by this command", name=name)


def hide_pandas() -> None:
    """Hide pandas from this process. Call it before pyarrow makes an array."""
    sys.meta_path.insert(0, _NoPandas())
