"""Both kernels that compute a CRC-32C give what Google's library gives."""

from __future__ import annotations

import os

import google_crc32c
import numpy as np
import pytest

from kraft_codec.kernels.library import (
    byte_tables,
    has_crc32_instruction,
    lane_tables,
    with_crc32_instruction,
    with_crc32_tables,
)

# As plain Python, where coverage looks at kernels, nothing is compiled.
pytestmark = [] if "NUMBA_DISABLE_JIT" in os.environ else pytest.mark.slow


def test_both_ways_to_compute_a_crc_agree() -> None:
    """The tables serve processors without the instruction: both are run, through numba or as plain Python."""
    from numba import njit

    by_tables = njit(with_crc32_tables()["crc32c"])
    by_instruction = njit(with_crc32_instruction()["crc32c"])
    tables, lanes = byte_tables.__wrapped__(), lane_tables.__wrapped__()  # built here, whatever was read before
    for size_bytes in (0, 1, 7, 8, 9, 767, 768, 800, 3000):
        content = np.random.default_rng(1).integers(0, 256, size_bytes + 1, np.uint8)[1:]
        expected = google_crc32c.value(content.tobytes())
        assert by_tables(content.ctypes.data, size_bytes, tables.ctypes.data) == expected
        if has_crc32_instruction():
            assert by_instruction(content.ctypes.data, size_bytes, lanes.ctypes.data) == expected
