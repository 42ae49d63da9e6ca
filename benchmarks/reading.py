"""A cluster's replicas to bronze tables: what more replicas, nothing new, and a longer log cost.

python -m benchmarks.reading [--mib 20] [--pairs 3] [--long-mib 2000]
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.figures import Figure, paired, print_figures, rate, seconds
from benchmarks.synthetic_log import RECORDS_PER_BATCH, synthetic_log
from kraft_audit.capture.path_plans import plan_path
from kraft_audit.capture.plan import BatchKey, ClusterPlan, FileScan
from kraft_audit.reading import ClusterReading, ReadingSettings
from kraft_codec.columns import index_batches, index_records, json_text
from kraft_codec.file_names import segment_name
from kraft_codec.files.properties import format_meta_properties, meta_properties
from kraft_codec.records.redaction import Redactor
from kraft_codec.storage.opener import open_storage
from kraft_codec.text.java_text import uuid_text

Log = npt.NDArray[np.uint8]
CLUSTER_ID = uuid_text(b"benchmarkcluster")
CHUNK_BYTES = 8 << 20


def write_cluster(folder: Path, log: Log, replicas: int, *, times: int = 1) -> None:
    """Node dirs of one cluster that all hold the log, `times` over: offsets stand outside the CRC, so they can move."""
    batch_bytes = len(index_first(log))
    count = len(log) // batch_bytes
    batches = log.reshape(count, batch_bytes).copy()
    for number in range(1, replicas + 1):
        log_dir = folder / f"node-{number}" / "__cluster_metadata-0"
        log_dir.mkdir(parents=True)
        identity = meta_properties(cluster_id=CLUSTER_ID, node_id=number, directory_id=uuid_text(bytes([number]) * 16))
        (log_dir.parent / "meta.properties").write_bytes(format_meta_properties(identity))
        with (log_dir / segment_name(0)).open("wb") as segment:
            for turn in range(times):
                offsets = (np.arange(count) + turn * count) * RECORDS_PER_BATCH
                batches[:, :8] = offsets.astype(">i8").view(np.uint8).reshape(count, 8)
                segment.write(batches.tobytes())


def index_first(log: Log) -> Log:
    """The bytes of the first batch; all are of one size."""
    return log[: int(index_batches(log[: 1 << 20], is_last=False).size_bytes[0])]


def read(plan: ClusterPlan) -> int:
    """All rows of all tables, dropped as they come."""
    with ClusterReading(plan, ReadingSettings(open_storage, Redactor(bytes(32))), keeps_records=False) as reading:
        return sum(batch.num_rows for _, batch in reading.bronze())


def plan_of(folder: Path) -> ClusterPlan:
    (plan,) = plan_path(str(folder), open_storage=open_storage, captured_at_ms=0)
    return plan


def unchanged(plan: ClusterPlan) -> ClusterPlan:
    """The plan that a ledger makes where nothing has changed."""
    with ClusterReading(plan, ReadingSettings(open_storage, Redactor(bytes(32))), keeps_records=False) as reading:
        rows = [row for _, batch in reading.bronze(frozenset({"files"})) for row in batch.to_pylist()]
    scans = {(row["path"], row["file_name"]): row for row in rows}
    replicas = []
    for replica in plan.replicas:
        files = []
        for file in replica.files:
            row = scans[replica.path, file.name]
            key = None
            if row["last_position"] is not None:
                names = ("last_position", "last_base_offset", "last_offset", "last_leader_epoch", "last_crc")
                key = BatchKey(*(row[name] for name in names))
            figures = ("batch_count", "record_count", "damage_count", "bytes_quarantined", "bytes_unread")
            scan = FileScan(file.size_bytes, file.mtime_ms, row["scanned_to"], key, *(row[name] for name in figures))
            files.append(replace(file, earlier=scan))
        replicas.append(replace(replica, files=tuple(files)))
    return replace(plan, replicas=tuple(replicas))


def json_only(log: Log) -> int:
    """The floor: framing, CRC and JSON text of the same bytes, nothing else."""
    position, count = 0, 0
    while position < len(log):
        end = min(position + CHUNK_BYTES, len(log))
        batches = index_batches(log, position, end, is_last=end == len(log))
        position = batches.consumed_bytes
        count += len(json_text(index_records(log, batches)))
    return count


def peak_mib(folder: str) -> float:
    """The most memory that a process of its own ever held while it read a cluster."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_peak_mib, (folder,))


def _peak_mib(folder: str) -> float:
    read(plan_of(Path(folder)))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=20)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--long-mib", type=int, default=2000)
    options = parser.parse_args()
    log = synthetic_log(options.mib << 20)
    records = len(log) // len(index_first(log)) * RECORDS_PER_BATCH
    figures = []
    with tempfile.TemporaryDirectory() as scratch:
        one_node, five, long = (Path(scratch) / name for name in ("one", "five", "long"))
        write_cluster(one_node, log, 1)
        write_cluster(five, log, 5)
        of_one, of_five = plan_of(one_node), plan_of(five)
        ratio, ours, peer = paired(lambda: read(of_one), lambda: json_only(log), options.pairs)
        figures.append(
            Figure(
                "all bronze tables", ratio, 0.5, rate(len(log), records, ours), f"JSON alone {rate(len(log), 0, peer)}"
            )
        )
        ratio, ours, peer = paired(lambda: read(of_five), lambda: read(of_one), options.pairs)
        figures.append(Figure("five replicas of one log", ratio, 1 / 1.3, f"{ours:.2f} s", f"one replica {peer:.2f} s"))
        same = unchanged(of_five)
        ratio, ours, peer = paired(lambda: read(same), lambda: read(of_five), options.pairs)
        figures.append(Figure("unchanged again", ratio, 1 / 0.03, f"{ours:.4f} s", f"everything {peer:.2f} s"))
        write_cluster(long, log, 1, times=max(1, options.long_mib // options.mib))
        took_long, took_one = seconds(lambda: read(plan_of(long))), seconds(lambda: read(of_one))
        times = max(1, options.long_mib // options.mib)
        figures.append(
            Figure(f"{times} times the log", took_one * times / took_long, 1 / 1.15, f"{took_long:.2f} s", "per byte")
        )
        small, large = peak_mib(str(one_node)), peak_mib(str(long))
        figures.append(Figure("memory of the longer log", small / large, 0.85, f"{large:.0f} MiB", f"{small:.0f} MiB"))
        figures.append(Figure("memory under the limit", 512 / large, 1, f"{large:.0f} MiB", "512 MiB"))
    print_figures(figures)


if __name__ == "__main__":
    main()
