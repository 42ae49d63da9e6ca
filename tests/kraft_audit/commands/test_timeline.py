"""`timeline`: against the clock of the program that staged the captures, and what Kafka's own tools said at each."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from pathlib import Path

import pytest

from tests.builders.facts import facts

SCENARIOS = ("divergence", "uncommitted-voter-change", "dynamic-quorum", "elr", "static-to-dynamic-upgrade")

LINGER_MS = 25
"""controller.quorum.append.linger.ms: a record's time is that at which its batch was opened, this long before."""


def timeline_rows(kraft_audit, path: Path) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = json.loads(kraft_audit("timeline", path, "-o", "json").out)
    return rows


def name_of(row: dict[str, object]) -> str:
    """The capture of a row; empty where it is none."""
    return str(row["text"]).removeprefix("capture ").partition(":")[0] if row["event"] == "capture" else ""


def taken_ms(root: Path) -> dict[str, tuple[int, int]]:
    """From when until when the nodes of a capture stood still."""
    captures = json.loads((root / "scenario.json").read_text())["captures"]
    return {capture["label"]: (capture["cut_ms"], capture["cut_end_ms"]) for capture in captures if "cut_ms" in capture}


def tool_said(root: Path) -> dict[str, tuple[int, set[int]]]:
    """Of captures at which kafka-metadata-quorum answered alike before and after the cut: leader and voters."""
    found = {}
    for after in sorted(root.glob("*/oracle/quorum-status.after.txt")):
        texts = [after.read_text(), after.with_name("quorum-status.before.txt").read_text()]
        fields = [dict(line.split(":", 1) for line in text.splitlines() if ":" in line) for text in texts]
        answers = [(field.get("LeaderId"), field.get("CurrentVoters")) for field in fields]
        leader, voters = answers[0]
        if answers[0] == answers[1] and leader is not None and voters is not None:
            found[after.parents[1].name] = (int(leader), {voter["id"] for voter in json.loads(voters)})
    return found


def compare_captures(kraft_audit, root: Path) -> int:
    """Each capture stands between what was written before it was taken and what was written after; how many do."""
    rows, times, said = timeline_rows(kraft_audit, root), taken_ms(root), tool_said(root)
    count = 0
    for place, row in enumerate(rows):
        name = name_of(row)
        if name not in times:
            continue
        count += 1
        before = [row["timestamp_ms"] for row in rows[:place] if row["timestamp_ms"] is not None]
        after = [row["timestamp_ms"] for row in rows[place:] if row["timestamp_ms"] is not None]
        first_ms, last_ms = times[name]
        assert all(time <= last_ms for time in before), (name, "stands too late")
        assert all(time >= first_ms - LINGER_MS for time in after), (name, "stands too early")
        if name in said:
            leader, voters = said[name]
            marks = {int(node): mark[:1] for node, mark in row["nodes"].items()}
            assert {node for node, mark in marks.items() if mark == "L"} == {leader}, name
            assert {node for node, mark in marks.items() if mark in "LV" and mark} == voters | {leader}, name
    return count


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_capture_stands_where_it_was_taken(kraft_audit, small_corpus: Path, scenario: str) -> None:
    assert compare_captures(kraft_audit, small_corpus / scenario) >= 1


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_capture_of_the_large_set_stands_where_it_was_taken(kraft_audit, corpus: Path, scenario: str) -> None:
    assert compare_captures(kraft_audit, corpus / scenario) >= 5


@pytest.mark.parametrize(
    ("scenario", "name"),
    [("divergence", "10-uncommitted-suffix-live"), ("uncommitted-voter-change", "10-add-voter-uncommitted")],
)
def test_the_row_of_a_capture_marks_what_quorum_says_of_it(
    kraft_audit, small_corpus: Path, scenario: str, name: str
) -> None:
    (row,) = [row for row in timeline_rows(kraft_audit, small_corpus / scenario) if name_of(row) == name]
    alone = json.loads(kraft_audit("quorum", small_corpus / scenario, "--capture", name, "-o", "json").out)
    marks = {int(node): mark[:1] for node, mark in row["nodes"].items()}
    assert [node for node, mark in marks.items() if mark == "L"] == [alone["leader_id"]]
    voters = {voter["voter_id"] for voter in alone["voters"]}
    assert {node for node, mark in marks.items() if mark in ("L", "V")} == voters | {alone["leader_id"]}
    assert row["canonical"] is False


def test_what_was_written_and_is_not_canonical_is_an_event(kraft_audit, small_corpus: Path) -> None:
    """Against what Kafka's own classes read of the two logs."""
    root = small_corpus / "divergence"
    index = json.loads((root / "oracle-files/index.json").read_text())

    def epochs(node: int) -> dict[int, int]:
        key = index[f"11-dead-node-diverged/node-{node}/__cluster_metadata-0/00000000000000000000.log"]
        lines = gzip.decompress((root / f"oracle-files/{key}.records.jsonl.gz").read_bytes()).decode().splitlines()
        rows = [json.loads(line) for line in lines]
        return {row["offset"]: row["partitionLeaderEpoch"] for row in rows if "offset" in row}

    dead, others = epochs(2), epochs(1)
    lost = {offset: epoch for offset, epoch in dead.items() if others.get(offset) != epoch}
    (epoch,) = set(lost.values())
    rows = timeline_rows(kraft_audit, root)
    (place,) = [place for place, row in enumerate(rows) if row["event"] == "branch"]
    row = rows[place]
    assert (row["offset"], row["epoch"], row["canonical"]) == (min(lost), epoch, False)
    expected = {min(lost), max(lost), epoch, 2, 11, others[min(lost)]}
    assert facts(str(row["text"])) == {str(number) for number in expected}
    assert [name_of(rows[place - 1]), name_of(rows[place + 1])] == ["", "10-uncommitted-suffix-live"]
    assert all(row["event"] != "branch" for row in timeline_rows(kraft_audit, small_corpus / "elr"))


def test_without_a_canonical_log_both_branches_are_reported(kraft_audit, tmp_path: Path) -> None:
    assert kraft_audit("simulate", "two-leaders-one-epoch", "--seed", "1", "--out", tmp_path / "made").code == 0
    parted = [row for row in timeline_rows(kraft_audit, tmp_path / "made") if row["event"] == "branch"]
    (divergence,) = json.loads(kraft_audit("quorum", "--diverge", tmp_path / "made", "-o", "json").out)
    assert divergence["canonical"] == [False, False]
    assert [(row["offset"], row["epoch"]) for row in parted] == [(divergence["offset"], 2)] * 2
    held = [sorted({str(holder["node_id"]) for holder in holders}) for holders in divergence["held_by"]]
    assert all("no log is canonical" in row["text"] for row in parted)
    assert sorted(re.findall(r"\d+", row["text"].partition("held by ")[2]) for row in parted) == sorted(held)


def test_a_deleted_topics_partitions_are_one_line(kraft_audit, small_corpus: Path) -> None:
    """As many as the ledger of the partitions has at that record."""
    root = small_corpus / "dynamic-quorum/13-final-stopped"
    rows = timeline_rows(kraft_audit, root)
    ledger = [json.loads(line) for line in kraft_audit("partitions", root, "-o", "jsonl").out.splitlines()]
    removed = [row for row in ledger if row["cause"] == "topic_removed"]
    topics = {row["topic"]: row["from_offset"] for row in removed}
    lines = [row for row in rows if row["event"] == "partition" and "topic removed" in row["text"]]
    assert topics
    assert [(row["offset"], row["text"].split()[0]) for row in lines] == [
        (offset, str(sum(partition_row["topic"] == topic for partition_row in removed)))
        for topic, offset in topics.items()
    ]


def test_a_log_dir_that_failed_is_named(kraft_audit, small_corpus: Path) -> None:
    """Against the records as Kafka's own classes read them: what was registered, and what was left."""
    root = small_corpus / "jbod"
    key = json.loads((root / "oracle-files/index.json").read_text())[
        "01-one-dir-failed/node-1/__cluster_metadata-0/00000000000000000000.log"
    ]
    lines = gzip.decompress((root / f"oracle-files/{key}.records.jsonl.gz").read_bytes()).decode().splitlines()
    records = [row for row in map(json.loads, lines) if (row.get("data") or {}).get("brokerId") == 12]
    (registered,) = [row for row in records if row["type"] == "REGISTER_BROKER_RECORD"]
    (changed,) = [
        row for row in records if row["type"] == "BROKER_REGISTRATION_CHANGE_RECORD" and row["data"].get("logDirs")
    ]
    (failed,) = set(registered["data"]["logDirs"]) - set(changed["data"]["logDirs"])
    rows = timeline_rows(kraft_audit, root)
    assert [row["text"] for row in rows if row["offset"] == changed["offset"]] == [
        f"broker 12 log dir {failed} offline"
    ]


def test_a_log_dir_that_is_back_is_named(kraft_audit, captured_logs: Path) -> None:
    rows = timeline_rows(kraft_audit, captured_logs / "jbod" / "02-dir-back")
    (offline,) = [row["text"] for row in rows if row["text"].endswith(" offline")]
    (back,) = [row["text"] for row in rows if " reregistered with log dir " in row["text"]]
    assert back.split()[-1] == offline.split()[-2]


def test_nothing_in_a_range_names_a_cluster_without_an_id(kraft_audit, small_corpus: Path, tmp_path: Path) -> None:
    """And the last record, as `dump` does."""
    node = small_corpus / "divergence/12-after-truncation/node-1/__cluster_metadata-0"
    shutil.copytree(node, tmp_path / "__cluster_metadata-0")
    ended = kraft_audit("timeline", tmp_path, "--from", "500")
    (line,) = ended.error_lines
    assert line.startswith("(no cluster id): ")
    assert facts(line) == {"0", "57"}
    dumped = kraft_audit("dump", tmp_path, "--from", "500")
    (line,) = dumped.error_lines
    assert line.startswith("(no cluster id): ")
    assert facts(line) == {"0", "57"}


def test_a_picture_is_written_for_each_cluster_and_over_nothing(kraft_audit, samples: Path, tmp_path: Path) -> None:
    logs, target = tmp_path / "logs", tmp_path / "drawn.svg"
    logs.mkdir()
    for name in ("divergence.tgz", "jbod.tgz"):
        shutil.copy(samples / name, logs)
    drawn = kraft_audit("timeline", logs, "--svg", target)
    assert drawn.code == 0
    files = [target, tmp_path / "drawn-2.svg"]
    assert [line.split(":")[0] for line in drawn.out.splitlines()] == [str(file) for file in files]
    assert all(file.read_text().startswith("<svg ") for file in files)
    assert kraft_audit("timeline", logs, "--svg", target).code == 2, "nothing is written over"
    assert kraft_audit("timeline", logs, "--svg", logs / "drawn.svg").code == 2, "nothing is written among what is read"
    assert kraft_audit("timeline", logs, "--svg", tmp_path / "part.svg", "--from", "3").code == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["drawn-2.svg", "drawn.svg", "logs"]
