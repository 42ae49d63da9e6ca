"""`truth.jsonl` of an engine run, as the comparisons ask for it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

NO_DIRECTORY = "AAAAAAAAAAAAAAAAAAAAAA"
RECOVERY_STATES = ("RECOVERED", "RECOVERING")
STATE_COLUMNS = (
    "topic",
    "replicas",
    "isr",
    "elr",
    "last_known_elr",
    "adding_replicas",
    "removing_replicas",
    "directories",
    "leader",
    "leader_recovery_state",
    "leader_epoch",
    "partition_epoch",
)

VoterKeys = tuple[tuple[int, str | None], ...]
Subject = tuple[str, int]
PartitionState = dict[str, Any]


@dataclass(frozen=True)
class CaptureTruth:
    """What was committed when the first node of a capture was read, and when the last one was."""

    name: str
    committed_at_start: int
    committed_at_end: int
    moments: int


@dataclass
class Truth:
    """All lines of one run by their kind."""

    lines: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def of(cls, out: Path) -> Truth:
        truth = cls()
        with (out / "truth.jsonl").open(encoding="utf-8") as text:
            for line in text:
                fields = json.loads(line)
                truth.lines[fields["kind"]].append(fields)
        return truth

    @property
    def run(self) -> dict[str, Any]:
        return self.lines["run"][0]

    @property
    def committed_offset(self) -> int:
        return int(self.lines["end"][0]["committed_offset"])

    @property
    def damage(self) -> list[dict[str, Any]]:
        return self.lines["damage"]

    def damage_before(self, capture: str) -> list[dict[str, Any]]:
        """What was damaged before the last node of a capture was read."""
        read_ms = max(line["time_ms"] for line in self.lines["capture"] if line["capture"] == capture)
        return [damage for damage in self.damage if damage["time_ms"] <= read_ms]

    @cached_property
    def captures(self) -> dict[str, CaptureTruth]:
        found: dict[str, CaptureTruth] = {}
        for line in self.lines["capture"]:
            name, committed = line["capture"], line["committed_offset"]
            first = found.get(name)
            start = committed if first is None else first.committed_at_start
            found[name] = CaptureTruth(name, start, committed, 1 if first is None else first.moments + 1)
        return found

    def log_ends(self, capture: str) -> dict[int, int]:
        """Where each node's log ended when it was captured."""
        return {node["node_id"]: node["log_end_offset"] for node in self._captured(capture)}

    def _captured(self, capture: str) -> Iterator[dict[str, Any]]:
        """Each node as it was when it was captured."""
        for line in self.lines["capture"]:
            if line["capture"] == capture:
                yield from (node for node in line["nodes"] if node["node_id"] in line["captured"])

    def read_state(self, capture: str) -> dict[int, tuple[Any, ...]]:
        """What each node's disk held when it was captured: directory, first and end offset, last epoch and own epoch.

        Where two captures have the same, no disk says which was taken first.
        """
        names = ("directory_id", "log_start_offset", "log_end_offset", "last_epoch", "epoch")
        return {node["node_id"]: tuple(node[name] for name in names) for node in self._captured(capture)}

    def committed_epoch(self, offset: int) -> int | None:
        """The epoch of a committed record; None where nothing is committed at that offset."""
        for line in self.lines["committed_epoch"]:
            if line["from_offset"] <= offset < line["to_offset"]:
                return int(line["epoch"])
        return None

    def leader_of(self, epoch: int) -> int | None:
        return next((int(line["leader"]) for line in self.lines["elected"] if line["epoch"] == epoch), None)

    def committed_voters(self) -> list[tuple[int, VoterKeys]]:
        """(offset of its record, set), committed ones only, ascending."""
        found = {
            line["offset"]: voter_keys(line["voters"])
            for line in self.lines["voters"]
            if self.committed_epoch(line["offset"]) == line["epoch"]
        }
        return sorted(found.items())

    def appended_voters(self, offset: int, epoch: int) -> VoterKeys | None:
        """The set that a leader of that epoch appended at that offset, committed or not."""
        for line in self.lines["voters"]:
            if (line["offset"], line["epoch"]) == (offset, epoch):
                return voter_keys(line["voters"])
        return None

    @cached_property
    def partitions(self) -> dict[tuple[Subject, int], PartitionState]:
        """State of each changed partition by (partition, offset of the committed record)."""
        return {
            ((line["topic_id"], line["partition"]), line["offset"]): _state(line) for line in self.lines["partition"]
        }

    @cached_property
    def removals(self) -> dict[str, int]:
        """The offset at which each removed topic went."""
        return {line["topic_id"]: line["offset"] for line in self.lines["topic_removed"]}

    def partitions_at(self, offset: int) -> dict[Subject, PartitionState]:
        """Every partition as after the committed record at `offset`."""
        found: dict[Subject, PartitionState] = {}
        for (subject, changed_at), state in sorted(self.partitions.items(), key=lambda entry: entry[0][1]):
            if changed_at <= offset and self.removals.get(subject[0], offset + 1) > offset:
                found[subject] = state
        return found


def voter_keys(voters: list[Any]) -> VoterKeys:
    """Ids and directory ids, ascending; a directory that is not known is None."""
    keys = [(voter[0], None if voter[1] == NO_DIRECTORY else voter[1]) for voter in voters]
    return tuple(sorted(keys, key=lambda key: (key[0], key[1] or "")))


def _state(line: dict[str, Any]) -> PartitionState:
    state = {column: line[column] for column in STATE_COLUMNS}
    state["leader_recovery_state"] = RECOVERY_STATES[line["leader_recovery_state"]]
    return state
