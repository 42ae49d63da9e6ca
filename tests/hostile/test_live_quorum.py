"""A real Kafka quorum goes on while its log dirs are read: they roll, are cut and cleaned up under the reader's eyes.

Needs Java and Kafka's jars: their class path in KRAFT_AUDIT_KAFKA_CLASSPATH, or Maven to fetch them by coordinates.
"""

from __future__ import annotations

import json
import re
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest

from kraft_audit.commands.cli import run_command
from kraft_audit.lake.delta import DeltaLake
from tests.hostile.io_errors import fleet_of, run
from tests.hostile.quorum import FIRST_LEADER, Quorum, quorum

pytestmark = [pytest.mark.kafka, pytest.mark.ci]

PATIENCE_S: Final = 240
UNCOMMITTED_S: Final = 1.0
ENDS: Final = {0, 3}
"""Read, or one line of what could not be; `--fail-on never` leaves findings out."""
LIVE: Final = {"CHANGED_DURING_READ", "TORN_TAIL", "ZERO_TAIL", "SNAPSHOT_UNFINISHED", "SNAPSHOT_INCOMPLETE"}
WHEN: Final = ("captured_at", "captured_at_ms", "plan", "capture_number")
Row = dict[str, Any]
Batch = tuple[int, int, int, int]
"""First and last offset, epoch, CRC."""


@dataclass(slots=True)
class Reading:
    """What two dumps in a row showed: rows of `records`, batches of each node, and damage of either."""

    records: dict[tuple[int, int], Row]
    batches: dict[int, list[Batch]]
    output: set[str]


@dataclass(slots=True)
class Reader:
    """Reads the log dirs again and again, by the command and into a lake, and keeps the rows."""

    root: Path
    lake_folder: Path
    taken: Callable[[], tuple[str, str]]
    readings: list[Reading] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def read(self) -> Reading:
        checked, _ = self._command("check", "-o", "json", "--fail-on", "never")
        assert checked is None or json.loads(checked)
        records, second = self._dump("records")
        batches, reported_too = self._dump("batches")
        damages, _ = self._dump("decode_errors")
        self._run_the_pipeline()
        reading = Reading(
            {(row["offset"], row["leader_epoch"]): row for row in records if row["source"] == "log"},
            by_node(batches),
            second | reported_too | {row["reason"] for row in damages},
        )
        self.readings.append(reading)
        return reading

    def _run_the_pipeline(self) -> None:
        result = run(fleet_of(self.root, self.lake_folder, "live"))
        assert all("CHANGED_DURING_READ" in why for why in result.failed.values()), result.failed
        self.refused += result.failed.values()

    def _dump(self, table: str) -> tuple[list[Row], set[str]]:
        out, err = self._command("dump", "-o", "jsonl", "--table", table)
        return [json.loads(line) for line in (out or "").splitlines()], set(re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b", err))

    def _command(self, name: str, *options: str) -> tuple[str | None, str]:
        code = run_command([name, str(self.root), *options])
        out, err = self.taken()
        assert code in ENDS, (name, code, err)
        assert "Traceback" not in err
        if code:
            self.refused.append(err)
        return (None if code else out), err


def by_node(rows: list[Row]) -> dict[int, list[Batch]]:
    found: dict[int, list[Batch]] = {}
    for row in rows:
        if row["source"] == "log":
            assert row["valid"], row
            batch_key = (row["base_offset"], row["last_offset"], row["leader_epoch"], row["crc"])
            found.setdefault(row["node_id"], []).append(batch_key)
    return {node: sorted(batches) for node, batches in found.items()}


def segments(root: Path, node: int) -> list[int]:
    return sorted(int(path.stem) for path in (root / f"node-{node}").glob("__cluster_metadata-0/*.log"))


def wait_for(what: str, condition: Callable[[], bool], meanwhile: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what
        meanwhile()


def test_a_live_quorum_is_read_in_parts_of_its_log(
    kafka_classpath: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs, work = tmp_path / "logs", tmp_path / "work"
    logs.mkdir()
    work.mkdir()
    reader = Reader(logs, work, capsys.readouterr)
    with quorum(logs, work, kafka_classpath) as kafka:
        wait_for("segments that roll", lambda: len(segments(logs, 1)) > 1, lambda: pause_or_read(reader, kafka))
        kafka.cut_a_tail(UNCOMMITTED_S)
        wait_for("a leader that has a follower", lambda: is_led_by_others(reader.read()), lambda: None)
        kafka.nodes[FIRST_LEADER].start()
        wait_for("segments that go", lambda: any(min(segments(logs, node)) for node in kafka.nodes), reader.read)
        reader.read()
        acknowledged = kafka.acknowledged()
    final = reader.read()
    assert final.output <= LIVE - {"CHANGED_DURING_READ"}, "nothing writes any more"

    history: dict[tuple[int, int], Batch] = {}
    for reading in reader.readings:
        assert reading.output <= LIVE, reading.output
        assert_part_of(reading, final, history)
    assert len(reader.readings) > 5
    cut = [reading for reading in reader.readings if lost(reading, final, FIRST_LEADER)]
    assert cut, "the dead leader had a tail that no replica had fetched"
    assert acknowledged <= set(topics(reader.readings)), "what was acknowledged was read"
    assert_lake_holds(DeltaLake(fleet_of(logs, work, "live").lake), final, acknowledged)


def pause_or_read(reader: Reader, kafka: Quorum) -> None:
    """Before the first topic is there, the dirs may be empty: there is nothing to read, and it takes a while."""
    if kafka.acknowledged():
        reader.read()
    else:
        time.sleep(0.2)


def assert_part_of(reading: Reading, final: Reading, history: dict[tuple[int, int], Batch]) -> None:
    """Each node's batches stand one after the other, and are those of the final log but where that was cut."""
    for node, batches in reading.batches.items():
        if "CHANGED_DURING_READ" not in reading.output:
            holes = [later for before, later in pairwise(batches) if later[0] != before[1] + 1]
            assert holes == []
        left = {batch[0]: batch for batch in final.batches[node]}
        for batch in batches:
            assert history.setdefault((batch[0], batch[2]), batch) == batch
            assert batch[0] < min(left) or left.get(batch[0]) == batch or batch in lost(reading, final, node)
    if "CHANGED_DURING_READ" not in reading.output and reading.records:
        # A leader that was left alone wrote on; what the next one wrote at those offsets came later.
        first, last = min(reading.records)[0], dict(sorted((epoch, offset) for offset, epoch in reading.records))
        for key, row in final.records.items():
            assert not first <= key[0] <= last.get(key[1], -1) or same(reading.records[key]) == same(row)
    for key, row in reading.records.items():
        assert key not in final.records or same(final.records[key]) == same(row)


def lost(reading: Reading, final: Reading, node: int) -> set[Batch]:
    """What was cut off the node's log since: the final log goes on in another epoch where it stood."""
    left = final.batches[node]
    starts = [batch[0] for batch in left]
    return {
        batch
        for batch in reading.batches.get(node, [])
        if batch[0] >= starts[0] and left[bisect_right(starts, batch[0]) - 1][2] != batch[2]
    }


def is_led_by_others(reading: Reading) -> bool:
    """Two logs go on in an epoch that the first leader's has not."""
    epochs = {node: batches[-1][2] for node, batches in reading.batches.items()}
    first = epochs.pop(FIRST_LEADER)
    return len(epochs) == 2 and min(epochs.values()) > first


def same(row: Row) -> Row:
    return {name: value for name, value in row.items() if name not in WHEN}


def topics(readings: list[Reading]) -> Iterator[str]:
    for reading in readings:
        for row in reading.records.values():
            if row["record_type"] == "TOPIC_RECORD":
                yield row["record"]["name"]


def assert_lake_holds(lake: DeltaLake, final: Reading, acknowledged: set[str]) -> None:
    """The runs on the live dirs left each batch of the final log once, and every topic that was acknowledged."""
    sql = "SELECT \"offset\", leader_epoch, batch_crc, record_type, record FROM records WHERE source = 'log'"
    rows = lake.query(sql, "records").to_pylist()
    held = [(row["offset"], row["leader_epoch"]) for row in rows]
    assert len(set(held)) == len(held)
    assert set(held) >= final.records.keys()
    assert {row["batch_crc"] for row in rows} >= {row["batch_crc"] for row in final.records.values()}
    named = {json.loads(row["record"])["name"] for row in rows if row["record_type"] == "TOPIC_RECORD"}
    assert named >= acknowledged
