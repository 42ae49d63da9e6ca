"""Findings folded into incidents: what one stop, loss or election brought about is one story.

A finding about partitions belongs to the incident during which its episode began; one about a broker, to the incident
in which that broker left. What no incident explains stands by itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from kraft_audit.incidents.broker_incidents import broker_incidents
from kraft_audit.incidents.incident import (
    Incident,
    IncidentEvent,
    IncidentKind,
    IncidentMembers,
    incident_id,
    incident_row,
)
from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.declared_recovery import (
    declared_recoveries,
    fitting_recoveries,
    is_declared_by,
    rescue_name,
    rescue_past,
)
from kraft_audit.rules.columns.log_batches import canonical_log
from kraft_audit.rules.columns.quorum_standing import BROKEN, Standing, quorum_standing
from kraft_audit.rules.rule_model import LOSS, Finding, FindingState, Scope, Status
from kraft_audit.tables.silver import PARTITION_CHANGES
from kraft_audit.text.readable import duration, when

QUORUM_RULES: Final = frozenset({"KQ023", "KQ024", "KQ025"})
OPEN_END: Final = 1 << 62


@dataclass(frozen=True)
class FoldedFindings:
    """All incidents of a cluster, newest open first, and the findings that none of them explains.

    Waived findings stay part of their incident, and alarm nowhere; `waived` are those that no incident explains.
    `findings` are all, in the order in which they were given, each with its incident; `open` are those that alarm.
    """

    incidents: tuple[Incident, ...]
    unexplained: tuple[Finding, ...]
    undecided: tuple[Finding, ...] = ()
    waived: tuple[Finding, ...] = ()
    findings: tuple[Finding, ...] = ()

    @cached_property
    def open(self) -> tuple[Finding, ...]:
        """What `check` alarms about by default, and every page, table, metric and message with it."""
        return tuple(finding for finding in self.findings if finding.state is FindingState.OPEN)


def fold(history: ClusterHistory, findings: Sequence[Finding]) -> FoldedFindings:
    """Folds raised findings into incidents; undecided and clear ones are left out."""
    folding = Folding(known_incidents(history))
    folding.see(history)
    return _folded(folding, findings)


def known_incidents(history: ClusterHistory) -> list[Incident]:
    """The incidents that a history shows, without findings: declared rescues, those of the quorum, brokers' by offset,
    elections."""
    incidents = [*_declared_rescues(history), *_quorum_incidents(history)]
    incidents += [*broker_incidents(history), *_leaderless_incidents(history)]
    history_id = history.history_id or history.cluster_id
    return [replace(incident, incident_id=incident_id(history_id, incident)) for incident in incidents]


class Folding:
    """Folds raised findings one by one into `known_incidents`, and holds none of them: with `keeps_ids` for `rows`."""

    def __init__(self, incidents: Sequence[Incident], *, keeps_ids: bool = False) -> None:
        self._incidents = incidents
        self._is_stopped = any(each.kind is IncidentKind.CLUSTER_STOP and each.is_open for each in incidents)
        self._members = [IncidentMembers(incident, keeps_ids=keeps_ids) for incident in incidents]

    def see(self, history: ClusterHistory) -> None:
        """Looks at a history's partitions, where an incident depends on them."""
        asking = [self._members[n] for n, incident in enumerate(self._incidents) if incident.early_stops]
        for members in asking if history.has(PARTITION_CHANGES.name) else ():
            members.see(history)

    def add(self, finding: Finding) -> tuple[Finding, int | None]:
        """A finding with the incident that explains it, the first that does; and its number, None where none does."""
        if finding.status is not Status.RAISED:
            return finding, None
        number = next((n for n, incident in enumerate(self._incidents) if _explains(incident, finding)), None)
        if number is None:
            return finding, None
        self._members[number].add(finding)
        incident = self._incidents[number]
        # What was lost is lost, however the cluster was stopped. Where it stopped in order, an incident before the stop
        # is resolved although what it left has not ended.
        is_of_stop = incident.kind is IncidentKind.CLUSTER_STOP or not incident.is_open
        is_folded = self._is_stopped and is_of_stop and finding.rule != LOSS
        return finding._replace(incident_id=incident.incident_id, folded=is_folded), number

    def incident(self, number: int, findings: Sequence[Finding] = ()) -> Incident:
        return self._members[number].incident(findings)

    def shown(self) -> list[int]:
        """The numbers of the incidents that are shown, newest open first."""
        numbers = [
            n
            for n, each in enumerate(self._incidents)
            if self._members[n] or each.kind is not IncidentKind.BROKER_RESTART
        ]

        def order(number: int) -> tuple[bool, bool, int]:
            incident = self._incidents[number]
            return not incident.is_open, incident.kind is not IncidentKind.QUORUM, -_began(incident)

        return sorted(numbers, key=order)

    def rows(self, cluster_id: str) -> list[dict[str, Any]]:
        """The incidents that are shown as rows of INCIDENT_KEYS."""
        return [incident_row(cluster_id, self.incident(n), self._members[n].facts()) for n in self.shown()]


def fold_into(incidents: Sequence[Incident], findings: Sequence[Finding]) -> FoldedFindings:
    """The same with incidents that are known."""
    return _folded(Folding(incidents), findings)


def _folded(folding: Folding, findings: Sequence[Finding]) -> FoldedFindings:
    members: dict[int, list[Finding]] = defaultdict(list)
    unexplained: list[Finding] = []
    every: list[Finding] = []
    for given in findings:
        finding, number = folding.add(given)
        every.append(finding)
        if finding.status is Status.RAISED:
            (unexplained if number is None else members[number]).append(finding)
    shown = tuple(folding.incident(number, members[number]) for number in folding.shown())
    undecided = tuple(finding for finding in findings if finding.status is Status.UNDECIDED and finding.subject)
    alarming, waived = (
        tuple(f for f in unexplained if (f.waiver is not None) is is_waived) for is_waived in (False, True)
    )
    return FoldedFindings(shown, alarming, undecided, waived, tuple(every))


def counted_findings(folded: FoldedFindings, since_ms: int | None, *, with_resolved: bool) -> Sequence[Finding]:
    """What `--fail-on` looks at: open findings; with `with_resolved` all, with `since_ms` those open since then too."""
    if not with_resolved and since_ms is None:
        return folded.open
    explained = (finding for incident in folded.incidents for finding in incident.findings)
    every = [*folded.unexplained, *(finding for finding in explained if finding.waiver is None)]
    if with_resolved and since_ms is None:
        return every
    return [finding for finding in every if not finding.is_over or (finding.to_ms or 0) >= (since_ms or 0)]


def _began(incident: Incident) -> int:
    return incident.from_ms if incident.from_ms is not None else 0


def _explains(incident: Incident, finding: Finding) -> bool:
    if finding.is_declared or incident.kind is IncidentKind.DECLARED_RESCUE:
        return incident.kind is IncidentKind.DECLARED_RESCUE and is_declared_by(finding, incident.subject)
    if finding.rule in QUORUM_RULES:
        return incident.kind is IncidentKind.QUORUM
    if incident.kind in (IncidentKind.QUORUM, IncidentKind.NO_LEADER):
        return False
    if finding.from_offset is None or incident.from_offset is None:
        return False
    end = OPEN_END if incident.to_offset is None else incident.to_offset
    if finding.rule == LOSS:  # the record that elects follows the one that ends an absence
        is_before_end = incident.to_ms is None or (finding.from_ms or 0) <= incident.to_ms
        return incident.from_offset <= finding.from_offset and is_before_end
    if finding.scope is Scope.PARTITION and finding.rule in PARTITION_EFFECTS:
        return incident.from_offset <= finding.from_offset <= end
    return finding.scope is Scope.BROKER and finding.rule in BROKER_EFFECTS and _is_about(incident, finding, end)


PARTITION_EFFECTS: Final = frozenset({"KP001", "KP002", "KP005", "KP006", "KP016", "KP017"})
"""Rules whose findings a broker's absence brings about."""
BROKER_EFFECTS: Final = frozenset({"KP008", "KB001"})


def _is_about(incident: Incident, finding: Finding, end: int) -> bool:
    is_during = incident.from_offset is not None and incident.from_offset <= (finding.from_offset or 0) <= end
    return is_during and any(finding.subject == f"broker {broker}" for broker in incident.subject.split(", "))


def _declared_rescues(history: ClusterHistory) -> Iterator[Incident]:
    """What was declared, and is over; what does not fit the logs stays open, and explains nothing."""
    for recovery in declared_recoveries(history):
        rescue = recovery.rescue
        yield Incident(
            IncidentKind.DECLARED_RESCUE,
            recovery.subject,
            recovery.sentence,
            rescue.offset,
            rescue.written_ms,
            rescue.offset,
            rescue.written_ms,
            is_open=recovery.misfit is not None,
            key=recovery.subject,
        )
    past = rescue_past(history)
    if past is not None:
        headline = (
            f"This log was left behind: a rescue at {when(past.written_ms)} went on from {past.source}, cut at offset "
            f"{past.cut}, as {rescue_name(past)}. Do not start any of its disks"
        )
        subject = f"left behind by node {past.node_id}"
        yield Incident(
            *(IncidentKind.DECLARED_RESCUE, subject, headline, past.cut, past.written_ms, past.cut, past.written_ms),
            is_open=False,
            key=subject,
        )


def _leaderless_incidents(history: ClusterHistory) -> Iterator[Incident]:
    """Runs of epochs without a leader between two that had one, and how long nothing was written around them."""
    run: list[int] = []
    passed = [recovery.fence for recovery in fitting_recoveries(history)]
    before: dict[str, Any] | None = None
    rows = sorted(history.rows("leader_epochs"), key=lambda row: row["epoch"])
    for row in rows:
        if row["leader_id"] is None and row["from_offset"] is None:
            run.append(row["epoch"])
        else:
            is_rescue = any(run[-1] in fence or row["epoch"] - 1 in fence for fence in passed) if run else False
            if run and before is not None and row["timestamp_ms"] is not None and not is_rescue:
                yield _leaderless_incident(history, run, before, row)
            run, before = [], row


def _leaderless_incident(
    history: ClusterHistory, run: list[int], before: dict[str, Any], after: dict[str, Any]
) -> Incident:
    from_ms = before["timestamp_ms"]
    if after["from_offset"]:
        from_ms = canonical_log(history).time_at(after["from_offset"] - 1) or from_ms
    lasted = duration(after["timestamp_ms"] - from_ms) if from_ms is not None else "an unknown time"
    epochs = f"epoch {run[0]}" if len(run) == 1 else f"epochs {run[0]}–{run[-1]}"
    led = f"node {before['leader_id']} led before, node {after['leader_id']} after"
    if before["leader_id"] == after["leader_id"]:
        led = f"node {before['leader_id']} led before and after"
    return Incident(
        IncidentKind.NO_LEADER,
        epochs,
        f"No leader for {lasted}: {epochs} without a leader; {led}",
        after["from_offset"],
        from_ms,
        after["from_offset"],
        after["timestamp_ms"],
        is_open=False,
        # What an elected leader wrote may be cut off: the next one then begins at the same offset.
        key=f"before epoch {after['epoch']}",
    )


def _quorum_incidents(history: ClusterHistory) -> Iterator[Incident]:
    standing = quorum_standing(history)
    if standing.standing not in BROKEN:
        return
    headlines = {
        Standing.NO_LEADER: "The quorum stopped",
        Standing.STALLED: "The quorum commits nothing",
        Standing.MAJORITY_LOST: "The quorum lost its majority",
    }
    log = canonical_log(history)
    since_ms = standing.since_ms
    if standing.committed_to:
        since_ms = log.time_at(standing.committed_to - 1) or since_ms
    yield Incident(
        IncidentKind.QUORUM,
        "quorum",
        headlines[standing.standing],
        standing.committed_to,
        since_ms,
        events=(IncidentEvent(None, standing.reason),),
    )
