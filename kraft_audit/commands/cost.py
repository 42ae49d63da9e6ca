"""`cost`: what the metadata log is made of."""

from __future__ import annotations

from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from kraft_audit.commands.arguments import ConfiguredLogs, EveryLine, OutputFormat
from kraft_audit.commands.results import Results, remark_on_key
from kraft_audit.commands.terminal_options import prints_tables
from kraft_audit.text.output import Format, table_columns
from kraft_audit.text.readable import DAY_MS, plural, when

if TYPE_CHECKING:
    from kraft_audit.findings.log_cost import CostRow, LogCost

Dimension = Literal["type", "cause", "topic", "broker", "hour"]
COST_KEYS: Final = ("cluster_id", "by", "name", "size_bytes", "record_count", "share")
COLUMNS: Final = table_columns("name size_bytes record_count share", {"size_bytes": "bytes", "record_count": "records"})
LINES_MAX: Final = 8


@prints_tables
def cost(
    logs: ConfiguredLogs,
    by: Annotated[Dimension | None, typer.Option("--by", show_default=False, help="Show only this breakdown.")] = None,
    show_all: EveryLine = False,
    output: OutputFormat = Format.TABLE,
) -> int:
    """Show what fills the metadata log: bytes and records by type, cause, topic, broker and hour.

    Each of these five breakdowns adds up to the bytes of all batches in the canonical log. A record counts with its
    value and an equal share of its batch's framing. The largest contributors come first, for example a broker that
    flaps, or a topic whose configs are rewritten again and again.

    \b
    Examples:
      kraft-audit cost samples/elr-29-stopped.tgz
      kraft-audit cost samples/elr-29-stopped.tgz --by broker --output json
    """
    results = Results(output, COST_KEYS)
    remark_on_key()
    for cluster in results.each_history(logs, keeps_records=True):
        log_cost = cluster.cost()
        results.title(cluster)
        results.text(_in_words(log_cost))
        shown = [row for row in log_cost.rows if by is None or row.by == by]
        if results.is_table:
            for dimension, rows in groupby(shown, key=lambda row: row.by):
                _print(results, dimension, list(rows), show_all=show_all or by is not None)
        results.add({"cluster_id": cluster.cluster_id, **asdict(row)} for row in shown)
    return results.end()


def _in_words(log_cost: LogCost) -> str:
    text = f"{log_cost.size_bytes:,} bytes in {plural(log_cost.record_count, 'record')}"
    if log_cost.from_ms is None or log_cost.to_ms is None:
        return text
    text += f", {when(log_cost.from_ms)} to {when(log_cost.to_ms, log_cost.from_ms)}"
    length_ms = log_cost.to_ms - log_cost.from_ms
    return f"{text}, {log_cost.size_bytes * DAY_MS // length_ms:,} bytes a day at this rate" if length_ms > 0 else text


def _print(results: Results, dimension: str, rows: list[CostRow], *, show_all: bool) -> None:
    results.text(f"by {dimension}:")
    shown = rows if show_all else rows[:LINES_MAX]
    results.out.rows(map(_shown, shown), COLUMNS)
    if len(rows) > len(shown):
        results.text(f"and {len(rows) - len(shown)} more: --all")


def _shown(row: CostRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "size_bytes": f"{row.size_bytes:,}",
        "record_count": f"{row.record_count:,}",
        "share": f"{100 * row.share:.1f} %",
    }
