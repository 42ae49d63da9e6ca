"""A record that Kafka's controllers cannot apply, at the end of a controller's log."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kraft_codec.file_names import METADATA_LOG_DIR
from kraft_codec.records.batch import Batch, read_batches, write_batch
from kraft_codec.records.record import write_metadata_value

NO_TOPIC: Final = bytes(range(1, 17))


def poison(log_dirs: Sequence[Path]) -> None:
    """Gives stopped controllers one log, that of the one with most records, and the record at its end.

    It deletes a topic that was never there: RemoveTopicRecord of an unknown id ends the process that applies it.
    """
    segments = [max((log_dir / METADATA_LOG_DIR).glob("*.log")) for log_dir in log_dirs]
    longest = max(segments, key=lambda segment: segment.stat().st_size)
    _append(longest)
    for segment in segments:
        if segment != longest:
            assert segment.name == longest.name
            shutil.copy2(longest, segment)


def _append(segment: Path) -> None:
    last = None
    for batch in read_batches(segment.read_bytes()):
        assert isinstance(batch, Batch)
        last = batch.header
    assert last is not None
    value = write_metadata_value("RemoveTopicRecord", 0, {"topicId": NO_TOPIC})
    written = write_batch(
        base_offset=last.last_offset + 1,
        leader_epoch=last.leader_epoch,
        timestamp_ms=last.max_timestamp_ms,
        records=[(None, value)],
        is_control=False,
    )
    with segment.open("ab") as file:
        file.write(written)
