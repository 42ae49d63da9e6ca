"""States as what differs from an earlier one: put together they are what was kept, whatever changed."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from kraft_audit.tables import kept_parts
from kraft_audit.tables.kept_parts import (
    KeptPartsError,
    changes_of,
    columns_from_bytes,
    columns_to_bytes,
    pack,
    unpack,
    with_changes,
)

SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("isr", pa.list_(pa.int32())),
        pa.field("voters", pa.list_(pa.struct([pa.field("id", pa.int64()), pa.field("host", pa.string())]))),
        pa.field("lasts", pa.bool_()),
        pa.field("since", pa.timestamp("ms", tz="UTC")),
        pa.field("share", pa.float64()),
    ]
)


@pytest.fixture(autouse=True)
def _small_parts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_parts, "LEAF_BYTES_MIN", 1)


def chance_of(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311  # not a secret


def some_row(chance: random.Random) -> dict[str, Any]:
    """A row of SCHEMA; few values, so that rows are often equal, and any of them may be missing."""
    row = {
        "topic": chance.choice(["a", "b", ""]),
        "partition": chance.randrange(-2, 3),
        "isr": [chance.randrange(3) for _ in range(chance.randrange(3))],
        "voters": [{"id": chance.randrange(2), "host": chance.choice(["x", None])} for _ in range(chance.randrange(2))],
        "lasts": chance.random() < 0.5,
        "since": datetime.fromtimestamp(chance.randrange(3), UTC),
        "share": chance.choice([0.0, 0.5]),
    }
    return {name: None if chance.random() < 0.1 else value for name, value in row.items()}


def content_of(rows: list[dict[str, Any]]) -> bytes:
    return columns_to_bytes(pa.RecordBatch.from_pylist(rows, SCHEMA))


def edited(rows: list[dict[str, Any]], chance: random.Random) -> list[dict[str, Any]]:
    """Some rows gone, changed in their places, or new, anywhere."""
    found = [some_row(chance) if chance.random() < 0.1 else row for row in rows if chance.random() > 0.1]
    for _ in range(chance.randrange(5)):
        found.insert(chance.randint(0, len(found)), some_row(chance))
    return found


def rows_of(packed: bytes) -> list[dict[str, Any]]:
    return columns_from_bytes(unpack(unpack(packed)["rules"])["table"], SCHEMA).to_pylist()


def state(rows: list[dict[str, Any]], facts: bytes = b"{}") -> bytes:
    return pack({"rules": pack({"table": content_of(rows), "facts": facts}), "empty": pack({}), "none": b""})


@pytest.mark.parametrize("seed", range(60))
def test_changes_of_a_state_make_it_again(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_parts, "SHARE_MAX", 100.0)
    chance = chance_of(seed)
    before = [some_row(chance) for _ in range(chance.choice([0, 1, 5, 300]))]
    after = edited(before, chance)
    base = state(before)
    changes = changes_of(base, state(after, b'{"to_offset": 1}'))
    assert changes is not None
    again = with_changes(base, changes)
    assert rows_of(again) == after
    assert unpack(unpack(again)["rules"])["facts"] == b'{"to_offset": 1}'
    assert unpack(again)["empty"] == pack({})
    # What was put together is changed again, and may be kept as it is.
    last = edited(after, chance)
    more = changes_of(again, state(last))
    assert more is not None
    assert rows_of(with_changes(again, more)) == last
    as_it_is = changes_of(base, again)
    assert as_it_is is not None
    assert rows_of(with_changes(base, as_it_is)) == after


def test_few_changes_are_few_bytes_and_many_are_a_new_base() -> None:
    chance = chance_of(1)
    rows = [{**some_row(chance), "topic": f"{chance.getrandbits(128):x}"} for _ in range(5_000)]
    base = state(rows)
    few = [{**row, "partition": 7} if number % 100 == 0 else row for number, row in enumerate(rows)]
    changes = changes_of(base, state(few))
    assert changes is not None
    assert len(changes) < len(base) / 30
    assert rows_of(with_changes(base, changes)) == few
    many = [{**row, "topic": f"{chance.getrandbits(128):x}"} if number % 3 else row for number, row in enumerate(rows)]
    assert changes_of(base, state(many)) is None


@pytest.mark.parametrize("part", ["gone", "placed", "rows", "base"])
def test_changes_of_which_a_part_is_missing_are_said_to_be_of_no_use(part: str) -> None:
    chance = chance_of(2)
    rows = [some_row(chance) for _ in range(500)]
    changes = changes_of(state(rows), state([*rows[:-3], some_row(chance)]))
    assert changes is not None
    again = with_changes(state(rows), changes)
    leaf = unpack(unpack(again)["rules"])["table"]
    parts = unpack(leaf[6:])
    broken = leaf[:6] + pack({name: content for name, content in parts.items() if name != part})
    with pytest.raises(KeptPartsError, match="changed rows cannot be read"):
        columns_from_bytes(broken, SCHEMA)
    if part in ("gone", "placed"):
        far = columns_to_bytes(pa.record_batch({"row": pa.array([10_000])}))
        with pytest.raises(KeptPartsError, match="changed rows cannot be read"):
            columns_from_bytes(leaf[:6] + pack({**parts, part: far}), SCHEMA)


def test_a_part_that_the_base_lacks_is_no_change_of_it() -> None:
    with pytest.raises(KeptPartsError, match="cannot be made"):
        with_changes(pack({"a": b"1"}), pack({"b": b""}))
