"""Text as Kafka's Java writes it: decoded strings, uuids, doubles, and a message as JSON.

- Strings (`new String(bytes, UTF_8)`): Java and Python both put one U+FFFD for each longest run that could have begun a
  character, but for an encoded surrogate (ED A0..BF ..): Java replaces its bytes together, Python byte by byte.
- Uuids (org.apache.kafka.common.Uuid): URL-safe base64 of the 16 bytes without padding.
- JSON: the text of Kafka's generated JsonConverter, written by Jackson, as kafka-dump-log prints it. Compact; keys in
  schema order with a lower-case first letter; a tagged field at its default is left out, a field that the version lacks
  too; untagged nulls are printed, unknown tagged fields are not. Bytes are standard base64 with padding. Text is raw
  but for `"`, `\\` and the characters below U+0020.
"""

from __future__ import annotations

import base64
import codecs
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kraft_codec.records.message import Fields, default_of
from kraft_codec.schemas import Field, Message, Type

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


UUID_BYTES: Final = 16
UUID_TEXT_CHARACTERS: Final = 22
UUID_ALPHABET: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_TEXT = re.compile(r"[A-Za-z0-9_-]{22}")


def uuid_text(value: bytes) -> str:
    """The 22 characters that Kafka's tools print for 16 bytes, most significant half first."""
    if len(value) != UUID_BYTES:
        raise ValueError(f"a uuid of {len(value)} bytes: expected {UUID_BYTES}")
    return base64.urlsafe_b64encode(value)[:UUID_TEXT_CHARACTERS].decode("ascii")


def uuid_bytes(text: str) -> bytes:
    """The 16 bytes of a uuid's text. Stricter than Java's: just the text that `uuid_text` gives is accepted."""
    if _TEXT.fullmatch(text) is None:
        raise ValueError(f"uuid {text!r}: expected {UUID_TEXT_CHARACTERS} characters of A-Z a-z 0-9 - _")
    value = base64.urlsafe_b64decode(text + "==")
    if uuid_text(value) != text:
        raise ValueError(f"uuid {text!r}: its last character holds bits beyond the 16th byte")
    return value


_JSON_ESCAPES: Final[dict[int, str]] = {code: f"\\u{code:04X}" for code in range(0x20)} | {
    ord("\b"): "\\b",
    ord("\t"): "\\t",
    ord("\n"): "\\n",
    ord("\f"): "\\f",
    ord("\r"): "\\r",
    ord('"'): '\\"',
    ord("\\"): "\\\\",
}
_NEEDS_ESCAPE: Final = re.compile(r'[\x00-\x1f"\\]')

# Double.toString leaves scientific notation between these.
_DECIMAL_FROM: Final = 1e-3
_DECIMAL_BELOW: Final = 1e7


def to_json(message: Message, version: int, fields: Mapping[str, Any]) -> str:
    """The JSON text of a message's fields (as `read_message` gives them) at a version."""
    return _object(message.fields, version, fields)


def quoted(text: str) -> str:
    """A JSON string as Jackson writes it."""
    if _NEEDS_ESCAPE.search(text):
        text = text.translate(_JSON_ESCAPES)
    return f'"{text}"'


def double_text(value: float) -> str:
    """Java's Double.toString, by the shortest digits that read back as the same value (JDK 19 and later).

    `1.0E7`, `1.23456789E8`, `0.001`, `1.0E-4`. Earlier JDKs print a digit too many for some values above 2^53.
    """
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    magnitude = abs(value)
    if magnitude == 0:
        return f"{sign}0.0"
    digits, point = _shortest(magnitude)
    if _DECIMAL_FROM <= magnitude < _DECIMAL_BELOW:
        if point <= 0:
            return f"{sign}0.{'0' * -point}{digits}"
        return f"{sign}{digits[:point].ljust(point, '0')}.{digits[point:] or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{point - 1}"


def _shortest(magnitude: float) -> tuple[str, int]:
    """(digits, point): the value is 0.digits x 10^point. Where one digit would do, Java takes the nearest of two."""
    digits, point = _parsed(repr(magnitude))
    two_digits = f"{magnitude:.1e}"
    if len(digits) == 1 and float(two_digits) == magnitude:
        return _parsed(two_digits)
    return digits, point


def _parsed(text: str) -> tuple[str, int]:
    mantissa, _, exponent = text.partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    leading_zeros = len(whole + fraction) - len(digits)
    return digits.rstrip("0"), len(whole) - leading_zeros + int(exponent or "0")


def _object(fields: Sequence[Field], version: int, values: Fields | Mapping[str, Any]) -> str:
    members = []
    for field in fields:
        if version not in field.versions:
            continue
        default = default_of(field)
        value = values.get(field.json_name, default)
        if field.tag is None or value != default:
            members.append(f'"{field.json_name}":{_value(field, version, value)}')
    return "{" + ",".join(members) + "}"


def _value(field: Field, version: int, value: Any) -> str:
    if field.array and value is not None:
        return "[" + ",".join(_element(field, version, element) for element in value) + "]"
    return _element(field, version, value)


def _element(field: Field, version: int, value: Any) -> str:
    if value is None:
        return "null"
    match field.type:
        case Type.STRUCT:
            return _object(field.fields, version, value)
        case Type.STRING:
            return quoted(value)
        case Type.UUID:
            return f'"{uuid_text(value)}"'
        case Type.BYTES:
            return f'"{base64.b64encode(value).decode("ascii")}"'
        case Type.BOOL:
            return "true" if value else "false"
        case Type.FLOAT64:
            # Jackson's default quotes what is not a JSON number.
            return double_text(value) if math.isfinite(value) else f'"{double_text(value)}"'
        case _:
            return str(value)
