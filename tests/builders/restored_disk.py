"""Two captures of a quorum of which node 3's disk was restored from a backup in between: node 1, which holds all that
was committed, is stopped.
"""

from __future__ import annotations

import os
from pathlib import Path

from kraft_codec.files.state_files import QuorumState
from tests.builders.logs import Log, write_node

COMMITTED = 148
"""Offsets below it are committed: nodes 1 and 3 held them."""
RESTORED = 142
"""Where the logs of node 2 and of the backup end."""
VOTERS = (1, 2, 3)


def _log(end: int) -> Log:
    """Node 1 leads epoch 1 up to RESTORED, then epoch 2."""
    log = Log()
    log.lead(1, epoch=1)
    while log.next_offset < min(end, RESTORED):
        log.noop()
    if end > RESTORED:
        log.lead(1, epoch=2)
    while log.next_offset < end:
        log.noop()
    return log


def write_capture(folder: Path, ends: dict[int, int], *, written_after_ms: dict[int, int] | None = None) -> Path:
    """One capture: by node the end of its log; its quorum-state has the last epoch, its voters are VOTERS.

    `written_after_ms`: by node, when its files were written, after the log's last record; others are written now.
    """
    for node_id, end in ends.items():
        state = QuorumState(0, 1, 2 if end > RESTORED else 1, -1, None, current_voters=VOTERS)
        log = _log(end)
        node = write_node(folder, node_id, log.content, state=state)
        if written_after_ms is not None:
            time_ns = (log.timestamp_ms + written_after_ms[node_id]) * 1_000_000
            for file in node.rglob("*"):
                os.utime(file, ns=(time_ns, time_ns))
    return folder


def write_restored(root: Path, earlier: str, newest: str) -> Path:
    """Before and after node 3's disk was restored, under these names."""
    write_capture(root / earlier, {1: COMMITTED, 2: RESTORED, 3: COMMITTED})
    write_capture(root / newest, {1: COMMITTED, 2: RESTORED, 3: RESTORED})
    return root
