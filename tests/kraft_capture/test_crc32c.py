"""The checksum, compared with Google's."""

from __future__ import annotations

import random

import google_crc32c
from hypothesis import given
from hypothesis import strategies as st

from kraft_capture.crc32c import crc32c


def test_the_check_value_of_the_standard() -> None:
    assert crc32c(b"123456789") == 0xE3069283


def test_every_length() -> None:
    for size in [*range(300), 1023, 1024, 1025, 4092, 4100, 65_532, 65_544, (1 << 18) - 4]:
        data = random.Random(size).randbytes(size)  # noqa: S311
        assert crc32c(data) == google_crc32c.value(data), size


@given(st.binary(max_size=3000))
def test_any_bytes(data: bytes) -> None:
    assert crc32c(memoryview(data)) == google_crc32c.value(data)
