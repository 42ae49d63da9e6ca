"""What a run's truth says of the disks that were read, and of the voters, for the rules that judge them.

The truth says where each log ended, not its batches. So each rule gets two sets: what it must name, and what it may.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.witness.cluster_states import METADATA_VERSION, ClusterState, states_of
from tests.witness.truth import NO_DIRECTORY, Truth, VoterKeys

MAX_LAG_RECORDS, MAX_LAG_MS = 1_000, 5_000
"""The defaults of KV013 and KV014."""
MAX_EPOCHS_AN_HOUR, MAX_EPOCHS_WITHOUT_RECORDS = 12, 20
"""The defaults of KQ016; no run lasts an hour."""
RULES = ("KQ001", "KQ016", "KQ023", "KQ026", "KV005", "KV006", "KV008", "KV013", "KV014", "KB008")


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
        "KQ023": _leaderless(truth),
        "KQ026": _ahead(truth),
        "KV005": _open_sets(truth),
        "KV006": _reverted(truth, read, log_start, judged_to),
        **_voters(truth, read, reached),
    }


def _divergent(truth: Truth, read: list[Reading], log_start: int, reached: int) -> Expectation:
    """A log whose last record is a committed one is committed below it, too (Raft's log matching)."""
    must, may = set(), set()
    for item in read:
        last = item.end_offset - 1
        if item.end_offset <= item.start_offset or truth.committed_epoch(last) == item.last_epoch:
            continue
        may.add(f"node {item.node_id}")
        if log_start <= last < reached:
            must.add(f"node {item.node_id}")
    return Expectation(frozenset(must), frozenset(may))


def _storm(truth: Truth, log_start: int, reached: int) -> Expectation:
    """Epochs that the captured log holds records of; those without a leader are bounded by what disks persisted."""
    epochs = truth.lines["committed_epoch"]
    held = [line for line in epochs if line["from_offset"] < reached and line["to_offset"] > log_start]
    newest = max((node["epoch"] for line in truth.lines["capture"] for node in line["nodes"]), default=0)
    storm = frozenset({"leader epochs"})
    may = storm if len(epochs) > MAX_EPOCHS_AN_HOUR else frozenset()
    if newest - len(epochs) > MAX_EPOCHS_WITHOUT_RECORDS:
        may |= {"burnt epochs"}
    return Expectation(storm if len(held) > MAX_EPOCHS_AN_HOUR else frozenset(), may)


def _leaderless(truth: Truth) -> Expectation:
    """Whether some disk of the last capture was read while no node led the newest epoch that its copies hold.

    It need not be raised: a voter that was not captured may lead, and brokers that stopped in order explain it. Nodes
    are copied one after the other, so an election in between leaves copies of before it.
    """
    name = truth.run["captures"][-1]
    lines = [line for line in truth.lines["capture"] if line["capture"] == name]
    copied = (node["epoch"] for line in lines for node in line["nodes"] if node["node_id"] in line["captured"])
    newest = max(copied, default=0)
    is_led = all(line["leader_id"] >= 0 and line["leader_epoch"] == newest for line in lines)
    return Expectation(frozenset(), frozenset() if is_led else frozenset({"quorum"}))


def _ahead(truth: Truth) -> Expectation:
    """Which disks of the last capture were in a later epoch than another one; each of these may stand alone."""
    name = truth.run["captures"][-1]
    lines = [line for line in truth.lines["capture"] if line["capture"] == name]
    copied = [(node["node_id"], node["epoch"]) for line in lines for node in line["nodes"]]
    lowest = min((epoch for _, epoch in copied), default=0)
    return Expectation(frozenset(), frozenset(f"voter {node}" for node, epoch in copied if epoch > lowest))


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
        is_held = any(item.last_epoch == epoch and item.start_offset <= offset < item.end_offset for item in read)
        if is_held and log_start <= offset < judged_to and _is_membership(truth, line):
            must.add(subject)
    return Expectation(frozenset(must), frozenset(may))


def _is_membership(truth: Truth, line: dict[str, Any]) -> bool:
    """Whether a set differs by its keys from the one that it replaced, whichever that was."""
    earlier = [voter for voter in truth.lines["voters"] if voter["offset"] < line["offset"]]
    same_epoch = [item for item in earlier if item["epoch"] == line["epoch"]]
    older = [item for item in earlier if item["epoch"] < line["epoch"]]
    replaced = [max(same_epoch, key=lambda item: item["offset"])] if same_epoch else older
    return bool(replaced) and all(_keys(item) != _keys(line) for item in replaced)


def _keys(line: dict[str, Any]) -> set[tuple[int, str]]:
    return {(voter[0], voter[1]) for voter in line["voters"]}


def _voters(truth: Truth, read: list[Reading], reached: int) -> dict[str, Expectation]:
    nothing: frozenset[str] = frozenset()
    late = [item for item in read if _may_lag(truth, item.end_offset)]
    # Where two voters of a set share an id, the finding names the directory too.
    behind = {f"voter {item.node_id}" for item in late}
    behind |= {f"voter {item.node_id} (directory {item.directory_id})" for item in late}
    directories: dict[int, set[str]] = {}
    for item in read:
        directories.setdefault(item.node_id, set()).add(item.directory_id)
    for line in truth.lines["voters"]:
        for voter in line["voters"]:
            if voter[1] != NO_DIRECTORY:
                directories.setdefault(voter[0], set()).add(voter[1])
    replaced = {f"voter {node_id}" for node_id, known in directories.items() if len(known) > 1}
    ghosts = frozenset(_ghosts(truth, read, reached))
    return {
        "KV008": Expectation(nothing, frozenset(replaced)),
        "KV013": Expectation(nothing, frozenset(behind)),
        "KV014": Expectation(nothing, frozenset({"voters"}) if behind else nothing),
        "KB008": Expectation(ghosts, ghosts),
    }


def _may_lag(truth: Truth, end_offset: int) -> bool:
    """Whether what is committed above a log's end may have come later than KV013 allows.

    A record of a committed epoch was written after its leader was elected, and after each capture that found no log so
    long. So the last record below the end is bounded from below; the last committed one came before the run's end.
    """
    lacking = truth.committed_offset - end_offset
    elected = (line for line in truth.lines["elected"] if line["start_offset"] < end_offset)
    shorter = (
        line
        for line in truth.lines["capture"]
        if max((node["log_end_offset"] for node in line["nodes"]), default=0) < end_offset
    )
    committed = {line["epoch"] for line in truth.lines["committed_epoch"]}
    written_ms = max(
        (line["time_ms"] for line in (*elected, *shorter) if line["kind"] == "capture" or line["epoch"] in committed),
        default=0,
    )
    return lacking > MAX_LAG_RECORDS or (lacking > 0 and truth.lines["end"][0]["time_ms"] - written_ms > MAX_LAG_MS)


def _ghosts(truth: Truth, read: list[Reading], reached: int) -> Iterator[str]:
    """Controllers that are registered, are no voters, and whose disks were never read; and nodes whose registration
    supports less than that of another one that lives."""
    newest = deque(states_of(truth, to_offset=reached), maxlen=1)
    state = newest[0] if newest else ClusterState()
    known = {item.node_id for item in read} | {key[0] for key in _current(truth, reached)}
    gone = {("controller", node_id) for node_id in state.controllers.keys() - known}
    gone_or_fenced = gone | {("broker", node_id) for node_id, broker in state.brokers.items() if broker["fenced"]}
    levels = {
        (kind, node_id): feature["maxSupportedVersion"]
        for kind, nodes in (("broker", state.brokers), ("controller", state.controllers))
        for node_id, node in nodes.items()
        for feature in node.get("features", ())
        if feature["name"] == METADATA_VERSION
    }
    newest_level = max((level for node, level in levels.items() if node not in gone_or_fenced), default=0)
    current = state.features.get(METADATA_VERSION, 0)
    blocking = {node for node, level in levels.items() if current <= level < newest_level}
    for kind, node_id in sorted(gone | blocking):
        yield f"{kind} {node_id}"


def _current(truth: Truth, reached: int) -> VoterKeys:
    sets = [keys for offset, keys in truth.committed_voters() if offset < reached]
    elected = [line["voters"] for line in truth.lines["elected"]]
    return sets[-1] if sets else tuple((voter[0], None) for voter in elected[-1]) if elected else ()
