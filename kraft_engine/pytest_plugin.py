"""The pytest plugin of the engine: the fixture `kraft_cluster`, and the options `--kraft-*`.

The engine itself is imported when the first test asks for a cluster, so that a test run without one pays nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kraft_engine.kraft_cluster import KraftCluster

FAILED = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kraft", "simulated KRaft clusters")
    group.addoption("--kraft-seed", type=int, default=1, metavar="N", help="the first seed (default 1)")
    group.addoption("--kraft-seeds", type=int, default=1, metavar="N", help="run each test with so many seeds")
    group.addoption("--kraft-release", metavar="X.Y.Z", help="the release of Kafka whose rules hold, such as 4.0.2")
    group.addoption("--kraft-metadata-version", metavar="LEVEL", help="30, 4.3-IV0, or 4.3 for its newest")
    group.addoption("--kraft-elr", choices=("on", "off"), help="eligible leader replicas (KIP-966)")
    group.addoption("--kraft-static", action="store_true", help="a static quorum: kraft.version 0")
    group.addoption("--kraft-voters", type=int, metavar="N", help="how many controllers vote (default 3)")
    group.addoption("--kraft-brokers", type=int, metavar="N", help="how many brokers there are (default 3)")
    group.addoption("--kraft-out", type=Path, metavar="DIR", help="keep captures, truth and timelines below DIR")
    group.addoption("--kraft-without", action="append", default=[], metavar="RULE", help="turn a safety rule off")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "kraft(**settings): controllers, brokers, static, release, metadata_version, elr of a kraft_cluster"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "kraft_seed" in metafunc.fixturenames:
        first, count = metafunc.config.getoption("--kraft-seed"), metafunc.config.getoption("--kraft-seeds")
        seeds = range(first, first + count)
        metafunc.parametrize("kraft_seed", seeds, ids=[f"seed-{seed}" for seed in seeds], scope="session")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Notes that the test failed, so that the fixture says which seed it was and what happened."""
    report = yield
    if report.when == "call":
        item.stash[FAILED] = report.failed
    return report


@pytest.fixture
def kraft_cluster(request: pytest.FixtureRequest, tmp_path: Path, kraft_seed: int) -> Iterator[KraftCluster]:
    """A cluster of three controllers (1, 2, 3) and three brokers (11, 12, 13), with a leader, all unfenced.

    `@pytest.mark.kraft(brokers=(11, 12, 13, 14), elr=0)` changes it for one test; the options `--kraft-*` change it
    for all, where the mark does not say otherwise.
    """
    from kraft_engine.kraft_cluster import KraftCluster

    config = request.config
    wanted_out = config.getoption("--kraft-out")
    out = tmp_path / "kraft" if wanted_out is None else wanted_out / _folder_name(request.node.name)
    if out.exists() and any(out.iterdir()):
        raise pytest.UsageError(f"--kraft-out: {out} is not empty")
    mark = request.node.get_closest_marker("kraft")
    settings = {**_settings(config), **(mark.kwargs if mark is not None else {})}
    cluster = KraftCluster.started(out, seed=kraft_seed, **settings)
    yield cluster
    failed = request.node.stash.get(FAILED, False)
    if failed or wanted_out is not None:
        cluster.finish(request.node.name)
    if failed:
        timeline = "\n".join(cluster.stage.invariants.timeline[-40:])
        request.node.add_report_section(
            "teardown", "kraft", f"seed {kraft_seed}: --kraft-seed {kraft_seed} plays it again; {out}\n{timeline}"
        )


def _settings(config: pytest.Config) -> dict[str, Any]:
    """What the options say, as arguments of KraftCluster.started."""
    from kraft_engine.runs.options import Options, parse_metadata_version

    level, elr = config.getoption("--kraft-metadata-version"), config.getoption("--kraft-elr")
    try:
        options = Options(
            release=config.getoption("--kraft-release"),
            metadata_version=parse_metadata_version(level) if level is not None else None,
            elr=elr == "on" if elr is not None else None,
            without=tuple(config.getoption("--kraft-without")),
        )
        options.check_release()
        settings = options.stage_settings()
    except ValueError as error:
        raise pytest.UsageError(str(error)) from error
    voters, brokers = config.getoption("--kraft-voters"), config.getoption("--kraft-brokers")
    if voters is not None:
        settings["controllers"] = tuple(range(1, voters + 1))
    if brokers is not None:
        settings["brokers"] = tuple(range(11, 11 + brokers))
    if config.getoption("--kraft-static"):
        settings["static"] = True
    return settings


def _folder_name(test: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in test).strip("-")
