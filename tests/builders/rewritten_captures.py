"""Captures with other ids, times and offsets, everything else as it was: what a rule says of them it must say again.

Node ids, cluster ids, directory ids and all other random ids are replaced wherever they stand (meta.properties,
quorum-state, records); every time of the log and of the files is moved by the same span. Offsets grow by the same
number from the end of the first data on: a log that holds its first data holds as many NoOp records after it, so that
it still begins at offset 0, and every other log begins so much later. File names, checkpoints, indexes and CRCs follow.
A batch that was damaged stays damaged.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from kraft_codec.errors import CodecError
from kraft_codec.file_names import METADATA_LOG_DIR, FileKind, parse_file_name
from kraft_codec.files.properties import format_meta_properties, parse_meta_properties
from kraft_codec.files.state_files import (
    format_clean_shutdown,
    format_leader_epoch_checkpoint,
    format_offset_checkpoint,
    format_quorum_state,
    parse_clean_shutdown,
    parse_leader_epoch_checkpoint,
    parse_offset_checkpoint,
    parse_quorum_state,
)
from tests.builders.renaming import NO_OFFSET_MOVES, Renaming
from tests.builders.rewritten_logs import (
    end_of_first_data,
    rewritten_offset_index,
    rewritten_segment,
    rewritten_snapshot,
    rewritten_time_index,
)

META_PROPERTIES = "meta.properties"
DATE = "%a %b %d %H:%M:%S UTC %Y"
"""As `java.util.Properties` notes a time."""


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The renaming of each folder, by its path below the root, and the cluster ids that were replaced."""

    renamings: dict[str, Renaming]
    cluster_ids: frozenset[str]


def rewrite_captures(source: Path, target: Path, *, is_identity: bool = False) -> Rewritten:
    """Writes the same tree with other names below `target`; with `is_identity`, with the same."""
    files = sorted(path for path in source.rglob("*") if path.is_file())
    cluster_ids = {path.parent: _cluster_id(path) for path in files if path.name == META_PROPERTIES}
    renamings = _renamings({path.parent for path in files}, cluster_ids, is_identity)
    for path in files:
        renaming = renamings[path.parent]
        copy = target / path.parent.relative_to(source) / _new_name(path.name, renaming)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(_new_content(path, renaming))
        time_ms, rest_ns = divmod(path.stat().st_mtime_ns, 1_000_000)
        moved_ns = renaming.time(time_ms) * 1_000_000 + rest_ns
        os.utime(copy, ns=(moved_ns, moved_ns))
    by_path = {folder.relative_to(source).as_posix(): renaming for folder, renaming in renamings.items()}
    return Rewritten(by_path, frozenset(cluster_ids.values()))


def _cluster_id(path: Path) -> str:
    return parse_meta_properties(path.read_bytes()).cluster_id or ""


def _renamings(folders: set[Path], cluster_ids: Mapping[Path, str], is_identity: bool) -> dict[Path, Renaming]:
    """For each folder from which offset on its log's offsets move: after its first data; for a log that begins later,
    where another log of the same cluster id says; never offset 0."""

    def node_dir(folder: Path) -> Path:
        return folder.parent if folder.name == METADATA_LOG_DIR else folder

    ends = {node_dir(folder): end_of_first_data(folder) for folder in folders if folder.name == METADATA_LOG_DIR}
    known: dict[str, int] = {}
    for folder, end in sorted(ends.items()):
        if end is not None and end != NO_OFFSET_MOVES:
            known.setdefault(cluster_ids.get(folder, ""), end)
    renamings = {}
    for folder in sorted(folders):
        end = ends.get(node_dir(folder))
        first_moved = known.get(cluster_ids.get(node_dir(folder), ""), 1) if end is None else end
        renamings[folder] = Renaming(first_moved, is_identity)
    return renamings


def _new_name(name: str, renaming: Renaming) -> str:
    parsed = parse_file_name(name)
    if parsed is None or parsed.base_offset is None:
        return name
    return f"{renaming.offset(parsed.base_offset):020d}{name[20:]}"


def _new_content(path: Path, renaming: Renaming) -> bytes:
    content, parsed = path.read_bytes(), parse_file_name(path.name)
    if parsed is None or not content:
        return content
    try:
        if parsed.kind in _STATE_FILES:
            return _STATE_FILES[parsed.kind](content, renaming)
        if ".checkpoint" in path.name:
            return rewritten_snapshot(content, renaming)
        if parsed.base_offset is not None and ".log" in path.name:
            return rewritten_segment(content, renaming)
        if parsed.base_offset is not None and parsed.kind is FileKind.OFFSET_INDEX:
            return rewritten_offset_index(content, path.with_suffix(".log"), parsed.base_offset, renaming)
        if parsed.base_offset is not None and parsed.kind is FileKind.TIME_INDEX:
            return rewritten_time_index(content, parsed.base_offset, renaming)
    except CodecError:  # a damaged file stays as it is
        pass
    return content


def _meta_properties(content: bytes, renaming: Renaming) -> bytes:
    meta = parse_meta_properties(content)
    changes = {
        "cluster.id": renaming.uuid_text,
        "directory.id": renaming.uuid_text,
        "node.id": lambda text: str(renaming.node(int(text))),
        "broker.id": lambda text: str(renaming.node(int(text))),
    }
    entries = tuple((key, changes.get(key, str)(value)) for key, value in meta.entries)
    comments = tuple(_moved_date(comment, renaming) for comment in meta.comments)
    return format_meta_properties(replace(meta, entries=entries, comments=comments))


def _moved_date(comment: str, renaming: Renaming) -> str:
    try:
        moment = datetime.strptime(comment, DATE).replace(tzinfo=UTC)
    except ValueError:
        return comment
    return datetime.fromtimestamp(renaming.time(int(moment.timestamp()) * 1000) / 1000, UTC).strftime(DATE)


def _quorum_state(content: bytes, renaming: Renaming) -> bytes:
    state = parse_quorum_state(content)
    voters, directory = state.current_voters, state.voted_directory_id
    return format_quorum_state(
        replace(
            state,
            leader_id=renaming.node(state.leader_id),
            voted_id=renaming.node(state.voted_id),
            voted_directory_id=None if directory is None else renaming.uuid_text(directory),
            cluster_id=renaming.uuid_text(state.cluster_id),
            applied_offset=renaming.offset(state.applied_offset),
            current_voters=None if voters is None else tuple(renaming.node(voter) for voter in voters),
        )
    )


def _leader_epoch_checkpoint(content: bytes, renaming: Renaming) -> bytes:
    entries = parse_leader_epoch_checkpoint(content)
    return format_leader_epoch_checkpoint(
        tuple(replace(entry, start_offset=renaming.offset(entry.start_offset)) for entry in entries)
    )


def _offset_checkpoint(content: bytes, renaming: Renaming) -> bytes:
    return format_offset_checkpoint(
        tuple(
            replace(entry, offset=renaming.offset(entry.offset))
            if f"{entry.topic}-{entry.partition}" == METADATA_LOG_DIR
            else entry
            for entry in parse_offset_checkpoint(content)
        )
    )


def _clean_shutdown(content: bytes, renaming: Renaming) -> bytes:
    shutdown = parse_clean_shutdown(content)
    if shutdown.broker_epoch is None:
        return content
    return format_clean_shutdown(replace(shutdown, broker_epoch=renaming.offset(shutdown.broker_epoch)))


_STATE_FILES: dict[FileKind, Callable[[bytes, Renaming], bytes]] = {
    FileKind.META_PROPERTIES: _meta_properties,
    FileKind.QUORUM_STATE: _quorum_state,
    FileKind.LEADER_EPOCH_CHECKPOINT: _leader_epoch_checkpoint,
    FileKind.OFFSET_CHECKPOINT: _offset_checkpoint,
    FileKind.CLEAN_SHUTDOWN: _clean_shutdown,
}
