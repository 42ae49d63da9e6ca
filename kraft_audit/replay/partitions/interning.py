"""Numbers for uuids and texts, so that the tables of the partition replay hold int32 values only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kraft_audit.replay.kernels import kernel
from kraft_audit.replay.kernels.layout import SLACK_BYTES, UUID_STRIDE
from kraft_codec.text.java_text import UUID_ALPHABET, UUID_BYTES

_FEWEST_SLOTS: Final = 1 << 10
_ALPHABET: Final = np.frombuffer(UUID_ALPHABET, np.uint8)


def uuid_values(array: pa.Array) -> npt.NDArray[np.int64]:
    """The uuids of a column without nulls as pairs of int64, shape (rows, 2), in the bytes' own order.

    Raises ValueError where a value is not 16 bytes.
    """
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


def larger(array: npt.NDArray[Any], rows: int, used: int) -> npt.NDArray[Any]:
    """An array of `rows` rows: the first `used` are copied from `array`, the others are zero."""
    grown = np.zeros((rows, *array.shape[1:]), array.dtype)
    grown[:used] = array[:used]
    return grown


class UuidNumbers:
    """Gives every distinct uuid a number, in order of appearance."""

    def __init__(self) -> None:
        self.count = 0
        self._ids = np.zeros((0, 2), np.int64)
        self._slots = np.full(_FEWEST_SLOTS, -1, np.int32)
        self._texts = np.zeros((0, UUID_STRIDE), np.uint8)
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

    def texts(self) -> npt.NDArray[np.uint8]:
        """The text of every uuid by its number: rows of UUID_STRIDE characters, of which the last two are zeros."""
        if self.count > len(self._texts):
            self._texts = larger(self._texts, max(2 * len(self._texts), self.count), self._text_count)
        if self._text_count < self.count:
            self._text_count = kernel("uuid_texts")(
                self._ids.ctypes.data,
                self._text_count,
                self.count,
                self._texts.ctypes.data,
                _ALPHABET.ctypes.data,
            )
        return self._texts

    def _make_room(self, count: int) -> None:
        if self.count + count > len(self._ids):
            self._ids = larger(self._ids, max(2 * len(self._ids), self.count + count), self.count)
        # At most half of the slots are taken, even if all of the uuids are new.
        if 2 * (self.count + count) > len(self._slots):
            self._rehash(2 * (self.count + count))

    def _rehash(self, at_least: int) -> None:
        self._slots = np.full(1 << (at_least - 1).bit_length(), -1, np.int32)
        kernel("rehash_ids")(self._ids.ctypes.data, self.count, self._slots.ctypes.data, len(self._slots) - 1)


class TextTable:
    """Texts by number as a kernel reads them: `places` are pairs of start and length in `characters`, in bytes.

    SLACK_BYTES of room follow the characters, so that a kernel may copy them by words.
    """

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self.count = 0
        self.places = np.zeros((0, 2), np.int64)
        self.characters = np.zeros(SLACK_BYTES, np.uint8)
        self.longest = 0
        self._used = 0
        for number, text in enumerate(texts):
            self.set(number, text)

    def set(self, number: int, text: str) -> None:
        """Sets the text of a number; lower numbers without a text get the empty one."""
        self.reach(number + 1)
        octets = text.encode()
        end = self._used + len(octets)
        if end + SLACK_BYTES > len(self.characters):
            self.characters = larger(self.characters, 2 * end + SLACK_BYTES, self._used)
        self.characters[self._used : end] = np.frombuffer(octets, np.uint8)
        self.places[number] = self._used, len(octets)
        self.longest = max(self.longest, len(octets))
        self._used = end

    def reach(self, count: int) -> None:
        """Gives every number below `count` a text: the empty one where none was set."""
        if count > len(self.places):
            self.places = larger(self.places, max(2 * len(self.places), count), self.count)
        self.count = max(self.count, count)

    def text(self, number: int) -> str:
        """The text of a number, empty where it has none."""
        if number >= self.count:
            return ""
        start, length = self.places[number].tolist()
        return self.characters[start : start + length].tobytes().decode()
