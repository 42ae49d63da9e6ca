"""A year of hourly runs in file counts: python -m benchmarks.hourly [--hours 48] [--clusters 6].

Every hour each cluster's log grows by two batches, and a run plans, stages, commits and closes what is new, as in the
pipeline, in this process. Logs are cleaned up to a snapshot as Kafka does it, so that a capture holds a week. Two lakes
see the same hours: one is not maintained, for its first days, the other is once a day. What is compared is how many
files there are, and how long the same questions take, of the same rows written at once too; 8,760 hours are a
year: every thirtieth day is printed. The process's clock goes along, so that vacuum and Delta's own log forget as
they do in a year.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

from benchmarks.figures import Figure, Skipped, print_figures
from benchmarks.fleet import CAPTURED_AT, fleet_file
from benchmarks.moved_clock import FILE_VARIABLE, MovedClock, begin_again
from benchmarks.pipeline import KEY
from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.ledger import Ledger
from kraft_audit.lake.ledger_state import Manifest, manifest_of
from kraft_audit.lake.maintenance import DeltaMaintainer, maintain_lake
from kraft_audit.lake.pipeline import Run
from kraft_audit.lake.settings import MaintainSettings, load_fleet
from kraft_audit.lake.staging.cluster_reading import pipeline_reading
from kraft_audit.lake.staging.stage import stage_clusters
from kraft_audit.tables import LAKE_TABLES
from kraft_codec.file_names import segment_name, snapshot_name
from kraft_codec.files.state_files import EpochEntry, format_leader_epoch_checkpoint
from kraft_engine.runs.fleet_logs import BATCH_RECORDS, EXPAND, NO_OP, SHRINK, simulate_fleet

DAY_HOURS = 24
ALONE_HOURS = 2 * DAY_HOURS
PRINTED_HOURS = 30 * DAY_HOURS
HOUR_SECONDS = 3_600
TASKS = 2
"""Tasks of an hourly run, each with files of its own: small clusters share them."""
RETENTION_DAYS = 7
"""metadata.max.retention.ms of Kafka, by default."""
PAIR_BYTES = len(SHRINK) + len(EXPAND) + len(NO_OP)
DAY_OFFSETS = DAY_HOURS * (2 * BATCH_RECORDS + 1)
QUESTIONS = (
    ("records", "SELECT record_type, count(*) AS n FROM records GROUP BY record_type"),
    ("partition_changes", "SELECT cluster_id, max(from_offset) AS n FROM partition_changes GROUP BY cluster_id"),
    ("batches", "SELECT count(*) AS n FROM batches WHERE plan > 0 AND NOT valid"),
)


@dataclass(slots=True)
class _Whole:
    """What one controller's log will have held when the last hour is over, and the snapshots that it will have made."""

    folder: Path
    octets: bytes
    start_offset: int
    snapshots: dict[int, bytes]


class GrowingLogs:
    """Logs that show another hour at a time and are cleaned as Kafka cleans them.

    A segment and a snapshot a day; what stands before the oldest snapshot within the retention is deleted.
    """

    def __init__(self, folder: Path, clusters: int, hours: int, replicas: int = 1, partitions: int = 100) -> None:
        sizes = {"clusters": clusters, "partitions": partitions, "changes": 128 * hours, "replicas": replicas}
        simulate_fleet(folder, **sizes, is_aged=True, snapshot_pairs=DAY_HOURS)
        self.logs = [_hidden(path) for path in sorted(folder.glob("*/*/*/*.log"))]
        for path in folder.rglob("*"):
            if path.is_file():
                os.utime(path, (CAPTURED_AT, CAPTURED_AT))

    def show(self, hours: int) -> None:
        day, is_new_day = (hours - 1) // DAY_HOURS, hours % DAY_HOURS == 0
        changed_at = (CAPTURED_AT + hours * HOUR_SECONDS,) * 2
        for log in self.logs:
            segment = log.folder / segment_name(log.start_offset + day * DAY_OFFSETS)
            with segment.open("ab") as file:
                file.write(log.octets[(hours - 1) * PAIR_BYTES : hours * PAIR_BYTES])
            os.utime(segment, changed_at)
            if is_new_day:
                end_offset = log.start_offset + (day + 1) * DAY_OFFSETS
                snapshot = log.folder / snapshot_name(end_offset, 1)
                snapshot.write_bytes(log.snapshots[end_offset])
                os.utime(snapshot, changed_at)
                if day >= RETENTION_DAYS:
                    _clean(log, end_offset - RETENTION_DAYS * DAY_OFFSETS)


def _hidden(path: Path) -> _Whole:
    """Takes a log away, and all snapshots but the one that it begins at, to be shown hour by hour."""
    folder, start_offset = path.parent, int(path.stem)
    snapshots = {int(path.name.split("-")[0]): path for path in folder.glob("*.checkpoint")}
    later = {offset: path.read_bytes() for offset, path in snapshots.items() if offset > start_offset}
    whole = _Whole(folder, path.read_bytes(), start_offset, later)
    for gone in (path, *folder.glob("*index"), *(snapshots[offset] for offset in later)):
        gone.unlink()
    return whole


def _clean(log: _Whole, to_offset: int) -> None:
    """Deletes segments and snapshots before an offset, at which a snapshot ends."""
    for path in (*log.folder.glob("*.log"), *log.folder.glob("*.checkpoint")):
        if int(path.stem.split("-")[0]) < to_offset:
            path.unlink()
    checkpoint = format_leader_epoch_checkpoint((EpochEntry(1, to_offset),))
    (log.folder / "leader-epoch-checkpoint").write_bytes(checkpoint)


class HourlyLake:
    """A lake that a run of every hour writes to."""

    def __init__(self, folder: Path, name: str, logs: Path, clusters: int) -> None:
        self.fleet = load_fleet(fleet_file(folder, name, logs, clusters, voters=1), environment={})
        self.lake = DeltaLake(self.fleet.lake)
        self.run_seconds: list[float] = []

    def run(self) -> None:
        started = time.process_time()
        result = Run(self.fleet, self.lake, self._stage, lambda _: None).all_steps()
        assert not result.failed
        self.run_seconds.append(time.process_time() - started)

    def _stage(self, number: int) -> Manifest:
        planned = Ledger(self.lake).planned(number)
        read = pipeline_reading(self.lake.uri, KEY, None)
        batches: list[pa.RecordBatch] = []
        for task in range(TASKS):
            batches += stage_clusters(self.lake.uri, planned[task::TASKS], read, f"plan-{number:08d}-{task:05d}")
        return manifest_of(row for batch in batches for row in batch.to_pylist())

    def maintain(self) -> None:
        settings = MaintainSettings()
        for done in maintain_lake(self.lake, DeltaMaintainer(self.lake, settings.target_file_bytes), settings):
            assert not done.failure, done

    def file_count(self) -> int:
        """Data files of the newest versions."""
        return sum(len(self.lake.open(table).file_uris()) for table in LAKE_TABLES)

    def summary(self) -> str:
        """For people: files, and the processor time of a question and of a run."""
        of_run = statistics.median(self.run_seconds[-DAY_HOURS:])
        return f"{self.file_count()} data files, read in {self.read_seconds():.3f} s, a run takes {of_run:.2f} s"

    def read_seconds(self) -> float:
        """Processor time of the questions, the median of some turns, tables opened again each time."""
        return _read_seconds(self.lake)

    def read_at_once_seconds(self, folder: Path) -> tuple[float, int]:
        """The same of tables that hold the same rows, each written at once; and how many rows these are."""
        row_count = 0
        for table, _ in QUESTIONS:
            rows = self.lake.query(f"SELECT * FROM {table}", table)  # noqa: S608  # our own name
            row_count += rows.num_rows
            write_deltalake(str(folder / table), rows)
        return _read_seconds(DeltaLake(str(folder))), row_count


def _read_seconds(lake: DeltaLake) -> float:
    took = []
    for _ in range(5):
        started = time.process_time()
        for table, sql in QUESTIONS:
            lake.query(sql, table)
        took.append(time.process_time() - started)
    return statistics.median(took)


def figures(folder: Path, clusters: int, hours: int) -> list[Figure | Skipped]:
    logs = GrowingLogs(folder / "logs", clusters, hours)
    alone, maintained = (HourlyLake(folder, name, folder / "logs", clusters) for name in ("alone", "maintained"))
    clock, started = MovedClock(), time.time()
    left = beside = 0.0
    for hour in range(1, hours + 1):
        logs.show(hour)
        clock.set(started + hour * HOUR_SECONDS)
        maintained.run()
        if hour <= ALONE_HOURS:
            alone.run()
        if hour % DAY_HOURS == 0:
            clock.made_now(Path(maintained.fleet.lake))
            maintained.maintain()
        if hour == min(hours, ALONE_HOURS):
            left, beside = alone.read_seconds(), maintained.read_seconds()
        if hour % PRINTED_HOURS == 0:
            print(f"{hour} hours: {maintained.summary()}", flush=True)
    maintained.maintain()
    read, hours_alone = maintained.read_seconds(), min(hours, ALONE_HOURS)
    at_once, row_count = maintained.read_at_once_seconds(folder / "at once")
    files, files_maintained = alone.file_count(), maintained.file_count()
    a_year = f"{8_760 * files // hours_alone:,} files a year"
    print(f"{hours_alone} hours of {clusters} clusters left alone: {files} data files, {a_year}")
    print(f"{hours} hours maintained daily: {maintained.summary()}")
    early, late = (statistics.median(part) for part in (maintained.run_seconds[:20], maintained.run_seconds[-20:]))
    return [
        Figure(f"files of {hours_alone} hours left alone, of {hours} maintained", files / files_maintained, 1,
               f"{files_maintained}", f"{files}: {a_year}"),
        Figure(f"reads of a maintained lake, of left alone, after {hours_alone} hours", left / beside, 1,
               f"{beside:.3f} s", f"{left:.3f} s"),
        Figure(f"reads of a maintained lake after {hours} hours, of the same rows written at once", at_once / read, 0.5,
               f"{read:.3f} s for {row_count:,} rows", f"{at_once:.3f} s"),
        Figure("an hourly run of a maintained lake, of the first ones", early / late, 0.5, f"{late:.3f} s",
               f"{early:.3f} s"),
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=int, default=48)
    parser.add_argument("--clusters", type=int, default=6)
    given = parser.parse_args()
    if FILE_VARIABLE not in os.environ:
        begin_again("benchmarks.hourly", sys.argv[1:])
    with tempfile.TemporaryDirectory() as scratch:
        print_figures(figures(Path(scratch), given.clusters, max(DAY_HOURS, given.hours)))


if __name__ == "__main__":
    main()
