"""Numbers for uuids, so that the replay's tables hold int32 only."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kraft_audit.replay.kernels.native import kernel
from kraft_codec.uuids import UUID_TEXT_CHARACTERS, uuid_text

UUID_BYTES: Final = 16
_FEWEST_SLOTS: Final = 1 << 10
_TEXT: Final = np.dtype(f"S{UUID_TEXT_CHARACTERS}")


def uuid_values(array: pa.Array) -> npt.NDArray[np.int64]:
    """The uuids of a column of 16-byte values without nulls, as pairs of int64 (in no particular byte order)."""
    if pa.types.is_fixed_size_binary(array.type):
        data = np.frombuffer(array.buffers()[1] or b"", np.uint8)
        start = array.offset * UUID_BYTES
    else:
        offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
        if len(array) and not (np.diff(offsets) == UUID_BYTES).all():
            raise ValueError("a uuid column holds a value that is not 16 bytes")
        data = np.frombuffer(array.buffers()[2] or b"", np.uint8)
        start = int(offsets[0]) if len(array) else 0
    chosen = np.ascontiguousarray(data[start : start + len(array) * UUID_BYTES])
    return chosen.view(np.int64).reshape(-1, 2) if len(array) else np.zeros((0, 2), np.int64)


class UuidNumbers:
    """Gives every distinct uuid a number, in order of appearance."""

    def __init__(self) -> None:
        self.count = 0
        self._ids = np.zeros((0, 2), np.int64)
        self._slots = np.full(_FEWEST_SLOTS, -1, np.int32)
        self._texts = np.zeros(0, _TEXT)
        self._text_count = 0

    def numbers(self, values: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        """The number of each uuid; `values` as `uuid_values` gives them."""
        count = len(values)
        numbers = np.empty(count, np.int32)
        if count == 0:
            return numbers
        self._make_room(count)
        values = np.ascontiguousarray(values)
        self.count = kernel("intern_ids")(
            values.ctypes.data,
            count,
            numbers.ctypes.data,
            self._ids.ctypes.data,
            self.count,
            self._slots.ctypes.data,
            len(self._slots) - 1,
        )
        return numbers

    def number(self, value: bytes) -> int:
        """The number of one uuid."""
        return int(self.numbers(np.frombuffer(value, np.int64).reshape(1, 2))[0])

    def texts(self, numbers: npt.NDArray[np.int32]) -> pa.StringArray:
        """The texts of uuids by their numbers. All are of one length, so that no offsets need to be read."""
        if self.count > len(self._texts):
            larger = np.zeros(max(2 * len(self._texts), self.count), _TEXT)
            larger[: self._text_count] = self._texts[: self._text_count]
            self._texts = larger
        for number in range(self._text_count, self.count):
            self._texts[number] = uuid_text(self._ids[number].tobytes()).encode()
        self._text_count = self.count
        offsets = np.arange(0, (len(numbers) + 1) * UUID_TEXT_CHARACTERS, UUID_TEXT_CHARACTERS, dtype=np.int32)
        chosen = self._texts.take(numbers)
        return pa.StringArray.from_buffers(len(numbers), pa.py_buffer(offsets), pa.py_buffer(chosen))

    def _make_room(self, count: int) -> None:
        if self.count + count > len(self._ids):
            larger = np.zeros((max(2 * len(self._ids), self.count + count), 2), np.int64)
            larger[: self.count] = self._ids[: self.count]
            self._ids = larger
        # At most half of the slots are taken, even if all of these are new.
        if 2 * (self.count + count) > len(self._slots):
            self._rehash(2 * (self.count + count))

    def _rehash(self, at_least: int) -> None:
        self._slots = np.full(1 << (at_least - 1).bit_length(), -1, np.int32)
        kernel("rehash_ids")(self._ids.ctypes.data, self.count, self._slots.ctypes.data, len(self._slots) - 1)
