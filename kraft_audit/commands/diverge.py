"""`diverge`: where the captured logs of a cluster part, and who holds what there."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from kraft_audit.cluster_name import shown_cluster_id
from kraft_audit.commands.arguments import Capture, DialectOption, OutputFormat, Path
from kraft_audit.commands.histories import undecided_row
from kraft_audit.commands.reading import Input, opened, redaction_key, redactor
from kraft_audit.output import Column, Format, Json, Output
from kraft_codec.schemas import Dialect

if TYPE_CHECKING:
    from kraft_audit.replay.branches import Branch
    from kraft_audit.replay.plan import ClusterPlan
    from kraft_audit.replay.survey import Survey


KEYS: Final = ("cluster_id", "offset", "epochs", "to_offsets", "canonical", "held_by", "records", "undecided")


def diverge(
    path: Path,
    output: OutputFormat = Format.TABLE,
    capture: Capture = None,
    dialect: DialectOption = Dialect.KIP853,
) -> None:
    """Show the first offset and epoch at which replicas differ, both records side by side, and who holds which.

    All captures below PATH are compared. A replica that only lags behind does not differ. Of a cluster of whose log
    nothing was read there is one row, which has nothing but `undecided`.

    \b
    Examples:
      kraft-audit diverge samples/divergence
      kraft-audit diverge samples/uncommitted-voter-change --output json
    """
    key, out = redaction_key(), Output(output)
    rows: list[dict[str, Any]] = []
    with opened(path, dialect=dialect, capture=capture) as found:
        for number, plan in enumerate(found.plans):
            theirs = divergences(found, plan, key)
            rows += theirs
            if out.format is Format.TABLE:
                if number:
                    out.line("")
                _print(out, plan, theirs)
    if out.format is not Format.TABLE:
        out.rows(rows, [Column(name, name) for name in KEYS])


def divergences(found: Input, plan: ClusterPlan, key: bytes) -> list[dict[str, Any]]:
    """A row for each offset at which logs part; the lists of a row go together, one entry a history.

    Where nothing was read, which compares nothing, a row that says so.
    """
    from kraft_audit.replay.rounds import committed_intervals
    from kraft_audit.replay.silver import newest_canonical
    from kraft_audit.replay.survey import survey
    from kraft_audit.rules.registry import NOTHING_READ

    shape = survey(plan, open_storage=found.open_storage, redactor=redactor(key))
    if not shape.holds_anything:
        return [undecided_row(KEYS, plan.cluster_id, NOTHING_READ)]
    known = newest_canonical(committed_intervals(shape, plan))
    tip = None if known is None else known.interval.canonical
    canonical = set() if tip is None else set(shape.path(tip.number))
    siblings: dict[int | None, list[Branch]] = defaultdict(list)
    for branch in shape.branches:
        siblings[branch.parent].append(branch)
    rows = []
    for children in siblings.values():
        if len(children) < 2 or not _overlap(children):
            continue
        ordered = sorted(children, key=lambda branch: (branch.epochs[0][0], branch.number))
        rows.append(
            {
                "cluster_id": plan.cluster_id,
                "offset": min(branch.from_offset for branch in ordered),
                "epochs": [branch.epochs[0][0] for branch in ordered],
                "to_offsets": [_furthest(shape, branch) for branch in ordered],
                "canonical": [branch.number in canonical for branch in ordered],
                "held_by": [_holders(shape, branch) for branch in ordered],
                "records": [_record(found, plan, key, branch) for branch in ordered],
                "undecided": None,
            }
        )
    return sorted(rows, key=lambda row: int(row["offset"]))


def _overlap(branches: list[Branch]) -> bool:
    """Whether any two speak of one offset: roots of logs that begin at different offsets need not."""
    ordered = sorted(branches, key=lambda branch: branch.from_offset)
    return any(later.from_offset < earlier.to_offset for earlier, later in pairwise(ordered))


def ends_on(shape: Survey, branch: Branch) -> list[int]:
    """The numbers of the replicas whose log runs along a branch."""
    return [number for number, end in enumerate(shape.ends) if branch.number in shape.path(end.branch)]


def _furthest(shape: Survey, branch: Branch) -> int:
    return max((shape.ends[number].end_offset for number in ends_on(shape, branch)), default=branch.to_offset)


def _holders(shape: Survey, branch: Branch) -> list[dict[str, Any]]:
    plans = [shape.replicas[number].plan for number in ends_on(shape, branch)]
    return [{"node_id": one.node_id, "capture": one.capture, "path": one.path} for one in plans]


def _record(found: Input, plan: ClusterPlan, key: bytes, branch: Branch) -> dict[str, Any]:
    """The first record of a branch; a NoOp has no fields, and no row in any table."""
    from kraft_audit.replay.analyze import analyze
    from kraft_audit.replay.plan import Selection

    offset = branch.from_offset
    rows = analyze(
        plan,
        frozenset({"records"}),
        open_storage=found.open_storage,
        redactor=redactor(key),
        selection=Selection(from_offset=offset, to_offset=offset + 1),
    )
    for _, batch in rows:
        for row in batch.to_pylist():
            is_ours = (row["leader_epoch"], row["batch_crc"]) == (branch.epochs[0][0], branch.first_crc)
            if row["source"] == "log" and is_ours:
                record = None if row["record"] is None else Json(row["record"])
                return {**row, "record": record}
    return {"offset": offset, "leader_epoch": branch.epochs[0][0], "record_type": "NO_OP_RECORD", "record": Json("{}")}


def _print(out: Output, plan: ClusterPlan, rows: list[dict[str, Any]]) -> None:
    out.title(shown_cluster_id(plan.cluster_id))
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


def _holders_text(holders: list[dict[str, Any]]) -> str:
    nodes: dict[str, list[str]] = defaultdict(list)
    for one in holders:
        name = one["path"] if one["node_id"] is None else f"node {one['node_id']}"
        nodes[name].append(one["capture"])
    texts = []
    for name, captures in nodes.items():
        told = ", ".join(capture for capture in captures if capture)
        texts.append(f"{name} ({told})" if told else name)
    return "; ".join(texts)
