"""Records that wait are kept in blocks: the same bytes in whichever hours they came, and each block read once."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft_audit.replay import waiting_records
from kraft_audit.replay.waiting_records import WaitingRecords
from kraft_audit.tables.kept_parts import KeptPartsError
from kraft_codec.columns import typed_schema
from kraft_codec.schemas import METADATA_RECORDS

SCHEMAS = {
    message.name: typed_schema(message)
    for message in METADATA_RECORDS
    if message.name in ("NoOpRecord", "RemoveTopicRecord", "PartitionChangeRecord")
}
BLOCK = 8


def default(type_: pa.DataType) -> Any:
    if pa.types.is_binary(type_):
        return bytes(16)
    return [1, 2] if pa.types.is_list(type_) and not pa.types.is_binary(type_.value_type) else 0


def window(names: list[str], from_offset: int) -> dict[str, pa.RecordBatch]:
    """One record at each offset from `from_offset` on, of these types."""
    found: dict[str, list[dict[str, Any]]] = {}
    for offset, name in enumerate(names, from_offset):
        row = {field.name: None if field.nullable else default(field.type) for field in SCHEMAS[name]}
        found.setdefault(name, []).append({**row, "offset": offset})
    return {name: pa.RecordBatch.from_pylist(rows, SCHEMAS[name]) for name, rows in found.items()}


def rows_of(waiting: WaitingRecords) -> dict[str, list[dict[str, Any]]]:
    return {name: batch.to_pylist() for name, batch in sorted(waiting.records().items())}


@given(
    names=st.lists(st.sampled_from(sorted(SCHEMAS)), min_size=1, max_size=40),
    cuts=st.sets(st.integers(1, 39), max_size=5),
    start=st.integers(0, 20),
)
def test_blocks_are_the_same_in_whichever_hours_they_came(names: list[str], cuts: set[int], start: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(waiting_records, "WAITING_BLOCK_OFFSETS", BLOCK)
        whole, parts = WaitingRecords(), dict[str, bytes]()
        whole.append(window(names, start))
        ends = [cut for cut in sorted(cuts) if cut < len(names)]
        for first, end in zip([0, *ends], [*ends, len(names)], strict=True):
            hour = WaitingRecords(parts)
            hour.append(window(names[first:end], start + first))
            parts = hour.parts()
        assert parts == whole.parts()
        assert rows_of(WaitingRecords(parts)) == rows_of(whole)


def test_a_whole_block_is_not_read_to_keep_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_records, "WAITING_BLOCK_OFFSETS", BLOCK)
    first = WaitingRecords()
    first.append(window(["NoOpRecord"] * (2 * BLOCK + 3), 0))
    parts = first.parts()
    read = []
    decoded = waiting_records.columns_from_bytes
    monkeypatch.setattr(
        waiting_records, "columns_from_bytes", lambda content, schema: read.append(content) or decoded(content, schema)
    )
    later = WaitingRecords(parts)
    later.append(window(["NoOpRecord"], 2 * BLOCK + 3))
    assert {name: content for name, content in later.parts().items() if not name.startswith("2.")} == {
        name: content for name, content in parts.items() if not name.startswith("2.")
    }
    assert read == [parts["2.NoOpRecord"]]


@pytest.mark.parametrize("offset", [1 << 62, (1 << 63) - 1])
def test_a_damaged_offset_is_as_far_away_as_any(offset: int) -> None:
    near, far = (window(["NoOpRecord"], each)["NoOpRecord"] for each in (0, offset))
    waiting = WaitingRecords()
    waiting.append({"NoOpRecord": pa.concat_batches([near, far])})
    assert [row["offset"] for row in rows_of(WaitingRecords(waiting.parts()))["NoOpRecord"]] == [0, offset]


@pytest.mark.parametrize("part", ["NoOpRecord", "x.NoOpRecord"])
def test_what_is_no_block_is_refused(part: str) -> None:
    with pytest.raises(KeptPartsError, match="no block"):
        WaitingRecords({part: b""})


def test_a_type_that_is_not_known_is_refused() -> None:
    with pytest.raises(KeptPartsError, match="UnheardOfRecord"):
        WaitingRecords({"0.UnheardOfRecord": b"x"}).records()
