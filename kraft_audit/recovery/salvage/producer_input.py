"""Salvaged records as lines that Kafka's own console producer reads, and the command that sends them.

Its LineMessageReader (tools, Kafka 3.5 to 4.3) takes one record a line: headers, key and value in UTF-8, separated by
tabs. What no such line can say is counted and stays in the JSON lines alone.
"""

from __future__ import annotations

import base64
import json
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from kraft_audit.recovery.private_files import PrivateFile, WrittenFile
from kraft_audit.recovery.salvage.salvaged_records import Marker
from kraft_audit.text.shell_commands import UnwritableError, quoted

NULL_MARKER: Final = "__null__"
SEPARATORS_OF_HEADERS: Final = "\t,:"
LINE_ENDS: Final = "\n\r"
CANNOT_KEEP: Final = (
    "The producer appends the records after what is there: their offsets and their order against newer records are "
    "lost. On a compacted topic an older value replaces a newer one of the same key.",
    "They get the time at which they are sent, a producer id of their own, and the partition that their key leads to; "
    "without a key, any. The transactions that they were written in are lost: aborted records, and those whose marker "
    "was not found, are left out.",
    "Sent twice, they are there twice. So are records that applications sent again after the election.",
)
"""What a producer cannot bring back, for people."""


def write_producer_input(
    out: Path, name: str, records: Path, markers: Sequence[Marker], aborted: Iterable[tuple[int, int, int]]
) -> tuple[WrittenFile, int, dict[str, int]]:
    """Writes the lines, by offset; the file, how many lines there are, and how many records were left out, by reason.

    Args:
        records: the file of JSON lines.
        aborted: (producer id, first offset, last offset) of aborted transactions.
    """
    ends = _Outcomes(markers, aborted)
    left_out: Counter[str] = Counter()
    count = 0
    with PrivateFile(out, name) as file:
        for record in _in_order(records):
            reason = ends.reason_to_leave_out(record)
            line = None if reason else _line(record)
            if line is None:
                left_out[reason or "no_line_of_text"] += 1
                continue
            file.write(line)
            count += 1
        return file.close(), count, dict(left_out)


def producer_command(topic: str, bootstrap_server: str, lines: str) -> str | None:
    """The command that sends the lines; None where no shell can name the topic or the file."""
    try:
        return (
            f"kafka-console-producer --bootstrap-server {quoted(bootstrap_server)} --topic {quoted(topic)} "
            f"--property parse.headers=true --property parse.key=true --property null.marker={NULL_MARKER} "
            f"< {quoted(lines)}"
        )
    except UnwritableError:
        return None


class _Outcomes:
    """Whether the transaction of a record was committed, by the markers that were found after it."""

    def __init__(self, markers: Sequence[Marker], aborted: Iterable[tuple[int, int, int]]) -> None:
        self._ends: dict[int, list[tuple[int, str]]] = defaultdict(list)
        for marker in markers:
            self._ends[marker.producer_id].append((marker.offset, marker.type))
        for producer_id, _, last_offset in aborted:
            self._ends[producer_id].append((last_offset, "ABORT"))
        for ends in self._ends.values():
            ends.sort()

    def reason_to_leave_out(self, record: Mapping[str, Any]) -> str | None:
        if not record["is_transactional"]:
            return None
        ends = self._ends.get(record["producer_id"], [])
        at = bisect_left(ends, (record["offset"], ""))
        if at == len(ends):
            return "transaction_without_marker"
        return None if ends[at][1] == "COMMIT" else "aborted"


def _in_order(records: Path) -> Iterator[Mapping[str, Any]]:
    """The records of the file by offset; only their places are in memory."""
    places: list[tuple[int, int, int]] = []
    position, is_sorted = 0, True
    with records.open("rb") as file:
        for line in file:
            head = json.loads(line)
            places.append((head["offset"], head["leader_epoch"], position))
            is_sorted = is_sorted and (len(places) < 2 or places[-2] < places[-1])
            position += len(line)
        for _, _, place in places if is_sorted else sorted(places):
            file.seek(place)
            yield json.loads(file.readline())


def _line(record: Mapping[str, Any]) -> bytes | None:
    """A record as the console producer reads it back exactly; None where no line can say it."""
    try:
        key, value = (_text(record[name]) for name in ("key", "value"))
        headers = [(header["key"], _text(header["value"])) for header in record["headers"]]
        parts = [part for header in headers for part in header]
        for part in (key, value, *parts):
            if any(end in part for end in LINE_ENDS):
                return None
        if "\t" in key or any(mark in part for part in parts for mark in SEPARATORS_OF_HEADERS):
            return None
        if any(name == NULL_MARKER for name, _ in headers):
            return None
        shown = ",".join(f"{name}:{text}" for name, text in headers) if headers else NULL_MARKER
        return f"{shown}\t{key}\t{value}\n".encode()
    except ValueError:
        return None


def _text(content: str | None) -> str:
    """The text of base64 content. Raises ValueError where it is no UTF-8, or reads as null."""
    if content is None:
        return NULL_MARKER
    text = base64.b64decode(content).decode("utf-8")
    if text == NULL_MARKER:
        raise ValueError(text)
    return text
