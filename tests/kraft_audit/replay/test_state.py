"""The state at an offset or a time, by the shortest way, and its description, against what Kafka printed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from kraft_audit.replay.describe import describe_partition, describe_topics
from kraft_audit.replay.planning import plan_path
from kraft_audit.replay.replay import REPLAY_TABLES, ClusterReplay
from kraft_audit.replay.rounds import committed_intervals
from kraft_audit.replay.state import ClusterState, Sources, replay_branch, state_at
from kraft_audit.replay.survey import survey
from kraft_codec.file_names import snapshot_name
from kraft_codec.redaction import Redactor
from kraft_codec.storage import open_storage
from tests.kraft_audit.analyze.conftest import Log, write_node


def sources_of(folder: Path, capture: str | None = None) -> Sources:
    plan, *_ = plan_path(str(folder), open_storage=open_storage, captured_at_ms=1, capture=capture)
    found = survey(plan, open_storage=open_storage, redactor=Redactor(bytes(32)))
    canonical = committed_intervals(found, plan)[-1].interval.canonical
    number = None if canonical is None else canonical.number
    return Sources(plan, found, number, open_storage, Redactor(bytes(32)))


def comparable(state: ClusterState) -> dict[str, list[str]]:
    return {name: sorted(map(str, state.rows(name))) for name in REPLAY_TABLES}


@pytest.fixture(scope="module")
def elr(samples: Path) -> Sources:
    newest = sorted(path.name for path in (samples / "elr").iterdir() if path.name[:2].isdigit())[-1]
    return sources_of(samples / "elr", newest)


def test_state_from_a_snapshot_is_the_state_from_the_beginning(elr: Sources) -> None:
    """Offsets below, at and above both snapshots; producer ids are left out, of which a snapshot tells less."""
    ends = sorted({one.end_offset for one in elr.survey.snapshots if one.end_offset})
    assert ends
    for offset in (ends[0] - 2, ends[0] - 1, ends[0], ends[-1], ends[-1] + 20):
        replay = ClusterReplay(cluster_id=elr.plan.cluster_id, emit_from_offset=offset + 1)
        rows: dict[str, list[str]] = {name: [] for name in REPLAY_TABLES}
        whole = ClusterReplay(cluster_id=elr.plan.cluster_id)
        from kraft_audit.replay.survey import canonical_windows

        windows = canonical_windows(
            elr.plan, elr.survey.path(elr.branch), open_storage=open_storage, redactor=Redactor(bytes(32))
        )
        for window in windows:
            below = {n: b.filter(pc.less_equal(b.column("offset"), offset)) for n, b in window.records.items()}
            list(whole.replay(below, min(window.to_offset, offset + 1)))
            if window.to_offset > offset:
                break
        list(whole.finish(at_end=True))
        for name, batch in whole.state(offset, -1, 0):
            rows[name] += map(str, batch.to_pylist())
        assert replay.settled_offset == 0
        told = comparable(state_at(elr, offset=offset))
        for name in REPLAY_TABLES:
            mine = [row for row in rows[name] if "PRODUCER_IDS" not in row]
            assert [row for row in told[name] if "PRODUCER_IDS" not in row] == sorted(mine), (offset, name)


def test_state_at_a_time_is_the_state_at_its_last_record(elr: Sources) -> None:
    rows = [row for name, batch in replay_branch(elr) if name == "partition_changes" for row in batch.to_pylist()]
    for row in rows[:: len(rows) // 7]:
        at_time = state_at(elr, time_ms=row["timestamp_ms"])
        assert at_time.offset >= row["from_offset"]
        at_offset = state_at(elr, offset=at_time.offset)
        assert comparable(at_time) == comparable(at_offset)


def test_default_is_the_end_and_an_offset_beyond_it_too(elr: Sources) -> None:
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
            sources = sources_of(oracle.folder / capture)
            state = state_at(sources)
            lines = list(describe_topics(state.rows("partition_changes"), state.rows("config_changes")))
            before = printed.with_name("topics.before.txt").read_text().replace("N/A", "")
            if before != text:
                continue  # the cluster moved while it was cut
            assert sorted(map(partition_line, lines)) == sorted(map(partition_line, text.splitlines())), printed
            compared += 1
            for line in text.splitlines():  # static configs are in no log
                header = next((one for one in lines if one.split("\tConfigs")[0] == line.split("\tConfigs")[0]), None)
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


def cleaned_log(folder: Path, begins_at: int, snapshot_end: int) -> Sources:
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
    return sources_of(folder)


@pytest.mark.parametrize(("begins_at", "snapshot_end"), [(4, 4), (4, 9), (0, 9)])
def test_a_branch_is_replayed_from_the_snapshot_that_its_log_goes_on_from(
    tmp_path: Path, begins_at: int, snapshot_end: int
) -> None:
    """Whether the log begins at the snapshot's end or, cleaned up by segments, below it: no topic is missing."""
    sources = cleaned_log(tmp_path, begins_at, snapshot_end)
    rows = [row for name, batch in replay_branch(sources) if name == "topic_changes" for row in batch.to_pylist()]
    assert sorted(row["topic"] for row in rows) == sorted(f"topic-{number}" for number in range(1, 12))
    told = {row["topic"]: (row["from_offset"], row["cause"] == "snapshot") for row in rows}
    kept_to = snapshot_end if begins_at else 0
    assert told == {
        f"topic-{number}": (kept_to - 1, True) if number < kept_to else (number, False) for number in range(1, 12)
    }
    assert {row["timestamp_ms"] for row in rows if row["cause"] == "snapshot"} == ({7} if begins_at else set())
