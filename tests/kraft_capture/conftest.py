"""The fixtures of the copier's tests."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.builders.http_store import HttpServer, http_server


@pytest.fixture
def server() -> Iterator[HttpServer]:
    with http_server() as running:
        yield running


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy and no credentials but those that a test sets."""
    for name in list(os.environ):
        if name.upper().endswith("_PROXY") or name.startswith("AWS_"):
            monkeypatch.delenv(name)
