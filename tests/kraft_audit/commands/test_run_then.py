"""`run --then`: the gate, findings, pages and messages of an hour in the run's own process, as the commands do them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraft_audit.commands.cli import run_command
from kraft_audit.lake.delta import DeltaLake
from tests.builders.lakes import write_fleet
from tests.builders.notified_lakes import Listener, listener

CLUSTERS = ("elr", "divergence")
RUN = ("--engine", "local", "--output", "json")


@pytest.fixture
def tickets() -> Iterator[Listener]:
    with listener() as found:
        yield found


def written(folder: Path, corpus: Path, lake: str) -> Path:
    """A fleet file of small clusters; its lake."""
    write_fleet(folder, {name: [corpus / name] for name in CLUSTERS}, lake, f"{lake}.yaml")
    return folder / f"{lake}.yaml"


def config(folder: Path, tickets: Listener) -> Path:
    (folder / "tickets.url").write_text(tickets.url)
    (folder / "tickets.url").chmod(0o600)
    file = folder / "notify.yaml"
    file.write_text("severity: low\ntargets: {tickets: {webhook_file: tickets.url}}\nroutes: [{to: [tickets]}]\n")
    return file


def open_findings(lake: Path) -> set[str]:
    rows = DeltaLake(str(lake)).query("SELECT finding_id FROM findings WHERE state = 'open'", "findings")
    return set(rows["finding_id"].to_pylist())


@pytest.mark.ci
def test_it_does_what_the_five_commands_do(
    small_corpus: Path, tmp_path: Path, tickets: Listener, capsys: pytest.CaptureFixture[str]
) -> None:
    together, apart = (written(tmp_path, small_corpus, name) for name in ("together", "apart"))
    told = config(tmp_path, tickets)
    out = ["--out", str(tmp_path / "pages"), "--config", str(told)]
    assert run_command(["run", str(together), *RUN, "--then", "quality,findings,report,notify", *out]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert {"quality", "findings", "report", "notify"} <= summary["seconds"].keys()
    assert (summary["broken"], summary["unsent"]) == ([], 0)
    assert summary["pages"] == str(tmp_path / "pages" / "index.html")
    sent = list(tickets.bodies)
    assert sent, "incidents of the first hour"
    tickets.bodies.clear()

    lake = str(tmp_path / "apart")
    for command in (
        ["run", str(apart), *RUN, "--tables-only"],
        ["lake", "quality", lake, "--new"],
        ["run", str(apart), *RUN, "--only", "findings"],
        ["report", lake, "--out", str(tmp_path / "pages-apart")],
        ["notify", lake, "--config", str(told)],
    ):
        assert run_command(command) == 0, command
    names = {page.relative_to(tmp_path / "pages") for page in (tmp_path / "pages").rglob("*.html")}
    assert names == {page.relative_to(tmp_path / "pages-apart") for page in (tmp_path / "pages-apart").rglob("*.html")}
    assert len(tickets.bodies) == len(sent)
    assert open_findings(tmp_path / "together") == open_findings(tmp_path / "apart") != set()


@pytest.mark.ci
def test_a_closed_gate_stops_findings_pages_and_messages(
    small_corpus: Path, tmp_path: Path, tickets: Listener, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A table that breaks its contract: exit code 1, and nothing is published. The tables themselves are there."""
    from kraft_audit.lake.quality import promises

    monkeypatch.setattr(promises, "BYTES_UNACCOUNTED", "SELECT * FROM (SELECT * FROM {batch}) AS batch")
    fleet, told = written(tmp_path, small_corpus, "lake"), config(tmp_path, tickets)
    out = ["--out", str(tmp_path / "pages"), "--config", str(told)]
    assert run_command(["run", str(fleet), *RUN, "--then", "quality,findings,report,notify", *out]) == 1
    shown = capsys.readouterr()
    assert set(json.loads(shown.out)["broken"]) == {"captures.bytes_unaccounted", "files.bytes_unaccounted"}
    assert "critical: captures.bytes_unaccounted" in shown.err
    assert not (tmp_path / "pages").exists()
    assert tickets.bodies == []
    lake = DeltaLake(str(tmp_path / "lake"))
    assert lake.exists("captures")
    assert not lake.exists("findings") or not lake.query("SELECT * FROM findings", "findings").num_rows


@pytest.mark.ci
def test_a_target_that_takes_nothing(small_corpus: Path, tmp_path: Path, tickets: Listener) -> None:
    fleet, told = written(tmp_path, small_corpus, "lake"), config(tmp_path, tickets)
    tickets.refuse = 1_000
    assert run_command(["run", str(fleet), *RUN, "--then", "findings,notify", "--config", str(told)]) == 3


@pytest.mark.unit
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--then", "report,quality", "--out", "site"],
            "expected some of quality,findings,report,notify, in this order",
        ),
        (["--then", "pages"], "expected some of quality,findings,report,notify, in this order"),
        (["--then", ""], "expected some of quality,findings,report,notify, in this order"),
        (["--then", "quality,quality"], "in this order"),
        (["--then", "findings,report"], "--then report and --out DIR need each other"),
        (["--then", "findings", "--out", "site"], "--then report and --out DIR need each other"),
        (["--then", "notify"], "--then notify and --config FILE need each other"),
        (["--out", "site"], "--out and --config need --then"),
        (["--then", "findings", "--tables-only"], "leave out --abandon, --finish, --only and --tables-only"),
        (["--then", "findings", "--only", "plan"], "leave out --abandon, --finish, --only and --tables-only"),
        (["--then", "findings,notify", "--config", "missing.yaml"], "missing.yaml"),
    ],
)
def test_words_that_do_not_fit(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["run", "fleet.yaml", *words]) in (2, 3)
    assert said in " ".join(capsys.readouterr().err.split())


@pytest.mark.unit
def test_pages_go_beside_the_lake_and_not_into_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As `report` has it, also before there is a lake."""
    write_fleet(tmp_path, {"elr": [tmp_path / "logs"]}, "lake")
    then = ["--then", "findings,report", "--out", str(tmp_path / "lake" / "site")]
    assert run_command(["run", str(tmp_path / "fleet.yaml"), *then]) == 2
    assert f"lies in {tmp_path / 'lake'}" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "lake").exists()
