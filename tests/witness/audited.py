"""What the audit tells of an engine run, through the doors that the command uses, and nothing of the truth."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from kraft_audit.replay.cluster import wall_clock_ms
from kraft_audit.replay.epochs import EpochRun
from kraft_audit.replay.evidence import ClusterEvidence
from kraft_audit.replay.plan import ClusterPlan
from kraft_audit.replay.planning import plan_cluster, plan_path
from kraft_audit.replay.proven_plan import in_proven_order
from kraft_audit.replay.resume import first_snapshot
from kraft_audit.replay.rounds import RoundInterval, committed_intervals, quorum_rows, round_evidence
from kraft_audit.replay.silver import newest_canonical
from kraft_audit.replay.survey import Survey, survey
from kraft_audit.replay.watermarks import CommittedInterval, committed_interval
from kraft_audit.rules.collect import read_history
from kraft_audit.rules.history import ClusterHistory
from kraft_codec.redaction import Redactor
from kraft_codec.schemas import Dialect
from kraft_codec.storage import open_storage

FAST_FOLDER = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108  # thousands of small files a run
KEY = bytes(32)
READ_MS = wall_clock_ms()
"""One time for all readings, after all that an engine ever writes."""


@dataclass
class Audited:
    """One plan over an engine's captures, read as often as is asked."""

    plan: ClusterPlan
    shape: Survey | None = None
    _evidence: dict[int, ClusterEvidence] = field(default_factory=dict)

    @classmethod
    def of(cls, out: Path, dialect: str, *, capture: str | None = None) -> Audited:
        plans = plan_path(
            str(out), open_storage=open_storage, captured_at_ms=0, dialect=Dialect(dialect), capture=capture
        )
        # A replica of another cluster makes a plan of its own.
        return cls._in_order(max(plans, key=lambda plan: len(plan.replicas)))

    @classmethod
    def said_to_be_one(cls, out: Path, run: dict[str, Any]) -> Audited:
        """All captures as those of one cluster, whatever their meta.properties say: a fleet's owner tells so."""
        plan = plan_cluster(
            [str(out)],
            open_storage=open_storage,
            captured_at_ms=0,
            name="engine",
            cluster_id=run["cluster_id"],
            dialect=Dialect(run["dialect"]),
        )
        return cls._in_order(plan)

    @classmethod
    def _in_order(cls, plan: ClusterPlan) -> Audited:
        proven = in_proven_order(plan, open_storage=open_storage, redactor=Redactor(KEY), clock_ms=lambda: READ_MS)
        return cls(proven.plan, proven.shape)

    def keeping(self, numbers: tuple[int, ...]) -> Audited:
        """Only these replicas, in this order."""
        return Audited(replace(self.plan, replicas=tuple(self.plan.replicas[number] for number in numbers)))

    @cached_property
    def survey(self) -> Survey:
        if self.shape is not None:
            return self.shape
        return survey(self.plan, open_storage=open_storage, redactor=Redactor(KEY), clock_ms=lambda: READ_MS)

    @cached_property
    def rounds(self) -> list[RoundInterval]:
        return committed_intervals(self.survey, self.plan)

    @cached_property
    def quorum(self) -> dict[str, list[dict[str, Any]]]:
        return quorum_rows(self.survey, self.plan)

    @cached_property
    def history(self) -> ClusterHistory:
        return read_history(self.plan, open_storage=open_storage, redactor=Redactor(KEY), shape=self.survey)

    def interval_of(self, numbers: tuple[int, ...]) -> CommittedInterval:
        """What these replicas of one round alone prove, without earlier captures."""
        alone = [self._alone(number) for number in numbers]
        conflicting = next(one.evidence.conflicting_epochs for one in self.rounds if numbers[0] in one.round.replicas)
        replicas = [replica for evidence in alone for replica in evidence.replicas]
        return committed_interval(ClusterEvidence.of(replicas, conflicting_epochs=conflicting))

    def _alone(self, number: int) -> ClusterEvidence:
        if number not in self._evidence:
            self._evidence[number] = round_evidence(self.survey, self.plan, [number])
        return self._evidence[number]

    def plan_node(self, number: int) -> int | None:
        """The node id of a replica by its number in the survey."""
        return self.survey.replicas[number].plan.node_id

    @property
    def canonical_runs(self) -> tuple[EpochRun, ...]:
        """The epochs of the canonical log as it was captured last."""
        newest = next((one.interval.canonical for one in reversed(self.rounds) if one.interval.canonical), None)
        return () if newest is None else newest.runs

    @property
    def canonical_end(self) -> int:
        newest = newest_canonical(self.rounds)
        return 0 if newest is None or newest.interval.canonical is None else newest.interval.canonical.end[1]

    @property
    def log_start(self) -> int:
        """The first offset of the canonical log that a disk holds without a gap up to its end."""
        runs = self.canonical_runs
        return runs[0].from_offset if runs else 0

    @property
    def replay_start(self) -> int:
        """Where the replay begins: at the first snapshot where the canonical log is not held from its start."""
        snapshot = first_snapshot(self.survey, self.log_start, has_log=bool(self.canonical_end))
        return self.log_start if snapshot is None else snapshot.end_offset
