"""An hour of one cluster, of its first run: processor time, bytes read, bytes kept of earlier captures.

python -m benchmarks.next_hour [--mib 32] [--partitions 2000] [--voters 5]

The disks are as an hourly run finds them: a whole log, the same with 1 % more, an hour of NoOps alone, and 1 % more of
a log that was written within hours, so that each partition's ISR changes too often. Reading, replay, rules and what is
kept are measured, in this process: what a lake's commits cost is the same whatever was read.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.figures import Figure, Skipped, print_figures
from kraft_audit.capture.plan import ClusterPlan, SilverPosition
from kraft_audit.pipeline.analysis import TABLES, analyze
from kraft_audit.reading import ReadingSettings
from kraft_codec.records.batch import Batch, BatchHeader, read_batches, write_batch
from kraft_codec.records.record import write_metadata_value
from kraft_codec.records.redaction import Redactor
from kraft_codec.schemas import Dialect
from kraft_engine.runs.fleet_logs import simulate_fleet
from tests.builders.hourly_disks import CountedBytes, PlannedLake, position_of, remembered
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
    kept_bytes: int


class Hours:
    """Plans over the disks below `root`, each with what the one before kept."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.lake = PlannedLake(Reading(), Dialect.KIP853)
        self.position: SilverPosition | None = None
        self.kept: bytes | None = None

    def plan(self) -> ClusterPlan:
        plan = self.lake.next_plan(self.root)
        assert plan is not None, "nothing has changed"
        return replace(plan, silver=self.position)

    def pass_hour(self) -> Cost:
        """Reads and judges the disks, and keeps what later captures may not show."""
        plan, counted = self.plan(), CountedBytes()
        rows: dict[str, list[dict[str, object]]] = {}
        started = time.process_time()
        memory = remembered(self.kept)
        settings = ReadingSettings(counted.open, Redactor(KEY), known=self.lake, stop_on_change=True)
        wanted = [each for each in analyze(plan, settings, TABLES, memory) if each[0] in WANTED]
        assert memory.kept is not None
        self.kept = memory.kept.to_bytes()
        took = time.process_time() - started
        for name, batch in wanted:
            rows.setdefault(name, []).extend(batch.to_pylist())
        self.lake.take(rows)
        self.position = position_of(rows)
        return Cost(took, counted.total, len(self.kept))


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

    def grow(self, pairs: int) -> None:
        """Makes the disks what they are with so many pairs of batches."""
        made = self.folder / "made"
        fleet = simulate_fleet(
            made, clusters=1, partitions=self.partitions, changes=128 * pairs, voters=self.voters, is_aged=True,
            snapshot_pairs=self.every, pause_ms=self.pause_ms,
        )  # fmt: skip
        self.log_bytes = fleet.log_bytes
        self.hour += 1
        for file in sorted(path for path in (made / "cluster-0").rglob("*") if path.is_file()):
            self._write(self.root / file.relative_to(made / "cluster-0"), file.read_bytes())
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


def shown(what: str, cost: Cost, first: Cost) -> Figure:
    """A figure, and its costs for people."""
    print(
        f"{what}: {cost.seconds:.2f} s, the first run {first.seconds:.2f} s; {cost.bytes_read / 1e6:.2f} MB read, "
        f"{cost.kept_bytes / 1e3:.1f} kB kept of earlier captures"
    )
    name = f"next hour: {what}, of the first run"
    return Figure(name, first.seconds / cost.seconds, 1 / 1.1, f"{cost.seconds:.2f} s", f"{first.seconds:.2f} s")


def hour_figures(folder: Path, mib: int, partitions: int, voters: int) -> list[Figure | Skipped]:
    """A usual hour, one without changes but NoOps, and an incident."""
    pairs = (mib << 20) // PAIR_BYTES
    more = max(1, pairs // 100)
    figures: list[Figure | Skipped] = []
    usual = Disks(folder / "usual", voters, partitions, max(1, pairs // 5), HOUR_MS // (BATCHES_A_PAIR * more))
    usual.grow(pairs)
    print(f"{voters} voters, {usual.log_bytes / 1e6:.0f} MB of log, {partitions} partitions")
    hours = Hours(usual.root)
    first = hours.pass_hour()
    usual.grow(pairs + more)
    figures.append(shown("1 % new", hours.pass_hour(), first))
    usual.append(noops(7_200 * mib // 100))
    figures.append(shown("an hour of NoOps alone", hours.pass_hour(), first))
    storm = Disks(folder / "storm", voters, partitions, max(1, pairs // 5))
    storm.grow(pairs)
    hours = Hours(storm.root)
    first = hours.pass_hour()
    storm.grow(pairs + more)
    figures.append(shown("1 % new, within the hour of all that went before", hours.pass_hour(), first))
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
