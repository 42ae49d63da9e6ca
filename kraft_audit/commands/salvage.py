"""`salvage`: writes the records that an election lost and that a broker's captured disk still holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kraft_audit.commands.arguments import ConfiguredLogs, NewFolder, OutputFormat, refuse_filled, refuse_within
from kraft_audit.commands.ending import UsageError, complain
from kraft_audit.commands.results import Results
from kraft_audit.text.exit_codes import EXIT_UNDECIDED
from kraft_audit.text.output import Format
from kraft_audit.text.readable import and_more, capitalized, listed, offset_span, plural, when
from kraft_audit.text.watched_work import doing

if TYPE_CHECKING:
    from kraft_audit.cluster import Cluster
    from kraft_audit.recovery.salvage.held_logs import HeldLog, SalvageableLoss
    from kraft_audit.recovery.salvage.manifest import Salvage, SalvagedPartition

KEYS: Final = (
    *("cluster_id", "topic", "topic_id", "partition", "leader_epoch", "offset", "timestamp_ms", "leader_id", "label"),
    *("grade", "from_offset", "to_offset", "bound", "is_exact", "size_bytes", "holders", "missing"),
    *("folder", "record_count", "producer_ids", "damaged_count", "command", "undecided"),
)
STEP_INDENT: Final = 2
NAMED: Final = 8


def salvage(
    logs: ConfiguredLogs,
    out: Annotated[FilePath | None, NewFolder] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Write nothing and read no records. Only say what the captured disks hold.")
    ] = False,
    output: OutputFormat = Format.TABLE,
) -> int:
    """Write out the records that an election lost and that the disk of a stopped broker still holds.

    Give the controllers' logs as PATH, and copies of the brokers' log dirs as further PATHs. Each copy must be a folder
    with its meta.properties: partitions in archives are not read. `salvage` looks for the records of each loss that
    `check` reports as LOST.

    The command writes a folder for each partition into DIR. The folder holds records.jsonl (keys, values and header
    values in base64), the transaction markers, the aborted ranges, and the batches as they were on the disk.
    manifest.json lists the losses, their offsets, which disks hold them, counts, and the SHA-256 of each file. Only the
    owner of these files can read them. The command prints nothing from inside a record.

    At the end, the command prints the commands that send the records again, and says what they cannot restore. Exit
    code 0 if all records are there that the disks were expected to hold, 4 if a disk is missing or bytes are damaged.

    \b
    Examples:
      kraft-audit salvage samples/elr-29-stopped.tgz --plan
      kraft-audit salvage samples/elr-29-stopped.tgz --out salvaged
    """
    if plan == (out is not None):
        raise UsageError("give --out DIR, or --plan to write nothing")
    if out is not None:
        refuse_within(out, logs.path)
        refuse_filled(out)
    results = Results(output, KEYS)
    documents: list[dict[str, Any]] = []
    is_whole, written_for = True, ""
    for cluster in results.each_history(logs):
        found, undecided = _found(cluster)
        if out is not None and any(each.size_bytes for each in found) and written_for:
            raise UsageError(f"{logs.path}: losses in {written_for} and {cluster.title}: choose one with --cluster")
        results.title(cluster)
        salvaged = None
        if undecided is not None:
            is_whole = False
            complain(f"{logs.path}: cluster {cluster.title}: {undecided}")
            documents.append({**dict.fromkeys(KEYS), "cluster_id": cluster.cluster_id, "undecided": undecided})
        elif out is not None and any(each.size_bytes for each in found):
            doing(f"writing {out}")
            salvaged, written_for = cluster.salvage(out, found), cluster.title
            is_whole = is_whole and salvaged.is_whole
        else:
            is_whole = is_whole and not any(each.missing for each in found)
        for line, indent in _lines(found, salvaged) if undecided is None else ():
            results.text(" " * indent + line, indent + STEP_INDENT)
        documents += _documents(cluster, found, salvaged)
    results.add(documents)
    return results.end() or (0 if is_whole else EXIT_UNDECIDED)


def _found(cluster: Cluster) -> tuple[list[SalvageableLoss], str | None]:
    """The losses of a cluster; none, and why, where its log could not be replayed."""
    from kraft_audit.rules.judging import unreplayed_reason

    undecided = unreplayed_reason(cluster.history)
    return ([], undecided) if undecided is not None else (cluster.salvageable(), None)


def _documents(
    cluster: Cluster, found: Sequence[SalvageableLoss], salvaged: Salvage | None
) -> Iterator[dict[str, Any]]:
    from kraft_audit.recovery.salvage.manifest import loss_document

    for each in found:
        partition = _partition_of(each, salvaged)
        epoch = each.loss.event.leader_epoch
        yield {
            "cluster_id": cluster.cluster_id,
            **loss_document(each),
            "folder": None if partition is None else partition.folder,
            "record_count": None if partition is None else partition.record_counts[epoch],
            "producer_ids": None if partition is None else partition.producer_ids,
            "damaged_count": None if partition is None else len(partition.damaged),
            "command": None if partition is None else partition.command,
            "undecided": None,
        }


def _partition_of(each: SalvageableLoss, salvaged: Salvage | None) -> SalvagedPartition | None:
    partitions = () if salvaged is None else salvaged.partitions
    return next((partition for partition in partitions if each in partition.losses), None)


def _lines(found: Sequence[SalvageableLoss], salvaged: Salvage | None) -> Iterator[tuple[str, int]]:
    """(line, indent) for people."""
    if not found:
        yield "No election lost records, as far as the log shows: there is nothing to salvage.", 0
        return
    for each in found:
        yield from _loss_lines(each, _partition_of(each, salvaged))
    if salvaged is not None:
        yield f"Written to {salvaged.out}: manifest.json names every file with its SHA-256.", 0
        yield from _replay_lines(salvaged)


def _loss_lines(each: SalvageableLoss, partition: SalvagedPartition | None) -> Iterator[tuple[str, int]]:
    from kraft_audit.rules.columns.loss_texts import LABEL_TEXTS

    event = each.loss.event
    yield (
        f"{event.name}   {each.loss.grade.value}: broker {event.leader_id} leads since {when(event.timestamp_ms)} "
        f"(leader epoch {event.leader_epoch}, metadata offset {event.offset}), {LABEL_TEXTS[event.label]}",
        0,
    )
    if each.from_offset is not None:
        yield f"from offset {each.from_offset} on, {each.basis}", STEP_INDENT
        if not each.is_exact:
            yield (
                "the leader may have some of these: copy its leader-epoch-checkpoint too, with "
                f"meta.properties and {event.name}/partition.metadata",
                STEP_INDENT,
            )
    for held in each.held:
        yield f"broker {held.holder.broker_id}, {held.holder.now.value}: {_held_text(held)}", STEP_INDENT
    if not each.held:
        yield "no disk is known that still holds more", STEP_INDENT
    for held in each.missing:
        yield capitalized(each.missing_text(held)), STEP_INDENT
    if partition is not None and partition.folder is not None:
        yield from _written_lines(each, partition)


def _held_text(held: HeldLog) -> str:
    from kraft_audit.recovery.salvage.held_logs import CopyState

    texts = {
        CopyState.CAPTURED: f"{held.path} holds about {held.size_bytes:,} bytes from there on",
        CopyState.NO_SEGMENTS: f"{held.path} was captured without its segments",
        CopyState.NOT_CAPTURED: "its log dir was not captured",
        CopyState.FOLLOWED: f"{held.path} was captured after it had truncated its log",
    }
    return texts[held.state]


def _written_lines(each: SalvageableLoss, partition: SalvagedPartition) -> Iterator[tuple[str, int]]:
    epoch = each.loss.event.leader_epoch
    ranges = partition.ranges[epoch].ranges
    shown = [
        f"leader epoch {part['leader_epoch']}, {offset_span(part['from_offset'], part['to_offset'])}"
        for part in ranges[:NAMED]
    ]
    of = f": {'; '.join(shown)}{and_more(len(ranges) - NAMED)}" if shown else ""
    yield f"{plural(partition.record_counts[epoch], 'record')} written to {partition.folder}{of}", STEP_INDENT
    if ids := partition.producer_ids:
        yield f"written by producer ids {listed(ids[:NAMED])}{and_more(len(ids) - NAMED)}", STEP_INDENT
    for damaged in partition.damaged[:NAMED]:
        end = "; another disk had it undamaged" if damaged.is_covered else ""
        where = f"{damaged.file}, position {damaged.position:,}"
        yield f"damaged: {where}, {damaged.size_bytes:,} bytes: {damaged.reason}, {damaged.detail}{end}", STEP_INDENT


def _replay_lines(salvaged: Salvage) -> Iterator[tuple[str, int]]:
    from kraft_audit.recovery.salvage.producer_input import CANNOT_KEEP

    sendable = [each for each in salvaged.partitions if each.command is not None]
    if not sendable:
        return
    yield "To send them again, with Kafka's console producer (kafka-console-producer.sh in Apache's archive):", 0
    for each in sendable[:NAMED]:
        if each.command is not None:
            yield each.command, STEP_INDENT
        if each.left_out:
            parts = [f"{count:,} {reason.replace('_', ' ')}" for reason, count in sorted(each.left_out.items())]
            yield f"left out of {each.folder}: {listed(parts)}; records.jsonl has them", STEP_INDENT
    if len(sendable) > NAMED:
        yield f"and {len(sendable) - NAMED} more: manifest.json has each command", STEP_INDENT
    for line in CANNOT_KEEP:
        yield line, 0
