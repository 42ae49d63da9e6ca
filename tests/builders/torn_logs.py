"""Kafka's own log of a node before and after it was cut, torn: the beginning of one, the rest of the other."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.builders.live_log import LogBatch, no_op, whole_batches

SEGMENT = "__cluster_metadata-0/00000000000000000000.log"
EPOCHS = "__cluster_metadata-0/leader-epoch-checkpoint"
BEFORE, AFTER = "11-dead-node-diverged", "12-after-truncation"


def logs(scenario: Path) -> tuple[list[LogBatch], list[LogBatch]]:
    """Node 2's log before and after it was truncated."""
    old, new = (
        list(whole_batches((scenario / capture / "node-2" / SEGMENT).read_bytes())) for capture in (BEFORE, AFTER)
    )
    return old, new


def boundaries(old: list[LogBatch], new: list[LogBatch]) -> Iterator[int]:
    """Where the first part of the old log and the rest of the new one adjoin, and make neither of the two."""
    ends = {batch.end_offset for batch in old} & {batch.base_offset for batch in new}
    common = max(a.end_offset for a, b in zip(old, new, strict=False) if a == b)
    yield from sorted(offset for offset in ends if offset > common)


def copies(scenario: Path, target: Path, nodes: tuple[int, ...]) -> Path:
    for node in nodes:
        shutil.copytree(scenario / AFTER / f"node-{node}", target / f"node-{node}")
    return target


def tear(node: Path, scenario: Path, offset: int, *, is_file_newer: bool) -> None:
    old, new = logs(scenario)
    parts = [batch for batch in old if batch.base_offset < offset] + [b for b in new if b.base_offset >= offset]
    (node / SEGMENT).write_bytes(b"".join(batch.data for batch in parts))
    shutil.copy(scenario / (AFTER if is_file_newer else BEFORE) / "node-2" / EPOCHS, node / EPOCHS)


def long_logs(scenario: Path, target: Path) -> None:
    """The scenario's two captures of node 2 with a suffix of more batches, so that there are more places to tear."""
    old, new = logs(scenario)
    start = max(a.end_offset for a, b in zip(old, new, strict=False) if a == b)
    for capture, batches, epoch in ((BEFORE, old, 2), (AFTER, new, 3)):
        whole = [batch for batch in batches if batch.base_offset < start]
        whole += [no_op(start + number, epoch, number) for number in range(9)]
        path = target / capture / "node-2" / SEGMENT
        path.write_bytes(b"".join(batch.data for batch in whole))
