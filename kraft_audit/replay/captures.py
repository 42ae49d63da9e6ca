"""Rows of `captures` and `files`: what was read of each replica, and how far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from kraft_audit.replay.damage import FileTally
from kraft_audit.replay.replica import Replica
from kraft_codec.file_names import FileKind, printable
from kraft_codec.tables import CAPTURES, FILES, build_rows


def captures_batch(replicas: Sequence[Replica]) -> pa.RecordBatch:
    """One row of `captures` for each replica."""
    return build_rows(CAPTURES, [_capture(replica) for replica in replicas])


def _capture(replica: Replica) -> dict[str, Any]:
    tallies = list(replica.tallies.values())
    segments = [tally for tally in tallies if tally.kind is FileKind.SEGMENT]
    log = replica.log
    epochs = replica.leader_epochs
    return {
        **replica.source_columns(),
        "medium": replica.plan.medium,
        "accepted": replica.is_accepted,
        "meta_version": replica.meta.version if replica.meta else None,
        "meta_cluster_id": replica.meta.cluster_id if replica.meta else None,
        **_quorum_state(replica),
        "log_start_offset": log.first_offset if log else None,
        "log_end_offset": log.end_offset if log else None,
        "last_epoch": log.last_epoch if log else None,
        "last_crc": log.last_crc if log else None,
        "last_timestamp_ms": log.last_timestamp_ms if log else None,
        "reachable_end_offset": log.reachable_end_offset if log else None,
        "snapshot_end_offset": replica.snapshots.end_offset,
        "snapshot_epoch": replica.snapshots.epoch,
        "snapshot_count": replica.snapshots.count,
        "leader_epoch_checkpoint": None
        if epochs is None
        else [{"epoch": entry.epoch, "start_offset": entry.start_offset} for entry in epochs],
        "batch_count": sum(tally.batch_count for tally in segments),
        "record_count": sum(tally.record_count for tally in segments),
        "bytes_seen": sum(tally.plan.size_bytes for tally in tallies),
        "bytes_decoded": sum(tally.bytes_decoded for tally in tallies),
        "bytes_quarantined": sum(tally.bytes_quarantined for tally in tallies),
        "bytes_unread": sum(tally.bytes_unread for tally in tallies),
        "damage_count": replica.damage.count,
        "read_from_ms": replica.read_from_ms,
        "read_to_ms": replica.read_to_ms,
    }


def _quorum_state(replica: Replica) -> dict[str, Any]:
    state = replica.quorum_state
    voters = state.current_voters if state and state.data_version == 0 else None
    return {
        "data_version": state.data_version if state else None,
        "leader_id": state.leader_id if state else None,
        "leader_epoch": state.leader_epoch if state else None,
        "voted_id": state.voted_id if state else None,
        "voted_directory_id": state.voted_directory_id if state else None,
        "current_voters": None if voters is None else list(voters),
    }


def files_batch(replicas: Sequence[Replica]) -> pa.RecordBatch:
    """One row of `files` for each planned file, and for each that an earlier plan knew and that is gone."""
    rows = []
    for replica in replicas:
        shared = replica.source_columns()
        rows += [_file(shared, tally, is_present=True) for tally in replica.tallies.values()]
        rows += [_file(shared, FileTally.resumed(file), is_present=False) for file in replica.plan.gone_files]
    return build_rows(FILES, rows)


def _file(shared: dict[str, Any], tally: FileTally, *, is_present: bool) -> dict[str, Any]:
    last = tally.last_batch
    return {
        **shared,
        "file_name": printable(tally.plan.name),
        "kind": str(tally.plan.kind),
        "base_offset": tally.plan.base_offset,
        "epoch": tally.plan.epoch,
        "present": is_present,
        "size_bytes": tally.plan.size_bytes,
        "mtime_ms": tally.plan.mtime_ms,
        "scanned_to": tally.scanned_to,
        "last_position": last.position if last else None,
        "last_base_offset": last.base_offset if last else None,
        "last_offset": last.last_offset if last else None,
        "last_leader_epoch": last.leader_epoch if last else None,
        "last_crc": last.crc if last else None,
        "batch_count": tally.batch_count,
        "record_count": tally.record_count,
        "damage_count": tally.damage_count,
        "bytes_seen": tally.plan.size_bytes,
        "bytes_decoded": tally.bytes_decoded,
        "bytes_quarantined": tally.bytes_quarantined,
        "bytes_unread": tally.bytes_unread,
    }
