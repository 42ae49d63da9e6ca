"""Renders the pictures of the documentation, docs/img/, from what the commands print and write today.

Needs Chromium (KRAFT_AUDIT_CHROMIUM names another one than the first on the PATH) and playwright.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import rich._export_format as rich_format
from playwright.sync_api import sync_playwright
from rich.console import Console
from rich.text import Text

ROOT: Final = Path(__file__).resolve().parents[1]
IMAGES: Final = ROOT / "docs" / "img"
PAGE_OF: Final = "samples/elr-06-kill-13-last-replica.tgz"
TIMELINE_OF: Final = "samples/divergence.tgz"
STYLES: Final = (
    (r"not on the canonical log", "#ff8a80"),
    (r"leads epoch", "#9ccc65"),
    (r"capture[d: ]", "#82b1ff"),
    (r"^L leads", "dim"),
)
"""How a line of the timeline is coloured: the first pattern that it matches."""


def main() -> None:
    IMAGES.joinpath("timeline.svg").write_text(timeline_picture(printed("timeline", TIMELINE_OF)), encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        printed("report", PAGE_OF, "--out", folder)
        (page,) = Path(folder, "clusters").glob("*.html")
        take_picture(page, IMAGES / "page.png")


def printed(*arguments: str) -> str:
    """What the command prints, without colours."""
    program = [sys.executable, "-c", "from kraft_audit.commands.cli import main; main()", *arguments]
    environment = {**os.environ, "NO_COLOR": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.run(program, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout


def timeline_picture(text: str) -> str:
    """A terminal window as SVG, in fonts that need no download."""
    lines = text.rstrip().splitlines()
    console = Console(record=True, width=max(map(len, lines)) + 1, file=io.StringIO(), force_terminal=True)
    console.print(Text(f"$ kraft-audit timeline {TIMELINE_OF}", style="bold"))
    for line in lines:
        style = next((style for pattern, style in STYLES if re.search(pattern, line)), "")
        console.print(Text(line, style=style))
    window = re.sub(r"@font-face \{\{.*?\}\}\s*", "", rich_format.CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    window = window.replace("Fira Code", "ui-monospace, DejaVu Sans Mono, Menlo, Consolas")
    picture = console.export_svg(title="kraft-audit timeline", code_format=window, unique_id="timeline")
    picture = re.sub(r"<!--.*?-->\s*", "", picture, flags=re.DOTALL)
    return re.sub(r"[ \t]+$", "", picture, flags=re.MULTILINE).rstrip() + "\n"


def take_picture(page: Path, target: Path) -> None:
    with sync_playwright() as playwright:
        chromium = os.environ.get("KRAFT_AUDIT_CHROMIUM") or shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--headless", "--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1440, "height": 1100}, color_scheme="light")
        tab.goto(page.as_uri())
        tab.screenshot(path=target)
        browser.close()


if __name__ == "__main__":
    main()
