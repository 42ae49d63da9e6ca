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


def topic_numbers(topic_ids: pa.StringArray) -> npt.NDArray[np.int64]:
    """A number for each row, the same for all rows of a topic."""
    distinct = topic_ids.dictionary_encode()
    numbers = np.array([zlib.crc32(text.encode()) for text in distinct.dictionary.to_pylist()], np.int64)
    numbers_of_rows: npt.NDArray[np.int64] = numbers[distinct.indices.to_numpy(zero_copy_only=False)]
    return numbers_of_rows


@dataclass(frozen=True, slots=True)
class TopicShare:
    """The topics of share `number` of `count`: parts that follow each other."""

    number: int
    count: int

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of these topics in a batch that has the column `topic_id`."""
        if not batch.num_rows:
            return batch
        part = topic_numbers(batch.column("topic_id")) % PART_COUNT
        return batch.filter(pa.array(part * self.count // PART_COUNT == self.number))
