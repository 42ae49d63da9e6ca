"""Voters whose disk lacks committed records that it held before: it was wiped, replaced, or put back to an older state.

A disk that ends early is only behind, as a slow voter is, unless something shows that it held more: it led an epoch, it
voted in one that it forgot, it was admitted as a voter with all that came before, or files beside its log name epochs
that the log lacks. And a copy made before that shows nothing: evidence counts where the disk was read after it.

A copy that lacks its log, or its end, lost nothing for that: what is left of it, and from when it is, is said here too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kraft_audit.capture.found_log import VoterKey
from kraft_audit.capture.plan import identity_of
from kraft_audit.quorum.quorum_evidence import PersistedState, majority
from kraft_audit.rules.cluster_history import ClusterHistory, TableRow, once_per_history
from kraft_audit.rules.columns.captures import (
    CLOCK_SLACK_MS,
    capture_evidence,
    newest_captures,
    newest_watermark,
    replica_end,
    replica_name,
)
from kraft_audit.rules.columns.log_batches import canonical_log, log_batches
from kraft_audit.rules.columns.rivals import DiskLoss
from kraft_audit.rules.columns.voter_sets import canonical_changes, current_set, is_voter_disk, keys_of, set_at
from kraft_audit.rules.rule_model import Evidence
from kraft_audit.text.readable import listed, nouns, when

UNSYNCED_MS: Final = 10_000
"""A power cut may take what a leader had not synced yet; so long no leader goes on without a sync."""


@dataclass(frozen=True, slots=True)
class LostRecords:
    """What one voter's disk lacks although it held it: `proof` says why it did, `fact` where that stands.

    `needed` is what would decide it where the copy may be older than the proof; None where it was read after it.
    `became`: what became of the disk, as far as its files show.
    """

    row: TableRow
    proof: str
    fact: Evidence
    needed: str | None
    became: DiskLoss

    @property
    def node_id(self) -> int:
        return int(self.row["node_id"])

    @property
    def end_offset(self) -> int:
        return replica_end(self.row)

    @property
    def sentence(self) -> str:
        """What happened to the disk, as one would say it."""
        name = replica_name(self.row)
        if self.needed is None:
            return (
                f"{name}'s disk {_WHAT_IT_DID[self.became]}: it {self.proof} and now ends at offset {self.end_offset}"
            )
        return f"{name} {self.proof}, and its copy ends at offset {self.end_offset}: {self.needed}"

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        state = "no persisted epoch" if self.row["leader_epoch"] is None else f"epoch {self.row['leader_epoch']}"
        return (self.fact, capture_evidence(self.row, f"ends at {self.end_offset}, {state}", offset=self.end_offset))


_WHAT_IT_DID: Final = {
    DiskLoss.EMPTIED: "lost its log",
    DiskLoss.EMPTIED_OR_REPLACED: "was replaced or wiped",
    DiskLoss.REPLACED: "was replaced",
    DiskLoss.CUT: "lost the end of its log",
    DiskLoss.WENT_BACK: "went back to an earlier state",
}


def disk_loss(history: ClusterHistory, row: TableRow, earlier: TableRow | None = None) -> DiskLoss:
    """What became of a voter's disk that lacks what it held; `earlier` is a copy of it from before."""
    if earlier is not None and earlier["directory_id"] != row["directory_id"]:
        return DiskLoss.REPLACED
    if replica_end(row):
        return DiskLoss.WENT_BACK
    is_named = (row["node_id"], row["directory_id"]) in _keys_of(current_set(history))
    return DiskLoss.EMPTIED if is_named and row["directory_id"] is not None else DiskLoss.EMPTIED_OR_REPLACED


@dataclass(frozen=True, slots=True)
class LostVoters:
    """The captured voters that lack committed records below `low`.

    `lacking` are all of them, `lost` those that something shows to have held the records.
    """

    low: int
    voters: tuple[TableRow, ...]
    lost: tuple[LostRecords, ...]
    lacking: tuple[TableRow, ...]

    @property
    def proven(self) -> tuple[LostRecords, ...]:
        return tuple(each for each in self.lost if each.needed is None)

    @property
    def is_majority_lost(self) -> bool:
        """Whether the other voters are no majority: then no majority holds what was committed."""
        return len(self.voters) - len(self.lacking) < majority(len(self.voters))

    @property
    def from_offset(self) -> int:
        """From where on only voters that lack nothing have the log."""
        return max((replica_end(row) for row in self.lacking if replica_end(row) < self.low), default=0)

    @property
    def sentence(self) -> str:
        """Who could lead without which committed records."""
        names = [replica_name(row) for row in self.lacking]
        span = f"offsets {self.from_offset}–{self.low - 1}"
        if len(names) >= majority(len(self.voters)):
            together = " together" if len(names) > 1 else ""
            return f"{listed(names)}{together} could elect a leader without {span}"
        rest = len(self.voters) - len(names)
        return f"only {rest} of {len(self.voters)} voters still hold {span}, which were committed"


@once_per_history
def lost_voters(history: ClusterHistory) -> LostVoters:
    """What the newest captures of the voters in effect show."""
    watermark, voter_set = newest_watermark(history), current_set(history)
    if watermark is None or voter_set is None or not watermark["low"]:
        return LostVoters(0, (), (), ())
    low, voters, keys = int(watermark["low"]), tuple(voter_set["voters"]), keys_of(voter_set["voters"])
    lacking = [
        row
        for row in newest_captures(history)
        if is_voter_disk(row, keys) and _lacks(history, row, low - 1, watermark["low_epoch"])
    ]
    lost = []
    for row in lacking:
        if row["bytes_quarantined"] or row["bytes_unread"]:
            continue  # unreadable is not absent
        proofs = sorted(_proofs(history, row, low), key=lambda each: each.needed is not None)
        lost += proofs[:1]
    return LostVoters(low, voters, tuple(lost), tuple(sorted(lacking, key=lambda row: int(row["node_id"]))))


def undecided_majority(history: ClusterHistory) -> str | None:
    """Why it is open whether a majority of the voters has lost committed records; None where it is not."""
    losses = lost_voters(history)
    if losses.is_majority_lost and losses.lost and not losses.proven:
        return f"{'; '.join(each.sentence for each in losses.lost)}; {losses.sentence}, if they are as copied"
    return None


def start_is_safe(history: ClusterHistory, losses: LostVoters) -> bool:
    """Whether the voters that lack records may start with their disks: no election can lose anything then.

    A majority of all voters holds the whole log, so no node without it is elected (KafkaRaftClient.handleVoteRequest,
    Kafka 4.3.0), and every voter's disk was read and knows its own votes, so no epoch gets a second leader.
    """
    voter_set, watermark, log = current_set(history), newest_watermark(history), canonical_log(history)
    if watermark is None or watermark["canonical_end_offset"] != log.end_offset:
        return False
    keys = _keys_of(voter_set)
    rows = [row for row in newest_captures(history) if is_voter_disk(row, keys)]
    whole = {
        row["node_id"]
        for row in rows
        if not (row["bytes_quarantined"] or row["bytes_unread"])
        and not _lacks(history, row, log.end_offset - 1, watermark["canonical_epoch"])
    }
    return (
        {row["node_id"] for row in rows} == {voter["voter_id"] for voter in losses.voters}
        and len(whole) >= majority(len(losses.voters))
        and all(_knows_its_votes(history, row) for row in rows)
    )


def _knows_its_votes(history: ClusterHistory, row: TableRow) -> bool:
    """Whether a disk's quorum-state is there and not older than what its node took part in."""
    if row["leader_epoch"] is None:
        return False
    state = PersistedState(row["leader_epoch"], row["leader_id"], row["voted_id"])
    earlier = (
        taken["leader_epoch"]
        for taken in history.rows("captures")
        if identity_of(taken) == identity_of(row) and taken["leader_epoch"] is not None
    )
    took_part = (
        led["epoch"]
        for led in history.rows("leader_epochs")
        if row["node_id"] in (led["leader_id"], *(led["granting_voters"] or ()))
    )
    return state.forgotten_epoch(max(took_part, default=-1), max(earlier, default=-1)) < 0


def _keys_of(voter_set: TableRow | None) -> frozenset[VoterKey]:
    return frozenset() if voter_set is None else keys_of(voter_set["voters"])


def _set_of(history: ClusterHistory, change: int) -> TableRow | None:
    """The set in effect at a LeaderChange; the first one of a log stands two records after it, in its batch."""
    return set_at(history, change) or set_at(history, change + 2)


def _lacks(history: ClusterHistory, row: TableRow, offset: int, epoch: int) -> bool:
    """Whether a disk lacks a record: its log ends before it, or holds another epoch there. Unreadable is not absent."""
    if replica_end(row) <= offset:
        return True
    if (row["snapshot_end_offset"] or 0) > offset or (row["log_start_offset"] or 0) > offset:
        return False
    batches = log_batches(history)
    there = batches.held_by(row) & (batches.base_offset <= offset) & (batches.last_offset >= offset)
    return bool(there.any() and not (batches.leader_epoch[there] == epoch).any())


def _proofs(history: ClusterHistory, row: TableRow, low: int) -> Iterator[LostRecords]:
    yield from _led(history, row, low)
    yield from _voted(history, row)
    yield from _admitted(history, row, low)
    yield from _named_by_checkpoint(history, row, low)


def _led(history: ClusterHistory, row: TableRow, low: int) -> Iterator[LostRecords]:
    """A leader holds every record before its epoch, and wrote every record of it."""
    log = canonical_log(history)
    for led in history.rows("leader_epochs"):
        change, epoch = led["leader_change_offset"], led["epoch"]
        if not led["canonical"] or led["leader_id"] != row["node_id"] or change is None or led["from_offset"] >= low:
            continue
        last = min(led["to_offset"] or low, low) - 1
        if not is_voter_disk(row, _keys_of(_set_of(history, change))) or not _lacks(history, row, last, epoch):
            continue
        first = replica_end(row) if replica_end(row) <= last else led["from_offset"]
        wrote_ms, kept_ms = log.time_at(first), log.time_at(last)
        if wrote_ms is None or kept_ms is None or kept_ms - wrote_ms < UNSYNCED_MS:
            continue  # a power cut may have taken what was not synced yet
        fact = Evidence(
            f"LeaderChange of epoch {epoch}: leader {row['node_id']}",
            offset=change,
            epoch=epoch,
            timestamp_ms=led["timestamp_ms"],
        )
        # Before it leads, a candidate persists the epoch and a vote for itself: one that knows of neither forgot them.
        forgot = row["leader_epoch"] == epoch and row["node_id"] not in (row["leader_id"], row["voted_id"])
        needed = None if forgot else _needed(history, row, epoch, wrote_ms)
        yield LostRecords(row, f"led epoch {epoch}", fact, needed, disk_loss(history, row))


def _voted(history: ClusterHistory, row: TableRow) -> Iterator[LostRecords]:
    """A vote is persisted before it is given: a disk of an older epoch forgot it."""
    state = -1 if row["leader_epoch"] is None else row["leader_epoch"]
    for led in history.rows("leader_epochs"):
        change, epoch = led["leader_change_offset"], led["epoch"]
        if change is None or row["node_id"] not in (led["granting_voters"] or ()) or state >= epoch:
            continue
        if not is_voter_disk(row, _keys_of(_set_of(history, change))):
            continue
        text = f"LeaderChange of epoch {epoch}: granting voters {led['granting_voters']}"
        fact = Evidence(text, offset=change, epoch=epoch, timestamp_ms=led["timestamp_ms"])
        needed = _needed(history, row, epoch, led["timestamp_ms"])
        yield LostRecords(row, f"voted in epoch {epoch}", fact, needed, disk_loss(history, row))


def _admitted(history: ClusterHistory, row: TableRow, low: int) -> Iterator[LostRecords]:
    """A leader admits a voter once it has fetched the log (AddVoterHandler, Kafka 4.3.0; KIP-853)."""
    began = {led["epoch"]: led for led in history.rows("leader_epochs") if led["canonical"]}
    for change in canonical_changes(history):
        epoch = change.row["from_epoch"]
        if (row["node_id"], row["directory_id"]) not in change.added or epoch not in began:
            continue
        before = began[epoch]["from_offset"]
        if not before or before > low or replica_end(row) >= before:
            continue
        text = f"voter set at offset {change.offset} admits voter {row['node_id']}"
        fact = Evidence(text, offset=change.offset, epoch=epoch, timestamp_ms=change.row["timestamp_ms"])
        proof = f"was admitted as a voter at offset {change.offset}"
        needed = _needed(history, row, epoch, change.row["timestamp_ms"])
        yield LostRecords(row, proof, fact, needed, disk_loss(history, row))


def _named_by_checkpoint(history: ClusterHistory, row: TableRow, low: int) -> Iterator[LostRecords]:
    """leader-epoch-checkpoint gets an entry with an epoch's first record, of an epoch that it leads before that.

    One epoch may begin between the copies of the log and of this file. So two have to, or the disk was surely written
    to long after the epoch had begun.
    """
    log, end = canonical_log(history), replica_end(row)
    led_by = {led["epoch"]: led["leader_id"] for led in history.rows("leader_epochs") if led["canonical"]}
    entries = [
        entry
        for entry in row["leader_epoch_checkpoint"] or ()
        if end < entry["start_offset"] < low
        and log.epoch_at(entry["start_offset"]) == entry["epoch"]
        and led_by.get(entry["epoch"], row["node_id"]) != row["node_id"]
    ]
    if row["log_end_offset"] is None or not entries:
        return
    last = entries[-1]
    wrote_ms, kept_ms = log.time_at(end), log.time_at(last["start_offset"])
    if wrote_ms is None or kept_ms is None:
        return
    written_ms = history.written_ms.get((row["root"], row["path"]))
    goes_on = written_ms is not None and written_ms - kept_ms > UNSYNCED_MS
    if goes_on or (len(entries) > 1 and kept_ms - wrote_ms >= UNSYNCED_MS):
        text = f"its leader-epoch-checkpoint has epoch {last['epoch']} from offset {last['start_offset']}"
        fact = capture_evidence(row, text, offset=last["start_offset"], epoch=last["epoch"])
        proof = f"held epoch {last['epoch']} from offset {last['start_offset']}"
        yield LostRecords(row, proof, fact, None, DiskLoss.CUT)


def _needed(history: ClusterHistory, row: TableRow, epoch: int, time_ms: int | None) -> str | None:
    """What would show that a disk was read after something of an epoch; None where it was."""
    if row["log_end_offset"] is None and row["leader_epoch_checkpoint"]:
        return "its copy has no segment; copy it again with its *.log files"
    if row["leader_epoch"] is None and replica_end(row):
        return "its copy has no quorum-state; copy it again with that file"
    reached = max(-1 if row[name] is None else row[name] for name in ("last_epoch", "leader_epoch"))
    written_ms = history.written_ms.get((row["root"], row["path"]))
    if reached > epoch or (written_ms is not None and time_ms is not None and written_ms >= time_ms + CLOCK_SLACK_MS):
        return None
    since = "that" if time_ms is None else when(time_ms)
    return f"its disk was replaced, or the copy is older than {since}; copy {replica_name(row)} again"


def state_of_snapshot(history: ClusterHistory) -> str | None:
    """Which snapshot the state is, and from when, where there is no canonical log; None where the log was replayed."""
    newest = newest_watermark(history)
    if newest is None or newest["canonical_end_offset"] is not None or not history.states_from:
        return None
    return f"no log reaches it: the state is that of {_snapshot_text(history, history.states_from)}"


def without_log(history: ClusterHistory, rows: Sequence[TableRow]) -> str:
    """What a copy without any segment still says: how many snapshots, and how far the log went by its other files."""
    snapshots = sum(row["snapshot_count"] for row in rows)
    starts = [(entry["start_offset"], entry["epoch"]) for row in rows for entry in row["leader_epoch_checkpoint"] or ()]
    reached = ""
    if starts:
        offset, epoch = max(starts)
        reached = f" It reached at least offset {offset}, epoch {epoch} (leader-epoch-checkpoint)."
    end, epoch = max((row["snapshot_end_offset"] or 0, row["snapshot_epoch"] or 0) for row in rows)
    newest = f" The newest state in it is that of {_snapshot_text(history, end)}, epoch {epoch}." if end else ""
    earlier = max((row["log_end_offset"] or 0 for row in history.rows("captures") if row["accepted"]), default=0)
    newest += f" An earlier copy's log ends at {earlier}: it is the older one." if earlier else ""
    return (
        f"the log is missing from this copy (is `*.log` left out?): no segment was captured, {snapshots} "
        f"snapshot{'s' * (snapshots != 1)}.{reached}{_who_led(rows)}{newest} Nothing here says that the cluster lost "
        "anything; copy it again with its *.log files"
    )


def _who_led(rows: Sequence[TableRow]) -> str:
    """Who led the newest epoch of which a copy names the leader, and which voters it was configured with."""
    named = (row for row in rows if row["leader_id"] is not None and row["leader_id"] >= 0)
    led = [(row["leader_epoch"], row["leader_id"]) for row in named]
    sets = {tuple(sorted(row["current_voters"])) for row in rows if row["current_voters"]}
    epoch, leader = max(led, default=(None, None))
    parts = [] if leader is None else [f"leader {leader} in epoch {epoch}"]
    parts += [nouns("voter", ids) for ids in sorted(sets)]
    return f" quorum-state names {listed(parts)}." if parts else ""


def ends_before_its_snapshot(history: ClusterHistory, low: int) -> str | None:
    """Why nothing is lost where no log reaches what a snapshot of the same copy proves; None where logs contradict.

    Kafka would start from the snapshot: the copy is of two moments, or lacks a segment.
    """
    rows = newest_captures(history)
    end = max((row["log_end_offset"] or 0 for row in rows), default=0)
    if end >= low or not any(row["snapshot_end_offset"] == low for row in rows):
        return None
    text = missing_before(history, end, low)
    return f"{text}: the copy is of two moments, or lacks a segment; copy the log again to decide"


def missing_before(history: ClusterHistory, end: int, snapshot_end: int) -> str:
    """Which offsets a copy lacks before its own snapshot, and from when log and snapshot are."""
    if end == 0:
        return f"no segment was captured below the snapshot that ends at {snapshot_end}"
    times = [row["last_timestamp_ms"] for row in newest_captures(history) if row["log_end_offset"] == end]
    written = f" ({when(max(times))} UTC)" if times and None not in times else ""
    missing = f"offsets {end}–{snapshot_end - 1} are missing"
    return f"the log ends at {end}{written}, before its own {_snapshot_text(history, snapshot_end)}; {missing}"


def _snapshot_text(history: ClusterHistory, end: int) -> str:
    time_ms = history.snapshot_times_ms.get(end)
    return f"snapshot {end}" + ("" if time_ms is None else f" ({when(time_ms)} UTC)")
