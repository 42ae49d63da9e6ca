"""Damage on its way to `decode_errors`: which replica, which file, and how it is counted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from kraft_audit.replay.plan import BatchKey, FilePlan, PlannedDamage, ReplicaPlan
from kraft_codec.errors import Reason
from kraft_codec.file_names import FileKind, printable
from kraft_codec.verdicts import kafka_verdict

# Links and special files: no replica lies there, or its owner knows, as they are told with the remedy.
_LEFT_ASIDE: Final = ("a link", "a device or another special file", "neither a file nor a directory")
_UNLISTED: Final = frozenset({Reason.BAD_FILE, Reason.UNREADABLE, Reason.LIMIT})


def leaves_unread(reason: str, detail: str) -> bool:
    """Whether what could not be listed or unpacked, as a planned damage says, may have held whole replicas."""
    return reason in _UNLISTED and not detail.startswith(_LEFT_ASIDE)


def unread_lines(damages: Iterable[PlannedDamage]) -> Iterator[str]:
    """A line a place of which not everything could be read, what was told of the place itself before its parts."""
    found: dict[str, list[PlannedDamage]] = {}
    for damage in damages:
        if leaves_unread(damage.reason, damage.detail):
            found.setdefault(damage.root, []).append(damage)
    for root, those in found.items():
        first = min(those, key=lambda damage: damage.path.count("/"))
        where = root if first.path in ("", root.rpartition("/")[2]) else f"{root}: {first.path}"
        position = f" at byte {first.position}" if first.position else ""
        more = f" (and {len(those) - 1} more, in decode_errors)" if len(those) > 1 else ""
        yield f"{where}: {first.detail}{position}: replicas may be missing{more}"


@dataclass(frozen=True, slots=True)
class DamageRow:
    """One row of `decode_errors` but for the columns that every row of the replica shares."""

    file_name: str | None
    position: int
    length_bytes: int
    base_offset: int | None
    reason: Reason
    detail: str
    kafka_verdict: str
    value_hash: str | None = None


@dataclass(slots=True)
class FileTally:
    """The running figures of one file; bytes that are neither decoded nor quarantined are unread."""

    plan: FilePlan
    scanned_to: int = 0
    last_batch: BatchKey | None = None
    batch_count: int = 0
    record_count: int = 0
    damage_count: int = 0
    bytes_decoded: int = 0
    bytes_quarantined: int = 0

    @classmethod
    def resumed(cls, plan: FilePlan) -> FileTally:
        """The figures that an earlier plan left."""
        earlier = plan.earlier
        if earlier is None:
            return cls(plan)
        decoded = earlier.size_bytes - earlier.bytes_quarantined - earlier.bytes_unread
        return cls(
            plan,
            earlier.scanned_to,
            earlier.last_batch,
            earlier.batch_count,
            earlier.record_count,
            earlier.damage_count,
            decoded,
            earlier.bytes_quarantined,
        )

    @property
    def kind(self) -> FileKind:
        return FileKind(self.plan.kind)

    @property
    def bytes_unread(self) -> int:
        return self.plan.size_bytes - self.bytes_decoded - self.bytes_quarantined


class DamageLog:
    """What is wrong with one replica, in the order in which it was found; drained by whoever writes the rows."""

    def __init__(self) -> None:
        self.count = 0
        self._rows: list[DamageRow] = []

    def add(
        self,
        tally: FileTally | None,
        reason: Reason,
        detail: str,
        *,
        position: int = 0,
        length_bytes: int = 0,
        base_offset: int | None = None,
        value_hash: str | None = None,
        verdict: str | None = None,
    ) -> None:
        """Notes damage of a file, or of the replica's folder where there is no tally."""
        self.count += 1
        kind = None
        if tally is not None:
            tally.damage_count += 1
            kind = tally.kind
        name = None if tally is None else printable(tally.plan.name)
        verdict = f"Kafka {verdict or kafka_verdict(reason, kind)}"
        self._rows.append(
            DamageRow(name, position, length_bytes, base_offset, reason, printable(detail), verdict, value_hash)
        )

    def drain(self) -> list[DamageRow]:
        """The rows noted since the last call."""
        rows, self._rows = self._rows, []
        return rows


def replica_columns(cluster_id: str, plan: ReplicaPlan, number: int) -> dict[str, Any]:
    """The columns that tell whose row it is and when it was read, as one value each."""
    return {
        "cluster_id": cluster_id,
        "node_id": plan.node_id,
        "directory_id": plan.directory_id,
        "captured_at_ms": plan.captured_at_ms,
        "captured_at": plan.captured_at_ms * 1000,
        "capture": printable(plan.capture),
        "capture_number": plan.capture_number,
        "root": printable(plan.root),
        "path": printable(plan.path),
        "plan": number,
    }
