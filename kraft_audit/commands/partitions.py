"""`partitions`: the ledger of every partition's ISR, ELR and leader with causes, or how kafka-topics tells the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kraft_audit.cluster_name import shown_cluster_id
from kraft_audit.commands.arguments import Capture, Defaults, DialectOption, OutputFormat, Path
from kraft_audit.commands.ending import UsageError, remark
from kraft_audit.commands.histories import say_missing
from kraft_audit.commands.moment import Moment, Moments, Place, place, state_at_place
from kraft_audit.commands.reading import opened, redaction_key
from kraft_audit.output import Column, Format, Output
from kraft_codec.schemas import Dialect

if TYPE_CHECKING:
    import pyarrow as pa

LEDGER: Final = "partition_changes"
COLUMNS: Final = (
    Column("from_offset", "offset", is_number=True),
    Column("topic", "topic"),
    Column("partition", "partition", is_number=True),
    Column("cause", "cause"),
    Column("cause_broker_id", "broker", is_number=True),
    Column("election", "election"),
    Column("leader", "leader", is_number=True),
    Column("isr", "isr"),
    Column("elr", "elr"),
    Column("last_known_elr", "last_known_elr"),
    Column("replicas", "replicas"),
    Column("effective_min_isr", "min_isr", is_number=True),
    Column("leader_epoch", "leader_epoch", is_number=True),
    Column("partition_epoch", "partition_epoch", is_number=True),
)


def partitions(
    path: Path,
    topic: Annotated[
        str | None, typer.Option("--topic", metavar="NAME", show_default=False, help="Only this topic.")
    ] = None,
    describe: Annotated[bool, typer.Option("--describe", help="As kafka-topics --describe, at the end.")] = False,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="PLACE", show_default=False, help="With --describe: offset, time, `committed`."),
    ] = None,
    output: OutputFormat = Format.TABLE,
    capture: Capture = None,
    default: Defaults = None,
    dialect: DialectOption = Dialect.KIP853,
) -> int:
    """Show every change of every partition's leader, ISR and ELR, with what brought it about.

    Exit code 3 where a cluster below PATH has no log that could be replayed: the others are told.

    \b
    Examples:
      kraft-audit partitions samples/elr --topic elr-m1
      kraft-audit partitions samples/elr-06-kill-13-last-replica.tgz --describe
    """
    if describe and output is not Format.TABLE:
        raise UsageError("--describe is a text of its own: leave --output out")
    if at is not None and not describe:
        raise UsageError("--at goes with --describe: the ledger has every offset")
    where = place("--at", at)
    key, out = redaction_key(shows_values=False), Output(output)
    with opened(path, dialect=dialect, defaults=default) as found:
        from kraft_audit.replay.replay import REPLAY_TABLES
        from kraft_audit.replay.state import branch_holes
        from kraft_audit.replay.tables import SILVER

        keys = SILVER[LEDGER].column_names
        clusters = Moments(found, key, capture, REPLAY_TABLES)
        moments = list(clusters)
        if describe:
            for moment in moments:
                lines = list(_description(moment, where, topic))
                for line in lines:
                    out.line(line)
                if not lines:  # beside the text, which stays what Kafka's tool prints
                    remark(f"{shown_cluster_id(moment.plan.cluster_id)}: {_nothing(topic)}")
        elif out.format is Format.TABLE:
            for number, moment in enumerate(moments):
                if number:
                    out.line("")
                named = shown_cluster_id(moment.plan.cluster_id)
                out.title(f"{named}   {moment.proof_text(moment.end_offset - 1)}")
                say_missing(out, branch_holes(moment.sources, moment.end_offset))
                if out.batches(_ledger(moment, topic), COLUMNS, keys) == 0:
                    out.text(_nothing(topic))
        else:
            out.batches((batch for moment in moments for batch in _ledger(moment, topic)), COLUMNS, keys)
    return clusters.exit_code


def _nothing(topic: str | None) -> str:
    return "no partition" if topic is None else f"no partition of a topic {topic!r}"


def _ledger(moment: Moment, topic: str | None) -> Iterator[pa.RecordBatch]:
    import pyarrow.compute as compute

    from kraft_audit.replay.state import replay_branch

    for name, batch in replay_branch(moment.sources, to_offset=moment.end_offset):
        if name == LEDGER:
            yield batch if topic is None else batch.filter(compute.equal(batch.column("topic"), topic))


def _description(moment: Moment, where: Place, topic: str | None) -> Iterator[str]:
    from kraft_audit.output import neutral
    from kraft_audit.replay.describe import describe_topics
    from kraft_audit.replay.state import missing_text

    told = state_at_place(moment, where)
    if told.holes:
        remark(missing_text(told.holes))
    rows: list[dict[str, Any]] = told.rows(LEDGER)
    lines = describe_topics(rows, told.rows("config_changes"), topic=topic, defaults=dict(moment.plan.defaults))
    for line in lines:
        yield "\t".join(neutral(cell) for cell in line.split("\t"))
