"""`evidence`: findings and the records that they stand on, redacted and hashed, in a file that others can check."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Annotated, Final

import typer

from kraft_audit.commands.arguments import (
    LAKE_PACKAGES,
    Capture,
    ConfiguredLogs,
    Defaults,
    DialectOption,
    need_packages,
    refuse_within,
)
from kraft_audit.commands.ending import EXIT_FINDINGS, UsageError, complain
from kraft_audit.commands.results import Results, remark_on_key
from kraft_audit.text.output import Format
from kraft_codec.errors import InputError
from kraft_codec.schemas import Dialect

SIGN_PACKAGES: Final = ("cryptography",)
DIFFERENCES_SHOWN: Final = 5
SHA256: Final = re.compile(r"[0-9a-fA-F]{64}")


def evidence(
    path: Annotated[
        str | None, typer.Argument(metavar="PATH", show_default=False, help="Log dir, node dir, folder or archive.")
    ] = None,
    out: Annotated[
        FilePath | None, typer.Option("--out", metavar="FILE", show_default=False, help="The zip to write.")
    ] = None,
    sign: Annotated[
        FilePath | None,
        typer.Option(metavar="KEY", show_default=False, help="Sign the manifest: an Ed25519 private key as PEM."),
    ] = None,
    verify: Annotated[
        FilePath | None, typer.Option(metavar="FILE", show_default=False, help="Check a pack against its manifest.")
    ] = None,
    expect: Annotated[
        str | None, typer.Option(metavar="SHA256", show_default=False, help="With --verify: that of its manifest.")
    ] = None,
    key: Annotated[
        FilePath | None,
        typer.Option(metavar="KEY", show_default=False, help="With --verify: the public key that signed it, as PEM."),
    ] = None,
    lake: Annotated[
        str | None,
        typer.Option(metavar="LAKE", show_default=False, help="With --verify: compare committed batches with a lake."),
    ] = None,
    capture: Capture = None,
    default: Defaults = None,
    dialect: DialectOption = Dialect.KIP853,
) -> int:
    """Write an evidence pack: findings, the records and batch headers behind them, redacted, with a hash of every file.

    The manifest also holds the SHA-256 of each file that was read, and of the archive where PATH is one. Who changes a
    pack can renew its manifest, too: write the manifest's SHA-256 down elsewhere for --expect, or sign it for --key.

    The pack also holds a hash chain of the committed batches, of the cluster and of each disk, and names the disks that
    differ.

    With --verify: exit code 1 where a pack is not as its manifest says, not as expected, not signed by the key, or has
    other committed batches than the lake; 3 where a file is no pack.

    \b
    Examples:
      kraft-audit evidence samples/divergence.tgz --out divergence.zip
      kraft-audit evidence --verify divergence.zip
    """
    if verify is not None:
        if path is not None or out is not None or sign is not None:
            raise UsageError("--verify takes a pack alone: leave PATH, --out and --sign out")
        is_whole = _verified(verify, expect, key)
        is_as_read = lake is None or _is_as_read(verify, lake, is_whole=is_whole)
        return 0 if is_whole and is_as_read else EXIT_FINDINGS
    if expect is not None or key is not None or lake is not None:
        raise UsageError("--expect, --key and --lake go with --verify")
    if path is None or out is None:
        raise UsageError("evidence needs PATH and --out FILE, or --verify FILE")
    if out.exists():
        raise UsageError(f"--out: {out}: is there already")
    refuse_within(out, path)
    from importlib.metadata import version

    from kraft_audit.findings.batch_chain import difference_text
    from kraft_audit.findings.evidence_pack import archive_source, gather, write_pack

    signing_key = None
    if sign is not None:
        need_packages("evidence --sign", SIGN_PACKAGES, "sign")
        from kraft_audit.findings.signed_statement import read_private_key

        signing_key = read_private_key(sign)
    remark_on_key()
    results = Results(Format.TABLE, is_spaced=False)
    clusters = [
        replace(
            gather(cluster.judged_reading, cluster.history, cluster.check(), cluster.open_storage),
            picture=cluster.picture(),
        )
        for cluster in results.each_history(ConfiguredLogs(path, None, capture, dialect, default), keeps_records=True)
    ]
    made_at_ms = time.time_ns() // 1_000_000
    archive = archive_source(path)
    try:
        digest = write_pack(
            out,
            clusters,
            tool_version=version("kraft-audit"),
            made_at_ms=made_at_ms,
            archive=archive,
            key=signing_key,
        )
    except OSError as problem:
        raise InputError(str(out), f"cannot be written: {problem.strerror}") from None
    for row in (row for cluster in clusters for row in cluster.differences[:DIFFERENCES_SHOWN]):
        complain(f"{path}: {difference_text(row)}")
    results.text(f"{out}: {sum(len(cluster.records) for cluster in clusters)} records; sha256 of its manifest {digest}")
    return 0


def _verified(pack: FilePath, expected: str | None, key: FilePath | None) -> bool:
    """Whether a pack is as its manifest says, as expected, and signed by the key; problems are named on stderr."""
    from kraft_audit.findings.pack_verification import verify_pack

    if not pack.is_file():
        raise InputError(str(pack), "no such file")
    if expected is not None and not SHA256.fullmatch(expected):
        raise UsageError(f"--expect: {expected!r}: expected 64 hexadecimal digits")
    public_key = None
    if key is not None:
        need_packages("evidence --key", SIGN_PACKAGES, "sign")
        from kraft_audit.findings.signed_statement import read_public_key

        public_key = read_public_key(key)
    verdict = verify_pack(pack, expected=expected, key=public_key)
    if not verdict.is_readable:
        raise InputError(str(pack), verdict.problems[0])
    for problem in verdict.problems:
        complain(f"{pack}: {problem}")
    if not verdict.problems:
        results = Results(Format.TABLE)
        results.text(f"{pack}: {verdict.file_count} files as the manifest says; its sha256 {verdict.manifest_sha256}")
        if verdict.signed_by:
            said = "the key signed it" if verdict.is_signature_valid else "its signature was not checked: no --key"
            results.text(f"signed by {' '.join(verdict.signed_by)}: {said}")
    return verdict.is_whole


def _is_as_read(pack: FilePath, lake: str, *, is_whole: bool) -> bool:
    """Whether the chains of a pack are what a lake read, and the pack agrees with itself.

    `is_whole`: it was found to. Where it was not as expected, or not signed by the key, it may agree all the same.
    """
    need_packages("evidence --lake", LAKE_PACKAGES, "lake")
    from kraft_audit.findings.pack_verification import pack_chains, verify_pack
    from kraft_audit.lake.committed_chain import compare_chain
    from kraft_audit.lake.delta import DeltaLake, require_lake
    from kraft_audit.lake.lake_paths import absolute

    if not is_whole and not verify_pack(pack).is_whole:
        return False
    opened = DeltaLake(absolute(lake, FilePath.cwd()))
    require_lake(opened)
    is_as_read = True
    for cluster_id, rows in pack_chains(pack):
        found = compare_chain(opened, cluster_id, rows)
        for contradiction in found.contradictions:
            complain(f"{pack}: cluster {cluster_id}: {contradiction}")
        if found.to_offset is None and not found.contradictions:
            complain(f"{pack}: cluster {cluster_id}: no committed batch to compare with the lake")
        is_as_read = is_as_read and found.to_offset is not None and not found.contradictions
        if found.to_offset is not None:
            said = (
                f"{found.equal} blocks of committed batches are as the lake read them, to offset {found.to_offset - 1}"
            )
            Results(Format.TABLE).text(f"cluster {cluster_id}: {said}; {found.not_in_lake} are not in the lake")
    return is_as_read
