"""A table that is read from disk is the table that was put there."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from kraft_audit.rules.columns.partition_parts import TableOnDisk

SCHEMA = pa.schema(
    [
        pa.field("number", pa.int64(), nullable=False),
        pa.field("text", pa.dictionary(pa.int32(), pa.string())),
        pa.field("nodes", pa.list_(pa.int32())),
    ]
)


def _batch(number: int) -> pa.RecordBatch:
    texts = pa.array([f"text {number}", None, "a"]).dictionary_encode()
    return pa.RecordBatch.from_arrays(
        [pa.array([number, 1, 2]), texts, pa.array([[1, number], None, []])], schema=SCHEMA
    )


def test_rows_come_back_as_they_were_added_and_more_may_follow() -> None:
    on_disk = TableOnDisk(SCHEMA)
    batches = [_batch(number) for number in range(20)]
    for count, batch in enumerate(batches, 1):
        on_disk.add(batch)
        if count in (1, 7):
            assert on_disk.table().equals(pa.Table.from_batches(batches[:count]))
    table = on_disk.table()
    assert table.schema == SCHEMA
    assert table.equals(pa.Table.from_batches(batches))
    assert table.column("number").num_chunks == len(batches)


def test_rows_that_are_mapped_are_not_held() -> None:
    row_count = 1_000_000
    on_disk = TableOnDisk(pa.schema([pa.field("number", pa.int64())]))
    on_disk.add(pa.record_batch({"number": pa.array(range(row_count), pa.int64())}))
    before = pa.total_allocated_bytes()
    table = on_disk.table()
    assert table.num_rows == row_count
    assert pa.total_allocated_bytes() - before < row_count


def test_a_table_outlives_the_object_that_wrote_it() -> None:
    on_disk = TableOnDisk(SCHEMA)
    on_disk.add(_batch(3))
    table = on_disk.table()
    open_files = _open_files()
    del on_disk
    assert table.to_pylist() == _batch(3).to_pylist()
    assert _open_files() < open_files or not open_files, "its file is closed"


def _open_files() -> int:
    """0 where the system does not say."""
    handles = Path("/proc/self/fd")
    return sum(1 for _ in handles.iterdir()) if handles.is_dir() else 0
