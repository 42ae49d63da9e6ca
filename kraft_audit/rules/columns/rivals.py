"""What else leaves the same records as a cause that is stated, and which file decides.

The log shows a fence, a registration or a controlled shutdown, and seldom why; a disk shows what it lacks, and seldom
how it came to lack it. Where two causes remain, both are said, with the file; where what was read has decided, only the
stated one is left. What was played on real Kafka is named beside a row: tests/drills/test_stated_causes.py, and the
captures `corpus/` and `cases/` of real clusters.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from kraft_audit.rules.columns.altered_runs import VersionCause
from kraft_audit.rules.columns.broker_stops import BrokerStop, LastVoter, Stop
from kraft_audit.rules.columns.nodes import Departure


@dataclass(frozen=True, slots=True)
class StatedCause:
    """`rivals` are the other situations that leave the same records, `decides` the file that tells them apart.

    `is_open`: what was read leaves the rivals possible, so that they are said. An open row lists all situations.
    """

    rivals: tuple[str, ...]
    decides: str
    is_open: bool

    @property
    def text(self) -> str:
        """Which situations remain, and what decides; empty where the stated one is the only one."""
        return f"Either {', or '.join(self.rivals)}. This decides: {self.decides}." if self.is_open else ""


_LAST_LINES: Final = "the last lines of its server.log"
_CLEAN_FILE: Final = ".kafka_cleanshutdown in each of its log dirs, before the next start removes it"

CAUSES_OF_ABSENCE: Final[Mapping[Stop, StatedCause]] = {
    Stop.CONTROLLED: StatedCause(
        ("it was killed after its leaders had moved, before it had flushed",), _CLEAN_FILE, False
    ),
    Stop.IDLE: StatedCause(("it was killed in the second in which the controller fenced it",), _CLEAN_FILE, False),
    Stop.UNREGISTERED: StatedCause(("somebody unregistered a broker that had been lost before",), _LAST_LINES, False),
    Stop.LOST: StatedCause(("it was cut off from the controllers, and stopped in order later",), _CLEAN_FILE, False),
    Stop.OPEN: StatedCause(
        ("it was killed or cut off", "it stopped in order while it led nothing, which the log shows as a fence"),
        f"its own copy of __cluster_metadata-0, or {_CLEAN_FILE}",
        True,
    ),
    Stop.FROZEN: StatedCause(
        (
            "its process or host stood still (garbage collection, a full disk, a paused machine)",
            "the network to the controllers was cut",
        ),
        "the times in its server.log and GC log: a process that stood still logged nothing meanwhile",
        True,
    ),
    Stop.CRASHED: StatedCause(("it stopped in order while it led nothing, and was started again",), _LAST_LINES, False),
    Stop.STARTING: StatedCause(("it was lost before its node was started again",), _LAST_LINES, False),
    Stop.CUT_OFF: StatedCause(
        (
            "its heartbeats do not reach the leader, while it fetches the log",
            "its process hangs in the broker, and the controller of the same node fetches on",
        ),
        "its server.log: lines of BrokerToControllerChannelManager",
        True,
    ),
    Stop.ROLE_CHANGED: StatedCause(("its broker failed to start beside its controller",), "its server.log", False),
}
"""Every way in which a broker leaves."""

_LAST_VOTER: Final = StatedCause(("stopped last", "still runs without a majority"), "ask it", True)
"""Of the last node of a quorum: no majority is left that could commit a record of its stop."""
_LOOP: Final = StatedCause(
    (
        "its process ends by itself, or is killed",
        "somebody stops it in order again and again while it leads nothing, which the log shows as a fence",
    ),
    _LAST_LINES,
    True,
)


def rivals_text(stops: Collection[Stop]) -> str:
    """Which causes remain of an open incident, and what decides; empty where the stated one is the only one."""
    return " ".join(filter(None, (CAUSES_OF_ABSENCE[stop].text for stop in Stop if stop in stops)))


def rivals_of_loop(loop: Collection[BrokerStop]) -> str:
    """What else a loop may be that the log shows as fences alone.

    A process that registers again before the old one was fenced, or whose disk lacks its fence, did not stop in order.
    """
    is_unclean = any(stop.absence.departure is Departure.RESTARTED or stop.stop is Stop.LOST for stop in loop)
    return "" if is_unclean else _LOOP.text


def last_voter_text(last: LastVoter) -> str:
    """What the node that is left of a quorum did: it cannot write its own stop."""
    if last.ran_on:
        return f"node {last.node_id} ran on without a majority: ask it"
    return f"node {last.node_id} {', or '.join(_LAST_VOTER.rivals)}: {_LAST_VOTER.decides}"


class DiskLoss(enum.StrEnum):
    """What became of a disk that lacks what it held."""

    EMPTIED = "its log is gone, under the directory id that the voter set names"
    EMPTIED_OR_REPLACED = "its log is gone, and nothing names its directory"
    REPLACED = "it has another directory id than before"
    CUT = "files beside its log name what the log lacks"
    WENT_BACK = "it ends before what it held, as if that had not been"


_FORMATTED: Final = "the date in its meta.properties, which says when it was formatted"
_PUT_BACK: Final = "an older copy of the disk was put back"

CAUSES_OF_LOSS: Final[Mapping[DiskLoss, StatedCause]] = {
    DiskLoss.EMPTIED: StatedCause(
        ("its log was removed and its meta.properties kept", "a copy from before its first record was put back"),
        "the times of its meta.properties and quorum-state",
        True,
    ),
    DiskLoss.EMPTIED_OR_REPLACED: StatedCause(
        ("its log was removed", "the disk was formatted again or replaced"), _FORMATTED, True
    ),
    DiskLoss.REPLACED: StatedCause(("it was formatted again by mistake",), _FORMATTED, False),
    DiskLoss.CUT: StatedCause(
        (
            "segments were removed, or left out of this copy",
            "Kafka cut the log at its start, at a batch that the disk had damaged",
        ),
        "server.log of its last start, which says where it cut",
        True,
    ),
    DiskLoss.WENT_BACK: StatedCause(
        (
            _PUT_BACK,
            "its last writes never reached the disk, as a power cut may leave it",
            "it was emptied and has fetched since",
        ),
        "the times of its segments, and server.log around the end of its log",
        True,
    ),
}
"""Every way in which a voter's disk comes to lack what it held (KQ020, KQ021)."""

CAUSES_OF_VERSIONS: Final[Mapping[VersionCause, StatedCause]] = {
    VersionCause.ALTERED: StatedCause(
        ("the disk was changed after it was written", "only the copy of it that was read"),
        "the same file on the node, read again",
        True,
    ),
    VersionCause.RESTORED: StatedCause(
        (_PUT_BACK, "it lost its last writes, as a power cut may leave it"),
        "server.log around the time of the later LeaderChange",
        True,
    ),
    VersionCause.BEGAN_AGAIN: StatedCause(
        ("its log was removed", "it was formatted again with the same cluster id"), _FORMATTED, True
    ),
    VersionCause.OUTVOTED: StatedCause(
        ("a majority of the disks was wiped or formatted again", "older copies of them were put back"),
        "the dates in the meta.properties of the other nodes, which say when they were formatted",
        True,
    ),
    VersionCause.UNCLEAR: StatedCause(
        (
            "bytes were changed after they had been written",
            "a disk was wiped or put back to an older copy and the epoch led twice",
            "a clone of a running node went on by itself",
        ),
        "an earlier copy of the disks, which would show which version was there first",
        True,
    ),
}
"""Every way in which disks come to hold two versions of the same offsets (KQ022)."""
