"""The JVMs that the drills share, one for each release, and the page of their results where it is wanted."""

from __future__ import annotations

import os

import pytest

from tests.builders.commands import kraft_audit
from tests.drills.drill_table import DRILLS
from tests.drills.releases import kafka_releases
from tests.drills.results import write_results

RAN: dict[str, tuple[float, str]] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" and "test_a_drill[" in report.nodeid and not report.skipped:
        name = report.nodeid.partition("[")[2].removesuffix("]")
        RAN[name] = report.duration, "stands" if report.passed else "FAILED"
        if os.environ.get("KRAFT_AUDIT_DRILL_RESULTS"):
            write_results(RAN, DRILLS)
