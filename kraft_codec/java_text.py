"""Text that is not UTF-8, decoded as Java's `new String(bytes, UTF_8)` does.

Java and Python both put one U+FFFD for each longest run that could have begun a character, but for an encoded surrogate
(ED A0..BF ..): Java replaces its bytes together, Python one by one.
"""

from __future__ import annotations

import codecs
from typing import Final

REPLACEMENT: Final = "\ufffd"
ERRORS: Final = "kraft_codec.java"


def decoded(value: bytes) -> str:
    """The String that Java makes of `value`."""
    return value.decode("utf-8", ERRORS)


def _replace(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    value, start = error.object, error.start
    if value[start] == 0xED and start + 1 < len(value) and 0xA0 <= value[start + 1] <= 0xBF:
        is_third_continuation = start + 2 < len(value) and 0x80 <= value[start + 2] <= 0xBF
        return REPLACEMENT, start + (3 if is_third_continuation else 2)
    return REPLACEMENT, error.end


codecs.register_error(ERRORS, _replace)
