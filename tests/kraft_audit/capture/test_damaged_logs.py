"""Damage: what is said of it, what is still read around it, and that every byte is accounted for."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kraft_audit.capture import bronze_rows
from kraft_audit.capture.scanner import CHUNK_BYTES_MAX
from kraft_codec.errors import Reason, kafka_verdict
from kraft_codec.file_names import FileKind, snapshot_name
from kraft_codec.records.batch import HEADER_BYTES, write_batch

LAST, MIDDLE = 170_448, 82_165
LAST_END = 171_340
CHECKPOINT = "__cluster_metadata-0/leader-epoch-checkpoint"

# What stands in crafted/damaged, and what must be said of it: (reason, position, length) in order.
VERDICTS: dict[str, list[tuple[str, int, int]]] = {
    "torn-mid-length-field": [("ZERO_TAIL", LAST, 6)],
    "torn-mid-header": [("TORN_TAIL", LAST, 30)],
    "torn-mid-records": [("TORN_TAIL", LAST, 885)],
    "torn-big-batch-half": [("TORN_TAIL", 141_450, 2_437)],
    "torn-one-byte-short": [("TORN_TAIL", LAST, 891)],
    "torn-header-only": [("TORN_TAIL", LAST, 61)],
    "zero-filled-tail-4096": [("ZERO_TAIL", LAST_END, 4_096)],
    "zero-filled-tail-7": [("ZERO_TAIL", LAST_END, 7)],
    "zero-filled-tail-1MiB": [("ZERO_TAIL", LAST_END, 1 << 20)],
    "torn-then-zeros": [("BAD_CRC", LAST, 892), ("ZERO_TAIL", LAST_END, 1_148)],
    "crc-flip-last-batch": [("BAD_CRC", LAST, 892)],
    "crc-flip-middle-batch": [("BAD_CRC", MIDDLE, 692)],
    "crc-field-flip-last": [("BAD_CRC", LAST, 892)],
    "garbage-tail": [("BAD_LENGTH", LAST_END, 199)],
    "negative-length-tail": [("BAD_LENGTH", LAST_END, 62)],
    "huge-length-tail": [("BAD_LENGTH", LAST_END, 62)],
    "duplicate-last-batch": [("OVERLAP", LAST_END, 892)],
    "offset-gap": [("GAP", MIDDLE, 1_014)],
    "empty-log": [],
    "magic-18-last-batch": [("BAD_MAGIC", LAST, 892)],
    "magic-1-last-batch": [("BAD_MAGIC", LAST, 892)],
}
# Where Kafka would cut the log; the others end where their last whole batch does.
CUTS = {"crc-flip-middle-batch": 1457}


@pytest.mark.slow
@pytest.mark.parametrize("case", sorted(VERDICTS))
def test_crafted_damage(captured_logs: Path, reading: Any, case: str) -> None:
    folder = captured_logs / "crafted" / "damaged"
    scenario_cases = json.loads((folder / "scenario.json").read_text())["cases"]
    assert set(scenario_cases) == set(VERDICTS)
    tables = reading.of(folder / case)
    seen = [(row["reason"], row["position"], row["length_bytes"]) for row in tables["decode_errors"]]
    assert sorted(seen, key=lambda row: row[1]) == VERDICTS[case]
    (file,) = tables["files"]
    assert file["bytes_seen"] == scenario_cases[case]["size"]
    # Its own case has a test below.
    for row in tables["decode_errors"] if case != "magic-18-last-batch" else ():
        assert row["kafka_verdict"] == f"Kafka {kafka_verdict(Reason(row['reason']), FileKind.SEGMENT)}"
    (capture,) = tables["captures"]
    assert capture["reachable_end_offset"] == CUTS.get(case, capture["log_end_offset"])
    intact = reading.of(folder / "garbage-tail")["records"]
    rows = {row["offset"]: row for row in tables["records"]}
    assert all(rows[row["offset"]] == row for row in intact if row["offset"] in rows)


def test_a_batch_that_kafka_reads_and_the_crc_does_not_cover(captured_logs: Path, reading: Any) -> None:
    (damage,) = reading.of(captured_logs / "crafted/damaged/magic-18-last-batch")["decode_errors"]
    assert damage["detail"] == "the magic byte is 18"
    assert "as version 2" in damage["kafka_verdict"]


def reasons(tables: dict[str, Any]) -> list[tuple[str, int, int]]:
    return [(row["reason"], row["position"], row["length_bytes"]) for row in tables["decode_errors"]]


@pytest.mark.slow
def test_truncation_at_every_length(tmp_path: Path, reading: Any, node: Any, usual_log: Any) -> None:
    content = usual_log.content
    ends, position = [0], 0
    for batch in usual_log.batches:
        position += len(batch)
        ends.append(position)
    whole = reading.of(node(tmp_path / "whole", 1, content))["records"]
    folder = tmp_path / "cut"
    for length in range(0, len(content) + 1, 7):
        tables = reading.of(node(folder, 1, content[:length]))
        end_of_whole = max(end for end in ends if end <= length)
        assert tables["captures"][0]["batch_count"] == ends.index(end_of_whole)
        last_offset = tables["captures"][0]["log_end_offset"]
        assert tables["records"] == [row for row in whole if row["offset"] < last_offset]
        is_zeros = not any(content[end_of_whole : min(length, end_of_whole + 61)])
        expected = "ZERO_TAIL" if is_zeros else "TORN_TAIL"
        assert reasons(tables) == ([] if length == end_of_whole else [(expected, end_of_whole, length - end_of_whole)])


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_mutated_bytes_add_up(data: Any, tmp_path: Path, reading: Any, node: Any, usual_log: Any) -> None:
    content = bytearray(usual_log.content)
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(content) - 1))
        kind = data.draw(st.sampled_from(["flip", "zero", "cut", "drop", "random", "insert"]))
        length = data.draw(st.integers(1, 200))
        if kind == "flip":
            content[start] ^= 1 << data.draw(st.integers(0, 7))
        elif kind == "zero":
            content[start : start + length] = bytes(len(content[start : start + length]))
        elif kind == "cut":
            del content[start:]
        elif kind == "drop":
            del content[start : start + length]
        elif kind == "random":
            content[start : start + length] = data.draw(st.binary(min_size=length, max_size=length))
        else:
            content[start:start] = data.draw(st.binary(min_size=length, max_size=length))
        if not content:
            break
    folder = node(tmp_path / "mutated", 1, bytes(content))
    tables = reading.of(folder)
    for row in tables["files"]:
        parts = [row["bytes_decoded"], row["bytes_quarantined"], row["bytes_unread"]]
        assert row["bytes_seen"] == sum(parts)
        assert min(parts) >= 0
    present = [row for row in tables["batches"] if row["valid"]]
    assert sum(row["size_bytes"] for row in present) == sum(
        row["bytes_decoded"] for row in tables["files"] if row["kind"] == "segment"
    )
    crcs = {(row["base_offset"], row["crc"]) for row in present}
    assert len(crcs) == len(present)
    assert {row["batch_crc"] for row in tables["records"]} <= {crc for _, crc in crcs}


@pytest.mark.slow
def test_every_bit_that_the_crc_does_not_cover(tmp_path: Path, reading: Any, node: Any, usual_log: Any) -> None:
    """Base offset and epoch of each batch: the neighbours tell, or leader-epoch-checkpoint where epochs meet.

    The records of a refused batch never reach a table.
    """
    content = usual_log.content
    intact = reading.of(node(tmp_path / "intact", 1, content))["records"]
    position = 0
    for number, batch in enumerate(usual_log.batches):
        if number not in (0, 1, 11, 12, 13, 14, len(usual_log.batches) - 1):  # first, last, and where epochs meet
            position += len(batch)
            continue
        for bit in [*range(64), *range(96, 128)]:
            mutated = bytearray(content)
            mutated[position + bit // 8] ^= 128 >> bit % 8
            files = {"leader-epoch-checkpoint": b"0\n2\n1 0\n2 13\n"}
            tables = reading.of(node(tmp_path / "flipped", 1, bytes(mutated), files=files))
            assert tables["decode_errors"], (number, bit)
            kept_wrong = [row for row in tables["records"] if row not in intact]
            reporting_files = {row["file_name"] for row in tables["decode_errors"]}
            # Behind the last batch there is no neighbour: a step is reported, and the batch kept.
            if number < len(usual_log.batches) - 1 and CHECKPOINT not in reporting_files:
                assert kept_wrong == [], (number, bit)
                assert tables["captures"][0]["log_end_offset"] == usual_log.next_offset
        position += len(batch)


def test_zeros_in_the_middle(tmp_path: Path, reading: Any, node: Any, usual_log: Any) -> None:
    sizes = [len(batch) for batch in usual_log.batches]
    start, end = sum(sizes[:3]), sum(sizes[:6])
    content = bytearray(usual_log.content)
    content[start + 10 : end - 10] = bytes(end - start - 20)
    tables = reading.of(node(tmp_path, 1, bytes(content)))
    (damage,) = tables["decode_errors"]
    assert (damage["reason"], damage["position"], damage["length_bytes"]) == ("BAD_LENGTH", start, end - start)
    assert f"go on at position {end}" in damage["detail"]
    (capture,) = tables["captures"]
    assert capture["batch_count"] == len(sizes) - 3
    assert capture["log_end_offset"] == usual_log.next_offset
    assert capture["reachable_end_offset"] == 3
    assert capture["bytes_unread"] == end - start


def test_the_last_batch_alone_after_zeros(tmp_path: Path, reading: Any, node: Any, usual_log: Any) -> None:
    """It ends where the file does; one byte less, and it is no batch any more."""
    sizes = [len(batch) for batch in usual_log.batches]
    start, end = sum(sizes[:3]), sum(sizes[:-1])
    content = usual_log.content[:start] + bytes(end - start) + usual_log.batches[-1]
    whole = reading.of(node(tmp_path / "whole", 1, content))
    assert [(row["position"], row["length_bytes"]) for row in whole["decode_errors"]] == [(start, end - start)]
    assert whole["captures"][0]["log_end_offset"] == usual_log.next_offset
    cut = reading.of(node(tmp_path / "cut", 1, content[:-1]))
    assert cut["captures"][0]["batch_count"] == 3
    assert cut["captures"][0]["log_end_offset"] == 3


@pytest.mark.parametrize("lost_bytes", [0, 1])
def test_a_batch_that_is_longer_than_what_is_read_at_a_time(
    tmp_path: Path, reading: Any, node: Any, usual_log: Any, lost_bytes: int
) -> None:
    before = len(usual_log.content)
    long = usual_log.append(*[bytes(100_000)] * (CHUNK_BYTES_MAX // 100_000 + 1))
    assert len(long) > CHUNK_BYTES_MAX
    usual_log.topic("behind")
    content = usual_log.content if not lost_bytes else usual_log.content[: before + len(long) - lost_bytes]
    tables = reading.of(node(tmp_path, 1, content), tables=("batches", "captures", "decode_errors"))
    assert tables["captures"][0]["batch_count"] == len(usual_log.batches) - 2 * lost_bytes
    torn = [row for row in tables["decode_errors"] if row["reason"] == "TORN_TAIL"]
    assert [(row["position"], row["length_bytes"]) for row in torn] == [(before, len(long) - 1)] * lost_bytes


@pytest.mark.parametrize(("false_count", "is_found"), [(10, True), (40, False)])
def test_the_search_after_damage_ends_when_false_headers_have_cost_enough(
    tmp_path: Path, reading: Any, node: Any, usual_log: Any, false_count: int, is_found: bool
) -> None:
    """Headers that each claim the MiB after them: 18 MiB of CRC are granted, and what is left then is all damage."""
    first, last = usual_log.batches[0], usual_log.batches[1]
    claim = bytearray(HEADER_BYTES)
    claim[0:8], claim[8:12], claim[16] = (1).to_bytes(8, "big"), (1 << 20).to_bytes(4, "big"), 2
    damage = b"\xff" * HEADER_BYTES + bytes(claim) * false_count + bytes(1 << 20)
    tables = reading.of(node(tmp_path, 1, first + damage + last))
    (row,) = tables["decode_errors"]
    lost = len(damage) if is_found else len(damage) + len(last)
    assert (row["position"], row["length_bytes"]) == (len(first), lost)
    assert tables["captures"][0]["batch_count"] == 1 + is_found


def test_a_gap_is_reported_once_and_reading_continues(tmp_path: Path, reading: Any, node: Any, usual_log: Any) -> None:
    del usual_log.batches[4]
    tables = reading.of(node(tmp_path, 1, usual_log.content))
    (damage,) = tables["decode_errors"]
    assert damage["reason"] == "GAP"
    assert damage["base_offset"] == 5
    assert tables["captures"][0]["batch_count"] == len(usual_log.batches)


def test_a_repeated_run_is_one_finding(tmp_path: Path, reading: Any, node: Any, usual_log: Any) -> None:
    content = usual_log.content
    repeated = b"".join(usual_log.batches[3:9])
    tables = reading.of(node(tmp_path, 1, content + repeated))
    assert reasons(tables) == [("OVERLAP", len(content), len(repeated))]
    assert sum(not row["valid"] for row in tables["batches"]) == 6


@pytest.mark.parametrize(("remembered", "reported"), [(100, 6), (4, 6 + 2)])
def test_refused_batches_are_reported_once_a_replica(
    tmp_path: Path,
    reading: Any,
    node: Any,
    usual_log: Any,
    monkeypatch: pytest.MonkeyPatch,
    remembered: int,
    reported: int,
) -> None:
    """Not once a capture; beyond what may be remembered, twice rather than never."""
    monkeypatch.setattr(bronze_rows, "REFUSED_REMEMBERED", remembered)
    content = usual_log.content + b"".join(usual_log.batches[3:9])
    for capture in ("01", "02"):
        node(tmp_path / capture, 1, content)
    refused = [row for row in reading.of(tmp_path)["batches"] if not row["valid"]]
    assert len(refused) == reported
    assert {row["base_offset"] for row in refused} == set(range(3, 9))


def test_a_tail_of_another_epoch_is_accepted_and_reported(
    tmp_path: Path, reading: Any, node: Any, usual_log: Any
) -> None:
    usual_log.topic("later", epoch=1)
    usual_log.topic("and-later", epoch=1)
    tables = reading.of(node(tmp_path, 1, usual_log.content))
    assert [row["reason"] for row in tables["decode_errors"]] == ["EPOCH_WENT_BACK"]
    assert "epoch 1 follows epoch 2" in tables["decode_errors"][0]["detail"]


def test_right_crc_and_wrong_content(tmp_path: Path, reading: Any, node: Any, log: Any) -> None:
    log.topic("before")
    bad = log.append(b"\x01\x02\x00\xff\xff\xff\xff\x7f broken topic")
    log.topic("behind")
    for number in (1, 2):
        node(tmp_path, number, log.content)
    tables = reading.of(tmp_path)
    assert [row["offset"] for row in tables["records"]] == [0, 2]
    assert [row["node_id"] for row in tables["decode_errors"]] == [1, 2]
    first = len(log.batches[0])
    for row in tables["decode_errors"]:
        assert (row["position"], row["length_bytes"], row["base_offset"]) == (first, len(bad), 1)
        assert row["value_hash"] == tables["decode_errors"][0]["value_hash"]
        assert "the CRC is right" in row["detail"]
    invalid = [row for row in tables["batches"] if not row["valid"]]
    assert [(row["node_id"], row["reason"]) for row in invalid] == [(1, row["reason"]) for row in invalid[:1]] + [
        (2, invalid[0]["reason"])
    ]
    for row in tables["captures"]:
        assert row["bytes_quarantined"] == len(bad)
        assert row["batch_count"] == 2


def test_right_crc_and_wrong_content_in_a_snapshot(tmp_path: Path, reading: Any, node: Any, log: Any) -> None:
    whole = log.copy()
    log.control("SNAPSHOT_HEADER", {"version": 0, "lastContainedLogTimestamp": 7})
    log.topic("kept")
    bad = log.append(b"\x01\x02\x00\xff\xff\xff\xff\x7f broken topic")
    log.control("SNAPSHOT_FOOTER", {"version": 0})
    for number in range(9):
        whole.topic(f"topic-{number}")
    name = snapshot_name(5, 1)
    tables = reading.of(node(tmp_path, 1, whole.content, files={name: log.content}))
    (damage,) = tables["decode_errors"]
    start = sum(map(len, log.batches[:2]))
    assert (damage["position"], damage["length_bytes"], damage["base_offset"]) == (start, len(bad), 2)
    assert "the CRC is right" in damage["detail"]
    (file,) = [row for row in tables["files"] if row["kind"] == "snapshot"]
    assert (file["bytes_quarantined"], file["bytes_decoded"]) == (len(bad), len(log.content) - len(bad))
    of_snapshot = [row for row in tables["batches"] if row["source"] == name.removesuffix(".checkpoint")]
    assert [(row["base_offset"], row["valid"]) for row in of_snapshot] == [(0, True), (1, True), (2, False), (3, True)]


@pytest.mark.parametrize(
    ("value", "record_type", "reason"),
    [
        (b"\x01\x7e\x00secret", "UNKNOWN(126)", Reason.UNKNOWN_RECORD_TYPE),
        (b"\x01\x02\x09secret", "TOPIC_RECORD", Reason.UNKNOWN_RECORD_VERSION),
        (b"\x02\x02\x00secret", "UNKNOWN", Reason.UNKNOWN_FRAME_VERSION),
    ],
)
def test_unknown_records_keep_length_and_hash(
    tmp_path: Path, reading: Any, node: Any, log: Any, value: bytes, record_type: str, reason: Reason
) -> None:
    log.topic("before")
    log.append(value)
    for number in (1, 2):
        node(tmp_path, number, log.content)
    tables = reading.of(tmp_path)
    row = tables["records"][1]
    assert (row["record_type"], row["record"], row["value_bytes"]) == (record_type, None, len(value))
    (damage,) = tables["decode_errors"]
    assert (damage["reason"], damage["node_id"], damage["base_offset"]) == (reason, 1, 1)
    assert damage["value_hash"] == row["value_hash"]
    assert all(batch["valid"] for batch in tables["batches"])
    assert "secret" not in json.dumps(tables, default=str)


def test_a_compressed_bomb_is_bounded(tmp_path: Path, reading: Any, node: Any, log: Any) -> None:
    from kraft_codec.records.compression import Codec

    bomb = write_batch(
        base_offset=0, leader_epoch=1, timestamp_ms=5, records=[(None, bytes(50 << 20))], codec=Codec.GZIP
    )
    tables = reading.of(node(tmp_path, 1, bomb))
    assert [row["reason"] for row in tables["decode_errors"]] == ["DECOMP_LIMIT"]
    assert tables["records"] == []


def test_a_hostile_neighbour_changes_nothing(tmp_path: Path, reading: Any, node: Any, usual_log: Any) -> None:
    for number in (1, 2):
        node(tmp_path, number, usual_log.content)
    alone = reading.of(tmp_path)
    node(tmp_path, 3, random.Random(7).randbytes(30_000))  # noqa: S311
    beside = reading.of(tmp_path)
    assert beside["records"] == alone["records"]
    assert [row for row in beside["batches"] if row["node_id"] != 3] == alone["batches"]
    assert {row["node_id"] for row in beside["decode_errors"]} == {3}
