"""The documentation builds without a warning, and names what is there. test_shown_output.py runs its examples."""

from __future__ import annotations

import fnmatch
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.links import dead_links

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


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


BUILT = {"build", "dist", "docs-site", "site", "spark-warehouse", "metastore_db", "htmlcov", "reports"}
"""Folders that runs and tools make, as .gitignore has them; those that begin with a dot are left out too."""


def markdown_files() -> Iterator[Path]:
    for folder, names, files in os.walk(ROOT):
        names[:] = [name for name in names if not name.startswith(".") and name not in BUILT]
        yield from (Path(folder, file) for file in files if file.endswith(".md"))


def test_every_relative_link_leads_to_a_file_and_a_heading() -> None:
    """In the repository, as it is cloned: before `make docs` has built a page."""
    pages = list(markdown_files())
    assert len(pages) > len(PAGES)
    assert {str(page.relative_to(ROOT)): dead for page in pages if (dead := dead_links(page))} == {}


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    (tmp_path / "other.md").write_text("# Who did it, and when?\n```\n# no heading\n```\n")
    page.write_text(
        "[a](other.md) [b](gone.md) [c](other.md#who-did-it-and-when) [d](other.md#no-heading) [e](#gone) "
        "[f](https://example.org/gone.md)\n```\n[g](not-a-link.md)\n```\n"
    )
    assert dead_links(page) == ["gone.md", "other.md#no-heading", "#gone"]


def test_pip_is_given_a_wheel_that_make_dist_builds() -> None:
    """No package index has kraft-audit; and of the two wheels in dist/ a pattern must fit one, or pip refuses both."""
    from scripts.wheel_hook import PLATFORM_TAG

    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    wheels = [f"dist/kraft_audit-{version}-{tag}.whl" for tag in (PLATFORM_TAG, "py3-none-any")]
    patterns = set()
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        patterns |= set(re.findall(r"dist/kraft_audit-[\w*.]+[\w*.-]*\.whl", text))
        by_name = re.findall(r"pip install '?kraft-audit\b", text)
        assert not by_name or page.name == "install.md", f"{page.name}: says what to do instead"
    assert [[fnmatch.fnmatch(wheel, pattern) for wheel in wheels] for pattern in sorted(patterns)] == [
        [False, True],
        [True, False],
    ]


def test_the_schedule_has_every_step_of_a_run() -> None:
    """The tables of a step that no row runs would stay empty."""
    from kraft_audit.lake.pipeline import Step

    schedule = (ROOT / "docs" / "operations.md").read_text().partition("## Schedule")[2].partition("\n## ")[0]
    rows = [line for line in schedule.splitlines() if line.startswith("| `jobs/run.py")]
    scheduled = {step for step in Step for row in rows if f"--only {step}`" in row}
    assert "--tables-only" in rows[0], "the first four"
    assert scheduled == {Step.FINDINGS, Step.RISK}


def test_every_job_that_the_pages_name_is_in_jobs() -> None:
    """A page that sends somebody to a script names it as it is called."""
    named = {job for page in PAGES for job in re.findall(r"`?jobs/(\w+)\.py", page.read_text())}
    assert named >= {"run", "report", "maintain", "quality"}
    assert named <= {file.stem for file in (ROOT / "jobs").glob("*.py")}


def test_the_readme_names_every_command() -> None:
    from kraft_audit.commands.cli import SUMMARIES

    named = set(re.findall(r"`([a-z-]+)[` ]", PAGES[0].read_text()))
    assert SUMMARIES.keys() <= named


def test_the_readme_names_every_notebook() -> None:
    notebooks = {f"notebooks/{notebook.name}" for notebook in (ROOT / "notebooks").glob("*.py")}
    assert notebooks == set(re.findall(r"\((notebooks/\w+\.py)\)", PAGES[0].read_text()))


def test_every_path_and_name_in_a_path_is_there() -> None:
    """NAME stands for what the reader chooses; `conf/waivers.yaml` is a file that the page says to write."""
    rooms = "|".join(sorted(re.escape(folder.name) for folder in ROOT.iterdir() if folder.is_dir()))
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]:
        text = page.read_text()
        paths = {path for path in re.findall(rf"`((?:{rooms})/[\w./*-]*)", text) if "NAME" not in path}
        missing = {path for path in paths - {"conf/waivers.yaml"} if not any(ROOT.glob(path.rstrip("/")))}
        assert not {path for path in missing if not path.startswith("dist/")}, page
        for name, path in re.findall(r"`(\w+)`(?:,? (?:in|of)) `([\w/]+\.py)`", text):
            files = [file for file in (ROOT / path, ROOT / "kraft_audit" / path) if file.exists()]
            assert any(name in file.read_text() for file in files), f"{page.name}: {name} in {path}"
        targets = set(re.findall(r"`make ([a-z-]+)`|^make ([a-z-]+)  ", text, re.MULTILINE))
        known = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
        assert {target for pair in targets for target in pair if target} <= known, page


def test_no_page_counts_rules_or_incidents() -> None:
    """They come and go: a new one must not make a page wrong. Figures of a past run have their date, and stay."""
    counted = re.compile(r"\b\d+ \[?(?:rules|incidents|scenarios)\b")
    for page in PAGES:
        found = [line for line in page.read_text().splitlines() if counted.search(line) and not line.startswith("|")]
        assert found == [], page


def test_the_kinds_of_archive_are_named_alike() -> None:
    """By help, the page that says what a PATH is, and the error of a file that is none."""
    from kraft_audit.commands.cli import kraft_audit
    from kraft_codec.storage.archives import ARCHIVE_KINDS, ARCHIVE_SUFFIXES

    assert tuple(re.split(", | or ", ARCHIVE_KINDS)) == ARCHIVE_SUFFIXES
    assert ARCHIVE_KINDS in " ".join((kraft_audit.__doc__ or "").split())
    assert ARCHIVE_KINDS in (ROOT / "docs" / "incident" / "paths.md").read_text()
