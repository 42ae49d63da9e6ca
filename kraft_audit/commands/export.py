"""`lake export`: a range of the archived log as a log dir again."""

from __future__ import annotations

import os
import secrets
import shutil
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kraft_audit.commands.arguments import LAKE_PACKAGES, LakePath, NewFolder, check_range, need_packages, refuse_filled
from kraft_audit.text.output import Format, Output
from kraft_audit.text.watched_work import doing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kraft_audit.archive.exported_log import FilePiece


def export(
    lake: LakePath,
    out: Annotated[Path, NewFolder],
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="CLUSTER", show_default=False, help="Cluster id or name, if the lake holds several clusters."
        ),
    ] = None,
    from_offset: Annotated[
        int | None,
        typer.Option(
            "--from",
            metavar="OFFSET",
            min=0,
            show_default=False,
            help="Start at this offset. Default: the start of the log.",
        ),
    ] = None,
    to_offset: Annotated[
        int | None,
        typer.Option(
            "--to",
            metavar="OFFSET",
            min=1,
            show_default=False,
            help="Stop before this offset. Default: the end of the log.",
        ),
    ] = None,
    output: Annotated[Format, typer.Option("--output", "-o", help="Format of the summary.")] = Format.TABLE,
) -> None:
    """Write a range of a lake's archive as a node dir that Kafka's own tools can read.

    Batches are whole, with their original offsets and epochs and correct CRCs. Secrets stay fingerprints. Records of a
    type that kraft-audit does not know become NoOp records. DIR is written whole or not at all.

    \b
    Examples:
      kraft-audit lake export .demo/lake --cluster elr --out exported
      kraft-audit lake export .demo/lake --cluster elr --from 600 --to 700 --out exported
    """
    need_packages("lake export", LAKE_PACKAGES, "lake")
    check_range(from_offset, to_offset)
    refuse_filled(out)
    from kraft_audit.archive.archived_captures import ArchivedRedactor
    from kraft_audit.archive.exported_log import Exported, canonical_log, exported_files
    from kraft_audit.lake.staging.archive_reading import (
        chosen_cluster,
        closed_plans,
        lake_at,
        lake_clusters,
        open_archive,
    )
    from kraft_audit.reading import ClusterReading, ReadingSettings

    there = lake_at(lake)
    closed = closed_plans(there)
    chosen = chosen_cluster(there, lake_clusters(there, closed), cluster)
    archived = open_archive(there, chosen, closed)
    settings = ReadingSettings(archived.open_storage, ArchivedRedactor(secrets.token_bytes(32)))
    done = Exported()
    with ClusterReading(archived.plan, settings) as reading:
        doing(f"writing {out}")
        log = canonical_log(archived, reading)
        wanted = (
            log.from_offset if from_offset is None else from_offset,
            log.to_offset if to_offset is None else to_offset,
        )
        write_node_dir(out, exported_files(log, *wanted, done))
    lines = Output(output)
    if lines.format is Format.TABLE:
        what = f"offsets {done.from_offset} to {done.to_offset}, {done.batch_count} batches, {done.size_bytes} bytes"
        lines.text(f"{chosen.name or chosen.cluster_id}: {what}, below {out}")
        return
    row = {
        "cluster_id": chosen.cluster_id,
        "from_offset": done.from_offset,
        "to_offset": done.to_offset,
        "batch_count": done.batch_count,
        "size_bytes": done.size_bytes,
        "path": str(out),
    }
    if lines.format is Format.JSON:
        lines.document(row)
    else:
        lines.rows([row], [], row)


def write_node_dir(out: Path, pieces: Iterable[FilePiece]) -> None:
    """Write files piece by piece into a folder beside `out`, which then replaces it: whole or not at all."""
    unfinished = out.absolute().with_name(f".{out.name}.{secrets.token_hex(4)}.unfinished")
    try:
        unfinished.mkdir(parents=True)
        for name, pieces_of_file in groupby(pieces, key=itemgetter(0)):
            path = unfinished / name
            path.parent.mkdir(exist_ok=True)
            with path.open("xb") as file:
                for _, content in pieces_of_file:
                    file.write(content)
                file.flush()
                os.fsync(file.fileno())
        unfinished.rename(out.absolute())
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
