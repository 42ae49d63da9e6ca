"""`diff`: what changed between two moments of a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kraft_audit.commands.arguments import POINT, POINT_HELP, ConfiguredLogs, OutputFormat, place_of, state_at_place
from kraft_audit.commands.ending import UsageError
from kraft_audit.commands.results import Results, remark_on_key
from kraft_audit.commands.state import BOOKKEEPING, PartOption, StatePart, chosen_parts, rows_of, table_of, tables_of
from kraft_audit.commands.terminal_options import prints_tables
from kraft_audit.text.output import Format, table_columns
from kraft_audit.text.readable import natural

if TYPE_CHECKING:
    from kraft_audit.replay.cluster_state import ClusterState, Place

COLUMNS: Final = table_columns("part subject change field before after", wide="before after", dropped="change")


@prints_tables
def diff(
    logs: ConfiguredLogs,
    from_place: Annotated[
        str, typer.Option("--from", metavar=POINT, show_default=False, help=f"Earlier state: {POINT_HELP}.")
    ],
    to_place: Annotated[
        str | None,
        typer.Option(
            "--to", metavar=POINT, show_default=False, help=f"Later state: {POINT_HELP}. Default: the end of the log."
        ),
    ] = None,
    only: PartOption = None,
    output: OutputFormat = Format.TABLE,
) -> int:
    """Show the differences between two states: what was added, what was removed, and each field that changed.

    If a cluster's log cannot be replayed, the cluster is skipped and the exit code is 3.

    \b
    Examples:
      kraft-audit diff samples/divergence.tgz --from 30 --to 50
      kraft-audit diff samples/elr-29-stopped.tgz --from 400 --only partitions --output jsonl
    """
    before_place, after_place = place_of("--from", from_place), place_of("--to", to_place)
    parts = chosen_parts(only)
    reversed_text = f"--to: {to_place}: expected a point at or after --from {from_place}"
    if _is_reversed(before_place, after_place):
        raise UsageError(reversed_text)
    results = Results(output, ("cluster_id", *(column.name for column in COLUMNS)))
    remark_on_key()
    for cluster, moment in results.each_moment(logs, tables_of(parts)):
        before = state_at_place(moment, before_place, "--from")
        after = state_at_place(moment, after_place, "--to")
        if before.offset > after.offset:
            raise UsageError(
                f"{reversed_text}; in {cluster.title}, --to is offset {after.offset} and --from is {before.offset}"
            )
        rows = [row for part in parts for row in differences(part, before, after)]
        results.title(cluster, f"offset {before.offset} to {after.offset}")
        results.text(moment.proof_text(after.offset))
        results.missing(after.gaps or before.gaps)
        if not results.rows(rows, COLUMNS):
            results.text("no difference" if not only else f"no difference in {', '.join(parts)}")
    return results.end()


def _is_reversed(before: Place, after: Place) -> bool:
    """Whether --to is before --from as they were given; an offset and a time only a log can compare."""
    pairs = ((before.offset, after.offset), (before.time_ms, after.time_ms))
    return any(first is not None and last is not None and last < first for first, last in pairs)


def differences(part: StatePart, before: ClusterState, after: ClusterState) -> Iterator[dict[str, Any]]:
    """A row for each subject that is new or gone, and for each field that changed."""
    rows_before, rows_after = _by_subject(part, before), _by_subject(part, after)
    for subject in sorted(rows_before.keys() | rows_after.keys(), key=natural):
        old, new = rows_before.get(subject), rows_after.get(subject)
        common = {"cluster_id": after.cluster_id, "part": part.value, "subject": subject}
        if old is None or new is None:
            change = "added" if old is None else "removed"
            yield {**common, "change": change, "field": None, "before": old, "after": new}
            continue
        for name, value in new.items():
            if old.get(name) != value:
                yield {**common, "change": "changed", "field": name, "before": old.get(name), "after": value}


def _by_subject(part: StatePart, state: ClusterState) -> dict[str, dict[str, Any]]:
    return {
        _subject(part, row): {name: value for name, value in row.items() if name not in BOOKKEEPING}
        for row in rows_of(part, state)
    }


def _subject(part: StatePart, row: Mapping[str, Any]) -> str:
    if part is StatePart.PARTITIONS:
        return f"{row['topic']}-{row['partition']} ({row['topic_id']})"
    if part is StatePart.VOTERS:
        return f"{row['voter_id']}-{row['directory_id'] or ''}"
    return " ".join(str(row[name]) for name in table_of(part).subject if row[name] not in (None, ""))
