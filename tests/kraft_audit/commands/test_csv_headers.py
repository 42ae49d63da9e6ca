"""The first line of CSV is the same whatever was found: programs read columns by it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kraft_audit.findings.finding_formats import CSV_KEYS
from tests.builders.captures import SMALL_CORPUS
from tests.builders.commands import Command
from tests.builders.logs import Log, write_node
from tests.builders.path_commands import printed_in

ELR = "samples/elr-06-kill-13-last-replica.tgz"
DIVERGENCE = f"{SMALL_CORPUS}/divergence"


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of one control record."""
    log = Log()
    log.lead(1, epoch=1)
    return write_node(tmp_path_factory.mktemp("empty"), 1, log.content)


@pytest.mark.slow
@pytest.mark.parametrize("line", printed_in("csv"), ids=" ".join)
def test_a_header_does_not_depend_on_rows(line: list[str], empty: Path, kraft_audit: Command) -> None:
    filled_path = DIVERGENCE if "--diverge" in line else ELR
    filled, none = (
        kraft_audit(*(str(path) if part == "PATH" else part for part in line)).out.splitlines()
        for path in (filled_path, empty)
    )
    assert filled[0] == none[0]
    if line[0] != "check" or "--incidents" in line:  # whose JSON holds evidence
        rows = kraft_audit(*(filled_path if part == "PATH" else part for part in line[:-1]), "jsonl").out.splitlines()
        assert all(list(json.loads(row)) == filled[0].split(",") for row in rows)


@pytest.mark.slow
def test_the_header_of_check_does_not_depend_on_findings(kraft_audit) -> None:
    filled = kraft_audit("check", ELR, "--output", "csv").out.splitlines()
    none = kraft_audit("check", ELR, "--rule", "KP012", "--output", "csv").out.splitlines()
    assert (len(filled) > 1, len(none)) == (True, 1)
    assert filled[0] == none[0] == ",".join(CSV_KEYS)
