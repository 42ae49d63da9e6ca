"""Records as JSON text in a column, just as kafka-dump-log prints them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kraft_codec.columns.buffers import Bytes, address, addresses, run_kernel
from kraft_codec.columns.records import RecordIndex
from kraft_codec.errors import CodecError, Reason
from kraft_codec.kernels.codes import OK, SCRATCH_BYTES
from kraft_codec.kernels.text_programs import text_constants, text_programs
from kraft_codec.text.java_text import double_text

_SPARE_BYTES: Final = 256
_FIRST_GUESS: Final = 4
"""Expected bytes of text for a byte of value; with too little room the kernel runs again."""
_GUESS_PER_RECORD: Final = 32
TEXT_BYTES_MAX: Final = 0x7FFF0000
"""The most text of one StringArray, whose offsets are int32."""


def json_text(records: RecordIndex) -> pa.StringArray:
    """Each record's `data` (or control value) as Kafka's JSON; null where the record is undecodable.

    The text of `kraft_codec.text.java_text`, and so of kafka-dump-log. Raises CodecError (LIMIT) where it would exceed
    2 GiB: index fewer batches at a time. Raises ValueError where `records.buffer` is no longer what was indexed.
    """
    writer = _Writer(records)
    floats = _Floats.collecting(len(records))
    text, offsets = writer.write(floats)
    if writer.float_count > len(records):
        floats = _Floats.collecting(writer.float_count)
        writer.write(floats)
    if writer.float_count:
        # Java's text of a float is made in Python: no record that a cluster writes often has one.
        text, offsets = writer.write(_Floats.texts(floats.bits[: writer.float_count].view(np.float64)))
    is_known = records.status == OK
    validity = None if is_known.all() else pa.py_buffer(np.packbits(is_known, bitorder="little"))
    return pa.StringArray.from_buffers(len(records), pa.py_buffer(offsets), pa.py_buffer(text), validity)


@dataclass(frozen=True, slots=True, eq=False)
class _Floats:
    """Side memory for float64: first their bits are collected, then their texts are written from here."""

    bits: npt.NDArray[np.int64]
    text: Bytes | None
    ends: npt.NDArray[np.int32]

    @classmethod
    def collecting(cls, room: int) -> _Floats:
        return cls(np.zeros(room, np.int64), None, np.zeros(1, np.int32))

    @classmethod
    def texts(cls, values: npt.NDArray[np.float64]) -> _Floats:
        # Jackson quotes what is not a JSON number.
        parts = [double_text(value) if math.isfinite(value) else f'"{double_text(value)}"' for value in values.tolist()]
        ends = np.cumsum([0, *map(len, parts)]).astype(np.int32)
        return cls(np.zeros(0, np.int64), np.frombuffer("".join(parts).encode(), np.uint8), ends)

    def table(self) -> npt.NDArray[np.int64]:
        texts = 0 if self.text is None else address(self.text)
        return np.array([0, len(self.bits), address(self.bits), texts, address(self.ends)], np.int64)


class _Writer:
    """One call of json_text: the programs, the inputs, and how many floats the last run met."""

    def __init__(self, records: RecordIndex) -> None:
        self._records = records
        self._programs = text_programs(records.dialect)
        self._reserve_bytes = self._programs.constant_bytes + _SPARE_BYTES
        self._columns = [
            records.status, records.is_control, records.api_key, records.version,
            records.body_position, records.value_position, records.value_length,
        ]  # fmt: skip
        self.float_count = 0

    def write(self, floats: _Floats) -> tuple[Bytes, npt.NDArray[np.int32]]:
        """Runs the kernel until every row is written, with a larger buffer each time that one is full."""
        records, programs = self._records, self._programs
        row_count = len(records)
        value_bytes = int(records.value_length.clip(min=0).sum(dtype=np.int64))
        room = _FIRST_GUESS * value_bytes + _GUESS_PER_RECORD * row_count
        text = np.empty(room + self._reserve_bytes, np.uint8)
        offsets = np.zeros(row_count + 1, np.int32)
        scratch = np.zeros(SCRATCH_BYTES, np.uint8)
        columns, float_table, constants = addresses(self._columns), floats.table(), text_constants()
        row = 0
        while True:
            row = run_kernel(
                "write_json", records.buffer, row, row_count, columns, programs.directory, programs.program,
                programs.walk_program, constants, scratch, text, min(room, TEXT_BYTES_MAX), offsets, float_table,
            )  # fmt: skip
            if row == row_count:
                break
            if row < 0:
                raise ValueError(f"record row {-row - 1}: the buffer is no longer what was indexed")
            if room >= TEXT_BYTES_MAX:
                position = int(records.value_position[row])
                raise CodecError(
                    Reason.LIMIT, position, f"the JSON of {row_count} records exceeds {TEXT_BYTES_MAX} bytes"
                )
            room *= 2
            larger = np.empty(room + self._reserve_bytes, np.uint8)
            larger[: offsets[row]] = text[: offsets[row]]
            text = larger
        self.float_count = int(float_table[0])
        return text[: offsets[-1]], offsets
