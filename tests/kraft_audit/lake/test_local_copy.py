"""A table's files are fetched once each, and the copy has the rows of the version that was asked for."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from kraft_audit.lake import local_copy
from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.local_copy import LocalCopy

SCHEMA = pa.schema([pa.field("number", pa.int64()), pa.field("text", pa.string())])


@pytest.fixture
def lake(tmp_path: Path) -> DeltaLake:
    lake = DeltaLake(str(tmp_path / "lake"))
    lake.create("things", SCHEMA, "one thing")
    for number in range(3):
        append(lake, number)
    return lake


def append(lake: DeltaLake, number: int) -> None:
    lake.append_rows("things", pa.table({"number": [number], "text": [None]}, SCHEMA), f"app-{number}", 1)


def numbers(table: DeltaTable) -> list[int]:
    rows = pa.table(QueryBuilder().register("things", table).execute("SELECT number FROM things").read_all())
    return sorted(rows["number"].to_pylist())


def test_files_are_fetched_once(lake: DeltaLake, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[str] = []
    whole = LocalCopy._fetched
    monkeypatch.setattr(
        LocalCopy, "_fetched", lambda own, source, path: fetched.append(path) or whole(own, source, path)
    )
    copy = LocalCopy(lake.uri, "things")
    assert numbers(copy.of(lake.latest("things"))) == [0, 1, 2]
    assert numbers(copy.of(lake.latest("things"))) == [0, 1, 2]
    assert len(fetched) == 3
    append(lake, 3)
    assert numbers(copy.of(lake.latest("things"))) == [0, 1, 2, 3]
    assert len(fetched) == 4


def test_a_copy_follows_what_joins_and_deletes_files(lake: DeltaLake) -> None:
    copy = LocalCopy(lake.uri, "things")
    copy.of(lake.latest("things"))
    lake.open("things").optimize.compact()
    assert numbers(copy.of(lake.latest("things"))) == [0, 1, 2]
    lake.open("things").delete("number = 1")
    assert numbers(copy.of(lake.latest("things"))) == [0, 2]


def test_an_empty_table_and_a_large_one(lake: DeltaLake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.create("nothing", SCHEMA, "no thing")
    assert numbers(LocalCopy(lake.uri, "nothing").of(lake.latest("nothing"))) == []
    monkeypatch.setattr(local_copy, "COPIED_BYTES_MAX", 10)
    opened = lake.latest("things")
    assert LocalCopy(lake.uri, "things").of(opened) is opened, "it is read where it is"
