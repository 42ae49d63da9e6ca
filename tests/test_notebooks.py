"""Every notebook runs on the samples and on a simulated incident, and shows what the tables hold."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

pytest.importorskip("nbclient")
pytest.importorskip("vl_convert")

import kraft_audit
from kraft_audit.commands.cli import run_command
from kraft_engine import simulate
from scripts.run_notebook import ParameterError, execute, main

ROOT = Path(__file__).resolve().parents[1]
ON_SPARK = "fleet_on_spark"
"""tests/kraft_audit/spark/test_fleet_on_spark.py runs it on a cluster."""
NOTEBOOKS = [path for path in sorted((ROOT / "notebooks").glob("*.py")) if path.stem != ON_SPARK]
pytestmark = pytest.mark.ci


@pytest.fixture(scope="module")
def incident(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An engine's log dirs, which no notebook was written on."""
    folder = tmp_path_factory.mktemp("incident") / "out"
    simulate("last-replica-standing", 3, folder)
    return folder


def shown(folder: Path, name: str) -> str:
    """All that a notebook printed, drew or raised, as text."""
    notebook = json.loads((folder / f"{name}.ipynb").read_text())
    return json.dumps([cell.get("outputs", []) for cell in notebook["cells"] if cell["cell_type"] == "code"])


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_on_the_samples(notebook: Path, tmp_path: Path) -> None:
    assert execute(notebook, tmp_path, {})
    page = (tmp_path / f"{notebook.stem}.html").read_text()
    assert "<table" in page
    assert page.index('<img alt="A drawing') < page.index("<table"), "a picture first"
    assert "import kraft_audit" not in page, "the code is in the notebook"
    assert "<script" not in page
    assert "://" not in page.replace("http://www.w3.org", "").replace("https://www.w3.org", ""), (
        "a page fetches nothing"
    )
    headings = re.findall(r"<th>(.*?)</th>", page)
    assert headings
    assert all(heading[:1].isupper() or heading[:1].isdigit() for heading in headings), "people read them; no index"
    assert not [heading for heading in headings if "_" in heading]
    assert not re.search(r"\+00:00|&lt;NA&gt;|\bNaN\b|\bNaT\b", page)


def test_the_numbers_are_those_of_the_pages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(ROOT / "notebooks" / "fleet_risk.py", tmp_path, {"PATH": "samples"})
    assert run_command(["report", str(ROOT / "samples"), "--out", str(tmp_path / "site")]) == 0
    counted = re.search(r"(\d+) open findings", capsys.readouterr().out)
    assert counted is not None
    assert f"{counted[1]} findings are open" in (tmp_path / "fleet_risk.html").read_text()


def test_a_reverted_change_is_not_said_to_last(tmp_path: Path) -> None:
    """The sample's voter change was reverted after 20 seconds."""
    assert execute(ROOT / "notebooks" / "voter_change_audit.py", tmp_path, {})
    now, _, before = (tmp_path / "voter_change_audit.html").read_text().partition("What they found before")
    assert "KV006" not in now
    assert "KV006" in before


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_on_a_simulated_incident(notebook: Path, incident: Path, tmp_path: Path) -> None:
    assert execute(notebook, tmp_path, {"PATH": str(incident)})
    rule = {"fleet_risk": "KP018", "incident_timeline": "KP001"}.get(notebook.stem, "")
    assert rule in shown(tmp_path, notebook.stem), (
        "what the run is about: the last replica, and what is open at its end"
    )


def test_what_each_disk_holds_is_drawn(captured_logs: Path) -> None:
    """Also what it held before: an epoch that an earlier capture showed is in every bar that goes on from it."""
    (cluster,) = kraft_audit.open(str(captured_logs / "divergence"))
    starts = {(row["capture"], row["path"]): row for row in cluster.table("captures").to_pylist()}
    held = defaultdict(list)
    for row in cluster.held_epochs().to_pylist():
        held[row["capture"], row["path"]].append((row["from_offset"], row["to_offset"], row["leader_epoch"]))
    assert held.keys() == {key for key, row in starts.items() if row["log_end_offset"]}
    for key, spans in held.items():
        assert spans[0][0] == starts[key]["log_start_offset"]
        assert spans[-1][1:] == (starts[key]["log_end_offset"], starts[key]["last_epoch"])
        assert all(before[1] == after[0] for before, after in pairwise(spans))


def test_a_failing_cell_keeps_what_was_shown(tmp_path: Path) -> None:
    assert not execute(NOTEBOOKS[0], tmp_path, {"PATH": str(tmp_path / "nothing-there")})
    assert "InputError" in shown(tmp_path, NOTEBOOKS[0].stem)


def test_a_parameter_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ParameterError, match="OFSET"):
        execute(ROOT / "notebooks" / "elr_time_travel.py", tmp_path, {"OFSET": "3"})
    assert main([str(ROOT / "notebooks" / "elr_time_travel.py"), "--out", str(tmp_path), "OFFSET=x"]) == 2
    assert "OFFSET: 'x': expected int" in capsys.readouterr().err
