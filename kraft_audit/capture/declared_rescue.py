"""What `rescue` declares of a node dir that it wrote: its rescue.json, as audits and `restore-kit` read it.

The file is not trusted: what it says is compared with the node dir that it lies in. Whether it fits the logs, and what
it then explains, the rules decide (`rules.columns.declared_recovery`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Self

from kraft_audit.capture.plan import FilePlan, ReplicaPlan
from kraft_codec.errors import CodecError, Damage, Reason
from kraft_codec.file_names import METADATA_LOG_DIR, FileKind, snapshot_name
from kraft_codec.storage.random_access import Storage, damage_of, join

DECLARED: Final = "rescue"
"""What the key `declared` of such a file says."""
DECLARATION_BYTES_MAX: Final = 64 << 20
LOST_NAMED: Final = 20
DiskKey = tuple[int | None, str | None]


@dataclass(frozen=True, slots=True)
class DeclaredRescue:
    """A rescue: when it was written, for whom, from which disk, and what it left behind. Offsets are exclusive ends.

    The node (`node_id`, `directory_id`) begins with a snapshot that ends at `offset` in `epoch`, whose SHA-256 is
    `snapshot_sha256`. Its state is that of the copy of (`source_node_id`, `source_directory_id`) before `cut`.
    `source_capture`, `source_snapshot` and `read_from` say which copy that was and below which path; of a lake's copy
    `source_archived_ms` and `read_from_lake` do. The old quorum had `voters` (ids), and no disk of it that was read,
    `copies`, named an epoch above `newest_epoch` or an offset above `end_offset`. `lost` names the first operations of
    `lost_count` that are lost; from `unknown_from` on there may be others, which only disks held that were not read.
    `misfit` says what contradicts it in its own node dir. `owners` are (cluster id, node id) of old disks that do not
    say whose they are.
    """

    written_ms: int
    cluster_id: str
    node_id: int
    directory_id: str
    offset: int
    epoch: int
    cut: int
    snapshot_sha256: str
    source_node_id: int | None
    source_directory_id: str | None
    source_capture: str
    source_snapshot: str | None
    read_from: str
    voters: tuple[int, ...]
    copies: tuple[DiskKey, ...]
    newest_epoch: int
    end_offset: int
    lost: tuple[str, ...]
    lost_count: int
    unknown_from: int | None
    read_from_lake: str | None = None
    source_archived_ms: int | None = None
    misfit: str | None = None
    owners: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> Self:
        """The short form of a whole rescue.json. Raises ValueError where it is none."""
        try:
            if document["declared"] != DECLARED:
                raise ValueError("it does not declare a rescue")
            node, plan, source = document["node"], document["plan"], document["source"]
            copy, lost = source["copy"], list(_lost(document))
            snapshot = f"{METADATA_LOG_DIR}/{snapshot_name(document['offset'], document['epoch'])}"
            copies = [each["copy"] for each in plan["outcomes"]]
            rescue = cls(
                document["written_ms"],
                document["cluster_id"],
                node["node_id"],
                node["directory_id"],
                document["offset"],
                document["epoch"],
                document["cut"],
                document["files"][snapshot],
                copy["node_id"],
                copy["directory_id"],
                copy["capture"],
                copy["snapshot"],
                document["read_from"]["root"],
                tuple(plan["voters"]),
                tuple(dict.fromkeys((each["node_id"], each["directory_id"]) for each in copies)),
                plan["newest_epoch"],
                plan["end_offset"],
                tuple(lost[:LOST_NAMED]),
                len(lost),
                source["unknown_from"],
                document["read_from"].get("lake"),
                copy.get("archived_ms"),
                owners=tuple((str(key), int(node_id)) for key, node_id in document["read_from"].get("owners", ())),
            )
        except KeyError as missing:
            raise ValueError(f"it lacks {missing} of what `rescue` writes") from None
        except TypeError:
            raise ValueError("it is not of the form that `rescue` writes") from None
        return rescue._checked()

    @classmethod
    def from_json(cls, text: str) -> Self:
        """What `to_json` wrote."""
        values = json.loads(text)
        values |= {name: tuple(values[name]) for name in ("voters", "lost")}
        for name in ("copies", "owners"):
            values[name] = tuple((first, second) for first, second in values.get(name, ()))
        return cls(**values)

    def to_json(self) -> str:
        """One line, as the table `captures` holds it."""
        return json.dumps(asdict(self), separators=(",", ":"))

    def _checked(self) -> Self:
        """Raises ValueError where a field is not of its type."""
        numbers = (self.written_ms, self.node_id, self.offset, self.epoch, self.cut, self.newest_epoch, self.end_offset)
        texts = (self.cluster_id, self.directory_id, self.snapshot_sha256, self.source_capture, self.read_from)
        if not all(type(number) is int for number in (*numbers, *self.voters)):
            raise ValueError("it has something else where `rescue` writes a number")
        if not all(type(text) is str for text in texts):
            raise ValueError("it has something else where `rescue` writes a text")
        return self

    @property
    def source(self) -> str:
        """Whose disk it went on from, in a sentence."""
        return "a copy without a node id" if self.source_node_id is None else f"node {self.source_node_id}'s disk"


def read_document(content: bytes) -> Mapping[str, Any]:
    """The JSON object of a rescue.json. Raises ValueError."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        raise ValueError("it is no JSON") from None
    if not isinstance(document, dict):
        raise ValueError("it is no JSON object")
    return document


def read_rescue(
    storage: Storage, replica: ReplicaPlan, file: FilePlan
) -> tuple[DeclaredRescue | None, tuple[Damage, ...]]:
    """What a node dir's rescue.json declares, compared with the dir; None, and why, where it cannot be read."""
    path = join(replica.path, file.name)
    try:
        rescue = DeclaredRescue.of_document(read_document(storage.read_small(path, DECLARATION_BYTES_MAX)))
    except CodecError as problem:
        return None, (damage_of(path, problem, file.size_bytes),)
    except ValueError as problem:
        return None, (Damage(path, 0, file.size_bytes, Reason.BAD_FILE, f"rescue.json: {problem}"),)
    return replace(rescue, misfit=next(_misfits(storage, replica, rescue), None)), ()


def _misfits(storage: Storage, replica: ReplicaPlan, rescue: DeclaredRescue) -> Iterator[str]:
    """What contradicts a declaration in its own node dir."""
    if replica.cluster_id != rescue.cluster_id:
        yield f"it is of cluster {rescue.cluster_id}, this dir of {replica.cluster_id or 'none'}"
    if (replica.node_id, replica.directory_id) != (rescue.node_id, rescue.directory_id):
        declared, there = (
            f"node {node_id}, directory {directory_id}"
            for node_id, directory_id in (
                (rescue.node_id, rescue.directory_id),
                (replica.node_id, replica.directory_id),
            )
        )
        yield f"it is of {declared}, this dir of {there}"
    if rescue.newest_epoch >= rescue.epoch or max(rescue.end_offset, rescue.cut) > rescue.offset:
        yield f"offset {rescue.offset} in epoch {rescue.epoch} lies in the old log, and fences nothing"
    for file in replica.files:
        if file.kind == FileKind.SEGMENT and file.base_offset is not None and file.base_offset < rescue.offset:
            yield f"it says that the log begins at {rescue.offset}, and there is {file.name}"
    snapshots = {(file.base_offset, file.epoch): file for file in replica.files if file.kind == FileKind.SNAPSHOT}
    own = snapshots.get((rescue.offset, rescue.epoch))
    if own is None:
        newer = ((base_offset or 0, epoch or 0) for base_offset, epoch in snapshots)
        if not any(end > rescue.offset and epoch > rescue.epoch for end, epoch in newer):
            yield f"the snapshot that ends at {rescue.offset} in epoch {rescue.epoch} is not there"
        return  # a newer one stands for it
    digest = _sha256(storage, replica, own)
    if digest is not None and digest != rescue.snapshot_sha256:
        yield f"{own.name} has SHA-256 {digest[:12]}…, it says {rescue.snapshot_sha256[:12]}…"


def _sha256(storage: Storage, replica: ReplicaPlan, file: FilePlan) -> str | None:
    """None where it cannot be read: the reading of the snapshot itself says that."""
    try:
        with storage.open(join(replica.path, file.name), file.size_bytes) as opened:
            return opened.sha256(min(opened.size_bytes, file.size_bytes))
    except CodecError:
        return None


def _lost(document: Mapping[str, Any]) -> Iterator[str]:
    """What is lost, in words."""
    source = document["source"]
    for operation in (*source["loses"], *source["brings_back"], *document["lost_after_cut"]):
        yield f"{operation['kind']} {operation['subject']} {operation['change']}"
