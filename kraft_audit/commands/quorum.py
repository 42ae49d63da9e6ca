"""`quorum`: the captures of a cluster side by side, and what they prove committed."""

from __future__ import annotations

import json
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kraft_audit.commands.arguments import NodeLogs, OutputFormat
from kraft_audit.commands.branch_option import BranchOption, branch_of, on_branch
from kraft_audit.commands.diverge import show_divergence
from kraft_audit.commands.ending import UsageError
from kraft_audit.commands.results import Results, counted, open_logs
from kraft_audit.commands.terminal_options import prints_tables
from kraft_audit.commands.voters import show_voters
from kraft_audit.text.output import Format, Output, neutral, table_columns
from kraft_audit.text.readable import committed_text, nouns, shown_cluster_id, time_text, when

if TYPE_CHECKING:
    from kraft_audit.capture.node_card import NodeCard, NodeInLog
    from kraft_audit.cluster import Cluster
    from kraft_audit.quorum.description import CapturedVoter, QuorumDescription
    from kraft_audit.recovery.may_i.permission_table import PermissionLine, Permissions

COLUMNS: Final = table_columns(
    "node_id directory_id role leader_epoch leader_id voted_id log_start_offset log_end_offset last_epoch lag snapshot "
    "damage_count path",
    {
        "node_id": "node",
        "directory_id": "directory",
        "leader_epoch": "epoch",
        "leader_id": "leader",
        "voted_id": "voted",
        "log_start_offset": "log_start",
        "log_end_offset": "log_end",
        "damage_count": "damage",
    },
    dropped="path log_start_offset snapshot voted_id leader_id damage_count last_epoch leader_epoch",
)

NODE_COLUMNS: Final = table_columns(
    "node_id directory_id log closed leader_epoch leader_id voted_id current_voters log_end_offset reached_offset "
    "in_log needs_release roles configured_voters path",
    {
        "node_id": "node",
        "directory_id": "directory",
        "leader_epoch": "epoch",
        "leader_id": "leader",
        "voted_id": "voted",
        "current_voters": "voters",
        "log_end_offset": "log_end",
        "reached_offset": "reached",
        "needs_release": "needs",
        "configured_voters": "configured",
    },
    dropped=(
        "path configured_voters roles voted_id leader_id reached_offset needs_release current_voters "
        "leader_epoch in_log"
    ),
)
PERMISSION_COLUMNS: Final = table_columns("node action answer why first", wide="why first")
COMMAND_CLUSTERS_ASKED_MAX: Final = 20
NOT_CAPTURED: Final = -1
"""What Kafka's tool prints where it does not know."""
LABEL_CHARACTERS: Final = 24
REPLICATION_HEADER: Final = (
    *("NodeId", "DirectoryId", "LogEndOffset", "Lag"),
    *("LastFetchTimestamp", "LastCaughtUpTimestamp", "Status"),
)
ZERO_DIRECTORY: Final = "AAAAAAAAAAAAAAAAAAAAAA"


@prints_tables
def quorum(
    logs: NodeLogs,
    status: Annotated[
        bool, typer.Option("--status", help="Print what kafka-metadata-quorum describe --status would print.")
    ] = False,
    replication: Annotated[
        bool, typer.Option("--replication", help="Print what kafka-metadata-quorum describe --replication would print.")
    ] = False,
    branch: BranchOption = None,
    nodes: Annotated[
        bool, typer.Option("--nodes", help="Show only what the files in each node dir say about the node.")
    ] = False,
    voters: Annotated[
        bool, typer.Option("--voters", help="Show only the history of the voter set, on every branch.")
    ] = False,
    diverge: Annotated[
        bool, typer.Option("--diverge", help="Show only where replicas differ, and which nodes hold which record.")
    ] = False,
    output: OutputFormat = Format.TABLE,
) -> int:
    """Show each captured replica: its role, epoch and vote, where its log ends, and what is proven committed.

    A second table shows what `may-i` answers for each controller, and what you may not do to a broker. It assumes that
    all voters run.

    If PATH holds several captures, `quorum` shows the newest, or the one that --capture names. Earlier captures still
    count as evidence. --status and --replication print -1 for values that only a live leader knows. If the disks do not
    decide the high watermark, they print a range. JSON is one object, or a list of objects if PATH holds several
    clusters.

    --voters shows every change of the voter set, including reverted changes. A voter set takes effect when its record
    is appended. `truncated` means that the record was removed again before it was committed. At kraft.version 0 no
    record holds the voter set. It is then shown from the LeaderChange record of the first leader that was configured
    with it, and `named by` lists other files that name it.

    --diverge compares all captures below PATH. It shows the first offset and epoch at which replicas differ, both
    records side by side, and which nodes hold them. A replica that only lags does not differ. If a cluster's log could
    not be read, it has one row, and `undecided` says why.

    \b
    Examples:
      kraft-audit quorum samples/divergence.tgz
      kraft-audit quorum --diverge samples/divergence.tgz
      kraft-audit quorum --voters samples/dynamic-quorum.tgz
      kraft-audit quorum samples/dynamic-quorum.tgz --capture 09-leader-removed-while-leader --output json
    """
    if (status or replication) and output is not Format.TABLE:
        raise UsageError("--status and --replication have their own format: leave out --output")
    if nodes + voters + diverge + (status or replication) > 1:
        raise UsageError("choose one of --nodes, --voters and --diverge, or --status and --replication")
    if branch is not None and (nodes or voters or diverge):
        raise UsageError("--branch: --nodes, --voters and --diverge show every branch: leave out --branch")
    if nodes:
        return _show_cards(logs, output)
    if voters:
        return show_voters(logs, output)
    if diverge:
        return show_divergence(logs, output)
    from kraft_audit.recovery.may_i.permission_table import Permissions
    from kraft_audit.tables.bronze import CAPTURES

    results = Results(output, (*CAPTURES.column_names, "lag", "role"))
    named = branch_of(branch)
    documents: list[dict[str, Any]] = []
    with open_logs(replace(logs, capture=None)) as clusters:
        asked = [
            # First: what it reads `quorum` need not read again.
            (None if status or replication else _permissions(cluster, logs, len(clusters)), cluster)
            for cluster in counted(on_branch(clusters.with_capture(logs.capture), named, logs.capture))
        ]
        quorums = [
            (cluster.quorum(capture=logs.capture), permissions, cluster.branch) for permissions, cluster in asked
        ]
    for number, (described, permissions, chosen) in enumerate(quorums):
        if number and results.is_table:
            results.out.line("")
        if status or replication:
            _print_as_kafka(results.out, described, status=status, replication=replication)
        elif results.is_table:
            if chosen is not None:
                results.out.text(chosen.text)
            _print(results.out, described)
            _print_permissions(results.out, permissions or Permissions())
        documents.append({**asdict(described), **_permission_keys(permissions or Permissions())})
        results.add(described.replicas)
    return results.end_documents(documents)


def _show_cards(logs: NodeLogs, output: Format) -> int:
    """The node cards of the newest capture of each cluster."""
    from kraft_audit.capture.node_card import NodeCard

    results = Results(output, tuple(field.name for field in fields(NodeCard)))
    for cluster in results.each_history(logs):
        results.title(cluster)
        cards = cluster.nodes()
        rows = [{**asdict(card), **(_texts_of(card) if results.is_table else {})} for card in cards]
        results.rows(rows, NODE_COLUMNS)
    return results.end()


def _texts_of(card: NodeCard) -> dict[str, Any]:
    """What a card says in lists, as people read it."""
    return {
        "current_voters": _voters_text(card.current_voters),
        "configured_voters": _voters_text(card.configured_voters),
        "roles": ",".join(card.roles or ()) or None,
        "in_log": None if card.in_log is None else _in_log_text(card.in_log),
        "needs_release": None if card.in_log is None else card.in_log.needs_release,
    }


def _in_log_text(said: NodeInLog) -> str | None:
    """`voter, controller`; `broker fenced since 2026-06-14 21:35:52`."""
    texts = ["voter"] if said.voter else []
    for registration in said.registrations:
        since_ms = registration.fenced_since_ms
        how = "shut down" if registration.in_controlled_shutdown else "fenced since"
        texts.append(registration.role if since_ms is None else f"{registration.role} {how} {when(since_ms)}")
    return ", ".join(texts) or None


def _voters_text(voters: tuple[int, ...] | None) -> str | None:
    return None if voters is None else ",".join(map(str, voters)) or "none"


def _permissions(cluster: Cluster, logs: NodeLogs, cluster_count: int) -> Permissions:
    """What may be done to each node, where that is asked of the newest capture and of few clusters."""
    from kraft_audit.recovery.may_i.permission_table import Permissions, ask_one

    if cluster_count > COMMAND_CLUSTERS_ASKED_MAX:
        return Permissions(skipped=f"{cluster_count} clusters lie there. {ask_one(logs.path)}")
    if logs.capture is not None and len(cluster.captures) > 1:
        return Permissions(skipped=f"the answers are about the newest capture. {ask_one(logs.path)}")
    return cluster.permissions()


def _permission_keys(permissions: Permissions) -> dict[str, Any]:
    lost = permissions.cannot_be_lost
    return {
        "may_i": [asdict(row) for row in permissions.rows],
        "may_i_skipped": permissions.skipped,
        "cannot_be_lost": None if lost is None else asdict(lost),
    }


def _print_permissions(out: Output, permissions: Permissions) -> None:
    from kraft_audit.recovery.may_i.permission_table import permission_lines

    if not permissions.rows and permissions.skipped is None:
        return
    out.line("")
    if permissions.rows:
        out.text("What may be done, all voters running:")
        out.rows(map(_shown_line, permission_lines(permissions)), PERMISSION_COLUMNS)
    if permissions.skipped is not None:
        out.text(f"What may be done was not asked: {permissions.skipped}")
    if permissions.cannot_be_lost is not None:
        out.text(permissions.cannot_be_lost.text)


def _shown_line(line: PermissionLine) -> dict[str, Any]:
    return {
        "node": f"{line.role} {line.node_id}",
        "action": ", ".join(line.actions),
        "answer": line.row.verdict,
        "why": line.row.why,
        "first": line.row.first,
    }


def _print_as_kafka(out: Output, described: QuorumDescription, *, status: bool, replication: bool) -> None:
    for line in status_lines(described) if status else ():
        out.line(line)
    if status and replication:
        out.line("")
    for line in replication_lines(described) if replication else ():
        out.line(line)


def _leader_text(described: QuorumDescription) -> str:
    """Who leads; nothing where no epoch is known."""
    epoch, leaders = described.leader_epoch, described.leader_ids
    if epoch < 0:
        return ""
    named = nouns("leader", leaders) if leaders else "no leader known"
    return f"{named} in epoch {epoch}   "


def _print(out: Output, described: QuorumDescription) -> None:
    from kraft_audit.quorum.open_interval import CONTRADICTION

    out.title(shown_cluster_id(described.cluster_id))
    others = described.other_captures
    if others:
        names = ", ".join(name or "''" for name in others)
        out.text(f"capture {described.capture} of {len(others) + 1}; --capture shows {names}")
    low, high = described.committed_low, described.committed_high
    if low is not None:
        captured = sum(voter.captured for voter in described.voters)
        times = f"read {time_text(described.read_from_ms)} to {time_text(described.read_to_ms)} UTC"
        of_voters = f"{captured} of {len(described.voters)} voters captured"
        out.text(f"{_leader_text(described)}{committed_text(low, high)}   {of_voters}")
        out.text(times)
    out.line("")
    out.rows(map(_with_snapshot, described.replicas), COLUMNS)
    if described.evidence:
        out.line("")
    for text in described.evidence:
        out.text(f"  {text}")
    if described.undecided:
        out.text(f"  {'' if described.undecided.startswith(CONTRADICTION) else 'undecided: '}{described.undecided}")


def _with_snapshot(replica: dict[str, Any]) -> dict[str, Any]:
    offset, epoch = replica["snapshot_end_offset"], replica["snapshot_epoch"]
    return {**replica, "snapshot": "" if offset is None else f"{offset}-{epoch}"}


def status_lines(quorum: QuorumDescription) -> list[str]:
    """What `kafka-metadata-quorum describe --status` prints (MetadataQuorumCommand 4.3).

    Only a live leader knows how long followers lag.
    """
    fields = {
        "ClusterId": quorum.cluster_id,
        "LeaderId": quorum.leader_id,
        "LeaderEpoch": quorum.leader_epoch,
        "HighWatermark": _high_watermark(quorum),
        "MaxFollowerLag": _max_follower_lag(quorum),
        "MaxFollowerLagTimeMs": 0 if [voter.voter_id for voter in quorum.voters] == [quorum.leader_id] else -1,
        "CurrentVoters": _nodes([_voter(voter) for voter in quorum.voters]),
        "CurrentObservers": _nodes([_node(row["node_id"], row["directory_id"]) for row in _observers(quorum)]),
    }
    return [neutral(f"{name + ':':<{LABEL_CHARACTERS}}{value}") for name, value in fields.items()]


def replication_lines(quorum: QuorumDescription) -> list[str]:
    """`describe --replication`: leader, followers, observers; what was not captured is -1."""
    rows: list[tuple[str, ...]] = [REPLICATION_HEADER]
    by_node = {row["node_id"]: row for row in quorum.replicas if row["role"] in ("leader", "voter")}
    leader_id = quorum.leader_id
    leader_end = _end(by_node.get(leader_id))
    voters = [(voter.voter_id, voter.directory_id) for voter in quorum.voters]
    if leader_id in by_node and leader_id not in dict(voters):
        voters.append((leader_id, by_node[leader_id]["directory_id"]))
    for node_id, directory_id in sorted(voters, key=lambda voter: (voter[0] != leader_id, voter[0])):
        status = "Leader" if node_id == leader_id else "Follower"
        rows.append(_row(node_id, directory_id, _end(by_node.get(node_id)), leader_end, status))
    for row in _observers(quorum):
        rows.append(_row(row["node_id"], row["directory_id"], _end(row), leader_end, "Observer"))
    widths = [max(len(row[place]) for row in rows) for place in range(len(REPLICATION_HEADER))]
    return ["".join(f"{neutral(cell):<{width}}\t" for cell, width in zip(row, widths, strict=True)) for row in rows]


def _row(node_id: int, directory_id: str | None, end: int, leader_end: int, status: str) -> tuple[str, ...]:
    lag = NOT_CAPTURED if NOT_CAPTURED in (end, leader_end) else leader_end - end
    unknown = str(NOT_CAPTURED)
    return (str(node_id), directory_id or ZERO_DIRECTORY, str(end), str(lag), unknown, unknown, status)


def _end(row: dict[str, Any] | None) -> int:
    end: int | None = None if row is None else row["log_end_offset"]
    return NOT_CAPTURED if end is None else end


def _high_watermark(quorum: QuorumDescription) -> str:
    low, high = quorum.committed_low, quorum.committed_high
    if low is None:
        return str(NOT_CAPTURED)
    if low == high:
        return str(low)
    return f"at least {low}" if high is None else f"{low} to {high}"


def _max_follower_lag(quorum: QuorumDescription) -> int:
    """The leader's end less the smallest voter's, where all of them were captured."""
    ends = {row["node_id"]: _end(row) for row in quorum.replicas if row["role"] in ("leader", "voter")}
    leader_end = ends.get(quorum.leader_id, NOT_CAPTURED)
    theirs = [ends.get(voter.voter_id, NOT_CAPTURED) for voter in quorum.voters]
    return NOT_CAPTURED if NOT_CAPTURED in (leader_end, *theirs) or not theirs else leader_end - min(theirs)


def _observers(quorum: QuorumDescription) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [row for row in quorum.replicas if row["role"] == "observer"]
    return sorted(rows, key=lambda row: row["node_id"])


def _voter(voter: CapturedVoter) -> dict[str, Any]:
    endpoints = [f"{endpoint.name}://{endpoint.host}:{endpoint.port}" for endpoint in voter.endpoints]
    return _node(voter.voter_id, voter.directory_id) | ({"endpoints": endpoints} if endpoints else {})


def _node(node_id: int, directory_id: str | None) -> dict[str, Any]:
    return {"id": node_id} | ({"directoryId": directory_id} if directory_id else {})


def _nodes(nodes: list[dict[str, Any]]) -> str:
    return "[" + ", ".join(json.dumps(node, ensure_ascii=False) for node in nodes) + "]"
