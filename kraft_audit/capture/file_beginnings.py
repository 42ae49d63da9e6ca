"""The beginning of a segment or snapshot: whose log it is and which dialect wrote it is known before all is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kraft_audit.capture.scanner import CHUNK_BYTES_MAX
from kraft_codec.columns import BatchIndex, index_batches
from kraft_codec.errors import CodecError
from kraft_codec.kernels.codes import OK
from kraft_codec.records.batch import HEADER_BYTES, BatchHeader, read_header
from kraft_codec.storage.random_access import Storage

PAGE_BYTES: Final = 1024


@dataclass(frozen=True, slots=True)
class Beginning:
    """A file's first bytes, with the batches in them.

    `header` is the first batch's: None where there is none, or where its bytes do not have its CRC; of a batch beyond
    CHUNK_BYTES_MAX that is not asked.
    """

    header: BatchHeader | None
    buffer: bytes
    batches: BatchIndex


def read_beginning(
    storage: Storage, path: str, size_bytes: int = PAGE_BYTES, *, controls_only: bool = False
) -> Beginning:
    """The beginning of a file: its first batch, and so many bytes; an empty one where it cannot be read.

    With `controls_only` a first batch of metadata is not read to its end.
    """
    header, buffer = None, b""
    try:
        with storage.open(path) as file:
            buffer = bytes(file.read_at(0, min(max(size_bytes, HEADER_BYTES), file.size_bytes)).data)
            if len(buffer) >= HEADER_BYTES:
                header = read_header(buffer, 0)
                batch_bytes = 0 if header.size_bytes > CHUNK_BYTES_MAX else min(header.size_bytes, file.size_bytes)
                if len(buffer) < batch_bytes and (header.is_control or not controls_only):
                    buffer += bytes(file.read_at(len(buffer), batch_bytes - len(buffer)).data)
    except CodecError:
        header, buffer = None, b""
    batches = index_batches(buffer, is_last=False)
    is_huge = header is not None and header.size_bytes > CHUNK_BYTES_MAX
    is_sound = len(batches) > 0 and batches.position[0] == 0 and batches.status[0] == OK
    return Beginning(header if is_huge or is_sound else None, buffer, batches)
