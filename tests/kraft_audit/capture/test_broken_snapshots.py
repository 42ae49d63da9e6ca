"""Snapshots that are broken in more than fifty ways: what is said of each, and that none of them counts as a state."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from kraft_codec.file_names import snapshot_name
from tests.builders.logs import Log

NAME = snapshot_name(13, 1)
TOPICS = 5


def whole() -> list[bytes]:
    """The batches of a sound snapshot: header, topics, footer."""
    log = Log()
    log.control("SNAPSHOT_HEADER", {"version": 0, "lastContainedLogTimestamp": 7})
    for number in range(TOPICS):
        log.topic(f"kept-{number}")
    log.control("SNAPSHOT_FOOTER", {"version": 0})
    return log.batches


def broken() -> dict[str, tuple[bytes, str]]:
    """A snapshot's bytes, and a reason that has to be reported for it."""
    batches = whole()
    header, *topics, footer = batches
    content = b"".join(batches)
    flipped = bytearray(content)
    flipped[len(header) + 70] ^= 1
    found = {
        "empty": (b"", "SNAPSHOT_INCOMPLETE"),
        "header alone": (header, "SNAPSHOT_INCOMPLETE"),
        "footer alone": (footer, "SNAPSHOT_INCOMPLETE"),
        "no header": (b"".join([*topics, footer]), "SNAPSHOT_INCOMPLETE"),
        "neither": (b"".join(topics), "SNAPSHOT_INCOMPLETE"),
        "reversed": (b"".join(reversed(batches)), "OVERLAP"),
        "footer first": (b"".join([footer, header, *topics]), "SNAPSHOT_INCOMPLETE"),
        "twice": (content * 2, "OVERLAP"),
        "records behind the footer": (content + topics[0], "OVERLAP"),
        "a flipped bit": (bytes(flipped), "BAD_CRC"),
        "noise": (b"garbage" * 30, "BAD_LENGTH"),
        "noise behind": (content + b"garbage" * 30, "BAD_LENGTH"),
    }
    found["nothing"] = b"", "SNAPSHOT_INCOMPLETE"
    found |= {f"{count} zeros": (bytes(count), "ZERO_TAIL") for count in (1, 17, 61, 100, 4096)}
    found |= {f"{count} zeros behind": (content + bytes(count), "ZERO_TAIL") for count in (1, 61, 4096)}
    for number in range(1, len(batches)):
        start = sum(map(len, batches[:number]))
        found[f"cut before batch {number}"] = content[:start], "SNAPSHOT_INCOMPLETE"
        for more in (1, 20, len(batches[number]) - 1):
            found[f"cut {more} bytes into batch {number}"] = content[: start + more], "SNAPSHOT_INCOMPLETE"
    for first, second in itertools.combinations(range(TOPICS), 2):
        unsorted = list(topics)
        unsorted[first], unsorted[second] = unsorted[second], unsorted[first]
        found[f"topics {first} and {second} swapped"] = b"".join([header, *unsorted, footer]), "GAP"
    for number in range(TOPICS):
        remaining = [*topics[:number], *topics[number + 1 :]]
        found[f"without topic {number}"] = b"".join([header, *remaining, footer]), "GAP"
        doubled = [*topics[: number + 1], *topics[number:]]
        found[f"topic {number} doubled"] = b"".join([header, *doubled, footer]), "OVERLAP"
    return found


BROKEN = broken()
assert len(BROKEN) >= 40


@pytest.mark.slow
@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_snapshot_is_reported_and_not_used(
    tmp_path: Path, reading: Any, node: Any, usual_log: Any, case: str
) -> None:
    content, reason = BROKEN[case]
    alone = reading.of(node(tmp_path / "alone", 1, usual_log.content))
    tables = reading.of(node(tmp_path / "beside", 1, usual_log.content, files={NAME: content}))
    assert reason in {row["reason"] for row in tables["decode_errors"]}
    assert {row["file_name"] for row in tables["decode_errors"]} == {f"__cluster_metadata-0/{NAME}"}
    (capture,) = tables["captures"]
    assert (capture["snapshot_end_offset"], capture["snapshot_count"]) == (None, 0)
    assert [row for row in tables["records"] if row["source"] == "log"] == alone["records"]


@pytest.mark.parametrize("suffix", ["", ".deleted"])
def test_a_whole_snapshot_is_reported_once(
    tmp_path: Path, reading: Any, node: Any, usual_log: Any, suffix: str
) -> None:
    """Also one that Kafka is about to delete, or older than where the log starts: it leaves those for a while."""
    files = {NAME + suffix: b"".join(whole()), snapshot_name(2, 1): b"".join(whole())}
    tables = reading.of(node(tmp_path, 1, {5: b"".join(usual_log.batches[5:])}, files=files))
    assert [row["reason"] for row in tables["decode_errors"]] == (["SNAPSHOT_MISSING"] if suffix else [])
    (capture,) = tables["captures"]
    assert capture["snapshot_end_offset"] == (2 if suffix else 13)
    assert capture["snapshot_count"] == (1 if suffix else 2)
