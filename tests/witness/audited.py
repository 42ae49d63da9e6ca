"""What the audit says of an engine run, through the doors that the command uses, and nothing of the truth."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from kraft_audit.capture.histories import split_histories
from kraft_audit.capture.path_plans import plan_cluster, plan_path
from kraft_audit.capture.plan import ClusterPlan
from kraft_audit.capture.replica import wall_clock_ms
from kraft_audit.capture.survey import Survey
from kraft_audit.pipeline.history_collector import read_history
from kraft_audit.quorum.committed_interval import CommittedInterval, committed_interval
from kraft_audit.quorum.ordered_reading import OrderedReading
from kraft_audit.quorum.quorum_evidence import EpochRun, QuorumEvidence
from kraft_audit.quorum.quorum_tables import quorum_rows
from kraft_audit.quorum.rounds import ProvenRound, newest_canonical, proven_rounds, round_evidence
from kraft_audit.reading import ClusterReading, ReadingSettings, read_survey
from kraft_audit.replay.driver import first_snapshot
from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_codec.records.redaction import Redactor
from kraft_codec.storage.opener import open_storage

FAST_FOLDER = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108  # thousands of small files a run
KEY = bytes(32)
READ_MS = wall_clock_ms()
"""One time for all readings, after all that an engine ever writes."""
SETTINGS = ReadingSettings(open_storage, Redactor(KEY), clock_ms=lambda: READ_MS)


@dataclass
class Audited:
    """One plan over an engine's captures, read as often as is asked."""

    plan: ClusterPlan
    shape: Survey | None = None
    judged: ClusterHistory | None = None
    _evidence: dict[int, QuorumEvidence] = field(default_factory=dict)

    @classmethod
    def of(cls, out: Path, *, capture: str | None = None, is_judged: bool = False) -> Audited:
        """With `is_judged` the history comes from the same reading, as for the command."""
        plans = plan_path(str(out), open_storage=open_storage, captured_at_ms=0, capture=capture)
        # A replica of another cluster makes a plan of its own.
        return cls._in_order(max(plans, key=lambda plan: len(plan.replicas)), is_judged=is_judged)

    @classmethod
    def said_to_be_one(cls, out: Path, run: dict[str, Any]) -> Audited:
        """All captures as those of one cluster, whatever their meta.properties say: as a fleet's owner may declare.

        Of several logs of one cluster id it is the newest one.
        """
        plan = plan_cluster(
            [str(out)],
            open_storage=open_storage,
            captured_at_ms=0,
            name="engine",
            cluster_id=run["cluster_id"],
        )
        with open_storage(str(out)) as storage:
            newest, *_ = split_histories(plan, lambda _: storage)
        return cls._in_order(newest)

    @classmethod
    def _in_order(cls, plan: ClusterPlan, *, is_judged: bool = False) -> Audited:
        with OrderedReading(plan, SETTINGS, keeps_records=is_judged) as ordered:
            history = read_history(ordered) if is_judged else None
            reading = ordered.reading if is_judged else ordered.read()
            return cls(ordered.plan, reading.survey, history)

    def keeping(self, numbers: tuple[int, ...]) -> Audited:
        """Only these replicas, in this order."""
        return Audited(replace(self.plan, replicas=tuple(self.plan.replicas[number] for number in numbers)))

    @cached_property
    def survey(self) -> Survey:
        if self.shape is not None:
            return self.shape
        return read_survey(self.plan, SETTINGS)

    @cached_property
    def rounds(self) -> list[ProvenRound]:
        return proven_rounds(self.survey, self.plan)

    @cached_property
    def quorum(self) -> dict[str, list[dict[str, Any]]]:
        return quorum_rows(self.survey, self.plan)

    @cached_property
    def history(self) -> ClusterHistory:
        if self.judged is not None:
            return self.judged
        with ClusterReading(self.plan, SETTINGS) as reading:
            return read_history([reading])

    def interval_of(self, numbers: tuple[int, ...]) -> CommittedInterval:
        """What these replicas of one round alone prove, without earlier captures."""
        alone = [self._alone(number) for number in numbers]
        conflicting = next(
            audited_round.evidence.conflicting_epochs
            for audited_round in self.rounds
            if numbers[0] in audited_round.replicas
        )
        replicas = [replica for evidence in alone for replica in evidence.replicas]
        return committed_interval(QuorumEvidence.of(replicas, conflicting_epochs=conflicting))

    def _alone(self, number: int) -> QuorumEvidence:
        if number not in self._evidence:
            self._evidence[number] = round_evidence(self.survey, self.plan, [number])
        return self._evidence[number]

    def plan_node(self, number: int) -> int | None:
        """The node id of a replica by its number in the survey."""
        return self.survey.replicas[number].plan.node_id

    @property
    def canonical_runs(self) -> tuple[EpochRun, ...]:
        """The epochs of the canonical log as it was captured last."""
        newest = next(
            (
                audited_round.interval.canonical
                for audited_round in reversed(self.rounds)
                if audited_round.interval.canonical
            ),
            None,
        )
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
