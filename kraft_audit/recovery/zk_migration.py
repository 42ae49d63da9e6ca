"""Whether a cluster is in the middle of its migration from ZooKeeper, which Kafka 3.4 to 3.9 could do."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa

from kraft_audit.capture.plan import Selection

MIGRATION_RECORD: Final = "ZK_MIGRATION_STATE_RECORD"
LEVELS_THAT_MIGRATE: Final = range(8, 22)
"""metadata.version 3.4-IV0 to 3.9-IV0: no other release writes or obeys the record."""
UNFINISHED_MIGRATION: Final = (1, 2)
"""PRE_MIGRATION and MIGRATION (ZkMigrationState.inProgress, Kafka 3.9)."""


def is_migrating(read_records: Callable[[Selection], pa.Table]) -> bool:
    """Whether the last state that the log or a snapshot holds is unfinished, by rows of the table `records`."""
    rows = read_records(Selection(record_types=(MIGRATION_RECORD,))).to_pylist()
    states = {_place(row): json.loads(row["record"]) for row in rows if row["record"] is not None}
    return bool(states) and states[max(states)]["zkMigrationState"] in UNFINISHED_MIGRATION


def _place(row: Mapping[str, Any]) -> tuple[int, int]:
    """Where in the log a record stands: the records of a snapshot before its end."""
    if row["source"] == "log":
        return row["leader_epoch"], row["offset"]
    end_offset, _, epoch = row["source"].partition("-")
    return (int(epoch), int(end_offset) - 1) if end_offset.isdigit() else (-1, -1)
