"""Plan: what changed below the paths of a fleet since the ledger last recorded them.

Nothing is decoded here. A cluster none of whose files changed costs a listing. A cluster with changes is planned with
the replicas that have them, each file with the position to which earlier plans read it.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from kraft_audit.capture.path_plans import LEFT_OUT, plan_cluster
from kraft_audit.capture.plan import ClusterPlan, FilePlan, PlannedDamage, ReplicaPlan, cluster_id_of
from kraft_audit.capture.replica import OpenStorage, opened_once
from kraft_audit.lake.known_histories import LedgerIndex, ReadHistory, named_histories, read_histories
from kraft_audit.lake.lake_paths import is_uri
from kraft_audit.lake.ledger import UNREAD_AGAIN_MS, Ledger
from kraft_audit.lake.ledger_state import (
    Archive,
    InspectedCluster,
    LedgerFile,
    LedgerState,
    PlannedCluster,
    opened_change,
)
from kraft_audit.lake.plan_events import NO_CLAIMS, Claims
from kraft_audit.lake.settings import ClusterSettings, FleetSettings
from kraft_audit.text.readable import time_text
from kraft_audit.text.watched_work import doing, ended, expect
from kraft_codec.errors import InputError, Reason
from kraft_codec.file_names import printable
from kraft_codec.files.discovery import ReplicaDir, discover
from kraft_codec.storage.opener import StoragePool
from kraft_codec.storage.path_patterns import matching_paths

# A file that changes while it is planned may keep its size and time: so close to that moment they are not trusted.
RACY_MS: Final = 50
RACY_WHOLE_SECONDS_MS: Final = 2_000  # object stores have times in whole seconds

NO_WAITS: Final[Mapping[str, InspectedCluster]] = {}
NO_LOG: Final = "no metadata log (__cluster_metadata-0) was found"


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """What one plan is to read. `failed` says why of each cluster of which a part, or everything, could not be reached.

    `inspected` are those clusters, and the ones without changes. `claimed` has the open plan of each cluster that one
    reads: it is left to that plan.
    """

    clusters: tuple[PlannedCluster, ...]
    unchanged_count: int
    failed: Mapping[str, str]
    inspected: tuple[InspectedCluster, ...] = ()
    claimed: Mapping[str, int] = field(default_factory=dict)

    def inspections_to_record(self, known: Mapping[str, InspectedCluster], now_ms: int) -> list[InspectedCluster]:
        """What a plan records of clusters that it does not read: those that fail, and those that no longer fail.

        Where no cluster is to be read, that alone is worth a plan only if it differs from what is `known`.
        """
        failing = [cluster for cluster in self.inspected if cluster.failure is not None]
        back = [cluster for cluster in self.inspected if cluster.failure is None and cluster.cluster_name in known]
        is_known = all(
            cluster.cluster_name in known and now_ms - known[cluster.cluster_name].at_ms < UNREAD_AGAIN_MS
            for cluster in failing
        )
        return [] if not self.clusters and not back and is_known else failing + back

    @property
    def replica_count(self) -> int:
        return sum(len({replica.identity for replica in cluster.plan.replicas}) for cluster in self.clusters)

    @property
    def planned_bytes(self) -> int:
        files = [file for cluster in self.clusters for replica in cluster.plan.replicas for file in replica.files]
        return sum(file.size_bytes - (file.earlier.scanned_to if file.earlier else 0) for file in files)


def plan_fleet(
    fleet: FleetSettings,
    ledger: Ledger,
    number: int,
    claims: Claims = NO_CLAIMS,
    waits: Mapping[str, InspectedCluster] = NO_WAITS,
) -> FleetPlan:
    """Inspect every cluster of the fleet that is free, and plan those with changes, as plan `number`.

    `claims` are those of the plans that were open before anything else was looked at. `waits` are clusters that failed
    at all attempts and are left alone for a while.
    """
    known = LedgerIndex.of(ledger.files(), ledger.states())
    now_ms = time.time_ns() // 1_000_000

    def inspected_if_free(cluster: ClusterSettings) -> Inspection:
        claimed = claims.plan_of(cluster.name, cluster.cluster_id)
        if claimed is not None:
            return Inspection(cluster.cluster_id, claimed_by=claimed)
        if (waiting := waits.get(cluster.name)) is not None:
            again = f"{waiting.failure}; it is tried again after {time_text(waiting.retry_at_ms)}"
            return Inspection(cluster.cluster_id, failures=(again,))
        doing(f"looking for changes of {cluster.name}")
        inspection = inspect(cluster, known, number, now_ms)
        ended(1)
        claimed = claims.plan_of(cluster.name, inspection.cluster_id)
        return inspection if claimed is None else Inspection(inspection.cluster_id, claimed_by=claimed)

    expect(len(fleet.clusters), 0)
    with ThreadPoolExecutor(fleet.listing_threads) as pool:
        inspections = list(pool.map(inspected_if_free, fleet.clusters))
    clusters: list[PlannedCluster] = []
    failed: dict[str, str] = {}
    claimed: dict[str, int] = {}
    owners: dict[str, str] = {}
    # What this plan names counts for the entries after it.
    states = dict(known.states)
    unchanged: set[str] = set()
    # An entry keeps its histories before those of other entries are named.
    for settings, inspection in zip(fleet.clusters, inspections, strict=True):
        for history in inspection.owned:
            owners.setdefault(history, settings.name)
    for settings, inspection in zip(fleet.clusters, inspections, strict=True):
        if inspection.claimed_by is not None:
            claimed[settings.name] = inspection.claimed_by
            continue
        failures = list(inspection.failures)
        planned: list[PlannedCluster] = []
        histories = named_histories(inspection.histories, states, ledger.histories_holding)
        ids = {plan.key for plan in histories} if inspection.changes is not None else inspection.owned
        if strange := sorted(id_ for id_ in ids if owners.setdefault(id_, settings.name) != settings.name):
            shown = f"{cluster_id_of(strange[0])} is that of {owners[strange[0]]}"
            failures = [f"its cluster id {shown}: nothing of it is read"]
            histories = []
        for plan in histories:
            assert inspection.changes is not None  # noqa: S101  # without changes no history is named
            if plan.aliases and not plan.first_plan:
                plan = replace(plan, first_plan=ledger.first_plan(plan.key))
            states[plan.key] = states.get(plan.key, LedgerState()).after(opened_change(PlannedCluster(plan)))
            each, why = _planned(plan, inspection.changes, known)
            failures += [line for line in why if line not in failures]
            planned += [] if each is None else [each]
        clusters += planned
        if failures:
            failed[settings.name] = "; ".join(failures)
        elif not planned:
            unchanged.add(settings.name)
    inspected = [
        InspectedCluster(settings.name, inspection.cluster_id or settings.cluster_id, failed.get(settings.name))
        for settings, inspection in zip(fleet.clusters, inspections, strict=True)
        if settings.name in failed or settings.name in unchanged
    ]
    return FleetPlan(tuple(clusters), len(unchanged), failed, tuple(inspected), claimed)


@dataclass(frozen=True, slots=True)
class Inspection:
    """What inspecting one cluster gave: the histories of what lies there now, no change, or only failures.

    `owned` are the histories that earlier plans read below its paths; `claimed_by` is the open plan that reads it.
    """

    cluster_id: str | None = None
    histories: tuple[ReadHistory, ...] = ()
    changes: ChangedPaths | None = None
    failures: tuple[str, ...] = ()
    owned: frozenset[str] = frozenset()
    claimed_by: int | None = None


@dataclass(frozen=True, slots=True)
class ChangedPaths:
    """Which of a cluster's paths hold anything that the ledger does not; `readable` are all that hold a log."""

    changed: list[str]
    readable: list[str]
    archives: dict[str, Archive]
    cluster_id: str | None
    failures: list[str]
    owned: frozenset[str] = frozenset()


def inspect(settings: ClusterSettings, known: LedgerIndex, number: int, now_ms: int) -> Inspection:
    """List one cluster's paths and plan it where they hold anything that the ledger does not."""
    with StoragePool() as pool:
        changes = find_changes(settings, known, pool.open)
        failures = tuple(changes.failures)
        if not changes.changed:
            return Inspection(changes.cluster_id, failures=failures, owned=changes.owned)
        try:
            plan = plan_cluster(
                changes.readable,
                open_storage=pool.open,
                captured_at_ms=now_ms,
                name=settings.name,
                number=number,
                cluster_id=changes.cluster_id,
                dialect=settings.dialect,
                defaults=sorted(settings.defaults.items()),
            )
            plan = replace(plan, is_running=settings.running, gone=tuple(settings.gone))
            if not plan.cluster_id:
                nameless = "no replica says its cluster id: declare it in fleet.yaml as cluster_id"
                return Inspection(failures=(*failures, f"{', '.join(changes.changed)}: {nameless}"))
            with opened_once(pool.open) as opened:
                histories = read_histories(plan, known, opened)
                for root in changes.readable:
                    opened(root).carry()
        except InputError as problem:
            return Inspection(changes.cluster_id, failures=(*failures, str(problem)), owned=changes.owned)
    return Inspection(plan.cluster_id, tuple(histories), changes, failures, changes.owned)


def find_changes(settings: ClusterSettings, known: LedgerIndex, open_storage: OpenStorage) -> ChangedPaths:
    """Compare what lies below the cluster's paths with the ledger, by names, sizes and times."""
    expanded: dict[str, list[str]] = {}
    failures: list[str] = []
    for path in settings.paths:
        try:
            expanded[path] = matching_paths(path)
        except InputError as problem:
            failures.append(str(problem))
    roots = [root for matches in expanded.values() for root in matches]
    archives = {root: archive for root in roots if (archive := _archive(root)) is not None}
    seen = _histories_in_ledger(roots, known)
    cluster_id = settings.cluster_id or next((cluster_id_of(id_) for id_, _ in seen.most_common(1)), None)
    changes = ChangedPaths([], [], archives, cluster_id, failures, frozenset(seen))
    empty: set[str] = set()
    for root in roots:
        try:
            has_changes = (
                (archives[root] not in known.archives) if root in archives else _has_changes(root, known, open_storage)
            )
        except InputError as problem:
            changes.failures.append(str(problem))
            continue
        if has_changes is None:
            empty.add(root)
        else:
            changes.readable.append(root)
            if has_changes:
                changes.changed.append(root)
    changes.failures.extend(f"{path}: {NO_LOG}" for path, matches in expanded.items() if empty.issuperset(matches))
    return changes


def _planned(
    plan: ClusterPlan, changes: ChangedPaths, known: LedgerIndex
) -> tuple[PlannedCluster | None, tuple[str, ...]]:
    """What is to be read of one history, None where nothing changed; and why a part of it cannot be."""
    cluster_ids = sorted({replica.cluster_id or plan.cluster_id for replica in plan.replicas})
    if cluster_ids and plan.cluster_id not in cluster_ids:
        # Nothing of it would be read, and every rule would be undecided, every hour: that is a failure, not a reading.
        why = (
            f"no log dir is of cluster {plan.cluster_id}, by cluster_id in fleet.yaml or by what was read before: "
            f"they are of {', '.join(cluster_ids)}"
        )
        return None, (why,)
    lost = {
        damage.root: damage.detail for damage in plan.damages if not damage.path and damage.reason == Reason.UNREADABLE
    }
    if not plan.history_of.histories:
        lost |= {root: NO_LOG for root in changes.changed if root not in lost and not _holds_any(root, plan)}
    failures = tuple(f"{root}: {why}" for root, why in lost.items())
    state = known.states.get(plan.key, LedgerState())
    resumed = with_ledger(plan, known, state, frozenset(changes.changed))
    if not resumed.replicas and not resumed.damages:
        return None, failures
    read = tuple(sorted(archive for root, archive in changes.archives.items() if root not in lost))
    damages = tuple(sorted({*state.damages, *(damage_key(damage) for damage in plan.damages)}))
    planned = PlannedCluster(
        resumed, None if read == state.archives else read, None if damages == state.damages else damages
    )
    return planned, failures


def with_ledger(plan: ClusterPlan, known: LedgerIndex, state: LedgerState, changed: frozenset[str]) -> ClusterPlan:
    """The plan as it resumes from the ledger, with damage of listing only where it is new.

    Replicas without changes, among them those below roots that have not `changed`, are context.
    """
    resumed = {replica: _resumed(replica, plan.key, known) for replica in plan.replicas}
    with_changes = frozenset(
        replica
        for replica, as_resumed in resumed.items()
        if (replica.root in changed or not _is_known(as_resumed)) and _is_changed(as_resumed)
    )
    recorded = frozenset(state.damages)
    return replace(
        plan,
        replicas=tuple(resumed[replica] for replica in plan.replicas if replica in with_changes),
        context=tuple(replica for replica in plan.replicas if replica not in with_changes),
        damages=tuple(damage for damage in plan.damages if damage_key(damage) not in recorded),
        known_damages=tuple(damage for damage in plan.damages if damage_key(damage) in recorded),
        decoded_to=state.decoded_to,
        known_sources=state.known_sources,
        redaction_state=state.redaction_state,
        silver=state.silver,
        kept_state=state.kept_state,
    )


def damage_key(damage: PlannedDamage) -> str:
    """A hash by which the same damage of the same place is known again."""
    text = "\0".join((damage.root, damage.path, str(damage.position), damage.reason, damage.detail))
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()


def _resumed(replica: ReplicaPlan, history: str, known: LedgerIndex) -> ReplicaPlan:
    """The replica with what plans read of this history in its folder.

    Of another history's files nothing is known, nor of those of a disk that was there before this one.
    """
    folder = (printable(replica.root), printable(replica.path))
    there = {printable(file.name) for file in replica.files}
    of_folder = {name: file for name, file in known.by_folder.get(folder, {}).items() if file.cluster_id == history}
    gone = [file for name, file in of_folder.items() if name not in there]
    disk = replica.node_id, replica.directory_id
    own = {name: file for name, file in of_folder.items() if (file.node_id, file.directory_id) == disk}
    return replace(
        replica,
        files=tuple(_resumed_file(file, own.get(printable(file.name))) for file in replica.files),
        gone_files=tuple(_gone_file(file) for file in sorted(gone, key=lambda file: file.file_name)),
    )


def _resumed_file(file: FilePlan, earlier: LedgerFile | None) -> FilePlan:
    if earlier is None:
        return file
    return replace(file, earlier=replace(earlier.scan, mtime_ms=_trusted_mtime_ms(earlier)))


def _gone_file(file: LedgerFile) -> FilePlan:
    scan = file.scan
    return FilePlan(file.file_name, file.kind, file.base_offset, file.epoch, scan.size_bytes, scan.mtime_ms, scan)


def _is_known(replica: ReplicaPlan) -> bool:
    return any(file.earlier is not None for file in replica.files)


def _is_changed(replica: ReplicaPlan) -> bool:
    return bool(replica.gone_files) or not all(file.is_unchanged for file in replica.files)


def _trusted_mtime_ms(file: LedgerFile) -> int:
    """The time by which the file is known again; -1, which no file has, where it may have changed unseen since then."""
    mtime_ms = file.scan.mtime_ms
    racy_ms = RACY_WHOLE_SECONDS_MS if mtime_ms % 1000 == 0 else RACY_MS
    return mtime_ms if mtime_ms + racy_ms < file.captured_at_ms else -1


def _holds_any(root: str, plan: ClusterPlan) -> bool:
    return any(replica.root == root for replica in plan.replicas) or any(damage.root == root for damage in plan.damages)


def _has_changes(root: str, known: LedgerIndex, open_storage: OpenStorage) -> bool | None:
    """Whether a listing of `root` shows anything that the ledger does not have; None for no log. Raises InputError."""
    with open_storage(root) as storage:
        discovery = discover(storage)
    if discovery.damages:
        return True
    if not discovery.replicas:
        return None
    return any(_replica_has_changes(root, replica, known) for replica in discovery.replicas)


def _replica_has_changes(root: str, replica: ReplicaDir, known: LedgerIndex) -> bool:
    earlier = known.by_folder.get((printable(root), printable(replica.node_dir)), {})
    names: set[str] = set()
    for file in replica.files:
        if file.kind in LEFT_OUT:
            continue
        name = printable(file.path[len(replica.node_dir) :].lstrip("/"))
        names.add(name)
        before = earlier.get(name)
        if before is None or (before.scan.size_bytes, _trusted_mtime_ms(before)) != (file.size_bytes, file.mtime_ms):
            return True
    return names != earlier.keys()


def _histories_in_ledger(roots: Sequence[str], known: LedgerIndex) -> Counter[str]:
    """The histories that these paths belonged to so far, whichever of their replicas changed."""
    shown = {printable(root) for root in roots}
    return Counter(file.cluster_id for (root, _, _), file in known.files.items() if root in shown)


def _archive(root: str) -> Archive | None:
    """An archive's address, size and time, by which it is known again; None for a folder or an object store."""
    if is_uri(root):
        return None
    try:
        status = Path(root).stat()
    except OSError:
        return None  # opening it will say what is wrong
    return Archive(root, status.st_size, status.st_mtime_ns // 1_000_000) if Path(root).is_file() else None
