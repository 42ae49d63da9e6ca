"""`voters`: every voter set that the captured logs tell of, and how it ended."""

from __future__ import annotations

from typing import Any, Final

from kraft_audit.cluster_name import shown_cluster_id
from kraft_audit.commands.arguments import Capture, DialectOption, OutputFormat, Path
from kraft_audit.commands.reading import opened, redaction_key, redactor
from kraft_audit.output import Column, Format, Output
from kraft_audit.times import time_text
from kraft_codec.schemas import Dialect

COLUMNS: Final = (
    Column("from_offset", "offset", is_number=True),
    Column("from_epoch", "epoch", is_number=True),
    Column("time", "appended (UTC)"),
    Column("source", "source"),
    Column("kraft_version", "kraft.version", is_number=True),
    Column("ids", "voters"),
    Column("change", "change", is_wide=True),
    Column("ended_by", "ended by"),
)


def voters(
    path: Path,
    output: OutputFormat = Format.TABLE,
    capture: Capture = None,
    dialect: DialectOption = Dialect.KIP853,
) -> None:
    """Show the history of the voter set: every change of every branch, the reverted ones too.

    A set is in effect from the moment its record is appended; `truncated` was taken back before it was committed.

    \b
    Examples:
      kraft-audit voters samples/dynamic-quorum
      kraft-audit voters samples/uncommitted-voter-change --output json
    """
    from kraft_audit.replay.rounds import quorum_rows
    from kraft_audit.replay.survey import survey

    key, out = redaction_key(shows_values=False), Output(output)
    everything: list[dict[str, Any]] = []
    with opened(path, dialect=dialect, capture=capture) as found:
        for number, plan in enumerate(found.plans):
            shape = survey(plan, open_storage=found.open_storage, redactor=redactor(key))
            told = quorum_rows(shape, plan)
            low = max((row["low"] for row in told["watermarks"]), default=0)
            rows = sorted(told["voter_sets"], key=lambda row: (row["from_offset"], row["from_epoch"]))
            rows = [{"cluster_id": plan.cluster_id, **row, "committed": _is_committed(row, low)} for row in rows]
            everything += rows
            if out.format is Format.TABLE:
                if number:
                    out.line("")
                out.title(f"{shown_cluster_id(plan.cluster_id)}   proven to offset {low}")
                out.rows([_shown(row) for row in rows], COLUMNS)
    if out.format is not Format.TABLE:
        from kraft_audit.replay.tables import VOTER_SETS

        out.rows(everything, COLUMNS, (*(name for name in VOTER_SETS.column_names if name != "plan"), "committed"))


def _is_committed(row: dict[str, Any], low: int) -> bool | None:
    """Null where neither its commitment nor its end is proven."""
    if not row["canonical"]:
        return False
    return True if row["from_offset"] < low else None


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    changes = [f"+{_name(one)}" for one in row["added"]] if row["source"] == "log" else []
    changes += [f"-{_name(one)}" for one in row["removed"]]
    changes += [f"{node}: endpoints" for node in row["endpoints_changed"]]
    return {
        **row,
        "time": time_text(row["timestamp_ms"]),
        "ids": " ".join(str(voter["voter_id"]) for voter in row["voters"]),
        "change": " ".join(changes),
    }


def _name(voter: dict[str, Any]) -> str:
    directory = voter["directory_id"]
    return f"{voter['voter_id']}" if directory is None else f"{voter['voter_id']}-{directory}"
