"""Commits by application transaction: a plan's files are in a table once, whoever commits and however often."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from kraft_audit.lake.data_files import write_rows
from kraft_audit.lake.delta import DeltaLake, sql_text
from kraft_audit.lake.lake import append_in_turn
from kraft_audit.lake.lake_paths import absolute
from kraft_audit.lake.ledger import Ledger, delta_schema
from kraft_audit.lake.merges import Merge, MergeAction, MergeClause, Once
from kraft_audit.tables import LAKE_TABLES
from kraft_codec.errors import InputError
from tests.builders.delta_log import name_file

SCHEMA = pa.schema([pa.field("number", pa.int64(), nullable=False), pa.field("text", pa.string())])


@pytest.fixture
def lake(tmp_path: Path) -> DeltaLake:
    lake = DeltaLake(str(tmp_path / "lake"))
    lake.create("things", SCHEMA, "one thing")
    return lake


def commit_one(uri: str, version: int, number: int) -> bool:
    lake = DeltaLake(uri)
    file = write_rows(uri, "things", pa.table({"number": [number], "text": ["x"]}, SCHEMA), "test")
    return lake.commit("things", [file], SCHEMA, "app", version)


def numbers(lake: DeltaLake) -> list[int]:
    return sorted(lake.query("SELECT number FROM things", "things").column("number").to_pylist())


def test_the_same_version_is_committed_once(lake: DeltaLake) -> None:
    assert commit_one(lake.uri, 1, 10)
    assert not commit_one(lake.uri, 1, 11)
    assert commit_one(lake.uri, 2, 20)
    assert not commit_one(lake.uri, 1, 12)
    assert numbers(lake) == [10, 20]


def test_rows_are_made_again_where_another_run_came_between(lake: DeltaLake) -> None:
    """They follow from what the table held before the other run appended."""
    held: list[list[int]] = []

    def rows_now() -> list[dict[str, object]]:
        held.append(numbers(lake))
        if len(held) == 1:
            assert commit_one(lake.uri, 1, 10)
        return [{"number": max(held[-1], default=0) + 1, "text": "x"}]

    assert append_in_turn(lake, "things", "app", SCHEMA, rows_now) == 1
    assert held == [[], [10]]
    assert numbers(lake) == [10, 11]


def test_files_that_no_transaction_names_are_invisible(lake: DeltaLake) -> None:
    write_rows(lake.uri, "things", pa.table({"number": [1], "text": ["orphan"]}, SCHEMA), "test")
    assert numbers(lake) == []


def test_many_committers_at_once(lake: DeltaLake) -> None:
    """Eight commit version 1, of which one wins, then one application each, of which all do."""
    with ThreadPoolExecutor(8) as pool:
        first = list(pool.map(commit_one, [lake.uri] * 8, [1] * 8, range(8)))
        assert first.count(True) == 1
        assert numbers(lake) == [first.index(True)]
        apart = list(pool.map(commit_as, [lake.uri] * 8, [f"app-{number}" for number in range(8)], range(100, 108)))
    assert all(apart)
    assert numbers(lake) == [first.index(True), *range(100, 108)]


def test_a_lake_takes_the_kind_of_committer_that_made_it(tmp_path: Path) -> None:
    """The second kind is refused before anything is written."""
    uri = str(tmp_path / "lake")
    Ledger(DeltaLake(uri)).create()
    files = sorted(path for path in (tmp_path / "lake").rglob("*") if path.is_file())
    of_spark = DeltaLake(uri)
    of_spark.committer = "spark"
    with pytest.raises(InputError, match="`--committer deltalake` on the command line"):
        Ledger(of_spark).create()
    assert sorted(path for path in (tmp_path / "lake").rglob("*") if path.is_file()) == files
    Ledger(DeltaLake(uri)).create()


def commit_as(uri: str, application: str, number: int) -> bool:
    file = write_rows(uri, "things", pa.table({"number": [number], "text": ["y"]}, SCHEMA), "test")
    return DeltaLake(uri).commit("things", [file], SCHEMA, application, 1)


def test_tables_carry_their_contract(tmp_path: Path) -> None:
    """Schema, comments and a protocol so plain that any reader opens the table."""
    lake = DeltaLake(str(tmp_path / "lake"))
    Ledger(lake).create()
    Ledger(lake).create()
    for table in LAKE_TABLES.values():
        found = DeltaTable(lake.table_uri(table.name))
        fields = found.schema().fields
        assert [field.name for field in fields] == list(table.column_names)
        assert [field.nullable for field in fields] == [column.nullable for column in table.columns]
        assert [field.metadata["comment"] for field in fields] == [column.comment for column in table.columns]
        assert pa.schema(found.schema()).remove_metadata().types == delta_schema(table.name).types
        assert (found.protocol().min_reader_version, found.protocol().min_writer_version) == (1, 2)
        assert table.grain in found.metadata().description


def test_a_table_that_is_none(tmp_path: Path) -> None:
    lake = DeltaLake(str(tmp_path / "lake"))
    assert not lake.exists("things")
    with pytest.raises(InputError, match="no Delta table"):
        lake.open("things")


@pytest.mark.parametrize("how", ["gone", "cut", "overwritten"])
def test_a_data_file_that_cannot_be_read_is_reported_with_its_table(lake: DeltaLake, how: str) -> None:
    commit_one(lake.uri, 1, 10)
    [file] = Path(lake.table_uri("things")).rglob("*.parquet")
    written = file.read_bytes()
    if how == "gone":
        file.unlink()
    else:
        file.write_bytes(written[:-20] if how == "cut" else bytes(len(written) - 8) + written[-8:])
    with pytest.raises(InputError, match=r"lake/things: cannot be read: .*\.parquet") as reported:
        numbers(lake)
    assert "\n" not in str(reported.value)


def test_quotes_in_text_stay_text(lake: DeltaLake) -> None:
    commit_one(lake.uri, 1, 10)
    hostile = sql_text("a' OR '1' = '1")
    found = lake.query(f"SELECT count(*) AS n FROM things WHERE text = {hostile}", "things")  # noqa: S608
    assert found.column("n").to_pylist() == [0]


@pytest.mark.parametrize(("name", "found"), [("a%20b", "%20"), ("%2e%2e", "%2e"), ("a\\b", "\\")])
def test_a_folder_that_would_be_read_as_another_is_refused(name: str, found: str, tmp_path: Path) -> None:
    for text in (str(tmp_path / name), (tmp_path / name).as_uri()):
        with pytest.raises(InputError, match="no path for a lake") as raised:
            DeltaLake(absolute(text, tmp_path))
        assert f"takes {found} in a path" in str(raised.value)


@pytest.mark.parametrize("name", ["a b", "a%zz", "50%", "a#b?c=é"])
def test_any_other_folder_may_hold_a_lake(name: str, tmp_path: Path) -> None:
    for text in (str(tmp_path / name), (tmp_path / name).as_uri()):
        lake = DeltaLake(absolute(text, tmp_path))
        lake.create("t", SCHEMA, "a table")
        assert [path.name for path in tmp_path.iterdir()] == [name]
        assert lake.query("SELECT * FROM t", "t").num_rows == 0


def test_a_lake_on_another_host_is_refused() -> None:
    with pytest.raises(InputError, match="a lake on another host, elsewhere"):
        DeltaLake(absolute("file://elsewhere/lake", Path("/")))


def test_an_address_that_deltalake_does_not_know_is_reported_with_the_one_that_it_does() -> None:
    with pytest.raises(InputError, match=r"gcs://bucket/lake: .* gs://"):
        DeltaLake("gcs://bucket/lake")


OUTSIDE = (
    "{elsewhere}/{file}",
    "file://{elsewhere}/{file}",
    "../../elsewhere/{file}",
    "%2e%2e/%2E./elsewhere/{file}",
    "../things-too/{file}",
    "day=1/..%2f..%2fthings-too%2f{file}",
    "%252e%252e/things-too/{file}",
    "..\\things-too\\{file}",
    "s3://somebody/{file}",
)


@pytest.mark.parametrize("path", OUTSIDE)
def test_a_log_that_names_a_file_elsewhere(lake: DeltaLake, tmp_path: Path, path: str) -> None:
    """Whoever can write a line into a table's log cannot have a file of somebody else read as ours."""
    assert commit_one(lake.uri, 1, 10)
    for folder in (tmp_path / "elsewhere", tmp_path / "lake" / "things-too"):
        folder.mkdir(exist_ok=True)
    file = write_rows(lake.uri, "things", pa.table({"number": [42], "text": ["secret"]}, SCHEMA), "test")
    named = path.format(elsewhere=tmp_path / "elsewhere", file=Path(file.path).name)
    source = Path(lake.uri, "things", file.path)
    for target in (tmp_path / "elsewhere", tmp_path / "lake" / "things-too", source.parent / path.partition("/")[0]):
        if target.is_dir():
            (target / Path(file.path).name).write_bytes(source.read_bytes())
    assert numbers(lake) == [10]
    name_file(Path(lake.uri, "things"), named, file.size_bytes)
    with pytest.raises(InputError, match="names a file outside of its folder"):
        numbers(lake)
    with pytest.raises(InputError, match="names a file outside of its folder"):
        DeltaLake(lake.uri).open("things")


def append(lake: DeltaLake, table: str, number: int, application: str, version: int) -> bool:
    return lake.append_rows(table, pa.table({"number": [number], "text": ["x"]}, SCHEMA), application, version)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tables whose logs are read, one after the other."""
    read: list[str] = []
    opened, updated = DeltaLake.open, DeltaTable.update_incremental

    def note_open(lake: DeltaLake, table: str) -> DeltaTable:
        read.append(table)
        return opened(lake, table)

    def note_update(table: DeltaTable) -> None:
        read.append(Path(table.table_uri).name)
        updated(table)

    monkeypatch.setattr(DeltaLake, "open", note_open)
    monkeypatch.setattr(DeltaTable, "update_incremental", note_update)
    return read


def test_a_log_is_read_once_and_after_each_own_commit(lake: DeltaLake, reads: list[str]) -> None:
    with lake.reading_once():
        assert [numbers(lake), numbers(lake), lake.versions("things", ["app"])] == [[], [], [0]]
        assert reads == ["things"]
        assert append(lake, "things", 1, "app", 1)
        assert [numbers(lake), numbers(lake), lake.versions("things", ["app"])] == [[1], [1], [1]]
        assert reads == ["things"] * 2
    numbers(lake)
    numbers(lake)
    assert reads == ["things"] * 4, "elsewhere a table is what it is now"


def test_a_commit_of_another_run_is_met_by_the_own_one(lake: DeltaLake) -> None:
    """Several commits later, too: of the same transaction it is refused, of another one it comes after them."""
    lake.create("others", SCHEMA, "another thing")
    with lake.reading_once():
        assert (numbers(lake), lake.versions("others", ["app"])) == ([], [0])
        other = DeltaLake(lake.uri)
        assert [append(other, "things", each, f"app-{each}", 1) for each in (1, 2, 3)] == [True] * 3
        assert append(other, "others", 1, "app", 1)
        assert numbers(lake) == [], "as it was read"
        assert not append(lake, "things", 10, "app-1", 1)
        assert numbers(lake) == [1, 2, 3]
        assert lake.versions("others", ["app"]) == [1], "every table is read again"
        assert append(other, "things", 4, "app-4", 1)
        assert append(lake, "things", 5, "app-5", 1)
    assert numbers(lake) == [1, 2, 3, 4, 5]
    assert lake.versions("things", [f"app-{each}" for each in range(1, 6)]) == [1] * 5


def test_plans_of_another_run_make_every_table_stale(tmp_path: Path) -> None:
    """Their rows are in tables that were read before."""
    lake = DeltaLake(str(tmp_path / "lake"))
    for table in ("plans", "things"):
        lake.create(table, SCHEMA, "rows")
    with lake.reading_once():
        assert (lake.versions("plans", ["app"]), numbers(lake)) == ([0], [])
        assert append(lake, "plans", 1, "own", 1)
        other = DeltaLake(lake.uri)
        assert append(other, "things", 1, "app", 1)
        assert lake.versions("plans", ["own"]) == [1]
        assert numbers(lake) == [], "nothing in plans but what this run did"
        assert append(other, "plans", 2, "app", 1)
        assert append(lake, "plans", 3, "own", 2)
        assert lake.versions("plans", ["app", "own"]) == [1, 2]
        assert numbers(lake) == [1]


def test_a_merge_that_lost_is_made_again_from_what_is_there(lake: DeltaLake) -> None:
    clauses = (MergeClause(MergeAction.INSERT, {"number": "found.number", "text": "found.text"}),)
    rows = pa.table({"number": [1, 2], "text": ["x", "x"]}, SCHEMA)
    merge = Merge("known.number = found.number", clauses, rows=rows)
    with lake.reading_once():
        assert numbers(lake) == []
        assert append(DeltaLake(lake.uri), "things", 1, "app", 1)
        assert lake.small_merges.merge("things", merge, Once("merged", 1, lambda: False))
        assert numbers(lake) == [1, 2]
        assert not lake.small_merges.merge("things", merge, Once("merged", 1, lambda: False))
        assert lake.small_merges.merge("things", merge), "changes nothing"
        assert append(DeltaLake(lake.uri), "things", 3, "app", 2)
        assert not append(lake, "things", 30, "app", 2)
    assert numbers(lake) == [1, 2, 3]
