"""A reader of a log: what it still holds when the log has been read to its end."""

from __future__ import annotations

import weakref
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from kraft_audit.capture.replica import ReadingSettings, open_replicas
from kraft_codec.records.redaction import Redactor
from kraft_codec.storage.opener import open_storage
from tests.builders.logs import NOW_MS


def test_no_bytes_of_a_log_are_held_once_it_has_been_read(
    tmp_path: Path, reading: Any, node: Any, usual_log: Any
) -> None:
    """A cluster's replicas are all held until the last of them has been read, hundreds of captures among them."""
    segments = {start: b"".join(usual_log.batches[start : start + 10]) for start in (0, 10)}
    for node_id in (1, 2, 3):
        node(tmp_path, node_id, segments)
    settings = ReadingSettings(open_storage, Redactor(bytes(32)), clock_ms=lambda: NOW_MS)
    with ExitStack() as stack:
        replicas, _ = open_replicas(reading.plan(tmp_path), settings, stack)
        for replica in replicas:
            memory = [weakref.ref(chunk.buffer.base) for chunk in replica.log.chunks()]
            assert len(memory) == 2
            assert [held() for held in memory] == [None, None]
        assert [replica.log.end_offset for replica in replicas] == [20, 20, 20]
