"""What was asked for and is not there, cannot be, or is one cluster's of several: said, never passed over."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from pathlib import Path

import pytest

from kraft_audit.commands.cli import COMMANDS, function_of
from tests.builders.captures import SMALL_CORPUS

ELR = "samples/elr-06-kill-13-last-replica.tgz"
PROVENANCE = ("from_offset", "from_epoch", "timestamp_ms", "cause")


@pytest.fixture
def two_clusters(small_corpus: Path, tmp_path: Path) -> Path:
    for name in ("divergence/12-after-truncation", "jbod/01-one-dir-failed"):
        shutil.copytree(small_corpus / name, tmp_path / "two" / name.partition("/")[0])
    return tmp_path / "two"


def test_a_table_of_differences_stands_under_its_cluster(kraft_audit, two_clusters: Path) -> None:
    options = ("diff", two_clusters, "--from", "8", "--to", "20", "--only", "brokers")
    rows = json.loads(kraft_audit(*options, "-o", "json").out)
    assert len({row["cluster_id"] for row in rows}) == 2
    under: dict[str, list[str]] = {}
    for line in kraft_audit(*options).out.splitlines():
        if found := re.match(r"(\S{22})   offset ", line):
            here = under.setdefault(found[1], [])
        elif line.startswith("brokers "):
            here.append(line.split()[1])
    assert under == {
        row["cluster_id"]: [finding["subject"] for finding in rows if finding["cluster_id"] == row["cluster_id"]]
        for row in rows
    }


@pytest.mark.parametrize("table", ["records", "batches", "captures", "files"])
def test_a_dump_of_several_clusters_names_the_cluster_of_each_row(kraft_audit, two_clusters: Path, table: str) -> None:
    rows = [
        json.loads(line) for line in kraft_audit("dump", two_clusters, "--table", table, "-o", "jsonl").out.splitlines()
    ]
    lines = kraft_audit("dump", two_clusters, "--table", table).out.splitlines()
    assert [line.split()[0] for line in lines] == ["cluster", *(row["cluster_id"] for row in rows)]
    lines = kraft_audit("dump", two_clusters / "jbod", "--table", table).out.splitlines()
    assert lines[0].split()[0] != "cluster"


@pytest.mark.parametrize(
    ("options", "text"), [([], ""), (["--only", "topics", "--only", "brokers"], " in topics, brokers")]
)
def test_no_difference_is_said(kraft_audit, options: list[str], text: str) -> None:
    ended = kraft_audit("diff", ELR, "--from", "188", "--to", "188", *options)
    assert (ended.code, ended.out.splitlines()[2:]) == (0, [f"no difference{text}"])


@pytest.mark.parametrize(
    ("path", "places"),
    [
        (ELR, ("120", "100")),
        (ELR, ("2026-11-22", "2026-11-21")),
        (ELR, ("100", "2020-01-01")),
        (f"{SMALL_CORPUS}/divergence/10-uncommitted-suffix-live", ("30", "committed")),
    ],
)
def test_a_diff_backwards_is_refused(kraft_audit, path: str, places: tuple[str, str]) -> None:
    ended = kraft_audit("diff", path, "--from", places[0], "--to", places[1])
    assert (ended.code, ended.out) == (2, "")
    assert f"--to: {places[1]}: expected a point at or after --from {places[0]}" in ended.error_lines[-1]


def test_a_state_claims_no_record_that_brought_it_about(kraft_audit) -> None:
    """A row that claims one must agree with the ledger of changes, which knows it."""
    document = json.loads(kraft_audit("state", ELR, "-o", "json").out)
    parts = [name for name in document if isinstance(document[name], list) and name not in ("problems", "voters")]
    rows = [row for name in parts for row in document[name]]
    assert len(rows) > 20
    assert all(row[name] is None for row in rows for name in PROVENANCE)
    assert all(row["cluster_id"] == document["cluster_id"] for row in rows)
    text = kraft_audit("state", ELR, "--only", "features", "-o", "csv").out
    assert {row[name] for row in csv.DictReader(io.StringIO(text)) for name in PROVENANCE} == {""}


def test_a_topic_that_is_not_there_is_said_beside_a_description(kraft_audit) -> None:
    ended = kraft_audit("partitions", ELR, "--describe", "--topic", "nope")
    assert (ended.code, ended.out, len(ended.error_lines)) == (0, "", 1)
    assert ended.error_lines[0].endswith(": no partition of a topic 'nope'")


@pytest.mark.parametrize("table", ["batches", "captures", "files", "decode_errors"])
@pytest.mark.parametrize("options", [["--type", "TOPIC_RECORD"], ["--from", "3"], ["--to", "3"]])
def test_a_table_that_cannot_be_chosen_from_is_not_dumped_whole(kraft_audit, table: str, options: list[str]) -> None:
    ended = kraft_audit("dump", ELR, "--table", table, *options)
    assert (ended.code, ended.out, len(ended.error_lines)) == (2, "", 1)
    assert f"--table {table}" in ended.err


def examples() -> list[str]:
    """The examples in the help of commands that choose something by name below `samples`."""
    texts = [function_of(command).__doc__ or "" for command in COMMANDS]
    lines = [line.strip() for text in texts for line in text.splitlines() if line.strip().startswith("kraft-audit ")]
    return [line for line in lines if " samples/" in line and ("--topic" in line or "--type" in line)]


@pytest.mark.parametrize("example", examples())
def test_an_example_shows_something(kraft_audit, example: str) -> None:
    ended = kraft_audit(*example.split()[1:])
    assert (ended.code, ended.err) == (0, "")
    assert "no partition" not in ended.out
    assert len(ended.out.splitlines()) > 2
