"""Folders of captures: of one cluster over time, and of strangers side by side.

Together they say nothing critical that none of them says alone, and none of them vanishes.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import kraft_audit
from kraft_audit.rules.columns.quorum_standing import Standing
from kraft_audit.rules.rule_model import Scope, Severity

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_800)]

TRUE_LOSSES = {"w17": {"KQ002", "KQ014", "KQ015", "KQ020"}}
"""Of w17 a directory began its log again between two captures: only both together show it (see verdicts.yaml).

Its first two captures are named by their times: quorum-state says epoch 2 on 2024-09-02, and epoch 1 on 2024-09-11.
"""
SOURCES = ("captured_logs", "wild", "cases")


@dataclass(frozen=True)
class Judged:
    """`dirs` are the node dirs that belong to some history, `critical` the rules that alarm."""

    dirs: frozenset[Path]
    critical: frozenset[str]


@cache
def judged(folder: Path) -> Judged:
    dirs: set[Path] = set()
    critical: set[str] = set()
    with kraft_audit.open(str(folder)) as clusters:
        for cluster in clusters:
            dirs |= {folder / replica.path for replica in cluster.plan.replicas}
            found = cluster.incidents(cluster.check()).open
            if cluster.standing().standing is Standing.NO_LOG:  # what an older copy says of brokers may be long past
                found = [each for each in found if each.scope not in (Scope.BROKER, Scope.PARTITION)]
            critical |= {each.rule for each in found if each.severity is Severity.CRITICAL}
    return Judged(frozenset(dirs), frozenset(critical))


def captures_in(folder: Path) -> Iterator[Path]:
    """The folders of one capture each below a cluster's folder."""
    for path in sorted(folder.iterdir()):
        names = [*path.glob("*/meta.properties"), *path.glob("*/__cluster_metadata-0")]
        if path.is_dir() and names and not (path / "__cluster_metadata-0").exists():
            yield path


@pytest.mark.parametrize("source", SOURCES)
def test_captures_over_time(source: str, request: pytest.FixtureRequest) -> None:
    root: Path = request.getfixturevalue(source)
    count = 0
    for folder in sorted(path for path in root.iterdir() if path.is_dir()):
        captures = list(captures_in(folder))
        if len(captures) < 2:
            continue
        count += 1
        together, alone = judged(folder), [judged(capture) for capture in captures]
        assert together.critical - frozenset().union(*(each.critical for each in alone)) == TRUE_LOSSES.get(
            folder.name, set()
        ), folder
        assert together.dirs >= frozenset().union(*(each.dirs for each in alone)), folder
    assert count >= 3


@pytest.mark.parametrize("source", ["wild", "cases"])
def test_strangers_in_one_folder(source: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """One capture of each: many have the same cluster id, as images and examples come with one."""
    root: Path = request.getfixturevalue(source)
    critical: set[str] = set()
    expected: set[Path] = set()
    for folder in sorted(path for path in root.iterdir() if path.is_dir()):
        captures = list(captures_in(folder))
        if not captures:
            continue
        alone = judged(captures[-1])
        target = tmp_path / folder.name
        shutil.copytree(captures[-1], target)
        critical |= alone.critical
        expected |= {target / path.relative_to(captures[-1]) for path in alone.dirs}
    together = judged(tmp_path)
    assert together.dirs >= expected
    assert together.critical <= critical
