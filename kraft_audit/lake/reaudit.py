"""A run from the archive: silver tables and findings again, from Delta alone, when the log dirs are gone.

It is a plan like any other, staged, committed and closed in the same way. The cluster's newest row of `replays` makes
its rows replace those of earlier plans. Bronze stays as it is, and so does `watermarks`, which only disks can give.
Where rows with one id hold several logs, each becomes a history, as in `run`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kraft_audit.capture.plan import ARCHIVED_ROOT, ClusterPlan, SilverPosition, cluster_id_of
from kraft_audit.lake.closed_plans import ClosedPlans
from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.fleet_plan import FleetPlan
from kraft_audit.lake.ledger_state import InspectedCluster, LedgerState, PlannedCluster
from kraft_audit.lake.pipeline import Run
from kraft_audit.lake.plan_events import Claims
from kraft_audit.lake.staging.archive_reading import (
    LakeCluster,
    closed_plans,
    histories_of_archive,
    lake_clusters,
)
from kraft_codec.errors import InputError


class Reaudit(Run):
    """A run that reads the archive. An open plan is finished first, and may need its log dirs for that."""

    def _prepare(self) -> None:
        """The key is needed only to finish what another run began: the archive holds fingerprints already."""
        if not self.lake.exists("plans") or not self.ledger.newest_plan():
            raise InputError(self.lake.uri, "nothing was ever read into this lake: there is no archive")
        if self.fleet.redaction_key_file is not None:
            super()._prepare()
            return
        if open_plans := self.ledger.status().open:
            why = f"plan {open_plans[0]} is open, and cannot be finished without the redaction key"
            raise InputError(self.lake.uri, why)
        self.key_id = self.ledger.redaction_key_id() or ""
        self.ledger.create()

    def _plan_fleet(self, number: int, claims: Claims, waits: Mapping[str, InspectedCluster]) -> FleetPlan:
        """A cluster that could not be read from its log dirs may be read from the archive: `waits` do not count."""
        lake = DeltaLake(self.lake.uri)
        closed = closed_plans(lake)
        states = self.ledger.states()
        planned: list[PlannedCluster] = []
        failed: dict[str, str] = {}
        claimed: dict[str, int] = {}
        for name, cluster in self._clusters(lake, closed):
            open_plan = None if cluster is None else claims.plan_of(name, cluster_id_of(cluster.cluster_id))
            if open_plan is not None:
                claimed[name] = open_plan
                continue
            if cluster is None:
                failed[name] = f"{lake.uri}: no plan ever read a cluster {name!r}"
                continue
            try:
                histories = histories_of_archive(lake, cluster, closed, number, root=ARCHIVED_ROOT)
            except InputError as problem:
                failed[name] = str(problem)
                continue
            # Other histories that the lake knows are planned in their own turn.
            plans = [history.cluster.plan for history in histories]
            wanted = [plan for plan in plans if plan.key == cluster.cluster_id or plan.key not in states]
            is_split = any(plan.split_from == cluster.cluster_id for plan in wanted)
            planned += [PlannedCluster(_with_known_state(plan, states.get(plan.key), is_split)) for plan in wanted]
        return FleetPlan(tuple(planned), 0, failed, claimed=claimed)

    def _clusters(self, lake: DeltaLake, closed: ClosedPlans) -> list[tuple[str, LakeCluster | None]]:
        """The clusters of the lake that the fleet names, read as it says; without a fleet all, as last read."""
        in_lake = lake_clusters(lake, closed)
        if not self.fleet.clusters:
            return [(cluster.name or cluster.cluster_id, cluster) for cluster in in_lake]
        clusters: list[tuple[str, LakeCluster | None]] = []
        for settings in self.fleet.clusters:
            names = {settings.name, settings.cluster_id}
            histories = [known for known in in_lake if {known.cluster_id, known.name} & names]
            if settings.paths:
                defaults = tuple(sorted(settings.defaults.items()))
                histories = [
                    replace(
                        known,
                        name=settings.name,
                        dialect=settings.dialect or known.dialect,
                        defaults=defaults,
                        is_running=settings.running,
                        gone=tuple(settings.gone),
                    )
                    for known in histories
                ]
            elif settings.running or settings.gone:
                word = (settings.running, tuple(settings.gone))
                histories = [replace(known, is_running=word[0], gone=word[1]) for known in histories]
            clusters += [(settings.name, known) for known in histories] or [(settings.name, None)]
        return clusters


def _with_known_state(plan: ClusterPlan, state: LedgerState | None, is_split: bool) -> ClusterPlan:
    """The plan with the known state of the cluster: all rows are emitted again, and what was proven stays proven.

    Of several logs read as one nothing was proven: a history that is split from it begins at 0.
    """
    if state is None:
        return plan
    before = state.silver
    silver = None
    if before is not None and before.began_at == 0:
        known = SilverPosition(0, before.to_offset, before.low, before.low_epoch, 0)
        silver = SilverPosition(0, 0, 0, 0, 0) if is_split else known
    kept_state = "" if is_split else state.kept_state
    return replace(plan, redaction_state=state.redaction_state, silver=silver, kept_state=kept_state)
