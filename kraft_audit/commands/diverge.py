"""`quorum --diverge`: where the captured logs of a cluster differ, and who holds what there."""

from __future__ import annotations

import shlex
from collections import defaultdict
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from kraft_audit.commands.arguments import Logs
from kraft_audit.commands.results import Results, remark_on_key, undecided_row
from kraft_audit.text.output import Format, Json, Output

if TYPE_CHECKING:
    from kraft_audit.cluster import Cluster
    from kraft_audit.quorum.divergence import Divergence, DivergentBranch

KEYS: Final = (
    "cluster_id",
    "offset",
    "epochs",
    "to_offsets",
    "canonical",
    "branches",
    "held_by",
    "records",
    "undecided",
)


def show_divergence(logs: Logs, output: Format) -> int:
    """Show the offsets at which replicas differ, and who holds what there."""
    from kraft_audit.rules.judging import NOTHING_READ

    results = Results(output, KEYS)
    remark_on_key()
    for cluster in results.each_cluster(logs):
        rows = [_row(cluster, divergence) for divergence in cluster.diverge()]
        if not cluster.survey.holds_anything:
            rows = [undecided_row(KEYS, cluster.cluster_id, NOTHING_READ)]
        results.title(cluster)
        if results.is_table:
            _print(results.out, rows, shlex.quote(logs.path))
        results.add(rows)
    return results.end()


def _row(cluster: Cluster, divergence: Divergence) -> dict[str, Any]:
    """The offset as a row: its lists have an entry for each branch, in the same order."""
    branches = divergence.branches
    return {
        "cluster_id": cluster.cluster_id,
        "offset": divergence.offset,
        "epochs": [branch.epoch for branch in branches],
        "to_offsets": [branch.to_offset for branch in branches],
        "canonical": [branch.is_canonical for branch in branches],
        "branches": [_name(branch, cluster.newest_capture) for branch in branches],
        "held_by": [[asdict(holder) for holder in branch.holders] for branch in branches],
        "records": [_first_record(cluster, branch) for branch in branches],
        "undecided": None,
    }


def _name(branch: DivergentBranch, newest: str | None) -> str | None:
    """What --branch calls it; None where no disk of the newest capture holds it."""
    nodes = [each.node_id for each in branch.holders if each.capture == newest and each.node_id is not None]
    return f"{branch.epoch}@{branch.offset}:{min(nodes)}" if nodes else None


def _first_record(cluster: Cluster, branch: DivergentBranch) -> dict[str, Any]:
    """The first record of a branch; a NoOp has no fields, and no row in any table."""
    offset = branch.offset
    for batch in cluster.reading.log_records(offset, offset + 1):
        for row in batch.to_pylist():
            if (row["leader_epoch"], row["batch_crc"]) == (branch.epoch, branch.first_crc):
                return {**row, "record": None if row["record"] is None else Json(row["record"])}
    return {"offset": offset, "leader_epoch": branch.epoch, "record_type": "NO_OP_RECORD", "record": Json("{}")}


def _print(out: Output, rows: list[dict[str, Any]], quoted: str) -> None:
    if not rows:
        out.text("no two captured logs differ at any offset")
    for row in rows:
        if row["undecided"]:
            out.text(row["undecided"])
            continue
        out.text(f"offset {row['offset']}: {len(row['epochs'])} histories")
        for place, epoch in enumerate(row["epochs"]):
            mark = "   canonical" if row["canonical"][place] else ""
            out.text(f"  epoch {epoch} to {row['to_offsets'][place]}{mark}")
            record = row["records"][place]
            shown = record["record"].text if record["record"] is not None else "(cannot be decoded)"
            out.text(f"    {record['record_type']} {shown}")
            out.text(f"    held by {_holders_text(row['held_by'][place])}")
            if (name := row["branches"][place]) is not None:
                out.text(f"    what it says: kraft-audit state {quoted} --branch {name}")
                if not any(row["canonical"]):
                    out.text(f"    to go on with it: kraft-audit rescue --plan {quoted} --branch {name}")


def _holders_text(holders: list[dict[str, Any]]) -> str:
    captures_of: dict[str, list[str]] = defaultdict(list)
    for holder in holders:
        name = holder["path"] if holder["node_id"] is None else f"node {holder['node_id']}"
        captures_of[name].append(holder["capture"])
    texts = []
    for name, captures in captures_of.items():
        named = ", ".join(capture for capture in captures if capture)
        texts.append(f"{name} ({named})" if named else name)
    return "; ".join(texts)
