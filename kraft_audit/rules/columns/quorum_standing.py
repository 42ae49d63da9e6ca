"""Where the quorum stands as of the newest captures: whether it works, rests, or lost its leader or its majority.

Disks of a dead quorum look like disks at rest: controllers log no shutdown, and survivors go on naming a leader that is
gone. So each answer rests on what a disk can show (persisted epochs and votes, brokers' controlled shutdowns, the
committed interval) and on what the operator says (`OperatorWord`). What they leave open is undecided, with what would
decide it.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from kraft_audit.capture.disk_trust import DiskTrust, disk_trust
from kraft_audit.quorum.quorum_evidence import majority
from kraft_audit.rules.cluster_history import ClusterHistory, TableRow, feature_level, once_per_history
from kraft_audit.rules.columns.broker_stops import last_voter, stopped_brokers
from kraft_audit.rules.columns.captures import (
    committed_end,
    is_emptied,
    is_no_evidence,
    lacks_its_log,
    newest_round,
    newest_watermark,
)
from kraft_audit.rules.columns.declared_recovery import waiting_recovery
from kraft_audit.rules.columns.log_batches import canonical_log, log_batches
from kraft_audit.rules.columns.lost_records import (
    ends_before_its_snapshot,
    lost_voters,
    undecided_majority,
    without_log,
)
from kraft_audit.rules.columns.rivals import last_voter_text
from kraft_audit.rules.columns.shorter_logs import behind_a_snapshot, shorter_logs, shorter_reason
from kraft_audit.rules.columns.unheld_records import unheld_records
from kraft_audit.rules.columns.voter_alone import WhyAlone, claim_without_record, voter_alone
from kraft_audit.rules.columns.voter_sets import current_set, is_voter_disk, keys_of, leaders_of
from kraft_audit.text.readable import duration, listed, nouns, when
from kraft_codec.schemas.releases import METADATA_VERSION_FEATURE

QUORUM_TABLES: Final = ("captures", "leader_epochs", "watermarks", "voter_sets", "broker_changes", "batches")
"""What the standing of a quorum is read from."""
AT_REST_REASON: Final = "every broker stopped in order"
QUIET_AFTER_MS: Final = 10_000
"""So long the logs of running nodes may stand still before they count as without a leader."""
IDLE_BATCH_MS: Final = 2_000
"""An idle leader writes a NoOp every metadata.max.idle.interval.ms, 500 by default (KIP-835)."""
IDLE_BATCHES: Final = 100
DECIDING_FILES: Final = "leader-epoch-checkpoint and *.log"
"""What has to be copied again of a disk that contradicts itself or cannot be read."""
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
class DistrustedDisk:
    """A voter's disk that was copied and on which no claim may rest, with the reason, where there is one."""

    node_id: int
    trust: DiskTrust
    reason: str


@dataclass(frozen=True, slots=True)
class QuorumStanding:
    """The standing with what it rests on. `reason` says why, or what would decide.

    `epoch` is the newest persisted epoch, `leader_id` who leads it (None where no disk names a leader). `voters` are
    the ids of the set in effect at the end of the canonical log, `gone` those that the operator says are lost,
    `captured` the others whose disk was read, `epochs` the persisted epoch of every voter's disk that was read.
    `committed_to` is the low of the newest round, `end_offset` the end of the canonical log, both exclusive.
    `since_ms`, in milliseconds since 1970, is the append time of the last batch; of a stalled quorum that of the first
    record that waits. `is_stopped_in_order` is set where the log ends with the controlled shutdown of every broker:
    `stopped_brokers`, in that order. `distrusted` are voters' disks that were copied and on which no claim may rest:
    of these only the empty ones count as captured. `is_open_ended`: a disk once held more than is proven committed.
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
    distrusted: tuple[DistrustedDisk, ...] = ()
    is_open_ended: bool = False

    @property
    def committed_text(self) -> str:
        """Up to which offset the log is proven committed; empty where nothing is."""
        at_least = "at least " if self.is_open_ended else ""
        return f"committed {at_least}through offset {self.committed_to - 1}" if self.committed_to else ""

    @property
    def missing(self) -> tuple[int, ...]:
        """Voters that were neither captured nor said to be gone."""
        return tuple(sorted(set(self.voters) - set(self.captured) - set(self.gone)))

    @property
    def lacks_majority(self) -> bool:
        """Whether it is not judged because disks of voters are missing."""
        return self.standing is Standing.NOT_JUDGED and (bool(self.missing) or not self.voters)

    @property
    def majority(self) -> int:
        """How many voters a decision needs."""
        return majority(len(self.voters)) if self.voters else 0


@once_per_history
def quorum_standing(history: ClusterHistory) -> QuorumStanding:
    """The standing as of the newest round of captures. Without the table `batches` logs do not count as contradictory,
    no quorum as stalled and no majority of disks as lost: the findings of KQ020 and KQ024 say so then."""
    rows = newest_round(history)
    voter_set = current_set(history)
    if any(row["snapshot_count"] for row in rows) and all(_is_unstarted(row) for row in rows):
        nodes = listed(sorted(row["node_id"] for row in rows if row["node_id"] is not None))
        return QuorumStanding(Standing.EMPTY, f"nodes {nodes} are formatted and were never started: no record exists")
    if rows and all(map(is_emptied, rows)):
        reason = "every file here is empty: the dir was emptied, or copied before it was flushed. Look for another copy"
        return QuorumStanding(Standing.NO_LOG, reason)
    has_log = any(row["log_end_offset"] is not None or is_no_evidence(row) for row in rows)
    if not has_log and any(map(lacks_its_log, rows)):
        return QuorumStanding(Standing.NO_LOG, without_log(history, rows))
    if (waiting := waiting_recovery(history)) is not None:
        node_id = waiting.rescue.node_id
        reason = f"node {node_id}, rescued from {waiting.rescue.source}, was not started yet: no log goes on from there"
        return QuorumStanding(Standing.NOT_JUDGED, reason, voters=(node_id,), captured=(node_id,))
    if not rows or voter_set is None:
        return QuorumStanding(Standing.NOT_JUDGED, "no voter set is known: no log and no checkpoint names the voters")
    rows = [row for row in rows if not is_no_evidence(row)] or rows
    facts = _facts(history, rows, voter_set)
    judged = _judged(history, rows, facts)
    if facts.distrusted and judged.standing not in BROKEN:
        shorter = None if judged.captured else shorter_reason(history)
        reason = shorter or _distrust_reason(judged)
        return replace(judged, standing=Standing.UNDECIDED, reason=reason)
    return judged


_TRUST_WORDS: Final = {
    DiskTrust.SUSPECT: ("contradicts itself", "contradict themselves"),
    DiskTrust.UNREAD: ("cannot be read", "cannot be read"),
    DiskTrust.EMPTY: ("has an empty log", "have empty logs"),
}
"""What is said of one such disk, and of several."""


def distrust_text(disks: Sequence[DistrustedDisk], *, with_reasons: bool) -> str:
    """Which nodes' disks nothing may rest on, joined where the same is wrong with them."""
    alike: dict[tuple[DiskTrust, str], list[int]] = {}
    for disk in disks:
        alike.setdefault((disk.trust, disk.reason if with_reasons else ""), []).append(disk.node_id)
    parts = []
    for (trust, reason), nodes in alike.items():
        words = _TRUST_WORDS[trust][len(nodes) > 1]
        parts.append(f"{nouns('node', nodes)} {words}" + (f": {reason}" if reason else ""))
    return ("; " if with_reasons else ", ").join(parts)


def _distrust_reason(judged: QuorumStanding) -> str:
    """What is wrong with which voters' disks, and what the others say without them."""
    wrong = distrust_text(judged.distrusted, with_reasons=True)
    again = f"Copy {nouns('node', [disk.node_id for disk in judged.distrusted])} again"
    if len(judged.captured) < judged.majority:
        return f"{wrong}. {again}"
    return f"{wrong}. {again}. Without it, {', '.join(filter(None, (judged.reason, judged.committed_text)))}"


def _judged(history: ClusterHistory, rows: list[TableRow], facts: QuorumStanding) -> QuorumStanding:
    """The standing by the disks that are evidence."""
    left = len(facts.voters) - len(facts.gone)
    if facts.gone and left < facts.majority:
        reason = f"{left} of {len(facts.voters)} voters are left, {facts.majority} are needed"
        return replace(facts, standing=Standing.MAJORITY_LOST, reason=reason)
    if not facts.missing and not facts.end_offset and not facts.committed_to:
        return replace(facts, standing=Standing.EMPTY, reason="no voter's log holds a record")
    if len(facts.captured) < facts.majority:
        copies = nouns("voter", facts.missing)
        reason = f"{len(facts.captured)} of {len(facts.voters)} voters captured; copy {copies} too"
        if (last := last_voter(history, facts.voters)) is not None:
            stopped = f"{nouns('node', last.stopped)} stopped in order until {when(last.since_ms)}"
            reason += f". {stopped}, {last_voter_text(last)}"
        return replace(facts, standing=Standing.NOT_JUDGED, reason=reason)
    has_batches = history.has("batches")
    if has_batches and (contradiction := _contradiction(history, facts.epoch)) is not None:
        return replace(facts, reason=contradiction)
    if (shorter := shorter_reason(history)) is not None:
        return replace(
            facts, standing=Standing.UNDECIDED, reason=shorter, is_stopped_in_order=False, stopped_brokers=()
        )
    if (behind := behind_a_snapshot(history, rows, facts.voters)) is not None:
        return replace(facts, leader_id=None, reason=behind, is_stopped_in_order=False, stopped_brokers=())
    is_at_rest = facts.is_stopped_in_order and not history.operator.is_running
    alone = None if is_at_rest else voter_alone(history, rows, facts.voters)
    if alone is not None and alone.situation is WhyAlone.OPEN and not history.operator.is_running:
        return replace(facts, leader_id=None, reason=alone.reason)
    if alone is not None and alone.situation is WhyAlone.MAJORITY_DEAD:
        facts = replace(facts, leader_id=None)
    elif alone is not None:
        facts = replace(facts, epoch=alone.epoch, leader_id=alone.leader_id)
    elif not is_at_rest and (claim := claim_without_record(history, rows, facts.voters)) is not None:
        return replace(facts, leader_id=None, reason=claim)
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
    captured = [row for row in rows if is_voter_disk(row, keys) and not is_no_evidence(row)]
    epoch = max((row["leader_epoch"] for row in rows if row["leader_epoch"] is not None), default=-1)
    last = max((row["last_epoch"] for row in rows if row["last_epoch"] is not None), default=-1)
    watermark, log = newest_watermark(history), canonical_log(history)
    stopped = stopped_brokers(history, ids)
    low = watermark["low"] if watermark is not None and watermark["low"] else 0
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
        committed_to=committed_end(history),
        end_offset=None if watermark is None else watermark["canonical_end_offset"],
        since_ms=int(log.timestamp_ms[-1]) if len(log.timestamp_ms) else history.end_ms,
        is_stopped_in_order=stopped is not None,
        stopped_brokers=stopped or (),
        distrusted=_distrusted(history, {row["node_id"] for row in captured} | set(gone), ids),
        is_open_ended=any(each.reached.offset > low for each in shorter_logs(history)),
    )


def _distrusted(history: ClusterHistory, known: Collection[int], voters: Collection[int]) -> tuple[DistrustedDisk, ...]:
    """The voters whose disk is no evidence; `known` have another disk, or are gone.

    An empty log counts where nothing tells it from that of a new voter: KQ021 asks for another copy then.
    """
    wrong: dict[int, DistrustedDisk] = {}
    for row in newest_round(history):
        node_id, trust = row["node_id"], disk_trust(row)
        if node_id in voters and node_id not in known and not trust.counts:
            wrong[node_id] = DistrustedDisk(node_id, trust, row["doubt"] or "")
    if history.has("batches"):
        losses = lost_voters(history)
        proven = {each.node_id for each in losses.proven}
        for row in losses.lacking:
            node_id, trust = row["node_id"], disk_trust(row)
            if trust is DiskTrust.EMPTY and node_id not in wrong and node_id not in proven:
                wrong[node_id] = DistrustedDisk(node_id, trust, f"offset {losses.low - 1} is committed")
    return tuple(wrong[node_id] for node_id in sorted(wrong))


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
    return f"{who} no log is canonical"


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
    took_part = [voter for voter, epoch in facts.epochs if epoch == facts.epoch]
    if is_observed and not took_part:
        # Observers learn an epoch from a voter, which persists it before it answers.
        observers = nouns("node", sorted({row["node_id"] for row in in_epoch if row["node_id"] is not None}))
        which = f"{observers} knew epoch {facts.epoch}, which no voter's disk has"
        return Standing.UNDECIDED, f"{which}: copy {nouns('voter', facts.voters)} again"
    reason = f"no captured disk names a leader of epoch {facts.epoch}; {listed(took_part)} took part in it"
    return Standing.NO_LEADER, reason


def _quiet(history: ClusterHistory, rows: list[TableRow], facts: QuorumStanding) -> QuorumStanding | None:
    """No leader, where the operator says that the nodes run and no log grew before it was read; else None.

    A leader writes NoOps when it is idle, and survivors of a dead quorum go on naming their last leader. An archive
    does not show when it was taken, so nothing follows from it.
    """
    if not history.operator.is_running or facts.missing or any(row["medium"] == "archive" for row in rows):
        return None
    written = max((row["last_timestamp_ms"] or 0 for row in rows), default=0)
    quiet_ms = min(row["read_from_ms"] for row in rows) - written
    if not written or quiet_ms < QUIET_AFTER_MS or not writes_when_idle(history):
        return None
    reason = (
        f"node {facts.leader_id} led epoch {facts.epoch}, and no log grew in the {duration(quiet_ms)} before reading"
    )
    return replace(facts, standing=Standing.NO_LEADER, reason=reason, since_ms=written)


def writes_when_idle(history: ClusterHistory) -> bool:
    """Whether the leader wrote NoOps: by metadata.version, and by the pace of the newest batches."""
    times = canonical_log(history).timestamp_ms[-IDLE_BATCHES:]
    level = feature_level(history, METADATA_VERSION_FEATURE) or 0
    return level >= FIRST_WITH_NO_OPS and len(times) > 1 and float(np.median(np.diff(times))) <= IDLE_BATCH_MS


def _stalled(history: ClusterHistory, facts: QuorumStanding) -> QuorumStanding | None:
    """Of records that wait for a majority: stalled, or undecided where the copies may be of different moments."""
    waiting = unheld_records(history)
    if waiting is None:
        return None
    last = last_voter(history, facts.voters)
    if last is not None and last.ran_on:
        since_ms = canonical_log(history).time_at(waiting.from_offset - 1) or last.since_ms
        stopped = f"{nouns('node', last.stopped)} stopped in order"
        span = f"offsets {waiting.from_offset} to {waiting.to_offset - 1}"
        alone = f"node {last.node_id} runs alone and cannot commit {span}"
        reason = f"no majority since {when(since_ms)}: {stopped}, {alone}"
        return replace(facts, standing=Standing.STALLED, reason=reason, since_ms=since_ms)
    standing = Standing.STALLED if waiting.is_stalled else Standing.UNDECIDED
    return replace(facts, standing=standing, reason=waiting.reason, since_ms=waiting.since_ms)
