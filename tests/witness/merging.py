"""Captured logs as a controller with a longer linger would have written them: neighbouring operations in one batch.

What Kafka merges within its linger depends on timing alone, so an audit must not say anything else of the merged log:
the same findings, and of a change either the same cause or none.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from kraft_codec.records.batch import Batch, BatchHeader, read_batches, read_records, write_batch


def merge_batches(root: Path, within_ms: int) -> int:
    """Merges the batches of every log below `root`, in place; returns how many batches were merged into another.

    Data batches of one epoch merge while they come within `within_ms` of the first. Where any replica's log, segment
    or snapshot begins or ends, all replicas keep a boundary: they hold the same bytes.
    """
    logs = sorted(root.rglob("__cluster_metadata-0/*.log"))
    boundaries = set(_boundaries(root, logs))
    return sum(_rewrite(log, boundaries, within_ms) for log in logs)


def _boundaries(root: Path, logs: list[Path]) -> Iterator[int]:
    for log in logs:
        yield int(log.stem)
        headers = _headers(log.read_bytes())
        if headers:
            yield headers[-1].last_offset + 1
    for snapshot in root.rglob("__cluster_metadata-0/*.checkpoint"):
        yield int(snapshot.name[:20])


def _headers(octets: bytes) -> list[BatchHeader]:
    return [batch.header for batch in read_batches(octets) if isinstance(batch, Batch)]


def _rewrite(log: Path, boundaries: set[int], within_ms: int) -> int:
    octets = log.read_bytes()
    headers = _headers(octets)
    tail = octets[headers[-1].position + headers[-1].size_bytes :] if headers else octets
    parts: list[bytes] = []
    group: list[BatchHeader] = []
    merged = 0
    for header in [*headers, None]:
        if header is not None and group and _joins(group, header, boundaries, within_ms):
            group.append(header)
            merged += 1
            continue
        if group:
            parts.append(_as_one(octets, group))
        group = [header] if header is not None else []
    log.write_bytes(b"".join(parts) + tail)
    for name in (f"{log.stem}.index", f"{log.stem}.timeindex"):
        (log.parent / name).unlink(missing_ok=True)
    return merged


def _joins(group: list[BatchHeader], header: BatchHeader, boundaries: set[int], within_ms: int) -> bool:
    first = group[0]
    is_data = not first.is_control and not header.is_control
    near = 0 <= header.base_timestamp_ms - first.base_timestamp_ms <= within_ms
    return is_data and near and first.leader_epoch == header.leader_epoch and header.base_offset not in boundaries


def _as_one(octets: bytes, group: list[BatchHeader]) -> bytes:
    first = group[0]
    if len(group) == 1:
        return octets[first.position : first.position + first.size_bytes]
    records = [(record.key, record.value) for header in group for record in read_records(octets, header)]
    return write_batch(
        base_offset=first.base_offset,
        leader_epoch=first.leader_epoch,
        timestamp_ms=first.base_timestamp_ms,
        records=records,
    )


def merged_copy(source: Path, target: Path, within_ms: int) -> int:
    """A copy of a folder of captures with its batches merged; returns how many were merged."""
    shutil.copytree(source, target)
    return merge_batches(target, within_ms)
