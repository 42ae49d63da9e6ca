"""A process that reads clusters says how far it is, to whoever waits for its rows."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from typing import Any

import pytest

from kraft_audit.lake.staging import isolated_staging
from kraft_audit.lake.staging.stage_child import _Reporter
from kraft_audit.text.status_line import StatusLine
from kraft_audit.text.watched_work import watched_by

ANSWERS = (
    {"begin": 7},
    {"read": 4_000_000, "what": "reading a.log"},
    {"read": 2_500_000, "what": "replaying offset 5 of 9"},
    {"begin": None},
    {"rows": [{"cluster_number": 7}]},
)


def test_only_news_is_reported_and_each_byte_once() -> None:
    answers = io.StringIO()
    reporter = _Reporter(answers)
    reporter.report()
    reporter.reading("a.log", 0, 4, "disk")
    reporter.reading("a.log", 4, 8, "disk")
    reporter.report()
    reporter.report()
    reporter.reading("a.log", 0, 9, "disk")
    reporter.doing("replaying offset 0 of 5")
    reporter.report()
    assert [json.loads(line) for line in answers.getvalue().splitlines()] == [
        {"read": 8, "what": "reading a.log"},
        {"read": 1, "what": "replaying offset 0 of 5"},
    ]


def test_what_the_process_says_stands_in_the_status_line(monkeypatch: pytest.MonkeyPatch) -> None:
    class Process(isolated_staging.StageChild):
        def _started(self) -> subprocess.Popen[bytes]:
            if self._process is None:
                code = f"for answer in {[json.dumps(each) for each in ANSWERS]!r}: print(answer, flush=True)\ninput()"
                self._process = subprocess.Popen(
                    [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
                )
            return self._process

    monkeypatch.setenv("COLUMNS", "80")
    terminal, now_s = io.StringIO(), [0.0]
    line = StatusLine(terminal, lambda: now_s[0])
    line.expect(1, 10_000_000)
    child = Process()
    request: dict[str, Any] = {"lake": "lake"}
    try:
        with watched_by(line):
            assert child.stage(request, {7: 600}) == [{"cluster_number": 7}]
    finally:
        child.close()
    now_s[0] = 2.0
    line.update()
    assert terminal.getvalue().endswith("6.5 of 10.0 MB   replaying offset 5 of 9")
