"""Whether a log is shorter than it was: it ends below an offset that a file beside it says the log had reached.

Two files say so. leader-epoch-checkpoint gets an epoch with its first record (LeaderEpochFileCache), and the name of a
`.snapshot`, the state of producers, is the log's end when Kafka rolled a segment, closed the log or recovered it
(ProducerStateManager.takeSnapshot, Kafka 4.3.0). Both are cut back when the log is (UnifiedLog.truncateTo), and neither
is written before the records below it were flushed. At the log's very end they prove nothing: a new leader lists its
epoch before it writes, and a clean stop names the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kraft_codec.file_names import producer_state_name

CHECKPOINT_NAME: Final = "leader-epoch-checkpoint"


@dataclass(frozen=True, slots=True)
class ReachedEnd:
    """The log had reached `offset` when `file` was written; `epoch` began there, where the file names epochs."""

    offset: int
    epoch: int | None
    file: str

    def text(self, nodes: str | None = None) -> str:
        """What the file says of the log; of the file of some nodes, which are named so."""
        file = self.file if nodes is None else f"{self.file} of {nodes}"
        if self.epoch is None:
            return f"{file} was written when the log ended at offset {self.offset}"
        return f"{file} says that epoch {self.epoch} began at offset {self.offset}"


def reached_end(
    epochs: Iterable[tuple[int, int]], producer_state_offset: int | None, snapshot_end: int | None
) -> ReachedEnd | None:
    """How far a log went at least, by the files beside it; None where none of them says it.

    Args:
        epochs: (start offset, epoch) of each entry of leader-epoch-checkpoint.
        producer_state_offset: the highest offset in the name of a `.snapshot`; None without one.
        snapshot_end: the end offset of the newest complete snapshot: Kafka raises the first entry to it, whatever the
            log is that it was copied with.
    """
    entries = sorted(epochs)
    if entries and entries[0][0] == snapshot_end:
        entries = entries[1:]
    start, epoch = entries[-1] if entries else (-1, -1)
    if producer_state_offset is not None and producer_state_offset > start:
        return ReachedEnd(producer_state_offset, None, producer_state_name(producer_state_offset))
    return None if start < 0 else ReachedEnd(start, epoch, CHECKPOINT_NAME)


def beyond_end(
    epochs: Iterable[tuple[int, int]],
    producer_state_offset: int | None,
    snapshot_end: int | None,
    log_end: int | None,
    *,
    is_damaged: bool,
) -> ReachedEnd | None:
    """`reached_end` where it lies beyond the log's end: the log is shorter than it was. None where it does not.

    The rest of the log may stand in damaged bytes: then the damage is said, and a `.snapshot` that names the end of the
    log before it adds nothing.
    """
    reached = reached_end(epochs, None if is_damaged else producer_state_offset, snapshot_end)
    return None if reached is None or log_end is None or reached.offset <= log_end else reached


def row_reached(row: Mapping[str, Any]) -> ReachedEnd | None:
    """`reached_end` of a row of `captures`."""
    return reached_end(_epochs(row), row.get("producer_state_offset"), row["snapshot_end_offset"])


def shorter_than_it_was(row: Mapping[str, Any]) -> ReachedEnd | None:
    """`beyond_end` of a row of `captures`: what says that its log is shorter than it was."""
    is_damaged = bool(row["bytes_quarantined"] or row["bytes_unread"])
    producer_state_offset = row.get("producer_state_offset")
    return beyond_end(
        _epochs(row), producer_state_offset, row["snapshot_end_offset"], row["log_end_offset"], is_damaged=is_damaged
    )


def _epochs(row: Mapping[str, Any]) -> list[tuple[int, int]]:
    return [(entry["start_offset"], entry["epoch"]) for entry in row["leader_epoch_checkpoint"] or ()]
