"""The process that reads clusters for a task: it may be killed at a deadline, or die, and the task goes on.

Requests come as lines of JSON on standard input, the redaction key among them: on a command line it could be seen. On
standard output go `{"begin": cluster}` before each cluster, `{"begin": null}` before the files are finished, now and
then `{"read": bytes, "what": text}` of what it is at, and `{"rows": […]}` or `{"error": …}` at the end of a part.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
import time
from typing import IO, Any, Final

import pyarrow as pa

from kraft_audit.text.hidden_pandas import hide_pandas
from kraft_audit.text.watched_work import BytesRead, watched_in_turn
from kraft_codec.errors import InputError

SET_PARENT_DEATH_SIGNAL: Final = 1
HANGS_VARIABLE: Final = "KRAFT_AUDIT_HANGS"
DIES_VARIABLE: Final = "KRAFT_AUDIT_DIES"
REPORTED_EVERY_S: Final = 0.2
_WHOLE_LINES: Final = threading.Lock()


def main() -> None:
    _die_with_parent()
    hide_pandas()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    # Whatever a library prints must not be taken for an answer.
    os.dup2(2, 1)
    for line in sys.stdin:
        try:
            reporter = _Reporter(answers)
            with watched_in_turn(reporter, reporter.report, REPORTED_EVERY_S, REPORTED_EVERY_S):
                answer: dict[str, Any] = {"rows": _staged(json.loads(line), answers)}
        except InputError as problem:
            answer = {"error": {"path": problem.path, "detail": problem.detail}}
        except (OSError, pa.ArrowException) as problem:
            answer = {"error": {"path": "", "detail": str(problem)}}
        _say(answers, answer)


def _staged(request: dict[str, Any], answers: IO[str]) -> list[dict[str, Any]]:
    from kraft_audit.lake.staging.cluster_reading import pipeline_reading
    from kraft_audit.lake.staging.stage import stage_clusters
    from kraft_codec.storage.remembered_objects import accept_carried

    def begins(number: int | None, name: str) -> None:
        _say(answers, {"begin": number})
        _obey(name)

    accept_carried(request["carried"])
    read = pipeline_reading(request["lake"], request["key"], request["known"])
    clusters = [(number, text) for number, text in request["clusters"]]
    return [
        row
        for batch in stage_clusters(request["lake"], clusters, read, request["label"], begins)
        for row in batch.to_pylist()
    ]


class _Reporter:
    """Notes how much was read and what the work is at; `report` says it, if it changed, to the process that waits."""

    def __init__(self, answers: IO[str]) -> None:
        self._answers = answers
        self._read = BytesRead()
        self._what = ""
        self._reported: tuple[int, str] = (0, "")

    def report(self) -> None:
        now = (self._read.count, self._what)
        if now != self._reported:
            _say(self._answers, {"read": now[0] - self._reported[0], "what": now[1]})
            self._reported = now

    def reading(self, file: str, from_position: int, to_position: int, root: str) -> None:
        self._read.add(file, from_position, to_position, root)
        self._what = f"reading {file}"

    def doing(self, what: str) -> None:
        self._what = what

    def read_elsewhere(self, size_bytes: int) -> None:
        """No process reads for this one."""

    def expect(self, clusters: int, size_bytes: int) -> None:
        """The process that waits knows what there is to do."""

    def ended(self, clusters: int) -> None:
        """A cluster's rows say that it is done."""

    def erase(self) -> None:
        """Nothing is shown here."""


def _obey(name: str) -> None:
    """Where a test makes the reading of one cluster hang, or end its process as a lack of memory does."""
    if os.environ.get(DIES_VARIABLE) == name:
        os.kill(os.getpid(), signal.SIGKILL)
    while os.environ.get(HANGS_VARIABLE) == name:
        time.sleep(1)


def _say(answers: IO[str], answer: dict[str, Any]) -> None:
    with _WHOLE_LINES:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _die_with_parent() -> None:
    """On Linux: a task that is killed leaves nothing behind that reads on."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)


if __name__ == "__main__":
    main()
