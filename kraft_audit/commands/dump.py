"""`dump`: every batch and record below PATH, as rows or as Kafka's own tool prints them."""

from __future__ import annotations

import enum
import os
import re
import sys
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kraft_audit.cluster_name import shown_cluster_id
from kraft_audit.commands.arguments import Capture, DialectOption, OutputFormat, Path, check_range
from kraft_audit.commands.ending import UsageError, complain, remark
from kraft_audit.commands.reading import Input, opened, redaction_key, redactor
from kraft_audit.output import Column, Format, Output, neutral
from kraft_codec.errors import CodecError
from kraft_codec.schemas import CONTROL_TYPES, METADATA_RECORDS, Dialect

if TYPE_CHECKING:
    import pyarrow as pa

    from kraft_audit.replay.plan import FilePlan, ReplicaPlan, Selection
    from kraft_codec.redaction import Redactor

DAMAGE_LINES_MAX: Final = 20
CHUNK_BYTES_MAX: Final = 1 << 20
"""Small, so that the first rows are out at once, and memory stays small."""
DUMPED_KINDS: Final = frozenset({"segment", "snapshot", "bootstrap_snapshot"})


class DumpFormat(enum.StrEnum):
    """Whose way of telling a log."""

    ROWS = "rows"
    KAFKA = "kafka"


class DumpTable(enum.StrEnum):
    """Which rows: those of the pipeline's tables."""

    RECORDS = "records"
    BATCHES = "batches"
    CAPTURES = "captures"
    FILES = "files"
    DECODE_ERRORS = "decode_errors"


COLUMNS: Final[Mapping[DumpTable, tuple[Column, ...]]] = {
    DumpTable.RECORDS: (
        Column("source", "source"),
        Column("offset", "offset", is_number=True),
        Column("leader_epoch", "epoch", is_number=True),
        Column("timestamp_ms", "timestamp_ms", is_number=True),
        Column("record_type", "type"),
        Column("record_version", "v", is_number=True),
        Column("record", "record", is_wide=True),
    ),
    DumpTable.BATCHES: (
        Column("path", "path"),
        Column("source", "source"),
        Column("base_offset", "base_offset", is_number=True),
        Column("last_offset", "last_offset", is_number=True),
        Column("leader_epoch", "epoch", is_number=True),
        Column("crc", "crc", is_number=True),
        Column("record_count", "records", is_number=True),
        Column("is_control", "control"),
        Column("position", "position", is_number=True),
        Column("size_bytes", "bytes", is_number=True),
        Column("reason", "reason"),
        Column("status", "status"),
    ),
    DumpTable.CAPTURES: (
        Column("path", "path"),
        Column("node_id", "node", is_number=True),
        Column("directory_id", "directory"),
        Column("leader_id", "leader", is_number=True),
        Column("leader_epoch", "epoch", is_number=True),
        Column("log_start_offset", "log_start", is_number=True),
        Column("log_end_offset", "log_end", is_number=True),
        Column("damage_count", "damage", is_number=True),
    ),
    DumpTable.FILES: (
        Column("path", "path"),
        Column("file_name", "file", is_wide=True),
        Column("kind", "kind"),
        Column("size_bytes", "bytes", is_number=True),
        Column("bytes_decoded", "decoded", is_number=True),
        Column("bytes_quarantined", "quarantined", is_number=True),
        Column("bytes_unread", "unread", is_number=True),
        Column("batch_count", "batches", is_number=True),
        Column("record_count", "records", is_number=True),
    ),
    DumpTable.DECODE_ERRORS: (
        Column("path", "path"),
        Column("file_name", "file", is_wide=True),
        Column("position", "position", is_number=True),
        Column("length_bytes", "bytes", is_number=True),
        Column("reason", "reason"),
        Column("detail", "detail", is_wide=True),
        Column("kafka_verdict", "kafka", is_wide=True),
    ),
}


def dump(
    path: Path,
    style: Annotated[
        DumpFormat, typer.Option("--format", help="kafka: the text of kafka-dump-log --cluster-metadata-decoder.")
    ] = DumpFormat.ROWS,
    reveal_secrets: Annotated[
        bool, typer.Option("--reveal-secrets", help="Passwords, keys and tokens as they are, not as fingerprints.")
    ] = False,
    output: OutputFormat = Format.TABLE,
    table: Annotated[DumpTable, typer.Option(help="Rows of which table.")] = DumpTable.RECORDS,
    node: Annotated[
        list[int] | None, typer.Option("--node", metavar="ID", show_default=False, help="Only what this node holds.")
    ] = None,
    capture: Capture = None,
    file: Annotated[
        str | None, typer.Option("--file", metavar="NAME", show_default=False, help="Only files of this name or glob.")
    ] = None,
    from_offset: Annotated[
        int | None,
        typer.Option("--from", metavar="OFFSET", show_default=False, help="Records from this offset of the log on."),
    ] = None,
    to_offset: Annotated[
        int | None,
        typer.Option("--to", metavar="OFFSET", show_default=False, help="Records below this offset of the log."),
    ] = None,
    record_type: Annotated[
        list[str] | None, typer.Option("--type", metavar="TYPE", show_default=False, help="Only records of this type.")
    ] = None,
    dialect: DialectOption = Dialect.KIP853,
) -> None:
    """Print every record below PATH: each distinct one once, secrets as fingerprints.

    JSON has the columns of the table. A table is printed as text on a terminal and in a pipe alike. Bytes that could
    not be read are named on stderr, with what Kafka would do there; NoOp records have no row.

    \b
    Examples:
      kraft-audit dump samples/elr-06-kill-13-last-replica.tgz --type PARTITION_CHANGE_RECORD
      kraft-audit dump samples/divergence --format kafka --node 2
    """
    if style is DumpFormat.KAFKA:
        refuse_row_options(output, table, from_offset, to_offset, record_type)
    refuse_filters(table, from_offset, to_offset, record_type)
    check_range(from_offset, to_offset)
    types = None if not record_type else tuple(type_name(name, dialect) for name in record_type)
    if reveal_secrets and sys.stderr.isatty():
        remark("secrets are shown as they are")
    with opened(path, dialect=dialect, capture=capture, node_ids=node, file=file) as found:
        redactors = _redactors(len(found.plans), reveal_secrets)
        if style is DumpFormat.KAFKA:
            _dump_as_kafka(found, redactors, dialect)
        else:
            from kraft_audit.replay.plan import Selection

            selection = Selection(from_offset=from_offset, to_offset=to_offset, record_types=types)
            _dump_rows(found, redactors, Output(output), table, selection)


def refuse_row_options(output: Format, table: DumpTable, *row_filters: object) -> None:
    """Kafka's tool prints whole files."""
    if output is not Format.TABLE or table is not DumpTable.RECORDS:
        raise UsageError("--format kafka is a text of its own: leave --output and --table out")
    if any(row_filter is not None and row_filter != [] for row_filter in row_filters):
        raise UsageError("--format kafka prints whole files: choose them by --node, --capture or --file")


def refuse_filters(table: DumpTable, *row_filters: object) -> None:
    """Raises UsageError where rows of another table than `records` are to be chosen as records are."""
    if table is not DumpTable.RECORDS and any(one is not None and one != [] for one in row_filters):
        raise UsageError(f"--from, --to and --type choose records: leave them out with --table {table.value}")


def type_name(asked: str, dialect: Dialect) -> str:
    """A record type as the tables name it, typed in any way: PARTITION_RECORD, PartitionRecord, partition-record."""
    known = {message.type_name for message in METADATA_RECORDS}
    known |= {control.name for control in CONTROL_TYPES[dialect].values()}
    by_letters = {_letters(name): name for name in known}
    found = by_letters.get(_letters(asked)) or by_letters.get(_letters(asked) + "record")
    if found is None:
        near = get_close_matches(_letters(asked), by_letters, n=1, cutoff=0.5)
        hint = f", perhaps {by_letters[near[0]]}" if near else ""
        raise UsageError(f"--type: {asked!r}: expected a record type{hint}")
    return found


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _redactors(count: int, reveal_secrets: bool) -> list[Redactor | None]:
    if reveal_secrets:
        return [None] * count
    key = redaction_key()
    return [redactor(key) for _ in range(count)]


def _dump_rows(
    found: Input, redactors: list[Redactor | None], out: Output, table: DumpTable, selection: Selection
) -> None:
    damage = _DamageLines()
    has_range = selection.from_offset is not None or selection.to_offset is not None
    is_of_log_alone = has_range and table is DumpTable.RECORDS

    from kraft_codec.tables import TABLES

    def batches() -> Iterator[pa.RecordBatch]:
        from kraft_audit.replay.analyze import analyze

        for plan, one in zip(found.plans, redactors, strict=True):
            wanted = frozenset({table.value, DumpTable.DECODE_ERRORS.value})
            rows = analyze(
                plan,
                wanted,
                open_storage=found.open_storage,
                redactor=one or _revealing(),
                selection=selection,
                chunk_bytes_max=CHUNK_BYTES_MAX,
            )
            for name, batch in rows:
                if name == table.value:
                    yield _of_the_log(batch) if is_of_log_alone else batch
                    out.stream.flush()
                else:
                    damage.add(batch)

    columns = COLUMNS[table]
    if len({plan.cluster_id for plan in found.plans}) > 1:
        columns = (Column("cluster_id", "cluster"), *columns)
    count = out.batches(batches(), columns, TABLES[table.value].column_names, frozenset({"record"}))
    out.stream.flush()
    if not count and (has_range or selection.record_types):
        _tell_what_there_is(found)
    damage.tell()


def _tell_what_there_is(found: Input) -> None:
    """Beside nothing at all: which offsets the logs hold."""
    from kraft_audit.replay.analyze import analyze

    for plan in found.plans:
        rows = analyze(plan, frozenset({"captures"}), open_storage=found.open_storage, redactor=redactor(bytes(32)))
        captures = [row for _, batch in rows for row in batch.to_pylist() if row["log_end_offset"]]
        if captures:
            first = min(row["log_start_offset"] or 0 for row in captures)
            last = max(row["log_end_offset"] for row in captures) - 1
            remark(f"{shown_cluster_id(plan.cluster_id)}: nothing there; its logs hold offsets {first} to {last}")


def _of_the_log(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Without the records of snapshots, whose offsets are places in the snapshot."""
    import pyarrow.compute as compute

    return batch.filter(compute.equal(batch.column("source"), "log"))


def _revealing() -> Redactor:
    import secrets

    from kraft_codec.redaction import Redactor

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
        from kraft_audit.replay.damage import leaves_unread

        self.count += batch.num_rows
        for row in batch.slice(0, max(DAMAGE_LINES_MAX - len(self.lines), 0)).to_pylist():
            if row["file_name"] is None and leaves_unread(row["reason"], row["detail"]):
                self.count -= 1  # told when the path was opened
                continue
            where = "/".join(part for part in (row["root"], row["path"], row["file_name"]) if part)
            self.lines.append(f"{where} at {row['position']}: {row['reason']}: {row['detail']}; {row['kafka_verdict']}")

    def tell(self) -> None:
        for line in self.lines:
            remark(line)
        if self.count > len(self.lines):
            remark(f"{self.count - len(self.lines)} more: --table decode_errors")


def _dump_as_kafka(found: Input, redactors: list[Redactor | None], dialect: Dialect) -> None:
    from kraft_codec.dump_text import dump_lines

    is_terminal = sys.stdout.isatty()
    for plan, one in zip(found.plans, redactors, strict=True):
        for replica in plan.replicas:
            for file in replica.files:
                if file.kind not in DUMPED_KINDS:
                    continue
                inner = f"{replica.path}/{file.name}" if replica.path else file.name
                shown = path_as_given(found, replica, file)
                try:
                    with found.storage.open(inner) as source:
                        for line in dump_lines(source, shown, dialect=dialect, redactor=one):
                            sys.stdout.write((neutral(line) if is_terminal else line) + "\n")
                except CodecError as error:
                    sys.stdout.flush()
                    complain(f"{shown}: {error}")


def path_as_given(found: Input, replica: ReplicaPlan, file: FilePlan) -> str:
    """The file as one would name it to Kafka's tool from here: what was given, and the way from there."""
    inner = f"{replica.path}/{file.name}" if replica.path else file.name
    root = found.root.rstrip("/") or "/"
    if os.path.basename(root) == inner and os.path.isfile(root):  # noqa: PTH113, PTH119  # as given, not as a Path has it
        return root
    start = found.storage.start
    if not start:
        return f"{root}/{inner}"
    if inner.startswith(f"{start}/"):
        return root + inner[len(start) :]
    return os.path.normpath(f"{root}/../{inner}")
