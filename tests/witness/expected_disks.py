"""What a run's truth says of the disks that were read, and of the voters, for the rules that judge them.

The truth tells where each log ended, not its batches. So each rule gets two sets: what it must name, and what it may.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.witness.cluster_states import states_of
from tests.witness.truth import NO_DIRECTORY, Truth, VoterKeys

MAX_LAG_RECORDS = 1_000
"""The default of KV013 and KV014."""
MAX_EPOCHS_AN_HOUR, MAX_BURNT_EPOCHS = 12, 20
"""The defaults of KQ016; no run lasts an hour."""
RULES = ("KQ001", "KQ016", "KV005", "KV006", "KV008", "KV013", "KV014", "KV016")


@dataclass(frozen=True, slots=True)
class Reading:
    """One log dir when it was captured: half-open log, epoch of its last record."""

    node_id: int
    directory_id: str
    start_offset: int
    end_offset: int
    last_epoch: int


@dataclass(frozen=True, slots=True)
class Expectation:
    """Subjects that a rule must name, and those that it may."""

    must: frozenset[str]
    may: frozenset[str]


def readings(truth: Truth) -> Iterator[Reading]:
    for line in truth.lines["capture"]:
        for node in line["nodes"]:
            if node["node_id"] in line["captured"]:
                yield Reading(
                    node["node_id"],
                    node["directory_id"],
                    node["log_start_offset"],
                    node["log_end_offset"],
                    node["last_epoch"],
                )


def torn_tails(truth: Truth) -> Iterator[str]:
    """Where crashes cut writes short, in every log that was captured before it was recovered."""
    for line in truth.lines["capture"]:
        for torn in line["torn"]:
            file = f"__cluster_metadata-0/{torn['base_offset']:020d}.log"
            yield f"node {torn['node_id']} {file} at byte {torn['position']}"


def expected_of_disks(truth: Truth, *, log_start: int, reached: int, judged_to: int) -> dict[str, Expectation]:
    """By rule; the canonical log that was captured is [log_start, reached); nothing is judged from `judged_to` on."""
    read = list(readings(truth))
    return {
        "KQ001": _divergent(truth, read, log_start, reached),
        "KQ016": _storm(truth, log_start, reached),
        "KV005": _open_sets(truth),
        "KV006": _reverted(truth, read, log_start, judged_to),
        **_voters(truth, read, reached),
    }


def _divergent(truth: Truth, read: list[Reading], log_start: int, reached: int) -> Expectation:
    """A log whose last record is a committed one is committed below it, too (Raft's log matching)."""
    must, may = set(), set()
    for one in read:
        last = one.end_offset - 1
        if one.end_offset <= one.start_offset or truth.committed_epoch(last) == one.last_epoch:
            continue
        may.add(f"node {one.node_id}")
        if log_start <= last < reached:
            must.add(f"node {one.node_id}")
    return Expectation(frozenset(must), frozenset(may))


def _storm(truth: Truth, log_start: int, reached: int) -> Expectation:
    """Epochs that the captured log holds records of; those that elected nobody are bounded by what disks persisted."""
    epochs = truth.lines["committed_epoch"]
    held = [line for line in epochs if line["from_offset"] < reached and line["to_offset"] > log_start]
    newest = max((node["epoch"] for line in truth.lines["capture"] for node in line["nodes"]), default=0)
    storm = frozenset({"leader epochs"})
    may = storm if len(epochs) > MAX_EPOCHS_AN_HOUR else frozenset()
    if newest - len(epochs) > MAX_BURNT_EPOCHS:
        may |= {"burnt epochs"}
    return Expectation(storm if len(held) > MAX_EPOCHS_AN_HOUR else frozenset(), may)


def _open_sets(truth: Truth) -> Expectation:
    """Sets that were not committed when the last capture was begun, or never."""
    last = truth.captures[truth.run["captures"][-1]].committed_at_start
    may = (
        f"voter set at offset {line['offset']}, epoch {line['epoch']}"
        for line in truth.lines["voters"]
        if line["offset"] >= last or truth.committed_epoch(line["offset"]) != line["epoch"]
    )
    return Expectation(frozenset(), frozenset(may))


def _reverted(truth: Truth, read: list[Reading], log_start: int, judged_to: int) -> Expectation:
    """Sets that were appended and never committed; those at whose epoch a captured log ended were surely on it."""
    must, may = set(), set()
    for line in truth.lines["voters"]:
        offset, epoch = line["offset"], line["epoch"]
        if offset < 0 or truth.committed_epoch(offset) == epoch:
            continue
        subject = f"voter set at offset {offset}"
        may.add(subject)
        is_held = any(one.last_epoch == epoch and one.start_offset <= offset < one.end_offset for one in read)
        if is_held and log_start <= offset < judged_to and _is_membership(truth, line):
            must.add(subject)
    return Expectation(frozenset(must), frozenset(may))


def _is_membership(truth: Truth, line: dict[str, Any]) -> bool:
    """Whether a set differs by its keys from the one that it replaced, whichever that was."""
    earlier = [one for one in truth.lines["voters"] if one["offset"] < line["offset"]]
    same_epoch = [one for one in earlier if one["epoch"] == line["epoch"]]
    older = [one for one in earlier if one["epoch"] < line["epoch"]]
    replaced = [max(same_epoch, key=lambda one: one["offset"])] if same_epoch else older
    return bool(replaced) and all(_keys(one) != _keys(line) for one in replaced)


def _keys(line: dict[str, Any]) -> set[tuple[int, str]]:
    return {(voter[0], voter[1]) for voter in line["voters"]}


def _voters(truth: Truth, read: list[Reading], reached: int) -> dict[str, Expectation]:
    nothing: frozenset[str] = frozenset()
    behind = {one.node_id for one in read if one.end_offset + MAX_LAG_RECORDS < truth.committed_offset}
    directories: dict[int, set[str]] = {}
    for one in read:
        directories.setdefault(one.node_id, set()).add(one.directory_id)
    for line in truth.lines["voters"]:
        for voter in line["voters"]:
            if voter[1] != NO_DIRECTORY:
                directories.setdefault(voter[0], set()).add(voter[1])
    replaced = {f"voter {node_id}" for node_id, known in directories.items() if len(known) > 1}
    ghosts = frozenset(_ghosts(truth, read, reached))
    return {
        "KV008": Expectation(nothing, frozenset(replaced)),
        "KV013": Expectation(nothing, frozenset(f"voter {node_id}" for node_id in behind)),
        "KV014": Expectation(nothing, frozenset({"voters"}) if behind else nothing),
        "KV016": Expectation(ghosts, ghosts),
    }


def _ghosts(truth: Truth, read: list[Reading], reached: int) -> Iterator[str]:
    """Controllers that are registered, are no voters, and whose disks were never read."""
    registered: set[int] = set()
    for state in states_of(truth, to_offset=reached):
        registered = set(state.controllers)
    known = {one.node_id for one in read} | {key[0] for key in _current(truth, reached)}
    for controller_id in sorted(registered - known):
        yield f"controller {controller_id}"


def _current(truth: Truth, reached: int) -> VoterKeys:
    sets = [keys for offset, keys in truth.committed_voters() if offset < reached]
    elected = [line["voters"] for line in truth.lines["elected"]]
    return sets[-1] if sets else tuple((voter[0], None) for voter in elected[-1]) if elected else ()
