"""Where full logs of reassigned partitions are copied back to, and that bash does what is printed."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

import kraft_audit
from kraft_audit.recovery.lost_quorum.lost_part import MovedLog, moved_logs
from kraft_audit.replay.cluster_state import ClusterState
from tests.builders.captures import SMALL_CORPUS


def test_the_commands_copy_the_full_log_and_keep_what_was_there(tmp_path: Path) -> None:
    full, empty = tmp_path / "b 12" / "moved-0.0123-stray", tmp_path / "b 11" / "moved-0"
    for folder, content in ((full, "full"), (empty, "empty")):
        folder.mkdir(parents=True)
        (folder / "00000000000000000000.log").write_text(content)
    log = MovedLog("moved", 0, 12, str(full), 11, str(empty), is_taken=True)
    for command in log.commands:
        subprocess.run(["bash", "-euc", command], check=True, timeout=30)
    assert (empty / "00000000000000000000.log").read_text() == "full"
    assert (full / "00000000000000000000.log").read_text() == "full"
    assert (tmp_path / "b 11.moved-0" / "00000000000000000000.log").read_text() == "empty"
    assert list(MovedLog("moved", 0, 12, None, 11, str(empty)).commands) == []


def test_a_broker_that_lost_a_replica_gets_it_from_the_leader() -> None:
    """Two states of one log, changed by hand: the later one has other replicas."""
    with kraft_audit.open(f"{SMALL_CORPUS}/static-to-dynamic-upgrade/01-kafka-3.5.2") as clusters:
        (cluster,) = clusters
        before = cluster.state()
        rows = before.rows("partition_changes")
        row = next(row for row in rows if row["exists"] and len(row["replicas"]) > 1)
        left = row["replicas"][-1]
        after = with_row(before, row, replicas=[left, 99], leader=99, isr=[99, left])
        found = moved_logs(cluster.storage, cluster.plan, before, after)
    assert [(log.topic, log.partition, log.from_broker, log.to_broker) for log in found] == [
        (row["topic"], row["partition"], 99, broker) for broker in sorted(row["replicas"]) if broker != left
    ]


def with_row(state: ClusterState, row: dict[str, Any], **changes: Any) -> ClusterState:
    table = state.tables["partition_changes"]
    rows = [{**each, **changes} if each == row else each for each in table.to_pylist()]
    return replace(state, tables={**state.tables, "partition_changes": pa.Table.from_pylist(rows, table.schema)})
