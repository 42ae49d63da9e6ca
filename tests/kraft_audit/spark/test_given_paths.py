"""Several paths and patterns in format("kraft") are read as commands read several PATHs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import kraft_audit
from kraft_audit.capture.plan import plan_from_json
from kraft_audit.commands.cli import run_command
from kraft_audit.lake.redaction_key import load_key
from kraft_audit.lake.settings import SettingsError
from kraft_audit.spark.path_options import given_paths
from kraft_audit.spark.readers import ClusterTask, TableReader
from kraft_audit.spark.stream import CommittedStreamReader
from kraft_codec.errors import InputError
from kraft_codec.storage.path_patterns import several_paths
from tests.builders.reading_times import WHEN, without_reading_times

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATTERN = "[mt][oi][rn]*[et2].tgz"
"""Matches torn-write.tgz and mini-3.9.2.tgz alone."""
TABLES = ("captures", "files", "batches", "records", "decode_errors", "findings")

RowsOf = Callable[..., list[str]]


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("key") / "key"
    load_key(file, may_create=True)
    return str(file)


@pytest.fixture
def rows_of(key: str) -> RowsOf:
    def rows(table: str, *paths: str | Path, with_paths: bool = True) -> list[str]:
        options = {"paths": json.dumps([str(path) for path in paths]), "table": table, "redactionkeyfile": key}
        reader = TableReader(options)
        found = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
        return as_texts(found, with_paths=with_paths)

    return rows


def as_texts(rows: list[dict[str, Any]], *, with_paths: bool = True) -> list[str]:
    """The rows as sorted JSON, without what says when they were read, or also without where they lie."""
    left_out = WHEN if with_paths else WHEN | {"root", "path"}
    rows = without_reading_times(rows)
    if not with_paths:
        for fact in (fact for row in rows for fact in row.get("evidence") or ()):
            fact.update(path=None, file_name=None)
    return sorted(
        json.dumps({name: value for name, value in row.items() if name not in left_out}, default=str) for row in rows
    )


def without_captures(rows: list[str]) -> list[str]:
    return sorted(json.dumps({**json.loads(row), "capture": None}) for row in rows)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"path": "a"}, ["a"]),
        ({"paths": '["a", "b/*"]'}, ["a", "b/*"]),
        ({"paths": '["b"]', "path": "a"}, ["b", "a"]),
    ],
)
def test_paths_are_as_spark_passes_them(options: dict[str, str], expected: list[str]) -> None:
    assert given_paths(options) == expected


@pytest.mark.parametrize("text", ["a,b", "['a', 'b']", "[]", "[1]", '"a"', "{}", "null"])
def test_other_paths_are_refused_with_the_form_that_is_expected(text: str) -> None:
    with pytest.raises(SettingsError) as raised:
        given_paths({"paths": text})
    assert str(raised.value).endswith('expected a JSON list of paths, as ["/captures/a", "/captures/b"]; or load([…])')


@pytest.mark.slow
@pytest.mark.parametrize("form", ["nodes", "pattern", "twice", "log dirs", "archive", "with a comma"])
def test_nodes_of_one_cluster_are_read_as_their_folder(
    two_nodes: Sequence[Path], tmp_path: Path, rows_of: RowsOf, form: str
) -> None:
    given: list[str | Path] = list(two_nodes)
    roots = {str(node) for node in two_nodes}
    if form == "pattern":
        given = [f"{tmp_path}/both/n*"]
    elif form == "twice":
        given = [two_nodes[1], two_nodes[0], two_nodes[1]]
    elif form == "log dirs":
        given = [node / "__cluster_metadata-0" for node in two_nodes]
        roots = {str(path) for path in given}
    elif form == "archive":
        packed = shutil.make_archive(str(tmp_path / "elsewhere"), "gztar", two_nodes[1].parent, two_nodes[1].name)
        given = [two_nodes[0], packed]
        roots = {str(two_nodes[0]), packed}
    elif form == "with a comma":
        given = [two_nodes[0], shutil.copytree(two_nodes[1], tmp_path / "apart" / "node,2")]
        roots = {str(path) for path in given}
    for table in ("captures", "batches", "records", "findings"):
        found = rows_of(table, *given, with_paths=False)
        expected = rows_of(table, tmp_path / "both", with_paths=False)
        if table == "captures" and form == "archive":
            found = [row.replace('"archive"', '"directory"') for row in found]
        assert found == expected != [], table
    assert {json.loads(row)["root"] for row in rows_of("captures", *given)} == roots


@pytest.mark.slow
def test_a_segment_by_itself_is_read_beside_others(two_nodes: Sequence[Path], rows_of: RowsOf) -> None:
    """It does not say which node's it is, so its batches are those of that node, without its id."""
    segment = two_nodes[1] / "__cluster_metadata-0" / "00000000000000000000.log"

    def log(node_id: int | None, *paths: Path) -> list[tuple[int, int]]:
        rows = [json.loads(row) for row in rows_of("batches", *paths)]
        return sorted(
            (row["base_offset"], row["crc"]) for row in rows if (row["node_id"], row["source"]) == (node_id, "log")
        )

    assert log(None, two_nodes[0], segment) == log(2, two_nodes[1]) != []
    assert log(1, two_nodes[0], segment) == log(1, two_nodes[0]) != []


@pytest.mark.slow
@pytest.mark.parametrize("table", TABLES)
def test_clusters_of_several_paths_are_each_as_if_given_alone(table: str, samples: Path, rows_of: RowsOf) -> None:
    """All columns but the name of the capture, paths too. One path holds damage, and it stays below that path."""
    paths = [samples / "torn-write.tgz", samples / "mini-3.9.2.tgz"]
    alone = [row for path in paths for row in rows_of(table, path)]
    together = rows_of(table, *paths)
    assert without_captures(together) == without_captures(alone) != []
    assert rows_of(table, samples / PATTERN) == together


@pytest.mark.slow
def test_captures_are_named_as_the_command_names_them(samples: Path, rows_of: RowsOf) -> None:
    paths = [samples / "torn-write.tgz", samples / "mini-3.9.2.tgz"]
    with kraft_audit.open(several_paths(list(map(str, paths)))) as clusters:
        expected = {(plan.cluster_id, replica.capture) for plan in clusters.plans for replica in plan.replicas}
    rows = [json.loads(row) for row in rows_of("captures", *paths)]
    assert {(row["cluster_id"], row["capture"]) for row in rows} == expected
    assert len(expected) == 2


def test_a_task_opens_only_the_paths_of_its_clusters(samples: Path) -> None:
    paths = [str(samples / "mini-3.9.2.tgz"), str(samples / "torn-write.tgz")]
    (task,) = TableReader({"paths": json.dumps(paths)}).partitions()
    assert isinstance(task, ClusterTask)
    plans = [plan_from_json(text) for text, _ in task.clusters]
    assert sorted({replica.root for replica in plan.replicas} == {path} for plan in plans for path in paths) == [
        False, False, True, True,
    ]  # fmt: skip


@pytest.mark.slow
def test_a_stream_has_the_clusters_of_all_paths(samples: Path) -> None:
    paths = [str(samples / "mini-3.9.2.tgz"), str(samples / "torn-write.tgz")]
    alone = [CommittedStreamReader({"path": path}) for path in paths]
    ends = [reader.latestOffset({}, reader.getDefaultReadLimit()) for reader in alone]
    together = CommittedStreamReader({"paths": json.dumps(paths)})
    assert together.latestOffset({}, together.getDefaultReadLimit()) == ends[0] | ends[1]
    assert len(ends[0] | ends[1]) == 2


@pytest.fixture
def unreadable(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("no log\n")
    return {
        "missing": str(tmp_path / "nowhere"),
        "pattern without a match": str(tmp_path / "n*.tgz"),
        "empty folder": str(tmp_path / "empty"),
        "no log": str(tmp_path / "notes.txt"),
    }


def line_of_check(capsys: pytest.CaptureFixture[str], *paths: str) -> str:
    assert run_command(["check", *paths]) == 3
    (line,) = capsys.readouterr().err.splitlines()
    return line.removeprefix("kraft-audit: ")


@pytest.mark.parametrize("name", ["missing", "pattern without a match", "empty folder", "no log"])
def test_errors_are_the_lines_of_the_command(
    name: str, unreadable: dict[str, str], samples: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError) as raised:
        TableReader({"path": unreadable[name]}).partitions()
    assert str(raised.value) == line_of_check(capsys, unreadable[name])
    if name == "empty folder":
        return  # beside others it is no error
    beside = [str(samples / "jbod.tgz"), unreadable[name]]
    with pytest.raises(InputError) as raised:
        TableReader({"paths": json.dumps(beside)}).partitions()
    assert str(raised.value) == line_of_check(capsys, *beside)


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_load_of_a_list_a_pattern_and_a_path_that_is_missing(
    spark: SparkSession, samples: Path, key: str, unreadable: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    reader = spark.read.format("kraft").option("table", "batches").option("redactionKeyFile", key)
    paths = [str(samples / "torn-write.tgz"), str(samples / "mini-3.9.2.tgz")]

    def rows(*given: Any) -> list[str]:
        return as_texts([row.asDict() for row in reader.load(*given).collect()])

    together = rows(paths)
    assert without_captures(together) == without_captures(rows(paths[0]) + rows(paths[1])) != []
    assert rows(f"{samples}/{PATTERN}") == together
    expected = line_of_check(capsys, unreadable["missing"])
    with pytest.raises(Exception, match="nowhere") as raised:
        reader.load([paths[0], unreadable["missing"]]).collect()
    assert expected in str(raised.value)
    assert "Traceback" not in str(raised.value)
    with pytest.raises(Exception, match="JSON list of paths") as raised:
        spark.read.format("kraft").option("paths", "a,b").load()
    assert "Traceback" not in str(raised.value)
