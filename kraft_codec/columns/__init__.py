"""Many batches to columns: the fast path, by compiled kernels. `records.batch` and `records.record` are its oracle.

The steps, each on the result of the step before:

    batches = index_batches(buffer)                  # where each batch stands, what its header says, is its CRC right
    records = index_records(buffer, batches)         # envelope, type, version; every body checked by its schema
    redact(records, redactor)                        # overwrites secrets in place, in records.buffer
    json_text(records)                               # or typed_columns(records, message)

Nothing becomes a Python object per record. All positions count from the buffer's first byte. Damage is data: no
function here raises for bad bytes. Importing this module compiles nothing.
"""

from __future__ import annotations

from kraft_codec.columns.batches import BatchIndex, ChunkStop, index_batches
from kraft_codec.columns.records import RecordIndex, index_records, row_groups
from kraft_codec.columns.secrets import FieldSpans, SecretSpans, redact, secret_spans
from kraft_codec.columns.text import json_text
from kraft_codec.columns.typed import typed_columns, typed_schema

__all__ = [
    "BatchIndex",
    "ChunkStop",
    "FieldSpans",
    "RecordIndex",
    "SecretSpans",
    "index_batches",
    "index_records",
    "json_text",
    "redact",
    "row_groups",
    "secret_spans",
    "typed_columns",
    "typed_schema",
]
