"""The fixtures of the copier's tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.http_store import HttpServer, http_server
from tests.builders.live_log import LiveLog


@pytest.fixture
def server() -> Iterator[HttpServer]:
    with http_server() as running:
        yield running


@pytest.fixture
def log(tmp_path: Path) -> LiveLog:
    """The log dir of a node, with five batches."""
    log = LiveLog(tmp_path / "node")
    log.append(5)
    return log


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy and no credentials but those that a test sets."""
    for name in list(os.environ):
        if name.upper().endswith("_PROXY") or name.startswith("AWS_"):
            monkeypatch.delenv(name)
