"""`quorum`: the captures of a cluster side by side, and what they prove committed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kraft_audit.cluster_name import shown_cluster_id
from kraft_audit.commands.arguments import Capture, DialectOption, OutputFormat, Path
from kraft_audit.commands.ending import UsageError
from kraft_audit.commands.reading import Input, opened, redaction_key, redactor
from kraft_audit.output import Column, Format, Output
from kraft_audit.times import time_text
from kraft_codec.schemas import Dialect

if TYPE_CHECKING:
    from kraft_audit.replay.plan import ClusterPlan
    from kraft_audit.replay.rounds import RoundInterval
    from kraft_audit.replay.survey import Survey
    from kraft_audit.replay.voters import VoterSet

TOO_FEW: Final = "too few voters hold "
"""How the reasons of an upper bound begin that name a record."""
COLUMNS: Final = (
    Column("node_id", "node", is_number=True),
    Column("directory_id", "directory"),
    Column("role", "role"),
    Column("leader_epoch", "epoch", is_number=True),
    Column("leader_id", "leader", is_number=True),
    Column("voted_id", "voted", is_number=True),
    Column("log_start_offset", "log_start", is_number=True),
    Column("log_end_offset", "log_end", is_number=True),
    Column("last_epoch", "last_epoch", is_number=True),
    Column("lag", "lag", is_number=True),
    Column("snapshot", "snapshot"),
    Column("damage_count", "damage", is_number=True),
    Column("path", "path"),
)


def quorum(
    path: Path,
    status: Annotated[bool, typer.Option("--status", help="As kafka-metadata-quorum describe --status.")] = False,
    replication: Annotated[
        bool, typer.Option("--replication", help="As kafka-metadata-quorum describe --replication.")
    ] = False,
    capture: Capture = None,
    output: OutputFormat = Format.TABLE,
    dialect: DialectOption = Dialect.KIP853,
) -> None:
    """Show each captured replica: who it is, its epoch and votes, where its log ends, and what is proven committed.

    Of several captures below PATH the newest is shown, or the one that --capture names; earlier ones are evidence.
    With --status and --replication, what only a live leader knows is -1, and a high watermark that the disks do not
    decide is a range. JSON is an object; of several clusters below PATH, a list of them.

    \b
    Examples:
      kraft-audit quorum samples/divergence
      kraft-audit quorum samples/dynamic-quorum --capture 09-leader-removed-while-leader --output json
    """
    if (status or replication) and output is not Format.TABLE:
        raise UsageError("--status and --replication are texts of their own: leave --output out")
    key = redaction_key(shows_values=False)
    out = Output(output)
    with opened(path, dialect=dialect) as found:
        clusters = [_cluster_at(found, plan, key, capture) for plan in found.plans_with(capture)]
    if status or replication:
        from kraft_audit.commands.quorum_text import replication_lines, status_lines

        for number, cluster in enumerate(clusters):
            for lines in [status_lines] * status + [replication_lines] * replication:
                if number or (status and lines is replication_lines):
                    out.line("")
                for line in lines(cluster):
                    out.line(line)
    elif out.format is Format.JSON:
        out.document(clusters[0] if len(clusters) == 1 else clusters)
    elif out.format is Format.TABLE:
        for number, cluster in enumerate(clusters):
            if number:
                out.line("")
            _print(out, cluster)
    else:
        from kraft_codec.tables import CAPTURES

        keys = (*CAPTURES.column_names, "lag", "role")
        out.rows([replica for cluster in clusters for replica in cluster["replicas"]], COLUMNS, keys)


def _cluster_at(found: Input, plan: ClusterPlan, key: bytes, capture: str | None) -> dict[str, Any]:
    """One cluster as of a capture that it has, the newest by default."""
    from kraft_audit.replay.planning import capture_named
    from kraft_audit.replay.proven_plan import in_proven_order

    capture = None if capture is None else capture_named(capture, plan.replicas)
    proven = in_proven_order(plan, open_storage=found.open_storage, redactor=redactor(key))
    plan = proven.plan
    names = {replica.capture_number: replica.capture for replica in plan.replicas}
    numbers = [number for number, name in names.items() if capture in (None, name)]
    return _cluster_of(found, plan, key, numbers, proven.shape)


def _cluster_of(
    found: Input, plan: ClusterPlan, key: bytes, numbers: list[int], shape: Survey | None
) -> dict[str, Any]:
    """A cluster as the newest of these captures, and those known to be earlier as evidence, tell it.

    JSON keys are the columns of the tables.
    """
    from kraft_audit.replay.analyze import analyze
    from kraft_audit.replay.rounds import committed_intervals
    from kraft_audit.replay.survey import survey

    shape = shape or survey(plan, open_storage=found.open_storage, redactor=redactor(key))
    rounds = [one for one in committed_intervals(shape, plan) if one.round.number in numbers]
    known = rounds[-1] if rounds else None
    capture_number = max(numbers) if known is None else known.round.number
    rows = analyze(plan, frozenset({"captures"}), open_storage=found.open_storage, redactor=redactor(key))
    replicas = [row for _, batch in rows for row in batch.to_pylist() if row["capture_number"] == capture_number]
    accepted = [row for row in replicas if row["accepted"]]
    leader_id, leader_epoch = _leader(accepted, known)
    _add_roles(replicas, leader_id, known.interval.voters if known else None)
    names = {replica.capture_number: replica.capture for replica in plan.replicas}
    return {
        "cluster_id": plan.cluster_id,
        "capture": names[capture_number],
        "other_captures": [name for number, name in sorted(names.items()) if number != capture_number],
        "leader_id": leader_id,
        "leader_epoch": leader_epoch,
        **_interval(known),
        "read_from_ms": min((row["read_from_ms"] for row in replicas), default=None),
        "read_to_ms": max((row["read_to_ms"] for row in replicas), default=None),
        "voters": _voters(known),
        "replicas": replicas,
    }


def _leader(accepted: list[dict[str, Any]], known: RoundInterval | None) -> tuple[int, int]:
    """(leader, epoch) of the highest epoch that any disk tells: by quorum-state, or by a LeaderChange; -1 unknown."""
    told = [(row["leader_epoch"], row["leader_id"]) for row in accepted if row["leader_epoch"] is not None]
    if known is not None:
        told += [(epoch, start.leader_id) for epoch, start in known.evidence.leaders.items()]
    epoch, leader_id = max(told, default=(-1, -1))
    return leader_id, epoch


def _interval(known: RoundInterval | None) -> dict[str, Any]:
    if known is None:
        return {
            "committed_low": None,
            "committed_low_epoch": None,
            "committed_high": None,
            "evidence": [],
            "undecided": "no replica of this cluster was read",
        }
    interval = known.interval
    evidence = [f"committed to {interval.low}: {text}" for text in interval.low_evidence]
    evidence += _upper_evidence(known)
    return {
        "committed_low": interval.low,
        "committed_low_epoch": interval.low_epoch,
        "committed_high": interval.high,
        "evidence": evidence,
        "undecided": interval.undecided,
    }


def _upper_evidence(known: RoundInterval) -> list[str]:
    """Why nothing above was committed, in one line: who lacks the first record, what else too few hold, ascending."""
    interval = known.interval
    few = [text.removeprefix(TOO_FEW) for text in reversed(interval.high_evidence) if text.startswith(TOO_FEW)]
    told = [text for text in interval.high_evidence if not text.startswith(TOO_FEW)]
    if interval.high is None:
        return [f"nothing bounds it from above: {text}" for text in interval.high_evidence]
    if not interval.high_evidence:
        return []
    canonical, voters = interval.canonical, interval.voters
    if canonical is not None and voters is not None and interval.high < canonical.end[1]:
        captured = sorted(known.evidence.captured(voters), key=lambda replica: replica.node_id)
        lacking = [str(one.node_id) for one in captured if one.holds_to(canonical) <= interval.high]
        if lacking:
            noun, verb = ("voter", "lacks") if len(lacking) == 1 else ("voters", "lack")
            told.append(f"{noun} {' and '.join(lacking)} {verb} the record at {interval.high}")
    told += [TOO_FEW + " and ".join(few)] if few else []
    return [f"not committed from {interval.high} on: {'; '.join(told)}"]


def _voters(known: RoundInterval | None) -> list[dict[str, Any]]:
    voter_set = known.interval.voters if known else None
    if known is None or voter_set is None:
        return []
    captured = set(known.interval.captured_voters)
    return [
        {
            "voter_id": voter.voter_id,
            "directory_id": voter.directory_id,
            "endpoints": [{"name": one.name, "host": one.host, "port": one.port} for one in voter.endpoints],
            "captured": voter.voter_id in captured,
        }
        for voter in voter_set.voters
    ]


def _add_roles(replicas: list[dict[str, Any]], leader_id: int, voters: VoterSet | None) -> None:
    """Adds `role` and `lag`, the distance to the furthest captured log of the cluster."""
    ends = [end for row in replicas if row["accepted"] and (end := row["log_end_offset"]) is not None]
    for row in replicas:
        end = row["log_end_offset"]
        row["lag"] = max(ends) - end if row["accepted"] and end is not None else None
        if not row["accepted"]:
            row["role"] = "of another cluster"
        elif row["node_id"] is None or voters is None:
            row["role"] = "unknown"
        elif row["node_id"] == leader_id:
            row["role"] = "leader"
        else:
            row["role"] = "voter" if voters.holds(row["node_id"], row["directory_id"]) else "observer"


def _leader_text(cluster: dict[str, Any]) -> str:
    """Who leads; nothing where no epoch is known."""
    leader_id, epoch = cluster["leader_id"], cluster["leader_epoch"]
    if epoch < 0:
        return ""
    return f"{'no leader known' if leader_id < 0 else f'leader {leader_id}'} in epoch {epoch}   "


def _print(out: Output, cluster: dict[str, Any]) -> None:
    out.title(shown_cluster_id(cluster["cluster_id"]))
    others = cluster["other_captures"]
    if others:
        names = ", ".join(name or "''" for name in others)
        out.text(f"capture {cluster['capture']} of {len(others) + 1}; --capture shows {names}")
    low, high = cluster["committed_low"], cluster["committed_high"]
    if low is not None:
        upper = "unknown" if high is None else str(high)
        committed = str(low) if low == high else f"{low} to {upper}"
        captured = sum(voter["captured"] for voter in cluster["voters"])
        times = f"read {time_text(cluster['read_from_ms'])} to {time_text(cluster['read_to_ms'])} UTC"
        of_voters = f"{captured} of {len(cluster['voters'])} voters captured"
        out.text(f"{_leader_text(cluster)}committed {committed}   {of_voters}")
        out.text(times)
    for row in cluster["replicas"]:
        offset, epoch = row["snapshot_end_offset"], row["snapshot_epoch"]
        row["snapshot"] = "" if offset is None else f"{offset}-{epoch}"
    out.line("")
    out.rows(cluster["replicas"], COLUMNS)
    if cluster["evidence"]:
        out.line("")
    for text in cluster["evidence"]:
        out.text(f"  {text}")
    if cluster["undecided"]:
        out.text(f"  undecided: {cluster['undecided']}")
