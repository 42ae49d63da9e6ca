"""Stages a plan without Spark: the tasks that Spark would get, in processes of this machine."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from kraft_audit.capture.plan import plan_from_json
from kraft_audit.lake.cluster_reading import pipeline_reading, planned_clusters, redaction_key
from kraft_audit.lake.ledger_state import Manifest, manifest_of
from kraft_audit.lake.settings import FleetSettings
from kraft_audit.lake.stage import StageError, stage_clusters
from kraft_audit.lake.staging_tasks import TASKS_A_CORE, Task, planned_bytes, staging_tasks, task_label
from kraft_codec.errors import InputError

SPAWN = multiprocessing.get_context("spawn")
"""A fork would copy the threads of Arrow and of the object store's client without what they wait for."""


class LocalStager:
    """Stages plans of one fleet's lake. A plan that is one task is read in this process.

    Raises StageError where the lake cannot be written, or where the system ended a process.
    """

    def __init__(self, fleet: FleetSettings, processes: int | None = None) -> None:
        self._fleet = fleet
        self.processes = processes or os.cpu_count() or 1

    def __call__(self, number: int) -> Manifest:
        key = redaction_key(self._fleet.redaction_key_file)
        planned = [
            (place, text, planned_bytes(plan_from_json(text)))
            for place, text in planned_clusters(self._fleet.lake, number, None)
        ]
        tasks = staging_tasks(planned, TASKS_A_CORE * self.processes)
        try:
            return manifest_of(self._rows(number, tasks, key))
        except TaskError as problem:
            raise StageError(number, str(problem)) from problem
        except BrokenProcessPool as problem:
            raise StageError(number, "a process that reads clusters was ended by the system") from problem

    def _rows(self, number: int, tasks: list[Task], key: str) -> Iterator[dict[str, Any]]:
        jobs = [(self._fleet.lake, number, place, task, key) for place, task in enumerate(tasks)]
        if len(jobs) < 2 or self.processes < 2:
            for job in jobs:
                yield from stage_task(*job)
            return
        with ProcessPoolExecutor(min(self.processes, len(jobs)), SPAWN) as pool:
            for done in as_completed([pool.submit(stage_task, *job) for job in jobs]):
                yield from done.result()


class TaskError(Exception):
    """Why a task could not write its rows, on one line: this crosses from one process to another."""


def stage_task(lake: str, number: int, place: int, task: Task, key: str) -> list[dict[str, Any]]:
    """The rows of one task's manifest."""
    batches = stage_clusters(lake, task, pipeline_reading(lake, key, None), task_label(number, place))
    try:
        return [row for batch in batches for row in batch.to_pylist()]
    except InputError as problem:
        raise TaskError(str(problem)) from None
