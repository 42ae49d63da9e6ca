"""Custody of what a pack rests on: how each copy came from its disk, by the copier's own chain of manifests.

kraft-capture names objects by their SHA-256, and each of its manifests names the one before it. The pack holds the
SHA-256 of the newest manifest, and how far back the chain was verified. From there on `sources` of the pack's manifest
has what was read, and the chain of committed batches is compared with a lake's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kraft_audit.capture.plan import ClusterPlan
from kraft_audit.capture.replica import OpenStorage, opened_once
from kraft_codec.errors import CodecError, InputError
from kraft_codec.file_names import printable
from kraft_codec.storage.capture_stores import CaptureStore
from kraft_codec.storage.captured import CapturedReplica, CapturedStorage, ChainedManifest, ManifestChain, read_replica
from kraft_codec.storage.random_access import Storage

MANIFESTS_MAX: Final = 1_000
"""So many manifests of a replica are read back: ten days of one each 15 minutes."""


def custody_rows(plan: ClusterPlan, open_storage: OpenStorage) -> Iterator[dict[str, Any]]:
    """A row for each replica that was read; `copier` is null where kraft-capture did not write it."""
    with opened_once(open_storage) as storage_of:
        for replica in sorted(plan.replicas, key=lambda replica: replica.sort_key):
            row: dict[str, Any] = {
                "node_id": replica.node_id,
                "directory_id": replica.directory_id,
                "capture": replica.capture,
                "root": printable(replica.root),
                "path": printable(replica.path),
                "medium": replica.medium,
                "captured_at_ms": replica.captured_at_ms,
                "copier": None,
            }
            try:
                row["copier"] = _copier(storage_of(replica.root), replica.path)
            except (CodecError, InputError) as error:
                row["unread"] = str(error)
            yield row


def _copier(storage: Storage, path: str) -> dict[str, Any] | None:
    if not isinstance(storage, CapturedStorage):
        return None
    folder = storage.folder_of(path)
    return None if folder is None else _of_manifests(storage.store, read_replica(storage.store, folder))


def _of_manifests(store: CaptureStore, replica: CapturedReplica) -> dict[str, Any]:
    """What the newest manifest says, and how far back each manifest is the one that its successor names."""
    newest = replica.manifest
    chain: list[ChainedManifest] = []
    problem = None
    try:
        for each in ManifestChain(store, replica).back(MANIFESTS_MAX):
            if not each.is_named:
                problem = f"manifest {each.seq} is not the one that manifest {each.seq + 1} names"
                break
            chain.append(each)
    except CodecError as error:
        problem = error.detail
    first = chain[-1].seq if chain else replica.seq + 1
    if problem is None and first > 1 and len(chain) < MANIFESTS_MAX:
        problem = f"manifest {first - 1} is missing"
    copier = newest.get("copier") or {}
    of_replica = newest.get("replica") or {}
    log = newest["log"]
    return {
        "generation": replica.generation,
        "seq": replica.seq,
        "manifest_sha256": chain[0].sha256 if chain else None,
        "written_ms": replica.written_ms,
        "at_ms": newest["at_ms"],
        "copied_from": {name: of_replica.get(name) for name in ("host", "log_dir")},
        "version": copier.get("version"),
        "boot_id": copier.get("boot_id"),
        "end_offset": log.get("end_offset"),
        "held_end_offset": log.get("held_end_offset"),
        "first_verified_seq": first if chain else None,
        "is_verified_to_start": first == 1,
        "problem": problem,
        "parent": {name: newest["parent"].get(name) for name in ("why", "generation", "seq", "sha256")},
    }
