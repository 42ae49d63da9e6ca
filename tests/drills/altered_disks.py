"""Controllers' disks with other bytes: a record that no controller can apply, an open transaction, damaged files."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from kraft_codec.file_names import METADATA_LOG_DIR
from kraft_codec.records.batch import Batch, read_batches, write_batch
from kraft_codec.records.record import write_metadata_value
from tests.drills.drill import Damage

NO_TOPIC: Final = bytes(range(1, 17))
POISON: Final = ("RemoveTopicRecord", {"topicId": NO_TOPIC})
"""It deletes a topic that was never there, and ends the process that applies it."""
OPEN_TRANSACTION: Final = (
    ("BeginTransactionRecord", {"name": "half"}),
    ("TopicRecord", {"name": "half", "topicId": NO_TOPIC}),
)


def append_alike(log_dirs: Sequence[Path], *records: tuple[str, Mapping[str, Any]]) -> None:
    """Gives stopped controllers one log, that of the one with most records, and these records at its end."""
    segments = [max((log_dir / METADATA_LOG_DIR).glob("*.log")) for log_dir in log_dirs]
    longest = max(segments, key=lambda segment: segment.stat().st_size)
    for name, fields in records:
        _append(longest, name, fields)
    for segment in segments:
        if segment != longest:
            assert segment.name == longest.name
            shutil.copy2(longest, segment)


def _append(segment: Path, name: str, fields: Mapping[str, Any]) -> None:
    last = None
    for batch in read_batches(segment.read_bytes()):
        assert isinstance(batch, Batch)
        last = batch.header
    assert last is not None
    written = write_batch(
        base_offset=last.last_offset + 1,
        leader_epoch=last.leader_epoch,
        timestamp_ms=last.max_timestamp_ms,
        records=[(None, write_metadata_value(name, 0, fields))],
        is_control=False,
    )
    with segment.open("ab") as file:
        file.write(written)


def newest_snapshot(log_dir: Path) -> Path | None:
    return max((log_dir / METADATA_LOG_DIR).glob("*.checkpoint"), default=None)


def do_damage(log_dir: Path, damage: Damage) -> None:
    """Damages the disk of a controller that is stopped."""
    folder, snapshot = log_dir / METADATA_LOG_DIR, newest_snapshot(log_dir)
    if damage is Damage.NO_QUORUM_STATE:
        (folder / "quorum-state").unlink()
    elif damage is Damage.SNAPSHOT_ALONE:
        for log in (*folder.glob("*.log"), *folder.glob("*.index"), *folder.glob("*.timeindex")):
            log.unlink()
    elif damage is Damage.NEWEST_SNAPSHOT:
        assert snapshot is not None
        _flip(snapshot, snapshot.stat().st_size // 2)
    else:
        segment = max(folder.glob("*.log"))
        batches = [batch for batch in read_batches(segment.read_bytes()) if isinstance(batch, Batch)]
        header = batches[len(batches) // 2].header
        _flip(segment, header.position + header.size_bytes - 1)


def _flip(file: Path, position: int) -> None:
    content = bytearray(file.read_bytes())
    content[position] ^= 0xFF
    file.chmod(0o600)
    file.write_bytes(content)
