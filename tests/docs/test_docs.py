"""The documentation builds without a warning, and every command in it runs as printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```console(?P<needs>[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
EXIT_CODE = re.compile(r"\s+# exit (\d+)$")


@dataclass(frozen=True, slots=True)
class Printed:
    """The commands of one page, in their order: a later one may use what an earlier one made."""

    page: str
    needs: str
    commands: tuple[tuple[str, int], ...]


def printed(needs: str) -> list[Printed]:
    found = []
    for page in PAGES:
        lines = [
            line.removeprefix("$ ")
            for block in BLOCK.finditer(page.read_text())
            if block["needs"].strip() == needs
            for line in block["body"].splitlines()
            if line.startswith("$ ")
        ]
        if lines:
            commands = tuple((EXIT_CODE.sub("", line), _exit_code(line)) for line in lines)
            found.append(Printed(str(page.relative_to(ROOT)), needs, commands))
    return found


def _exit_code(line: str) -> int:
    expected = EXIT_CODE.search(line)
    return int(expected[1]) if expected else 0


def run_as_printed(page: Printed, folder: Path) -> None:
    """Runs a page's commands in a folder that looks like a fresh clone to them."""
    for name in ("samples", "conf", "jobs"):
        (folder / name).symlink_to(ROOT / name)
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    for command, exit_code in page.commands:
        done = subprocess.run(
            ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=240
        )
        assert done.returncode == exit_code, f"{page.page}: {command}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        assert done.stdout.strip(), f"{page.page}: {command} printed nothing"


@pytest.mark.slow
@pytest.mark.parametrize("page", printed(""), ids=lambda page: page.page)
def test_every_command_runs_as_printed(page: Printed, tmp_path: Path) -> None:
    run_as_printed(page, tmp_path)


@pytest.mark.ci
@pytest.mark.parametrize("page", printed("spark"), ids=lambda page: page.page)
def test_every_command_with_spark_runs_as_printed(page: Printed, tmp_path: Path) -> None:
    run_as_printed(page, tmp_path)


@pytest.mark.slow
def test_the_pages_build_without_a_warning(tmp_path: Path) -> None:
    """Strict: a link or anchor that leads nowhere fails the build."""
    pytest.importorskip("mkdocs")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(build, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "site" / "reference" / "tables.html").stat().st_size > 10_000
    external = re.findall(
        r'<(?:script|link|img)[^>]+(?:src|href)="https?://[^"]+"', (tmp_path / "site" / "index.html").read_text()
    )
    assert not [link for link in external if 'rel="canonical"' not in link], external


def test_every_setting_says_what_it_means() -> None:
    pytest.importorskip("mkdocs")
    from scripts.docs_pages import models

    without = [
        f"{model.__name__}.{name}"
        for model in models()
        for name, field in model.model_fields.items()
        if not field.description
    ]
    assert not without


LINK = re.compile(r"\[[^\]]*\]\((?!https?:|mailto:|#)([^)#\s]+)")


def dead_links(page: Path) -> Iterator[tuple[str, str]]:
    """(target, paragraph) of each link that leads nowhere in the repository."""
    for paragraph in page.read_text().split("\n\n"):
        for target in LINK.findall(paragraph):
            if not (page.parent / target).exists():
                yield target, paragraph


@pytest.mark.parametrize("page", [page for page in PAGES if any(dead_links(page))], ids=lambda page: page.name)
def test_who_reads_the_repository_is_told_where_a_page_is_made(page: Path) -> None:
    """Some pages are made by `make docs`: whoever is sent there learns that, or what to run instead."""
    pytest.importorskip("mkdocs")
    from scripts.docs_pages import generated_pages

    for target, paragraph in dead_links(page):
        made = (page.parent / target).resolve().relative_to(ROOT / "docs")
        assert str(made) in generated_pages(), target
        assert "`make docs`" in paragraph or "`kraft-audit " in paragraph, target


def test_the_schedule_has_every_step_of_a_run() -> None:
    """A step that no row of it runs leaves its tables behind, for ever."""
    from kraft_audit.spark.run import Step

    schedule = (ROOT / "docs" / "operations.md").read_text().partition("## Schedule")[2].partition("\n## ")[0]
    rows = [line for line in schedule.splitlines() if line.startswith("| `jobs/analyze.py")]
    told = {step for step in Step for row in rows if f"--only {step}`" in row}
    assert "--tables-only" in rows[0], "the first four"
    assert told == {Step.FINDINGS, Step.RISK}


def test_what_is_counted_on_the_pages_is_as_many() -> None:
    """Rules and incidents come and go; whoever reads a number may list them."""
    from kraft_audit.rules.registry import rules
    from kraft_engine import scenario_names

    random_kinds = sum(name.split("-")[0] == "random" for name in scenario_names())
    incidents = len(scenario_names()) - random_kinds
    told = {
        "README.md": (r"plays any of (\d+) incidents, random runs of (\d+) kinds", (incidents, random_kinds)),
        "docs/index.md": (r"^(\d+) \[rules\]\(rules/index.md\)", (len(rules()),)),
        "docs/reliability.md": (r"and all (\d+) rules with what happened", (len(rules()),)),
    }
    for page, (sentence, counts) in told.items():
        found = re.findall(sentence, (ROOT / page).read_text(), re.MULTILINE)
        assert [tuple(map(int, (one,) if isinstance(one, str) else one)) for one in found] == [counts], page


def test_the_kinds_of_archive_are_named_alike() -> None:
    """By help, the page for who is on call, and the error of a file that is none."""
    from kraft_audit.cli import kraft_audit
    from kraft_codec.archive import ARCHIVE_KINDS, ARCHIVE_SUFFIXES

    assert tuple(re.split(", | or ", ARCHIVE_KINDS)) == ARCHIVE_SUFFIXES
    assert ARCHIVE_KINDS in " ".join((kraft_audit.__doc__ or "").split())
    assert ARCHIVE_KINDS in (ROOT / "docs" / "start" / "on-call.md").read_text()
