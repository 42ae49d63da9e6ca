"""Which node dirs are copies of one log: joined and split cases, each as small as it can be."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kraft_audit
from kraft_audit.capture.histories import split_histories
from kraft_audit.capture.path_plans import plan_cluster
from kraft_codec.file_names import snapshot_name
from kraft_codec.files.state_files import QuorumState
from kraft_codec.records.record import write_metadata_value
from kraft_codec.storage.opener import StoragePool
from kraft_codec.text.java_text import uuid_bytes
from tests.builders.captured_histories import raised_below
from tests.builders.logs import CLUSTER_ID, DIRECTORIES, Log, led, with_topics, write_node


def histories(path: Path) -> list[tuple[int, ...]]:
    """The node ids of each history, the newest first."""
    with kraft_audit.open(str(path)) as clusters:
        return [tuple(sorted(replica.node_id or 0 for replica in plan.replicas)) for plan in clusters.plans]


def test_copies_of_one_log_are_one_history(tmp_path: Path) -> None:
    log = with_topics(led(1, [1, 2, 3]))
    for node_id in (1, 2, 3):
        write_node(tmp_path, node_id, log.content)
    assert histories(tmp_path) == [(1, 2, 3)]
    assert not raised_below(tmp_path, "KB009")


def test_a_log_whose_first_segments_were_deleted_is_the_same_history(tmp_path: Path) -> None:
    log = with_topics(led(1, [1, 2]), 8)
    write_node(tmp_path, 1, log.content)
    write_node(tmp_path, 2, {5: b"".join(log.batches[5:])})
    assert histories(tmp_path) == [(1, 2)]


def test_damage_at_the_beginning_does_not_split_a_history(tmp_path: Path) -> None:
    log = with_topics(led(1, [1, 2]))
    write_node(tmp_path, 1, log.content)
    damaged = bytearray(log.content)
    damaged[20] ^= 0xFF  # the CRC of the first batch
    write_node(tmp_path, 2, bytes(damaged))
    assert histories(tmp_path) == [(1, 2)]


@pytest.mark.parametrize(("own", "common", "is_one"), [(2, 2, False), (2, 3, True), (3, 2, False)])
def test_most_batches_of_a_log_are_another_ones(tmp_path: Path, own: int, common: int, is_one: bool) -> None:
    """Each of two single voters began alone; idle leaders may write equal NoOps."""
    for node_id in (1, 2):
        log = with_topics(led(node_id, [node_id], start_ms=1_700_000_000_000 + node_id), own - 1)
        log.timestamp_ms = 1_700_000_900_000
        for _ in range(common):
            log.noop()
        write_node(tmp_path / f"host-{node_id}", node_id, log.content)
    assert sorted(histories(tmp_path)) == ([(1, 2)] if is_one else [(1,), (2,)])


@pytest.mark.parametrize("damaged", [range(2), range(2, 5)])
def test_batches_with_a_bad_crc_join_no_logs(tmp_path: Path, damaged: range) -> None:
    """Of five batches three are common: they join the logs while their bytes are sound."""
    for node_id in (1, 2):
        log = with_topics(led(node_id, [node_id], start_ms=1_700_000_000_000 + node_id), 1)
        log.timestamp_ms = 1_700_000_900_000
        for _ in range(3):
            log.noop()
        content = bytearray(log.content)
        for end in [len(b"".join(log.batches[: number + 1])) for number in damaged]:
            content[end - 1] ^= 0xFF
        write_node(tmp_path / f"host-{node_id}", node_id, bytes(content))
    assert len(histories(tmp_path)) == (1 if damaged == range(2) else 2)


def test_a_disk_formatted_again_is_a_history_of_its_own(tmp_path: Path) -> None:
    old, new = with_topics(led(1, [1]), 9), with_topics(led(1, [1], start_ms=1_700_000_900_000))
    write_node(tmp_path / "monday", 1, old.content, directory_id=DIRECTORIES[0])
    write_node(tmp_path / "tuesday", 1, new.content, directory_id=DIRECTORIES[1])
    with kraft_audit.open(str(tmp_path)) as clusters:
        newest, older = list(clusters)
    assert newest.plan.replicas[0].directory_id == DIRECTORIES[1], "the shorter log is the newer one"
    assert older.plan.history_of.mine.end_offset == 10
    assert "history 1 of 2" in newest.title
    (finding,) = raised_below(tmp_path, "KB009")
    assert "formatted again" in finding.summary
    assert not raised_below(tmp_path, "KQ002")
    assert not raised_below(tmp_path, "KQ003")


def test_ids_of_findings_differ_between_histories(tmp_path: Path) -> None:
    for number, folder in enumerate(("monday", "tuesday")):
        log = with_topics(led(1, [1], start_ms=1_700_000_000_000 + 900_000 * number))
        write_node(tmp_path / folder, 1, log.content, directory_id=DIRECTORIES[number])
    findings = raised_below(tmp_path, "KV007")
    assert len(findings) == 2
    assert len({finding.finding_id for finding in findings}) == 2


def test_a_leader_that_wrote_alone_is_in_the_quorum_of_the_others(tmp_path: Path) -> None:
    write_node(tmp_path, 1, led(1, [1, 2, 3]).content)
    others = with_topics(led(2, [1, 2, 3], epoch=2))
    for node_id in (2, 3):
        write_node(tmp_path, node_id, others.content)
    assert histories(tmp_path) == [(1, 2, 3)]


def test_wiped_voters_that_began_again_are_judged_with_the_true_disks(tmp_path: Path) -> None:
    true, again = with_topics(led(4, [1, 2, 3, 4, 5]), 6), with_topics(led(1, [1, 2, 3, 4, 5], epoch=1))
    for node_id in (1, 2, 3):
        write_node(tmp_path, node_id, again.content)
    for node_id in (4, 5):
        write_node(tmp_path, node_id, true.content)
    assert histories(tmp_path) == [(1, 2, 3, 4, 5)]


def began_again(folder: Path, hosts: tuple[str, str]) -> None:
    """Voters 1 to 3 of five were wiped and began again; nodes lie in folders of their own, and controllers on `hosts`
    are registered in the log of before and in the new one."""
    logs = with_topics(led(4, [1, 2, 3, 4, 5]), 6), with_topics(led(1, [1, 2, 3, 4, 5], start_ms=1_700_000_900_000))
    for log, host in zip(logs, hosts, strict=True):
        for controller in (1, 4):
            point = {"name": "CONTROLLER", "host": host, "port": 9090 + controller, "securityProtocol": 0}
            fields = {"controllerId": controller, "incarnationId": bytes(16), "endPoints": [point], "features": []}
            log.append(write_metadata_value("RegisterControllerRecord", 0, {**fields, "zkMigrationReady": False}))
    for node_id in range(1, 6):
        write_node(folder / f"host-{node_id}", node_id, logs[node_id <= 3].content)


@pytest.mark.parametrize(("hosts", "is_one"), [(("quorum-a", "quorum-a"), True), (("quorum-a", "quorum-b"), False)])
def test_static_voters_in_folders_apart_are_one_quorum_by_their_addresses(
    tmp_path: Path, hosts: tuple[str, str], is_one: bool
) -> None:
    began_again(tmp_path, hosts)
    assert histories(tmp_path) == ([(1, 2, 3, 4, 5)] if is_one else [(1, 2, 3), (4, 5)])


def test_everybody_s_own_address_joins_no_logs(tmp_path: Path) -> None:
    began_again(tmp_path, ("localhost", "localhost"))
    assert histories(tmp_path) == [(1, 2, 3), (4, 5)]


def test_one_entry_of_the_fleet_declares_static_voters_as_one_quorum(tmp_path: Path) -> None:
    began_again(tmp_path, ("localhost", "localhost"))
    with StoragePool() as pool, ExitStack() as stack:
        roots = [str(path) for path in sorted(tmp_path.iterdir())]
        plan = plan_cluster(roots, open_storage=pool.open, captured_at_ms=0, name="orders")
        storages = {root: stack.enter_context(pool.open(root)) for root in roots}
        assert len(split_histories(plan, storages.__getitem__)) == 1
        assert len(split_histories(replace(plan, name=""), storages.__getitem__)) == 2


@pytest.mark.parametrize("overlap", [0, 1])
def test_copies_without_a_directory_id_are_one_log_unless_an_offset_stands_in_both(
    tmp_path: Path, overlap: int
) -> None:
    """The segments of the first copy were deleted before the second one was made."""
    first = with_topics(led(1, [1]))
    at = first.next_offset - overlap
    second = with_topics(Log(next_offset=at, epoch=2, timestamp_ms=first.timestamp_ms))
    for folder, segments in (("a", {0: first.content}), ("b", {at: second.content})):
        node_dir = write_node(tmp_path / folder, 1, segments)
        (node_dir / "meta.properties").write_text(f"version=1\nnode.id=1\ncluster.id={CLUSTER_ID}\n")
    assert histories(tmp_path) == ([(1,), (1,)] if overlap else [(1, 1)])


def test_a_disk_wiped_with_the_same_directory_id_is_judged_with_its_past(tmp_path: Path) -> None:
    write_node(tmp_path / "monday", 1, with_topics(led(1, [1])).content, directory_id=DIRECTORIES[0])
    write_node(tmp_path / "tuesday", 1, led(1, [1], epoch=3).content, directory_id=DIRECTORIES[0])
    assert histories(tmp_path) == [(1, 1)]


def test_nodes_formatted_alone_side_by_side_are_a_split_quorum(tmp_path: Path) -> None:
    for node_id in (1, 2):
        log = with_topics(led(node_id, [node_id], start_ms=1_700_000_000_000 + node_id))
        state = QuorumState(1, node_id, 1, -1)
        write_node(tmp_path, node_id, log.content, directory_id=DIRECTORIES[node_id], state=state)
    assert sorted(histories(tmp_path)) == [(1,), (2,)]
    (finding,) = raised_below(tmp_path, "KV012")
    assert {item.node_id for item in finding.evidence} == {1, 2}
    assert not raised_below(tmp_path, "KQ003")


def test_a_left_over_dir_with_a_voters_id_is_a_history_of_its_own(tmp_path: Path) -> None:
    quorum = with_topics(led(1, [1, 2, 3], start_ms=1_700_000_900_000), 5)
    for node_id in (1, 2, 3):
        write_node(tmp_path, node_id, quorum.content)
    left_over = write_node(tmp_path / "other", 1, with_topics(led(1, [1]), 9).content, directory_id=DIRECTORIES[3])
    left_over.rename(tmp_path / "left-over")
    assert histories(tmp_path) == [(1, 2, 3), (1,)]
    (finding,) = raised_below(tmp_path, "KB009")
    assert "left-over" in finding.summary
    assert not raised_below(tmp_path, "KV012"), "node 1 is in both: they were never meant to be one"


def test_a_node_dir_without_batches_stays_beside_its_neighbours(tmp_path: Path) -> None:
    for number, folder in enumerate(("monday", "tuesday")):
        log = with_topics(led(1, [1, 2], start_ms=1_700_000_000_000 + 900_000 * number))
        write_node(tmp_path / folder, 1, log.content, directory_id=DIRECTORIES[number])
    write_node(tmp_path / "monday", 2, b"")
    assert histories(tmp_path) == [(1,), (1, 2)]


def named_voters(directory_id: str) -> dict[str, Any]:
    """A set of one voter, as KRaftVoters has it."""
    voter = {
        "voterId": 1,
        "voterDirectoryId": uuid_bytes(directory_id),
        "endpoints": [],
        "kRaftVersionFeature": {"minSupportedVersion": 0, "maxSupportedVersion": 1},
    }
    return {"version": 0, "voters": [voter]}


def snapshot_with(log: Log, voters_directory: str, ended_ms: int) -> dict[str, bytes]:
    """A snapshot of a log's end, with its voter; `ended_ms` is when the log's last record was appended."""
    content = Log(epoch=log.epoch)
    content.control("SNAPSHOT_HEADER", {"version": 0, "lastContainedLogTimestamp": ended_ms})
    content.control("KRAFT_VOTERS", named_voters(voters_directory))
    content.control("SNAPSHOT_FOOTER", {"version": 0})
    return {snapshot_name(log.next_offset, log.epoch): content.content}


@pytest.mark.parametrize(
    ("holds_it", "voters_directory", "is_one"),
    [(True, DIRECTORIES[2], True), (False, DIRECTORIES[1], True), (False, DIRECTORIES[2], False)],
)
def test_a_broker_that_loaded_a_snapshot_is_beside_the_logs_that_end_there(
    tmp_path: Path, holds_it: bool, voters_directory: str, is_one: bool
) -> None:
    """Its log has no batch of the voter's: both hold the snapshot, or it names the voter by its directory id."""
    log = Log()
    log.control("KRAFT_VOTERS", named_voters(DIRECTORIES[1]))
    snapshot = snapshot_with(with_topics(log), voters_directory, log.timestamp_ms)
    behind = Log(next_offset=log.next_offset, epoch=log.epoch, timestamp_ms=log.timestamp_ms)
    write_node(tmp_path / "a", 1, log.content, directory_id=DIRECTORIES[1], files=snapshot if holds_it else {})
    write_node(tmp_path / "b", 9, {log.next_offset: with_topics(behind).content}, files=snapshot)
    assert histories(tmp_path) == ([(1, 9)] if is_one else [(9,), (1,)])


@pytest.mark.parametrize("cluster_id", ["5L6g3nShT-eMCtK--X86sw", "MkU3OEVBNTcwNTJENDM2Qk"])
def test_an_id_that_many_copy_is_named(tmp_path: Path, cluster_id: str) -> None:
    assert cluster_id != CLUSTER_ID
    for number, folder in enumerate(("a", "b")):
        log = with_topics(led(1, [1], start_ms=1_700_000_000_000 + 900_000 * number))
        write_node(tmp_path / folder, 1, log.content, directory_id=DIRECTORIES[number], cluster_id=cluster_id)
    (finding,) = raised_below(tmp_path, "KB009")
    assert "other clusters have it too" in finding.summary
