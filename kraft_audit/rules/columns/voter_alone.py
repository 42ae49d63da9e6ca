"""A voter in a later epoch than the one that a majority's disks follow, of which no log holds a record.

Two situations leave these bytes. The voter is cut off, and raises its epoch with each election that it loses while the
others go on (before pre-vote, KIP-996, Kafka 4.0, each lost election raises it). Or the others are dead, and it
campaigns alone. Only times tell them apart: whether the others wrote records after it last persisted an epoch. Two
rounds of copies tell too: whether the others' log grew although the voter stood alone before.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from kraft_audit.quorum.quorum_evidence import majority
from kraft_audit.rules.cluster_history import ClusterHistory, TableRow
from kraft_audit.rules.columns.captures import is_no_evidence, newest_round, rounds_in_order
from kraft_audit.rules.columns.voter_sets import current_set, voter_ids
from kraft_audit.text.readable import capitalized, listed, nouns, pasted_ids

DEAD_AFTER_MS: Final = 10_000
"""A leader that works writes a NoOp every half second; an older majority's last record is silence."""
ONE_ROUND_MS: Final = 10_000
"""Copies of one round are of moments so near: what a log holds beyond that was written after the round."""


class WhyAlone(enum.Enum):
    """Which of the two it is."""

    CUT_OFF = "cut off"
    MAJORITY_DEAD = "majority dead"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class VoterAlone:
    """`alone` persisted `alone_epoch`; `others`, a majority, name `leader_id` as the leader of `epoch`."""

    alone: tuple[int, ...]
    alone_epoch: int
    others: tuple[int, ...]
    epoch: int
    leader_id: int
    situation: WhyAlone

    @property
    def reason(self) -> str:
        """Both situations, with what would decide."""
        who, one = nouns("voter", self.alone), len(self.alone) == 1
        gone = pasted_ids(self.others)
        return (
            f"{who} {'is' if one else 'are'} in epoch {self.alone_epoch}, of which no log holds a record, and "
            f"{nouns('voter', self.others)} follow node {self.leader_id} in epoch {self.epoch}. Either {who} "
            f"{'is' if one else 'are'} cut off and the others work, or {listed(self.others)} are dead; the copies show "
            f"no times that tell. If all nodes run, check the live dirs with --running; if the disks of "
            f"{listed(self.others)} are lost, with --gone {gone}"
        )

    @property
    def summary(self) -> str:
        """What is seen of it, whichever situation it is."""
        parts = {
            WhyAlone.CUT_OFF: "it is cut off, the others wrote records after its last election",
            WhyAlone.MAJORITY_DEAD: "the others wrote nothing more before its last election, and are dead",
            WhyAlone.OPEN: "it is cut off, or the others are dead",
        }
        follow = f"{nouns('voter', self.others)} follow node {self.leader_id} in epoch {self.epoch}"
        return f"stands in epoch {self.alone_epoch}, {follow}: {parts[self.situation]}"


def voter_alone(history: ClusterHistory, rows: Collection[TableRow], voters: Collection[int]) -> VoterAlone | None:
    """The minority that stands in a later epoch than a majority's leader leads; None where there is none.

    `rows` are the newest captures that count. A record of a later epoch on any disk shows that the majority's copies
    are older, and voters that are said to be gone are dead.
    """
    by_node = {row["node_id"]: row for row in rows if row["node_id"] in voters and row["leader_epoch"] is not None}
    if history.operator.gone & set(voters):
        return None
    named = Counter((row["leader_epoch"], row["leader_id"]) for row in by_node.values() if _names_leader(row))
    followed = [key for key, count in named.items() if count >= majority(len(voters))]
    if not followed:
        return None
    epoch, leader_id = max(followed)
    # A rescued node begins in an epoch far above all others, and says so.
    alone = {node: row for node, row in by_node.items() if row["leader_epoch"] > epoch and row["rescue"] is None}
    if not alone or _recorded_epoch(history, rows) > epoch:
        return None
    others = [row for row in by_node.values() if (row["leader_epoch"], row["leader_id"]) == (epoch, leader_id)]
    return VoterAlone(
        tuple(sorted(alone)),
        max(row["leader_epoch"] for row in alone.values()),
        tuple(sorted(row["node_id"] for row in others)),
        epoch,
        leader_id,
        _situation(history, list(alone.values()), others, epoch),
    )


def _recorded_epoch(history: ClusterHistory, rows: Collection[TableRow]) -> int:
    """The newest epoch of which any log or snapshot holds a record.

    The table `leader_epochs` also has epochs that disks only voted in.
    """
    in_logs = [row["epoch"] for row in history.rows("leader_epochs") if row["from_offset"] is not None]
    on_disks = (row[name] for row in rows for name in ("last_epoch", "snapshot_epoch"))
    return max([*in_logs, *(epoch for epoch in on_disks if epoch is not None)], default=-1)


def _situation(
    history: ClusterHistory, alone: Collection[TableRow], others: Collection[TableRow], epoch: int
) -> WhyAlone:
    """By the times of the files, where copying kept them, of the copies, and by earlier rounds; else open."""
    wrote_ms = _wrote_ms(others, epoch)
    if wrote_ms is None:
        return WhyAlone.OPEN
    stood = [_stood_ms(history, row) for row in alone]
    if None not in stood and wrote_ms > max(time_ms for time_ms in stood if time_ms is not None):
        return WhyAlone.CUT_OFF
    if _grew_since(history, {row["node_id"] for row in alone}, {row["node_id"] for row in others}, epoch, wrote_ms):
        return WhyAlone.CUT_OFF
    persisted = [row["quorum_state_ms"] for row in alone]
    is_silent = None not in persisted and max(persisted) - wrote_ms > DEAD_AFTER_MS
    return WhyAlone.MAJORITY_DEAD if is_silent else WhyAlone.OPEN


def _wrote_ms(rows: Iterable[TableRow], epoch: int) -> int | None:
    """When the newest record of an epoch was appended, as far as logs show that end with it."""
    return max((row["last_timestamp_ms"] for row in rows if row["last_epoch"] == epoch), default=None)


def _stood_ms(history: ClusterHistory, row: TableRow) -> int | None:
    """When a voter persisted its epoch, or no later than that: when its disk was copied."""
    if row["quorum_state_ms"] is not None:
        return int(row["quorum_state_ms"])
    return history.copied_ms.get((row["root"], row["path"]))


def _grew_since(
    history: ClusterHistory, alone: Collection[int], others: Collection[int], epoch: int, wrote_ms: int
) -> bool:
    """Whether the others wrote records of their epoch after a round in which these voters stood alone already."""
    for captured in rounds_in_order(history)[:-1]:
        by_node = {row["node_id"]: row for row in captured.taken if not is_no_evidence(row)}
        was_alone = all(node in by_node and (by_node[node]["leader_epoch"] or -1) > epoch for node in alone)
        before_ms = _wrote_ms([row for node, row in by_node.items() if node in others], epoch)
        if was_alone and before_ms is not None and wrote_ms - before_ms > ONE_ROUND_MS:
            return True
    return False


def _names_leader(row: TableRow) -> bool:
    return row["leader_id"] is not None and row["leader_id"] >= 0


def newest_voter_alone(history: ClusterHistory) -> VoterAlone | None:
    """The same of the newest captures, by the set in effect."""
    rows = [row for row in newest_round(history) if not is_no_evidence(row)]
    return voter_alone(history, rows, voter_ids(current_set(history)))


def claim_without_record(history: ClusterHistory, rows: Collection[TableRow], voters: Collection[int]) -> str | None:
    """Why nobody is known to lead the newest epoch although a disk says so; None where a record or a majority does."""
    claims = [row for row in rows if row["leader_epoch"] is not None and _names_leader(row)]
    if not claims:
        return None
    epoch = max(row["leader_epoch"] for row in claims)
    claiming = [row for row in claims if row["leader_epoch"] == epoch]
    agreeing = {row["node_id"] for row in claiming if row["node_id"] in voters}
    if epoch <= _recorded_epoch(history, rows) or len(agreeing) >= majority(len(voters)):
        return None
    first = claiming[0]
    who = f"node {first['node_id']} says that node {first['leader_id']} leads epoch {epoch}"
    others = nouns("voter", sorted(set(voters) - agreeing))
    return f"{capitalized(who)}, of which no log holds a record, and no majority agrees: copy {others} again"
