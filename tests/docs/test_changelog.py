"""The changelog is for users: one section a release, short, and it names the version that is built."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

GROUPS = {"Added", "Changed", "Fixed", "Security"}
LINES_MAX = 60


def test_the_newest_section_is_the_version_that_is_built(project_root: Path) -> None:
    version = tomllib.loads((project_root / "pyproject.toml").read_text())["project"]["version"]
    sections = re.findall(r"^## (\S+)", (project_root / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert sections[0] == version
    assert len(sections) == len(set(sections))


def test_each_release_is_short_and_grouped(project_root: Path) -> None:
    releases = (project_root / "CHANGELOG.md").read_text().split("\n## ")[1:]
    for release in releases:
        assert len(release.splitlines()) <= LINES_MAX, release.splitlines()[0]
        assert set(re.findall(r"^### (\w+)", release, re.MULTILINE)) <= GROUPS


def test_every_command_that_it_names_exists(project_root: Path) -> None:
    """A command of the first column of a line (`check`, `rules RULE`) is one that the program has."""
    from kraft_audit.commands.cli import SUMMARIES

    commands = SUMMARIES.keys()
    added = (project_root / "CHANGELOG.md").read_text().split("### Added")[1].split("###")[0]
    named = {
        name
        for line in re.findall(r"^- ((?:`[\w-]+`(?:, )?)+):", added, re.MULTILINE)
        for name in re.findall(r"`([\w-]+)`", line)
    }
    assert named
    assert named <= commands
