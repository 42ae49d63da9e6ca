"""Parts of a log, read each by itself, give the rows of the whole log: of sound logs, damaged ones and captures."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kraft_audit.capture import scanner
from kraft_audit.capture.log_parts import WHOLE_LOG, LogPart, can_be_split, log_parts
from kraft_audit.capture.path_plans import plan_path
from kraft_audit.capture.plan import ClusterPlan, plan_to_json
from kraft_audit.lake.staging.cluster_reading import read_table
from kraft_codec.records.record import write_metadata_value
from kraft_codec.storage.opener import open_storage
from tests.builders.logs import NOW_MS, Log, headers_of, write_node

TABLES = ("batches", "records")
KEY = "6b" * 32


def planned(path: Path) -> list[ClusterPlan]:
    return plan_path(str(path), open_storage=open_storage, captured_at_ms=NOW_MS)


def rows_of(plan: ClusterPlan, table: str, part: LogPart = WHOLE_LOG, record_type: str | None = None) -> Counter[str]:
    batches = read_table(plan_to_json(plan), table, record_type, None, KEY, part)
    return Counter(json.dumps(row, default=str) for batch in batches for row in batch.to_pylist())


def cut_at(offsets: list[int]) -> list[LogPart]:
    bounds = [None, *sorted(set(offsets)), None]
    return [LogPart(*bounds[place : place + 2]) for place in range(len(bounds) - 1)]


def offsets_of(rows: Counter[str], table: str) -> list[int]:
    return sorted({json.loads(row)["base_offset" if table == "batches" else "offset"] for row in rows})


def assert_parts_are_the_whole(plan: ClusterPlan, table: str, chance: random.Random) -> Counter[str]:
    whole = rows_of(plan, table)
    if offsets := offsets_of(whole, table):
        cuts = [chance.choice(offsets) + chance.choice((0, 0, 1)) for _ in range(3)]
        parts: Counter[str] = Counter()
        for part in cut_at(cuts):
            parts += rows_of(plan, table, part)
        assert parts == whole, (table, cuts)
    return whole


def secret(value: str) -> bytes:
    fields = {"resourceType": 4, "resourceName": "1", "name": "plugin.secret", "value": value}
    return write_metadata_value("ConfigRecord", 0, fields)


def damaged(content: bytes, starts: list[int], chance: random.Random) -> bytes:
    """A segment with a flipped bit, zeros, a forged offset, another epoch or a torn tail; or as it was."""
    data = bytearray(content)
    start = chance.choice(starts)
    match chance.choice(("none", "bit", "zeros", "offset", "epoch", "torn")):
        case "bit":
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        case "zeros":
            at = chance.randrange(len(data))
            data[at : at + 300] = bytes(len(data[at : at + 300]))
        case "offset":
            data[start + 6 : start + 8] = chance.randbytes(2)
        case "epoch":
            data[start + 12 : start + 16] = chance.randrange(9).to_bytes(4, "big")
        case "torn":
            del data[chance.randrange(1, len(data)) :]
    return bytes(data)


def write_damaged_cluster(folder: Path, chance: random.Random) -> None:
    """Up to three nodes with one log, each with segments and damage of its own."""
    log = Log()
    log.lead(1, epoch=1)
    for number in range(chance.randint(20, 80)):
        match chance.choice(("topic", "noop", "secret", "leader")):
            case "topic":
                log.topic(f"topic-{number}")
            case "noop":
                log.noop()
            case "secret":
                log.append(secret(chance.choice(("a", "bb", "ccc", "dddd", "long enough to be hashed"))))
            case "leader":
                log.lead(chance.randint(1, 3), epoch=log.epoch + 1)
    headers = headers_of(log.content)
    for node in range(1, chance.randint(1, 3) + 1):
        begins = sorted({0, *(chance.randrange(len(headers)) for _ in range(3))})
        segments = {}
        for first, end in zip(begins, [*begins[1:], len(headers)], strict=True):
            positions = [header.position for header in headers[first:end]]
            content = b"".join(log.batches[first:end])
            starts = [position - positions[0] for position in positions]
            segments[headers[first].base_offset] = damaged(content, starts, chance)
        write_node(folder, node, segments)


@pytest.mark.parametrize("seed", range(12))
def test_parts_of_damaged_logs_are_the_whole(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In chunks of a few batches, so that parts begin within chunks and chunks within parts."""
    monkeypatch.setattr(scanner, "CHUNK_BYTES_MIN", 700)
    chance = random.Random(seed)  # noqa: S311  # no secret
    write_damaged_cluster(tmp_path, chance)
    refused = 0
    for plan in planned(tmp_path):
        for table in TABLES:
            assert can_be_split(plan, table)
            whole = assert_parts_are_the_whole(plan, table, chance)
            refused += sum(count for row, count in whole.items() if json.loads(row).get("valid") is False)
    if seed == 0:
        assert refused, "a case with refused batches"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["elr", "divergence", "dynamic-quorum", "torn-write"])
def test_parts_of_captures_are_the_whole(name: str, small_corpus: Path) -> None:
    """Snapshots, several replicas and branches among them."""
    chance, split = random.Random(name), 0  # noqa: S311
    for folder in sorted((small_corpus / name).iterdir())[:8]:
        for plan in planned(folder) if any(folder.glob("*/__cluster_metadata-0")) else ():
            for table in TABLES:
                split += can_be_split(plan, table)
                assert_parts_are_the_whole(plan, table, chance)
    assert split


def test_short_secrets_have_the_numbers_of_the_whole_log(tmp_path: Path) -> None:
    """A short value is shown by a number, which counts from the beginning of the log."""
    log = Log()
    for value in ("a", "b", "c", "d", "b", "e"):
        log.append(secret(value))
    write_node(tmp_path, 1, log.content)
    (plan,) = planned(tmp_path)
    for record_type in (None, "CONFIG_RECORD"):
        whole = rows_of(plan, "records", record_type=record_type)
        assert len(whole) == 6
        assert sum((rows_of(plan, "records", part, record_type) for part in cut_at([2, 4])), Counter()) == whole


def test_parts_cost_about_the_same_and_are_cut_at_batches(tmp_path: Path) -> None:
    log = Log()
    for number in range(2_000):
        log.topic(f"topic-{number}")
    offsets = {header.base_offset for header in headers_of(log.content)}
    write_node(tmp_path, 1, {0: b"".join(log.batches[:900]), 900: b"".join(log.batches[900:])})
    (plan,) = planned(tmp_path)
    with open_storage(str(tmp_path)) as storage:
        parts = log_parts(plan, 4, lambda _: storage)
    bounds = [0, *(part.to_offset or len(offsets) for part in parts)]
    assert [part.from_offset or 0 for part in parts] == bounds[:-1]
    assert set(bounds[1:-1]) <= offsets
    sizes = [end - begin for begin, end in pairwise(bounds)]
    assert len(parts) == 4
    assert sizes == sorted(sizes, reverse=True), "a later part frames what is before it"
    assert sizes[-1] > sizes[0] / 2


def test_many_replicas_are_framed_by_few_tasks(tmp_path: Path) -> None:
    log = Log()
    for number in range(300):
        log.topic(f"topic-{number}")
    for node in range(1, 6):
        write_node(tmp_path, node, log.content)
    (plan,) = planned(tmp_path)
    with open_storage(str(tmp_path)) as storage:
        assert len(log_parts(plan, 8, lambda _: storage)) == 2
        assert len(log_parts(replace(plan, replicas=plan.replicas[:1]), 8, lambda _: storage)) == 8


def test_what_is_not_split(tmp_path: Path, usual_log: Log, samples: Path) -> None:
    node: Callable[..., Any] = write_node
    for capture in ("monday", "tuesday"):
        node(tmp_path / capture, 1, usual_log.content)
    (captured_twice,) = planned(tmp_path)
    assert not can_be_split(captured_twice, "batches"), "a later capture says what an earlier one had"
    assert can_be_split(captured_twice, "records")
    (once,) = planned(tmp_path / "monday")
    assert [table for table in ("files", "captures", "findings", "archive") if can_be_split(once, table)] == []
    packed = shutil.make_archive(str(tmp_path / "packed"), "gztar", tmp_path / "monday")
    (archived,) = planned(Path(packed))
    assert not can_be_split(archived, "records"), "each task would unpack it"
