"""Hours in which the fleet or the lake was not as before end in the tables of hours in which nothing was odd."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from kraft_audit.commands.cli import run_command
from kraft_audit.lake.delta import DeltaLake
from kraft_codec.errors import InputError

CAPTURES = ("06-kill-13-last-replica", "29-stopped", "29-stopped")
SAID = "SELECT rule, subject, state, severity, summary, from_offset, to_offset FROM findings"


class Hours:
    """Hours of one cluster, whose disks are those of one capture after the other."""

    def __init__(self, folder: Path, corpus: Path, lake: str) -> None:
        self.folder, self.corpus = folder, corpus
        self.live, self.lake = folder / f"live-{lake}", folder / lake
        self.hour = 0

    def pass_hour(self, capture: str, name: str = "elr") -> int:
        """The exit code of an hour's run."""
        self.hour += 1
        shutil.rmtree(self.live, ignore_errors=True)
        shutil.copytree(self.corpus / "elr" / capture, self.live)
        for file in self.live.rglob("*"):
            os.utime(file, (1_700_000_000.5 + self.hour,) * 2)
        fleet = self.folder / f"{self.lake.name}.yaml"
        clusters = [{"name": name, "paths": [str(self.live)]}]
        fleet.write_text(yaml.safe_dump({"lake": str(self.lake), "redaction_key_file": "key", "clusters": clusters}))
        return run_command(["run", str(fleet), "--engine", "local", "--then", "findings"])

    def said(self) -> list[tuple[object, ...]]:
        """What the table `findings` says."""
        rows = DeltaLake(str(self.lake)).query(SAID, "findings").to_pylist()
        return sorted((*(str(value) for value in row.values()),) for row in rows)


@pytest.fixture
def make_hours(tmp_path: Path, small_corpus: Path) -> Callable[[str], Hours]:
    return lambda lake: Hours(tmp_path, small_corpus, lake)


@pytest.fixture
def usual(make_hours: Callable[[str], Hours]) -> Hours:
    hours = make_hours("usual")
    assert [hours.pass_hour(capture) for capture in CAPTURES] == [0, 0, 0]
    return hours


@pytest.mark.ci
def test_a_cluster_that_is_renamed(usual: Hours, make_hours: Callable[[str], Hours]) -> None:
    renamed = make_hours("renamed")
    names = ("elr", "orders", "orders")
    assert [renamed.pass_hour(capture, name) for capture, name in zip(CAPTURES, names, strict=True)] == [0, 0, 0]
    assert renamed.said() == usual.said()
    newest = DeltaLake(str(renamed.lake)).query("SELECT cluster_name FROM clusters ORDER BY valid_from_ms", "clusters")
    assert newest["cluster_name"].to_pylist()[-1] == "orders"


@pytest.mark.ci
@pytest.mark.long
def test_a_lake_that_could_not_be_written_for_an_hour(
    usual: Hours, make_hours: Callable[[str], Hours], monkeypatch: pytest.MonkeyPatch
) -> None:
    hours = make_hours("refusing")
    assert hours.pass_hour(CAPTURES[0]) == 0

    @contextlib.contextmanager
    def refused(lake: DeltaLake, table: str) -> Iterator[None]:
        raise InputError(lake.table_uri(table), "Read-only file system")
        yield

    with monkeypatch.context() as without:
        without.setattr(DeltaLake, "writing", refused)
        assert hours.pass_hour(CAPTURES[1]) == 3
    assert [hours.pass_hour(capture) for capture in CAPTURES[1:]] == [0, 0]
    assert hours.said() == usual.said()
