"""`state`: everything that a cluster knew as after a record."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kraft_audit.commands.arguments import POINT, POINT_HELP, ConfiguredLogs, OutputFormat, place_of, state_at_place
from kraft_audit.commands.branch_option import BranchOption, branch_of
from kraft_audit.commands.ending import UsageError
from kraft_audit.commands.results import Results, remark_on_key
from kraft_audit.commands.terminal_options import prints_tables
from kraft_audit.text.output import Format, OutputRow, table_columns

if TYPE_CHECKING:
    from kraft_audit.cluster import Cluster
    from kraft_audit.replay.cluster_state import ClusterState, Moment
    from kraft_audit.tables.contract import Table

# Which record made a row, and bookkeeping: not part of the state.
BOOKKEEPING: Final = frozenset(
    {
        "cluster_id",
        "plan",
        "from_offset",
        "from_epoch",
        "timestamp_ms",
        "cause",
        "possible_causes",
        "cause_broker_id",
        "election",
        "exists",
    }
)
NO_PROVENANCE: Final[Mapping[str, None]] = dict.fromkeys(("from_offset", "from_epoch", "timestamp_ms", "cause"))
"""What a state does not hold: which record made each subject what it is, and when."""
FIRST_FOR_PEOPLE: Final = {
    "brokers": ("broker_id", "fenced", "in_controlled_shutdown", "rack", "broker_epoch"),
    "partitions": (
        *("topic", "partition", "leader", "isr", "elr", "last_known_elr", "replicas", "effective_min_isr"),
        *("leader_epoch", "partition_epoch", "leader_recovery_state", "adding_replicas", "removing_replicas"),
    ),
}
"""The columns that people look for first; the others follow in the order of the table."""


class StatePart(enum.StrEnum):
    """The parts of a state, as its JSON names them and in its order: every part that a table's contract names."""

    BROKERS = "brokers"
    CONTROLLERS = "controllers"
    TOPICS = "topics"
    PARTITIONS = "partitions"
    CONFIGS = "configs"
    FEATURES = "features"
    SECURITY = "security"
    VOTERS = "voters"


PartOption = Annotated[
    list[StatePart] | None,
    typer.Option("--only", show_default=False, help="Show only this part. Repeatable."),
]


@prints_tables
def state(
    logs: ConfiguredLogs,
    at: Annotated[
        str | None, typer.Option("--at", metavar=POINT, show_default=False, help=f"Show the state {POINT_HELP}.")
    ] = None,
    branch: BranchOption = None,
    only: PartOption = None,
    output: OutputFormat = Format.TABLE,
) -> int:
    """Show brokers, topics, partitions, configs, features and voters, at the end of the log or at an earlier point.

    JSON is one object, or a list of objects if PATH holds several clusters. Rows in JSON have the columns of the lake's
    `*_changes` tables. from_offset, from_epoch, timestamp_ms and cause are null, because a state does not say which
    record set a value. Use `partitions` or `timeline` for that. If no log reaches the newest snapshot, the state is
    that of the snapshot. If logs contradict each other, --branch chooses one. Without --branch, such a cluster is
    skipped and the exit code is 3.

    \b
    Examples:
      kraft-audit state samples/elr-06-kill-13-last-replica.tgz
      kraft-audit state samples/elr-29-stopped.tgz --at committed --only partitions --output json
    """
    place = place_of("--at", at)
    named = branch_of(branch)
    parts = chosen_parts(only)
    if output in (Format.CSV, Format.JSONL) and len(parts) != 1:
        raise UsageError(f"--output {output.value} holds the rows of one part: choose it with --only")
    results = Results(output, part_columns(parts[0]))
    documents = []
    remark_on_key()
    for cluster, moment in results.each_moment(logs, tables_of(parts), named):
        known = state_at_place(moment, place)
        if results.is_table:
            _print(results, cluster, moment, known, parts)
        else:
            documents.append(document(moment, known, parts))
            results.add(documents[-1][parts[0].value])
    return results.end_documents(documents)


def chosen_parts(only: list[StatePart] | None) -> tuple[StatePart, ...]:
    """The parts that --only names, each once; all of them without it."""
    return tuple(dict.fromkeys(only)) if only else tuple(StatePart)


def document(moment: Moment, state: ClusterState, parts: tuple[StatePart, ...]) -> dict[str, Any]:
    """The JSON of `state`."""
    return {
        "cluster_id": state.cluster_id,
        "offset": state.offset,
        "capture": moment.capture,
        "proven_to": moment.low,
        "end_offset": moment.end_offset,
        "not_canonical": moment.why_not_canonical,
        "is_complete": state.is_complete,
        "undecoded": {"first_offset": state.undecoded.first_offset, "count": state.undecoded.count},
        "missing": {
            "first_offset": state.gaps[0][0] if state.gaps else None,
            "count": sum(end - start for start, end in state.gaps),
        },
        "problems": list(state.problems),
        **{part.value: rows_of(part, state) for part in parts},
    }


def rows_of(part: StatePart, state: ClusterState) -> list[dict[str, Any]]:
    """The rows of a part that exist then. The columns that name a row's record are None."""
    if part is StatePart.VOTERS:
        return [] if state.voter_set is None else list(state.voter_set["voters"])
    return [{**row, **NO_PROVENANCE} for row in state.existing(table_of(part).name)]


def table_of(part: StatePart) -> Table:
    """The contract of the table that a part's rows are states of; of the voters, the table of their sets."""
    from kraft_audit.tables.silver import SILVER

    return next(table for table in SILVER.values() if table.part == part.value)


def part_columns(part: StatePart) -> list[str]:
    """The columns of those rows."""
    table = table_of(part)
    if part is StatePart.VOTERS:
        return [field.name for field in table.schema.field("voters").type.value_type]
    return list(table.column_names)


def tables_of(parts: tuple[StatePart, ...]) -> frozenset[str]:
    """The tables to replay for these parts: partitions need topics and configs too."""
    if StatePart.PARTITIONS in parts:
        from kraft_audit.replay.cluster_replay import REPLAY_TABLES

        return REPLAY_TABLES
    return frozenset(table_of(part).name for part in parts if part is not StatePart.VOTERS)


def _print(
    results: Results, cluster: Cluster, moment: Moment, state: ClusterState, parts: tuple[StatePart, ...]
) -> None:
    out = results.out
    named = f"   capture {moment.capture}" if moment.capture else ""
    results.title(cluster, f"after offset {state.offset}{named}")
    out.text(moment.proof_text(state.offset))
    if not state.has_beginning:
        out.text("the log begins after offset 0 and no snapshot reaches its start: what is older is not known")
    if state.undecoded:
        records = "record" if state.undecoded.count == 1 else "records"
        where = f"the first at offset {state.undecoded.first_offset}"
        out.text(f"{state.undecoded.count} {records} could not be decoded, {where}: their changes are missing here")
    results.missing(state.gaps)
    for problem in state.problems:
        out.text(f"contradiction: {problem}")
    for part in parts:
        rows = rows_of(part, state)
        out.line("")
        out.title(f"{part.value}: {len(rows)}")
        if part is StatePart.PARTITIONS:
            rows = sorted(rows, key=lambda row: (row["topic"], row["partition"]))
        first = FIRST_FOR_PEOPLE.get(part.value, ())
        names = [name for name in (rows[0] if rows else ()) if name not in BOOKKEEPING]
        names = [*first, *(name for name in names if name not in first)] if names else []
        out.rows(map(_readable_row, rows), table_columns(names, dropped=names[:0:-1]))


def _readable_row(row: OutputRow) -> dict[str, Any]:
    """A row with its listeners as NAME://host:port and its features as name and range; all else as it is."""
    return {name: _readable(value) for name, value in row.items()}


def _readable(value: Any) -> Any:
    if not isinstance(value, list) or not value or not all(isinstance(item, Mapping) for item in value):
        return value
    if all({"name", "host", "port"} <= item.keys() for item in value):
        return ", ".join(map(_end_point, value))
    if all({"name", "min_supported_version", "max_supported_version"} <= item.keys() for item in value):
        return ", ".join(f"{f['name']} {f['min_supported_version']}-{f['max_supported_version']}" for f in value)
    return value


def _end_point(listener: Mapping[str, Any]) -> str:
    """NAME://host:port, and the protocol where the listener is not named after it."""
    from kraft_audit.rules.families.registrations import PROTOCOLS

    text = f"{listener['name']}://{listener['host']}:{listener['port']}"
    number = listener.get("security_protocol")
    protocol = PROTOCOLS.get(number, str(number)) if number is not None else listener["name"]
    return text if protocol == listener["name"] else f"{text} ({protocol})"
