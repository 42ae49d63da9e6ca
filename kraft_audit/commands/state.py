"""`state` and `diff`: everything a cluster knew as after a record, and what changed between two."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kraft_audit.cluster_name import shown_cluster_id
from kraft_audit.commands.arguments import Capture, Defaults, DialectOption, OutputFormat, Path
from kraft_audit.commands.ending import UsageError
from kraft_audit.commands.histories import say_missing
from kraft_audit.commands.moment import Moment, Moments, Place, place, state_at_place
from kraft_audit.commands.reading import opened, redaction_key
from kraft_audit.commands.state_text import readable
from kraft_audit.natural_order import natural
from kraft_audit.output import Column, Format, Output
from kraft_codec.schemas import Dialect

if TYPE_CHECKING:
    from kraft_audit.replay.state import ClusterState

TABLE_OF: Final[Mapping[str, str]] = {
    "brokers": "broker_changes",
    "controllers": "controller_changes",
    "topics": "topic_changes",
    "partitions": "partition_changes",
    "configs": "config_changes",
    "features": "feature_changes",
    "security": "security_changes",
}
# How a row came to be, and bookkeeping: no part of what is the state.
ENVELOPE: Final = frozenset(
    {
        "cluster_id",
        "plan",
        "from_offset",
        "from_epoch",
        "timestamp_ms",
        "cause",
        "cause_broker_id",
        "election",
        "exists",
    }
)
UNKNOWN: Final[Mapping[str, None]] = dict.fromkeys(("from_offset", "from_epoch", "timestamp_ms", "cause"))
"""What a state does not keep: by which record, and when, each subject came to be as it is."""


FIRST_FOR_PEOPLE: Final = {
    "brokers": ("broker_id", "fenced", "in_controlled_shutdown", "rack", "broker_epoch"),
    "partitions": (
        *("topic", "partition", "leader", "isr", "elr", "last_known_elr", "replicas", "effective_min_isr"),
        *("leader_epoch", "partition_epoch", "leader_recovery_state", "adding_replicas", "removing_replicas"),
    ),
}
"""What people look for first; the rest follows as the table has it."""


class Part(enum.StrEnum):
    """The parts of a state, as its JSON names them."""

    BROKERS = "brokers"
    CONTROLLERS = "controllers"
    TOPICS = "topics"
    PARTITIONS = "partitions"
    CONFIGS = "configs"
    FEATURES = "features"
    SECURITY = "security"
    VOTERS = "voters"


PartOption = Annotated[
    list[Part] | None, typer.Option("--only", show_default=False, help="Only this part; may be given several times.")
]
AT_HELP: Final = "After the record at this offset, at this time (ISO 8601, UTC), or `committed`."


def state(
    path: Path,
    at: Annotated[str | None, typer.Option("--at", metavar="PLACE", show_default=False, help=AT_HELP)] = None,
    only: PartOption = None,
    output: OutputFormat = Format.TABLE,
    capture: Capture = None,
    default: Defaults = None,
    dialect: DialectOption = Dialect.KIP853,
) -> int:
    """Show brokers, topics, partitions, configs, features and voters as after a record: the last one by default.

    JSON is an object; of several clusters below PATH, a list of them. Its rows have the columns of the `*_changes`
    tables. A state does not know which record made a row what it is: from_offset, from_epoch, timestamp_ms and cause
    are null. `partitions` and `timeline` tell. Exit code 3 where a cluster has no log that could be replayed: the
    others are told.

    \b
    Examples:
      kraft-audit state samples/elr-06-kill-13-last-replica.tgz
      kraft-audit state samples/elr --at committed --only partitions --output json
    """
    where = place("--at", at)
    parts = tuple(Part) if not only else tuple(dict.fromkeys(only))
    if output in (Format.CSV, Format.JSONL) and len(parts) != 1:
        raise UsageError(f"--output {output.value} holds rows of one part: choose it by --only")
    key, out = redaction_key(), Output(output)
    documents = []
    with opened(path, dialect=dialect, defaults=default) as found:
        moments = Moments(found, key, capture, _tables(parts))
        for number, moment in enumerate(moments):
            told = state_at_place(moment, where)
            if out.format is Format.TABLE:
                if number:
                    out.line("")
                _print(out, moment, told, parts)
            else:
                documents.append(document(moment, told, parts))
    if out.format is Format.JSON:
        out.document(documents[0] if len(documents) == 1 else documents)
    elif out.format is not Format.TABLE:
        out.rows([row for one in documents for row in one[parts[0].value]], [], keys_of(parts[0]))
    return moments.exit_code


def diff(
    path: Path,
    from_place: Annotated[str, typer.Option("--from", metavar="PLACE", show_default=False, help=AT_HELP)],
    to_place: Annotated[str | None, typer.Option("--to", metavar="PLACE", show_default=False, help=AT_HELP)] = None,
    only: PartOption = None,
    output: OutputFormat = Format.TABLE,
    capture: Capture = None,
    default: Defaults = None,
    dialect: DialectOption = Dialect.KIP853,
) -> int:
    """Show what differs between the states as after two records: added, removed, and each field that changed.

    Exit code 3 where a cluster below PATH has no log that could be replayed: the others are told.

    \b
    Examples:
      kraft-audit diff samples/divergence --from 30 --to 50
      kraft-audit diff samples/elr --from 400 --only partitions --output jsonl
    """
    before_place, after_place = place("--from", from_place), place("--to", to_place)
    parts = tuple(Part) if not only else tuple(dict.fromkeys(only))
    key, out = redaction_key(), Output(output)
    if _is_reversed(before_place, after_place):
        raise UsageError(f"--to: {to_place}: expected a place at or behind --from {from_place}")
    columns = [Column("part", "part"), Column("subject", "subject", is_wide=True), Column("change", "change")]
    columns += [Column("field", "field"), Column("before", "before"), Column("after", "after")]
    rows: list[dict[str, Any]] = []
    with opened(path, dialect=dialect, defaults=default) as found:
        moments = Moments(found, key, capture, _tables(parts))
        for number, moment in enumerate(moments):
            before = state_at_place(moment, before_place, "--from")
            after = state_at_place(moment, after_place, "--to")
            named = shown_cluster_id(moment.plan.cluster_id)
            if before.offset > after.offset:
                offsets = f"of {named} they are offsets {after.offset} and {before.offset}"
                raise UsageError(f"--to: {to_place}: expected a place at or behind --from {from_place}; {offsets}")
            theirs = [row for part in parts for row in differences(part, before, after)]
            if out.format is not Format.TABLE:
                rows += theirs
                continue
            if number:
                out.line("")
            out.title(f"{named}   offset {before.offset} to {after.offset}")
            out.text(moment.proof_text(after.offset))
            say_missing(out, after.holes or before.holes)
            if out.rows(theirs, columns) == 0:
                out.text("no difference" if not only else f"no difference in {', '.join(parts)}")
    if out.format is not Format.TABLE:
        out.rows(rows, [], ("cluster_id", *(column.name for column in columns)))
    return moments.exit_code


def _is_reversed(before: Place, after: Place) -> bool:
    """Whether --to stands before --from by what was given alone; of an offset and a time only a log can tell."""
    pairs = ((before.offset, after.offset), (before.time_ms, after.time_ms))
    return any(first is not None and last is not None and last < first for first, last in pairs)


def document(moment: Moment, told: ClusterState, parts: tuple[Part, ...]) -> dict[str, Any]:
    """The JSON of `state`."""
    return {
        "cluster_id": told.cluster_id,
        "offset": told.offset,
        "capture": moment.capture,
        "proven_to": moment.low,
        "end_offset": moment.end_offset,
        "is_complete": told.is_complete,
        "undecoded": {"first_offset": told.undecoded.first_offset, "count": told.undecoded.count},
        "missing": {
            "first_offset": told.holes[0][0] if told.holes else None,
            "count": sum(end - start for start, end in told.holes),
        },
        "problems": list(told.problems),
        **{part.value: rows_of(part, told) for part in parts},
    }


def rows_of(part: Part, told: ClusterState) -> list[dict[str, Any]]:
    """The rows of one part that exist then; what is not known of how they came to be is None."""
    if part is Part.VOTERS:
        return [] if told.voter_set is None else list(told.voter_set["voters"])
    return [{**row, **UNKNOWN} for row in told.rows(TABLE_OF[part.value]) if row.get("exists", True)]


def keys_of(part: Part) -> list[str]:
    """The keys of those rows."""
    from kraft_audit.replay.tables import SILVER, VOTER_SETS

    if part is Part.VOTERS:
        return [field.name for field in VOTER_SETS.schema.field("voters").type.value_type]
    return list(SILVER[TABLE_OF[part.value]].column_names)


def differences(part: Part, before: ClusterState, after: ClusterState) -> Iterator[dict[str, Any]]:
    """A row for each subject that is new or gone, and for each field that changed."""
    olds, news = _by_subject(part, before), _by_subject(part, after)
    for subject in sorted(olds.keys() | news.keys(), key=natural):
        old, new = olds.get(subject), news.get(subject)
        if old is None or new is None:
            yield {
                "cluster_id": after.cluster_id, "part": part.value, "subject": subject,
                "change": "added" if old is None else "removed", "field": None, "before": old, "after": new,
            }  # fmt: skip
            continue
        for name, value in new.items():
            if old.get(name) != value:
                yield {
                    "cluster_id": after.cluster_id, "part": part.value, "subject": subject,
                    "change": "changed", "field": name, "before": old.get(name), "after": value,
                }  # fmt: skip


def _by_subject(part: Part, told: ClusterState) -> dict[str, dict[str, Any]]:
    found = {}
    for row in rows_of(part, told):
        fields = {name: value for name, value in row.items() if name not in ENVELOPE}
        found[_subject(part, row)] = fields
    return found


def _subject(part: Part, row: Mapping[str, Any]) -> str:
    if part is Part.PARTITIONS:
        return f"{row['topic']}-{row['partition']} ({row['topic_id']})"
    if part is Part.VOTERS:
        return f"{row['voter_id']}-{row['directory_id'] or ''}"
    from kraft_audit.replay.tables import SILVER

    key = SILVER[TABLE_OF[part.value]].key
    return " ".join(str(row[name]) for name in key if name not in ENVELOPE and row[name] not in (None, ""))


def _tables(parts: tuple[Part, ...]) -> frozenset[str]:
    """What has to be replayed: partitions need topics and configs, whichever part was asked for."""
    wanted = {TABLE_OF[part.value] for part in parts if part is not Part.VOTERS}
    if Part.PARTITIONS in parts:
        from kraft_audit.replay.replay import REPLAY_TABLES

        return REPLAY_TABLES
    return frozenset(wanted)


def _print(out: Output, moment: Moment, told: ClusterState, parts: tuple[Part, ...]) -> None:
    named = f"   capture {moment.capture}" if moment.capture else ""
    out.title(f"{shown_cluster_id(told.cluster_id)}   after offset {told.offset}{named}")
    out.text(moment.proof_text(told.offset))
    if not told.has_beginning:
        out.text("the log begins behind its start and no snapshot leads there: what is older is not known")
    if told.undecoded:
        records = "record" if told.undecoded.count == 1 else "records"
        where = f"the first at offset {told.undecoded.first_offset}"
        out.text(f"{told.undecoded.count} {records} could not be decoded, {where}: what they said is missing here")
    say_missing(out, told.holes)
    for problem in told.problems:
        out.text(f"contradiction: {problem}")
    for part in parts:
        rows = rows_of(part, told)
        out.line("")
        out.title(f"{part.value}: {len(rows)}")
        if part is Part.PARTITIONS:
            rows = sorted(rows, key=lambda row: (row["topic"], row["partition"]))
        first = FIRST_FOR_PEOPLE.get(part.value, ())
        names = [name for name in (rows[0] if rows else ()) if name not in ENVELOPE]
        names = [*first, *(name for name in names if name not in first)] if names else []
        out.rows(map(readable, rows), [Column(name, name, is_number=_is_number(rows, name)) for name in names])


def _is_number(rows: list[dict[str, Any]], name: str) -> bool:
    return any(isinstance(row[name], int) and not isinstance(row[name], bool) for row in rows[:10])
