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

from tests.builders.documented import titled

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
    for name, text in titled(ROOT / page.page).items():
        (folder / name).write_text(text)
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    for command, exit_code in page.commands:
        done = subprocess.run(
            ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=240
        )
        assert done.returncode == exit_code, f"{page.page}: {command}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        assert done.stdout.strip(), f"{page.page}: {command} printed nothing"


@pytest.mark.ci
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
def test_a_link_to_a_generated_page_says_how_it_is_made(page: Path) -> None:
    """Some pages are made by `make docs`: the paragraph that links to them says so, or what to run instead."""
    pytest.importorskip("mkdocs")
    from scripts.docs_pages import generated_pages

    for target, paragraph in dead_links(page):
        made = (page.parent / target).resolve().relative_to(ROOT / "docs")
        assert str(made) in generated_pages(), target
        assert "`make docs`" in paragraph or "`kraft-audit " in paragraph, target


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


def test_the_readme_names_every_command_of_an_incident() -> None:
    from kraft_audit.commands.cli import LAKE_COMMANDS, LAPTOP_COMMANDS

    text = PAGES[0].read_text()
    on_a_laptop = dict(LAPTOP_COMMANDS).keys()
    assert on_a_laptop <= set(re.findall(r"`([a-z-]+)`", text))
    on_a_lake = dict(LAKE_COMMANDS).keys() - {"completion"}
    assert on_a_lake <= set(re.findall(r"^kraft-audit ([a-z-]+)", text, re.MULTILINE))


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


def test_the_python_example_prints_what_it_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its last line is a comment with what is printed."""
    monkeypatch.chdir(ROOT)
    code = re.search(r"^```python\n(import kraft_audit\n.*?)^```$", PAGES[0].read_text(), re.MULTILINE | re.DOTALL)
    assert code is not None
    exec(compile(code[1], "README.md", "exec"), {})  # noqa: S102  # our own page
    assert f"# {capsys.readouterr().out}" == code[1].splitlines(keepends=True)[-1]


def test_no_page_counts_rules_or_incidents() -> None:
    """They come and go: a new one must not make a page wrong. Figures of a past run have their date, and stay."""
    counted = re.compile(r"\b\d+ \[?(?:rules|incidents|scenarios)\b")
    for page in PAGES:
        found = [line for line in page.read_text().splitlines() if counted.search(line) and not line.startswith("|")]
        assert found == [], page


def test_the_kinds_of_archive_are_named_alike() -> None:
    """By help, the page for who is on call, and the error of a file that is none."""
    from kraft_audit.commands.cli import kraft_audit
    from kraft_codec.storage.archives import ARCHIVE_KINDS, ARCHIVE_SUFFIXES

    assert tuple(re.split(", | or ", ARCHIVE_KINDS)) == ARCHIVE_SUFFIXES
    assert ARCHIVE_KINDS in " ".join((kraft_audit.__doc__ or "").split())
    assert ARCHIVE_KINDS in (ROOT / "docs" / "start" / "on-call.md").read_text()
