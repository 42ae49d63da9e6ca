"""A snapshot whose batches do not carry the epoch of its name, or do not follow each other, moves nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kraft_audit
from kraft_codec.file_names import snapshot_name
from tests.builders.snapshot_files import snapshot_of


def test_batches_of_another_epoch_or_with_a_gap_are_not_whole(
    tmp_path: Path, reading: Any, node: Any, usual_log: Any
) -> None:
    """No checksum covers a file's name: a snapshot that was renamed would move what is committed."""
    log = type(usual_log)(epoch=2)
    log.control("SNAPSHOT_HEADER", {"version": 0, "lastContainedLogTimestamp": 7})
    log.topic("kept", base_offset=7)
    log.control("SNAPSHOT_FOOTER", {"version": 0})
    renamed = snapshot_of(type(usual_log), 1, 3)
    whole = snapshot_of(type(usual_log), 2, 3)
    for number, content in ((1, log.content), (2, renamed), (3, whole)):
        node(tmp_path, number, usual_log.content, files={snapshot_name(20, 2): content})
    damages = [f"node {row['node_id']}: {row['detail']}" for row in reading.of(tmp_path)["decode_errors"]]
    with kraft_audit.open(str(tmp_path)) as clusters:
        (cluster,) = clusters
        found = {each.plan.node_id: [end for end, _ in each.snapshots] for each in cluster.survey.replicas}
    assert found == {1: [], 2: [], 3: [20]}
    assert "node 1: its batches do not follow each other from offset 0 on" in damages
    assert "node 2: its batches have epoch 1, the name says 2" in damages
