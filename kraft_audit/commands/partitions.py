"""`partitions`: every change of leader, ISR and ELR with its cause, or the end as kafka-topics prints it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kraft_audit.commands.arguments import (
    POINT,
    POINT_HELP,
    ConfiguredLogs,
    EveryLine,
    OutputFormat,
    place_of,
    state_at_place,
)
from kraft_audit.commands.branch_option import BranchOption, branch_of
from kraft_audit.commands.ending import UsageError, remark
from kraft_audit.commands.results import Results
from kraft_audit.commands.terminal_options import prints_tables
from kraft_audit.text.output import Format, neutral, table_columns
from kraft_audit.text.readable import cause_text, shown_cluster_id, time_text

if TYPE_CHECKING:
    import pyarrow as pa

    from kraft_audit.replay.cluster_state import ClusterState, Moment

COLUMNS: Final = table_columns(
    "from_offset topic partition cause cause_broker_id election leader isr elr last_known_elr replicas "
    "effective_min_isr leader_epoch partition_epoch",
    {"from_offset": "offset", "cause_broker_id": "broker", "effective_min_isr": "min_isr"},
    dropped="partition_epoch leader_epoch effective_min_isr last_known_elr election replicas elr",
)
SUMMARY_COLUMNS: Final = table_columns(
    "from_offset last_offset time cause cause_broker_id partitions leaderless example",
    {
        "from_offset": "offset",
        "last_offset": "to",
        "time": "time (UTC)",
        "cause_broker_id": "broker",
        "example": "such as",
    },
    dropped="example last_offset partitions",
)
SUMMARIZED: Final = ["from_offset", "timestamp_ms", "cause", "cause_broker_id", "topic", "partition", "leader"]
RUN_AGGREGATES: Final = [
    *(("from_offset", "min"), ("from_offset", "max"), ("timestamp_ms", "min")),
    *((name, "first") for name in ("cause", "cause_broker_id", "topic", "partition")),
    *(("subject", "count_distinct"), ("leaderless", "count_distinct")),
]


@prints_tables
def partitions(
    logs: ConfiguredLogs,
    topic: Annotated[
        str | None,
        typer.Option("--topic", metavar="NAME", show_default=False, help="Show only this topic, with every change."),
    ] = None,
    show_all: EveryLine = False,
    describe: Annotated[
        bool, typer.Option("--describe", help="Print what kafka-topics --describe would print.")
    ] = False,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar=POINT,
            show_default=False,
            help=f"With --describe: the state {POINT_HELP}. Default: the end of the log.",
        ),
    ] = None,
    branch: BranchOption = None,
    output: OutputFormat = Format.TABLE,
) -> int:
    """Show each change of a partition's leader, ISR or ELR, with its cause.

    Consecutive changes with the same cause share a line if no more than a second lies between them. --all, --topic and
    the formats for programs show one line per change and partition. If a cluster's log cannot be replayed, the cluster
    is skipped and the exit code is 3.

    \b
    Examples:
      kraft-audit partitions samples/elr-29-stopped.tgz --topic elr-m1
      kraft-audit partitions samples/elr-06-kill-13-last-replica.tgz --describe
    """
    if describe and output is not Format.TABLE:
        raise UsageError("--describe has its own format: leave out --output")
    if at is not None and not describe:
        raise UsageError("--at needs --describe: without it every offset is shown")
    place = place_of("--at", at)
    import pyarrow as pa

    from kraft_audit.replay.cluster_replay import REPLAY_TABLES
    from kraft_audit.replay.driver import branch_start
    from kraft_audit.tables.silver import PARTITION_CHANGES

    results = Results(output, is_spaced=not describe)
    moments = results.each_moment(logs, REPLAY_TABLES, branch_of(branch))
    if describe:
        for _, moment in moments:
            _print_description(results, moment, state_at_place(moment, place), topic)
        return results.exit_code
    keys = PARTITION_CHANGES.column_names
    if not results.is_table:
        batches = (batch for cluster, moment in moments for batch in cluster.partition_batches(moment, topic))
        results.out.batches(batches, COLUMNS, keys)
        return results.exit_code
    for cluster, moment in moments:
        results.title(cluster, moment.proof_text(moment.end_offset - 1))
        start = branch_start(moment.log)
        results.missing(moment.log.gaps(start.from_offset, moment.end_offset))
        changes = map(with_causes, cluster.partition_batches(moment, topic))
        if show_all or topic is not None:
            count = results.out.batches(changes, COLUMNS, keys)
        else:
            schema = pa.schema([PARTITION_CHANGES.schema.field(name) for name in SUMMARIZED])
            table = pa.Table.from_batches((batch.select(SUMMARIZED) for batch in changes), schema)
            count = results.out.rows(summary(table), SUMMARY_COLUMNS)
        if not count:
            results.text(_none_text(topic))
    return results.exit_code


def with_causes(changes: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of `partition_changes` whose `cause` says in words also what the log leaves open."""
    import pyarrow as pa

    if not changes["cause"].null_count:
        return changes
    pairs = zip(changes["cause"].to_pylist(), changes["possible_causes"].to_pylist(), strict=True)
    texts = pa.array([cause_text(cause, possible) for cause, possible in pairs], pa.string())
    place = changes.schema.get_field_index("cause")
    return changes.set_column(place, changes.schema.field(place), texts)


def summary(changes: pa.Table) -> Iterator[dict[str, Any]]:
    """A row for each run of neighbouring changes of one cause: how many partitions changed, how many lost their leader.

    `changes` are rows of `partition_changes` in the order of the log.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    from kraft_audit.findings.timeline import PAUSE_MS

    if not changes.num_rows:
        return
    columns = {name: changes[name].combine_chunks() for name in SUMMARIZED}
    topics, causes = (pc.dictionary_encode(columns[name]).indices.to_numpy() for name in ("topic", "cause"))
    brokers = pc.fill_null(columns["cause_broker_id"], -1).to_numpy()
    pauses = np.diff(columns["timestamp_ms"].to_numpy()) > PAUSE_MS
    is_new = (np.diff(causes) != 0) | (np.diff(brokers) != 0) | pauses
    subjects = (topics.astype(np.int64) << 32) + columns["partition"].to_numpy()
    leaderless = pa.array(subjects, mask=columns["leader"].to_numpy() != -1)
    columns |= {"run": np.cumsum(np.append(False, is_new)), "subject": subjects, "leaderless": leaderless}
    runs = pa.table(columns).group_by("run", use_threads=False).aggregate(RUN_AGGREGATES)
    for run in runs.to_pylist():
        yield {
            "from_offset": run["from_offset_min"],
            "last_offset": run["from_offset_max"],
            "time": time_text(run["timestamp_ms_min"]),
            "cause": run["cause_first"],
            "cause_broker_id": run["cause_broker_id_first"],
            "partitions": run["subject_count_distinct"],
            "leaderless": run["leaderless_count_distinct"] or None,
            "example": f"{run['topic_first']}-{run['partition_first']}",
        }


def _none_text(topic: str | None) -> str:
    return "no partition" if topic is None else f"no partition of a topic {topic!r}"


def _print_description(results: Results, moment: Moment, state: ClusterState, topic: str | None) -> None:
    """What kafka-topics --describe prints; anything else goes to stderr, so that the text stays what Kafka prints."""
    from kraft_audit.replay.cluster_state import missing_text
    from kraft_audit.text.kafka_topics import describe_topics

    if state.gaps:
        remark(missing_text(state.gaps))
    defaults = dict(moment.log.plan.defaults)
    partitions, configs = state.rows("partition_changes"), state.rows("config_changes")
    lines = list(describe_topics(partitions, configs, topic=topic, defaults=defaults))
    for line in lines:
        results.out.line("\t".join(neutral(cell) for cell in line.split("\t")))
    if not lines:
        remark(f"{shown_cluster_id(moment.cluster_id)}: {_none_text(topic)}")
