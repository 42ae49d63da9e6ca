"""Compressed batches made readable for the kernels: an uncompressed image of each behind the bytes that were read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kraft_codec.columns_batches import Bytes
from kraft_codec.compression import Codec, decompress
from kraft_codec.errors import CodecError
from kraft_codec.kernels.codes import BATCH_HEADER_BYTES, OK, status_of

_ATTRIBUTES_LOW_BYTE = 22
_RECORD_COUNT_POSITION = 57
_CODEC_BITS = 0x07


@dataclass(frozen=True, slots=True, eq=False)
class Unpacked:
    """A buffer with the images behind the given bytes, and where each selected batch stands in it."""

    buffer: Bytes
    positions: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int32]
    original_positions: npt.NDArray[np.int64]
    failures: dict[int, CodecError]

    @property
    def places(self) -> tuple[Bytes, npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        return self.buffer, self.positions, self.sizes

    @property
    def packed_positions(self) -> npt.NDArray[np.int64]:
        """Per selected batch: the position of its compressed bytes, -1 where it has none."""
        is_image = self.positions != self.original_positions
        return np.where(is_image, self.original_positions + BATCH_HEADER_BYTES, -1)

    def restore(self, verdicts: npt.NDArray[np.int64]) -> None:
        """Makes the kernel's verdicts (status, position) say where the error stands in the given bytes."""
        for row in np.flatnonzero(self.positions != self.original_positions).tolist():
            if row in self.failures:
                verdicts[row] = status_of(self.failures[row].reason), self.failures[row].position
            elif verdicts[row, 0] != OK:
                # No byte of a record has a position in the file, but those of the header have.
                inside = verdicts[row, 1] - self.positions[row]
                verdicts[row, 1] = self.original_positions[row] + min(inside, BATCH_HEADER_BYTES)


def unpack(
    data: Bytes,
    positions: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int32],
    attributes: npt.NDArray[np.int16],
    record_counts: npt.NDArray[np.int32],
) -> Unpacked | None:
    """None where no batch is compressed. Each payload is bounded as `kraft_codec.compression` bounds it."""
    codecs = attributes & _CODEC_BITS
    compressed = np.flatnonzero((codecs != Codec.NONE) & (codecs <= max(Codec)))
    if not len(compressed):
        return None
    new_positions, new_sizes = positions.copy(), sizes.copy()
    failures: dict[int, CodecError] = {}
    pieces = [data.tobytes()]
    end = len(data)
    for row in compressed.tolist():
        start, body = int(positions[row]), int(positions[row]) + BATCH_HEADER_BYTES
        header = bytearray(data[start:body])
        header[_ATTRIBUTES_LOW_BYTE] &= ~_CODEC_BITS
        payload = b""
        if record_counts[row] >= 0:
            try:
                payload = decompress(
                    Codec(int(codecs[row])), data[body : start + int(sizes[row])].tobytes(), position=body
                )
            except CodecError as error:
                failures[row] = error
        new_positions[row], new_sizes[row] = end, BATCH_HEADER_BYTES + len(payload)
        pieces += [bytes(header), payload]
        end += BATCH_HEADER_BYTES + len(payload)
    # A bytearray, because secrets are overwritten in place.
    buffer = np.frombuffer(bytearray().join(pieces), np.uint8)
    return Unpacked(buffer, new_positions, new_sizes, positions, failures)
