"""`coverage run -m pytest -p tests.which_tests`: notes with each line the tests that ran it, and how
long each test took.

KRAFT_AUDIT_TEST_SECONDS names the file for that: a JSON object of test to seconds, null where the test failed.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

SECONDS: dict[str, float | None] = {}
FAILED: set[str] = set()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    measured = coverage.Coverage.current()
    assert measured is not None, "started without coverage"
    measured.switch_context(item.nodeid)
    started = time.monotonic()
    try:
        return (yield)
    finally:
        SECONDS[item.nodeid] = round(time.monotonic() - started, 3)
        measured.switch_context("")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        FAILED.add(report.nodeid)


def pytest_sessionfinish() -> None:
    SECONDS.update(dict.fromkeys(FAILED))
    Path(os.environ["KRAFT_AUDIT_TEST_SECONDS"]).write_text(json.dumps(SECONDS), encoding="utf-8")
