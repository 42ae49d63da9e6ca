"""Text that is not UTF-8, against what `new String(bytes, UTF_8)` of JDK 17 made of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft_codec.text.java_text import ERRORS, decoded

# In hex: the bytes, and the UTF-16 units that Java printed for them.
FROM_JAVA = [
    ("61", "0061"),
    ("80", "fffd"),
    ("c080", "fffdfffd"),
    ("c1bf41", "fffdfffd0041"),
    ("e08080", "fffdfffdfffd"),
    ("e180", "fffd"),
    ("e18041", "fffd0041"),
    ("eda080", "fffd"),
    ("edbfbf41", "fffd0041"),
    ("eda0", "fffd"),
    ("eda041", "fffd0041"),
    ("ed9fbf", "d7ff"),
    ("f0908080", "d800dc00"),
    ("f09080", "fffd"),
    ("f0808080", "fffdfffdfffdfffd"),
    ("f4908080", "fffdfffdfffdfffd"),
    ("f5808080", "fffdfffdfffdfffd"),
    ("ff41", "fffd0041"),
]


@pytest.mark.parametrize(("data", "units"), FROM_JAVA)
def test_bad_bytes_become_what_java_puts_in_their_place(data: str, units: str) -> None:
    assert decoded(bytes.fromhex(data)).encode("utf-16-be").hex() == units


@given(st.binary(max_size=20))
def test_any_bytes_become_text_that_has_a_utf_8_form(data: bytes) -> None:
    decoded(data).encode("utf-8")


@given(st.text())
def test_good_text_is_left_alone(text: str) -> None:
    assert decoded(text.encode("utf-8")) == text


def test_the_way_back_is_not_java_s() -> None:
    """Only decoding replaces: a lone surrogate has no bytes."""
    with pytest.raises(UnicodeEncodeError):
        "\ud800".encode("utf-8", ERRORS)
