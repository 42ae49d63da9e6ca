"""What is to be read of one cluster: the exact files and ranges, fixed before anything is read.

Plain strings, integers and tuples only: a plan crosses to Spark's workers and stands as JSON in the table `plans`. The
same plan over the same bytes gives the same rows in the same order, whoever reads it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Protocol

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class BatchKey:
    """A batch and where it stands: equal offsets, epoch and CRC mean equal bytes (followers append them verbatim)."""

    position: int
    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int


@dataclass(frozen=True, slots=True)
class FileScan:
    """What an earlier plan left of a file: the newest closed row of the table `files`."""

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
    """One file: `name` is relative to the replica's folder, `to_position` the planned length."""

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
        """Nothing of the file is read again: the ledger's figures stand."""
        earlier = self.earlier
        return earlier is not None and (earlier.size_bytes, earlier.mtime_ms) == (self.size_bytes, self.mtime_ms)


@dataclass(frozen=True, slots=True)
class ReplicaPlan:
    """One copy of the log as it is to be read.

    `root` is what `open_storage` opens, `path` the replica's folder below it (perhaps with bytes that no text holds, as
    os.fsdecode gives them). `cluster_id` is what its own meta.properties says. `capture_number` counts captures in
    time, `log_dir` is the folder of the segments. `gone_files` were known to the ledger and are no longer there.
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

    @property
    def identity(self) -> tuple[int, str, str]:
        """The replica whose capture this is: node and directory id where known, else its folder."""
        if self.node_id is None:
            return (-1, self.root, self.path)
        return (self.node_id, self.directory_id or "", "")

    @property
    def sort_key(self) -> tuple[int, tuple[int, str, str], str, str]:
        return (self.capture_number, self.identity, self.root, self.path)


@dataclass(frozen=True, slots=True)
class PlannedDamage:
    """What could not be listed or opened while the plan was made: a folder, a link, an archive's member."""

    root: str
    path: str
    position: int
    length_bytes: int
    reason: str
    detail: str


TWO_DEFAULTS: Final = 0
"""No cluster has this `min.insync.replicas`: what was told with several defaults is told again as soon as it can be."""


@dataclass(frozen=True, slots=True)
class SilverPosition:
    """How far closed plans told the silver tables of a cluster.

    Rows below `settled_offset` are final unless a capture contradicts them, rows below `to_offset` were told. `low` and
    `low_epoch` are what was proven committed; `epochs` are the (epoch, end offset) of the replayed log from `low` on.
    `began_at` is the offset at which the first of these replays began. `default_min_isr` is the one they were told
    with, TWO_DEFAULTS where there were several; None where an earlier release told them.
    """

    settled_offset: int
    to_offset: int
    low: int
    low_epoch: int
    began_at: int
    epochs: tuple[tuple[int, int], ...] = ()
    default_min_isr: int | None = None


def default_min_isr(defaults: Mapping[str, str]) -> int:
    """`min.insync.replicas` of topics where the log says nothing of it."""
    return int(defaults.get("min.insync.replicas", 1))


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """All replicas of one cluster.

    `number` is the plan's number (0 without a ledger), `name` what people call the cluster. `decoded_to` is the end of
    what earlier plans decoded of its log, on any branch: below it a batch may be known already. `known_sources` are the
    snapshots that earlier plans decoded. `defaults` are static settings that the log cannot know. `damages` become rows
    of `decode_errors`, at `captured_at_ms`. `context` are the replicas without news: bronze has them, the replay reads
    them again as evidence; `told_damages` are those that were told before and still are so. `silver` is where earlier
    plans left the silver tables, None where they told nothing.
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
    told_damages: tuple[PlannedDamage, ...] = ()
    captured_at_ms: int = 0
    context: tuple[ReplicaPlan, ...] = ()
    silver: SilverPosition | None = None

    @property
    def default_min_isr(self) -> int:
        return default_min_isr(dict(self.defaults))

    @property
    def is_whole(self) -> bool:
        """Whether `replicas` are all there are, each read from its start."""
        resumed = any(file.earlier for replica in self.replicas for file in replica.files)
        return not (self.context or resumed or self.known_sources or self.decoded_to or self.told_damages)

    def whole(self) -> ClusterPlan:
        """The same cluster with every replica read from its start, and nothing known before."""
        if self.is_whole:
            return self
        replicas = sorted((*map(_from_start, self.replicas), *self.context), key=lambda one: one.sort_key)
        return replace(
            self,
            replicas=tuple(replicas),
            context=(),
            damages=(*self.damages, *self.told_damages),
            told_damages=(),
            decoded_to=0,
            known_sources=(),
        )


def _from_start(replica: ReplicaPlan) -> ReplicaPlan:
    files = tuple(replace(file, earlier=None) for file in replica.files)
    return replace(replica, files=files, gone_files=())


@dataclass(frozen=True, slots=True)
class Selection:
    """Which rows are wanted, where a table has the column; None is all. Offsets are half open, log offsets only."""

    from_offset: int | None = None
    to_offset: int | None = None
    node_ids: tuple[int, ...] | None = None
    record_types: tuple[str, ...] | None = None


class KnownBatches(Protocol):
    """What closed plans hold of a cluster's batches; asked only below `ClusterPlan.decoded_to`."""

    def batches(self, cluster_id: str, from_offset: int, to_offset: int) -> pa.Table:
        """The newest row of each (replica, batch) of source `log` with from_offset <= base_offset < to_offset.

        Columns: every column of `batches`, valid rows only, status as the newest row says.
        """


def to_json(plan: ClusterPlan) -> str:
    """One line of JSON, keys in a fixed order."""
    return json.dumps(asdict(plan), separators=(",", ":"))


def from_json(text: str) -> ClusterPlan:
    """The plan that `to_json` wrote."""
    fields = json.loads(text)
    fields["replicas"] = tuple(_replica(replica) for replica in fields["replicas"])
    fields["context"] = tuple(_replica(replica) for replica in fields["context"])
    fields["silver"] = None if fields["silver"] is None else silver_position(fields["silver"])
    fields["defaults"] = tuple((key, value) for key, value in fields["defaults"])
    fields["known_sources"] = tuple(fields["known_sources"])
    for name in ("damages", "told_damages"):
        # A plan that was left open by an older version does not have the second.
        fields[name] = tuple(PlannedDamage(**damage) for damage in fields.get(name, ()))
    return ClusterPlan(**fields)


def silver_position(fields: Mapping[str, Any]) -> SilverPosition:
    """The position that JSON holds."""
    return SilverPosition(**{**fields, "epochs": tuple((epoch, end) for epoch, end in fields["epochs"])})


def _replica(fields: Mapping[str, Any]) -> ReplicaPlan:
    files = tuple(_file(file) for file in fields["files"])
    gone = tuple(_file(file) for file in fields["gone_files"])
    return ReplicaPlan(**{**fields, "files": files, "gone_files": gone})


def _file(fields: Mapping[str, Any]) -> FilePlan:
    earlier = fields["earlier"]
    if earlier is None:
        return FilePlan(**fields)
    last = earlier["last_batch"]
    scan = FileScan(**{**earlier, "last_batch": None if last is None else BatchKey(**last)})
    return FilePlan(**{**fields, "earlier": scan})
