"""The plan of one cluster: the exact files and ranges to read, fixed before anything is read.

A plan holds plain strings, integers and tuples only: it crosses to Spark's workers and is stored as JSON in the table
`plans`. The same plan over the same bytes gives the same rows in the same order, in any process.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kraft_audit.tables.number_arrays import Mask
from kraft_audit.text.readable import shown_cluster_id
from kraft_codec.schemas import Dialect

ARCHIVED_ROOT: Final = "archive:"
"""What the root of a replica begins with that is read from a lake's archive: a path is absolute, an address has `://`."""

Identity = tuple[int, str, str]
"""What a replica is known by: node id, directory id and "", or -1, root and path."""


def replica_identity(node_id: int | None, directory_id: str | None, root: str, path: str) -> Identity:
    """The replica that was captured: node id and directory id, or its folder where the node id is not known."""
    return (-1, root, path) if node_id is None else (node_id, directory_id or "", "")


def identity_of(row: Mapping[str, Any]) -> Identity:
    """Which replica a row of `captures` or `batches` is about."""
    return replica_identity(row["node_id"], row["directory_id"], row["root"], row["path"])


@dataclass(frozen=True, slots=True)
class BatchKey:
    """A batch and its position in a file.

    Equal offsets, epoch and CRC mean equal bytes: followers append the leader's batches verbatim.
    """

    position: int
    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int


@dataclass(frozen=True, slots=True)
class FileScan:
    """How far earlier plans read a file: the newest row of a closed plan in the table `files`."""

    size_bytes: int
    mtime_ms: int
    scanned_to: int
    last_batch: BatchKey | None
    batch_count: int
    record_count: int
    damage_count: int
    bytes_quarantined: int
    bytes_unread: int


@dataclass(frozen=True, slots=True)
class FilePlan:
    """One file to read. `name` is relative to the replica's folder; bytes at `to_position` and after are not read."""

    name: str
    kind: str
    base_offset: int | None
    epoch: int | None
    size_bytes: int
    mtime_ms: int
    earlier: FileScan | None = None

    @property
    def to_position(self) -> int:
        return self.size_bytes

    @property
    def is_unchanged(self) -> bool:
        """Whether the file is as an earlier plan left it: nothing is read, the ledger's figures are used."""
        earlier = self.earlier
        return earlier is not None and (earlier.size_bytes, earlier.mtime_ms) == (self.size_bytes, self.mtime_ms)


@dataclass(frozen=True, slots=True)
class ReplicaPlan:
    """One copy of the log and what to read of it.

    `root` is what `open_storage` opens, `path` the replica's folder below it, as os.fsdecode gives it where it is
    no UTF-8. `log_dir` is the folder of the segments. `cluster_id` is that of its own meta.properties.
    `capture_number` numbers the captures in time. `gone_files` are in the ledger and no longer on the disk.
    `missing_segments` are names of segments that are gone and whose index files are there. Offsets below
    `held_end_offset` had reached the disk, as kraft-capture noted; None for other copies. `newest_snapshot` is (end
    offset, epoch) of the newest one that an archived copy had, though its records need not be archived.
    `configuration` is what the node's server.properties says, as `NodeConfiguration.to_json`; empty without one.
    `producer_state_offset` is the highest offset that the name of a `.snapshot` has: the log once ended there;
    `deleted_snapshot_end` the highest end offset of a `.checkpoint.deleted`. With `is_index_trimmed` the newest
    segment's index was cut to its size, as closing the log does; None without an index. `further_directory_ids` are
    those of the node's other log dirs. `noted_ms` is when kraft-capture had read it, by the clock of its host, and
    `path_number` the place of the path that holds it among several given ones; None where nothing says it.
    """

    root: str
    path: str
    capture: str
    capture_number: int
    captured_at_ms: int
    cluster_id: str | None
    node_id: int | None
    directory_id: str | None
    files: tuple[FilePlan, ...]
    gone_files: tuple[FilePlan, ...] = ()
    log_dir: str = ""
    medium: str = "directory"
    missing_segments: tuple[str, ...] = ()
    held_end_offset: int | None = None
    newest_snapshot: tuple[int, int] | None = None
    configuration: str = ""
    producer_state_offset: int | None = None
    deleted_snapshot_end: int | None = None
    is_index_trimmed: bool | None = None
    further_directory_ids: tuple[str, ...] = ()
    noted_ms: int | None = None
    path_number: int | None = None

    @property
    def folder(self) -> tuple[str, str, str]:
        """The root, the capture and the folder in which its node dir lies."""
        return self.root, self.capture, self.path.rpartition("/")[0]

    @property
    def identity(self) -> Identity:
        return replica_identity(self.node_id, self.directory_id, self.root, self.path)

    @property
    def is_archived(self) -> bool:
        """Whether it is put together from a lake's archive, as it was at captured_at_ms, and is no disk of now."""
        return self.root.startswith(ARCHIVED_ROOT)

    @property
    def sort_key(self) -> tuple[int, Identity, str, str]:
        return (self.capture_number, self.identity, self.root, self.path)


@dataclass(frozen=True, slots=True)
class PlannedDamage:
    """What could not be listed or opened while the plan was made: a folder, a link, a member of an archive."""

    root: str
    path: str
    position: int
    length_bytes: int
    reason: str
    detail: str


SEVERAL_DEFAULTS: Final = 0
"""Stands for several defaults of min.insync.replicas, which is never 0: such rows are replaced as soon as possible."""


@dataclass(frozen=True, slots=True)
class SilverPosition:
    """How far closed plans filled the silver tables of a cluster.

    Rows below `to_offset` exist; those below `settled_offset` are final unless a capture contradicts them. `low` and
    `low_epoch` are what was proven committed; `epochs` are (epoch, end offset) of the replayed log from `low` on.
    `began_at` is the offset at which the first of these replays began. `default_min_isr` is the static default that the
    rows were made with, SEVERAL_DEFAULTS for more than one, None where all rows are made again.
    """

    settled_offset: int
    to_offset: int
    low: int
    low_epoch: int
    began_at: int
    epochs: tuple[tuple[int, int], ...] = ()
    default_min_isr: int | None = None


_VOTER: Final = r"\s*[0-9]{1,9}(?:@[^,;\s]+:[0-9]{1,5})?\s*"
_PATTERNS: Final[Mapping[str, tuple[re.Pattern[str], str]]] = {
    "min.insync.replicas": (re.compile("0{0,9}[1-9][0-9]{0,8}"), "a number of replicas, 1 or more"),
    "controller.quorum.voters": (
        re.compile(f"{_VOTER}(?:,{_VOTER})*"),
        "ids of voters or id@host:port, with commas between",
    ),
}

USED_CONFIGS: Final = (*_PATTERNS, "unclean.leader.election.enable")
"""The static configs that states and rules depend on."""


def expected_of(name: str, value: str) -> str | None:
    """What a static config expects instead of this value; None where the value is valid or the config is not known."""
    pattern, expected = _PATTERNS.get(name, (None, ""))
    return None if pattern is None or pattern.fullmatch(value) else expected


def default_min_isr(defaults: Mapping[str, str]) -> int:
    """min.insync.replicas of a topic for which the log has no value: the static config, else Kafka's default of 1."""
    return int(defaults.get("min.insync.replicas", 1))


@dataclass(frozen=True, slots=True)
class HistorySummary:
    """A history in a few values: who holds it, and from when to when it was written (None: unknown).

    `rescue` is what a node dir of it declares of the rescue that it began with, as `DeclaredRescue.to_json` writes it.
    """

    replicas: tuple[ReplicaPlan, ...]
    from_ms: int | None
    to_ms: int | None
    end_offset: int
    rescue: str = ""

    @property
    def node_ids(self) -> tuple[int, ...]:
        return tuple(sorted({replica.node_id for replica in self.replicas if replica.node_id is not None}))

    @property
    def directory_ids(self) -> tuple[str, ...]:
        return tuple(sorted({replica.directory_id for replica in self.replicas if replica.directory_id}))


@dataclass(frozen=True, slots=True)
class HistoryOf:
    """One history of a cluster id: its place among all of them, the newest first. No histories: it is the only one."""

    number: int
    histories: tuple[HistorySummary, ...]

    @property
    def mine(self) -> HistorySummary:
        return self.histories[self.number]

    def title(self, cluster_id: str) -> str:
        """The cluster id as headers show it, with the number of this history where there are several."""
        count = len(self.histories)
        named = shown_cluster_id(cluster_id)
        return f"{named} (history {self.number + 1} of {count})" if count > 1 else named


ONLY_HISTORY: Final = HistoryOf(0, ())
_MARK: Final = re.compile(r"\.h[0-9a-f]{8}\Z")


def history_id(cluster_id: str, aliases: Iterable[str]) -> str:
    """The id of a history that is not the first one of its cluster id: the cluster id and a mark of its first alias."""
    first = min(aliases, default="")
    return f"{cluster_id}.h{hashlib.blake2b(first.encode(), digest_size=4).hexdigest()}"


def cluster_id_of(history: str) -> str:
    """The cluster id that a history's id begins with."""
    return _MARK.sub("", history)


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """All replicas of one history of a cluster.

    `number` is the plan's number (0 without a ledger), `name` what people call the cluster. `replicas` have bytes that
    no plan has read; `context` are the replicas without any, which the replay reads again as evidence. `decoded_to` is
    the end of what earlier plans decoded of its log, on any branch: below it a batch may be known already.
    `known_sources` are the snapshots that earlier plans decoded. `defaults` are static configs that the log does not
    hold. `damages` become rows of `decode_errors` at `captured_at_ms`; `known_damages` have rows from earlier plans and
    still exist. `silver` is where earlier plans left the silver tables, None where these are empty. `history_id` names
    the history among those of its cluster id (empty: as the cluster id), `aliases` are what it is known by, `merged`
    the ids of histories that proved to be this one, `first_plan` is the plan that read it first (0: not known),
    `split_from` the history that its logs were first read as a part of. `dialect` is empty where control records
    disagree about it.
    `kept_state` names what the plan before it kept of earlier captures (empty: nothing).
    `is_running` and `gone` are what its operator says: that its nodes run, and which of them are lost with their disks.
    """

    number: int
    name: str
    cluster_id: str
    dialect: str
    replicas: tuple[ReplicaPlan, ...]
    defaults: tuple[tuple[str, str], ...] = ()
    decoded_to: int = 0
    known_sources: tuple[str, ...] = ()
    redaction_state: str = ""
    damages: tuple[PlannedDamage, ...] = ()
    known_damages: tuple[PlannedDamage, ...] = ()
    captured_at_ms: int = 0
    context: tuple[ReplicaPlan, ...] = ()
    silver: SilverPosition | None = None
    history_id: str = ""
    history_of: HistoryOf = ONLY_HISTORY
    aliases: tuple[str, ...] = ()
    merged: tuple[str, ...] = ()
    first_plan: int = 0
    is_running: bool = False
    gone: tuple[int, ...] = ()
    split_from: str = ""
    kept_state: str = ""

    @property
    def key(self) -> str:
        """The id of its history: what keeps its rows apart from those of other logs with its cluster id."""
        return self.history_id or self.cluster_id

    @property
    def known_dialect(self) -> Dialect | None:
        """The membership protocol that wrote the log; None where control records disagree about it."""
        return Dialect(self.dialect) if self.dialect else None

    @property
    def read_as(self) -> Dialect:
        """The dialect by which records are decoded: Kafka's own where it is undecided."""
        return self.known_dialect or Dialect.KIP853

    @property
    def default_min_isr(self) -> int:
        return default_min_isr(dict(self.defaults))

    @property
    def is_whole(self) -> bool:
        """Whether every replica is in `replicas` and read from its start."""
        resumed = any(file.earlier for replica in self.replicas for file in replica.files)
        return not (self.context or resumed or self.known_sources or self.decoded_to or self.known_damages)

    def whole(self) -> ClusterPlan:
        """The same cluster with every replica read from its start, as if no plan came before."""
        if self.is_whole:
            return self
        replicas = sorted((*map(_from_start, self.replicas), *self.context), key=lambda replica: replica.sort_key)
        return replace(
            self,
            replicas=tuple(replicas),
            context=(),
            damages=(*self.damages, *self.known_damages),
            known_damages=(),
            decoded_to=0,
            known_sources=(),
        )


def _from_start(replica: ReplicaPlan) -> ReplicaPlan:
    files = tuple(replace(file, earlier=None) for file in replica.files)
    return replace(replica, files=files, gone_files=())


@dataclass(frozen=True, slots=True)
class Selection:
    """Which rows to give, where a table has the column; None is no bound. Offsets are those of the log, half open."""

    from_offset: int | None = None
    to_offset: int | None = None
    node_ids: tuple[int, ...] | None = None
    record_types: tuple[str, ...] | None = None

    def includes(self, first_offset: npt.NDArray[np.int64], last_offset: npt.NDArray[np.int64] | None = None) -> Mask:
        """Which records, or batches of several records, have offsets in the bounds."""
        included = np.ones(len(first_offset), bool)
        if self.from_offset is not None:
            included &= (first_offset if last_offset is None else last_offset) >= self.from_offset
        if self.to_offset is not None:
            included &= first_offset < self.to_offset
        return included


class KnownBatches(Protocol):
    """The batches of a cluster in closed plans; asked only below `ClusterPlan.decoded_to`."""

    def batches(self, cluster_id: str, from_offset: int, to_offset: int) -> pa.Table:
        """The newest row of each (replica, batch) of source `log` with from_offset <= base_offset < to_offset.

        All columns of `batches`, valid rows only; the status is that of the newest row.
        """


_JSON_KEYS: Final = {"told_damages": "known_damages"}
"""Fields that stand in the table `plans` under another name: lakes that have it have to stay readable."""
_NO_FIELDS: Final = frozenset({"shares", "share", "keeps_state", "reads_all"})
"""What plans in earlier lakes say besides."""
_JSON_KINDS: Final[Mapping[str, type]] = {
    "crc": BatchKey,
    "scanned_to": FileScan,
    "earlier": FilePlan,
    "gone_files": ReplicaPlan,
    "detail": PlannedDamage,
    "settled_offset": SilverPosition,
    "end_offset": HistorySummary,
    "histories": HistoryOf,
    "replicas": ClusterPlan,
}
"""What a JSON object stands for, by a field that no other kind has."""


def plan_to_json(plan: ClusterPlan) -> str:
    """The plan as one line of JSON, keys in a fixed order."""
    names = {name: key for key, name in _JSON_KEYS.items()}
    fields = {names.get(name, name): value for name, value in asdict(plan).items()}
    return json.dumps(fields, separators=(",", ":"))


def plan_from_json(text: str) -> ClusterPlan:
    """The plan that `plan_to_json` wrote; fields that plans have got since then have defaults."""
    plan: ClusterPlan = json.loads(text, object_hook=_from_fields)
    return plan


def silver_position(fields: Mapping[str, Any]) -> SilverPosition:
    """The position from its JSON object."""
    return SilverPosition(**{name: _frozen(value) for name, value in fields.items()})


def _from_fields(fields: Mapping[str, Any]) -> Any:
    kind = next(kind for name, kind in _JSON_KINDS.items() if name in fields)
    own = {name: value for name, value in fields.items() if name not in _NO_FIELDS}
    return kind(**{_JSON_KEYS.get(name, name): _frozen(value) for name, value in own.items()})


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
