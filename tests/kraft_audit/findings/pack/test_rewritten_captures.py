"""Captures are rewritten in full: every integer of the schemas is sorted into what it names, and nothing else moves."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from kraft_codec.files.state_files import QUORUM_STATE
from kraft_codec.schemas import CONTROL_TYPES, METADATA_RECORDS, Dialect, Field, Type
from tests.builders.renaming import (
    NODE_FIELDS,
    OFFSET_FIELDS,
    OTHER_INT32_FIELDS,
    OTHER_INT64_FIELDS,
    TIME_FIELDS,
    Renaming,
)
from tests.builders.rewritten_captures import rewrite_captures


def integers(fields: Iterable[Field], type_: Type) -> set[str]:
    names = set()
    for field in fields:
        names |= integers(field.fields, type_)
        if field.type is type_:
            names.add(field.name)
    return names


def test_every_integer_of_the_schemas_is_sorted() -> None:
    controls = [control.message for control in CONTROL_TYPES[Dialect.KIP853].values()]
    fields = [field for message in (*METADATA_RECORDS, *controls, QUORUM_STATE) for field in message.fields]
    assert integers(fields, Type.INT32) == NODE_FIELDS | OTHER_INT32_FIELDS
    assert integers(fields, Type.INT64) == OFFSET_FIELDS | TIME_FIELDS | OTHER_INT64_FIELDS
    assert not NODE_FIELDS & OTHER_INT32_FIELDS
    assert not OFFSET_FIELDS & TIME_FIELDS
    assert not (OFFSET_FIELDS | TIME_FIELDS) & OTHER_INT64_FIELDS


def test_each_node_and_offset_gets_a_name_of_its_own() -> None:
    renaming = Renaming(first_moved=12)
    nodes = [renaming.node(node_id) for node_id in range(10_000)]
    assert len(set(nodes)) == len(nodes)
    assert nodes != sorted(nodes)
    assert [renaming.node(none) for none in (-1, -2)] == [-1, -2]
    assert [renaming.offset(offset) for offset in (0, 11)] == [0, 11]
    assert renaming.offset(13) - renaming.offset(12) == 1 < renaming.offset(12) - 12


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mini-3.9.2", "static-to-dynamic-upgrade", "torn-write", "crafted"])
def test_captures_that_keep_their_names_keep_every_byte(captured_logs: Path, tmp_path: Path, name: str) -> None:
    """So that of what is rewritten nothing changes but names; damaged and compressed batches too."""
    copy = tmp_path / name
    rewrite_captures(captured_logs / name, copy, is_identity=True)
    files = sorted(path.relative_to(copy) for path in copy.rglob("*") if path.is_file())
    assert files == sorted(
        path.relative_to(captured_logs / name) for path in (captured_logs / name).rglob("*") if path.is_file()
    )
    assert [file for file in files if (copy / file).read_bytes() != (captured_logs / name / file).read_bytes()] == []
