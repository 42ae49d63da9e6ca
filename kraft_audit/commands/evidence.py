"""`evidence`: findings and the records that they stand on, redacted and hashed, in a file that others can check."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kraft_audit.commands.arguments import (
    LAKE_PACKAGES,
    CaptureName,
    ConfiguredLogs,
    Defaults,
    need_packages,
    refuse_within,
)
from kraft_audit.commands.authorizer_option import AuthorizerLogs, AuthorizerZone, authored_changes, read_log
from kraft_audit.commands.ending import UsageError, complain
from kraft_audit.commands.results import Results, remark_on_key
from kraft_audit.text.exit_codes import EXIT_FINDINGS, EXIT_FINE, EXIT_UNDECIDED
from kraft_audit.text.output import Format
from kraft_audit.text.readable import listed, offset_span, plural
from kraft_audit.text.watched_work import doing
from kraft_codec.errors import InputError

if TYPE_CHECKING:
    from kraft_audit.findings.authorizer_log import AuthorizerLog
    from kraft_audit.findings.pack.pack_verification import PackChain

SIGN_PACKAGES: Final = ("cryptography",)
PACK_DIFFERENCES_SHOWN: Final = 5
NOT_COMPARED: Final = (
    "no disk of this pack holds them whole. Make the pack with --before, and from the disks of the earlier pack; "
    "batches that Kafka has deleted cannot be compared"
)
SHA256: Final = re.compile(r"[0-9a-fA-F]{64}")


def evidence(
    path: Annotated[
        str | None,
        typer.Argument(
            metavar="PATH", show_default=False, help="Log dir or node dir, a folder or archive of them, or a URI."
        ),
    ] = None,
    out: Annotated[
        FilePath | None,
        typer.Option("--out", metavar="FILE", show_default=False, help="Write the pack to this new zip file."),
    ] = None,
    sign: Annotated[
        FilePath | None,
        typer.Option(metavar="KEY", show_default=False, help="Sign the manifest with this Ed25519 private key (PEM)."),
    ] = None,
    verify: Annotated[
        FilePath | None, typer.Option(metavar="FILE", show_default=False, help="Check this pack against its manifest.")
    ] = None,
    expect: Annotated[
        str | None,
        typer.Option(
            metavar="SHA256", show_default=False, help="With --verify: the SHA-256 that the manifest must have."
        ),
    ] = None,
    key: Annotated[
        FilePath | None,
        typer.Option(
            metavar="KEY",
            show_default=False,
            help="With --verify: the public key (PEM) that must have signed the manifest.",
        ),
    ] = None,
    lake: Annotated[
        str | None,
        typer.Option(
            metavar="LAKE",
            show_default=False,
            help="With --verify: compare the committed batches with those in this lake.",
        ),
    ] = None,
    before: Annotated[
        FilePath | None,
        typer.Option(
            metavar="FILE",
            show_default=False,
            help="Check whether history was rewritten or lost since this earlier pack.",
        ),
    ] = None,
    log_files: AuthorizerLogs = None,
    zone: AuthorizerZone = "UTC",
    capture: CaptureName = None,
    default: Defaults = None,
) -> int:
    """Write an evidence pack: a zip of findings and of the records and batch headers behind them, redacted.

    The manifest holds the SHA-256 of every file in the pack, and of every file that was read. If PATH is an archive,
    the manifest holds its SHA-256 too. Somebody who changes a pack can rewrite its manifest as well. So either keep the
    manifest's SHA-256 elsewhere and pass it to --expect, or sign the pack with --sign and check it with --key.

    The pack also holds hash chains of the committed batches, one for the cluster and one for each disk, and names the
    disks that differ. --before compares these batches with those of an earlier pack, byte by byte. It names a batch
    that was altered on one disk or on all of them, even if the CRC was forged. It also names a disk that has lost
    batches. With --authorizer-log the pack says who made each change.

    With --before, exit code 1 if a committed batch differs or a disk has lost it, and 4 if some batches of the earlier
    pack could not be compared. With --verify, exit code 1 also if the pack does not match its manifest, --expect, --key
    or --lake. Exit code 3 if a file is not a pack.

    \b
    Examples:
      kraft-audit evidence samples/divergence.tgz --out divergence.zip
      kraft-audit evidence --verify divergence.zip
    """
    if verify is not None:
        if path is not None or out is not None or sign is not None or log_files:
            raise UsageError("--verify only reads a pack: leave out PATH, --out, --sign and --authorizer-log")
        is_whole = _verified(verify, expect, key)
        is_as_read = lake is None or _is_as_read(verify, lake, is_whole=is_whole)
        code = EXIT_FINE if before is None else _against(verify, before, _chains_of(before), is_whole=is_whole)
        return code if is_whole and is_as_read else EXIT_FINDINGS
    if expect is not None or key is not None or lake is not None:
        raise UsageError("--expect, --key and --lake need --verify")
    if path is None or out is None:
        raise UsageError("evidence needs PATH and --out FILE, or --verify FILE")
    if out.exists():
        raise UsageError(f"--out: {out} exists already: choose a new file")
    refuse_within(out, path)
    earlier = [] if before is None else _chains_of(before)
    _write(ConfiguredLogs(path, None, capture, default=default), out, sign, earlier, read_log(log_files, zone))
    return EXIT_FINE if before is None else _against(out, before, earlier, is_whole=True)


def _write(
    logs: ConfiguredLogs,
    out: FilePath,
    sign: FilePath | None,
    earlier: Sequence[PackChain],
    authorizer_log: AuthorizerLog | None,
) -> None:
    from importlib.metadata import version

    from kraft_audit.findings.change_authors import change_row
    from kraft_audit.findings.pack.batch_chain import difference_text
    from kraft_audit.findings.pack.evidence_pack import archive_source, gather, write_pack
    from kraft_audit.findings.pack.pack_verification import earlier_spans

    signing_key = None
    if sign is not None:
        need_packages("evidence --sign", SIGN_PACKAGES, "sign")
        from kraft_audit.findings.pack.signed_statement import read_private_key

        signing_key = read_private_key(sign)
    remark_on_key()
    results = Results(Format.TABLE, is_spaced=False)
    clusters = [
        replace(
            gather(
                *(cluster.judged_reading, cluster.history, cluster.check(), cluster.open_storage),
                earlier_spans(earlier, cluster.history.cluster_id),
            ),
            picture=cluster.picture(),
            changes=list(map(change_row, authored_changes(cluster, authorizer_log))),
        )
        for cluster in results.each_history(logs, keeps_records=True)
    ]
    doing(f"writing {out}")
    archive = archive_source(logs.path)
    try:
        digest = write_pack(
            out,
            clusters,
            tool_version=version("kraft-audit"),
            made_at_ms=time.time_ns() // 1_000_000,
            more_sources=[*([archive] if archive else []), *(authorizer_log.sources if authorizer_log else ())],
            key=signing_key,
        )
    except OSError as problem:
        raise InputError(str(out), f"cannot be written: {problem.strerror}") from None
    for row in (row for cluster in clusters for row in cluster.differences[:PACK_DIFFERENCES_SHOWN]):
        complain(f"{logs.path}: {difference_text(row)}")
    results.text(f"{out}: {sum(len(cluster.records) for cluster in clusters)} records; sha256 of its manifest {digest}")


def _chains_of(pack: FilePath) -> list[PackChain]:
    """The chains of an earlier pack. Raises InputError for what is no pack, or not as its manifest says."""
    from kraft_audit.findings.pack.pack_verification import pack_chains, verify_pack

    if not pack.is_file():
        raise InputError(str(pack), "no such file")
    verdict = verify_pack(pack)
    if not verdict.is_whole:
        raise InputError(str(pack), f"--before takes a whole pack: {verdict.problems[0]}")
    return pack_chains(pack)


def _against(pack: FilePath, before: FilePath, earlier: Sequence[PackChain], *, is_whole: bool) -> int:
    """The exit code of comparing a pack with an `earlier` one; `is_whole` as for `_is_as_read`."""
    from kraft_audit.findings.pack.pack_verification import compare_packs, pack_chains, verify_pack

    if not is_whole and not verify_pack(pack).is_whole:
        return EXIT_FINDINGS
    compared = compare_packs(earlier, pack_chains(pack))
    for each in compared:
        about = f"cluster {each.cluster_id}"
        for contradiction in each.contradictions:
            complain(f"{pack}: {about}: {contradiction}")
        if each.to_offset is not None:
            said = f"{plural(each.equal, 'block')} of committed batches as in {before}, to offset {each.to_offset - 1}"
            Results(Format.TABLE).text(f"{about}: {said}")
        if each.reason is not None:
            complain(f"{pack}: {about} was not compared with {before}: {each.reason}")
        elif each.not_compared:
            spans = listed([offset_span(*span) for span in each.not_compared])
            complain(f"{pack}: {about}: {spans} were not compared with {before}: {NOT_COMPARED}")
        elif each.to_offset is None and not each.contradictions:
            complain(f"{pack}: {about}: {before} has no committed batch to compare")
    if any(each.contradictions for each in compared):
        return EXIT_FINDINGS
    return EXIT_FINE if all(each.is_decided for each in compared) else EXIT_UNDECIDED


def _verified(pack: FilePath, expected: str | None, key: FilePath | None) -> bool:
    """Whether a pack is as its manifest says, as expected, and signed by the key; problems are named on stderr."""
    from kraft_audit.findings.pack.pack_verification import verify_pack

    if not pack.is_file():
        raise InputError(str(pack), "no such file")
    if expected is not None and not SHA256.fullmatch(expected):
        raise UsageError(f"--expect: {expected!r}: expected 64 hexadecimal digits")
    public_key = None
    if key is not None:
        need_packages("evidence --key", SIGN_PACKAGES, "sign")
        from kraft_audit.findings.pack.signed_statement import read_public_key

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
    from kraft_audit.findings.pack.pack_verification import pack_chains, verify_pack
    from kraft_audit.lake.committed_chain import compare_chain
    from kraft_audit.lake.delta import DeltaLake
    from kraft_audit.lake.lake import require_lake
    from kraft_audit.lake.lake_paths import absolute

    if not is_whole and not verify_pack(pack).is_whole:
        return False
    opened = DeltaLake(absolute(lake, FilePath.cwd()))
    require_lake(opened)
    is_as_read = True
    for chain in pack_chains(pack):
        cluster_id = chain.cluster_id
        comparison = compare_chain(opened, cluster_id, chain.rows)
        for contradiction in comparison.contradictions:
            complain(f"{pack}: cluster {cluster_id}: {contradiction}")
        if comparison.to_offset is None and not comparison.contradictions:
            complain(f"{pack}: cluster {cluster_id}: no committed batch to compare with the lake")
        is_as_read = is_as_read and comparison.to_offset is not None and not comparison.contradictions
        if comparison.to_offset is not None:
            equal = f"{comparison.equal} blocks of committed batches are as the lake read them"
            missing = f"{comparison.not_in_lake} are not in the lake"
            text = f"cluster {cluster_id}: {equal}, to offset {comparison.to_offset - 1}; {missing}"
            Results(Format.TABLE).text(text)
    return is_as_read
