"""What a run says while it works: lines for people, or JSON objects with run, step and cluster for programs."""

from __future__ import annotations

import json
import os
import sys
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, Literal, TextIO

from kraft_audit.output import neutral

LogFormat = Literal["text", "json"]
Progress = Callable[[str], None]
# Whoever started the run knows it by this name; Airflow sets the second for each of its tasks.
RUN_VARIABLES: Final = ("KRAFT_AUDIT_RUN_ID", "AIRFLOW_CTX_DAG_RUN_ID")


class Line(str):
    """A line of progress, and what it is about."""

    __slots__ = ("cluster", "level", "plan", "seconds", "step")

    step: str
    cluster: str | None
    plan: int | None
    seconds: float | None
    level: str

    def __new__(
        cls,
        step: str,
        what: str,
        *,
        cluster: str | None = None,
        plan: int | None = None,
        seconds: float | None = None,
        level: str = "info",
    ) -> Line:
        shown = what if cluster is None else f"{cluster}: {what}"
        line = super().__new__(cls, f"{step:<9}{shown}" + ("" if seconds is None else f"  ({seconds:.1f} s)"))
        line.step, line.cluster, line.plan, line.seconds, line.level = step, cluster, plan, seconds, level
        return line


def progress_to(stream: TextIO, log_format: LogFormat = "text", run: str | None = None) -> Progress:
    """A function that writes each line to the stream at once, neutral whatever it quotes."""
    name = run or run_id()

    def text(line: str) -> None:
        stream.write(neutral(line) + "\n")
        stream.flush()

    def as_json(line: str) -> None:
        told = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "level": getattr(line, "level", "error" if line.startswith("kraft-audit:") else "info"),
            "run": name,
            "step": getattr(line, "step", None),
            "cluster": getattr(line, "cluster", None),
            "plan": getattr(line, "plan", None),
            "seconds": getattr(line, "seconds", None),
            "message": str(line),
        }
        stream.write(json.dumps(told) + "\n")
        stream.flush()

    return as_json if log_format == "json" else text


def run_id() -> str:
    """The run's name: the starter's, else one of its own."""
    declared = (os.environ.get(variable) for variable in RUN_VARIABLES)
    return next((name for name in declared if name), uuid.uuid4().hex)


def progress_on_stderr(log_format: LogFormat = "text") -> Progress:
    return progress_to(sys.stderr, log_format)
