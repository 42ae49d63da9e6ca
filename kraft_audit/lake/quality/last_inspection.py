"""The quality gate's memory: what its last inspection judged, saved in the lake as `_quality/held.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.fs as pafs

from kraft_audit.lake.data_files import table_folder, write_octets
from kraft_audit.lake.lake import Lake
from kraft_audit.lake.lake_paths import is_uri
from kraft_audit.tables import LAKE_TABLES
from kraft_audit.tables.bronze import PLANS
from kraft_audit.text.readable import HOUR_MS
from kraft_audit.text.text_files import whole_file

QUALITY_FOLDER: Final = "_quality"
INSPECTION_FILE: Final = "held.json"
WHOLE_AFTER_MS: Final = 24 * HOUR_MS
"""While the number of old rows does not change, judging them once a day is enough: `run` never writes to them."""


@dataclass(frozen=True, slots=True)
class LastInspection:
    """Every critical promise held for the plans up to `held_to_plan`, and for the whole lake at `whole_at_ms`.

    `row_counts` is how many rows of these plans each table had then. If a count differs since, because of
    `lake maintain` or of a writer that is not ours, the whole lake is judged again.
    """

    lake_id: str
    held_to_plan: int = 0
    whole_at_ms: int = 0
    row_counts: Mapping[str, int] = field(default_factory=dict)

    def first_new_plan(self, lake: Lake, closed: int, now_ms: int) -> int:
        """The first plan to judge; 1 for everything."""
        is_known = 0 < self.held_to_plan <= closed and 0 <= now_ms - self.whole_at_ms < WHOLE_AFTER_MS
        is_known = is_known and row_counts(lake, self.held_to_plan) == self.row_counts
        return self.held_to_plan + 1 if is_known else 1

    def after(
        self, first_plan: int, closed: int, now_ms: int, counts: Mapping[str, int], *, is_open: bool
    ) -> LastInspection:
        """The inspection to save once the plans from `first_plan` to `closed` are judged, in tables with `counts` rows.

        Where a promise broke, the same plans are judged next time, or everything, until it holds.
        """
        is_whole = first_plan == 1
        if is_open:
            return LastInspection(self.lake_id, closed, now_ms if is_whole else self.whole_at_ms, counts)
        return LastInspection(self.lake_id) if is_whole else self


def row_counts(lake: Lake, plan: int) -> dict[str, int]:
    """How many rows of the plans up to this one each table has. The total is read from the table's log."""
    counts: dict[str, int] = {}
    for table in LAKE_TABLES.values():
        if "plan" in table.column_names and lake.exists(table.name):
            every = f"SELECT count(*) FROM {table.name}"  # noqa: S608  # our own name
            sql = f"SELECT ({every}) - ({every} WHERE plan > {plan}) AS n"
            counts[table.name] = lake.query(sql, table.name)["n"][0].as_py()
    return counts


def last_inspection(lake: Lake) -> LastInspection:
    """The inspection that was saved last; an empty one if there is none of this lake."""
    nothing = LastInspection(lake.table_id(PLANS.name))
    try:
        with _folder(lake).open_input_file(INSPECTION_FILE) as file:
            saved = json.loads(file.read())
        counts = {str(table): int(count) for table, count in dict(saved["row_counts"]).items()}
        inspection = LastInspection(
            str(saved["lake_id"]), int(saved["held_to_plan"]), int(saved["whole_at_ms"]), counts
        )
    except (OSError, pa.ArrowException, ValueError, TypeError, KeyError):
        return nothing
    return inspection if inspection.lake_id == nothing.lake_id else nothing


def save_inspection(lake: Lake, inspection: LastInspection) -> None:
    """Raises OSError where the lake's folder cannot be written."""
    text = json.dumps(asdict(inspection)).encode()
    if is_uri(lake.uri):
        write_octets(_folder(lake), INSPECTION_FILE, text)
        return
    folder = Path(lake.uri) / QUALITY_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    with whole_file(folder / INSPECTION_FILE) as unfinished:
        unfinished.write_bytes(text)


def _folder(lake: Lake) -> pafs.FileSystem:
    return table_folder(lake.uri, QUALITY_FOLDER)
