"""The documentation builds without a warning, and every command in it runs as printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
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
