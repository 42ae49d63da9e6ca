"""The two texts of kafka-metadata-quorum describe (MetadataQuorumCommand 4.3), from disks alone."""

from __future__ import annotations

import json
from typing import Any, Final

from kraft_audit.output import neutral

UNKNOWN: Final = -1
LABEL_CHARACTERS: Final = 24
HEADER: Final = (
    "NodeId",
    "DirectoryId",
    "LogEndOffset",
    "Lag",
    "LastFetchTimestamp",
    "LastCaughtUpTimestamp",
    "Status",
)
ZERO_DIRECTORY: Final = "AAAAAAAAAAAAAAAAAAAAAA"


def status_lines(cluster: dict[str, Any]) -> list[str]:
    """`describe --status`; lag times are known to a live leader alone."""
    fields = {
        "ClusterId": cluster["cluster_id"],
        "LeaderId": cluster["leader_id"],
        "LeaderEpoch": cluster["leader_epoch"],
        "HighWatermark": _high_watermark(cluster),
        "MaxFollowerLag": _max_follower_lag(cluster),
        "MaxFollowerLagTimeMs": 0 if [one["voter_id"] for one in cluster["voters"]] == [cluster["leader_id"]] else -1,
        "CurrentVoters": _nodes([_voter(voter) for voter in cluster["voters"]]),
        "CurrentObservers": _nodes(
            [_node(row["node_id"], row["directory_id"]) for row in _of_role(cluster, "observer")]
        ),
    }
    return [neutral(f"{name + ':':<{LABEL_CHARACTERS}}{value}") for name, value in fields.items()]


def replication_lines(cluster: dict[str, Any]) -> list[str]:
    """`describe --replication`: leader, followers, observers; what was not captured is -1."""
    rows: list[tuple[str, ...]] = [HEADER]
    by_node = {row["node_id"]: row for row in cluster["replicas"] if row["role"] in ("leader", "voter")}
    leader_id = cluster["leader_id"]
    leader_end = _end(by_node.get(leader_id))
    voters = [(voter["voter_id"], voter["directory_id"]) for voter in cluster["voters"]]
    if leader_id in by_node and leader_id not in dict(voters):
        voters.append((leader_id, by_node[leader_id]["directory_id"]))
    for node_id, directory_id in sorted(voters, key=lambda voter: (voter[0] != leader_id, voter[0])):
        status = "Leader" if node_id == leader_id else "Follower"
        rows.append(_row(node_id, directory_id, _end(by_node.get(node_id)), leader_end, status))
    for row in _of_role(cluster, "observer"):
        rows.append(_row(row["node_id"], row["directory_id"], _end(row), leader_end, "Observer"))
    widths = [max(len(row[place]) for row in rows) for place in range(len(HEADER))]
    return ["".join(f"{neutral(cell):<{width}}\t" for cell, width in zip(row, widths, strict=True)) for row in rows]


def _row(node_id: int, directory_id: str | None, end: int, leader_end: int, status: str) -> tuple[str, ...]:
    lag = UNKNOWN if UNKNOWN in (end, leader_end) else leader_end - end
    return (str(node_id), directory_id or ZERO_DIRECTORY, str(end), str(lag), str(UNKNOWN), str(UNKNOWN), status)


def _end(row: dict[str, Any] | None) -> int:
    end: int | None = None if row is None else row["log_end_offset"]
    return UNKNOWN if end is None else end


def _high_watermark(cluster: dict[str, Any]) -> str:
    low, high = cluster["committed_low"], cluster["committed_high"]
    if low is None:
        return str(UNKNOWN)
    if low == high:
        return str(low)
    return f"at least {low}" if high is None else f"{low} to {high}"


def _max_follower_lag(cluster: dict[str, Any]) -> int:
    """The leader's end less the smallest voter's, where all of them were captured."""
    ends = {row["node_id"]: _end(row) for row in cluster["replicas"] if row["role"] in ("leader", "voter")}
    leader_end = ends.get(cluster["leader_id"], UNKNOWN)
    theirs = [ends.get(voter["voter_id"], UNKNOWN) for voter in cluster["voters"]]
    return UNKNOWN if UNKNOWN in (leader_end, *theirs) or not theirs else leader_end - min(theirs)


def _of_role(cluster: dict[str, Any], role: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [row for row in cluster["replicas"] if row["role"] == role]
    return sorted(rows, key=lambda row: row["node_id"])


def _voter(voter: dict[str, Any]) -> dict[str, Any]:
    endpoints = [f"{one['name']}://{one['host']}:{one['port']}" for one in voter["endpoints"]]
    return _node(voter["voter_id"], voter["directory_id"]) | ({"endpoints": endpoints} if endpoints else {})


def _node(node_id: int, directory_id: str | None) -> dict[str, Any]:
    return {"id": node_id} | ({"directoryId": directory_id} if directory_id else {})


def _nodes(nodes: list[dict[str, Any]]) -> str:
    return "[" + ", ".join(json.dumps(node, ensure_ascii=False) for node in nodes) + "]"
