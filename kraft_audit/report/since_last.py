"""What opened and what was resolved since the last report into the same folder.

A report leaves `incidents.json` beside its pages: the incidents of every cluster as that report knew them. The next
report reads it. What cannot be read as such a file counts as no earlier report.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

INCIDENTS_FILE: Final = "incidents.json"
INCIDENTS_FORMAT: Final = "kraft-audit incidents 1"
SHOWN_MAX: Final = 12
EARLIER_BYTES_MAX: Final = 64 << 20

Known = Mapping[str, Any]
"""One incident: cluster_id, page_id, title (of its cluster), incident_id, headline, is_open."""


@dataclass(frozen=True, slots=True)
class SinceLast:
    """The incidents that are open and were not, and those that were open and are not; `made_at_ms` of that report."""

    made_at_ms: int
    opened: tuple[Known, ...]
    resolved: tuple[Known, ...]


def since_last(folder: Path, now: Sequence[Known], clusters: Collection[str]) -> SinceLast | None:
    """Compares with the report that is in the folder; None where there is none.

    `clusters` are those whose logs this report read: what was not captured resolves nothing.
    """
    earlier = _earlier(folder / INCIDENTS_FILE)
    if earlier is None:
        return None
    made_at_ms, before = earlier
    was_open = {_key(row): row for row in before if row["is_open"]}
    is_open = {_key(row): row for row in now if row["is_open"]}
    return SinceLast(
        made_at_ms,
        tuple(row for key, row in is_open.items() if key not in was_open),
        tuple(row for key, row in was_open.items() if key not in is_open and row["cluster_id"] in clusters),
    )


def write_incidents(file: Path, made_at_ms: int, now: Sequence[Known]) -> None:
    """Leaves what the next report compares with."""
    document = {"format": INCIDENTS_FORMAT, "made_at_ms": made_at_ms, "incidents": list(now)}
    file.write_text(json.dumps(document, ensure_ascii=True, indent=0) + "\n", encoding="utf-8")


def _key(row: Known) -> tuple[str, str]:
    return row["cluster_id"], row["incident_id"]


def _earlier(file: Path) -> tuple[int, list[Known]] | None:
    document = left_by_report(file, INCIDENTS_FORMAT)
    made_at_ms, rows = document.get("made_at_ms"), document.get("incidents")
    if isinstance(made_at_ms, int) and isinstance(rows, list) and all(map(_is_known, rows)):
        return made_at_ms, rows
    return None


def left_by_report(file: Path, format_name: str) -> dict[str, Any]:
    """What an earlier report left beside its pages in this format; nothing where it cannot be read as such a file."""
    with suppress(OSError, ValueError, RecursionError):
        if not file.is_symlink() and file.stat().st_size <= EARLIER_BYTES_MAX:
            document = json.loads(file.read_text(encoding="utf-8"))
            if isinstance(document, dict) and document.get("format") == format_name:
                return document
    return {}


def _is_known(row: Any) -> bool:
    texts = ("cluster_id", "page_id", "title", "incident_id", "headline")
    return isinstance(row, dict) and all(isinstance(row.get(name), str) for name in texts) and "is_open" in row
