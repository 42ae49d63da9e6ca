"""`truth.jsonl`: what really happened, one JSON object a line, beside the log dirs of a run.

Lines in order of time: `run` first, then events (`elected`, `voters`, `truncated`, `snapshot`, `capture`,
`acknowledged`, `data_lost`, `broker_crash`, `damage`, `damage_effect`, `committed_lost`: offsets that no disk holds any
more, `fault`, `happened`: what a story's brokers went through), then `committed_epoch` lines: which epoch's records
stand where in the committed log, and `partition` lines: the state of a partition as after the committed record at
`offset`, in log order (`replay_error` where the log contradicts itself), `metadata` lines: the committed records about
brokers, controllers, configs, features and ACLs;
`end` last. `batch` is the base offset of a record's batch, `operation` the offset at which the controller's operation
that wrote it begins; `held_by` of an altered batch are the nodes whose logs hold it as it was. Ids are Kafka's text
form; times are `time_ms` of an unskewed clock, `append_ms` of the leader's.

`data_lost`: the records [from_offset, to_offset) could be read, and the elected leader lacks them. Runs that follow
losses (`random-harsh`, stories with `follows_losses`) also say:

- `leader_epoch`, `election_offset`, `election_ms`: the election that lost them, and its record in the metadata log.
- `acknowledged`: how many of them were acknowledged to a producer with acks=all; the others were only readable.
  `ranges` splits this by the leader epoch of the lost records.
- `causes`: why the leader lacks them: `unflushed`, `emptied`, `deleted` (its replica was removed), `never held`.
- `holders`: the disks that held some of them at the election, up to `to_offset`, by the state of their brokers:
  `running`, `stopped` in order, `down`, or `offline` (the log dir had failed).

A leader that has not heard of an unclean election goes on: each record that it acknowledges then is a line of its own.
`copy_gone`: a holder does not hold them any more. `data_back`: a holder was elected later and brought them back.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kraft_codec.text.java_text import uuid_text
from kraft_engine.brokers.image import Image, ReplayError
from kraft_engine.brokers.partition import Partition
from kraft_engine.consensus.log_batches import Batch
from kraft_engine.invariants.run_invariants import RaftInvariants
from kraft_engine.world.processes import Cluster
from kraft_engine.world.world import EPOCH_MS, MS

ENGINE_VERSION = 1
METADATA_LINE_TYPES = frozenset(
    {
        *("RegisterBrokerRecord", "BrokerRegistrationChangeRecord", "UnregisterBrokerRecord"),
        *("FenceBrokerRecord", "UnfenceBrokerRecord", "RegisterControllerRecord", "UnregisterControllerRecord"),
        *("ConfigRecord", "FeatureLevelRecord", "AccessControlEntryRecord", "RemoveAccessControlEntryRecord"),
        *("BeginTransactionRecord", "EndTransactionRecord", "AbortTransactionRecord"),
    }
)


def plain(value: Any) -> Any:
    """A value as JSON holds it: 16 bytes as a uuid's text, tuples as lists."""
    if isinstance(value, bytes):
        return uuid_text(value) if len(value) == 16 else value.hex()
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(entry) for entry in (sorted(value) if isinstance(value, (set, frozenset)) else value)]
    return value


def moment(cluster: Cluster, invariants: RaftInvariants) -> dict[str, Any]:
    """What is true now: committed offset, leader and its own high watermark, the voter set in effect, every node's
    log.
    """
    ledger = invariants.ledger
    leader = cluster.leader()
    voters = leader.voters if leader is not None else None
    return {
        "committed_offset": ledger.committed_offset,
        "committed_epoch": ledger.committed_epoch,
        "leader_id": leader.id if leader is not None else -1,
        "leader_epoch": leader.epoch if leader is not None else -1,
        "high_watermark": leader.leader.high_watermark if leader is not None and leader.leader is not None else -1,
        "voters": [{"id": key[0], "directory_id": key[1]} for key in voters.keys] if voters is not None else [],
        "nodes": [
            {
                "node_id": process.id,
                "directory_id": process.disk.directory,
                "running": process.node is not None,
                "log_start_offset": process.disk.log.start_offset,
                "log_end_offset": process.disk.log.end_offset,
                "last_epoch": process.disk.log.last_epoch,
                "epoch": process.disk.visible_state.epoch if process.disk.visible_state is not None else 0,
            }
            for process in cluster.processes
        ],
    }


def partition_line(image: Image, offset: int, partition: Partition, batch: Batch, name: str) -> dict[str, Any]:
    """The state of a partition as after a record of type `name`."""
    topic = image.topics.get(partition.topic_id)
    where = {**_place(batch, offset), "type": name}
    return {"kind": "partition", **where, "topic": topic, **partition.state()}


def _place(batch: Batch, offset: int) -> dict[str, int]:
    """Where a record is, with its batch and its operation."""
    return {
        "offset": offset,
        "batch": batch.base_offset,
        "operation": batch.operation_of(offset - batch.base_offset),
        "append_ms": batch.timestamp_ms,
    }


def metadata_lines(batches: list[Batch]) -> list[dict[str, Any]]:
    """Committed records that are no partition's, and no secret: as they were written, with their place."""
    return [
        {
            "kind": "metadata",
            **_place(batch, batch.base_offset + index),
            "type": name,
            "fields": fields,
        }
        for batch in batches
        if not batch.is_control
        for index, (name, _, fields) in enumerate(batch.records)
        if name in METADATA_LINE_TYPES
    ]


def partition_lines(batches: list[Batch]) -> list[dict[str, Any]]:
    """The state of every partition that a committed record changed, as after that record."""
    image = Image()
    lines: list[dict[str, Any]] = []
    for batch in batches:
        if batch.is_control:
            continue
        for index, (name, _, fields) in enumerate(batch.records):
            offset = batch.base_offset + index
            before = _epochs(image) if name == "ClearElrRecord" else {}
            try:
                image.replay(name, fields)
            except ReplayError as error:
                lines.append({"kind": "replay_error", "offset": offset, "type": name, "detail": str(error)})
                continue
            if name in ("PartitionRecord", "PartitionChangeRecord"):
                partition = image.partitions[fields["topicId"]][fields["partitionId"]]
                lines.append(partition_line(image, offset, partition, batch, name))
            elif name == "ClearElrRecord":
                lines += [
                    partition_line(image, offset, partition, batch, name)
                    for partition in image.all_partitions()
                    if before.get((partition.topic_id, partition.index)) != partition.partition_epoch
                ]
            elif name == "RemoveTopicRecord":
                lines.append({"kind": "topic_removed", "offset": offset, "topic_id": fields["topicId"]})
    return lines


def committed_epoch_lines(batches: list[Batch]) -> list[dict[str, Any]]:
    """The epochs of the committed log, half-open offsets, ascending."""
    lines: list[dict[str, Any]] = []
    for batch in batches:
        if not lines or lines[-1]["epoch"] != batch.epoch:
            start = {"epoch": batch.epoch, "from_offset": batch.base_offset, "to_offset": batch.end_offset}
            lines.append({"kind": "committed_epoch", **start})
        lines[-1]["to_offset"] = batch.end_offset
    return lines


def membership_lines(batches: list[Batch]) -> list[dict[str, Any]]:
    """Committed epochs and voter records, in log order: `leader_epoch`, `voter_record`, `kraft_version`."""
    lines: list[dict[str, Any]] = []
    for batch in batches:
        if not batch.is_control:
            continue
        for index, (name, _, fields) in enumerate(batch.records):
            offset = batch.base_offset + index
            if name == "LEADER_CHANGE":
                lines.append(
                    {
                        "kind": "leader_epoch",
                        "offset": offset,
                        "epoch": batch.epoch,
                        "leader": fields["leaderId"],
                        "voters": [voter["voterId"] for voter in fields["voters"]],
                        "granting_voters": [voter["voterId"] for voter in fields["grantingVoters"]],
                    }
                )
            elif name == "KRAFT_VERSION":
                lines.append({"kind": "kraft_version", "offset": offset, "version": fields["kRaftVersion"]})
            else:
                lines.append({"kind": "voter_record", "offset": offset, "epoch": batch.epoch, "type": name, **fields})
    return lines


def _epochs(image: Image) -> dict[tuple[bytes, int], int]:
    return {(partition.topic_id, partition.index): partition.partition_epoch for partition in image.all_partitions()}


def write_truth(path: Path, head: dict[str, Any], cluster: Cluster, invariants: RaftInvariants) -> None:
    """Writes the whole file at the end of a run."""
    lines: list[dict[str, Any]] = [{"kind": "run", "engine_version": ENGINE_VERSION, **head}]
    for time_us, kind, fields in invariants.events:
        lines.append({"time_ms": EPOCH_MS + time_us // MS, "kind": kind, **fields})
    lines += committed_epoch_lines(invariants.ledger.batches)
    lines += membership_lines(invariants.ledger.batches)
    lines += partition_lines(invariants.ledger.batches)
    lines += metadata_lines(invariants.ledger.batches)
    lines.append(
        {
            "time_ms": EPOCH_MS + cluster.world.now_us // MS,
            "kind": "end",
            "events": cluster.world.event_count,
            "beyond_model": list(invariants.beyond_model),
            **moment(cluster, invariants),
        }
    )
    text = "".join(json.dumps(plain(line), separators=(",", ":"), sort_keys=False) + "\n" for line in lines)
    path.write_text(text, encoding="utf-8")
