"""Where the quorum stands as of the newest captures: whether it works, rests, or lost its leader or its majority.

Disks of a dead quorum look like disks at rest: controllers log no shutdown, and survivors go on naming a leader that is
gone. So each answer rests on what a disk can show (persisted epochs and votes, brokers' controlled shutdowns, the
committed interval) and on what the operator says (`OperatorWord`). What they leave open is undecided, with what would
decide it.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from kraft_audit.quorum.quorum_evidence import majority
from kraft_audit.rules.cluster_history import ClusterHistory, TableRow, feature_level
from kraft_audit.rules.columns.captures import newest_round, newest_watermark, replica_end, watermarks_in_order
from kraft_audit.rules.columns.declared_recovery import waiting_recovery
from kraft_audit.rules.columns.log_batches import canonical_log, log_batches
from kraft_audit.rules.columns.lost_records import ends_before_its_snapshot, undecided_majority, without_log
from kraft_audit.rules.columns.nodes import Departure, absences, broker_states
from kraft_audit.rules.columns.voter_sets import current_set, is_voter_disk, keys_of, leaders_of, voter_ids
from kraft_audit.text.readable import duration, listed, nouns
from kraft_codec.schemas.releases import METADATA_VERSION_FEATURE

QUORUM_TABLES: Final = ("captures", "leader_epochs", "watermarks", "voter_sets", "broker_changes", "batches")
"""What the standing of a quorum is read from."""
STALLED_AFTER_MS: Final = 10_000
"""Records above `high` may span so much log time before the quorum counts as stalled."""
AT_REST_REASON: Final = "every broker left by controlled shutdown"
QUIET_AFTER_MS: Final = 10_000
"""So long the logs of running nodes may stand still before they count as without a leader."""
IDLE_BATCH_MS: Final = 2_000
"""An idle leader writes a NoOp every metadata.max.idle.interval.ms, 500 by default (KIP-835)."""
IDLE_BATCHES: Final = 100
FIRST_WITH_NO_OPS: Final = 5
"""metadata.version 3.3-IV1."""


class Standing(enum.StrEnum):
    """The state of a quorum, as `check` opens with it."""

    HEALTHY = "healthy"
    AT_REST = "at rest"
    STALLED = "stalled"
    NO_LEADER = "no leader"
    MAJORITY_LOST = "majority lost"
    EMPTY = "empty"
    UNDECIDED = "undecided"
    NOT_JUDGED = "not judged"
    NO_LOG = "no log"


BROKEN: Final = frozenset({Standing.STALLED, Standing.NO_LEADER, Standing.MAJORITY_LOST})
"""With these nothing can be written now."""


@dataclass(frozen=True, slots=True)
class QuorumStanding:
    """The standing with what it rests on. `reason` says why, or what would decide.

    `epoch` is the newest persisted epoch, `leader_id` who leads it (None where no disk names a leader). `voters` are
    the ids of the set in effect at the end of the canonical log, `gone` those that the operator says are lost,
    `captured` the others whose disk was read, `epochs` the persisted epoch of every voter's disk that was read.
    `committed_to` is the low of the newest round, `end_offset` the end of the canonical log, both exclusive.
    `since_ms`, in milliseconds since 1970, is the append time of the last batch; of a stalled quorum that of the first
    record that waits. `is_stopped_in_order` is set where the log ends with the controlled shutdown of every broker:
    `stopped_brokers`, in that order.
    """

    standing: Standing
    reason: str
    epoch: int = -1
    leader_id: int | None = None
    voters: tuple[int, ...] = ()
    captured: tuple[int, ...] = ()
    gone: tuple[int, ...] = ()
    epochs: tuple[tuple[int, int], ...] = ()
    committed_to: int | None = None
    end_offset: int | None = None
    since_ms: int | None = None
    is_stopped_in_order: bool = False
    stopped_brokers: tuple[int, ...] = ()

    @property
    def missing(self) -> tuple[int, ...]:
        """Voters that were neither captured nor said to be gone."""
        return tuple(sorted(set(self.voters) - set(self.captured) - set(self.gone)))

    @property
    def majority(self) -> int:
        """How many voters a decision needs."""
        return majority(len(self.voters)) if self.voters else 0


def quorum_standing(history: ClusterHistory) -> QuorumStanding:
    """The standing as of the newest round of captures. Without the table `batches` logs do not count as contradictory,
    no quorum as stalled and no majority of disks as lost: the findings of KQ020 and KQ024 say so then."""
    return history.known("quorum standing", lambda: _standing(history))


def _standing(history: ClusterHistory) -> QuorumStanding:
    rows = newest_round(history)
    voter_set = current_set(history)
    if any(row["snapshot_count"] for row in rows) and all(_is_unstarted(row) for row in rows):
        nodes = listed(sorted(row["node_id"] for row in rows if row["node_id"] is not None))
        return QuorumStanding(Standing.EMPTY, f"nodes {nodes} are formatted and were never started: no record exists")
    if rows and all(row["log_end_offset"] is None for row in rows) and any(row["snapshot_count"] for row in rows):
        return QuorumStanding(Standing.NO_LOG, without_log(history, rows))
    if (waiting := waiting_recovery(history)) is not None:
        node_id = waiting.rescue.node_id
        reason = f"node {node_id}, rescued from {waiting.rescue.source}, was not started yet: no log goes on from there"
        return QuorumStanding(Standing.NOT_JUDGED, reason, voters=(node_id,), captured=(node_id,))
    if not rows or voter_set is None:
        return QuorumStanding(Standing.NOT_JUDGED, "no voter set is known: no log and no checkpoint names the voters")
    facts = _facts(history, rows, voter_set)
    left = len(facts.voters) - len(facts.gone)
    if facts.gone and left < facts.majority:
        reason = f"{left} of {len(facts.voters)} voters are left, {facts.majority} are needed"
        return replace(facts, standing=Standing.MAJORITY_LOST, reason=reason)
    if not facts.missing and not facts.end_offset and not facts.committed_to:
        return replace(facts, standing=Standing.EMPTY, reason="no voter's log holds a record")
    if len(facts.captured) < facts.majority:
        copies = nouns("voter", facts.missing)
        reason = f"{len(facts.captured)} of {len(facts.voters)} voters captured; copy {copies} too"
        return replace(facts, standing=Standing.NOT_JUDGED, reason=reason)
    has_batches = history.has("batches")
    if has_batches and (contradiction := _contradiction(history, facts.epoch)) is not None:
        return replace(facts, reason=contradiction)
    if facts.leader_id is None:
        standing, reason = _leaderless(history, rows, facts)
        return replace(facts, standing=standing, reason=reason)
    if has_batches and (broken := _quiet(history, rows, facts) or _stalled(history, facts)) is not None:
        return broken
    if has_batches and (open_loss := undecided_majority(history)) is not None:
        return replace(facts, standing=Standing.UNDECIDED, reason=open_loss)
    if facts.is_stopped_in_order:
        return replace(facts, standing=Standing.AT_REST, reason=AT_REST_REASON)
    return replace(facts, standing=Standing.HEALTHY, reason=f"node {facts.leader_id} leads epoch {facts.epoch}")


def _is_unstarted(row: TableRow) -> bool:
    """Whether a node dir is as formatting leaves it: no log, no vote, no snapshot but that of offset 0."""
    has_log = row["log_end_offset"] is not None or row["leader_epoch_checkpoint"]
    return not has_log and row["leader_epoch"] is None and not row["snapshot_end_offset"]


def _facts(history: ClusterHistory, rows: list[TableRow], voter_set: TableRow) -> QuorumStanding:
    """What the disks say, before it is judged."""
    ids = tuple(sorted(voter["voter_id"] for voter in voter_set["voters"]))
    gone = tuple(sorted(history.operator.gone & set(ids)))
    keys = keys_of(voter_set["voters"])
    captured = [row for row in rows if is_voter_disk(row, keys)]
    epoch = max((row["leader_epoch"] for row in rows if row["leader_epoch"] is not None), default=-1)
    last = max((row["last_epoch"] for row in rows if row["last_epoch"] is not None), default=-1)
    watermark, log = newest_watermark(history), canonical_log(history)
    stopped = stopped_brokers(history, ids)
    return QuorumStanding(
        Standing.UNDECIDED,
        "",
        epoch=max(epoch, last),
        leader_id=_leader_of(history, rows, max(epoch, last)),
        voters=ids,
        captured=tuple(sorted({row["node_id"] for row in captured} - set(gone))),
        gone=gone,
        epochs=tuple(
            sorted((row["node_id"], row["leader_epoch"]) for row in captured if row["leader_epoch"] is not None)
        ),
        committed_to=None if watermark is None else watermark["low"],
        end_offset=None if watermark is None else watermark["canonical_end_offset"],
        since_ms=int(log.timestamp_ms[-1]) if len(log.timestamp_ms) else history.end_ms,
        is_stopped_in_order=stopped is not None,
        stopped_brokers=stopped or (),
    )


def _leader_of(history: ClusterHistory, rows: Collection[TableRow], epoch: int) -> int | None:
    """Who leads an epoch, as any captured disk or log says."""
    for row in rows:
        if row["leader_epoch"] == epoch and row["leader_id"] is not None and row["leader_id"] >= 0:
            return int(row["leader_id"])
    leaders = [row["leader_id"] for row in history.rows("leader_epochs") if row["epoch"] == epoch]
    return next((int(leader) for leader in leaders if leader is not None), None)


def _contradiction(history: ClusterHistory, epoch: int) -> str | None:
    """Why no log is canonical, where logs contradict each other; None where one is, or only its end is missing."""
    newest = newest_watermark(history)
    if newest is None or newest["canonical_end_offset"] is not None:
        return None
    if not len(log_batches(history).row) or ends_before_its_snapshot(history, newest["low"]) is not None:
        return None
    leaders = sorted(leaders_of(history, epoch))
    who = f"nodes {listed(leaders)} both led epoch {epoch}, and" if len(leaders) > 1 else "the logs contradict:"
    return f"{who} no log is canonical; `kraft-audit diverge` shows both, and who holds which"


def _leaderless(history: ClusterHistory, rows: list[TableRow], facts: QuorumStanding) -> tuple[Standing, str]:
    """Of an epoch without a leader: stopped, no leader, or undecided where an uncaptured voter may lead it.

    Nodes that run, as the operator says, have not stopped.
    """
    in_epoch = [row for row in rows if row["leader_epoch"] == facts.epoch]
    is_observed = any(row["node_id"] not in facts.voters for row in in_epoch)
    if facts.is_stopped_in_order and not is_observed and not history.operator.is_running:
        return Standing.AT_REST, AT_REST_REASON
    votes = (row["voted_id"] for row in in_epoch if row["node_id"] in facts.voters)
    granted = Counter(voted for voted in votes if voted is not None and voted >= 0)
    for voter in facts.missing:
        if len(facts.missing) + granted[voter] >= facts.majority:
            return Standing.UNDECIDED, f"voter {voter} was not captured and may lead epoch {facts.epoch}: copy it too"
    for voter, epoch in facts.epochs:
        # It persists an epoch before it asks for votes: its copy is older than the vote that it got.
        if epoch < facts.epoch and granted[voter]:
            when = f"voter {voter} was copied before it stood in epoch {facts.epoch}, and may lead it"
            return Standing.UNDECIDED, f"{when}: copy it again"
    took_part = listed([voter for voter, epoch in facts.epochs if epoch == facts.epoch])
    return Standing.NO_LEADER, f"no captured disk names a leader of epoch {facts.epoch}; {took_part} took part in it"


def _quiet(history: ClusterHistory, rows: list[TableRow], facts: QuorumStanding) -> QuorumStanding | None:
    """No leader, where the operator says that the nodes run and no log grew before it was read; else None.

    A leader writes NoOps when it is idle, and survivors of a dead quorum go on naming their last leader. An archive
    does not show when it was taken, so nothing follows from it.
    """
    if not history.operator.is_running or facts.missing or any(row["medium"] == "archive" for row in rows):
        return None
    written = max((row["last_timestamp_ms"] or 0 for row in rows), default=0)
    quiet_ms = min(row["read_from_ms"] for row in rows) - written
    if not written or quiet_ms < QUIET_AFTER_MS or not _writes_when_idle(history):
        return None
    reason = (
        f"node {facts.leader_id} led epoch {facts.epoch}, and no log grew in the {duration(quiet_ms)} before reading"
    )
    return replace(facts, standing=Standing.NO_LEADER, reason=reason, since_ms=written)


def _writes_when_idle(history: ClusterHistory) -> bool:
    """Whether the leader wrote NoOps: by metadata.version, and by the pace of the newest batches."""
    times = canonical_log(history).timestamp_ms[-IDLE_BATCHES:]
    level = feature_level(history, METADATA_VERSION_FEATURE) or 0
    return level >= FIRST_WITH_NO_OPS and len(times) > 1 and float(np.median(np.diff(times))) <= IDLE_BATCH_MS


def _stalled(history: ClusterHistory, facts: QuorumStanding) -> QuorumStanding | None:
    """Whether records of the leader's own epoch wait for a majority longer than STALLED_AFTER_MS of log time.

    What an earlier leader left above the high watermark has waited since before this one was elected.
    """
    newest, log = newest_watermark(history), canonical_log(history)
    if newest is None or newest["high"] is None or newest["canonical_end_offset"] is None:
        return None
    high, end = newest["high"], newest["canonical_end_offset"]
    if high >= end or not len(log.base_offset):
        return None
    own_from = int(log.base_offset[np.searchsorted(log.leader_epoch, log.leader_epoch[-1])])
    waiting_from, written = log.time_at(max(high, own_from)), log.time_at(end - 1)
    if waiting_from is None or written is None or written - waiting_from <= STALLED_AFTER_MS:
        return None
    ids = voter_ids(current_set(history))
    captured = (row for row in newest_round(history) if row["node_id"] in ids)
    lagging = listed(sorted(row["node_id"] for row in captured if replica_end(row) <= high))
    waited = f"offsets {high} to {end - 1} wait for a majority, {(written - waiting_from) / 1000:.1f} s of the log"
    standing, reason = Standing.STALLED, f"{waited}; {lagging} lag behind"
    if not _is_proven_stalled(history, high, written):
        standing = Standing.UNDECIDED
        reason = f"{waited}, if the copies are of one moment: copy voters {lagging} again, and check both copies"
    return replace(facts, standing=standing, reason=reason, since_ms=waiting_from)


def _is_proven_stalled(history: ClusterHistory, high: int, written_ms: int) -> bool:
    """Whether an earlier round ended above today's `high`, ten seconds of log time before the newest record."""
    ends = (row["canonical_end_offset"] for row in watermarks_in_order(history)[:-1])
    times_ms = (canonical_log(history).time_at(end - 1) for end in ends if end is not None and end > high)
    return any(time_ms is not None and written_ms - time_ms >= STALLED_AFTER_MS for time_ms in times_ms)


def stopped_brokers(history: ClusterHistory, voters: Collection[int]) -> tuple[int, ...] | None:
    """The brokers in the order in which they left, where the log ends with all of them stopped in order; else None.

    A broker stopped in order where it is away since a controlled shutdown. A broker on a voter's node that was still
    active when the other voters' nodes had shut down counts too: no majority was left to record its own.
    """
    away = {absence.broker_id: absence for absence in absences(history) if absence.to_offset is None}
    left: list[tuple[int, int]] = []
    active: list[int] = []
    for broker, states in broker_states(history).items():
        if not states.newest["exists"]:
            continue
        absence = away.get(broker)
        if absence is not None and absence.departure is Departure.CONTROLLED_SHUTDOWN:
            left.append((absence.from_offset, broker))
        elif states.newest["fenced"]:
            if states.is_active.any():
                return None  # fenced without a controlled shutdown: it was lost
        else:
            active.append(broker)
    if not left:
        return None
    running_voters = set(voters) - {broker for _, broker in left}
    if active and not (set(active) <= set(voters) and len(running_voters) < majority(len(voters))):
        return None
    return (*(broker for _, broker in sorted(left)), *sorted(active))
