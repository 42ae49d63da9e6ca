"""What lies below a path: `kraft_audit.open` and its result."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from kraft_audit.capture.configurations import with_named
from kraft_audit.capture.histories import split_histories
from kraft_audit.capture.path_plans import capture_named, captures_text, plan_path, unread_lines
from kraft_audit.capture.plan import USED_CONFIGS, ClusterPlan, ReplicaPlan, expected_of
from kraft_audit.cluster import Cluster
from kraft_audit.lake.redaction_key import KEY_VARIABLE, declared_key
from kraft_audit.opened_cluster import OpenFiles
from kraft_audit.replay.kernels import compile_ahead
from kraft_audit.text.kafka_topics import DESCRIBED_CONFIGS
from kraft_codec.errors import ChoiceError
from kraft_codec.file_names import FileKind
from kraft_codec.schemas import Dialect
from kraft_codec.storage.opener import open_together
from kraft_codec.storage.path_patterns import matching_paths
from kraft_codec.storage.random_access import Closeable, Storage

if TYPE_CHECKING:
    from kraft_audit.lake.lake_copies import LakeCopies

CLUSTERS_NAMED: Final = 8
"""An error about an unknown cluster names this many that exist."""
EMPTY: Final[Mapping[int, str]] = MappingProxyType({})
HOLD_BATCHES: Final = frozenset({FileKind.SEGMENT, FileKind.SNAPSHOT, FileKind.BOOTSTRAP_SNAPSHOT})


class Clusters(Closeable):
    """What lies below a path. Iterate over its clusters, in the order of their ids; close it when all is read.

    An iteration makes each cluster when its turn comes. What was read of a cluster is remembered by that object alone,
    so that a loop over a thousand clusters holds one at a time.
    """

    def __init__(
        self,
        root: str,
        storage: Storage,
        plans: Sequence[ClusterPlan],
        key: bytes,
        stack: ExitStack,
        archives: Mapping[str, Mapping[str, Storage]] | None = None,
    ) -> None:
        self.root = root
        self.plans = tuple(plans)
        self.unread = tuple(unread_lines(dict.fromkeys(damage for plan in self.plans for damage in plan.damages)))
        """Lines that say which places could not be read at all."""
        self._storage = storage
        self._key = key
        self._archives = archives or {}
        self._opened = OpenFiles(root, stack)

    def __iter__(self) -> Iterator[Cluster]:
        return self.with_capture(None)

    def __len__(self) -> int:
        return len(self.plans)

    @property
    def size_bytes(self) -> int:
        """The size of the segments and snapshots of all clusters."""
        replicas = (replica for plan in self.plans for replica in plan.replicas)
        return sum(file.size_bytes for replica in replicas for file in replica.files if file.kind in HOLD_BATCHES)

    def close(self) -> None:
        """Close the files; what was read stays readable."""
        self._opened.close()

    def with_capture(self, capture: str | None) -> Iterator[Cluster]:
        """The clusters that have a capture of that name, all for None. Raises ChoiceError where none has."""
        wanted = [
            plan
            for plan in self.plans
            if capture is None
            or capture_named(capture, plan.replicas) in {replica.capture for replica in plan.replicas}
        ]
        if not wanted:
            there = captures_text(replica for plan in self.plans for replica in plan.replicas)
            raise ChoiceError(self.root, f"no capture {capture!r}: {there}")
        return (Cluster(self._opened, plan, self._storage, self._key, self._archives.get(plan.key)) for plan in wanted)


def open(  # noqa: A001  # kraft_audit.open, as people know it from other libraries
    path: str | os.PathLike[str],
    *,
    cluster_id: str | None = None,
    capture: str | None = None,
    dialect: str | None = None,
    defaults: Mapping[str, str] | None = None,
    node_ids: Sequence[int] = (),
    file: str | None = None,
    redaction_key: bytes | None = None,
    is_running: bool = False,
    gone: Sequence[int] = (),
    lake: str | None = None,
    named: Sequence[tuple[str, int]] = (),
    configurations: Mapping[int, str | os.PathLike[str]] = EMPTY,
) -> Clusters:
    """Open a log dir, a node dir, a folder of them, an archive or an object-store URI, and plan what lies there.

    `path` may be a pattern (`*`, `**`), or several paths and patterns: "{n1,n2}".

    Only names and first bytes are read here; each cluster is read when it is asked for something. Close the result, or
    use it as a context manager: an archive is unpacked into a temporary folder until then.

    Args:
        cluster_id: only this cluster.
        capture: only the capture (folder) of this name. Most methods of a cluster take a name too, and then use earlier
            captures as evidence.
        dialect: which membership protocol wrote the log, kip853, kip856 or kip642; without it control records show it.
        defaults: static broker configs that no log holds, such as {"min.insync.replicas": "2"}.
        node_ids, file: only what these nodes hold; only files of this name or glob.
        redaction_key: 32 bytes under which secrets become fingerprints; without it that of the file which
            KRAFT_AUDIT_REDACTION_KEY_FILE names, else a key of this call alone.
        is_running, gone: what no disk shows: that the nodes run, and which node ids are lost with their disks.
        named: (cluster id, node id) of the logs without a meta.properties, in the order of the paths.
        lake: a lake whose copies of these logs, as they were when it read them, are read as earlier captures.
        configurations: the server.properties of nodes by id, where no copy lies in their node dirs or above.

    Raises:
        InputError: nothing there or of a configuration can be read, or there is no metadata log.
        ChoiceError: no such cluster, capture, node or file there.
        ValueError: a default that is not used here, or has a value that it cannot have.
    """
    path, defaults = os.fspath(path), defaults or {}
    check_defaults(defaults)
    declared = declared_key() if KEY_VARIABLE in os.environ else None
    key = redaction_key or declared or secrets.token_bytes(32)
    compile_ahead()
    with ExitStack() as stack:
        storage = stack.enter_context(open_together(matching_paths(path), path))
        plans = plan_path(
            path,
            open_storage=lambda _: nullcontext(storage),
            captured_at_ms=time.time_ns() // 1_000_000,
            dialect=None if dialect is None else Dialect(dialect),
            capture=capture,
            named=named,
        )
        plans = [plan for plan in (_narrowed(plan, node_ids, file) for plan in plans) if plan.replicas]
        if not plans:
            wanted = [f"node {', '.join(map(str, node_ids))}"] if node_ids else []
            wanted += [f"file {file}"] if file else []
            raise ChoiceError(path, f"no log matches {' and '.join(wanted)}")
        there = [plan.cluster_id or "one without an id" for plan in plans]
        plans = [plan for plan in plans if cluster_id in (None, "", plan.cluster_id)]
        if not plans:
            more = f" and {len(there) - CLUSTERS_NAMED} more" if len(there) > CLUSTERS_NAMED else ""
            raise ChoiceError(path, f"no cluster {cluster_id}: there are {', '.join(there[:CLUSTERS_NAMED])}{more}")
        plans = with_named(path, plans, configurations)
        sorted_defaults = tuple(sorted(defaults.items()))
        plans = [replace(plan, defaults=sorted_defaults, is_running=is_running, gone=tuple(gone)) for plan in plans]
        plans = [history for plan in plans for history in split_histories(plan, lambda _: storage)]
        archives: dict[str, Mapping[str, Storage]] = {}
        if lake is not None:
            from kraft_audit.lake.lake_copies import copies_beside

            copies = [copies_beside(lake, plan, storage) for plan in plans]
            plans, archives = [each.plan for each in copies], {each.plan.key: each.storages for each in copies}
        return Clusters(path, storage, plans, key, stack.pop_all(), archives)


def open_lake(lake: str, *, cluster: str | None = None, defaults: Mapping[str, str] | None = None) -> Clusters:
    """One cluster of a lake, as its archive holds it: every copy that was captured. Its secrets are fingerprints.

    Args:
        cluster: its id or name; not needed where there is one.
        defaults: static broker configs, as `open` takes them; without any those of the fleet file.

    Raises:
        InputError: there is no lake, or nothing of the cluster in its archive.
        ChoiceError: no such cluster, or several; the text lists them.
        ValueError: as `open`.
    """
    from kraft_audit.lake.lake_copies import copies_alone

    check_defaults(defaults or {})
    copies = copies_alone(lake, cluster)
    if defaults:
        copies = replace(copies, plan=replace(copies.plan, defaults=tuple(sorted(defaults.items()))))
    return open_copies(lake, copies)


def open_copies(lake: str, copies: LakeCopies) -> Clusters:
    """One cluster of a lake whose copies are known."""
    compile_ahead()
    (storage,) = copies.storages.values()
    archives = {copies.plan.key: copies.storages}
    return Clusters(lake, storage, [copies.plan], secrets.token_bytes(32), ExitStack(), archives)


def check_defaults(defaults: Mapping[str, str]) -> None:
    """Raises ValueError for a config that nothing here uses (it may be misspelt), and for an impossible value."""
    used = {*USED_CONFIGS, *DESCRIBED_CONFIGS}
    for name, value in defaults.items():
        if name not in used:
            near = get_close_matches(name, used, n=1)
            hint = f", perhaps {near[0]}" if near else f"; those are {', '.join(sorted(used))}"
            raise ValueError(f"{name!r}: no static config that is used here{hint}")
        if (expected := expected_of(name, value)) is not None:
            raise ValueError(f"{f'{name}={value}'!r}: expected {expected}")


def _narrowed(plan: ClusterPlan, node_ids: Sequence[int], file: str | None) -> ClusterPlan:
    replicas = [replica for replica in plan.replicas if not node_ids or replica.node_id in node_ids]
    if file is not None:
        replicas = [_with_files(replica, file) for replica in replicas]
        replicas = [replica for replica in replicas if replica.files]
    return replace(plan, replicas=tuple(replicas))


def _with_files(replica: ReplicaPlan, pattern: str) -> ReplicaPlan:
    """The files whose name, or path from its end on, matches the pattern."""
    patterns = (pattern, pattern.lstrip("./"))
    chosen = [
        file
        for file in replica.files
        if any(fnmatchcase(f"/{replica.path}/{file.name}", f"*/{each}") for each in patterns)
    ]
    return replace(replica, files=tuple(chosen))
