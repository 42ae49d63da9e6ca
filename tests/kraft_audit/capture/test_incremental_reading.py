"""Reading what is new since an earlier plan: in the end the same rows as reading everything at once."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kraft_audit.capture import presence
from kraft_audit.capture.scanner import ChangedError
from kraft_codec.files.state_files import QuorumState
from tests.builders.memory_lake import KEY_COLUMNS, Lake, held

OTHER_CLUSTER = "O" * 22


def test_unchanged_gives_nothing(tmp_path: Path, reading: Any, node: Any, usual_log: Any) -> None:
    node(tmp_path, 1, usual_log.content)
    lake = Lake(reading)
    lake.run(tmp_path)
    again = lake.run(tmp_path)
    assert {name for name, rows in again.items() if rows} == {"files"}
    assert lake.asked == []


def test_what_was_said_is_not_said_again(tmp_path: Path, reading: Any, node: Any, usual_log: Any) -> None:
    part = "00000000000000000005-0000000001-123456.checkpoint.part"
    tail = b"".join(usual_log.batches[5:])
    node(tmp_path, 1, {5: tail}, files={part: b"half", "leader-epoch-checkpoint": b"0\n1\n1 5\n"})
    lake = Lake(reading)
    first = lake.run(tmp_path)
    expected = ["EPOCH_WENT_BACK", "SNAPSHOT_MISSING", "SNAPSHOT_UNFINISHED"]
    assert sorted(row["reason"] for row in first["decode_errors"]) == expected
    tail += usual_log.topic("new")
    node(tmp_path, 1, {5: tail})
    assert [row["reason"] for row in lake.run(tmp_path)["decode_errors"]] == []


def test_an_appended_batch_alone_is_read(tmp_path: Path, reading: Any, node: Any, usual_log: Any) -> None:
    node(tmp_path, 1, usual_log.content)
    lake = Lake(reading)
    lake.run(tmp_path)
    usual_log.topic("new")
    node(tmp_path, 1, usual_log.content)
    again = lake.run(tmp_path)
    assert [row["base_offset"] for row in again["batches"]] == [usual_log.next_offset - 1]
    assert [row["record"] for row in again["records"]] == ['{"name":"new","topicId":"bmV3Li4uLi4uLi4uLi4uLg"}']
    (capture,) = again["captures"]
    assert (capture["log_start_offset"], capture["log_end_offset"]) == (0, usual_log.next_offset)
    assert capture["batch_count"] == len(usual_log.batches)
    assert capture["bytes_decoded"] == capture["bytes_seen"]


def test_a_gap_after_what_was_read_is_reported(tmp_path: Path, reading: Any, node: Any, usual_log: Any) -> None:
    """Where the earlier plan read to the end, nothing explains a gap there: it is reported as in a single reading."""
    node(tmp_path, 1, b"".join(usual_log.batches[:4]))
    lake = Lake(reading)
    assert lake.run(tmp_path)["decode_errors"] == []
    del usual_log.batches[4]
    node(tmp_path, 1, usual_log.content)
    (damage,) = lake.run(tmp_path)["decode_errors"]
    (at_once,) = reading.of(tmp_path)["decode_errors"]
    assert damage["reason"] == "GAP"
    names = ("file_name", "position", "length_bytes", "base_offset", "reason", "detail", "kafka_verdict")
    assert [damage[name] for name in names] == [at_once[name] for name in names]


def test_a_gap_after_reported_damage_is_explained(tmp_path: Path, reading: Any, node: Any, usual_log: Any) -> None:
    broken = bytearray(b"".join(usual_log.batches[:5]))
    broken[-1] ^= 1
    node(tmp_path, 1, bytes(broken))
    lake = Lake(reading)
    assert [row["reason"] for row in lake.run(tmp_path)["decode_errors"]] == ["BAD_CRC"]
    node(tmp_path, 1, bytes(broken) + b"".join(usual_log.batches[5:]))
    assert [row["reason"] for row in lake.run(tmp_path)["decode_errors"]] == []
    assert [row["reason"] for row in reading.of(tmp_path)["decode_errors"]] == ["BAD_CRC"]


def test_a_torn_tail_that_is_completed(tmp_path: Path, reading: Any, node: Any, usual_log: Any) -> None:
    content = usual_log.content
    node(tmp_path, 1, content[:-10])
    lake = Lake(reading)
    first = lake.run(tmp_path)
    assert [row["reason"] for row in first["decode_errors"]] == ["TORN_TAIL"]
    node(tmp_path, 1, content)
    again = lake.run(tmp_path)
    assert again["decode_errors"] == []
    assert len(again["batches"]) == 1
    segment = next(row for row in again["files"] if row["kind"] == "segment")
    assert segment["bytes_decoded"] == len(content) == segment["bytes_seen"]


def test_a_lagging_replica_is_not_decoded_again(tmp_path: Path, reading: Any, node: Any, usual_log: Any) -> None:
    node(tmp_path, 1, usual_log.content)
    after = b"".join(usual_log.batches[:5])
    node(tmp_path, 2, after)
    lake = Lake(reading)
    lake.run(tmp_path)
    node(tmp_path, 2, usual_log.content)
    again = lake.run(tmp_path)
    assert again["records"] == []
    assert len(again["batches"]) == len(usual_log.batches) - 5
    assert held(lake.rows["batches"], 1) == held(lake.rows["batches"], 2)
    counts = {(row["node_id"], row["base_offset"]): row["noop_count"] for row in lake.rows["batches"]}
    assert sum(count for (number, _), count in counts.items() if number == 2) == 6
    # A replica that no plan knew.
    node(tmp_path, 3, usual_log.content)
    third = lake.run(tmp_path)
    assert third["records"] == []
    assert {row["node_id"] for row in third["batches"]} == {3}
    assert len(third["batches"]) == len(usual_log.batches)


def test_a_cut_suffix_gets_rows_and_overwrites_none(tmp_path: Path, reading: Any, node: Any, usual_log: Any) -> None:
    divergent = usual_log.copy()
    for name in ("lost-1", "lost-2"):
        usual_log.topic(name)
    node(tmp_path, 1, usual_log.content)
    lake = Lake(reading)
    lake.run(tmp_path)
    divergent.lead(3, epoch=3)
    divergent.topic("kept-and-longer-than-before")
    divergent.topic("more")
    node(tmp_path, 1, divergent.content)
    again = lake.run(tmp_path)
    statuses = [(row["base_offset"], row["leader_epoch"], row["status"]) for row in again["batches"]]
    start = divergent.next_offset - 3
    assert sorted(statuses) == [
        (start, 2, "truncated"),
        (start, 3, "present"),
        (start + 1, 2, "truncated"),
        (start + 1, 3, "present"),
        (start + 2, 3, "present"),
    ]
    assert len(again["records"]) == 3
    assert {row["plan"] for row in again["batches"]} == {2}


def test_a_log_that_only_got_shorter(tmp_path: Path, reading: Any, node: Any, usual_log: Any) -> None:
    node(tmp_path, 1, usual_log.content)
    lake = Lake(reading)
    lake.run(tmp_path)
    node(tmp_path, 1, b"".join(usual_log.batches[:-2]))
    again = lake.run(tmp_path)
    assert [row["status"] for row in again["batches"]] == ["truncated"] * 2
    node(tmp_path, 1, usual_log.content)
    third = lake.run(tmp_path)
    assert [row["status"] for row in third["batches"]] == ["present"] * 2
    assert third["records"] == []


def test_a_deleted_last_segment_is_a_cut_a_deleted_first_one_is_not(
    tmp_path: Path, reading: Any, node: Any, usual_log: Any
) -> None:
    sizes = (5, 10)
    parts = [usual_log.batches[:5], usual_log.batches[5:10], usual_log.batches[10:]]
    bases = [0, *sizes]
    segments = {base: b"".join(part) for base, part in zip(bases, parts, strict=True)}
    folder = node(tmp_path, 1, segments)
    lake = Lake(reading)
    lake.run(tmp_path)
    log_dir = folder / "__cluster_metadata-0"
    (log_dir / "00000000000000000010.log").unlink()
    again = lake.run(tmp_path)
    assert [row["status"] for row in again["batches"]] == ["truncated"] * len(parts[2])
    (log_dir / "00000000000000000000.log").unlink()
    third = lake.run(tmp_path)
    assert third["batches"] == []
    assert third["captures"][0]["log_start_offset"] == 5
    assert [row["reason"] for row in third["decode_errors"]] == ["SNAPSHOT_MISSING"]
    assert [row["file_name"] for row in third["files"] if not row["present"]] == [
        "__cluster_metadata-0/00000000000000000000.log"
    ]


def test_a_gap_of_any_size_between_known_batches(
    tmp_path: Path, reading: Any, node: Any, usual_log: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No checksum covers an offset: what a damaged one claims must not become as many questions to the lake."""
    monkeypatch.setattr(presence, "KNOWN_OFFSETS", 5)
    remaining = usual_log.content
    far = [usual_log.topic(name, base_offset=offset) for name, offset in (("far", 1 << 40), ("farther", 1 << 62))]
    node(tmp_path, 1, remaining + b"".join(far))
    lake = Lake(reading)
    assert [row["reason"] for row in lake.run(tmp_path)["decode_errors"]] == ["GAP", "GAP"]
    node(tmp_path, 1, remaining)
    again = lake.run(tmp_path)
    statuses = [(row["base_offset"], row["status"]) for row in again["batches"]]
    assert statuses == [(1 << 40, "truncated"), (1 << 62, "truncated")]
    assert len(lake.asked) < 200


def test_a_rolled_segment(tmp_path: Path, reading: Any, node: Any, usual_log: Any) -> None:
    node(tmp_path, 1, usual_log.content)
    lake = Lake(reading)
    lake.run(tmp_path)
    content = usual_log.content
    roll = usual_log.next_offset
    batch = usual_log.topic("in-the-next-segment")
    node(tmp_path, 1, {0: content, roll: batch})
    again = lake.run(tmp_path)
    assert [row["file_name"] for row in again["batches"]] == [f"__cluster_metadata-0/{roll:020d}.log"]
    assert again["decode_errors"] == []


@pytest.mark.parametrize("cut_in", [2, 1])
def test_a_cut_in_one_segment_leaves_those_before_it(
    tmp_path: Path, reading: Any, node: Any, usual_log: Any, cut_in: int
) -> None:
    """All is read again then, and what stands in front of the cut as it stood before is no change."""
    batches = usual_log.batches
    parts = {base: batches[base : base + 5] for base in (0, 5, 10)}
    node(tmp_path, 1, {base: b"".join(part) for base, part in parts.items()})
    lake = Lake(reading)
    lake.run(tmp_path)
    parts[5 * cut_in] = parts[5 * cut_in][:-2]
    folder = node(tmp_path, 1, {base: b"".join(part) for base, part in parts.items()})
    for base in range(5 * (cut_in + 1), 15, 5):
        (folder / "__cluster_metadata-0" / f"{base:020d}.log").unlink()
    again = lake.run(tmp_path)
    cut = range(5 * cut_in + 3, 15)
    assert [(row["base_offset"], row["status"]) for row in again["batches"]] == [(at, "truncated") for at in cut]
    assert again["decode_errors"] == []
    (capture,) = again["captures"]
    assert (capture["log_start_offset"], capture["log_end_offset"]) == (0, cut.start)
    assert capture["batch_count"] == cut.start


def test_an_earlier_segment_that_grew_gives_the_rows_of_one_reading(
    tmp_path: Path, reading: Any, node: Any, usual_log: Any
) -> None:
    parts = {0: b"".join(usual_log.batches[:5]), 5: b"".join(usual_log.batches[5:])}
    node(tmp_path, 1, parts)
    lake = Lake(reading)
    assert lake.run(tmp_path)["decode_errors"] == []
    node(tmp_path, 1, {**parts, 0: parts[0] + bytes(100)})
    again, at_once = lake.run(tmp_path), reading.of(tmp_path)
    names = ("file_name", "position", "length_bytes", "reason")
    assert [[row[name] for name in names] for row in again["decode_errors"]] == [
        ["__cluster_metadata-0/00000000000000000000.log", len(parts[0]), 100, "ZERO_TAIL"]
    ]
    assert again["batches"] == []
    names = ("log_start_offset", "log_end_offset", "reachable_end_offset", "batch_count", "bytes_unread")
    assert [again["captures"][0][name] for name in names] == [at_once["captures"][0][name] for name in names]


def test_a_segment_that_comes_late_is_read_with_all_after_it(
    tmp_path: Path, reading: Any, node: Any, usual_log: Any
) -> None:
    """A copy that was not finished when it was first read."""
    parts = {0: b"".join(usual_log.batches[:5]), 5: b"".join(usual_log.batches[5:])}
    node(tmp_path, 1, {5: parts[5]})
    lake = Lake(reading)
    assert lake.run(tmp_path)["captures"][0]["log_start_offset"] == 5
    node(tmp_path, 1, parts)
    again = lake.run(tmp_path)
    assert [(row["base_offset"], row["status"]) for row in again["batches"]] == [(at, "present") for at in range(5)]
    assert again["captures"][0]["log_start_offset"] == 0
    assert again["decode_errors"] == []


@pytest.mark.parametrize("length", [None, 50])
def test_a_known_segment_that_goes_before_its_news_is_read(
    tmp_path: Path, reading: Any, node: Any, usual_log: Any, length: int | None
) -> None:
    """Deleted or cut between plan and reading: reported, and its known batches are not said to be truncated."""
    folder = node(tmp_path, 1, usual_log.content)
    lake = Lake(reading)
    lake.run(tmp_path)
    node(tmp_path, 1, usual_log.content + usual_log.topic("new"))
    plan = lake.plan(reading.plan(tmp_path))
    segment = folder / "__cluster_metadata-0" / "00000000000000000000.log"
    if length is None:
        segment.unlink()
    else:
        os.truncate(segment, length)
    tables = reading.tables(plan, known=lake)
    (damage,) = tables["decode_errors"]
    assert (damage["reason"], damage["length_bytes"]) == ("CHANGED_DURING_READ", len(usual_log.content))
    assert tables["batches"] == tables["records"] == []


def test_an_empty_segment_is_the_end_of_the_log(tmp_path: Path, reading: Any, node: Any, usual_log: Any) -> None:
    """Kafka has rolled, and written nothing into the new segment yet."""
    roll = usual_log.next_offset
    node(tmp_path, 1, {0: usual_log.content, roll: b""})
    lake = Lake(reading)
    first = lake.run(tmp_path)
    assert first["decode_errors"] == []
    assert first["captures"][0]["log_end_offset"] == roll
    node(tmp_path, 1, {0: usual_log.content, roll: usual_log.topic("first-of-the-segment")})
    again = lake.run(tmp_path)
    assert again["decode_errors"] == []
    assert [row["base_offset"] for row in again["batches"]] == [roll]


def test_an_unfinished_snapshot_is_not_reported_again_beside_a_new_segment(
    tmp_path: Path, reading: Any, node: Any, usual_log: Any
) -> None:
    part = "00000000000000000005-0000000001-{}.checkpoint.part"
    node(tmp_path, 1, usual_log.content, files={part.format(1): b"half"})
    lake = Lake(reading)
    assert [row["reason"] for row in lake.run(tmp_path)["decode_errors"]] == ["SNAPSHOT_UNFINISHED"]
    content, roll = usual_log.content, usual_log.next_offset
    node(tmp_path, 1, {0: content, roll: usual_log.topic("next")}, files={part.format(2): b"another"})
    (damage,) = lake.run(tmp_path)["decode_errors"]
    assert (damage["reason"], damage["file_name"].endswith(part.format(2))) == ("SNAPSHOT_UNFINISHED", True)


def test_a_foreign_replica_that_has_not_changed_is_not_refused_again(
    tmp_path: Path, reading: Any, node: Any, usual_log: Any
) -> None:
    state = QuorumState(0, 1, 1, -1, cluster_id=OTHER_CLUSTER, current_voters=(1,))
    node(tmp_path, 1, usual_log.content, state=state)
    lake = Lake(reading)
    assert [row["reason"] for row in lake.run(tmp_path)["decode_errors"]] == ["CLUSTER_MISMATCH"]
    assert lake.run(tmp_path)["decode_errors"] == []
    node(tmp_path, 1, usual_log.content + usual_log.topic("new"), state=state)
    assert [row["reason"] for row in lake.run(tmp_path)["decode_errors"]] == ["CLUSTER_MISMATCH"]


def test_planned_bytes_or_nothing(tmp_path: Path, reading: Any, node: Any, usual_log: Any) -> None:
    folder = node(tmp_path, 1, usual_log.content)
    plan = reading.plan(tmp_path)
    node(tmp_path, 1, usual_log.content[:-30])
    with pytest.raises(ChangedError, match="planned"):
        reading.tables(plan, stop_on_change=True)
    tables = reading.tables(plan)
    assert [row["reason"] for row in tables["decode_errors"]] == ["CHANGED_DURING_READ"]
    # What was appended since the plan is not read.
    node(tmp_path, 1, usual_log.content)
    plan = reading.plan(folder)
    node(tmp_path, 1, usual_log.content + usual_log.topic("too-late"))
    assert len(reading.tables(plan, stop_on_change=True)["batches"]) == len(usual_log.batches) - 1


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_any_split_into_runs_gives_the_same_rows(
    data: Any, tmp_path: Path, reading: Any, node: Any, usual_log: Any
) -> None:
    """Three nodes that lag, catch up, are cut and go on in a later epoch, read at any time."""
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    lake = Lake(reading)
    leading = usual_log.copy()
    lengths = dict.fromkeys((1, 2, 3), 1)
    for _ in range(data.draw(st.integers(1, 5))):
        if data.draw(st.booleans()):
            # The new leader has all but a suffix; whoever held that suffix will be cut.
            remaining = data.draw(st.integers(max(1, len(leading.batches) - 3), len(leading.batches)))
            lost = len(leading.batches) - remaining
            leading.batches = leading.batches[:remaining]
            leading.next_offset -= lost
            leading.lead(data.draw(st.integers(1, 3)), epoch=leading.epoch + 1)
            lengths = {number: min(length, remaining) for number, length in lengths.items()}
        for _ in range(data.draw(st.integers(0, 3))):
            leading.topic(f"topic-{data.draw(st.integers(0, 99))}")
        for number in lengths:
            lengths[number] = data.draw(st.integers(lengths[number], len(leading.batches)))
            torn = data.draw(st.booleans())
            content = b"".join(leading.batches[: lengths[number]])
            node(folder, number, content[:-5] if torn and lengths[number] > 1 else content)
        if data.draw(st.booleans()):
            lake.run(folder)
    for number, length in lengths.items():
        node(folder, number, b"".join(leading.batches[:length]))
    lake.run(folder)
    whole = reading.of(folder)
    decoded = {(row["offset"], row["leader_epoch"], row["batch_crc"]): row["record"] for row in lake.rows["records"]}
    assert len(decoded) == len(lake.rows["records"])
    for row in whole["records"]:
        assert decoded[row["offset"], row["leader_epoch"], row["batch_crc"]] == row["record"]
    for number in lengths:
        assert held(lake.rows["batches"], number) == held(whole["batches"], number)
    counted = {counted_row(row) for row in lake.rows["batches"]}
    assert counted >= {counted_row(row) for row in whole["batches"]}
    for row in lake.captures:
        assert row["bytes_seen"] == row["bytes_decoded"]


def counted_row(row: dict[str, Any]) -> tuple[Any, ...]:
    names = (*KEY_COLUMNS, "node_id", "noop_count", "record_count", "position", "size_bytes", "valid", "reason")
    return tuple(row[name] for name in names)
