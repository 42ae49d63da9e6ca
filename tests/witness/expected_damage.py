"""What accidents of disks must show in the captures, by a run's truth.

Each is certain only where nothing else happened to the disks since: the rest may be found, or may not.
"""

from __future__ import annotations

from typing import Any

from tests.witness.truth import Truth

WIPES = frozenset({"wiped disk, same directory id", "several voters wiped at once"})


def altered_offsets(truth: Truth) -> set[int]:
    """Base offsets at which one captured disk holds an altered batch, and another one the batch as it was written."""
    found = set()
    for damage in truth.damage:
        if damage["label"] != "altered batch":
            continue
        at, altered_ms = damage["from_offset"], damage["time_ms"]
        altered = [line for line in _captures_of(truth, damage["node"]) if line["time_ms"] >= altered_ms]
        is_captured = any(
            _holds(line, damage["node"], damage) and not _has_changed(truth, damage["node"], damage, line)
            for line in altered
        )
        if is_captured and any(_holds_as_written(truth, node, damage) for node in _nodes(truth) - {damage["node"]}):
            found.add(at)
    return found


def emptied_voters(truth: Truth) -> set[int]:
    """Nodes of a whole quorum whose log was captured with committed records, and after a wipe as empty, last of all."""
    found = set()
    for damage in truth.damage:
        if damage["label"] not in WIPES or "from_offset" not in damage:
            continue
        node, wiped_ms = damage["node"], damage["time_ms"]
        captures = _captures_of(truth, node)
        before = [line for line in captures if line["time_ms"] < wiped_ms and _end(line, node) > 0]
        after = [line for line in captures if line["time_ms"] >= wiped_ms]
        is_only = sum(event.get("node") == node for event in truth.damage) == 1
        if before and after and is_only and all(_votes(line, node) and _end(line, node) == 0 for line in after):
            found.add(node)
    return found


def _nodes(truth: Truth) -> set[int]:
    return {node["node_id"] for line in truth.lines["capture"] for node in line["nodes"]}


def _captures_of(truth: Truth, node: int) -> list[dict[str, Any]]:
    return [line for line in truth.lines["capture"] if node in line["captured"]]


def _votes(line: dict[str, Any], node: int) -> bool:
    """Whether the leader of that moment counted a node among the voters; false where there was none."""
    return any(voter["id"] == node for voter in line["voters"])


def _row(line: dict[str, Any], node: int) -> dict[str, Any]:
    return next(row for row in line["nodes"] if row["node_id"] == node)


def _end(line: dict[str, Any], node: int) -> int:
    return int(_row(line, node)["log_end_offset"])


def _holds(line: dict[str, Any], node: int, damage: dict[str, Any]) -> bool:
    row = _row(line, node)
    return bool(row["log_start_offset"] <= damage["from_offset"] and damage["to_offset"] <= row["log_end_offset"])


def _has_changed(truth: Truth, node: int, damage: dict[str, Any], line: dict[str, Any]) -> bool:
    """Whether a node's disk was damaged again, or cut, between an accident and a capture, whichever was first."""
    first, last = sorted((damage["time_ms"], line["time_ms"]))
    events = [event for event in (*truth.damage, *truth.lines["truncated"]) if event.get("node") == node]
    return any(first <= event["time_ms"] <= last for event in events if event is not damage)


def _holds_as_written(truth: Truth, node: int, damage: dict[str, Any]) -> bool:
    """Whether a node had the batch when another disk's was altered, and a capture shows it as it was.

    What stands at these offsets on other nodes may be another batch: of before a wipe, or never committed.
    """
    return node in damage["held_by"] and any(
        _holds(line, node, damage) and not _has_changed(truth, node, damage, line) for line in _captures_of(truth, node)
    )
