"""Staging a plan: its parts in one job, and what was lost in it once more, then alone.

What a job finished is not read again, by this run or the next one: each part leaves a manifest. An attempt is recorded
in the ledger before it starts, so that a run that dies in it leaves a trace. A cluster whose reading did not end by its
deadline, or whose process died, is tried a second time, then alone; then it has failed, with the reason.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kraft_audit.capture.plan import plan_from_json
from kraft_audit.lake.ledger import Ledger
from kraft_audit.lake.ledger_state import Manifest, StateChange, manifest_of, state_to_json
from kraft_audit.lake.staging.stage_parts import (
    ManifestRow,
    StagePart,
    deadline_s,
    named_parts,
    parts_of,
    read_manifests,
    retry_name,
)

PART_ATTEMPTS_MAX: Final = 3
"""With the others of its part, by itself, and with nothing else beside it."""
Job = Callable[[Sequence[str]], Sequence[ManifestRow]]
"""Reads the parts of these names, each in a task or several in one; the rows of their manifests."""


class PlanStaging:
    """Stages plan `number`. `job` reads parts; `minutes` is how long a cluster may take, beside what its size asks."""

    def __init__(self, ledger: Ledger, data_uri: str, number: int, minutes: int, job: Job) -> None:
        self._ledger = ledger
        self._data_uri = data_uri
        self._number = number
        self._minutes = minutes
        self._job = job
        self._planned = ledger.planned(number)
        self._texts = dict(self._planned)
        self._done: dict[str, Sequence[ManifestRow]] = {}

    def manifest(self) -> Manifest:
        """Read what earlier runs did not finish; the manifest of the whole plan."""
        parts = parts_of(self._planned)
        left = read_manifests(self._data_uri, self._number)
        named = {part.name: part for part in named_parts(self._planned, self._known_names(parts, left))}
        self._done = {name: rows for name, rows in left.items() if name in named and _is_of(rows, named[name])}
        expired = self._expired()
        again = [
            part for part in parts if part.name not in self._done and expired.get(part.name, 0) >= PART_ATTEMPTS_MAX - 1
        ]
        alone = [number for part in again for number, _ in part.clusters]
        others = [part for part in parts if part not in again]
        self._read([part.name for part in others])
        lost = [number for part in others for number in self._lost_in(part.name)]
        second = [number for number in lost if not expired.get(retry_name(number, 2))]
        self._read([retry_name(number, 2) for number in second])
        alone += [number for number in lost if number not in second or self._lost_in(retry_name(number, 2))]
        for number in sorted(alone):
            if not expired.get(retry_name(number, PART_ATTEMPTS_MAX)):
                # A job of its own each: no other cluster takes memory beside it.
                self._read([retry_name(number, PART_ATTEMPTS_MAX)])
        return manifest_of(self._rows())

    def _known_names(self, parts: Sequence[StagePart], left: Mapping[str, Any]) -> list[str]:
        retries = {retry_name(number, attempt) for number in self._texts for attempt in range(2, PART_ATTEMPTS_MAX + 1)}
        return [*(part.name for part in parts), *sorted(retries & left.keys())]

    def _read(self, names: Sequence[str]) -> None:
        missing = [name for name in names if name not in self._done]
        if not missing:
            return
        parts = named_parts(self._planned, missing)
        self._ledger.record_attempt(
            self._number,
            [
                (number, plan_from_json(text), {"part": part.name, "deadline_s": self._deadline_s(part)})
                for part in parts
                for number, text in part.clusters
            ],
        )
        by_part: dict[str, list[ManifestRow]] = {name: [] for name in missing}
        for row in self._job(missing):
            by_part[row["part"]].append(row)
        self._done |= by_part

    def _deadline_s(self, part: StagePart) -> int:
        return deadline_s(self._minutes * len(part.clusters), part.cost_bytes)

    def _expired(self) -> dict[str, int]:
        """How many attempts to read each part have neither ended nor can be under way any more."""
        now_ms = time.time_ns() // 1_000_000
        expired: dict[str, int] = {}
        for at_ms, part, seconds in self._ledger.attempts(self._number):
            if part not in self._done and at_ms + 1000 * seconds < now_ms:
                expired[part] = expired.get(part, 0) + 1
        return expired

    def _lost_in(self, part: str) -> list[int]:
        return [row["cluster_number"] for row in self._done.get(part, ()) if _is_lost(row)]

    def _rows(self) -> list[ManifestRow]:
        """The rows of all parts; of a cluster that was read in none of them, its failure."""
        rows: list[ManifestRow] = []
        why: dict[int, str] = {}
        read: set[int] = set()
        # By name the parts of all clusters come before what was read again, of one cluster each.
        for name in sorted(self._done, key=lambda name: (name.partition("-")[2], name)):
            lost = {row["cluster_number"]: row["failure"] for row in self._done[name] if _is_lost(row)}
            ended = {row["cluster_number"] for row in self._done[name] if row["summary"] is not None}
            why |= lost
            if not ended & read:
                rows += [row for row in self._done[name] if not _is_lost(row)]
                read |= ended
        return rows + [
            self._failed(number, text, why.get(number, "the job that read it was lost"))
            for number, text in self._planned
            if number not in read
        ]

    def _failed(self, number: int, text: str, why: str) -> ManifestRow:
        plan = plan_from_json(text)
        return {
            "cluster_number": number,
            "cluster_name": plan.name,
            "cluster_id": plan.key,
            "failure": f"{PART_ATTEMPTS_MAX} attempts failed, the last one alone: {why}",
            "state": state_to_json(StateChange()),
            "summary": json.dumps({"attempts": PART_ATTEMPTS_MAX}),
            "data_file": None,
        }


def _is_lost(row: ManifestRow) -> bool:
    """Whether a row says that an attempt failed, which is no outcome yet."""
    return row["data_file"] is None and row["summary"] is None


def _is_of(rows: Sequence[ManifestRow], part: StagePart) -> bool:
    """Whether a manifest is of exactly these clusters: another build may have made other parts of the same plan."""
    clusters = [row["cluster_number"] for row in rows if row["data_file"] is None]
    return sorted(clusters) == sorted(number for number, _ in part.clusters)
