"""Stages a plan without Spark: its parts are read by processes of this machine."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self

from kraft_audit.lake.lake import Lake
from kraft_audit.lake.ledger import Ledger
from kraft_audit.lake.ledger_state import Manifest
from kraft_audit.lake.settings import FleetSettings
from kraft_audit.lake.staging.cluster_reading import redaction_key
from kraft_audit.lake.staging.isolated_staging import ReadingEnv, StageChild, finished_part
from kraft_audit.lake.staging.plan_staging import PlanStaging
from kraft_audit.lake.staging.stage import StageError
from kraft_audit.lake.staging.stage_parts import ManifestRow, StagePart, named_parts
from kraft_audit.lake.staging.staging_tasks import processors
from kraft_audit.text.watched_work import doing, ended, expect
from kraft_codec.errors import InputError


class LocalStager:
    """Stages plans of one fleet's lake. Raises StageError where the lake cannot be written."""

    def __init__(self, fleet: FleetSettings, lake: Lake, processes: int | None = None) -> None:
        self._fleet = fleet
        self._lake = lake
        self.processes = processes or processors()

    def __call__(self, number: int) -> Manifest:
        fleet = self._fleet
        ledger = Ledger(self._lake)
        environment = ReadingEnv(fleet.lake, redaction_key(fleet.redaction_key_file), None, fleet.deadline_minutes)

        with _Children(self.processes) as children:

            def job(names: Sequence[str]) -> list[ManifestRow]:
                parts = named_parts(ledger.planned(number), names)
                try:
                    return children.rows(number, parts, environment)
                except (InputError, OSError) as problem:
                    raise StageError(number, str(problem)) from problem

            return PlanStaging(ledger, fleet.lake, number, fleet.deadline_minutes, job).manifest()


class _Children:
    """Threads with a process each, which reads one part after the other: started when it is needed, and kept.

    The process ends with the thread that started it, so that the threads stay, too.
    """

    def __init__(self, count: int) -> None:
        self._own = threading.local()
        self._lock = threading.Lock()
        self._children: list[StageChild] = []
        self._pool = ThreadPoolExecutor(count)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown()
        for child in self._children:
            child.close()

    def rows(self, number: int, parts: list[StagePart], environment: ReadingEnv) -> list[ManifestRow]:
        """The rows of all parts. The costliest begin: none of them is waited for alone at the end."""
        parts = sorted(parts, key=lambda part: (-part.cost_bytes, part.name))
        # A cluster that is read in several shares is done with the last of them.
        parts_left = Counter(cluster for part in parts for cluster, _ in part.clusters)
        expect(len(parts_left), sum(part.cost_bytes for part in parts))
        doing("starting to read")

        def read(part: StagePart) -> list[ManifestRow]:
            if not hasattr(self._own, "child"):
                self._own.child = StageChild()
                self._children.append(self._own.child)
            rows = finished_part(number, part.name, part.clusters, environment, self._own.child)
            with self._lock:
                parts_left.subtract(cluster for cluster, _ in part.clusters)
                ended(sum(not parts_left[cluster] for cluster, _ in part.clusters))
            return rows

        return [row for rows in self._pool.map(read, parts) for row in rows]
