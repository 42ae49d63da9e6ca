"""What an incident picture shows, as plain values: lanes of nodes, counts of partitions, the log's end, incidents.

Nothing here knows of pixels. Times are log append times in ms; what the log and the disks do not prove is not drawn.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from kraft_audit.tables.number_arrays import Times


class BandKind(enum.StrEnum):
    """A state of a node that lasts; the value is its class in the drawing."""

    LEADER = "leader"
    FOLLOWER = "follower"
    OBSERVER = "observer"
    DIVERGED = "diverged"
    IN_SERVICE = "in-service"
    FENCED = "fenced"
    SHUTTING_DOWN = "shutting-down"
    DOWN = "down"
    STARTING = "starting"


class MarkKind(enum.StrEnum):
    """Something that happened to a node at one moment."""

    ELECTED = "elected"
    ADDED = "added"
    REMOVED = "removed"
    RESTARTED = "restarted"
    LOG_DIR_FAILED = "log-dir-failed"
    CUT = "cut"
    EMPTY = "empty"


class SeriesKind(enum.StrEnum):
    """A number of partitions over time."""

    AT_ONE_REPLICA = "at-one-replica"
    OFFLINE = "offline"
    BLOCKED = "blocked"


TROUBLE: Final = frozenset({BandKind.FENCED, BandKind.SHUTTING_DOWN, BandKind.DOWN, BandKind.DIVERGED})


@dataclass(frozen=True, slots=True)
class Band:
    """A state from one moment to another."""

    kind: BandKind
    from_ms: int
    to_ms: int
    label: str = ""


@dataclass(frozen=True, slots=True)
class Mark:
    """Something at one moment; `text` says what, where its kind alone does not."""

    kind: MarkKind
    at_ms: int
    text: str = ""


@dataclass(frozen=True, slots=True)
class Lane:
    """One node, or several brokers that nothing happened to. `ends_ms` is where what is known of it ends.

    `standing` is how it stood at the end, `alarms` whether that is trouble.
    """

    name: str
    role: str
    bands: tuple[Band, ...]
    marks: tuple[Mark, ...] = ()
    ends_ms: int | None = None
    end_label: str = ""
    standing: str = ""
    alarms: bool = False

    @property
    def trouble_ms(self) -> int:
        """For how long it was in trouble."""
        return sum(band.to_ms - band.from_ms for band in self.bands if band.kind in TROUBLE)

    @property
    def is_quiet(self) -> bool:
        """Whether nothing happened to it but that it came into service."""
        return not self.marks and not any(band.kind in TROUBLE for band in self.bands)


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """How many partitions were in a state: `counts[n]` from `times_ms[n]` on."""

    kind: SeriesKind
    times_ms: Times
    counts: Times

    @property
    def peak(self) -> int:
        return int(self.counts.max(initial=0))

    @property
    def last(self) -> int:
        return int(self.counts[-1]) if len(self.counts) else 0


@dataclass(frozen=True, slots=True)
class Bracket:
    """An incident with the number that the page gives it; `to_ms` is None while it lasts."""

    number: int
    label: str
    from_ms: int
    to_ms: int | None
    is_open: bool


@dataclass(frozen=True, slots=True)
class Stall:
    """A time of which no record is proven committed, and why that is known; `to_ms` is None where it lasts."""

    from_ms: int
    to_ms: int | None
    text: str


@dataclass(frozen=True, slots=True)
class DrawnBranch:
    """Records that parted from the log at `from_offset`, up to `to_offset` (exclusive).

    `parted_ms` is the time of the last record before them, None where none was read. Below `committed` they are proven
    committed: None where nothing of them is. `label` says what they are, `standing` where they are now.
    """

    from_offset: int
    to_offset: int
    from_ms: int
    to_ms: int
    parted_ms: int | None
    committed: int | None
    label: str
    standing: str
    marks: tuple[Mark, ...] = ()

    @property
    def alarms(self) -> bool:
        """Whether a branch has what the log lacks: a committed record, or one that a disk holds still."""
        return self.committed is not None or not any(mark.kind is MarkKind.CUT for mark in self.marks)


@dataclass(frozen=True, slots=True)
class DrawnLoss:
    """How many partitions lost acknowledged records at a time: proven by brokers' disks, or possibly."""

    at_ms: int
    proven: int
    possible: int


@dataclass(frozen=True, slots=True, eq=False)
class LogGrowth:
    """The canonical log's end over time: `offsets[n]` is the end after the batch that was appended at `times_ms[n]`.

    Where no log is canonical, it is that of the records that all logs have in common. Everything below `committed` is
    proven committed: `captures.committed_end`, which the head of a page names too.
    """

    times_ms: Times
    offsets: Times
    committed: int | None
    is_canonical: bool = True

    @property
    def standing(self) -> tuple[str, ...]:
        """The log's end where it goes on past what is proven committed, and up to where it is, as `check` says it."""
        last = int(self.offsets[-1]) if len(self.offsets) else None
        is_all = self.committed is not None and (last is None or last <= self.committed or not self.is_canonical)
        end = () if last is None or is_all else (f"log end {last}",)
        return (*end, *((f"committed through {self.committed - 1}",) if self.committed else ()))


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """Everything that is drawn between two moments. `moments_ms` are those at which something happened.

    `partitions` is None where they are not known; `earlier` counts incidents before `from_ms`.
    """

    title: str
    from_ms: int
    to_ms: int
    controllers: tuple[Lane, ...]
    brokers: tuple[Lane, ...]
    lanes_left_out: int
    partitions: int | None
    series: tuple[Series, ...]
    losses: tuple[DrawnLoss, ...]
    log_end: LogGrowth
    brackets: tuple[Bracket, ...]
    branches: tuple[DrawnBranch, ...] = ()
    branches_left_out: int = 0
    stalls: tuple[Stall, ...] = ()
    earlier: int = 0
    moments_ms: tuple[int, ...] = field(default=())

    @property
    def sentence(self) -> str:
        """The bands of partitions that are empty, in words; empty where none is."""
        words = {
            SeriesKind.AT_ONE_REPLICA: "at one replica",
            SeriesKind.OFFLINE: "offline",
            SeriesKind.BLOCKED: "with blocked writes",
        }
        none = [f"none {words[series.kind]}" for series in self.series if not series.peak]
        if self.partitions is None or not none:
            return ""
        return f"{self.partitions:,} partition{'s'[: self.partitions != 1]}, {', '.join(none)}"

    @property
    def partitions_lost(self) -> int:
        """How many times a partition lost acknowledged records or may have."""
        return sum(loss.proven + loss.possible for loss in self.losses)

    @property
    def drawn_series(self) -> tuple[Series, ...]:
        return tuple(series for series in self.series if series.peak)


def step_series(kind: SeriesKind, starts_ms: Sequence[int], ends_ms: Sequence[int | None]) -> Series:
    """The number of open spans at each moment at which it changes; a span whose end is None lasts."""
    starts = np.asarray(starts_ms, np.int64)
    ends = np.asarray([end for end in ends_ms if end is not None], np.int64)
    times = np.concatenate([starts, ends])
    changes = np.concatenate([np.ones(len(starts), np.int64), np.full(len(ends), -1, np.int64)])
    order = np.argsort(times, kind="stable")
    moments, first = np.unique(times[order], return_index=True)
    counts = np.add.reduceat(changes[order], first).cumsum() if len(moments) else np.zeros(0, np.int64)
    is_new = np.diff(counts, prepend=0) != 0
    return Series(kind, moments[is_new], counts[is_new])


def merged(bands: Sequence[Band]) -> tuple[Band, ...]:
    """Neighbouring bands of one kind as one; those without a length are left out."""
    joined: list[Band] = []
    for band in bands:
        if band.to_ms <= band.from_ms:
            continue
        last = joined[-1] if joined else None
        if last is not None and last.kind is band.kind and last.to_ms == band.from_ms:
            joined[-1] = Band(last.kind, last.from_ms, band.to_ms, last.label)
        else:
            joined.append(band)
    return tuple(joined)
