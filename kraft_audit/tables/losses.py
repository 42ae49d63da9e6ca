"""The table `losses` as a contract: every election that passed over acknowledged records, a row an event."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from kraft_audit.tables.contract import (
    BOOL,
    INT32,
    INT64,
    NODE_IDS,
    TEXT,
    Table,
    choice,
    list_of,
    nullable,
    required,
    struct_of,
)

HOLDER: Final = pa.struct(
    [
        pa.field("broker_id", INT32, nullable=False),
        pa.field("directory_id", TEXT, nullable=False),
        pa.field("is_witness", BOOL, nullable=False),
        pa.field("state_then", TEXT, nullable=False),
        pa.field("state_now", TEXT, nullable=False),
        pa.field("until_offset", INT64, nullable=True),
    ]
)
LOSSES: Final = Table(
    "losses",
    "silver",
    "one record of the metadata log that made a replica lead which may lack acknowledged or readable records",
    ("cluster_id", "topic_id", "partition", "leader_epoch"),
    "for ever",
    "A plan adds the events that it finds, and those whose holders changed; the newest row of a key holds.",
    (
        required("cluster_id", TEXT, "cluster id, 22 characters as Kafka prints it"),
        required("topic", TEXT, "topic name"),
        required("topic_id", TEXT, "topic id, 22 characters"),
        required("partition", INT32, "partition number"),
        required("leader_epoch", INT32, "leader epoch of the partition from the event on"),
        required("leader_id", INT32, "the replica that leads since"),
        required("replaced_leader_id", INT32, "who led just before, -1 for nobody"),
        required("offset", INT64, "offset of the event's record in the metadata log"),
        required("timestamp_ms", INT64, "append time of that record"),
        required("label", TEXT, "how it came to lead: unclean_election, last_known_leader, came_back_alone …"),
        choice("doubt", ("passed_over", "own_crash"), "whether others held more, or its own disk may lack its tail"),
        nullable("since_offset", INT64, "metadata offset from which on the leader may lack records; null: unknown"),
        nullable("since_ms", INT64, "append time of that record"),
        nullable("since_leader_epoch", INT32, "leader epoch of the partition then"),
        choice("grade", ("proven", "possible", "unflushed", "ruled_out"), "how sure the loss is"),
        required("severity", TEXT, "severity as of the event"),
        required("severity_now", TEXT, "severity with the holders as they are now"),
        nullable("from_offset", INT64, "nothing of the partition below it was lost; null: not known"),
        nullable("to_offset", INT64, "nothing of the partition from it on was lost; null: not known"),
        required(
            "lost_ranges",
            list_of(struct_of(leader_epoch=INT32, from_offset=INT64, to_offset=INT64)),
            "what disks prove to be lost",
        ),
        required("witnesses", NODE_IDS, "replicas that surely held every acknowledged record until the event"),
        required("holders", list_of(HOLDER), "who held what the leader may lack, the surest first"),
        nullable("saved_until", INT64, "metadata offset at which the last intact holder came back; null: none did"),
        required("evidence", list_of(TEXT), "what it rests on, one fact a line"),
        required("plan", INT64, "the plan that wrote this row; 0 where there is no ledger"),
    ),
)
