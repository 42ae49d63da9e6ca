"""What a plan's survey knew, kept for the next plan: its size follows epochs, branches and replicas, not batches."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import pyarrow as pa

from kraft_audit.capture.altered_batches import Rejoin
from kraft_audit.capture.branches import Branch
from kraft_audit.capture.decoded_records import ControlRecord
from kraft_audit.capture.plan import BatchKey
from kraft_audit.capture.resumed.kept_log import KeptLog, LogMark
from kraft_audit.capture.snapshots import BOOTSTRAP
from kraft_audit.capture.survey import BranchEpoch, EarlierLog, SurveyedSnapshot
from kraft_audit.tables.kept_parts import KeptPartsError

_BYTES: Final = "base64"
"""The key of an object that stands for bytes; no field of a control record is called so."""
_LENGTH_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class KeptCopy:
    """A complete copy of a snapshot, and the digest of what it says, in hexadecimal digits."""

    root: str
    path: str
    file_name: str
    digest: str

    @property
    def place(self) -> tuple[str, str, str]:
        return self.root, self.path, self.file_name


@dataclass(frozen=True, slots=True)
class KeptSnapshot:
    """A snapshot with its complete copies, and the control records of the one that was decoded."""

    source: str
    controls: tuple[ControlRecord, ...]
    copies: tuple[KeptCopy, ...]

    @property
    def surveyed(self) -> SurveyedSnapshot:
        """The snapshot as a survey has it, without its holders."""
        end_offset, epoch = ("0", "0") if self.source.startswith(BOOTSTRAP) else self.source.split("-")[:2]
        return SurveyedSnapshot(self.source, int(end_offset), int(epoch), (), self.controls)


@dataclass(frozen=True, slots=True)
class KeptSurvey:
    """A survey with the logs that it was made from. In `rejoins` the replicas are places in `logs`."""

    logs: tuple[KeptLog, ...]
    branches: tuple[Branch, ...]
    epochs: tuple[BranchEpoch, ...]
    controls: tuple[tuple[int, ControlRecord], ...]
    snapshots: tuple[KeptSnapshot, ...] = ()
    unsound_offsets: tuple[int, ...] = ()
    rejoins: tuple[Rejoin, ...] = ()
    is_overflowing: bool = False
    earlier_logs: tuple[EarlierLog, ...] = ()

    def path(self, branch: int | None) -> list[int]:
        """The branches from the first one to `branch`, each the parent of the next."""
        path: list[int] = []
        while branch is not None:
            path.append(branch)
            branch = self.branches[branch].parent
        return path[::-1]

    def to_bytes(self) -> bytes:
        """The same survey gives the same bytes."""
        fields = {
            "logs": [asdict(log) for log in self.logs],
            "branches": [asdict(branch) for branch in self.branches],
            "epochs": [asdict(epoch) for epoch in self.epochs],
            "controls": [[branch, asdict(control)] for branch, control in self.controls],
            "snapshots": [asdict(snapshot) for snapshot in self.snapshots],
            "unsound_offsets": self.unsound_offsets,
            "rejoins": [[rejoin.followed, sorted(rejoin.replicas_of.items())] for rejoin in self.rejoins],
            "is_overflowing": self.is_overflowing,
            "earlier_logs": [asdict(log) for log in self.earlier_logs],
        }
        text = json.dumps(fields, separators=(",", ":"), default=_as_object).encode()
        return len(text).to_bytes(_LENGTH_BYTES, "big") + bytes(pa.compress(text, codec="zstd", asbytes=True))

    @classmethod
    def from_bytes(cls, content: bytes) -> KeptSurvey:
        """What `to_bytes` wrote. Raises KeptPartsError."""
        try:
            size = int.from_bytes(content[:_LENGTH_BYTES], "big")
            text = bytes(pa.decompress(content[_LENGTH_BYTES:], size, codec="zstd", asbytes=True))
            fields = json.loads(text, object_hook=_from_object)
            return cls(
                logs=tuple(map(_log, fields["logs"])),
                branches=tuple(_branch(each) for each in fields["branches"]),
                epochs=tuple(BranchEpoch(**each) for each in fields["epochs"]),
                controls=tuple((branch, ControlRecord(**each)) for branch, each in fields["controls"]),
                snapshots=tuple(map(_snapshot, fields["snapshots"])),
                unsound_offsets=tuple(fields["unsound_offsets"]),
                rejoins=tuple(_rejoin(followed, holders) for followed, holders in fields["rejoins"]),
                is_overflowing=fields["is_overflowing"],
                earlier_logs=tuple(map(_earlier_log, fields["earlier_logs"])),
            )
        except (ValueError, TypeError, LookupError, OverflowError, MemoryError, pa.ArrowException, OSError) as error:
            raise KeptPartsError(f"its survey cannot be read: {type(error).__name__}") from None


def _as_object(value: Any) -> Any:
    if isinstance(value, bytes):
        return {_BYTES: base64.b64encode(value).decode("ascii")}
    raise TypeError(f"{type(value).__name__} is in no control record")


def _from_object(fields: dict[str, Any]) -> Any:
    return base64.b64decode(fields[_BYTES]) if fields.keys() == {_BYTES} else fields


def _log(fields: Mapping[str, Any]) -> KeptLog:
    own = dict(fields)
    last_batch = own["last_batch"]
    own["last_batch"] = None if last_batch is None else BatchKey(**last_batch)
    own["identity"] = tuple(own["identity"])
    own["marks"] = tuple(LogMark(**mark) for mark in own["marks"])
    return KeptLog(**own)


def _branch(fields: Mapping[str, Any]) -> Branch:
    return Branch(**{**fields, **{name: _pairs(fields[name]) for name in ("epochs", "gaps")}})


def _pairs(values: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    return [(first, second) for first, second in values]


def _snapshot(fields: Mapping[str, Any]) -> KeptSnapshot:
    controls = tuple(ControlRecord(**each) for each in fields["controls"])
    copies = tuple(KeptCopy(**each) for each in fields["copies"])
    return KeptSnapshot(fields["source"], controls, copies)


def _earlier_log(fields: Mapping[str, Any]) -> EarlierLog:
    return EarlierLog(
        fields["branch"],
        tuple(BranchEpoch(**each) for each in fields["epochs"]),
        tuple(ControlRecord(**each) for each in fields["controls"]),
        tuple(_surveyed_snapshot(each) for each in fields["snapshots"]),
    )


def _surveyed_snapshot(fields: Mapping[str, Any]) -> SurveyedSnapshot:
    controls = tuple(ControlRecord(**each) for each in fields["controls"])
    return SurveyedSnapshot(fields["source"], fields["end_offset"], fields["epoch"], (), controls)


def _rejoin(followed: int, holders: Sequence[tuple[int, Sequence[int]]]) -> Rejoin:
    return Rejoin(followed, {branch: tuple(replicas) for branch, replicas in holders})
