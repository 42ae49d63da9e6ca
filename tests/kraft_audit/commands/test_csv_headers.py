"""The first line of CSV is the same whatever was found: programs read columns by it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kraft_audit.findings.finding_formats import CSV_KEYS
from tests.builders.captures import SMALL_CORPUS
from tests.builders.logs import Log, write_node

ELR = "samples/elr-06-kill-13-last-replica.tgz"
PARTS = ("brokers", "controllers", "topics", "partitions", "configs", "features", "security", "voters")
FILLED = [
    (ELR, ["timeline"]),
    (ELR, ["voters"]),
    (ELR, ["quorum"]),
    (ELR, ["partitions"]),
    (ELR, ["whatif", "--lose", "13"]),
    (ELR, ["recover-plan"]),
    (ELR, ["diff", "--from", "5"]),
    (f"{SMALL_CORPUS}/divergence", ["diverge"]),
    *((ELR, ["dump", "--table", table]) for table in ("records", "batches", "captures", "files")),
    *((ELR, ["state", "--only", part]) for part in PARTS),
]
"""Commands, and what each has rows of; some parts of a state have rows nowhere."""


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of one control record."""
    log = Log()
    log.lead(1, epoch=1)
    return write_node(tmp_path_factory.mktemp("empty"), 1, log.content)


@pytest.mark.slow
@pytest.mark.parametrize(("path", "arguments"), FILLED)
def test_a_header_does_not_depend_on_rows(path: str, arguments: list[str], empty: Path, kraft_audit) -> None:
    name, *options = arguments
    filled = kraft_audit(name, path, *options, "--output", "csv").out.splitlines()
    lines = kraft_audit(name, path, *options, "--output", "jsonl").out.splitlines()
    if lines or name != "state":
        assert filled[0].split(",") == list(json.loads(lines[0]))
    options = ["--from", "0"] if name == "diff" else options
    none = kraft_audit(name, empty, *options, "--output", "csv").out.splitlines()
    assert none[0] == filled[0]


@pytest.mark.slow
def test_the_header_of_check_does_not_depend_on_findings(kraft_audit) -> None:
    filled = kraft_audit("check", ELR, "--output", "csv").out.splitlines()
    none = kraft_audit("check", ELR, "--rule", "KP012", "--output", "csv").out.splitlines()
    assert (len(filled) > 1, len(none)) == (True, 1)
    assert filled[0] == none[0] == ",".join(CSV_KEYS)
