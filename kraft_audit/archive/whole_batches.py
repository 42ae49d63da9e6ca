"""Batches as a disk has them, for an archive that is read beside it.

The archive holds no secret and no record of an unknown type, so such a batch has another CRC there. Where a disk has
the batch, its bytes stand for it in the archived copies too: both then hold the same batch, as they did.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final

import numpy as np

from kraft_audit.archive.runs import ArchivedKey
from kraft_audit.capture.plan import ReplicaPlan
from kraft_audit.tables.bronze import BATCH_KEY
from kraft_codec.columns.batches import index_batches
from kraft_codec.columns.buffers import Bytes, byte_array
from kraft_codec.errors import CodecError
from kraft_codec.file_names import FileKind
from kraft_codec.kernels.codes import OK
from kraft_codec.storage.random_access import Storage, join

WHOLE_BATCHES_CHUNK_BYTES: Final = 64 << 20
"""No batch is longer (kraft_codec.columns.batches)."""


def whole_batches(
    replicas: Iterable[ReplicaPlan], storage_of: Callable[[str], Storage], wanted: Collection[ArchivedKey]
) -> dict[ArchivedKey, Bytes]:
    """Those of the wanted batches that the logs of these replicas hold, each with its bytes.

    Segments that cannot be read have none: the reading that follows reports them.
    """
    left, contents = set(wanted), {}
    for replica in replicas:
        for file in replica.files:
            if left and file.kind == FileKind.SEGMENT:
                path = join(replica.path, file.name)
                for key, content in _batches(storage_of(replica.root), path, file.to_position, left):
                    contents[key] = content
                    left.discard(key)
    return contents


def _batches(
    storage: Storage, path: str, end: int, wanted: Collection[ArchivedKey]
) -> Iterator[tuple[ArchivedKey, Bytes]]:
    offsets = np.array(sorted({key[0] for key in wanted}), np.int64)
    position = 0
    try:
        with storage.open(path, end) as opened:
            while position < end:
                content = byte_array(opened.read_at(position, min(WHOLE_BATCHES_CHUNK_BYTES, end - position)))
                index = index_batches(content, is_last=False)
                rows = np.flatnonzero((index.status == OK) & np.isin(index.base_offset, offsets))
                keys = zip(*(getattr(index, name)[rows].tolist() for name in BATCH_KEY), strict=True)
                for row, key in zip(rows.tolist(), keys, strict=True):
                    if key in wanted:
                        start = int(index.position[row])
                        yield key, content[start : start + int(index.size_bytes[row])].copy()
                if index.consumed_bytes == 0:
                    return
                position += index.consumed_bytes
    except CodecError:
        return
