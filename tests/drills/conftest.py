"""The JVMs that the drills share, one for each release, and the page of their results where it is wanted."""

from __future__ import annotations

import os

import pytest

from tests.builders.commands import compiled_kernels, kraft_audit
from tests.drills.drill_table import DRILLS
from tests.drills.loss_table import LOSS_DRILLS
from tests.drills.releases import kafka_releases
from tests.drills.results import write_results
from tests.drills.testimony_table import TESTIMONY_DRILLS

RAN: dict[str, tuple[float, str]] = {}
NAMES = {"test_a_drill": "{}", "test_a_loss": "loss: {}", "test_a_testimony": "told: {}"}
"""How a test's row is called."""


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    test, _, name = report.nodeid.rpartition("::")[2].removesuffix("]").partition("[")
    if report.when == "call" and test in NAMES and not report.skipped:
        RAN[NAMES[test].format(name)] = report.duration, "stands" if report.passed else "FAILED"
        if os.environ.get("KRAFT_AUDIT_DRILL_RESULTS"):
            write_results(RAN, DRILLS, LOSS_DRILLS, TESTIMONY_DRILLS)
