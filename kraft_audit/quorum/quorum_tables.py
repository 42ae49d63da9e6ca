"""The small silver tables of a plan, over all rounds of captures: `watermarks`, `voter_sets` and `leader_epochs`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from operator import itemgetter
from typing import Any, Final

from kraft_audit.capture.branches import LogEnd
from kraft_audit.capture.decoded_records import ControlRecord
from kraft_audit.capture.plan import ClusterPlan
from kraft_audit.capture.survey import Survey
from kraft_audit.quorum.canonical_branches import CanonicalBranches, tips
from kraft_audit.quorum.quorum_evidence import EpochRun
from kraft_audit.quorum.rounds import (
    ProvenRound,
    branch_voters,
    epoch_runs,
    proven_rounds,
)
from kraft_audit.quorum.static_voters import listed_voters, static_voters
from kraft_audit.quorum.voter_history import STATIC, Endpoint, Voter, VoterSet, added, removed
from kraft_audit.tables.bronze import TRUNCATED
from kraft_audit.tables.silver import SNAPSHOT

MAX_EPOCHS_WITHOUT_RECORDS: Final = 10_000
"""A damaged epoch number must not become two billion rows."""


def quorum_rows(
    survey: Survey, plan: ClusterPlan, rounds: Sequence[ProvenRound] | None = None
) -> dict[str, list[dict[str, Any]]]:
    """The rows of the three tables, without cluster_id and plan; `rounds` are those of the plan, where known."""
    rounds = proven_rounds(survey, plan) if rounds is None else rounds
    canonical = CanonicalBranches.of(survey, rounds, plan.silver)
    static = static_voters(survey, plan)
    persisted = _persisted_leaders(survey)
    voter_sets: dict[tuple[Any, ...], dict[str, Any]] = {}
    epochs: dict[tuple[Any, ...], dict[str, Any]] = {}
    for end, leaves_at in _furthest_first(canonical):
        # Up to where a branch leaves the canonical log its rows are those of the canonical log.
        is_piece = canonical.is_piece(end)
        canonical_to = end.end_offset if is_piece and leaves_at is None else leaves_at
        controls = [record for record in survey.controls_to(end.branch) if record.offset < end.end_offset]
        runs = epoch_runs(survey.epochs_to(end.branch, end.end_offset))
        for row in voter_set_rows(branch_voters(survey, plan, controls, runs, static), canonical_to=canonical_to):
            if is_piece and row["canonical"]:
                row["ended_by"] = "superseded"
            known = voter_sets.setdefault((row["from_offset"], row["from_epoch"], row["canonical"]), row)
            if known["source"] == STATIC and known["voters"] != row["voters"]:
                row = _at_its_leader(row, controls)
                voter_sets.setdefault((row["from_offset"], row["from_epoch"], row["canonical"]), row)
            if known["source"] == SNAPSHOT != row["source"] and known["voters"] == row["voters"]:
                known |= {**row, "ended_by": known["ended_by"]}
        for row in leader_epoch_rows(runs, controls, canonical_to=canonical_to, persisted_leaders=persisted):
            if canonical_to is not None and row["canonical"]:
                if not is_piece:
                    continue
                row |= {"ended_by": "next_epoch", "to_offset": min(row["to_offset"], canonical_to)}
            epochs.setdefault((row["epoch"], row["from_offset"], row["leader_id"]), row)
    return {
        "watermarks": [_watermark_row(captured) for captured in rounds],
        "voter_sets": in_sequence(list(voter_sets.values())),
        "leader_epochs": epochs_in_order(list(epochs.values())),
    }


def _at_its_leader(row: dict[str, Any], controls: Sequence[ControlRecord]) -> dict[str, Any]:
    """The first static set of a log that shares no record with the canonical one: at the LeaderChange that lists it."""
    named = {voter["voter_id"] for voter in row["voters"]}
    first = next((record for record in controls if named == set(listed_voters(record))), None)
    where = {} if first is None else {"from_offset": first.offset, "from_epoch": first.leader_epoch}
    when = {} if first is None else {"timestamp_ms": first.timestamp_ms}
    return {**row, **where, **when, "canonical": False, "ended_by": TRUNCATED}


def _furthest_first(canonical: CanonicalBranches) -> list[tuple[LogEnd, int | None]]:
    """Every tip with the offset at which it leaves the canonical log: the canonical tip, then the pieces before it.

    Of logs that begin with one piece, the first is the one that is canonical furthest: its rows are those of the log.
    Where none is canonical the one that began first comes first.
    """
    survey = canonical.survey
    ends = [(end, canonical.leaves_at(end)) for end in tips(survey, canonical.path)]
    if not canonical.path:
        ends.sort(key=lambda entry: survey.epochs_to(entry[0].branch, entry[0].end_offset)[0].timestamp_ms or 0)
    return sorted(ends, key=lambda entry: (entry[1] is not None, -(entry[1] or 0)))


def _persisted_leaders(survey: Survey) -> dict[int, int]:
    states = (replica.quorum_state for replica in survey.replicas if replica.is_accepted)
    return persisted_leaders((state.leader_epoch, state.leader_id) for state in states if state is not None)


def persisted_leaders(states: Iterable[tuple[int, int]]) -> dict[int, int]:
    """By epoch the leader id that quorum-state files, each (leader epoch, leader id), name; -1 where none names one."""
    known: dict[int, int] = {}
    for epoch, leader_id in states:
        if epoch > 0:
            known[epoch] = max(leader_id, known.get(epoch, -1))
    return known


def _watermark_row(captured: ProvenRound) -> dict[str, Any]:
    interval = captured.interval
    end = None if interval.canonical is None else interval.canonical.end
    voters = () if interval.voters is None else interval.voters.voters
    is_seen_only = interval.held_low < interval.low
    return {
        "capture_number": captured.number,
        "capture": captured.capture,
        "read_from_ms": interval.read_from_ms,
        "read_to_ms": interval.read_to_ms,
        "low": interval.low,
        "low_epoch": interval.low_epoch,
        "held_low": interval.held_low if is_seen_only else None,
        "held_low_epoch": interval.held_low_epoch if is_seen_only else None,
        "high": interval.high,
        "high_epoch": interval.high_epoch,
        "canonical_epoch": None if end is None else end[0],
        "canonical_end_offset": None if end is None else end[1],
        "voters": [_key_row(voter) for voter in voters],
        "captured_voters": list(interval.captured_voters),
        "low_evidence": list(interval.low_evidence),
        "high_evidence": list(interval.high_evidence),
        "undecided": interval.undecided,
    }


def voter_set_rows(history: Sequence[VoterSet], *, canonical_to: int | None = None) -> list[dict[str, Any]]:
    """Rows of `voter_sets` for one branch.

    `canonical_to`: the offset at which it leaves the canonical log, None: never.
    """
    rows = []
    for index, voter_set in enumerate(history):
        before = history[index - 1] if index else None
        canonical = canonical_to is None or voter_set.from_offset < canonical_to
        last = index + 1 == len(history) or (
            canonical and canonical_to is not None and history[index + 1].from_offset >= canonical_to
        )
        ended_by = TRUNCATED if not canonical else "in_effect" if last else "superseded"
        rows.append(
            {
                "from_offset": voter_set.from_offset,
                "from_epoch": voter_set.from_epoch,
                "timestamp_ms": voter_set.timestamp_ms,
                "source": voter_set.source,
                "kraft_version": voter_set.kraft_version,
                "voters": [_voter_row(voter) for voter in voter_set.voters],
                **_replaced(before, voter_set),
                "target_voters": None if voter_set.target_voters is None else list(voter_set.target_voters),
                "canonical": canonical,
                "ended_by": ended_by,
            }
        )
    return rows


def in_sequence(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The canonical rows of `voter_sets` in order, each with what it changed of the one before; then the other rows.

    A set that was read from a snapshot does not say what it replaced. A snapshot of the same voters is no new set.
    """
    sets: list[dict[str, Any]] = []
    before: VoterSet | None = None
    for row in sorted((row for row in rows if row["canonical"]), key=itemgetter("from_offset", "from_epoch")):
        names = ("kraft_version", "voters", "target_voters")
        if sets and row["source"] == SNAPSHOT and all(row[name] == sets[-1][name] for name in names):
            continue
        voter_set = _set_of(row)
        if before is not None:
            row = {**row, **_replaced(before, voter_set)}
            sets[-1] = {**sets[-1], "ended_by": "superseded"}
        before = voter_set
        sets.append({**row, "ended_by": "in_effect"})
    others = (row for row in rows if not row["canonical"])
    return sets + sorted(others, key=itemgetter("from_offset", "from_epoch"))


def with_later_set(
    rows: Sequence[dict[str, Any]], since: VoterSet | None, rounds: Sequence[ProvenRound]
) -> list[dict[str, Any]]:
    """Rows of `voter_sets` by offset, and after them the static set of `newest_voters` that no LeaderChange begins yet.

    It stands where the log of the newest round ends, and in the newest epoch that a quorum-state names.
    """
    last = next((row for row in reversed(rows) if row["canonical"]), None)
    chain = rounds[-1].interval.canonical if rounds else None
    if since is None or last is None or chain is None or not since.is_static:
        return [*rows]
    if [voter["voter_id"] for voter in last["voters"]] == sorted(since.ids):
        return [*rows]
    epoch, _ = rounds[-1].evidence.newest_leader
    (row,) = voter_set_rows([replace(since, from_offset=chain.end[1], from_epoch=epoch)])
    known = [{**known, "ended_by": "superseded"} if known is last else known for known in rows]
    return [*known, {**row, **_replaced(_set_of(last), since)}]


def epochs_in_order(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of `leader_epochs`, the canonical ones first, each ascending: of several that fit, rules name the first."""
    return sorted(
        rows,
        key=lambda row: (not row["canonical"], row["epoch"], -1 if row["from_offset"] is None else row["from_offset"]),
    )


def _replaced(before: VoterSet | None, after: VoterSet) -> dict[str, Any]:
    """What a voter set changed."""
    return {
        "added": [_key_row(voter) for voter in added(before, after)],
        "removed": [_key_row(voter) for voter in removed(before, after)],
        "endpoints_changed": _endpoints_changed(before, after),
    }


def _set_of(row: Mapping[str, Any]) -> VoterSet:
    """The voter set that a row of `voter_sets` says."""
    names = ("from_offset", "from_epoch", "timestamp_ms", "source", "kraft_version", "target_voters")
    return VoterSet(**{name: row[name] for name in names}, voters=tuple(map(_voter_of, row["voters"])))


def _voter_of(voter: Mapping[str, Any]) -> Voter:
    return Voter(
        voter["voter_id"],
        voter["directory_id"],
        tuple(Endpoint(**point) for point in voter["endpoints"]),
        voter["min_supported_version"],
        voter["max_supported_version"],
    )


def _voter_row(voter: Voter) -> dict[str, Any]:
    """A voter with all its fields: by name, as `asdict` takes ten times as long, and a set may have thousands."""
    return {
        "voter_id": voter.voter_id,
        "directory_id": voter.directory_id,
        "endpoints": [{"name": point.name, "host": point.host, "port": point.port} for point in voter.endpoints],
        "min_supported_version": voter.min_supported_version,
        "max_supported_version": voter.max_supported_version,
    }


def _key_row(voter: Voter) -> dict[str, Any]:
    return {"voter_id": voter.voter_id, "directory_id": voter.directory_id}


def _endpoints_changed(before: VoterSet | None, after: VoterSet) -> list[int]:
    if before is None:
        return []
    known = {voter.key: voter for voter in before.voters}
    return [voter.voter_id for voter in after.voters if known.get(voter.key, voter) != voter]


def leader_epoch_rows(
    runs: Sequence[EpochRun],
    records: Iterable[ControlRecord],
    *,
    canonical_to: int | None = None,
    persisted_leaders: Mapping[int, int] | None = None,
) -> list[dict[str, Any]]:
    """Rows of `leader_epochs` for one branch, ascending by epoch.

    `runs`: the epochs of the branch, ascending; `records`: its control records. `canonical_to`: the offset at which the
    branch leaves the canonical log, None where it is the canonical log. `persisted_leaders`: the leader id (-1 for
    none) that quorum-state files name for an epoch, which may be one that no log holds.

    Epochs without records are listed for the canonical log only. A candidate raised such an epoch and was not elected,
    or was elected and appended nothing that survived (CandidateState, QuorumState, Kafka 4.3.0).
    """
    changes: dict[int, ControlRecord] = {}
    for record in records:
        if record.name == "LEADER_CHANGE":
            changes.setdefault(record.leader_epoch, record)
    rows = []
    for run in runs:
        is_cut_off = canonical_to is not None and run.to_offset > canonical_to
        row = {
            "epoch": run.epoch,
            "from_offset": run.from_offset,
            "to_offset": run.to_offset,
            **dict.fromkeys(("leader_change_offset", "leader_id", "voters", "granting_voters")),
            "timestamp_ms": run.timestamp_ms,
            "canonical": canonical_to is None or run.from_offset < canonical_to,
            "ended_by": TRUNCATED if is_cut_off else "open" if run is runs[-1] else "next_epoch",
        }
        if (change := changes.get(run.epoch)) is not None:
            row |= {"leader_change_offset": change.offset, "leader_id": change.fields["leader_id"]}
            row |= {
                name: [voter["voter_id"] for voter in change.fields[name]] for name in ("voters", "granting_voters")
            }
        rows.append(row)
    if canonical_to is None:
        rows.extend(rows_without_records({run.epoch for run in runs}, persisted_leaders or {}))
    return sorted(rows, key=lambda row: row["epoch"])


def rows_without_records(
    epochs_of_log: Collection[int], persisted_leaders: Mapping[int, int]
) -> Iterator[dict[str, Any]]:
    """The epochs between those of the log, and those that only a quorum-state file names."""
    known = {*epochs_of_log, *persisted_leaders}
    first = min(epochs_of_log, default=max(1, min(known, default=1)))
    missing = (epoch for epoch in range(first, max(known, default=0) + 1) if epoch not in epochs_of_log)
    for epoch in islice(missing, MAX_EPOCHS_WITHOUT_RECORDS):
        leader_id = persisted_leaders.get(epoch, -1)
        yield {
            "epoch": epoch,
            **dict.fromkeys(("from_offset", "to_offset", "leader_change_offset")),
            "leader_id": None if leader_id < 0 else leader_id,
            **dict.fromkeys(("voters", "granting_voters", "timestamp_ms")),
            "canonical": True,
            "ended_by": "burnt",
        }
