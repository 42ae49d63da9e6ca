"""Rules about offsets that a log skips, repeats or begins after, and what to do with such a disk.

Which other voters hold its records decides that, and how a disk is replaced on this quorum.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from kraft_audit.capture.continuity import is_repeated
from kraft_audit.quorum.controller_commands import add_controller, format_disk, remove_controller
from kraft_audit.quorum.quorum_evidence import majority
from kraft_audit.rules.cluster_history import ClusterHistory, TableRow
from kraft_audit.rules.columns.captures import captures_in_order, newest_captures, replica_end
from kraft_audit.rules.columns.server_addresses import controller_server
from kraft_audit.rules.columns.voter_sets import current_set
from kraft_audit.rules.families.log_files import damage_case, damage_rows
from kraft_audit.rules.registry import rule, words_for
from kraft_audit.rules.rule_model import Case, Thresholds
from kraft_audit.text.readable import nouns
from kraft_codec.errors import Reason
from kraft_codec.files.logdir import MISSING_FILES

GAPS: Final = {Reason.GAP, Reason.OVERLAP, Reason.SNAPSHOT_MISSING}
_FILE_NAME: Final = re.compile(r"[0-9]{20}\.log")


@rule("KQ007", control="log_integrity", needs=("captures", "batches", "decode_errors"))
def kq007(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    captures = {(row["root"], row["path"]): row for row in captures_in_order(history)}
    for row in damage_rows(history, GAPS):
        if is_repeated(row["reason"], row["detail"]):
            yield damage_case(row, row["detail"], **words_for("KQ007", "repeated"))
            continue
        capture = captures.get((row["root"], row["path"]))
        advice: dict[str, Any] = {} if capture is None else {"what_to_do": _advice(history, row, capture)}
        yield damage_case(row, row["detail"], **advice)


def _advice(history: ClusterHistory, row: TableRow, capture: TableRow) -> str:
    """By the other voters that hold what is missing: all before the log's start, or before the batch after the gap."""
    to_offset = capture["log_start_offset"] if row["reason"] == Reason.SNAPSHOT_MISSING else row["base_offset"]
    others = other_voters(history, capture["node_id"], int(to_offset or 0))
    _, _, named = row["detail"].partition(MISSING_FILES)
    file = _FILE_NAME.search(named)
    return advice_for_lost_records(history, capture, others, None if file is None else file.group())


@dataclass(frozen=True, slots=True)
class OtherVoters:
    """The voters but for one node: `holders` surely hold some records, `unknown` were not captured."""

    count: int
    holders: tuple[int, ...]
    unknown: tuple[int, ...]
    is_majority: bool


def other_voters(history: ClusterHistory, node_id: int | None, to_offset: int) -> OtherVoters:
    """Which other voters hold everything before an offset; disks with a gap of their own do not count."""
    voter_set = current_set(history)
    ids = {voter["voter_id"] for voter in voter_set["voters"]} if voter_set else set()
    damaged = {(row["root"], row["path"]) for row in history.rows("decode_errors") if row["reason"] in _UNSURE}
    captured = {row["node_id"]: row for row in newest_captures(history) if row["node_id"] in ids - {node_id}}
    holders = tuple(
        sorted(id_ for id_, row in captured.items() if replica_end(row) >= to_offset and _place(row) not in damaged)
    )
    unknown = tuple(sorted(ids - captured.keys() - {node_id}))
    return OtherVoters(len(ids - {node_id}), holders, unknown, bool(ids) and len(holders) >= majority(len(ids)))


_UNSURE = frozenset({"GAP", "SNAPSHOT_MISSING", "BAD_CRC", "BAD_LENGTH", "BAD_MAGIC", "UNREADABLE"})


def _place(row: TableRow) -> tuple[str, str]:
    return row["root"], row["path"]


def advice_for_lost_records(history: ClusterHistory, row: TableRow, others: OtherVoters, file: str | None) -> str:
    """What to do with a disk that lacks records which it should have, by the number of others that hold them."""
    wanted = f"find {file}" if file else "find the missing segment or snapshot"
    search = f"{wanted[0].upper()}{wanted[1:]} (a backup, another copy of this folder)"
    if others.is_majority:
        held = f"{nouns('Node', others.holders)} hold these records"
        return f"{held}. Keep a copy of this disk, then replace it. {replacement(history, row)}"
    if others.holders:
        hold = "hold" if len(others.holders) > 1 else "holds"
        held = f"Of the other voters only {nouns('node', others.holders)} surely {hold} these records"
        return f"{held}: copy that disk before anything else, and wipe neither. {search}."
    if others.unknown:
        return (
            f"Copy {nouns('voter', others.unknown)} too and check again: their disks may hold these records. Wipe none."
        )
    return f"No other voter holds these records: do not wipe or replace this disk. {search} and put it back."


def replacement(history: ClusterHistory, row: TableRow) -> str:
    """How a voter's disk is replaced: KIP-853's tool from kraft.version 1 on, else by formatting it again."""
    voter_set, node_id = current_set(history), row["node_id"]
    format_it = format_disk(history.cluster_id, joins=False)
    voters = [] if voter_set is None else voter_set["voters"]
    if voter_set is None or node_id not in {voter["voter_id"] for voter in voters}:
        return f"Stop the node, empty its metadata folder, {format_it}, start it: it fetches the log."
    if voter_set["kraft_version"] < 1:
        return f"Stop node {node_id}, {format_it} on an empty disk, start it while the others run: it fetches the log."
    server = controller_server(history, sorted(voter["voter_id"] for voter in voters if voter["voter_id"] != node_id))
    directory = next(voter["directory_id"] for voter in voters if voter["voter_id"] == node_id)
    return (
        f"Stop node {node_id}, then: {remove_controller(server, node_id, directory)}; "
        f"{format_disk(history.cluster_id, joins=True)} on an empty disk; start it; "
        f"{add_controller(server)}"
    )
