"""The chain of manifests of kraft-capture: each names the SHA-256 of the one before it, and so confirms all of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kraft_codec.storage.captured import (
    MANIFEST_BYTES_MAX,
    CapturedReplica,
    CaptureStore,
    manifest_names,
    parse_manifest,
)
from kraft_codec.storage.random_access import join


@dataclass(frozen=True, slots=True)
class ChainedManifest:
    """A manifest of a generation. `is_named` where the one after it names its SHA-256; true of the newest."""

    seq: int
    sha256: str
    manifest: Mapping[str, Any]
    is_named: bool


def absent_manifests(store: CaptureStore, replica: CapturedReplica) -> list[int]:
    """The numbers before the newest manifest of which the store has none."""
    names = manifest_names(store, join(replica.path, replica.generation))
    return sorted(set(range(1, replica.seq + 1)) - names.keys())


def manifests_back(store: CaptureStore, replica: CapturedReplica, count_max: int) -> Iterator[ChainedManifest]:
    """The manifests of a generation from the newest one back, at most so many.

    Ends where one is missing, and after one that is not the one that its successor names. Raises CodecError where one
    is none.
    """
    base = join(replica.path, replica.generation)
    names = manifest_names(store, base)
    expected: str | None = None
    for seq in range(replica.seq, max(0, replica.seq - count_max), -1):
        if seq not in names:
            return
        content = store.read(join(base, names[seq].name), MANIFEST_BYTES_MAX)
        sha256 = hashlib.sha256(content).hexdigest()
        manifest = parse_manifest(content, names[seq].name)
        is_named = seq == replica.seq or sha256 == expected
        yield ChainedManifest(seq, sha256, manifest, is_named)
        if not is_named:
            return
        expected = manifest.get("previous_sha256")
