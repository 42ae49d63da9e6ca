"""Joined files hold the same rows in no more bytes than one writing of them takes, and one transaction swaps them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from kraft_audit.lake import joined_files
from kraft_audit.lake.data_files import write_rows
from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.joined_files import LIKE_FILES, files_of_like_size, is_plain, join_files, small_files
from kraft_audit.lake.maintenance import DeltaMaintainer, maintain_lake
from kraft_audit.lake.settings import FleetSettings, MaintainSettings, load_maintain
from kraft_audit.tables import LAKE_TABLES
from kraft_codec.errors import InputError
from tests.builders.lakes import CLUSTERS, staged_at_once

TABLE = "things"
SCHEMA = pa.schema([pa.field("cluster_id", pa.string()), pa.field("offset", pa.int64()), pa.field("late", pa.int32())])


@pytest.fixture
def lake(tmp_path: Path) -> DeltaLake:
    """A table of four files, the first of which was written before the column `late` came."""
    lake = DeltaLake(str(tmp_path))
    lake.create(TABLE, SCHEMA, "for a test")
    for number in range(4):
        offsets = range(1000 * number, 1000 * number + 1000)
        rows = pa.table({"cluster_id": ["b", "a"] * 500, "offset": offsets, "late": [number] * 1000}, SCHEMA)
        rows = rows.drop_columns(["late"]) if number == 0 else rows
        lake.commit(TABLE, [write_rows(lake.uri, TABLE, rows, "plan")], SCHEMA, "test", number + 1)
    return lake


def rows_of(lake: DeltaLake) -> pa.Table:
    """The rows in the order of the files, which are read by Arrow alone."""
    files = sorted(lake.open(TABLE).file_uris())
    return pa.concat_tables(pq.read_table(file, schema=SCHEMA) for file in files)


def join(lake: DeltaLake, *columns: str) -> None:
    table = lake.open(TABLE)
    join_files(table, lake.uri, TABLE, small_files(table, 1 << 20), columns)


def test_rows_stay_in_their_order_and_keep_their_encodings(lake: DeltaLake) -> None:
    join(lake)
    (file,) = lake.open(TABLE).file_uris()
    rows = pq.read_table(file)
    assert rows.column("offset").to_pylist() == list(range(4000))
    assert rows.column("late").to_pylist() == [None] * 1000 + [1] * 1000 + [2] * 1000 + [3] * 1000
    chunk = pq.read_metadata(file).row_group(0)
    encodings = {chunk.column(number).path_in_schema: chunk.column(number).encodings for number in range(3)}
    assert "DELTA_BINARY_PACKED" in encodings["offset"]
    assert "RLE_DICTIONARY" in encodings["cluster_id"]
    assert [chunk.column(number).compression for number in range(3)] == ["ZSTD"] * 3
    statistics = lake.query("SELECT count(*) AS n FROM things WHERE offset >= 3999", TABLE)
    assert statistics.column("n").to_pylist() == [1]


def test_one_transaction_that_changes_no_row(lake: DeltaLake) -> None:
    before = set(lake.open(TABLE).file_uris())
    join(lake)
    newest = max(Path(lake.table_uri(TABLE), "_delta_log").glob("*.json"))
    actions = [json.loads(line) for line in newest.read_text().splitlines()]
    removed = {f"{lake.table_uri(TABLE)}/{action['remove']['path']}" for action in actions if "remove" in action}
    assert removed == {uri.removeprefix("file://") for uri in before}
    said = [action[kind]["dataChange"] for action in actions for kind in ("add", "remove") if kind in action]
    assert said == [False] * 5
    assert lake.versions(TABLE, ["test"]) == [4], "what plans were committed stays known"


def test_parts_are_ordered_one_by_one(lake: DeltaLake, monkeypatch: pytest.MonkeyPatch) -> None:
    join(lake, "cluster_id", "offset")
    keys = list(zip(*(rows_of(lake).column(name).to_pylist() for name in ("cluster_id", "offset")), strict=True))
    assert keys == sorted(keys)
    assert len(keys) == 4000
    monkeypatch.setattr(joined_files, "SORTED_BYTES", 1)
    monkeypatch.setattr(joined_files, "ROWS_AT_ONCE", 100)
    join(lake, "offset")
    offsets = rows_of(lake).column("offset").to_pylist()
    assert offsets != sorted(offsets)
    assert all(offsets[at : at + 100] == sorted(offsets[at : at + 100]) for at in range(0, 4000, 100))
    assert sorted(offsets) == list(range(4000))


@pytest.mark.parametrize("what", ["joined", "deleted"])
def test_files_that_another_run_changed_are_not_joined(lake: DeltaLake, what: str) -> None:
    """Deltalake's own conflict check lets a transaction pass that changes no row: rows would be there twice."""
    slow = lake.open(TABLE)
    files = small_files(slow, 1 << 20)
    if what == "joined":
        join(lake)
    else:
        lake.open(TABLE).delete("offset < 10")
    rows = rows_of(lake).num_rows
    before = {path.name for path in Path(lake.table_uri(TABLE)).glob("*.parquet")}
    with pytest.raises(InputError, match="another run changed files"):
        join_files(slow, lake.uri, TABLE, files)
    assert {path.name for path in Path(lake.table_uri(TABLE)).glob("*.parquet")} == before
    assert rows_of(lake).num_rows == rows == (4000 if what == "joined" else 3990)


def test_rows_that_came_meanwhile_stay(lake: DeltaLake) -> None:
    slow = lake.open(TABLE)
    files = small_files(slow, 1 << 20)
    rows = pa.table({"cluster_id": ["c"], "offset": [4000], "late": [4]}, SCHEMA)
    assert lake.append_rows(TABLE, rows, "test", 5)
    join_files(slow, lake.uri, TABLE, files)
    assert sorted(rows_of(lake).column("offset").to_pylist()) == list(range(4001))
    assert len(lake.file_sizes(TABLE)) == 2


def test_hour_after_hour_leaves_few_files(lake: DeltaLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of similar size become one, so that rows are written again as often as the hours have digits."""
    monkeypatch.setattr(joined_files, "SMALL_BYTES", 8 << 20)
    counts, written = [], 0
    texts = random.Random(7)  # noqa: S311  # rows that do not compress
    for hour in range(5, 69):
        names = [f"{texts.getrandbits(128):032x}" for _ in range(1000)]
        rows = pa.table({"cluster_id": names, "offset": range(1000 * hour, 1000 * hour + 1000), "late": [1] * 1000})
        with lake.reading_once():
            before = set(lake.open(TABLE).file_uris())
            lake.join_small_files(TABLE)
            after = {uri for uri in lake.open(TABLE).file_uris() if uri not in before}
            written += sum(pq.read_metadata(uri).num_rows for uri in after)
            assert lake.append_rows(TABLE, rows.cast(SCHEMA), "test", hour)
            assert lake.versions(TABLE, ["test"]) == [hour]
            assert lake.query("SELECT count(*) AS n FROM things", TABLE)["n"].to_pylist() == [4000 + 1000 * (hour - 4)]
        counts.append(len(lake.file_sizes(TABLE)))
    assert max(counts) <= 3 * LIKE_FILES
    assert written <= 4 * 68_000, "of 68,000 rows, each three times or so"
    offsets = sorted(rows_of(lake).column("offset").to_pylist())
    assert offsets == [*range(4000), *range(5000, 69_000)]


def names_of(lake: DeltaLake) -> set[str]:
    return {Path(uri).name for uri in lake.open(TABLE).file_uris()}


def on_disk(lake: DeltaLake) -> set[str]:
    return {path.name for path in Path(lake.table_uri(TABLE)).glob("*.parquet")}


@pytest.mark.parametrize("error", [OSError("no space left"), KeyboardInterrupt()])
def test_a_commit_that_landed_and_then_failed_keeps_its_files(
    lake: DeltaLake, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """What Delta does after a commit may fail: the table already names the new files."""
    commit = DeltaTable.create_write_transaction

    def commit_and_fail(*arguments: Any, **options: Any) -> None:
        commit(*arguments, **options)
        raise error

    with lake.reading_once():
        assert len(rows_in(lake)) == 4000
        with monkeypatch.context() as patched:
            patched.setattr(DeltaTable, "create_write_transaction", commit_and_fail)
            with pytest.raises((InputError, KeyboardInterrupt)):
                lake.join_small_files(TABLE)
        assert sorted(rows_in(lake)) == list(range(4000))
    assert len(names_of(lake)) == 1
    assert sorted(rows_of(lake).column("offset").to_pylist()) == list(range(4000))


@pytest.mark.parametrize("attempts", [1, 20])
def test_a_commit_whose_answer_was_lost_is_known_again(
    lake: DeltaLake, monkeypatch: pytest.MonkeyPatch, attempts: int
) -> None:
    """The store says that there is such a commit: it is our own."""
    monkeypatch.setattr(joined_files, "COMMIT_ATTEMPTS", attempts)
    commit = DeltaTable.create_write_transaction

    def commit_unheard(*arguments: Any, **options: Any) -> None:
        commit(*arguments, **options)
        raise CommitFailedError("there already")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", commit_unheard)
    join(lake)
    assert len(names_of(lake)) == 1
    assert sorted(rows_of(lake).column("offset").to_pylist()) == list(range(4000))


def test_a_commit_that_failed_for_certain_leaves_no_file(lake: DeltaLake, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise CommitFailedError("another commit came first")

    monkeypatch.setattr(joined_files, "COMMIT_ATTEMPTS", 2)
    monkeypatch.setattr(DeltaTable, "create_write_transaction", refuse)
    before = on_disk(lake)
    with pytest.raises(InputError, match="2 attempts to commit joined files"):
        join(lake)
    assert on_disk(lake) == before


def rows_in(lake: DeltaLake) -> list[int]:
    return [int(value) for value in lake.query("SELECT offset FROM things", TABLE)["offset"].to_pylist()]


def test_two_runs_that_join_at_once(lake: DeltaLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one leaves the files to the first, and reads what that left."""
    slow, commit = DeltaLake(lake.uri), joined_files._commit

    def commit_late(*arguments: Any) -> None:
        monkeypatch.setattr(joined_files, "_commit", commit)
        lake.join_small_files(TABLE)
        commit(*arguments)

    monkeypatch.setattr(joined_files, "_commit", commit_late)
    with slow.reading_once():
        slow.join_small_files(TABLE)
        rows = pa.table({"cluster_id": ["c"], "offset": [4000], "late": [4]}, SCHEMA)
        assert slow.append_rows(TABLE, rows, "test", 5)
    assert len(names_of(lake)) == 2
    assert len(on_disk(lake)) == 4 + 2, "the second one deleted what it had written"
    assert sorted(rows_of(lake).column("offset").to_pylist()) == list(range(4001))


def test_files_of_other_sizes_and_large_ones_are_no_company(lake: DeltaLake, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"cluster {number * number}" for number in range(10_000)]
    rows = pa.table({"cluster_id": names, "offset": range(10_000), "late": [4] * 10_000}, SCHEMA)
    assert lake.append_rows(TABLE, rows, "test", 5)
    (joined,) = files_of_like_size(lake.open(TABLE))
    sizes = sorted(lake.file_sizes(TABLE))
    assert sorted(file.size_bytes for file in joined) == sizes[:4], "not the file of many rows"
    monkeypatch.setattr(joined_files, "SMALL_BYTES", sizes[3])
    before = lake.open(TABLE).version()
    lake.join_small_files(TABLE)
    assert lake.open(TABLE).version() == before


def test_large_files_are_left_alone(lake: DeltaLake) -> None:
    table = lake.open(TABLE)
    sizes = lake.file_sizes(TABLE)
    assert {file.size_bytes for file in small_files(table, max(sizes))} == {size for size in sizes if size < max(sizes)}
    assert [file.modified_ms for file in small_files(table, 1 << 20)] == sorted(
        file.modified_ms for file in small_files(table, 1 << 20)
    )


def test_a_table_with_partitions_is_left_to_deltas_own_reader(tmp_path: Path) -> None:
    for number in range(3):
        write_deltalake(
            str(tmp_path / "parts"), pa.table({"day": [1, 2], "n": [number, number]}), partition_by="day", mode="append"
        )
    lake = DeltaLake(str(tmp_path))
    assert not is_plain(lake.open("parts"))
    assert DeltaMaintainer(lake, 1 << 28).arrange("parts", []) == "compacted"
    assert len(lake.file_sizes("parts")) == 2
    rows = lake.query("SELECT day, n FROM parts ORDER BY day, n", "parts").to_pylist()
    assert rows == [{"day": day, "n": n} for day in (1, 2) for n in range(3)]


@pytest.mark.slow
@pytest.mark.parametrize("conf", [None, "conf/maintain.yaml"])
def test_a_maintained_lake_is_no_larger_than_its_rows_staged_at_once(
    small_corpus: Path, make_fleet: Callable[..., FleetSettings], without_spark: ModuleType, project_root: Path,
    tmp_path: Path, conf: str | None,
) -> None:  # fmt: skip
    """Three runs, each a cluster more. What staging takes for all rows in one writing is the measure."""
    for count in range(1, len(CLUSTERS) + 1):
        fleet = make_fleet({name: [small_corpus / name] for name in CLUSTERS[:count]})
        without_spark.run(fleet)
    lake = DeltaLake(fleet.lake)
    at_once = {table: staged_at_once(lake, table, tmp_path / "at-once") for table in LAKE_TABLES if lake.exists(table)}
    settings = MaintainSettings() if conf is None else load_maintain(project_root / conf)
    done = list(maintain_lake(lake, DeltaMaintainer(lake, settings.target_file_bytes), settings))
    assert not [outcome.failure for outcome in done if outcome.failure]
    assert sum(outcome.layout != "" for outcome in done) > 10
    unordered = {outcome.table: outcome.size_bytes_after for outcome in done if outcome.layout == "compacted"}
    assert {table: size for table, size in unordered.items() if size > at_once[table]} == {}
    assert sum(outcome.size_bytes_after for outcome in done) <= sum(at_once.values())
