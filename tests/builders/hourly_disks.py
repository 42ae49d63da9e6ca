"""Disks of a simulated cluster as an hourly run finds them: they grow, lag, stand still, part, and lose old segments.

A disk's log is that of a capture, up to some batch, cut into segments. What does not change keeps its time, as on a
disk.
"""

from __future__ import annotations

import itertools
import os
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kraft_audit.capture.path_plans import plan_path
from kraft_audit.capture.plan import ClusterPlan, SilverPosition
from kraft_audit.pipeline.analysis import CaptureMemory
from kraft_audit.pipeline.earlier_captures import EarlierCaptures
from kraft_codec.file_names import segment_name
from kraft_codec.records.batch import Batch, read_batches
from kraft_codec.schemas import Dialect
from kraft_codec.storage.opener import open_storage
from kraft_codec.storage.random_access import Buffer, RandomAccess, Storage
from kraft_engine import Options, simulate
from tests.builders.memory_lake import Lake

LOG_DIR = "__cluster_metadata-0"
SEGMENT_OFFSETS = 40
HOUR_NS = 3_600 * 10**9


def dialect_of(kind: str) -> Dialect:
    """The dialect of a kind of random run."""
    return Dialect(kind.removeprefix("random-")) if "kip" in kind else Dialect.KIP853


@dataclass
class HourlyDisks:
    """The disks below `root`. `chance` decides which of them lag, stand still or delete segments in an hour."""

    kind: str
    seed: int
    root: Path
    hour: int = 0
    starts: dict[str, int] = field(default_factory=dict)
    logs: dict[str, list[tuple[int, bytes]]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    keeps_later_snapshots: bool = True
    """Whether disks hold snapshots of what their logs do not hold yet: copied at another moment."""

    events: int | None = None
    """How much happens in the run; None: as much as always."""

    is_always_copied: bool = False
    """Whether a disk that does not stand still is captured even where nothing of it is new."""

    run: Path | None = None
    """Where the run is, or is to be played: several clusters can share it."""

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)  # noqa: S311  # not a secret
        run = self.run or self.root.parent / "run"
        if not run.exists():
            simulate(self.kind, self.seed, run, Options(events=self.events))
        self.captures = sorted(path for path in run.iterdir() if path.is_dir())
        self.nodes = sorted({node.name for capture in self.captures for node in capture.iterdir()})

    def pass_hour(self, capture: int, *, share: float = 1.0, deletes: bool = False, stands_still: float = 0.2) -> None:
        """The disks become those of a capture, each up to a share of what it has more there, and some not at all."""
        self.hour += 1
        for name in self.nodes:
            source = self.captures[capture] / name
            if not source.is_dir() or (self.hour > 1 and self.chance.random() < stands_still):
                continue
            own = share if self.hour == 1 else min(1.0, share * self.chance.choice((0.5, 1.0, 1.0)))
            self._copy(source, self.root / name, own, deletes=deletes)

    def _copy(self, source: Path, target: Path, share: float, *, deletes: bool) -> None:
        wanted = {target / place.relative_to(source): content for place, content in self.small_files(source)}
        batches = self.batches(source)
        held = self.counts.get(target.name, 0)
        batches = self._with_cleaned(target.name, batches)
        count = self.counts[target.name] = max(held, int(len(batches) * share))
        end = batches[count][0] if count < len(batches) else None
        batches = batches[:count]
        is_other = _is_other_disk(wanted)
        if is_other:
            self.starts.pop(target.name, None)
        if end is not None and not self.keeps_later_snapshots:
            wanted = {place: content for place, content in wanted.items() if (snapshot_end(place) or 0) <= end}
            wanted |= {} if is_other else _newest_snapshot(target, wanted)
        if end is not None:
            epochs = (path for path in wanted if path.name == "leader-epoch-checkpoint")
            wanted |= {path: _epochs_before(wanted[path], end) for path in epochs}
            wanted = {path: content for path, content in wanted.items() if (_producer_state_offset(path) or 0) <= end}
        groups = [list(group) for _, group in itertools.groupby(batches, key=lambda batch: batch[0] // SEGMENT_OFFSETS)]
        ends = [int(path.name.split("-")[0]) for path in wanted if path.suffix == ".checkpoint" and "-" in path.name]
        if deletes and ends:
            self.starts[target.name] = max(self.starts.get(target.name, 0), max(ends))
        start = self.starts.get(target.name, 0)
        for number, group in enumerate(groups):
            is_needed = number + 1 == len(groups) or groups[number + 1][0][0] > start
            if is_needed or not deletes:
                wanted[target / LOG_DIR / segment_name(group[0][0])] = b"".join(content for _, content in group)
        _write(target, wanted, self.hour)
        state = target / LOG_DIR / "quorum-state"
        if self.is_always_copied and state.is_file():
            os.utime(state, ns=(self.hour * HOUR_NS, self.hour * HOUR_NS))

    def small_files(self, source: Path) -> Iterator[tuple[Path, bytes]]:
        """The files of a node dir, but for its log."""
        for file in sorted(path for path in source.rglob("*") if path.is_file()):
            if file.suffix not in (".log", ".index", ".timeindex"):
                yield file, file.read_bytes()

    def batches(self, source: Path) -> list[tuple[int, bytes]]:
        """(base offset, bytes) of the batches of its log."""
        return log_batches(source / LOG_DIR)

    def _with_cleaned(self, name: str, batches: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        """The log with what its cluster has deleted since: which segments are deleted is decided here.

        A log that began again at a snapshot has nothing of what it held before.
        """
        known = self.logs.get(name, [])
        if batches and batches[0] in known:
            batches = known[: known.index(batches[0])] + batches
        self.logs[name] = batches
        return batches


def snapshot_end(path: Path) -> int | None:
    """The end offset in the name of a snapshot; None for other files."""
    is_snapshot = path.suffix == ".checkpoint" and "-" in path.name and path.name[0].isdigit()
    return int(path.name.split("-")[0]) if is_snapshot else None


def _producer_state_offset(path: Path) -> int | None:
    """The offset in the name of a .snapshot, which is written when the log ends there; None for other files."""
    return int(path.stem) if path.suffix == ".snapshot" and path.stem.isdigit() else None


def _epochs_before(content: bytes, end: int) -> bytes:
    """A leader-epoch-checkpoint as it was when the log ended there."""
    version, _, *words = content.decode().split()
    held = [f"{epoch} {start}" for epoch, start in zip(words[::2], words[1::2], strict=True) if int(start) < end]
    return "\n".join([version, str(len(held)), *held, ""]).encode()


def log_batches(log_dir: Path) -> list[tuple[int, bytes]]:
    """(base offset, bytes) of the batches of a log, in order."""
    found = []
    for file in sorted(log_dir.glob("*.log")):
        content = file.read_bytes()
        for batch in read_batches(content):
            if not isinstance(batch, Batch):
                break
            header = batch.header
            found.append((header.base_offset, content[header.position : header.position + header.size_bytes]))
    return found


def _write(target: Path, wanted: dict[Path, bytes], hour: int) -> None:
    for path in sorted(target.rglob("*")) if target.is_dir() else ():
        if path.is_file() and path not in wanted:
            path.unlink()
    is_new = _is_other_disk(wanted)
    for path, content in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if is_new or _differs(path, content):
            path.write_bytes(content)
            os.utime(path, ns=(hour * HOUR_NS, hour * HOUR_NS))


def _is_other_disk(wanted: dict[Path, bytes]) -> bool:
    """Whether meta.properties differs: then all files of the disk are new."""
    return any(path.name == "meta.properties" and _differs(path, content) for path, content in wanted.items())


def _newest_snapshot(disk: Path, wanted: dict[Path, bytes]) -> dict[Path, bytes]:
    """The newest snapshot on a disk, unless it gets a newer one: Kafka deletes none before."""
    held = {snapshot_end(path) or 0: path for path in disk.rglob("*.checkpoint")}
    newest = max(held, default=0)
    is_replaced = newest <= max((snapshot_end(path) or 0 for path in wanted), default=0)
    return {} if is_replaced else {held[newest]: held[newest].read_bytes()}


def _differs(path: Path, content: bytes) -> bool:
    return not path.is_file() or path.read_bytes() != content


class PlannedLake(Lake):
    """A lake whose plans tell replicas with changes from those without, as `fleet_plan` does."""

    def __init__(self, reading: Any, dialect: Dialect) -> None:
        super().__init__(reading)
        self.dialect = dialect

    def next_plan(self, root: Path) -> ClusterPlan | None:
        """The plan of what lies below a path now, None where nothing changed."""
        self.number += 1
        plans = plan_path(str(root), open_storage=open_storage, captured_at_ms=self.number, dialect=self.dialect)
        whole = max(plans, key=lambda plan: len(plan.replicas))
        resumed = self.plan(whole)
        changed = [
            (replica, before)
            for replica, before in zip(resumed.replicas, whole.replicas, strict=True)
            if replica.gone_files or not all(file.is_unchanged for file in replica.files)
        ]
        if not changed:
            return None
        befores = [before for _, before in changed]
        context = tuple(replica for replica in whole.replicas if replica not in befores)
        return replace(resumed, replicas=tuple(replica for replica, _ in changed), context=context)

    def take(self, rows: dict[str, list[dict[str, Any]]]) -> None:
        """Takes the rows of a plan."""
        for name in self.rows:
            self.rows[name] += rows.get(name, [])
        for row in rows.get("files", []):
            self.files[row["path"], row["file_name"]] = row


def remembered(kept: bytes | None) -> CaptureMemory:
    """What the plan before kept of earlier captures, as bytes, or nothing."""
    return CaptureMemory(None if kept is None else EarlierCaptures.from_bytes(kept))


def position_of(rows: dict[str, list[dict[str, Any]]]) -> SilverPosition:
    """Where the silver tables stand after a plan."""
    (row,) = rows["replays"]
    epochs = tuple((epoch["epoch"], epoch["to_offset"]) for epoch in row["epochs"])
    names = ("settled_offset", "to_offset", "low", "low_epoch", "began_at")
    return SilverPosition(**{name: row[name] for name in names}, epochs=epochs, default_min_isr=1)


class CountedBytes:
    """Storages that count the bytes that are read of segments, by path."""

    def __init__(self) -> None:
        self.read: Counter[str] = Counter()

    @property
    def total(self) -> int:
        return sum(self.read.values())

    @contextmanager
    def open(self, root: str) -> Iterator[Storage]:
        with open_storage(root) as storage:
            yield _CountedStorage(storage, self)


class _CountedStorage(Storage):
    def __init__(self, inner: Storage, counts: CountedBytes) -> None:
        super().__init__(inner.location, start=inner.start, is_immutable=inner.is_immutable, limits=inner.limits)
        self._inner, self._counts = inner, counts

    def list_dir(self, path: str) -> Any:
        return self._inner.list_dir(path)

    def open(self, path: str, planned_size_bytes: int | None = None) -> RandomAccess:
        return _CountedFile(self._inner.open(path, planned_size_bytes), self._counts)

    def medium(self, path: str) -> str:
        return self._inner.medium(path)

    def close(self) -> None:
        self._inner.close()


class _CountedFile(RandomAccess):
    def __init__(self, inner: RandomAccess, counts: CountedBytes) -> None:
        super().__init__(inner.path, inner.size_bytes, inner.mtime_ms)
        self._inner, self._counts = inner, counts

    def read_into(self, position: int, buffer: Buffer) -> None:
        if self.path.endswith(".log"):
            self._counts.read[self.path] += len(buffer)
        self._inner.read_into(position, buffer)

    def change(self) -> Any:
        return self._inner.change()

    def next_data(self, position: int) -> int:
        return self._inner.next_data(position)

    def close(self) -> None:
        self._inner.close()
