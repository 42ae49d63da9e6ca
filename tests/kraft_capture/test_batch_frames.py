"""Where batches begin and end, compared with the codec of this project, which shares no code with the copier."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kraft_capture.batch_frames import UNFINISHED, frame_batches
from kraft_codec.records.batch import Batch, read_batches
from tests.builders.live_log import no_op

LOG = b"".join(no_op(offset, 1 + offset // 4, offset, count=2).data for offset in range(0, 20, 2))
ENDS = [batch.header.position + batch.header.size_bytes for batch in read_batches(LOG) if isinstance(batch, Batch)]


def test_whole_batches_are_framed_as_the_codec_frames_them() -> None:
    frames = frame_batches(memoryview(LOG), 0, 0)
    assert (frames.size, frames.first_offset, frames.end_offset) == (len(LOG), 0, 20)
    assert (frames.last_epoch, frames.stopped) == (1 + 18 // 4, None)
    assert (frames.last_at, frames.last_size) == (ENDS[-2], ENDS[-1] - ENDS[-2])


def test_cut_at_every_byte() -> None:
    for size in range(len(LOG)):
        frames = frame_batches(memoryview(LOG)[:size], 0, 0)
        assert frames.size == max([0, *(end for end in ENDS if end <= size)])
        assert frames.stopped == (None if frames.size == size else UNFINISHED)
        if frames.stopped and size - frames.size >= 61:
            assert frames.size + frames.wanted in ENDS


@given(st.integers(0, len(LOG) * 8 - 1))
def test_any_flipped_bit_ends_the_log_before_its_batch(bit: int) -> None:
    """Base offset and epoch are outside the CRC: continuity and order of epochs find them, but for a higher epoch."""
    damaged = bytearray(LOG)
    damaged[bit // 8] ^= 1 << bit % 8
    start = max([0, *(end for end in ENDS if end <= bit // 8)])
    frames = frame_batches(memoryview(damaged), 0, 1)
    if 12 <= bit // 8 - start < 16 and frames.size > start:
        found = next(each for each in read_batches(damaged, start) if isinstance(each, Batch))
        assert found.header.leader_epoch > 1, "a higher epoch alone is believed, until a lower one follows"
    else:
        assert frames.size == start
        assert frames.stopped is not None


def test_zeros_are_no_batch() -> None:
    assert frame_batches(memoryview(LOG + bytes(100)), 0, 0).stopped == "zeros"


def test_a_batch_that_does_not_follow() -> None:
    assert frame_batches(memoryview(LOG), 1, 0).size == 0
    assert frame_batches(memoryview(LOG), 0, 2).size == 0
    assert frame_batches(memoryview(LOG), None, 0).size == len(LOG)
