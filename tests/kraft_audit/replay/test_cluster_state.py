"""The state at an offset or a time, by the shortest way, and its description, against what Kafka printed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from kraft_audit.replay.cluster_replay import REPLAY_TABLES, ClusterReplay
from kraft_audit.replay.cluster_state import ClusterState, state_at
from kraft_audit.replay.driver import BranchLog, replay_branch
from kraft_audit.text.kafka_topics import describe_partition, describe_topics
from kraft_codec.file_names import snapshot_name
from tests.builders.logs import Log, write_node
from tests.builders.readings import branch_log


def comparable(state: ClusterState) -> dict[str, list[str]]:
    return {name: sorted(map(str, state.rows(name))) for name in REPLAY_TABLES}


@pytest.fixture(scope="module")
def elr(small_corpus: Path) -> BranchLog:
    newest = sorted(path.name for path in (small_corpus / "elr").iterdir() if path.name[:2].isdigit())[-1]
    return branch_log(small_corpus / "elr", newest)


def test_state_from_a_snapshot_is_the_state_from_the_beginning(elr: BranchLog) -> None:
    """Offsets below, at and above both snapshots; without producer ids, of which a snapshot has less."""
    ends = sorted({snapshot.end_offset for snapshot in elr.survey.snapshots if snapshot.end_offset})
    assert ends
    for offset in (ends[0] - 2, ends[0] - 1, ends[0], ends[-1], ends[-1] + 20):
        replay = ClusterReplay(cluster_id=elr.plan.cluster_id, emit_from_offset=offset + 1)
        rows: dict[str, list[str]] = {name: [] for name in REPLAY_TABLES}
        whole = ClusterReplay(cluster_id=elr.plan.cluster_id)
        for window in elr.reading.windows(elr.survey.path(elr.branch)):
            below = {n: b.filter(pc.less_equal(b.column("offset"), offset)) for n, b in window.records.items()}
            list(whole.replay(below, min(window.to_offset, offset + 1)))
            if window.to_offset > offset:
                break
        list(whole.finish())
        for name, batch in whole.state(offset, -1, 0):
            rows[name] += map(str, batch.to_pylist())
        assert replay.settled_offset == 0
        shown = comparable(state_at(elr, offset=offset))
        for name in REPLAY_TABLES:
            mine = [row for row in rows[name] if "PRODUCER_IDS" not in row]
            assert [row for row in shown[name] if "PRODUCER_IDS" not in row] == sorted(mine), (offset, name)


def test_state_at_a_time_is_the_state_at_its_last_record(elr: BranchLog) -> None:
    rows = [row for name, batch in replay_branch(elr) if name == "partition_changes" for row in batch.to_pylist()]
    for row in rows[:: len(rows) // 7]:
        at_time = state_at(elr, time_ms=row["timestamp_ms"])
        assert at_time.offset >= row["from_offset"]
        at_offset = state_at(elr, offset=at_time.offset)
        assert comparable(at_time) == comparable(at_offset)


def test_default_is_the_end_and_an_offset_beyond_it_too(elr: BranchLog) -> None:
    end = elr.survey.epochs_to(elr.branch)[-1].to_offset
    at_end = state_at(elr)
    assert at_end.offset == end - 1
    assert at_end.is_complete
    assert at_end.voter_set is not None
    assert comparable(state_at(elr, offset=10**9)) == comparable(at_end)
    before = state_at(elr, offset=-1)
    assert before.offset == -1
    assert not any(before.rows(name) for name in REPLAY_TABLES)


@pytest.mark.slow
def test_description_is_what_kafka_topics_printed(oracles: list[Any]) -> None:
    compared = 0
    for oracle in oracles:
        for printed in sorted(oracle.folder.glob("*/oracle/topics.after.txt")):
            text = printed.read_text().replace("N/A", "")  # brokers before 3.7 do not tell
            capture = printed.parents[1].name
            if "Topic: " not in text or "ERROR" in text or "live" in capture:
                continue
            sources = branch_log(oracle.folder / capture)
            state = state_at(sources)
            lines = list(describe_topics(state.rows("partition_changes"), state.rows("config_changes")))
            before = printed.with_name("topics.before.txt").read_text().replace("N/A", "")
            if before != text:
                continue  # the cluster moved while it was cut
            assert sorted(map(partition_line, lines)) == sorted(map(partition_line, text.splitlines())), printed
            compared += 1
            for line in text.splitlines():  # static configs are in no log
                header = next(
                    (text for text in lines if text.split("\tConfigs")[0] == line.split("\tConfigs")[0]), None
                )
                if line.startswith("Topic: "):
                    assert header is not None
                    assert set(header.split("Configs: ")[1].split(",")) - {""} <= set(
                        line.split("Configs: ")[1].split(",")
                    )
    assert compared >= 5


def partition_line(line: str) -> str:
    return line.split("\tConfigs: ")[0].rstrip()


def test_leaderless_partition_in_a_reassignment() -> None:
    row = {"topic": "t", "partition": 3, "leader": -1, "replicas": [1, 2], "isr": [], "elr": [2], "last_known_elr": [1],
           "adding_replicas": [4], "removing_replicas": []}  # fmt: skip
    assert describe_partition(row) == (
        "\tTopic: t\tPartition: 3\tLeader: none\tReplicas: 1,2\tIsr: \tAdding Replicas: 4\tRemoving Replicas: "
        "\tElr: 2\tLastKnownElr: 1"
    )


def cleaned_log(folder: Path, begins_at: int, snapshot_end: int) -> BranchLog:
    """A log of topics 1 to 11 at their offsets that begins at `begins_at`, and a snapshot with those below its end."""
    log, snapshot = Log(), Log()
    log.lead(1, epoch=1)
    snapshot.control("SNAPSHOT_HEADER", {"version": 0, "lastContainedLogTimestamp": 7})
    for number in range(1, 12):
        log.topic(f"topic-{number}")
        if number < snapshot_end:
            snapshot.topic(f"topic-{number}")
    snapshot.control("SNAPSHOT_FOOTER", {"version": 0})
    segments = {begins_at: b"".join(log.batches[begins_at:])}
    write_node(folder, 1, segments, files={snapshot_name(snapshot_end, 1): snapshot.content})
    return branch_log(folder)


@pytest.mark.parametrize(("begins_at", "snapshot_end"), [(4, 4), (4, 9), (0, 9)])
def test_a_branch_is_replayed_from_the_snapshot_that_its_log_goes_on_from(
    tmp_path: Path, begins_at: int, snapshot_end: int
) -> None:
    """Whether the log begins at the snapshot's end or, cleaned up by segments, below it: no topic is missing."""
    sources = cleaned_log(tmp_path, begins_at, snapshot_end)
    rows = [row for name, batch in replay_branch(sources) if name == "topic_changes" for row in batch.to_pylist()]
    assert sorted(row["topic"] for row in rows) == sorted(f"topic-{number}" for number in range(1, 12))
    shown = {row["topic"]: (row["from_offset"], row["cause"] == "snapshot") for row in rows}
    kept_to = snapshot_end if begins_at else 0
    assert shown == {
        f"topic-{number}": (kept_to - 1, True) if number < kept_to else (number, False) for number in range(1, 12)
    }
    assert {row["timestamp_ms"] for row in rows if row["cause"] == "snapshot"} == ({7} if begins_at else set())
