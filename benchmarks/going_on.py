"""An hour that goes on from what the hour before kept, of a run that reads everything: processor time and bytes.

python -m benchmarks.going_on [--mib 32] [--partitions 2000] [--voters 5]

One cluster, its disks as an hourly run finds them: a whole log, the same with 1 % more, an hour's changes, an hour of
NoOps alone; 1 % more of a log that was written within hours, so that each partition's ISR changes too often; then 1 %
more with one voter of three captured, and 1 % more after a transaction that has been open for a day. Reading, replay,
rules and states are measured, in this process: what a lake's commits cost is the same whatever was read.
"""

from __future__ import annotations

import argparse
import os
import shutil
import struct
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.figures import Figure, Skipped, print_figures
from kraft_audit.capture.plan import ClusterPlan, SilverPosition
from kraft_audit.pipeline.analysis import TABLES, Continuation, analyze, versions_of
from kraft_audit.findings.kept_state import KeptState
from kraft_audit.reading import ReadingSettings
from kraft_codec.records.batch import Batch, BatchHeader, read_batches, write_batch
from kraft_codec.records.record import write_metadata_value
from kraft_codec.records.redaction import Redactor
from kraft_codec.schemas import Dialect
from kraft_engine.runs.fleet_logs import simulate_fleet
from tests.builders.hourly_disks import CountedBytes, PlannedLake, snapshot_end
from tests.builders.judged_hours import position_of
from tests.builders.logs import Reading
from tests.builders.memory_lake import KEY

CAPTURED_AT = 1_700_000_000
PAIR_BYTES = 9_200
"""Of two batches of changes, about."""
BATCHES_A_PAIR = 3
HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Cost:
    """What one plan took."""

    seconds: float
    bytes_read: int
    state_bytes: int
    why_whole: str | None


class Hours:
    """Plans over the disks below `root`, each from the state of the one before."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.lake = PlannedLake(Reading(), Dialect.KIP853)
        self.position: SilverPosition | None = None
        self.state: bytes | None = None

    def plan(self) -> ClusterPlan:
        plan = self.lake.next_plan(self.root)
        assert plan is not None, "nothing has changed"
        return replace(plan, silver=self.position)

    def pass_hour(self) -> Cost:
        """Reads and judges what is new, and keeps the state."""
        plan, counted = self.plan(), CountedBytes()
        rows: dict[str, list[dict[str, object]]] = {}
        started = time.process_time()
        earlier = None if self.state is None else KeptState.from_bytes(self.state, versions_of(plan))
        continuation = Continuation(earlier)
        settings = ReadingSettings(counted.open, Redactor(KEY), known=self.lake, stop_on_change=True)
        wanted = [each for each in analyze(plan, settings, TABLES, continuation) if each[0] in WANTED]
        assert continuation.next_state is not None
        self.state = continuation.next_state.to_bytes()
        took = time.process_time() - started
        for name, batch in wanted:
            rows.setdefault(name, []).extend(batch.to_pylist())
        self.lake.take(rows)
        self.position = position_of(rows)
        return Cost(took, counted.total, len(self.state), continuation.why_whole)


WANTED = frozenset({"files", "batches", "replays"})
"""What the next plan is made of."""


class Disks:
    """Node dirs of one cluster below `root`; `grow` makes them what they are with so many pairs of batches."""

    def __init__(self, folder: Path, voters: int, partitions: int, every: int, pause_ms: int = 1_000) -> None:
        self.root = folder / "disks"
        self.folder = folder
        self.voters = voters
        self.partitions = partitions
        self.every = every
        self.pause_ms = pause_ms
        self.hour = 0
        self.log_bytes = 0

    def grow(self, pairs: int, replicas: int | None = None, shift_from: int | None = None) -> None:
        """With `shift_from` a transaction begins there: what follows has offsets one higher, without a snapshot."""
        made = self.folder / "made"
        fleet = simulate_fleet(
            made, clusters=1, partitions=self.partitions, changes=128 * pairs, voters=self.voters, replicas=replicas,
            is_aged=True, snapshot_pairs=self.every, pause_ms=self.pause_ms,
        )  # fmt: skip
        self.log_bytes = fleet.log_bytes
        self.hour += 1
        files = sorted(path for path in (made / "cluster-0").rglob("*") if path.is_file())
        if shift_from is not None:
            (log, *_) = (path for path in files if path.suffix == ".log")
            begin_offset = last_batch(log.read_bytes()[:shift_from]).last_offset + 1
            files = [path for path in files if (snapshot_end(path) or 0) <= begin_offset]
        for file in files:
            target = self.root / file.relative_to(made / "cluster-0")
            content = file.read_bytes()
            if shift_from is not None and file.suffix == ".log":
                content = with_begin(content, shift_from)
            self._write(target, content)
        shutil.rmtree(made)

    def append(self, batches: Callable[[bytes], bytes]) -> None:
        """More batches at the end of every log."""
        self.hour += 1
        for file in sorted(self.root.rglob("*.log")):
            content = file.read_bytes()
            self._write(file, content + batches(content))

    def _write(self, target: Path, content: bytes) -> None:
        if target.is_file() and target.read_bytes() == content:
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        os.utime(target, (CAPTURED_AT + 3_600 * self.hour,) * 2)


def last_batch(content: bytes) -> BatchHeader:
    """The header of the last batch of a log."""
    return [batch for batch in read_batches(content) if isinstance(batch, Batch)][-1].header


def noops(count: int) -> Callable[[bytes], bytes]:
    """So many NoOps after the last batch, each a batch, half a second apart."""
    value = write_metadata_value("NoOpRecord", 0, {})

    def batches(content: bytes) -> bytes:
        last = last_batch(content)
        return b"".join(
            write_batch(
                base_offset=last.last_offset + 1 + number, leader_epoch=last.leader_epoch,
                timestamp_ms=last.max_timestamp_ms + 500 * (number + 1), records=[(None, value)],
            )
            for number in range(count)
        )  # fmt: skip

    return batches


def with_begin(content: bytes, position: int) -> bytes:
    """A log with a transaction that begins at a position and never ends: what follows has the next offsets."""
    head, rest = content[:position], bytearray(content[position:])
    last = last_batch(head)
    begin = write_batch(
        base_offset=last.last_offset + 1, leader_epoch=last.leader_epoch, timestamp_ms=last.max_timestamp_ms,
        records=[(None, write_metadata_value("BeginTransactionRecord", 0, {"name": "never ended"}))],
    )  # fmt: skip
    at = 0
    while at < len(rest):
        offset, size = struct.unpack_from(">qi", rest, at)
        struct.pack_into(">q", rest, at, offset + 1)
        at += 12 + size
    return head + begin + bytes(rest)


def shown(what: str, cost: Cost, full: Cost, asked: float) -> Figure:
    """A figure, and its costs for people."""
    why = "" if cost.why_whole is None else f"; ALL READ: {cost.why_whole}"
    print(
        f"{what}: {cost.seconds:.2f} s of {full.seconds:.2f} s ({100 * cost.seconds / full.seconds:.1f} %), "
        f"{cost.bytes_read / 1e6:.2f} MB read, state {cost.state_bytes / 1e6:.2f} MB{why}"
    )
    name = f"going on: {what}, of reading everything"
    return Figure(name, full.seconds / cost.seconds, 1 / asked, f"{cost.seconds:.2f} s", f"{full.seconds:.2f} s")


def hour_figures(folder: Path, mib: int, partitions: int, voters: int) -> list[Figure | Skipped]:
    """A usual hour, one without changes but NoOps, and two incidents."""
    pairs = (mib << 20) // PAIR_BYTES
    more = max(1, pairs // 100)
    figures: list[Figure | Skipped] = []
    pause_ms = HOUR_MS // (BATCHES_A_PAIR * more)
    disks = Disks(folder / "usual", voters, partitions, max(1, pairs // 5), pause_ms)
    disks.grow(pairs)
    hours = Hours(disks.root)
    before, full = disks.log_bytes, hours.pass_hour()
    print(f"{voters} voters, {before / 1e6:.0f} MB of log, {partitions} partitions")
    disks.grow(pairs + more)
    cost = hours.pass_hour()
    figures.append(shown("1 % new", cost, full, 0.05))
    new = disks.log_bytes - before
    figures.append(
        Figure("going on: new bytes, of those read", new / cost.bytes_read, 1 / 1.1, f"{new} B", f"{cost.bytes_read} B")
    )
    disks.append(noops(7_200 * mib // 100))
    figures.append(shown("an hour of NoOps alone", hours.pass_hour(), full, 0.01))
    storm = Disks(folder / "storm", voters, partitions, max(1, pairs // 5))
    storm.grow(pairs)
    hours = Hours(storm.root)
    full = hours.pass_hour()
    storm.grow(pairs + more)
    figures.append(shown("1 % new, within the hour of all that went before", hours.pass_hour(), full, 0.06))
    alone = Disks(folder / "alone", 3, partitions, max(1, pairs // 5), pause_ms)
    alone.grow(pairs, replicas=1)
    hours = Hours(alone.root)
    full = hours.pass_hour()
    alone.grow(pairs + more, replicas=1)
    figures.append(shown("1 % new, one voter of three captured", hours.pass_hour(), full, 0.06))
    open_ = Disks(folder / "open", voters, partitions, max(1, pairs // 5), pause_ms)
    open_.grow(pairs)
    (log, *_) = sorted(open_.root.rglob("*.log"))
    begin = log.stat().st_size
    open_.grow(pairs + 24 * more, shift_from=begin)
    hours = Hours(open_.root)
    full = hours.pass_hour()
    open_.grow(pairs + 25 * more, shift_from=begin)
    figures.append(shown("1 % new, a transaction open since a day", hours.pass_hour(), full, 0.06))
    return figures


def main() -> int:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=32, help="of log, of one voter")
    parser.add_argument("--partitions", type=int, default=2_000)
    parser.add_argument("--voters", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print_figures(hour_figures(Path(folder), given.mib, given.partitions, given.voters))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
