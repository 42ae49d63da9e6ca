"""The process that reads clusters for a task: it may be killed at a deadline, or die, and the task goes on.

Requests come as lines of JSON on standard input, the redaction key among them: on a command line it could be seen. On
standard output go `{"begin": cluster}` before each cluster, `{"begin": null}` before the files are finished, and
`{"rows": […]}` or `{"error": …}` at the end of a part.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from typing import IO, Any, Final

import pyarrow as pa

from kraft_codec.errors import InputError

SET_PARENT_DEATH_SIGNAL: Final = 1
HANGS_VARIABLE: Final = "KRAFT_AUDIT_HANGS"
DIES_VARIABLE: Final = "KRAFT_AUDIT_DIES"


def main() -> None:
    _die_with_parent()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    # Whatever a library prints must not be taken for an answer.
    os.dup2(2, 1)
    for line in sys.stdin:
        try:
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


def _obey(name: str) -> None:
    """Where a test makes the reading of one cluster hang, or end its process as a lack of memory does."""
    if os.environ.get(DIES_VARIABLE) == name:
        os.kill(os.getpid(), signal.SIGKILL)
    while os.environ.get(HANGS_VARIABLE) == name:
        time.sleep(1)


def _say(answers: IO[str], answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


def _die_with_parent() -> None:
    """On Linux: a task that is killed leaves nothing behind that reads on."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)


if __name__ == "__main__":
    main()
