"""Stages the clusters of a part in a process of their own, each within its deadline.

A cluster whose reading does not end in time, or whose process dies, fails this attempt; its part is read again without
it. The process is kept for the next part: it starts once for all parts of a worker.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kraft_audit.capture.plan import plan_from_json
from kraft_audit.lake.staging.stage_parts import ManifestRow, deadline_s, part_label, write_manifest
from kraft_audit.lake.staging.staging_tasks import planned_bytes
from kraft_audit.text.watched_work import read_elsewhere
from kraft_codec.errors import InputError
from kraft_codec.storage.remembered_objects import take_carried

CHILD: Final = "kraft_audit.lake.staging.stage_child"
OTHER_S: Final = 900
"""How long the process may take to start, or to finish the files of a part: on the busiest of machines."""
ANSWER_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class ReadingEnv:
    """What the process needs to read a plan's clusters."""

    lake: str
    redaction_key: str = field(repr=False)
    known: str | None
    minutes: int


class ClusterLostError(Exception):
    """A cluster whose process was killed at its deadline, or died."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(reason)
        self.number = number
        self.reason = reason


class StageChild:
    """The process, started when it is needed."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""

    def stage(self, request: Mapping[str, Any], deadlines_s: Mapping[int, int]) -> list[ManifestRow]:
        """Read the clusters of a request. Raises ClusterLostError; InputError where the lake cannot be written."""
        process = self._started()
        assert process.stdin is not None  # noqa: S101  # both are pipes
        with contextlib.suppress(BrokenPipeError):  # its end says why
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        current, limit_s, began_s = None, OTHER_S, time.monotonic()
        while True:
            answer = self._answer(began_s + limit_s)
            if answer is None:
                raise self._lost(current, limit_s)
            if "read" in answer:
                read_elsewhere(answer["read"], answer["what"])
            elif "begin" in answer:
                current, began_s = answer["begin"], time.monotonic()
                limit_s = OTHER_S if current is None else deadlines_s[current]
            elif "error" in answer:
                raise InputError(answer["error"]["path"] or str(request["lake"]), answer["error"]["detail"])
            else:
                rows: list[ManifestRow] = answer["rows"]
                return rows

    def close(self) -> None:
        """End the process."""
        process, self._process, self._unread = self._process, None, b""
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self.close()
            # Spark puts archives on the path of this process alone.
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            self._process = subprocess.Popen(  # noqa: S603  # our own module
                [sys.executable, "-m", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
            )
        return self._process

    def _answer(self, until_s: float) -> dict[str, Any] | None:
        """The next answer; None where there is none until then (`time.monotonic`), or the process has ended."""
        assert self._process is not None  # noqa: S101  # it was started
        assert self._process.stdout is not None  # noqa: S101  # a pipe
        pieces = [self._unread]
        while b"\n" not in pieces[-1]:
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, until_s - time.monotonic()))
            octets = os.read(self._process.stdout.fileno(), ANSWER_BYTES) if ready else b""
            if not octets:
                return None
            pieces.append(octets)
        line, _, self._unread = b"".join(pieces).partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _lost(self, current: int | None, limit_s: float) -> Exception:
        """Why the process gave no answer. It is ended, if it has not ended by itself."""
        assert self._process is not None  # noqa: S101  # it was started
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
        code = self._process.returncode
        self.close()
        if code is None:
            reason = f"its reading did not end within {limit_s / 60:.0f} minutes"
        elif code < 0:
            reason = f"the process that read it was ended by {signal.Signals(-code).name}"
        else:
            reason = f"the process that read it ended with code {code}"
        if current is None:
            return InputError(CHILD, f"no cluster was being read: {reason}")
        return ClusterLostError(current, reason)


WORKER_CHILD: Final = StageChild()
"""The process of a worker that reads one part after the other."""


def stage_part(
    clusters: Sequence[tuple[int, str]], environment: ReadingEnv, label: str, child: StageChild
) -> list[ManifestRow]:
    """The manifest of a part: outcomes and files, and for each cluster that was lost a row that says why."""
    remaining = list(clusters)
    lost: list[ManifestRow] = []
    plans = [plan_from_json(text) for _, text in remaining]
    carried = take_carried(replica.root for plan in plans for replica in (*plan.replicas, *plan.context))
    while remaining:
        costs = {number: planned_bytes(plan_from_json(text)) for number, text in remaining}
        limits = {number: deadline_s(environment.minutes, cost) for number, cost in costs.items()}
        request = {
            "lake": environment.lake,
            "key": environment.redaction_key,
            "known": environment.known,
            "label": label,
            "clusters": remaining,
            "carried": carried,
        }
        try:
            return [*child.stage(request, limits), *lost]
        except ClusterLostError as problem:
            text = dict(remaining)[problem.number]
            lost.append(lost_row(problem.number, text, problem.reason))
            remaining = [cluster for cluster in remaining if cluster[0] != problem.number]
    return lost


def finished_part(
    plan: int,
    name: str,
    clusters: Sequence[tuple[int, str]],
    environment: ReadingEnv,
    child: StageChild = WORKER_CHILD,
) -> list[ManifestRow]:
    """Read a part of a plan and leave its manifest; its rows, with its name."""
    rows = stage_part(clusters, environment, part_label(plan, name), child)
    return [{**row, "part": name} for row in write_manifest(environment.lake, plan, name, rows)]


def lost_row(number: int, text: str, reason: str) -> ManifestRow:
    """The row of a cluster whose attempt failed: it has no summary, as it is no outcome yet."""
    plan = plan_from_json(text)
    names: Sequence[str] = ("state", "summary", "data_file")
    row = {"cluster_number": number, "cluster_name": plan.name, "cluster_id": plan.key, "failure": reason}
    return {**row, **dict.fromkeys(names)}
