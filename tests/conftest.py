"""What every test shares: how many examples a property gets, the marker `unit`, and the fixtures of all folders.

Fixtures are written in `tests/builders`; each conftest says which of them its folder has.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("tests.builders")

from tests.builders.browser import chromium, tab  # noqa: E402
from tests.builders.captures import (  # noqa: E402
    captured_logs,
    cases,
    corpus,
    project_root,
    samples,
    scenarios,
    small_corpus,
    wild,
)
from tests.builders.kafka_jars import kafka_classpath, kafka_test_classpath  # noqa: E402

os.environ.pop("COLUMNS", None)  # of the terminal that the tests were started from: it would break the lines in pipes

MARKERS_THAT_NEED_MORE = {"spark", "kafka", "ci", "slow", "drill", "long"}

settings.register_profile("quick", max_examples=50, deadline=None)
settings.register_profile("nightly", max_examples=20_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "soak",
    max_examples=int(os.environ.get("KRAFT_AUDIT_EXAMPLES", "2000")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("KRAFT_AUDIT_HYPOTHESIS_PROFILE", "quick"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs nothing as `unit`. Files with the longest limits begin: no processor waits for one at the end."""
    longest: dict[Path, float] = {}
    for item in items:
        carried = {marker.name for marker in item.iter_markers()}
        if not carried & MARKERS_THAT_NEED_MORE:
            item.add_marker(pytest.mark.unit)
        limit = item.get_closest_marker("timeout")
        longest[item.path] = max(longest.get(item.path, 0.0), limit.args[0] if limit is not None else 0.0)
    items.sort(key=lambda item: -longest[item.path])


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that would begin after KRAFT_AUDIT_TESTS_UNTIL, seconds since 1970: a slow machine ends, too."""
    until = os.environ.get("KRAFT_AUDIT_TESTS_UNTIL")
    if until and time.time() > int(until):
        pytest.skip("too little time is left")
