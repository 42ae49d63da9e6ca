"""A rescue that a captured node dir declares (rescue.json), and which findings it explains.

A rescued dir begins a new log: one voter, a snapshot above every old offset in an epoch above every old epoch. What
rules find there is what the rescue did, and it was declared. A declaration explains only what lies before its snapshot;
what happens after it, and what the old disks show of themselves, is raised as ever. One that does not fit explains
nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from kraft_audit.capture.declared_rescue import DeclaredRescue, DiskKey
from kraft_audit.capture.plan import HistorySummary
from kraft_audit.rules.cluster_history import ClusterHistory, TableRow, once_per_history
from kraft_audit.rules.columns.captures import captures_in_order, newest_watermark
from kraft_audit.rules.columns.voter_sets import current_set, keys_of, voter_ids
from kraft_audit.rules.rule_model import DECLARED_BY, FOR_EVER, Finding, Status, Waiver
from kraft_audit.text.readable import listed, when

LOST_SHOWN: Final = 3
DECLARED_WHY: Final = "it is what a declared rescue did: "
FENCE_KEY: Final = "epochs that the rescue at offset {} passed over"
"""What identifies the finding about the epochs that a rescue passed over."""


@dataclass(frozen=True, slots=True)
class DeclaredRecovery:
    """A declared rescue; `misfit` says what contradicts it, `is_started` whether a captured log goes on after it."""

    rescue: DeclaredRescue
    misfit: str | None
    is_started: bool

    @property
    def subject(self) -> str:
        return f"node {self.rescue.node_id} from offset {self.rescue.offset}"

    @property
    def fence(self) -> range:
        """The epochs that it passed over: none of them had a leader, and no old controller reached them."""
        return range(self.rescue.newest_epoch + 1, self.rescue.epoch + 1)

    @property
    def sentence(self) -> str:
        """When, from whose disk, the cut, what was lost, what is fenced; or why it is not believed."""
        rescue = self.rescue
        if self.misfit is not None:
            return (
                f"The rescue.json of {rescue_name(rescue)} does not fit the logs: {self.misfit}. No finding is replaced"
            )
        return (
            f"Rescued at {when(rescue.written_ms)} from {rescue.source}, cut at offset {rescue.cut}, as node "
            f"{rescue.node_id} alone; {_lost_text(rescue)}. Fenced: epochs up to {rescue.epoch}, offsets before "
            f"{rescue.offset}, and the old disks of {listed(sorted(rescue.voters)) or 'the quorum'}, which return only "
            "after a format"
        )


def rescue_name(rescue: DeclaredRescue) -> str:
    return f"node {rescue.node_id} (directory {rescue.directory_id})"


def _lost_text(rescue: DeclaredRescue) -> str:
    parts = list(rescue.lost[:LOST_SHOWN])
    if more := rescue.lost_count - len(parts):
        parts.append(f"{more} more in rescue.json")
    text = f"lost: {'; '.join(parts)}" if parts else "no loss is known"
    if rescue.unknown_from is not None:
        text += f" (disks that were not read may have held more from offset {rescue.unknown_from} on)"
    return text


@once_per_history
def declared_recoveries(history: ClusterHistory) -> list[DeclaredRecovery]:
    """Every rescue that the newest capture of a node dir declares, in the order of their offsets."""
    rows: dict[DiskKey, TableRow] = {}
    for row in captures_in_order(history):
        if row["rescue"] is not None:
            rows[row["node_id"], row["directory_id"]] = row
    declarations = [(row, DeclaredRescue.from_json(row["rescue"])) for row in rows.values()]
    declarations.sort(key=lambda each: each[1].offset)
    rescues = [rescue for _, rescue in declarations]
    return [
        DeclaredRecovery(rescue, _misfit(history, row, rescue, rescues), _is_started(history, rescue))
        for row, rescue in declarations
    ]


def fitting_recoveries(history: ClusterHistory) -> list[DeclaredRecovery]:
    """Those that fit the logs: what they explain is no finding of its own."""
    return [recovery for recovery in declared_recoveries(history) if recovery.misfit is None]


def waiting_recovery(history: ClusterHistory) -> DeclaredRecovery | None:
    """The newest rescue, where it fits and its node was not started yet."""
    recoveries = fitting_recoveries(history)
    return recoveries[-1] if recoveries and not recoveries[-1].is_started else None


def _is_started(history: ClusterHistory, rescue: DeclaredRescue) -> bool:
    return any(
        (row["last_epoch"] or 0) > rescue.epoch or (row["snapshot_end_offset"] or 0) > rescue.offset
        for row in history.rows("captures")
    )


def _misfit(
    history: ClusterHistory, row: TableRow, rescue: DeclaredRescue, rescues: Collection[DeclaredRescue]
) -> str | None:
    """What contradicts a declaration: its own node dir, the log there, the voters, or another rescue of that quorum."""
    if rescue.misfit is not None:
        return rescue.misfit
    if row["log_start_offset"] is not None and row["log_start_offset"] < rescue.offset:
        return f"its log begins at offset {row['log_start_offset']}, before {rescue.offset}"
    if row["last_epoch"] is not None and row["last_epoch"] <= rescue.epoch:
        return f"its log is in epoch {row['last_epoch']}, which is not above {rescue.epoch}"
    if row["leader_epoch"] is not None and row["leader_epoch"] < rescue.epoch:
        return f"its quorum-state is in epoch {row['leader_epoch']}, before {rescue.epoch}"
    own = {(rescue.node_id, rescue.directory_id)}
    for voter_set in history.rows("voter_sets"):
        is_its_own = (voter_set["from_offset"], voter_set["from_epoch"]) == (rescue.offset - 1, rescue.epoch)
        if is_its_own and keys_of(voter_set["voters"]) != own:
            return f"the voters at offset {rescue.offset - 1} are {_ids(voter_set)}, not node {rescue.node_id} alone"
    for second in rescues:
        is_apart = (second.node_id, second.directory_id) not in own
        if is_apart and second.misfit is None and not (_is_of_line(second, rescue) or _is_of_line(rescue, second)):
            return f"{rescue_name(second)} declares another rescue of the same quorum: both go on under one cluster id"
    return None


def _ids(voter_set: TableRow) -> str:
    return listed(sorted(voter_ids(voter_set)))


def _is_of_line(later: DeclaredRescue, earlier: DeclaredRescue) -> bool:
    """Whether one rescue went on from what another one had made."""
    return later.offset > earlier.offset and later.newest_epoch >= earlier.epoch


def declared_waiver(history: ClusterHistory, finding: Finding) -> Waiver | None:
    """What stands for a finding that a declared rescue explains; None for any other."""
    if finding.status is not Status.RAISED:
        return None
    for recovery in fitting_recoveries(history):
        if _explains(history, recovery, finding):
            why = f"{DECLARED_WHY}{recovery.subject}"
            return Waiver(finding.rule, finding.cluster_id, finding.subject, DECLARED_BY, why, FOR_EVER)
    return None


def is_declared_by(finding: Finding, subject: str) -> bool:
    """Whether it is the rescue of this subject that explains a finding."""
    return finding.is_declared and finding.waiver is not None and finding.waiver.why == f"{DECLARED_WHY}{subject}"


def _explains(history: ClusterHistory, recovery: DeclaredRecovery, finding: Finding) -> bool:
    """Two leaders in an epoch (KQ003) and an epoch that goes back (KQ004) no rescue brings about: its epoch is new."""
    rescue, offset = recovery.rescue, finding.from_offset
    if finding.rule in ("KV001", "KV002"):
        return (offset, finding.epoch) == (rescue.offset - 1, rescue.epoch)
    if finding.rule == "KQ005":
        return finding.epoch == rescue.epoch and offset == rescue.offset
    if finding.rule == "KQ016":
        return finding.subject == FENCE_KEY.format(rescue.offset)
    if finding.rule == "KB009":
        return all(is_left_behind(rescue, each) for each in history.history_of.histories[1:])
    if finding.rule == "KQ002" and offset is not None:
        is_of_lost_part = rescue.cut <= offset < rescue.offset
        if is_of_lost_part and finding.epoch is not None:
            return finding.epoch <= rescue.newest_epoch
        return is_of_lost_part or (not recovery.is_started and _ends_before(history, rescue))
    if finding.rule == "KQ026":
        return not recovery.is_started and finding.subject == f"voter {rescue.node_id}"
    if recovery.is_started or offset is None:
        return False
    voters = _old_voters(history, rescue)
    if finding.rule == "KV013":
        return bool(voters) and offset <= rescue.end_offset
    return finding.rule == "KV008" and finding.subject == f"voter {rescue.node_id}" and bool(voters)


def _ends_before(history: ClusterHistory, rescue: DeclaredRescue) -> bool:
    """Whether no log is canonical because the snapshot of the rescue stands above all of them."""
    newest = newest_watermark(history)
    return (
        newest is not None
        and newest["canonical_end_offset"] is None
        and (newest["low"], newest["low_epoch"]) == (rescue.offset, rescue.epoch)
        and all((row["log_end_offset"] or 0) <= rescue.offset for row in history.rows("captures"))
    )


def _old_voters(history: ClusterHistory, rescue: DeclaredRescue) -> bool:
    """Whether the newest known voter set is that of the quorum that was lost."""
    voter_set = current_set(history)
    return voter_set is not None and voter_ids(voter_set) == frozenset(rescue.voters)


def is_left_behind(rescue: DeclaredRescue, summary: HistorySummary) -> bool:
    """Whether a log of the same cluster id is the one that a rescue went on from."""
    disks = {(replica.node_id, replica.directory_id) for replica in summary.replicas}
    is_of_quorum = all(disk in rescue.copies or disk[0] in rescue.voters for disk in disks)
    is_its_own = (rescue.node_id, rescue.directory_id) in disks
    return is_of_quorum and not is_its_own and summary.end_offset <= rescue.offset


def rescue_past(history: ClusterHistory) -> DeclaredRescue | None:
    """The rescue that went on from this log, as a newer log of the same cluster id declares it."""
    known = history.history_of
    for summary in known.histories[: known.number]:
        rescue = None if not summary.rescue else DeclaredRescue.from_json(summary.rescue)
        if rescue is not None and rescue.misfit is None and is_left_behind(rescue, known.mine):
            return rescue
    return None
