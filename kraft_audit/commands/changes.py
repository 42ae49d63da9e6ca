"""`changes`: what admin requests changed, and who did it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kraft_audit.commands.arguments import (
    ConfiguredLogs,
    EveryLine,
    FromOffset,
    OutputFormat,
    ToOffset,
    check_range,
)
from kraft_audit.commands.authorizer_option import (
    AuthorizerLogs,
    AuthorizerZone,
    authored_changes,
    read_log,
    who_in_words,
)
from kraft_audit.commands.results import Results, remark_on_key
from kraft_audit.commands.terminal_options import prints_tables
from kraft_audit.text.output import Format, table_columns
from kraft_audit.text.readable import any_of, time_text

if TYPE_CHECKING:
    from kraft_audit.findings.change_authors import AuthoredChange

KEYS: Final = (
    *("cluster_id", "offset", "epoch", "timestamp_ms", "kind", "subject", "change"),
    *("who", "confidence", "candidates", "host", "authorized_ms"),
)
TITLES: Final = {"time": "time (UTC)"}
COLUMNS: Final = table_columns("offset time change", TITLES, wide="change")
COLUMNS_WITH_WHO: Final = table_columns(
    "offset time who confidence change", TITLES, wide="change", dropped="confidence"
)
LINES_MAX: Final = 200


@prints_tables
def changes(
    logs: ConfiguredLogs,
    log_files: AuthorizerLogs = None,
    zone: AuthorizerZone = "UTC",
    user: Annotated[
        str | None,
        typer.Option(
            "--user",
            metavar="USER",
            show_default=False,
            help="Show only changes that this user made, or may have made.",
        ),
    ] = None,
    from_offset: FromOffset = None,
    to_offset: ToOffset = None,
    show_all: EveryLine = False,
    output: OutputFormat = Format.TABLE,
) -> int:
    """Show what admin requests changed: topics, partitions, configs, ACLs, quotas, SCRAM users, features.

    Kafka's metadata log does not say who made a change. Kafka's authorizer log does. Pass it as --authorizer-log: the
    file of the active controller, or folders with the files of all controllers. kraft-audit then matches requests to
    changes by resource and time. Kafka logs allowed requests only if kafka.authorizer.logger is at level DEBUG.

    `confidence` says how sure it is who made a change. It is `high` if only one user was allowed to change this
    resource near that time. It is `likely` if the requests name no resource, or if their order rules out other users.
    It is `undecided` if several users remain. It is `none` if no request fits, for example because Kafka made the
    change by itself.

    \b
    Examples:
      kraft-audit changes samples/elr-06-kill-13-last-replica.tgz
      kraft-audit changes samples/elr-29-stopped.tgz --from 100 --output json
    """
    from kraft_audit.findings.change_authors import change_row

    check_range(from_offset, to_offset)
    remark_on_key()
    log = read_log(log_files, zone)
    results = Results(output, KEYS)
    for cluster in results.each_history(logs):
        all_changes = authored_changes(cluster, log)
        shown = [
            each
            for each in all_changes
            if (from_offset is None or each.change.offset >= from_offset)
            and (to_offset is None or each.change.offset < to_offset)
            and (user is None or (each.author is not None and user in each.author.candidates))
        ]
        results.title(cluster, who_in_words(shown))
        if results.is_table:
            left_out = 0 if show_all else max(0, len(shown) - LINES_MAX)
            if left_out:
                results.text(f"{left_out} earlier lines: --all")
            results.out.rows(map(_shown, shown[left_out:]), COLUMNS if log is None else COLUMNS_WITH_WHO)
        results.add({"cluster_id": cluster.cluster_id, **change_row(each)} for each in shown)
    return results.end()


def _shown(each: AuthoredChange) -> dict[str, Any]:
    from kraft_audit.findings.change_authors import change_row

    row = change_row(each)
    who = row["who"] or (any_of(row["candidates"]) if row["candidates"] else "")
    return {**row, "time": time_text(row["timestamp_ms"]), "who": who}
