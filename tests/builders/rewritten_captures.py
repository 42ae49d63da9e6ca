"""Captures with other ids and times, everything else as it was: whatever a rule says of them it must say again.

Cluster ids and directory ids are replaced wherever they stand (meta.properties, quorum-state, records), each by a
random-looking one; every time of the log and of the files is moved by the same span, and CRCs are renewed. A batch that
was damaged stays damaged.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import struct
from dataclasses import dataclass
from pathlib import Path

from kraft_codec.records.batch import (
    CRC_POSITION,
    HEADER_BYTES,
    Batch,
    BatchHeader,
    computed_crc,
    read_batches,
    read_records,
)
from kraft_codec.records.record import write_control_key

MOVED_MS = -(37 * 86_400_000 + 12_345)
BASE_TIMESTAMP_POSITION = 27
SNAPSHOT_HEADER = 3
"""Its number in the key of a control record."""
LAST_CONTAINED_TIMESTAMP_POSITION = 2
"""In the value of a snapshot's header record, after its version (SnapshotHeaderRecord.json)."""
LOG_SUFFIXES = (".log", ".checkpoint", ".deleted")
TEXT_FILES = ("meta.properties", "quorum-state")


@dataclass(frozen=True, slots=True)
class Renamed:
    """Old → new: cluster ids and directory ids as text, directory ids as the 16 bytes that records hold."""

    cluster_ids: dict[str, str]
    directory_ids: dict[str, str]
    directory_bytes: dict[bytes, bytes]


def rewrite_captures(source: Path, target: Path) -> Renamed:
    """Writes the same tree with other ids and times below `target`."""
    properties = [path.read_text(encoding="utf-8") for path in sorted(source.rglob("meta.properties"))]
    renamed = _renamed(_values(properties, "cluster.id"), _values(properties, "directory.id"))
    for path in sorted(path for path in source.rglob("*") if path.is_file()):
        copy = target / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        content = path.read_bytes()
        if path.name in TEXT_FILES:
            content = _rewritten_text(content.decode(), renamed).encode()
        elif path.suffix in LOG_SUFFIXES:
            content = _rewritten_log(content, renamed)
        copy.write_bytes(content)
        moved_ns = path.stat().st_mtime_ns + MOVED_MS * 1_000_000
        os.utime(copy, ns=(moved_ns, moved_ns))
    return renamed


def _values(properties: list[str], key: str) -> list[str]:
    pattern = re.compile(rf"^{re.escape(key)}=(.+)$", re.MULTILINE)
    return sorted({value for text in properties for value in pattern.findall(text)})


def _renamed(cluster_ids: list[str], directory_ids: list[str]) -> Renamed:
    new_directories = {old: _new_id(old) for old in directory_ids}
    return Renamed(
        {old: _new_id(old) for old in cluster_ids},
        new_directories,
        {_id_bytes(old): _id_bytes(new) for old, new in new_directories.items()},
    )


def _new_id(old: str) -> str:
    """Another 16 bytes as Kafka writes them: base64url without padding, never with a dash in front."""
    digest = b"\x40" + hashlib.sha256(old.encode()).digest()[:15]
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def _id_bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "==")


def _rewritten_text(text: str, renamed: Renamed) -> str:
    for old, new in (*renamed.cluster_ids.items(), *renamed.directory_ids.items()):
        text = text.replace(f"={old}\n", f"={new}\n").replace(f'"{old}"', f'"{new}"')
    return text


def _rewritten_log(content: bytes, renamed: Renamed) -> bytes:
    rewritten = bytearray(content)
    for batch in read_batches(content):
        if isinstance(batch, Batch):
            _rewrite_batch(rewritten, batch.header, renamed)
            if batch.damage is None:
                crc = computed_crc(rewritten, batch.header)
                struct.pack_into(">I", rewritten, batch.header.position + CRC_POSITION, crc)
    return bytes(rewritten)


def _rewrite_batch(rewritten: bytearray, header: BatchHeader, renamed: Renamed) -> None:
    _move_time(rewritten, header.position + BASE_TIMESTAMP_POSITION)
    _move_time(rewritten, header.position + BASE_TIMESTAMP_POSITION + 8)
    start, end = header.position + HEADER_BYTES, header.position + header.size_bytes
    body = bytes(rewritten[start:end])
    for old, new in renamed.directory_bytes.items():
        body = body.replace(old, new)
    rewritten[start:end] = body
    if header.is_control:
        for record in read_records(rewritten, header):
            if record.key == write_control_key(SNAPSHOT_HEADER):
                _move_time(rewritten, record.value_position + LAST_CONTAINED_TIMESTAMP_POSITION)


def _move_time(rewritten: bytearray, position: int) -> None:
    (time_ms,) = struct.unpack_from(">q", rewritten, position)
    if time_ms > 0:
        struct.pack_into(">q", rewritten, position, time_ms + MOVED_MS)
