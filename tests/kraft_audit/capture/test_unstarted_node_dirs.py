"""Node dirs that were formatted and not started: replicas that end at 0, whatever lies beside them."""

from __future__ import annotations

from pathlib import Path

import kraft_audit
from kraft_audit.rules.columns.quorum_standing import Standing
from kraft_codec.files.properties import format_meta_properties, meta_properties
from kraft_codec.files.state_files import QuorumState
from kraft_codec.records.batch import write_batch
from kraft_codec.records.record import write_control_key, write_control_value
from kraft_codec.schemas import CONTROL_TYPE_BY_NAME, Dialect
from kraft_codec.text.java_text import uuid_bytes
from tests.builders.captured_histories import raised_below
from tests.builders.logs import CLUSTER_ID, NOW_MS, Log, write_node

DIRECTORIES = {number: f"{letter * 21}A" for number, letter in enumerate("ABCDEF")}


def format_node(folder: Path, node_id: int, directory_id: str, voters: dict[int, str] | None = None) -> Path:
    """What formatting leaves: meta.properties, and with `voters` the checkpoint of a dynamic quorum."""
    node = folder / f"node-{node_id}"
    node.mkdir(parents=True)
    content = format_meta_properties(meta_properties(cluster_id=CLUSTER_ID, node_id=node_id, directory_id=directory_id))
    (node / "meta.properties").write_bytes(content)
    if voters is not None:
        log_dir = node / "__cluster_metadata-0"
        log_dir.mkdir()
        named = [
            {
                "voterId": voter_id,
                "voterDirectoryId": uuid_bytes(directory),
                "endpoints": [],
                "kRaftVersionFeature": {"minSupportedVersion": 0, "maxSupportedVersion": 1},
            }
            for voter_id, directory in voters.items()
        ]
        records = [
            control("SNAPSHOT_HEADER", {"version": 0, "lastContainedLogTimestamp": NOW_MS}),
            control("KRAFT_VERSION", {"version": 0, "kRaftVersion": 1}),
            control("KRAFT_VOTERS", {"version": 0, "voters": named}),
        ]
        head = write_batch(base_offset=0, leader_epoch=0, timestamp_ms=NOW_MS, records=records, is_control=True)
        footer = [control("SNAPSHOT_FOOTER", {"version": 0})]
        tail = write_batch(base_offset=3, leader_epoch=0, timestamp_ms=NOW_MS, records=footer, is_control=True)
        (log_dir / "00000000000000000000-0000000000.checkpoint").write_bytes(head + tail)
    return node


def control(name: str, fields: dict[str, object]) -> tuple[bytes, bytes]:
    kind = CONTROL_TYPE_BY_NAME[Dialect.KIP853][name]
    return write_control_key(kind.number), write_control_value(kind, fields)


def test_nodes_formatted_alone_are_a_split_quorum_before_their_first_start(tmp_path: Path) -> None:
    for node_id in (1, 2):
        format_node(tmp_path, node_id, DIRECTORIES[node_id], {node_id: DIRECTORIES[node_id]})
    (finding,) = raised_below(tmp_path, "KV012")
    assert "{1} and {2}" in finding.summary


def test_nodes_formatted_together_are_empty_and_no_fault(tmp_path: Path) -> None:
    voters = {node_id: DIRECTORIES[node_id] for node_id in (1, 2, 3)}
    for node_id in voters:
        format_node(tmp_path, node_id, DIRECTORIES[node_id], voters)
    assert not raised_below(tmp_path, "KV012")
    with kraft_audit.open(str(tmp_path)) as clusters:
        (cluster,) = clusters
        assert cluster.standing().standing is Standing.EMPTY


def test_a_node_dir_without_a_log_is_a_replica_beside_the_others(tmp_path: Path) -> None:
    log = Log()
    log.lead(1, 1)
    log.topic("a")
    write_node(tmp_path, 1, log.content, state=QuorumState(1, 1, 1, -1))
    format_node(tmp_path, 2, DIRECTORIES[2])
    with kraft_audit.open(str(tmp_path)) as clusters:
        (cluster,) = clusters
        rows = cluster.table("captures").to_pylist()
    assert {row["node_id"]: row["log_end_offset"] for row in rows} == {1: 3 - 1, 2: None}


def test_a_further_log_dir_of_a_node_is_no_replica(tmp_path: Path) -> None:
    """A broker with two disks has a meta.properties on each, and the metadata log on one."""
    log = Log()
    log.lead(1, 1)
    write_node(tmp_path, 1, log.content)
    further = tmp_path / "disk-2"
    further.mkdir()
    content = format_meta_properties(meta_properties(cluster_id=CLUSTER_ID, node_id=1, directory_id=DIRECTORIES[4]))
    (further / "meta.properties").write_bytes(content)
    with kraft_audit.open(str(tmp_path)) as clusters:
        (cluster,) = clusters
        assert len(cluster.plan.replicas) == 1
