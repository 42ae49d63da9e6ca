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


class ManifestChain:
    """The manifests of a replica's newest generation, listed once."""

    def __init__(self, store: CaptureStore, replica: CapturedReplica) -> None:
        self._store = store
        self._replica = replica
        self._base = join(replica.path, replica.generation)
        self._names = manifest_names(store, self._base)

    def absent(self) -> list[int]:
        """The numbers up to that of the newest manifest that the store has no manifest for."""
        return sorted(set(range(1, self._replica.seq + 1)) - self._names.keys())

    def back(self, count_max: int) -> Iterator[ChainedManifest]:
        """The manifests from the newest one back, at most so many.

        Ends where one is missing, and after one that is not the one that its successor names. Raises CodecError where
        one is none.
        """
        newest = self._replica.seq
        expected: str | None = None
        for seq in range(newest, max(0, newest - count_max), -1):
            if seq not in self._names:
                return
            name = self._names[seq].name
            content = self._store.read(join(self._base, name), MANIFEST_BYTES_MAX)
            sha256 = hashlib.sha256(content).hexdigest()
            manifest = parse_manifest(content, name)
            is_named = seq == newest or sha256 == expected
            yield ChainedManifest(seq, sha256, manifest, is_named)
            if not is_named:
                return
            expected = manifest.get("previous_sha256")
