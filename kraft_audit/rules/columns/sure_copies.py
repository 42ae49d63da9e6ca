"""Which replicas of a partition surely hold every acknowledged record and can still be elected, at the end of the log.

Whoever advises to wipe, remove or start a broker, or calls a replica the last one, asks here.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from kraft_audit.rules.cluster_history import ClusterHistory, once_per_history
from kraft_audit.rules.columns.broker_returns import is_reserved, is_stopped_cleanly
from kraft_audit.rules.columns.frame import SPREAD, NodeLists, coded, distinct, holders, ranges
from kraft_audit.rules.columns.nodes import broker_states, is_up
from kraft_audit.rules.columns.partition_states import partition_states
from kraft_audit.rules.columns.walked_partitions import keeps_witnesses
from kraft_audit.rules.columns.witnesses import LossEvent, witnesses
from kraft_audit.tables.number_arrays import Mask, Rows


@dataclass(frozen=True, slots=True)
class Copies:
    """The copies of one partition that count.

    * `sure`: witnesses in ISR or ELR that are in service, or stopped in order, on a directory that their broker has.
    * `unsure`: witnesses in ISR or ELR that went away without a controlled shutdown. One in the ELR leaves it when it
      registers again; one that is the ISR leads without what it had not flushed.
    * `off_disk`: witnesses whose directory their broker does not have any more.
    * `last_leader`: the last leader of a partition without one, which Kafka elects when no other is eligible.
    * `since`: the newest loss event; what was acknowledged before it may be on none of them.
    """

    row: int
    sure: frozenset[int]
    unsure: frozenset[int]
    off_disk: frozenset[int]
    last_leader: int | None
    since: LossEvent | None

    @property
    def electable(self) -> frozenset[int]:
        """Every replica that Kafka may still elect without an unclean election."""
        last = frozenset() if self.last_leader is None else frozenset({self.last_leader})
        return self.sure | self.unsure | self.off_disk | last


def copies(history: ClusterHistory, row: int, stopped: Set[int] = frozenset()) -> Copies:
    """The copies of the partition whose newest row this is; `stopped`: who does not run, whatever the log says.

    They are asked again for each action on each node, and found once.
    """
    found: dict[tuple[int, frozenset[int]], Copies] = history.known("copies", dict)
    key = (row, frozenset(stopped))
    if key not in found:
        found[key] = _copies(history, row, stopped)
    return found[key]


def _copies(history: ClusterHistory, row: int, stopped: Set[int]) -> Copies:
    states = partition_states(history)
    now = witnesses(history, row)
    eligible = now.members & {*states.nodes("isr", row), *states.nodes("elr", row)}
    directories = dict(zip(states.nodes("replicas", row), states.value("directories", row) or (), strict=False))
    off_disk = frozenset(b for b in eligible if not has_directory(history, b, directories.get(b, "")))
    sure = frozenset(b for b in eligible - off_disk if _is_sure(history, b, is_stopped=b in stopped))
    return Copies(row, sure, eligible - off_disk - sure, off_disk, last_leader(history, row), now.since)


def surely_beside(history: ClusterHistory, broker: int, stopped: Set[int], gone: Set[int]) -> Mask:
    """Newest rows of partitions that surely have a copy on another broker, as `copies` would say.

    They keep their ISR as witnesses in every row, no replica of theirs lacks its directory, and of the ISR another
    broker is in service or stopped in order.
    """
    states = partition_states(history)
    others = broker_states(history).keys() - gone - {broker}
    sure = [other for other in others if _is_sure(history, other, is_stopped=other in stopped)]
    is_held = states.in_order(holders(states.changes.lists["isr"], sure)) & states.is_last
    is_held[misplaced(history)[0]] = False
    return is_held & keeps_witnesses(history)


@once_per_history
def misplaced(history: ClusterHistory) -> tuple[Rows, Rows]:
    """Newest rows of partitions, and the broker of a replica there that is in a directory which the broker lacks."""
    states = partition_states(history)
    rows = states.last_rows[states.exists[states.last_rows]]
    replicas, column = states.changes.lists["replicas"], states.changes.table["directories"]
    directories = NodeLists(column)
    of_table = states.order[rows]
    counts = np.minimum(replicas.lengths[of_table], directories.lengths[of_table]).astype(np.int64)
    codes, names = coded(pc.list_flatten(column))
    brokers = replicas.values[ranges(replicas.starts[of_table], counts)].astype(np.int64)
    pairs = brokers * SPREAD + codes[ranges(directories.starts[of_table], counts)]
    lacking = [
        pair for pair in distinct(pairs).tolist() if not has_directory(history, pair // SPREAD, names[pair % SPREAD])
    ]
    places = np.flatnonzero(np.isin(pairs, lacking))
    return np.repeat(rows, counts)[places], brokers[places]


def last_leader(history: ClusterHistory, row: int) -> int | None:
    """Who led a partition last that has no leader; None where it has one, and where the log does not say."""
    states = partition_states(history)
    if states.leader[row] != -1:
        return None
    if last_known := states.nodes("last_known_elr", row):
        return last_known[0]
    before = row
    while not states.is_first[before] and states.leader[before] == -1:
        before -= 1
    return int(states.leader[before]) if states.leader[before] != -1 else None


def _is_sure(history: ClusterHistory, broker: int, *, is_stopped: bool) -> bool:
    """In service, or stopped in order."""
    known = broker_states(history).get(broker)
    if known is None:
        return False
    if is_up(history, broker):
        return not is_stopped
    return bool(known.newest["exists"]) and is_stopped_cleanly(history, known.newest)


def has_directory(history: ClusterHistory, broker: int, directory: str) -> bool:
    """Whether a broker's registration lists the directory that its replica is in; true where the log does not say."""
    known = broker_states(history).get(broker)
    log_dirs = () if known is None else known.newest["log_dirs"]
    return not directory or not log_dirs or is_reserved(directory) or directory in log_dirs
