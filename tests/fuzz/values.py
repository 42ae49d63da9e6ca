"""What the records of mutated batches hold: the decoder's text and typed columns beside the reference's values.

Of every row that is asked about: the JSON text, null where the record alone is undecodable, and each typed column of
its record type, to the last bit of a float.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kraft_codec import columns
from kraft_codec.records.batch import BatchHeader
from kraft_codec.records.record import DecodedRecord
from kraft_codec.schemas import Message
from tests.builders.reference_columns import expected_columns, expected_json


@dataclass(frozen=True, slots=True)
class Expected:
    """A row of the index, and what the reference read there."""

    row: int
    record: DecodedRecord
    header: BatchHeader
    copy: bytes


@dataclass(frozen=True, slots=True)
class Values:
    """All that the decoder says of the values of some batches."""

    text: pa.StringArray
    typed: dict[int, pa.RecordBatch]
    """By the place of the record type in `RecordIndex.messages`."""


def values_of(found: columns.RecordIndex) -> Values:
    """Text and typed columns of every row, each sound as Arrow sees it."""
    text = columns.json_text(found)
    text.validate(full=True)
    typed = {number: columns.typed_columns(found, message) for number, message in enumerate(found.messages())}
    for table in typed.values():
        table.validate(full=True)
    return Values(text, typed)


def values_as_reference(found: columns.RecordIndex, values: Values, expected: Sequence[Expected]) -> int:
    """How many rows were decoded; AssertionError with the copy's bytes where a text or a column differs."""
    texts = values.text.take(pa.array([decoded.row for decoded in expected], pa.int64())).to_pylist()
    for text, sample in zip(texts, expected, strict=True):
        assert text == expected_json(sample.record), sample.copy.hex()
    decoded = 0
    for number, message in enumerate(found.messages()):
        chosen = [decoded for decoded in expected if decoded.record.message is message]
        if chosen:
            rows = np.searchsorted(found.rows_of(message), [decoded.row for decoded in chosen])
            _typed_as_reference(message, _chosen(values.typed[number], rows), chosen)
        decoded += len(chosen)
    assert decoded == sum(decoded.record.undecodable is None for decoded in expected)
    return decoded


def _typed_as_reference(message: Message, found: pa.RecordBatch, expected: Sequence[Expected]) -> None:
    wanted = [expected_columns(decoded.record, decoded.header) for decoded in expected]
    if same_bits(found, pa.RecordBatch.from_pylist(wanted, schema=columns.typed_schema(message))):
        return
    for row, (decoded, values) in enumerate(zip(expected, wanted, strict=True)):
        alone = pa.RecordBatch.from_pylist([values], schema=found.schema)
        assert same_bits(found.slice(row, 1), alone), (found.slice(row, 1).to_pylist(), values, decoded.copy.hex())


def same_values(first: Values, second: Values, by_copy: npt.NDArray[np.int64], kinds: npt.NDArray[np.int16]) -> bool:
    """Whether the rows of `second`, in the order `by_copy`, have the values of `first`; `kinds` are its rows' types."""
    if not first.text.equals(second.text.take(pa.array(by_copy))):
        return False
    known = [kind for kind in np.unique(kinds).tolist() if kind >= 0]
    for number, kind in enumerate(known):
        place = np.cumsum(kinds == kind) - 1
        rows = place[by_copy][kinds[by_copy] == kind]
        again = _chosen(second.typed[number], rows)
        if not same_bits(first.typed[number], again):
            return False
    return True


def _chosen(table: pa.RecordBatch, rows: npt.NDArray[np.int64]) -> pa.RecordBatch:
    return table.take(pa.array(rows, pa.int64()))


def same_bits(first: pa.RecordBatch, second: pa.RecordBatch) -> bool:
    """Equality in which -0.0 differs from 0.0 and a NaN equals itself."""
    return first.schema == second.schema and all(
        _bits(column).equals(second) for column, second in zip(first.columns, map(_bits, second.columns), strict=True)
    )


def _bits(column: pa.Array) -> pa.Array:
    return column.view(pa.int64()) if pa.types.is_float64(column.type) else column
