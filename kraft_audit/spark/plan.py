"""Plan: what is new below the paths of a fleet, against what the ledger holds.

Nothing is decoded here. A cluster none of whose files changed is passed by after a listing; one that has news is
planned with the replicas that have it, each file with how far earlier plans read it.
"""

from __future__ import annotations

import glob
import hashlib
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from kraft_audit.replay.cluster import OpenStorage
from kraft_audit.replay.plan import ClusterPlan, FilePlan, PlannedDamage, ReplicaPlan
from kraft_audit.replay.planning import LEFT_OUT, plan_cluster
from kraft_audit.settings import ClusterSettings, FleetSettings, is_uri
from kraft_audit.spark.ledger import UNREAD_AGAIN_MS, Ledger
from kraft_audit.spark.ledger_state import Archive, LedgerFile, LedgerState, LookedAt, PlannedCluster
from kraft_codec.discovery import ReplicaDir, discover
from kraft_codec.errors import InputError, Reason
from kraft_codec.file_names import printable
from kraft_codec.local_storage import reason_text
from kraft_codec.storage import StoragePool

# A file that changes in the moment in which it is planned may keep its size and time: then they are not trusted.
RACY_MS: Final = 50
RACY_WHOLE_SECONDS_MS: Final = 2_000  # object stores tell whole seconds
ARCHIVE_NAMES: Final = (".tgz", ".tar.gz", ".tar", ".zip")

NO_LOG: Final = "no metadata log (__cluster_metadata-0) was found"

FileKey = tuple[str, str, str]
FolderKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """What one plan is to read. `failed` names clusters of which something, or everything, could not be reached.

    `looked_at` are these, and those that had nothing new.
    """

    clusters: tuple[PlannedCluster, ...]
    unchanged_count: int
    failed: Mapping[str, str]
    looked_at: tuple[LookedAt, ...] = ()

    def news_of_looking(self, known: Mapping[str, LookedAt], now_ms: int) -> list[LookedAt]:
        """What is to be recorded of clusters that are not read: who fails, and who does no longer.

        Without clusters to read that is worth a plan only where it is another thing than was `known`.
        """
        failing = [one for one in self.looked_at if one.failure is not None]
        back = [one for one in self.looked_at if one.failure is None and one.cluster_name in known]
        is_known = all(
            one.cluster_name in known and now_ms - known[one.cluster_name].at_ms < UNREAD_AGAIN_MS for one in failing
        )
        return [] if not self.clusters and not back and is_known else failing + back

    @property
    def replica_count(self) -> int:
        return sum(len({replica.identity for replica in one.plan.replicas}) for one in self.clusters)

    @property
    def planned_bytes(self) -> int:
        files = [file for one in self.clusters for replica in one.plan.replicas for file in replica.files]
        return sum(file.size_bytes - (file.earlier.scanned_to if file.earlier else 0) for file in files)


@dataclass(frozen=True, slots=True)
class Known:
    """The ledger, as planning looks things up in it."""

    files: Mapping[FileKey, LedgerFile]
    by_folder: Mapping[FolderKey, Mapping[str, LedgerFile]]
    states: Mapping[str, LedgerState]
    archives: frozenset[Archive]

    @classmethod
    def of(cls, files: Mapping[FileKey, LedgerFile], states: Mapping[str, LedgerState]) -> Known:
        by_folder: dict[FolderKey, dict[str, LedgerFile]] = {}
        for (root, path, name), file in files.items():
            by_folder.setdefault((root, path), {})[name] = file
        return cls(files, by_folder, states, frozenset(one for state in states.values() for one in state.archives))


def plan_fleet(fleet: FleetSettings, ledger: Ledger, number: int) -> FleetPlan:
    """Look at every cluster of the fleet and plan those that have news, as plan `number`."""
    known = Known.of(ledger.files(), ledger.states())
    now_ms = time.time_ns() // 1_000_000
    with ThreadPoolExecutor(fleet.listing_threads) as pool:
        looked = list(pool.map(lambda cluster: look(cluster, known, number, now_ms), fleet.clusters))
    clusters: list[PlannedCluster] = []
    failed: dict[str, str] = {}
    owners: dict[str, str] = {}
    for settings, found in zip(fleet.clusters, looked, strict=True):
        if found.failures:
            failed[settings.name] = "; ".join(found.failures)
        if found.cluster_id is not None:
            owner = owners.setdefault(found.cluster_id, settings.name)
            if owner != settings.name:
                failed[settings.name] = f"its cluster id {found.cluster_id} is that of {owner}: nothing of it is read"
                continue
        if found.planned is not None:
            clusters.append(found.planned)
    unchanged = sum(found.is_unchanged for found in looked)
    looked_at = [
        LookedAt(settings.name, found.cluster_id or settings.cluster_id, failed.get(settings.name))
        for settings, found in zip(fleet.clusters, looked, strict=True)
        if settings.name in failed or found.is_unchanged
    ]
    return FleetPlan(tuple(clusters), unchanged, failed, tuple(looked_at))


@dataclass(frozen=True, slots=True)
class Looked:
    """What a look at one cluster gave: news, no news, or nothing but failures."""

    cluster_id: str | None = None
    planned: PlannedCluster | None = None
    is_unchanged: bool = False
    failures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class News:
    """Which of a cluster's paths hold anything that the ledger does not; `readable` are all that hold a log."""

    changed: list[str]
    readable: list[str]
    archives: dict[str, Archive]
    cluster_id: str | None
    failures: list[str]


def look(settings: ClusterSettings, known: Known, number: int, now_ms: int) -> Looked:
    """List one cluster's paths and plan it where they hold anything that the ledger does not."""
    with StoragePool() as pool:
        news = find_news(settings, known, pool.open)
        if not news.changed:
            return Looked(news.cluster_id, is_unchanged=not news.failures, failures=tuple(news.failures))
        try:
            plan = plan_cluster(
                news.readable,
                open_storage=pool.open,
                captured_at_ms=now_ms,
                name=settings.name,
                number=number,
                cluster_id=news.cluster_id,
                dialect=settings.dialect,
                defaults=sorted(settings.defaults.items()),
            )
        except InputError as problem:
            return Looked(news.cluster_id, failures=(*news.failures, str(problem)))
    return _planned(plan, news, known)


def find_news(settings: ClusterSettings, known: Known, open_storage: OpenStorage) -> News:
    """Compare what lies below the cluster's paths with the ledger, by names, sizes and times."""
    expanded: dict[str, list[str]] = {}
    failures: list[str] = []
    for path in settings.paths:
        try:
            expanded[path] = expand(path)
        except InputError as problem:
            failures.append(str(problem))
    roots = [root for matches in expanded.values() for root in matches]
    archives = {root: archive for root in roots if (archive := _archive(root)) is not None}
    news = News([], [], archives, settings.cluster_id or _cluster_id_in_ledger(roots, known), failures)
    empty: set[str] = set()
    for root in roots:
        try:
            found = (archives[root] not in known.archives) if root in archives else _has_news(root, known, open_storage)
        except InputError as problem:
            news.failures.append(str(problem))
            continue
        if found is None:
            empty.add(root)
        else:
            news.readable.append(root)
            if found:
                news.changed.append(root)
    news.failures.extend(f"{path}: {NO_LOG}" for path, matches in expanded.items() if empty.issuperset(matches))
    return news


def _planned(plan: ClusterPlan, news: News, known: Known) -> Looked:
    if not plan.cluster_id:
        why = f"{', '.join(news.changed)}: no replica says its cluster id: declare it in fleet.yaml as cluster_id"
        return Looked(failures=(*news.failures, why))
    others = sorted({replica.cluster_id or plan.cluster_id for replica in plan.replicas})
    if others and plan.cluster_id not in others:
        # Nothing of it would be read, and every rule be undecided, every hour: not a cluster that was looked at.
        why = (
            f"no log dir is of cluster {plan.cluster_id}, by cluster_id in fleet.yaml or by what was read before: "
            f"they are of {', '.join(others)}"
        )
        return Looked(plan.cluster_id, failures=(*news.failures, why))
    lost = {one.root: one.detail for one in plan.damages if not one.path and one.reason == Reason.UNREADABLE}
    lost |= {root: NO_LOG for root in news.changed if root not in lost and not _holds_any(root, plan)}
    failures = (*news.failures, *(f"{root}: {why}" for root, why in lost.items()))
    state = known.states.get(plan.cluster_id, LedgerState())
    resumed = with_ledger(plan, known, state, frozenset(news.changed))
    if not resumed.replicas and not resumed.damages:
        return Looked(plan.cluster_id, is_unchanged=not failures, failures=failures)
    read = tuple(sorted(archive for root, archive in news.archives.items() if root not in lost))
    told = tuple(sorted({*state.damages, *(damage_key(damage) for damage in plan.damages)}))
    planned = PlannedCluster(resumed, None if read == state.archives else read, None if told == state.damages else told)
    return Looked(plan.cluster_id, planned, failures=failures)


def expand(path: str) -> list[str]:
    """The paths that a pattern stands for, in order; a path without `*`, `?` or `[` stands for itself.

    A match that is neither a folder nor called like an archive is passed by, as a pattern takes what lies beside too.
    Raises InputError where a folder on the way may not be looked into.
    """
    if is_uri(path) or not glob.has_magic(path):
        return [path]
    try:
        if Path(path).exists():
            return [path]
        matches = sorted(glob.glob(path))  # noqa: PTH207  # an absolute pattern
        return [match for match in matches if Path(match).is_dir() or match.endswith(ARCHIVE_NAMES)] or [path]
    except OSError as problem:
        raise InputError(printable(path), reason_text(problem)) from None


def with_ledger(plan: ClusterPlan, known: Known, state: LedgerState, changed: frozenset[str]) -> ClusterPlan:
    """The plan as it goes on from the ledger: damage of listing only where it is new.

    Replicas without news, those below roots that have not `changed` among them, are context.
    """
    resumed = {replica: _resumed(replica, known) for replica in plan.replicas}
    news = frozenset(replica for replica, one in resumed.items() if replica.root in changed and _is_news(one))
    told = frozenset(state.damages)
    return replace(
        plan,
        replicas=tuple(resumed[replica] for replica in plan.replicas if replica in news),
        context=tuple(replica for replica in plan.replicas if replica not in news),
        damages=tuple(damage for damage in plan.damages if damage_key(damage) not in told),
        told_damages=tuple(damage for damage in plan.damages if damage_key(damage) in told),
        decoded_to=state.decoded_to,
        known_sources=state.known_sources,
        redaction_state=state.redaction_state,
        silver=state.silver,
    )


def damage_key(damage: PlannedDamage) -> str:
    """Tells whether the same was told of the same place before."""
    text = "\0".join((damage.root, damage.path, str(damage.position), damage.reason, damage.detail))
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()


def _resumed(replica: ReplicaPlan, known: Known) -> ReplicaPlan:
    folder = (printable(replica.root), printable(replica.path))
    there = {printable(file.name) for file in replica.files}
    gone = [file for name, file in known.by_folder.get(folder, {}).items() if name not in there]
    return replace(
        replica,
        files=tuple(_resumed_file(file, known.files.get((*folder, printable(file.name)))) for file in replica.files),
        gone_files=tuple(_gone_file(file) for file in sorted(gone, key=lambda file: file.file_name)),
    )


def _resumed_file(file: FilePlan, earlier: LedgerFile | None) -> FilePlan:
    if earlier is None:
        return file
    return replace(file, earlier=replace(earlier.scan, mtime_ms=_trusted_mtime_ms(earlier)))


def _gone_file(file: LedgerFile) -> FilePlan:
    scan = file.scan
    return FilePlan(file.file_name, file.kind, file.base_offset, file.epoch, scan.size_bytes, scan.mtime_ms, scan)


def _is_news(replica: ReplicaPlan) -> bool:
    return bool(replica.gone_files) or not all(file.is_unchanged for file in replica.files)


def _trusted_mtime_ms(file: LedgerFile) -> int:
    """The time by which the file is known again; -1, which no file has, where it may have changed since unseen."""
    mtime_ms = file.scan.mtime_ms
    racy_ms = RACY_WHOLE_SECONDS_MS if mtime_ms % 1000 == 0 else RACY_MS
    return mtime_ms if mtime_ms + racy_ms < file.captured_at_ms else -1


def _holds_any(root: str, plan: ClusterPlan) -> bool:
    return any(one.root == root for one in plan.replicas) or any(one.root == root for one in plan.damages)


def _has_news(root: str, known: Known, open_storage: OpenStorage) -> bool | None:
    """Whether a listing of `root` shows anything that the ledger does not have; None for no log. Raises InputError."""
    with open_storage(root) as storage:
        found = discover(storage)
    if found.damages:
        return True
    if not found.replicas:
        return None
    return any(_replica_has_news(root, replica, known) for replica in found.replicas)


def _replica_has_news(root: str, replica: ReplicaDir, known: Known) -> bool:
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


def _cluster_id_in_ledger(roots: Sequence[str], known: Known) -> str | None:
    """Whose these paths were so far: what a cluster is does not change with which of its replicas has news."""
    shown = {printable(root) for root in roots}
    seen = Counter(file.cluster_id for (root, _, _), file in known.files.items() if root in shown)
    return seen.most_common(1)[0][0] if seen else None


def _archive(root: str) -> Archive | None:
    """An archive's address, size and time, by which it is known again; a folder or an object store has none."""
    if is_uri(root):
        return None
    try:
        found = Path(root).stat()
    except OSError:
        return None  # opening it says what is wrong
    return Archive(root, found.st_size, found.st_mtime_ns // 1_000_000) if Path(root).is_file() else None
