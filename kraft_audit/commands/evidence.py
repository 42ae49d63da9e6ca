"""`evidence`: what was found and the records behind it, redacted and hashed, in one file that others can check."""

from __future__ import annotations

import os
import time
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Annotated

import typer

from kraft_audit.commands.arguments import Capture, Defaults, DialectOption
from kraft_audit.commands.ending import EXIT_FINDINGS, UsageError, complain
from kraft_audit.commands.histories import say_unread
from kraft_audit.commands.reading import opened, redaction_key, redactor
from kraft_audit.output import Output
from kraft_codec.errors import InputError
from kraft_codec.file_uris import file_path
from kraft_codec.schemas import Dialect

if TYPE_CHECKING:
    from kraft_audit.rules.evidence import ClusterEvidence


def evidence(
    path: Annotated[
        str | None, typer.Argument(metavar="PATH", show_default=False, help="Log dir, node dir, folder or archive.")
    ] = None,
    out: Annotated[
        FilePath | None, typer.Option("--out", "-o", metavar="FILE", show_default=False, help="The zip to write.")
    ] = None,
    verify: Annotated[
        FilePath | None, typer.Option(metavar="FILE", show_default=False, help="Check a pack against its manifest.")
    ] = None,
    capture: Capture = None,
    default: Defaults = None,
    dialect: DialectOption = Dialect.KIP853,
) -> int:
    """Write an evidence pack: findings, the records and batch headers behind them, redacted, with a hash of every file.

    The manifest also holds the SHA-256 of each file that was read, and of the archive where PATH is one.

    With --verify: exit code 1 where a pack is not as its manifest says, 3 where a file is no pack.

    \b
    Examples:
      kraft-audit evidence samples/divergence --out divergence.zip
      kraft-audit evidence --verify divergence.zip
    """
    if verify is not None:
        if path is not None or out is not None:
            raise UsageError("--verify takes a pack alone: leave PATH and --out out")
        return _verified(verify)
    if path is None or out is None:
        raise UsageError("evidence needs PATH and --out FILE, or --verify FILE")
    _check_target(path, out)
    from importlib.metadata import version

    from kraft_audit.rules.evidence import write_pack
    from kraft_audit.rules.evidence_source import archive_source

    clusters = _gathered(path, capture, default, dialect)
    made_at_ms = time.time_ns() // 1_000_000
    archive = archive_source(path)
    try:
        digest = write_pack(out, clusters, tool_version=version("kraft-audit"), made_at_ms=made_at_ms, archive=archive)
    except OSError as problem:
        raise InputError(str(out), f"cannot be written: {problem.strerror}") from None
    Output().text(f"{out}: {sum(len(one.records) for one in clusters)} records; sha256 of its manifest {digest}")
    return 0


def _gathered(path: str, capture: str | None, defaults: list[str] | None, dialect: Dialect) -> list[ClusterEvidence]:
    from kraft_audit.rules import registry
    from kraft_audit.rules.collect import read_history
    from kraft_audit.rules.evidence_source import gather

    key, clusters = redaction_key(), []
    with opened(path, dialect=dialect, capture=capture, defaults=defaults) as found:
        for plan in found.plans:
            history = read_history(plan, open_storage=found.open_storage, redactor=redactor(key))
            say_unread(path, history)
            findings = list(registry.check(history))
            clusters.append(gather(plan, history, findings, open_storage=found.open_storage, redactor=redactor(key)))
    return clusters


def _check_target(path: str, out: FilePath) -> None:
    """Nothing is written among the logs, and no earlier pack is lost. Raises UsageError."""
    if out.exists():
        raise UsageError(f"--out: {out}: is there already")
    target, source = os.path.realpath(out), os.path.realpath(file_path(path) or path)
    if target == source or target.startswith(source.rstrip("/") + "/"):
        raise UsageError(f"--out: {out}: lies in {path}, where nothing is ever written")


def _verified(pack: FilePath) -> int:
    from kraft_audit.rules.evidence import verify_pack

    if not pack.is_file():
        raise InputError(str(pack), "no such file")
    verdict = verify_pack(pack)
    if not verdict.is_readable:
        raise InputError(str(pack), verdict.problems[0])
    for problem in verdict.problems:
        complain(f"{pack}: {problem}")
    if not verdict.problems:
        Output().text(f"{pack}: {verdict.file_count} files as the manifest says; its sha256 {verdict.manifest_sha256}")
    return EXIT_FINDINGS if verdict.problems else 0
