"""`dump`: every batch and record below PATH, as rows or as Kafka's own tool prints them."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from kraft_audit.commands.arguments import Logs, OutputFormat, check_range
from kraft_audit.commands.completion import node_ids
from kraft_audit.commands.ending import UsageError, complain, remark
from kraft_audit.commands.results import counted, open_logs, remark_on_key
from kraft_audit.commands.terminal_options import prints_tables
from kraft_audit.text.output import Format, Output, ShownColumn, neutral, table_columns
from kraft_audit.text.watched_work import doing
from kraft_codec.errors import CodecError
from kraft_codec.schemas import CONTROL_TYPES, METADATA_RECORDS, Dialect

if TYPE_CHECKING:
    import pyarrow as pa

    from kraft_audit.capture.plan import Selection
    from kraft_audit.cluster import Cluster
    from kraft_audit.clusters import Clusters
    from kraft_codec.records.redaction import Redactor

DAMAGE_LINES_MAX: Final = 20
READ_BYTES_MAX: Final = 1 << 20
"""Small, so that the first rows come at once and memory stays small."""
DUMPED_KINDS: Final = frozenset({"segment", "snapshot", "bootstrap_snapshot"})


DumpFormat = Literal["rows", "kafka"]
DumpTable = Literal["records", "batches", "captures", "node_cards", "files", "decode_errors"]
TITLES: Final = {
    "leader_epoch": "epoch",
    "record_type": "type",
    "record_version": "v",
    "record_count": "records",
    "batch_count": "batches",
    "size_bytes": "bytes",
    "length_bytes": "bytes",
    "is_control": "control",
    "node_id": "node",
    "directory_id": "directory",
    "leader_id": "leader",
    "log_start_offset": "log_start",
    "log_end_offset": "log_end",
    "damage_count": "damage",
    "file_name": "file",
    "bytes_decoded": "decoded",
    "bytes_quarantined": "quarantined",
    "bytes_unread": "unread",
    "kafka_verdict": "kafka",
}
COLUMNS: Final[Mapping[str, tuple[ShownColumn, ...]]] = {
    table: table_columns(names, TITLES, wide="record file_name detail kafka_verdict", dropped=dropped)
    for table, (names, dropped) in {
        "records": (
            "source offset leader_epoch timestamp_ms record_type record_version record",
            "source record_version leader_epoch timestamp_ms",
        ),
        "batches": (
            "path source base_offset last_offset leader_epoch crc record_count is_control position size_bytes reason "
            "status",
            "source crc is_control position leader_epoch record_count last_offset path",
        ),
        "captures": (
            "path node_id directory_id leader_id leader_epoch log_start_offset log_end_offset damage_count",
            "path leader_id log_start_offset leader_epoch",
        ),
        "node_cards": (
            "path node_id directory_id log current_voters log_end_offset reached_offset reached_by closed",
            "path reached_by current_voters reached_offset closed",
        ),
        "files": (
            "path file_name kind size_bytes bytes_decoded bytes_quarantined bytes_unread batch_count record_count",
            "record_count batch_count bytes_decoded kind path",
        ),
        "decode_errors": ("path file_name position length_bytes reason detail kafka_verdict", "path length_bytes"),
    }.items()
}


@prints_tables
def dump(
    logs: Logs,
    style: Annotated[
        DumpFormat, typer.Option("--format", help="kafka prints what kafka-dump-log --cluster-metadata-decoder prints.")
    ] = "rows",
    reveal_secrets: Annotated[
        bool, typer.Option("--reveal-secrets", help="Print passwords, keys and tokens, not their fingerprints.")
    ] = False,
    output: OutputFormat = Format.TABLE,
    table: Annotated[DumpTable, typer.Option(help="Table to print.")] = "records",
    node: Annotated[
        list[int] | None,
        typer.Option(
            "--node",
            metavar="ID",
            show_default=False,
            help="Print only what this node holds. Repeatable.",
            autocompletion=node_ids,
        ),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option(
            "--file",
            metavar="NAME",
            show_default=False,
            help="Print only files with this name, or files that match this glob.",
        ),
    ] = None,
    from_offset: Annotated[
        int | None,
        typer.Option(
            "--from", metavar="OFFSET", show_default=False, help="Print only log records at or after this offset."
        ),
    ] = None,
    to_offset: Annotated[
        int | None,
        typer.Option("--to", metavar="OFFSET", show_default=False, help="Print only log records before this offset."),
    ] = None,
    record_type: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="TYPE", show_default=False, help="Print only records of this type. Repeatable."),
    ] = None,
    dialect: Annotated[
        Dialect | None,
        typer.Option(
            "--dialect",
            show_default=False,
            help="KIP that defines the control records, if the log does not show it.",
        ),
    ] = None,
) -> None:
    """Print every record below PATH once, with fingerprints in place of secrets.

    If several replicas hold a record, it is still printed once. NoOp records have no row. JSON has every column of the
    table, the text only the main ones. If bytes could not be read, stderr says where, and what Kafka would do there.

    \b
    Examples:
      kraft-audit dump samples/elr-06-kill-13-last-replica.tgz --type PARTITION_CHANGE_RECORD
      kraft-audit dump samples/divergence.tgz --format kafka --node 2
    """
    refuse_mixed(style, output, table, from_offset, to_offset, record_type)
    check_range(from_offset, to_offset)
    types = None if not record_type else tuple(type_name(name, dialect) for name in record_type)
    if not reveal_secrets:
        remark_on_key()
    elif sys.stderr.isatty():
        remark("secrets are shown as they are")
    with open_logs(logs, node_ids=node or (), file=file, dialect=dialect) as clusters:
        if style == "kafka":
            _dump_as_kafka(clusters, reveal_secrets=reveal_secrets)
        else:
            from kraft_audit.capture.plan import Selection

            selection = Selection(from_offset=from_offset, to_offset=to_offset, record_types=types)
            _dump_rows(clusters, Output(output), table, selection, reveal_secrets=reveal_secrets)


def refuse_mixed(style: DumpFormat, output: Format, table: DumpTable, *row_filters: object) -> None:
    """Raises UsageError for options of rows with --format kafka, and for a filter of records with another table."""
    is_filtered = any(row_filter not in (None, []) for row_filter in row_filters)
    if style == "kafka" and (output is not Format.TABLE or table != "records"):
        raise UsageError("--format kafka has its own format: leave out --output and --table")
    if style == "kafka" and is_filtered:
        raise UsageError("--format kafka prints whole files: choose files with --node, --capture or --file")
    if table != "records" and is_filtered:
        raise UsageError(f"--from, --to and --type select records: leave them out with --table {table}")


def type_name(asked: str, dialect: Dialect | None = None) -> str:
    """A record type as the tables name it, however it is typed: PARTITION_RECORD, PartitionRecord, partition-record."""
    known = {message.type_name for message in METADATA_RECORDS}
    dialects = list(Dialect) if dialect is None else [dialect]
    known |= {control.name for own in dialects for control in CONTROL_TYPES[own].values()}
    by_letters = {_letters(name): name for name in known}
    record_type = by_letters.get(_letters(asked)) or by_letters.get(_letters(asked) + "record")
    if record_type is None:
        near = get_close_matches(_letters(asked), by_letters, n=1, cutoff=0.5)
        hint = f", did you mean {by_letters[near[0]]}?" if near else ""
        raise UsageError(f"--type: {asked!r}: expected a record type{hint}")
    return record_type


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _dump_rows(
    clusters: Clusters, out: Output, table: DumpTable, selection: Selection, *, reveal_secrets: bool
) -> None:
    damage = _DamageLines()
    has_range = selection.from_offset is not None or selection.to_offset is not None
    is_of_log_alone = has_range and table == "records"

    from kraft_audit.tables.bronze import BRONZE

    def batches() -> Iterator[pa.RecordBatch]:
        for cluster in counted(clusters):
            rows = cluster.bronze(
                {table, "decode_errors"},
                redactor=_revealing() if reveal_secrets else None,
                selection=selection,
                chunk_bytes_max=READ_BYTES_MAX,
            )
            for name, batch in rows:
                if name == table:
                    yield _of_the_log(batch) if is_of_log_alone else batch
                    out.stream.flush()
                else:
                    damage.add(batch)

    columns = COLUMNS[table]
    if len({plan.cluster_id for plan in clusters.plans}) > 1:
        columns = (ShownColumn("cluster_id", "cluster"), *columns)
    count = out.batches(batches(), columns, BRONZE[table].column_names, frozenset({"record"}))
    out.stream.flush()
    if not count and (has_range or selection.record_types):
        _remark_on_offsets(clusters)
    damage.print()


def _remark_on_offsets(clusters: Clusters) -> None:
    """Where no row was printed: which offsets the logs hold."""
    for cluster in clusters:
        rows = cluster.bronze({"captures"})
        captures = [row for _, batch in rows for row in batch.to_pylist() if row["log_end_offset"]]
        if captures:
            first = min(row["log_start_offset"] or 0 for row in captures)
            last = max(row["log_end_offset"] for row in captures) - 1
            remark(f"{cluster.title}: no record matches; its logs hold offsets {first} to {last}")


def _of_the_log(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Without the records of snapshots, whose offsets are places in the snapshot."""
    import pyarrow.compute as compute

    return batch.filter(compute.equal(batch.column("source"), "log"))


def _revealing() -> Redactor:
    import secrets

    from kraft_codec.records.redaction import Redactor

    class Revealing(Redactor):
        """Leaves every secret where it is."""

        def overwrite(
            self, buffer: bytearray | memoryview, position: int, length_bytes: int, *, is_text: bool, subject: str
        ) -> None:
            pass

    return Revealing(secrets.token_bytes(32))


class _DamageLines:
    """What could not be read, for stderr: the first places, and how many more."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.count = 0

    def add(self, batch: pa.RecordBatch) -> None:
        from kraft_audit.capture.path_plans import leaves_unread

        self.count += batch.num_rows
        for row in batch.slice(0, max(DAMAGE_LINES_MAX - len(self.lines), 0)).to_pylist():
            if row["file_name"] is None and leaves_unread(row["reason"], row["detail"]):
                self.count -= 1  # printed when the path was opened
                continue
            where = "/".join(part for part in (row["root"], row["path"], row["file_name"]) if part)
            self.lines.append(f"{where} at {row['position']}: {row['reason']}: {row['detail']}; {row['kafka_verdict']}")

    def print(self) -> None:
        for line in self.lines:
            remark(line)
        if self.count > len(self.lines):
            remark(f"{self.count - len(self.lines)} more: --table decode_errors lists them")


def _dump_as_kafka(clusters: Clusters, *, reveal_secrets: bool) -> None:
    from kraft_codec.text.dump_text import dump_lines

    out = Output()
    for cluster in counted(clusters):
        redactor = None if reveal_secrets else cluster.redactor()
        for replica in cluster.plan.replicas:
            for file in replica.files:
                if file.kind not in DUMPED_KINDS:
                    continue
                inner = f"{replica.path}/{file.name}" if replica.path else file.name
                shown = path_as_given(cluster, inner)
                doing(f"dumping {shown}")
                try:
                    with cluster.storage.open(inner) as source:
                        for line in dump_lines(source, shown, dialect=cluster.plan.read_as, redactor=redactor):
                            out.line(neutral(line) if out.is_terminal else line)
                except CodecError as error:
                    sys.stdout.flush()
                    complain(f"{shown}: {error}")


def path_as_given(cluster: Cluster, inner: str) -> str:
    """A file of the storage as one names it to Kafka's tool: the path that was given, and the way from there."""
    from kraft_codec.storage.opener import JoinedStorage

    if isinstance(cluster.storage, JoinedStorage):
        return cluster.storage.path_as_given(inner)
    root = cluster.root.rstrip("/") or "/"
    if os.path.basename(root) == inner and os.path.isfile(root):  # noqa: PTH113, PTH119  # as given, not as a Path has it
        return root
    start = cluster.storage.start
    if not start:
        return f"{root}/{inner}"
    if inner.startswith(f"{start}/"):
        return root + inner[len(start) :]
    return os.path.normpath(f"{root}/../{inner}")
