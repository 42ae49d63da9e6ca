"""A quorum as its captured disks describe it: who leads, who votes, where each log ends, what is committed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kraft_audit.capture.plan import ClusterPlan
from kraft_audit.capture.survey import Survey
from kraft_audit.quorum.rounds import ProvenRound, newest_voters, proven_rounds
from kraft_audit.quorum.voter_history import Endpoint, VoterSet

TOO_FEW: Final = "too few voters hold "
"""How the reasons of an upper bound begin that name a record."""


@dataclass(frozen=True, slots=True)
class CapturedVoter:
    """A voter of the newest set; `captured` says whether its disk is among the captures."""

    voter_id: int
    directory_id: str | None
    endpoints: tuple[Endpoint, ...]
    captured: bool


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    """One capture of a quorum; its fields, in this order, are the first keys of the JSON of `quorum`.

    `leader_id` and `leader_epoch` are -1 where no disk names them; `leader_ids` are several where they contradict each
    other. The committed offset lies in
    [committed_low, committed_high]; None is unknown. `replicas` are rows of the table `captures`, each with `role` and
    `lag`, the distance to the furthest captured log.
    """

    cluster_id: str
    capture: str
    other_captures: tuple[str, ...]
    leader_id: int
    leader_epoch: int
    leader_ids: tuple[int, ...]
    committed_low: int | None
    committed_low_epoch: int | None
    committed_high: int | None
    evidence: tuple[str, ...]
    undecided: str | None
    read_from_ms: int | None
    read_to_ms: int | None
    voters: tuple[CapturedVoter, ...]
    replicas: tuple[dict[str, Any], ...]


def describe_quorum(
    survey: Survey, plan: ClusterPlan, captures: Sequence[dict[str, Any]], capture: str | None = None
) -> QuorumDescription:
    """The newest capture, or the one of that name, which the plan must have; earlier captures are evidence.

    `captures` are all rows of the table `captures` for this plan.
    """
    numbers = {replica.capture_number for replica in plan.replicas if capture in (None, replica.capture)}
    rounds = [captured for captured in proven_rounds(survey, plan) if captured.number in numbers]
    newest = rounds[-1] if rounds else None
    capture_number = max(numbers) if newest is None else newest.number
    rows = [dict(row) for row in captures if row["capture_number"] == capture_number]
    leader_epoch, leader_id = (-1, -1) if newest is None else newest.evidence.newest_leader
    leader_ids = frozenset() if newest is None else newest.evidence.newest_leaders
    voter_set = None if newest is None else newest_voters(survey, plan, newest)
    _add_roles(rows, leader_ids, voter_set)
    names = {replica.capture_number: replica.capture for replica in plan.replicas}
    interval = None if newest is None else newest.interval
    return QuorumDescription(
        cluster_id=plan.cluster_id,
        capture=names[capture_number],
        other_captures=tuple(name for number, name in sorted(names.items()) if number != capture_number),
        leader_id=leader_id,
        leader_epoch=leader_epoch,
        leader_ids=tuple(sorted(leader_ids)),
        committed_low=None if interval is None else interval.low,
        committed_low_epoch=None if interval is None else interval.low_epoch,
        committed_high=None if interval is None else interval.high,
        evidence=() if newest is None else _evidence(newest),
        undecided="no replica of this cluster was read" if interval is None else interval.undecided,
        read_from_ms=min((row["read_from_ms"] for row in rows), default=None),
        read_to_ms=max((row["read_to_ms"] for row in rows), default=None),
        voters=_voters(newest, voter_set),
        replicas=tuple(rows),
    )


def _evidence(newest: ProvenRound) -> tuple[str, ...]:
    interval = newest.interval
    lower = (f"committed to {interval.low}: {text}" for text in interval.low_evidence)
    return (*lower, *_upper_evidence(newest))


def _upper_evidence(newest: ProvenRound) -> list[str]:
    """Why nothing above was committed, in one line: who lacks the first record, which later ones too few hold."""
    interval = newest.interval
    few = [text.removeprefix(TOO_FEW) for text in reversed(interval.high_evidence) if text.startswith(TOO_FEW)]
    reasons = [text for text in interval.high_evidence if not text.startswith(TOO_FEW)]
    if interval.high is None:
        return [f"no upper bound: {text}" for text in interval.high_evidence]
    if not interval.high_evidence:
        return []
    canonical, voters = interval.canonical, interval.voters
    if canonical is not None and voters is not None and interval.high < canonical.end[1]:
        captured = sorted(newest.evidence.captured(voters), key=lambda replica: replica.node_id)
        lacking = [str(replica.node_id) for replica in captured if replica.holds_to(canonical) <= interval.high]
        if lacking:
            noun, verb = ("voter", "lacks") if len(lacking) == 1 else ("voters", "lack")
            reasons.append(f"{noun} {' and '.join(lacking)} {verb} the record at {interval.high}")
    reasons += [TOO_FEW + " and ".join(few)] if few else []
    return [f"not committed from {interval.high} on: {'; '.join(reasons)}"]


def _voters(newest: ProvenRound | None, voter_set: VoterSet | None) -> tuple[CapturedVoter, ...]:
    if newest is None or voter_set is None:
        return ()
    captured = {replica.node_id for replica in newest.evidence.captured(voter_set)}
    return tuple(
        CapturedVoter(voter.voter_id, voter.directory_id, voter.endpoints, voter.voter_id in captured)
        for voter in voter_set.voters
    )


def _add_roles(rows: list[dict[str, Any]], leader_ids: Collection[int], voters: VoterSet | None) -> None:
    """Adds `role` and `lag`, the distance to the furthest captured log of the cluster."""
    ends = [end for row in rows if row["accepted"] and (end := row["log_end_offset"]) is not None]
    for row in rows:
        end = row["log_end_offset"]
        row["lag"] = max(ends) - end if row["accepted"] and end is not None else None
        if not row["accepted"]:
            row["role"] = "of another cluster"
        elif row["node_id"] is None or voters is None:
            row["role"] = "unknown"
        elif row["node_id"] in leader_ids:
            row["role"] = "leader"
        else:
            row["role"] = "voter" if voters.holds(row["node_id"], row["directory_id"]) else "observer"
