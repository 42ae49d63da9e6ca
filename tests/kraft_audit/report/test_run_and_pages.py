"""The end of a run, the head of a cluster's page and its picture say one thing, of a lake as of its disks."""

from __future__ import annotations

import contextlib
import io
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kraft_audit.commands.cli import run_command
from kraft_audit.picture.happened import Picture
from kraft_audit.report.cluster_page import ClusterView, cluster_view
from kraft_audit.report.lake_source import LakeSource
from tests.builders.lakes import write_fleet
from tests.builders.report_sources import path_source

pytestmark = pytest.mark.slow  # a lake is made first

SAMPLES = {
    "elr": "elr-29-stopped.tgz",
    "divergence": "divergence.tgz",
    "dynamic-quorum": "dynamic-quorum.tgz",
    "torn-write": "torn-write.tgz",
    "jbod": "jbod.tgz",
}
NEED_ACTION = ["elr", "jbod", "torn-write"]


@dataclass(frozen=True)
class DemoLake:
    """A lake of some samples, what the run over it printed, and its pages."""

    lake: Path
    site: Path
    printed: str
    as_json: dict[str, Any]
    report: str


def _printed(*words: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert run_command(list(words)) == 0
    return out.getvalue()


@pytest.fixture(scope="module")
def demo(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> DemoLake:
    folder = tmp_path_factory.mktemp("demo")
    lake, site, fleet = folder / "lake", folder / "site", folder / "fleet.yaml"
    write_fleet(folder, {name: [samples / path] for name, path in SAMPLES.items()}, lake=str(lake))
    with contextlib.chdir(folder):
        printed = _printed("run", str(fleet), "--engine", "local")
    as_json = json.loads(_printed("run", str(fleet), "--engine", "local", "--output", "json"))
    return DemoLake(lake, site, printed, as_json, _printed("report", str(lake), "--out", str(site)))


@pytest.fixture(scope="module")
def views(demo: DemoLake) -> dict[str, ClusterView]:
    return {given.name or "": cluster_view(given) for given in LakeSource(str(demo.lake), has_pages=True).clusters()}


def test_a_run_ends_with_the_answer(demo: DemoLake, samples: Path) -> None:
    first, *actions, found, read, pages = demo.printed.splitlines()
    assert first == "3 of 5 clusters need action"
    assert [line.split()[0] for line in actions] == NEED_ACTION
    of_voters = "only {2 3} of {1 2 3} are near the committed end 63: one more failure stops the quorum"
    assert actions == [
        "  elr         9 partitions may have lost acknowledged records, since 2026-11-21 01:34:15 UTC.   "
        f"kraft-audit recover-plan {samples / 'elr-29-stopped.tgz'}",
        "  jbod        4 partitions below min ISR: acks=all writes blocked, since 2026-11-20 23:59:13 UTC.   "
        f"kraft-audit check {samples / 'jbod.tgz'} --rule KB010",
        f"  torn-write  {of_voters}.   kraft-audit check {samples / 'torn-write.tgz'} --rule KV014",
    ]
    assert found.startswith("found  ")
    assert read.startswith("read   5 clusters; ")
    assert "; 1 TORN_TAIL (plan 1, " in read
    assert pages == "pages  kraft-audit report lake --out site", "below the folder that the run was started in"


def test_each_command_can_be_pasted(demo: DemoLake, capsys: pytest.CaptureFixture[str]) -> None:
    for state in demo.as_json["states"]:
        if state["needs_action"]:
            tool, *words = state["next_command"].split()
            assert tool == "kraft-audit"
            assert run_command(words) in (0, 1)
            assert capsys.readouterr().out


def test_a_run_counts_what_the_pages_count(demo: DemoLake, views: dict[str, ClusterView]) -> None:
    states = {state["name"]: state for state in demo.as_json["states"]}
    assert {name: state["findings"] for name, state in states.items()} == {
        name: view.open_counts for name, view in views.items()
    }
    total = sum(demo.as_json["findings"]["open"].values())
    assert re.search(r"found  ([0-9]+) open", demo.printed).group(1) == str(total)  # type: ignore[union-attr]
    assert f"{total} open findings" in demo.report
    index = (demo.site / "index.html").read_text()
    assert "3 of 5 clusters need action:" in index
    assert [name for name, state in states.items() if state["needs_action"]] == NEED_ACTION


def test_the_head_of_a_page_and_its_picture_name_one_committed_offset(demo: DemoLake) -> None:
    pages = list((demo.site / "clusters").glob("*.html"))
    assert len(pages) == len(SAMPLES)
    for page in pages:
        text = page.read_text()
        summary = text.partition("<svg")[0]
        head = {int(offset) for offset in re.findall(r"through offset (\d+)", summary)}
        assert len(head) == 1, page
        pictures = re.findall(r"<svg class=\"picture.*?</svg>", text, flags=re.DOTALL)
        assert len(pictures) == 3
        for picture in pictures:
            assert {int(offset) for offset in re.findall(r"committed through (\d+)<", picture)} == head


def _drawn(picture: Picture) -> dict[str, Any]:
    return {
        "log end": (picture.log_end.offsets.tolist(), picture.log_end.times_ms.tolist(), picture.log_end.standing),
        "controllers": picture.controllers,
        "brokers": picture.brokers,
        "partitions": (picture.partitions, picture.sentence, picture.losses),
        "series": {each.kind: (each.times_ms.tolist(), each.counts.tolist()) for each in picture.series},
        "incidents": picture.brackets,
        "span": (picture.from_ms, picture.to_ms, picture.moments_ms),
    }


@pytest.mark.parametrize("name", SAMPLES)
def test_a_picture_of_a_lake_is_that_of_its_disks(name: str, views: dict[str, ClusterView], samples: Path) -> None:
    (given,) = path_source(samples / SAMPLES[name]).clusters()
    of_disks, of_lake = cluster_view(given).picture, views[name].picture
    assert of_disks is not None
    assert of_lake is not None
    assert _drawn(of_lake) == _drawn(of_disks)
    assert of_lake.partitions == views[name].partition_count


def test_a_long_log_is_drawn_from_its_ends(
    demo: DemoLake, views: dict[str, ClusterView], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lake keeps all batches: of a log with very many its picture shows where plans found its end."""
    monkeypatch.setattr("kraft_audit.report.drawn_rows.DRAWN_BATCHES_MAX", 0)
    long = {given.name or "": given for given in LakeSource(str(demo.lake), has_pages=True).clusters()}
    assert all(given.drawn is None for given in long.values())
    for name, given in long.items():
        picture, whole = cluster_view(given).picture, views[name].picture
        assert picture is not None
        assert whole is not None
        assert picture.log_end.standing == whole.log_end.standing, name
        assert picture.log_end.offsets[-1] == whole.log_end.offsets[-1]
        assert picture.partitions == whole.partitions
