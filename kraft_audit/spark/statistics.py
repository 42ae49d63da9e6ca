"""Statistics of a Parquet file in the words of the Delta protocol, from the file's own footer: no row is read again."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

# Longer text prunes nothing that its beginning does not. A maximum may lie above every value, never below one.
TEXT_CHARACTERS: Final = 32
STATISTICS_COLUMNS: Final = 32


def file_statistics(metadata: pq.FileMetaData, schema: pa.Schema) -> str:
    """The `stats` of an add action: row count, and minimum, maximum and null count of the first flat columns."""
    minimum: dict[str, Any] = {}
    maximum: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for position, path in _flat_columns(metadata, schema):
        chunks = [metadata.row_group(group).column(position).statistics for group in range(metadata.num_row_groups)]
        if not chunks or any(chunk is None for chunk in chunks):
            continue
        if all(chunk.has_null_count for chunk in chunks):
            nulls[path] = sum(chunk.null_count for chunk in chunks)
        bounded = [chunk for chunk in chunks if chunk.has_min_max]
        all_null = [chunk for chunk in chunks if not chunk.has_min_max and chunk.num_values == 0]
        if bounded and len(bounded) + len(all_null) == len(chunks):
            low, high = min(chunk.min for chunk in bounded), max(chunk.max for chunk in bounded)
            _set_bounds(path, low, high, minimum, maximum)
    return json.dumps(
        {"numRecords": metadata.num_rows, "minValues": minimum, "maxValues": maximum, "nullCount": nulls},
        separators=(",", ":"),
    )


def _flat_columns(metadata: pq.FileMetaData, schema: pa.Schema) -> list[tuple[int, str]]:
    names = {field.name for field in schema if not pa.types.is_nested(field.type)}
    columns = [(position, metadata.schema.column(position).path) for position in range(metadata.num_columns)]
    return [(position, path) for position, path in columns if path in names][:STATISTICS_COLUMNS]


def _set_bounds(path: str, low: Any, high: Any, minimum: dict[str, Any], maximum: dict[str, Any]) -> None:
    """Leave out a bound that JSON cannot hold exactly, as no bound is always right."""
    match low:
        case bool():
            pass
        case int():
            minimum[path], maximum[path] = low, high
        case str():
            minimum[path] = low[:TEXT_CHARACTERS]
            longer = _longer_maximum(high)
            if longer is not None:
                maximum[path] = longer
        case datetime():
            # Milliseconds, as the protocol asks: floor for the minimum, one up for a maximum that was cut.
            minimum[path] = _milliseconds(low, 0)
            maximum[path] = _milliseconds(high, 1 if high.microsecond % 1000 else 0)
        case _:
            pass


def _longer_maximum(text: str) -> str | None:
    """A text that sorts at or after `text` and is short: its beginning and the last character there is."""
    if len(text) <= TEXT_CHARACTERS:
        return text
    if text[TEXT_CHARACTERS] == "\U0010ffff":
        return None
    return text[:TEXT_CHARACTERS] + "\U0010ffff"


def _milliseconds(moment: datetime, add_ms: int) -> str:
    moment = moment.astimezone(UTC)
    milliseconds = moment.microsecond // 1000 + add_ms
    if milliseconds == 1000:
        moment, milliseconds = datetime.fromtimestamp(int(moment.timestamp()) + 1, UTC), 0
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{milliseconds:03d}Z"
