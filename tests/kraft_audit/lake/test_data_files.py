"""Statistics decide which files a reader skips: a bound that cuts off one row loses it in silence."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from kraft_audit.lake.data_files import TEXT_CHARACTERS, file_statistics

SCHEMA = pa.schema(
    [
        pa.field("text", pa.string()),
        pa.field("number", pa.int64()),
        pa.field("small", pa.int8()),
        pa.field("flag", pa.bool_()),
        pa.field("at", pa.timestamp("us", tz="UTC")),
        pa.field("items", pa.list_(pa.field("element", pa.int32()))),
    ]
)
ROW = st.fixed_dictionaries(
    {
        "text": st.none() | st.text(max_size=40) | st.text(alphabet="a\U0010ffff", min_size=30, max_size=40),
        "number": st.none() | st.integers(-(2**63), 2**63 - 1),
        "small": st.none() | st.integers(-128, 127),
        "flag": st.none() | st.booleans(),
        "at": st.none()
        | st.integers(-(10**15), 10**16).map(lambda us: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)),
        "items": st.none() | st.lists(st.integers(0, 9), max_size=3),
    }
)


def statistics_of(rows: list[dict[str, object]], rows_a_group: int) -> dict[str, dict[str, object]]:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), sink, row_group_size=rows_a_group)
    return json.loads(file_statistics(pq.read_metadata(io.BytesIO(sink.getvalue())), SCHEMA))


@given(st.lists(ROW, max_size=8), st.integers(1, 4))
def test_every_value_lies_within_the_bounds(rows: list[dict[str, object]], rows_a_group: int) -> None:
    found = statistics_of(rows, rows_a_group)
    assert found["numRecords"] == len(rows)
    for name in ("text", "number", "small", "at"):
        values = [row[name] for row in rows if row[name] is not None]
        if rows:
            assert found["nullCount"][name] == len(rows) - len(values)
        low, high = found["minValues"].get(name), found["maxValues"].get(name)
        if name == "at":
            low, high = (None if bound is None else datetime.fromisoformat(bound) for bound in (low, high))
        assert low is None or all(low <= value for value in values)
        assert high is None or all(value <= high for value in values)


def test_bounds_are_there_and_close() -> None:
    at = datetime(2026, 1, 1, 0, 0, 59, 999_999, UTC)
    rows = [
        {"text": "b" * 50, "number": 1, "at": at},
        {"text": "a", "number": None, "at": at},
        {"text": None, "number": 7},
    ]
    found = statistics_of(rows, 1)
    assert found["minValues"] == {"text": "a", "number": 1, "at": "2026-01-01T00:00:59.999Z"}
    assert found["maxValues"] == {
        "text": "b" * TEXT_CHARACTERS + "\U0010ffff",
        "number": 7,
        "at": "2026-01-01T00:01:00.000Z",
    }
    assert found["nullCount"] == {"text": 1, "number": 1, "small": 3, "flag": 3, "at": 1}
