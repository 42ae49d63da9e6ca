"""What the gate knows of its own last looks at a lake, so that an hourly one need not look at everything.

Kept beside the Data Docs, `_quality/held.json` in the lake. Where it is not there, is of another lake or cannot be
read, nothing is known, and everything is looked at.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.fs as pafs

from kraft_audit.settings import is_uri
from kraft_audit.spark.data_files import table_folder
from kraft_audit.spark.lake import Lake
from kraft_audit.spark.ledger import HOUR_MS
from kraft_audit.spark.tables import LAKE_TABLES
from kraft_audit.whole_file import whole_file
from kraft_codec.tables import PLANS

QUALITY_FOLDER: Final = "_quality"
FILE_NAME: Final = "held.json"
WHOLE_AFTER_MS: Final = 24 * HOUR_MS
"""Where old rows are as many as they were, to look at them once a day is enough: `run` never writes to them."""


@dataclass(frozen=True, slots=True)
class LastLooks:
    """Every critical promise held for the plans up to `held_to_plan`; for all of the lake, old rows too, at a time.

    `row_counts` is how many rows of these plans each table had then: whoever adds to them or takes of them since, such
    as `maintain` or a writer that is not ours, has all of the lake looked at.
    """

    lake_id: str
    held_to_plan: int = 0
    whole_at_ms: int = 0
    row_counts: Mapping[str, int] = field(default_factory=dict)

    def first_new_plan(self, lake: Lake, closed: int, now_ms: int) -> int:
        """The first plan to look at; 1 where everything is to be."""
        is_known = 0 < self.held_to_plan <= closed and 0 <= now_ms - self.whole_at_ms < WHOLE_AFTER_MS
        is_known = is_known and row_counts(lake, self.held_to_plan) == self.row_counts
        return self.held_to_plan + 1 if is_known else 1

    def after(
        self, first_plan: int, closed: int, now_ms: int, counts: Mapping[str, int], *, is_open: bool
    ) -> LastLooks:
        """What is known after a look at the plans from `first_plan` to `closed`, which had `counts` rows before it.

        What was found broken stays among what is new, or everything is looked at again, until it holds.
        """
        is_whole = first_plan == 1
        if is_open:
            return LastLooks(self.lake_id, closed, now_ms if is_whole else self.whole_at_ms, counts)
        return LastLooks(self.lake_id) if is_whole else self


def row_counts(lake: Lake, plan: int) -> dict[str, int]:
    """How many rows each table has of the plans up to this one. What a table has in all is read from its log."""
    counts: dict[str, int] = {}
    for table in LAKE_TABLES.values():
        if "plan" in table.column_names and lake.exists(table.name):
            every = f"SELECT count(*) FROM {table.name}"  # noqa: S608  # our own name
            sql = f"SELECT ({every}) - ({every} WHERE plan > {plan}) AS n"
            counts[table.name] = lake.query(sql, table.name)["n"][0].as_py()
    return counts


def last_looks(lake: Lake) -> LastLooks:
    """What earlier looks left."""
    nothing = LastLooks(lake.table_id(PLANS.name))
    try:
        with _folder(lake).open_input_file(FILE_NAME) as file:
            told = json.loads(file.read())
        counts = {str(table): int(count) for table, count in dict(told["row_counts"]).items()}
        found = LastLooks(str(told["lake_id"]), int(told["held_to_plan"]), int(told["whole_at_ms"]), counts)
    except (OSError, pa.ArrowException, ValueError, TypeError, KeyError):
        return nothing
    return found if found.lake_id == nothing.lake_id else nothing


def remember(lake: Lake, looks: LastLooks) -> None:
    """Raises OSError where the lake's folder cannot be written."""
    text = json.dumps(asdict(looks)).encode()
    if is_uri(lake.uri):
        with _folder(lake).open_output_stream(FILE_NAME) as sink:
            sink.write(text)
        return
    folder = Path(lake.uri) / QUALITY_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    with whole_file(folder / FILE_NAME) as unfinished:
        unfinished.write_bytes(text)


def _folder(lake: Lake) -> pafs.FileSystem:
    return table_folder(lake.uri, QUALITY_FOLDER)
