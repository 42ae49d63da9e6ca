"""Topics by number, so that the partitions of one cluster can be dealt with a share of the topics at a time.

All partitions of a topic have one number, which follows from the topic's id alone: whoever is given a share finds in it
all that there is of its topics.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

PART_COUNT: Final = 64
"""With 2 GiB of log a part is 90 MB. More parts would be mostly Arrow's framing, and every rule looks at each one."""
_LAST_WEIGHT: Final = 0.85
"""Of the topics of another share, as many are with the last one."""


def topic_number(topic_id: str) -> int:
    """A number that follows from a topic's id."""
    return zlib.crc32(topic_id.encode())


def topic_numbers(topic_ids: pa.StringArray) -> npt.NDArray[np.int64]:
    """A number for each row, the same for all rows of a topic."""
    distinct = topic_ids.dictionary_encode()
    numbers = np.array([topic_number(text) for text in distinct.dictionary.to_pylist()], np.int64)
    numbers_of_rows: npt.NDArray[np.int64] = numbers[distinct.indices.to_numpy(zero_copy_only=False)]
    return numbers_of_rows


@dataclass(frozen=True, slots=True)
class TopicShare:
    """The topics of share `number` of `count`: parts that follow each other, fewer for the last share.

    That one writes the records of all topics besides.
    """

    number: int
    count: int

    def has(self, topic_id: str) -> bool:
        """Whether a topic is one of these."""
        return self._begin(self.number) <= topic_number(topic_id) % PART_COUNT < self._begin(self.number + 1)

    def _begin(self, number: int) -> int:
        """The first part of a share; PART_COUNT for the one after the last."""
        return PART_COUNT if number == self.count else round(PART_COUNT * number / (self.count - 1 + _LAST_WEIGHT))
