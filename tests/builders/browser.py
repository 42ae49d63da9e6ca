"""A real browser that opens pages from the disk, and notes what goes wrong in it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

CHROMIUM_ARGUMENTS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


@dataclass(slots=True)
class BrowserTab:
    """A tab, and what went wrong in it."""

    page: Any
    problems: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def goto(self, file: Path) -> None:
        self.page.goto(file.as_uri())

    def check(self) -> None:
        assert self.problems == []
        assert [url for url in self.requests if not url.startswith(("file:", "data:"))] == []


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """Debian's Chromium; skips where there is none."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = os.environ.get("KRAFT_AUDIT_CHROMIUM") or shutil.which("chromium")
    if found is None:
        pytest.skip("Chromium is not here: apt-get install chromium, or KRAFT_AUDIT_CHROMIUM names it")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=list(CHROMIUM_ARGUMENTS))
        yield browser
        browser.close()


@pytest.fixture
def tab(chromium: Any) -> Iterator[BrowserTab]:
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    seen = BrowserTab(context.new_page())
    seen.page.on("console", lambda message: seen.problems.append(f"{message.type}: {message.text}"))
    seen.page.on("pageerror", lambda error: seen.problems.append(str(error)))
    seen.page.on("dialog", lambda dialog: seen.problems.append(f"dialog: {dialog.message}"))
    seen.page.on("request", lambda request: seen.requests.append(request.url))
    yield seen
    seen.check()
    context.close()
