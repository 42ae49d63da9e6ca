"""An hour of a fleet of 7,000,000 partitions, of its first run: processor time of all processes, and their memory.

python -m benchmarks.large_hour [--clusters 100] [--partitions 70000] [--folder F]

Topic ids are random. Each partition changed once after the newest snapshot, and one in a hundred was left with a single
replica in sync. In the hour half as many more are, and as many get their replicas back: one change for each hundred
partitions. Both runs are `run --engine local` on two processors; 25 GB of disk at full size.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.figures import Figure, Skipped, print_figures
from benchmarks.fleet import CAPTURED_AT, Measured, fleet_file, make_fleet, run_measured
from benchmarks.next_hour import last_batch
from kraft_codec.records.batch import Batch, read_batches, write_batch
from kraft_codec.records.record import decode_records, write_metadata_value
from kraft_codec.schemas import Dialect

Partition = tuple[bytes, int]
"""Topic id and partition."""
BATCH_RECORDS = 64
ONE_IN = 100
ASKED_SHARE = 0.10
ASKED_BYTES = 3 << 30
HOUR_S = 3_600


def partitions_of(content: bytes, count: int) -> list[Partition]:
    """The first partitions that a log changes, each once."""
    found: dict[Partition, None] = {}
    for batch in read_batches(content):
        if not isinstance(batch, Batch) or batch.header.is_control:
            continue
        for record in decode_records(content, batch.header, Dialect.KIP853):
            fields = record.fields or {}
            if "partitionId" in fields:
                found.setdefault((fields["topicId"], fields["partitionId"]))
        if len(found) >= count:
            break
    return list(found)[:count]


def changes(content: bytes, partitions: Sequence[Partition], isr: Sequence[int]) -> bytes:
    """Batches for a log's end that give these partitions an ISR, a second apart."""
    last = last_batch(content)
    offset, time_ms, octets = last.last_offset + 1, last.max_timestamp_ms, b""
    for start in range(0, len(partitions), BATCH_RECORDS):
        values = [
            write_metadata_value(
                "PartitionChangeRecord", 0, {"partitionId": number, "topicId": topic, "isr": list(isr)}
            )
            for topic, number in partitions[start : start + BATCH_RECORDS]
        ]
        time_ms += 1_000
        octets += write_batch(
            base_offset=offset, leader_epoch=last.leader_epoch, timestamp_ms=time_ms,
            records=[(None, value) for value in values],
        )  # fmt: skip
        offset += len(values)
    return octets


def pass_hour(logs: Path, hour: int, count: int, *, is_first: bool) -> int:
    """Lets every cluster's logs grow; the bytes of one voter's new batches, of all clusters."""
    new = 0
    for cluster in sorted(logs.glob("cluster-*")):
        files = [sorted(node.rglob("*.log"))[-1] for node in sorted(cluster.glob("node-*"))]
        content = files[0].read_bytes()
        if is_first:
            octets = changes(content, partitions_of(content, count), [1])
        else:
            known = partitions_of(content, count + count // 2)
            octets = changes(content, known[count:], [1])
            octets += changes(content + octets, known[: count // 2], [1, 2, 3])
        new += len(octets)
        for file in files:
            with file.open("ab") as log:
                log.write(octets)
            os.utime(file, (CAPTURED_AT + HOUR_S * hour,) * 2)
    return new


def held_bytes(run: Measured) -> int:
    """The most that all processes of a run held, if each held its most at one time."""
    return sum(process.peak_bytes for process in run.usage.processes.values())


def hour_figures(folder: Path, clusters: int, partitions: int) -> list[Figure | Skipped]:
    """The hour's processor time of the first run's, and the memory of both."""
    logs = folder / "logs"
    size = make_fleet(logs, clusters, partitions, partitions)
    pass_hour(logs, 0, partitions // ONE_IN, is_first=True)
    file = fleet_file(folder, "large", logs, clusters)
    first = run_measured(file, "--engine", "local")
    all_partitions = clusters * partitions
    print(f"{all_partitions:,} partitions, {size / 1e9:.2f} GB of log: {described(first)}")
    new = pass_hour(logs, 1, partitions // ONE_IN, is_first=False)
    hour = run_measured(file, "--engine", "local")
    print(f"an hour with {all_partitions // ONE_IN:,} changes, {new / 1e6:.1f} MB of a voter: {described(hour)}")
    ours, theirs = hour.usage.processor_seconds, first.usage.processor_seconds
    peak = max(held_bytes(first), held_bytes(hour))
    return [
        Figure(
            f"large hour: {all_partitions:,} partitions, 1 % changed, of the first run", theirs / ours, 1 / ASKED_SHARE,
            f"{ours:.1f} s of processor", f"{theirs:.1f} s",
        ),
        Figure("large hour: 3 GiB against all processes", ASKED_BYTES / peak, 1, f"{peak / 1e6:,.0f} MB", "3 GiB"),
    ]  # fmt: skip


def described(run: Measured) -> str:
    steps = ", ".join(f"{step} {seconds:.1f}" for step, seconds in run.steps.items())
    return (
        f"{run.usage.seconds:.1f} s, {run.usage.processor_seconds:.1f} s of processor ({steps} s by the clock), "
        f"{held_bytes(run) / 1e6:,.0f} MB held by {len(run.usage.processes)} processes"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clusters", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=70_000, help="of each cluster")
    parser.add_argument("--folder", type=Path, help="where the logs and lakes go (a temporary folder)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as scratch:
        print_figures(hour_figures(Path(scratch), given.clusters, given.partitions))
    return 0


if __name__ == "__main__":
    sys.exit(main())
