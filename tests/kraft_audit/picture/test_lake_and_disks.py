"""The picture of a capture is the same text, drawn from its disks and from the page of a lake."""

from __future__ import annotations

import contextlib
import io
from dataclasses import replace
from pathlib import Path

import pytest

import kraft_audit
from kraft_audit.commands.cli import run_command
from kraft_audit.picture.drawing import WIDTHS, draw
from kraft_audit.picture.happened import Picture
from kraft_audit.report.cluster_page import cluster_view
from kraft_audit.report.lake_source import LakeSource
from kraft_engine import simulate
from tests.builders.lakes import write_fleet

pytestmark = pytest.mark.slow  # a lake is made first

CAPTURES = {
    "divergence": "divergence",
    "a replaced disk": "phantom",
    "a reverted voter": "uncommitted-voter-change",
    "no majority": "six/06-three-of-six-down",
    "two quorums": "split/03-stopped",
    "dynamic quorum": "dynamic-quorum",
    "a failed log dir": "jbod/02-dir-back",
    "torn tails": "torn-write",
}
OF_THE_SAME_CLUSTERS = {"a parted disk": "divergence/11-dead-node-diverged", "a formatted disk": "phantom/03-phantom"}
SCENARIOS = (
    *("two-leaders-one-epoch", "wiped-voter-before-the-loss", "controllers-emptied", "three-of-five-wiped"),
    *("loss-last-known-leader", "loss-came-back-alone", "emptied-segments"),
)


@pytest.fixture(scope="module")
def paths(captured_logs: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("simulated")
    for seed, scenario in enumerate(SCENARIOS, start=1):
        simulate(scenario, seed, folder / scenario)
    captures = {name: captured_logs / path for name, path in (CAPTURES | OF_THE_SAME_CLUSTERS).items()}
    return captures | {scenario: folder / scenario for scenario in SCENARIOS}


@pytest.fixture(scope="module")
def pages(paths: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Picture | None]]:
    """By name the pictures on the pages of two lakes, a picture for each history."""
    folder = tmp_path_factory.mktemp("drawn")
    pictures: dict[str, list[Picture | None]] = {name: [] for name in paths}
    for number, names in enumerate(([*CAPTURES, *SCENARIOS], [*OF_THE_SAME_CLUSTERS])):
        fleet = write_fleet(folder, {name: [paths[name]] for name in names}, lake=f"lake-{number}")
        with contextlib.redirect_stdout(io.StringIO()):
            assert run_command(["run", str(folder / "fleet.yaml"), "--engine", "local"]) == 0
        for given in LakeSource(fleet.lake, has_pages=True).clusters():
            pictures[given.name or ""].append(cluster_view(given).picture)
    return pictures


@pytest.mark.parametrize("name", [*CAPTURES, *OF_THE_SAME_CLUSTERS, *SCENARIOS])
def test_a_lake_draws_what_its_disks_do(
    name: str, paths: dict[str, Path], pages: dict[str, list[Picture | None]]
) -> None:
    clusters = list(kraft_audit.open(str(paths[name])))
    assert len(clusters) == len(pages[name])
    for cluster, picture in zip(clusters, pages[name], strict=True):
        assert picture is not None
        for width in WIDTHS:
            drawn = cluster.picture(width)
            assert drawn is not None
            # A lake has a name of its own for the second history of a cluster id.
            of_lake = draw(replace(picture, title=cluster.history.title), width, stands_alone=True)
            assert of_lake == drawn
