"""`quorum`: the captures of a cluster side by side, as their disks tell them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kraft_audit.commands.arguments import Capture, DialectOption, OutputFormat, Path
from kraft_audit.commands.reading import Input, opened, redaction_key, redactor
from kraft_audit.output import Column, Format, Output
from kraft_codec.schemas import Dialect

if TYPE_CHECKING:
    from kraft_audit.replay.plan import ClusterPlan

COLUMNS: Final = (
    Column("node_id", "node", is_number=True),
    Column("directory_id", "directory"),
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
    capture: Capture = None,
    output: OutputFormat = Format.TABLE,
    dialect: DialectOption = Dialect.KIP853,
) -> None:
    """Show each captured replica: who it is, its epoch and votes, where its log begins and ends, how far it lags.

    Of several captures below PATH the newest is shown, or the one that --capture names.

    \b
    Examples:
      kraft-audit quorum samples/divergence
      kraft-audit quorum samples/dynamic-quorum --capture 09-leader-removed-while-leader --output json
    """
    key = redaction_key()
    out = Output(output)
    with opened(path, dialect=dialect, capture=capture) as found:
        clusters = [cluster_of(found, plan, key) for plan in found.plans]
    if out.format is Format.JSON:
        out.document(clusters[0] if len(clusters) == 1 else clusters)
    elif out.format is Format.TABLE:
        for number, cluster in enumerate(clusters):
            if number:
                out.line("")
            _print(out, cluster)
    else:
        out.rows([replica for cluster in clusters for replica in cluster["replicas"]], COLUMNS)


def cluster_of(found: Input, plan: ClusterPlan, key: bytes) -> dict[str, Any]:
    """The newest capture of one cluster: JSON keys as the columns of `captures`, and `lag`."""
    from kraft_audit.replay.analyze import analyze

    newest = max(replica.capture_number for replica in plan.replicas)
    captures = {replica.capture_number: replica.capture for replica in plan.replicas}
    rows = analyze(plan, frozenset({"captures"}), open_storage=found.open_storage, redactor=redactor(key))
    replicas = [row for _, batch in rows for row in batch.to_pylist() if row["capture_number"] == newest]
    ends = [end for row in replicas if row["accepted"] and (end := row["log_end_offset"]) is not None]
    for row in replicas:
        end = row["log_end_offset"]
        row["lag"] = max(ends) - end if row["accepted"] and end is not None else None
    return {
        "cluster_id": plan.cluster_id,
        "capture": captures[newest],
        "other_captures": [name for number, name in sorted(captures.items()) if number != newest],
        "read_from_ms": min((row["read_from_ms"] for row in replicas), default=None),
        "read_to_ms": max((row["read_to_ms"] for row in replicas), default=None),
        "replicas": replicas,
    }


def _print(out: Output, cluster: dict[str, Any]) -> None:
    out.title(cluster["cluster_id"] or "(no cluster id)")
    others = cluster["other_captures"]
    if others:
        more = f"capture {cluster['capture']}, the newest of {len(others) + 1}; --capture shows {', '.join(others)}"
        out.text(more)
    for row in cluster["replicas"]:
        offset, epoch = row["snapshot_end_offset"], row["snapshot_epoch"]
        row["snapshot"] = "" if offset is None else f"{offset}-{epoch}"
    out.rows(cluster["replicas"], COLUMNS)
