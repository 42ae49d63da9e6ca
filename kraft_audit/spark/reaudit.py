"""A run from the archive: the same silver tables and findings from Delta alone, with the log dirs gone.

It is a plan as any other, staged, committed and closed in the same way. What a cluster's newest row of `replays` says
makes its rows stand for those of earlier plans. Bronze stays as it is, and `watermarks` too, which only disks can tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from kraft_audit.replay.plan import ClusterPlan, SilverPosition
from kraft_audit.settings import ClusterSettings, FleetSettings, SettingsError, absolute
from kraft_audit.spark.archive_reading import ARCHIVED_ROOT
from kraft_audit.spark.archive_tables import LakeCluster, closed_plan, lake_clusters, open_archive
from kraft_audit.spark.lake import DeltaLake
from kraft_audit.spark.ledger_state import LedgerState, PlannedCluster
from kraft_audit.spark.plan import FleetPlan
from kraft_audit.spark.run import Run
from kraft_codec.errors import InputError


def lake_alone(lake: str | None, clusters: Sequence[str] | None = None) -> FleetSettings:
    """Settings of a run from the archive that names no fleet: all clusters, or these, as they were read last."""
    if not lake:
        raise SettingsError("run", "lake", lake, "FLEET.yaml, or --lake with --from archive")
    uri = absolute(lake, Path.cwd()).rstrip("/")
    named = [ClusterSettings.model_construct(name=name, paths=[]) for name in clusters or ()]
    return FleetSettings.model_construct(lake=uri, clusters=named, redaction_key_file=f"{uri}.redaction-key")


def without_lost_key(fleet: FleetSettings) -> FleetSettings:
    """The same fleet; without a key file where there is none: a run from the archive makes no fingerprint."""
    if fleet.redaction_key_file is not None and not Path(fleet.redaction_key_file).exists():
        return fleet.model_copy(update={"redaction_key_file": None})
    return fleet


class Reaudit(Run):
    """A run that reads the archive. A plan that is open is finished first, and may need its log dirs for that."""

    def _prepare(self) -> None:
        """Fingerprints are made already: the key is needed only to finish what another run began."""
        if not self.lake.exists("plans") or not self.ledger.status().opened:
            raise InputError(self.lake.uri, "nothing was ever read into this lake: there is no archive")
        if self.fleet.redaction_key_file is not None:
            super()._prepare()
            return
        number = self.ledger.status().open_number
        if number is not None:
            raise InputError(self.lake.uri, f"plan {number} is open, and cannot be finished without the redaction key")
        self.key_id = self.ledger.redaction_key_id() or ""
        self.ledger.create()

    def _look(self, number: int) -> FleetPlan:
        lake = DeltaLake(self.lake.uri)
        closed = closed_plan(lake)
        states = self.ledger.states()
        planned: list[PlannedCluster] = []
        failed: dict[str, str] = {}
        for name, cluster in self._clusters(lake, closed):
            if cluster is None:
                failed[name] = f"{lake.uri}: no plan ever read a cluster {name!r}"
                continue
            try:
                plan = open_archive(lake, cluster, closed, number, root=ARCHIVED_ROOT).plan
            except InputError as problem:
                failed[name] = str(problem)
                continue
            planned.append(PlannedCluster(_going_on(plan, states.get(cluster.cluster_id))))
        return FleetPlan(tuple(planned), 0, failed)

    def _clusters(self, lake: DeltaLake, closed: int) -> list[tuple[str, LakeCluster | None]]:
        """Those of the lake that the fleet names, read as it says; without a fleet all, as they were read last."""
        known = lake_clusters(lake, closed)
        if not self.fleet.clusters:
            return [(cluster.name or cluster.cluster_id, cluster) for cluster in known]
        found: list[tuple[str, LakeCluster | None]] = []
        for settings in self.fleet.clusters:
            names = {settings.name, settings.cluster_id}
            cluster = next((one for one in known if {one.cluster_id, one.name} & names), None)
            if cluster is not None and settings.paths:
                defaults = tuple(sorted(settings.defaults.items()))
                cluster = LakeCluster(cluster.cluster_id, settings.name, settings.dialect, defaults)
            found.append((settings.name, cluster))
        return found


def _going_on(plan: ClusterPlan, state: LedgerState | None) -> ClusterPlan:
    """The plan with what is known of the cluster: everything is told anew, what was proven stays so."""
    if state is None:
        return plan
    before = state.silver
    silver = None
    if before is not None and before.began_at == 0:
        silver = SilverPosition(0, 0, before.low, before.low_epoch, 0)
    return replace(plan, redaction_state=state.redaction_state, silver=silver)
