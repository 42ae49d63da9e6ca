"""`doctor --captures`: whether what kraft-capture wrote is fresh, in order, without gaps, and all there."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from kraft_codec.errors import CodecError, InputError
from kraft_codec.storage.capture_stores import CaptureStore
from kraft_codec.storage.captured import (
    CapturedReplica,
    CapturedStorage,
    ManifestChain,
    missing_objects,
    missing_text,
    read_replica,
)
from kraft_codec.storage.opener import open_storage

OLD_MS: Final = 3_600_000
CHAINED_COUNT: Final = 200
"""So many manifests are read back from the newest one: two days of one each 15 minutes."""
MISSING_REMEDY: Final = (
    "find out what deletes objects from the store: a lifecycle rule of less than 60 days, or a person"
)
CheckStatus = Literal["ok", "warn", "fail"]
CheckRow = tuple[str, CheckStatus, str, str]
"""What was looked at, how it stands, what was found, what to do."""


def capture_checks(path: str, now_ms: int | None = None) -> list[CheckRow]:
    """A row for each replica of a store that is in order, and one for each thing that is not."""
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    try:
        with open_storage(path) as storage:
            if not isinstance(storage, CapturedStorage):
                return [
                    (
                        path,
                        "fail",
                        "nothing that kraft-capture wrote",
                        "name the folder or prefix that kraft-capture has as --to",
                    )
                ]
            rows: list[CheckRow] = []
            for folder in storage.folders:
                rows += _replica_rows(storage.store, folder, now_ms)
            return rows
    except InputError as problem:
        return [(path, "fail", problem.detail, "name the folder or prefix that kraft-capture has as --to")]


def _replica_rows(store: CaptureStore, folder: str, now_ms: int) -> list[CheckRow]:
    try:
        replica = read_replica(store, folder)
        problems: list[CheckRow] = [(folder, *problem) for problem in _problems(store, replica, now_ms)]
    except CodecError as error:
        remedy = "copy the log again: stop kraft-capture, move its --state folder away, start it"
        return [(folder, "fail", error.detail, remedy)]
    if problems:
        return problems
    log = replica.manifest["log"]
    held = log.get("held_end_offset")
    manifest = f"manifest {replica.seq}, {_age(now_ms - replica.written_ms)} old"
    offsets = f"offsets {log.get('start_offset')} to {log.get('end_offset')}"
    return [(folder, "ok", f"{manifest}, {offsets}, held below {'unknown' if held is None else held}", "")]


def _problems(store: CaptureStore, replica: CapturedReplica, now_ms: int) -> Iterator[tuple[CheckStatus, str, str]]:
    missing = replica.missing()
    if missing:
        yield (
            "fail",
            missing_text(missing, replica.seq),
            MISSING_REMEDY,
        )
    for problem in _chain_problems(store, replica):
        yield "fail", problem, "find out who else may write to the store, and what deletes from it"
    if now_ms - replica.written_ms > OLD_MS:
        yield (
            "warn",
            f"the newest manifest is {_age(now_ms - replica.written_ms)} old",
            "check that kraft-capture runs on that node",
        )
    yield from _content_problems(replica.manifest)


def _content_problems(manifest: Mapping[str, Any]) -> Iterator[tuple[CheckStatus, str, str]]:
    log, parent = manifest["log"], manifest["parent"]
    for low, high in log.get("gaps", []):
        yield (
            "warn",
            f"offsets {low} to {high} were never sent",
            "run kraft-capture more often than Kafka deletes segments",
        )
    before, start = parent.get("end_offset"), log.get("start_offset")
    if parent.get("why") == "segment gone" and None not in (before, start) and start > before:
        problem = f"offsets {before} to {start} were never read"
        yield "warn", problem, "run kraft-capture more often than Kafka deletes segments"
    for place in log.get("damage", []):
        problem = f"{place['path']}: {place['reason']} at {place['position']}"
        yield "warn", problem, "check the disk; `kraft-capture --tar` copies the damaged bytes as they are"
    for entry in manifest["entries"]:
        if entry["state"] == "unreadable":
            problem = f"{entry['path']}: unreadable ({entry.get('errno')})"
            yield "warn", problem, "run kraft-capture as the user that runs Kafka (snapshots are mode 0400)"
    if manifest.get("unstable_passes"):
        yield (
            "warn",
            f"{manifest['unstable_passes']} passes in a row were cut short, because the log changed meanwhile",
            "copy more often, or find out what keeps changing the log",
        )


def _chain_problems(store: CaptureStore, replica: CapturedReplica) -> Iterator[str]:
    """Numbers that are missing, manifests that are not the ones that their successors named, objects of theirs."""
    chain = ManifestChain(store, replica)
    absent = chain.absent()
    if absent:
        yield f"{len(absent)} manifests before {replica.seq} are missing, the first is {absent[0]}"
    for each in chain.back(CHAINED_COUNT):
        if not each.is_named:
            yield f"manifest {each.seq} is not the one that manifest {each.seq + 1} names"
            return
        missing = [] if each.seq == replica.seq else missing_objects(each.manifest, replica.stored)
        if missing:
            yield missing_text(missing, each.seq)
            return


def _age(age_ms: int) -> str:
    minutes = max(age_ms, 0) // 60_000
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes // 60} h" if minutes < 2 * 1440 else f"{minutes // 1440} days"
