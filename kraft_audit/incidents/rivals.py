"""What else leaves the same records as the cause that is stated of a broker's absence, and which file decides.

The log shows a fence, a registration or a controlled shutdown, and seldom why. Where two causes remain, an open
incident says both, with the file; where a node's own copy has decided, only the stated one is left.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from kraft_audit.incidents.incident import IncidentKind
from kraft_audit.rules.columns.broker_stops import BrokerStop, Stop
from kraft_audit.rules.columns.nodes import Departure


@dataclass(frozen=True, slots=True)
class AbsenceCause:
    """`rivals` are the other situations that leave the same records, `decides` the file that tells them apart.

    `is_open`: what was read leaves the rivals possible, so that they are said.
    """

    rivals: tuple[str, ...]
    decides: str
    is_open: bool


_LAST_LINES: Final = "the last lines of its server.log"
_CLEAN_FILE: Final = ".kafka_cleanshutdown in each of its log dirs, before the next start removes it"

CAUSES_OF_ABSENCE: Final[Mapping[Stop, AbsenceCause]] = {
    Stop.CONTROLLED: AbsenceCause(
        ("it was killed after its leaders had moved, before it had flushed",), _CLEAN_FILE, False
    ),
    Stop.IDLE: AbsenceCause(("it was killed in the second in which the controller fenced it",), _CLEAN_FILE, False),
    Stop.UNREGISTERED: AbsenceCause(("somebody unregistered a broker that had been lost before",), _LAST_LINES, False),
    Stop.LOST: AbsenceCause(("it was cut off from the controllers, and stopped in order later",), _CLEAN_FILE, False),
    Stop.OPEN: AbsenceCause(
        ("it was killed or cut off", "it stopped in order while it led nothing, which the log shows as a fence"),
        f"its own copy of __cluster_metadata-0, or {_CLEAN_FILE}",
        True,
    ),
    Stop.FROZEN: AbsenceCause(
        (
            "its process or host stood still (garbage collection, a full disk, a paused machine)",
            "the network to the controllers was cut",
        ),
        "the times in its server.log and GC log: a process that stood still logged nothing meanwhile",
        True,
    ),
    Stop.CRASHED: AbsenceCause(
        ("it stopped in order while it led nothing, and was started again",), _LAST_LINES, False
    ),
    Stop.STARTING: AbsenceCause(("it was lost before its node was started again",), _LAST_LINES, False),
    Stop.CUT_OFF: AbsenceCause(
        (
            "its heartbeats do not reach the leader, while it fetches the log",
            "its process hangs in the broker, and the controller of the same node fetches on",
        ),
        "its server.log: lines of BrokerToControllerChannelManager",
        True,
    ),
    Stop.ROLE_CHANGED: AbsenceCause(("its broker failed to start beside its controller",), "its server.log", False),
}
"""Every way in which a broker leaves."""

_LOOP: Final = AbsenceCause(
    (
        "its process ends by itself, or is killed",
        "somebody stops it in order again and again while it leads nothing, which the log shows as a fence",
    ),
    _LAST_LINES,
    True,
)

ADVICE: Final[Mapping[IncidentKind, str]] = {
    IncidentKind.BROKER_FREEZE: (
        "Do not wipe it. Look at GC pauses, disk waits and the network to the controllers at these times; restart it "
        "only if it stays fenced, by a controlled shutdown."
    ),
    IncidentKind.RESTART_LOOP: (
        "Stop whatever restarts it, and keep its disk: each start without a clean stop may cost it its place in the "
        "ISR or ELR. Read the last lines of its server.log, mend the cause, then start it once."
    ),
}
"""What to do about an open incident of a kind, where no finding's advice says it."""


def rivals_text(stops: Collection[Stop]) -> str:
    """Which causes remain of an open incident, and what decides; empty where the stated one is the only one."""
    open_causes = [CAUSES_OF_ABSENCE[stop] for stop in Stop if stop in stops and CAUSES_OF_ABSENCE[stop].is_open]
    return " ".join(map(_text, open_causes))


def rivals_of_loop(loop: Collection[BrokerStop]) -> str:
    """What else a loop may be that the log shows as fences alone.

    A process that registers again before the old one was fenced, or whose disk lacks its fence, did not stop in order.
    """
    is_unclean = any(stop.absence.departure is Departure.RESTARTED or stop.stop is Stop.LOST for stop in loop)
    return "" if is_unclean else _text(_LOOP)


def _text(cause: AbsenceCause) -> str:
    return f"Either {', or '.join(cause.rivals)}. This decides: {cause.decides}."
