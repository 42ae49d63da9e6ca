"""A batch of the metadata log as the engine moves it: made once by a leader, then shared by every replica.

Followers append the leader's bytes verbatim, so replicas share the object; `world.encoding` makes
its bytes when a log dir is written.
"""

from __future__ import annotations

from typing import Any

Record = tuple[str, int, dict[str, Any]]
"""A record: its schema name (a control record: its type's name), its version, its fields by their JSON names."""


# An estimate, for the limits of batches, segments and snapshots: bytes are only made when a directory is written.
BATCH_BYTES, RECORD_BYTES = 61, 90


class Batch:
    """One RecordBatch v2. `previous` is the batch that its leader's log held before it (None at the log's start).

    `operations` has, record by record, the offset at which the controller's operation that wrote it begins: a batch
    holds several that were appended within its linger. None where each batch is one, or none is known.
    """

    __slots__ = (
        "base_offset",
        "encoded",
        "end_offset",
        "epoch",
        "is_control",
        "operations",
        "previous",
        "records",
        "size_bytes",
        "timestamp_ms",
    )

    def __init__(
        self,
        base_offset: int,
        epoch: int,
        timestamp_ms: int,
        is_control: bool,
        records: tuple[Record, ...],
        previous: Batch | None,
        operations: tuple[int, ...] | None = None,
    ) -> None:
        self.base_offset = base_offset
        self.end_offset = base_offset + len(records)
        self.epoch = epoch
        self.timestamp_ms = timestamp_ms
        self.is_control = is_control
        self.records = records
        self.previous = previous
        self.operations = operations
        self.size_bytes = BATCH_BYTES + RECORD_BYTES * len(records)
        self.encoded: bytes | None = None

    def operation_of(self, index: int) -> int:
        """The offset at which the operation of a record begins."""
        return self.base_offset if self.operations is None else self.operations[index]

    def __repr__(self) -> str:
        names = ",".join(name for name, _, _ in self.records[:3])
        return f"Batch([{self.base_offset}, {self.end_offset}) epoch {self.epoch} {names})"
