"""`export`: a range of the archived log as a log dir again."""

from __future__ import annotations

import os
import secrets
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from kraft_audit.commands.arguments import check_range
from kraft_audit.commands.ending import UsageError
from kraft_audit.output import Format, Output

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kraft_audit.replay.export import FilePiece


def export(
    lake: Annotated[str, typer.Argument(metavar="LAKE", show_default=False, help="Folder or URI of the Delta tables.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", show_default=False, help="A new or empty folder.")],
    cluster: Annotated[
        str | None, typer.Option(metavar="C", show_default=False, help="Id or name; not needed where there is one.")
    ] = None,
    from_offset: Annotated[
        int | None, typer.Option("--from", min=0, show_default=False, help="First offset; default: the earliest.")
    ] = None,
    to_offset: Annotated[
        int | None, typer.Option("--to", min=1, show_default=False, help="End offset, exclusive; default: the end.")
    ] = None,
    output: Annotated[Format, typer.Option("--output", "-o", help="How the summary is printed.")] = Format.TABLE,
) -> None:
    """Write a range of a lake's archive as a node dir with a log dir, which Kafka's own tools read.

    Batches are whole, offsets and epochs the original ones, CRCs right; secrets stay fingerprints, and records that no
    schema here knows are NoOps. DIR is there whole or not at all, and is never written over.

    \b
    Examples:
      kraft-audit export .demo/lake --cluster elr --out exported
      kraft-audit export .demo/lake --cluster elr --from 600 --to 700 --out exported
    """
    if find_spec("deltalake") is None:
        raise UsageError("export needs deltalake: pip install 'kraft-audit[spark]'")
    check_range(from_offset, to_offset)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"--out: {out}: expected a new or empty folder")
    from kraft_audit.replay.archived import ArchivedRedactor
    from kraft_audit.replay.export import Exported, canonical_log, exported_files
    from kraft_audit.spark.archive_tables import chosen_cluster, closed_plan, lake_at, lake_clusters, open_archive

    there = lake_at(lake)
    closed = closed_plan(there)
    chosen = chosen_cluster(there, lake_clusters(there, closed), cluster)
    redactor = ArchivedRedactor(secrets.token_bytes(32))
    log = canonical_log(open_archive(there, chosen, closed), redactor)
    wanted = (
        log.from_offset if from_offset is None else from_offset,
        log.to_offset if to_offset is None else to_offset,
    )
    done = Exported()
    write_node_dir(out, exported_files(log, *wanted, redactor, done))
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
    """Writes files piece by piece into a folder beside `out`, which then takes its place: whole or not at all."""
    unfinished = out.absolute().with_name(f".{out.name}.{secrets.token_hex(4)}.unfinished")
    opened: tuple[str, BinaryIO] | None = None
    try:
        unfinished.mkdir(parents=True)
        for name, content in pieces:
            if opened is None or opened[0] != name:
                _finish(opened)
                path = unfinished / name
                path.parent.mkdir(exist_ok=True)
                opened = (name, path.open("xb"))
            opened[1].write(content)
        _finish(opened)
        opened = None
        unfinished.rename(out.absolute())
    finally:
        if opened is not None:
            opened[1].close()
        shutil.rmtree(unfinished, ignore_errors=True)


def _finish(opened: tuple[str, BinaryIO] | None) -> None:
    if opened is not None:
        opened[1].flush()
        os.fsync(opened[1].fileno())
        opened[1].close()
