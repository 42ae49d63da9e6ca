"""Drawn values for every field of a message."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from kraft_codec.records.message import UNKNOWN_TAGGED_FIELDS, default_fields
from kraft_codec.schemas import Field, Type

SCALARS: dict[Type, st.SearchStrategy[Any]] = {
    Type.BOOL: st.booleans(),
    Type.INT8: st.integers(-(2**7), 2**7 - 1),
    Type.INT16: st.integers(-(2**15), 2**15 - 1),
    Type.UINT16: st.integers(0, 2**16 - 1),
    Type.INT32: st.integers(-(2**31), 2**31 - 1),
    Type.UINT32: st.integers(0, 2**32 - 1),
    Type.INT64: st.integers(-(2**63), 2**63 - 1),
    Type.FLOAT64: st.floats(),
    Type.UUID: st.binary(min_size=16, max_size=16),
    Type.STRING: st.text(max_size=12) | st.text(alphabet='aé\x00\x1f\n"\\\u2028😀', max_size=300),
    Type.BYTES: st.binary(max_size=300),
}


@st.composite
def structs(draw: st.DrawFn, fields: tuple[Field, ...], version: int) -> dict[str, Any]:
    values = default_fields(fields)
    for field in fields:
        if version in field.versions and draw(st.booleans()):
            values[field.json_name] = draw(field_values(field, version))
    if draw(st.integers(0, 3)) == 0:
        unknown = {tag: draw(st.binary(max_size=200)) for tag in draw(st.sets(st.integers(20, 2**31 - 1), max_size=3))}
        values[UNKNOWN_TAGGED_FIELDS] = tuple(sorted(unknown.items()))
    return values


def field_values(field: Field, version: int) -> st.SearchStrategy[Any]:
    value = structs(field.fields, version) if field.type is Type.STRUCT else SCALARS[field.type]
    if field.array:
        value = st.lists(value, max_size=5)
    if field.nullable is not None and version in field.nullable:
        value = st.none() | value
    return value
