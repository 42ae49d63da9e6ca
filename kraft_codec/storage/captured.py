"""What kraft-capture wrote, read as log dirs: the newest manifest of each replica is a node dir.

docs/capture-format.md is the contract. A replica whose manifest or objects are missing is unreadable, never shorter:
its node dir cannot be listed. What the copier could not read is listed, and unreadable here too.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from kraft_codec.errors import CodecError, Reason
from kraft_codec.file_names import is_hostile, parse_file_name, printable
from kraft_codec.storage.capture_stores import GENERATION, CaptureStore, StoredName, replica_folders
from kraft_codec.storage.random_access import (
    Buffer,
    DirEntry,
    EntryKind,
    FileChange,
    Limits,
    Listing,
    RandomAccess,
    Storage,
    join,
)

FORMAT: Final = "kraft-capture/1"
MANIFEST_BYTES_MAX: Final = 64 << 20
OBJECT_BYTES_MAX: Final = 128 << 20
"""A batch has 64 MiB at most, and an object is about 8 MiB of batches."""
_MANIFEST: Final = re.compile(r"([0-9]{12})\.json\.gz")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class CapturedReplica:
    """The newest manifest of a replica, `path` is the folder of its generations, `written_ms` by the store's clock."""

    path: str
    generation: str
    seq: int
    written_ms: int
    manifest: Mapping[str, Any]
    stored: Mapping[str, int]
    """Size of each object of the generation."""

    @property
    def entries(self) -> Sequence[Mapping[str, Any]]:
        return list(self.manifest["entries"])

    def missing(self) -> list[str]:
        """Objects that the manifest names and the store does not have, or has with a different size."""
        return missing_objects(self.manifest, self.stored)


def missing_objects(manifest: Mapping[str, Any], stored: Mapping[str, int]) -> list[str]:
    """Objects of a manifest that the store lacks, or has with another size than the one that the manifest says."""
    return [
        sha256
        for entry in manifest["entries"]
        for _, size, sha256 in entry.get("ranges", [])
        if stored.get(sha256) != size
    ]


def missing_text(missing: Sequence[str], seq: int) -> str:
    """Says which objects of a manifest are missing."""
    if len(missing) == 1:
        return f"object {missing[0]} of manifest {seq} is missing"
    return f"{len(missing)} objects of manifest {seq} are missing, {missing[0]} first"


def read_replica(store: CaptureStore, folder: str) -> CapturedReplica:
    """The newest manifest of a replica; raises CodecError(UNREADABLE) where there is none, or it is damaged.

    The newest generation is one that no generation has as its parent, of several the one written last.
    """
    newest: list[CapturedReplica] = []
    for name in store.names(folder):
        if name.is_folder and GENERATION.fullmatch(name.name):
            replica = _newest_of(store, folder, name.name)
            if replica is not None:
                newest.append(replica)
    parents = {replica.manifest["parent"].get("generation") for replica in newest}
    heads = [replica for replica in newest if replica.generation not in parents]
    if not heads:
        raise CodecError(Reason.UNREADABLE, 0, "no manifest of kraft-capture")
    return max(heads, key=lambda replica: (replica.written_ms, replica.manifest["at_ms"]))


def manifest_names(store: CaptureStore, generation_folder: str) -> dict[int, StoredName]:
    """The manifests of a generation by their number."""
    names = store.names(generation_folder)
    return {int(match[1]): each for each in names if (match := _MANIFEST.fullmatch(each.name))}


def _newest_manifests(store: CaptureStore, folders: Sequence[str]) -> list[str]:
    """The newest manifest of each generation of these replicas, of those that can be listed."""
    paths = []
    for folder in folders:
        with contextlib.suppress(CodecError):
            for name in store.names(folder):
                base = join(folder, name.name)
                if name.is_folder and GENERATION.fullmatch(name.name) and (known := manifest_names(store, base)):
                    paths.append(join(base, known[max(known)].name))
    return paths


def _newest_of(store: CaptureStore, folder: str, generation: str) -> CapturedReplica | None:
    base = join(folder, generation)
    numbered = manifest_names(store, base)
    if not numbered:
        return None  # its first manifest is still to come
    seq = max(numbered)
    name = numbered[seq]
    manifest = parse_manifest(store.read(join(base, name.name), MANIFEST_BYTES_MAX), name.name)
    if (manifest["generation"], manifest["seq"]) != (generation, seq):
        raise CodecError(Reason.UNREADABLE, 0, f"{name.name}: a manifest of {printable(str(manifest['generation']))}")
    stored = {each.name: each.size_bytes for each in store.names(join(base, "objects"))}
    return CapturedReplica(folder, generation, seq, name.mtime_ms, manifest, stored)


def parse_manifest(content: bytes, name: str) -> Mapping[str, Any]:
    """A manifest whose parts that are read here have the types that docs/capture-format.md says; raises CodecError."""
    try:
        manifest = json.loads(_unpacked(content))
        if manifest["format"] != FORMAT:
            raise ValueError("another format")
        for key, kind in (("generation", str), ("seq", int), ("at_ms", int), ("parent", dict), ("log", dict)):
            if not isinstance(manifest[key], kind):
                raise TypeError(key)
        for entry in manifest["entries"]:
            _require_entry(entry)
    except (ValueError, KeyError, TypeError, RecursionError, zlib.error) as error:
        raise CodecError(Reason.UNREADABLE, 0, f"{name}: not a manifest: {printable(str(error))[:100]}") from None
    return dict(manifest)


def _unpacked(content: bytes) -> bytes:
    """The text of a manifest; raises ValueError or zlib.error where it is no gzip, or larger than one is."""
    unpacking = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    text = unpacking.decompress(content, MANIFEST_BYTES_MAX)
    if not unpacking.eof or unpacking.unused_data:
        raise ValueError("cut short, or too large")
    return text


def _require_entry(entry: Mapping[str, Any]) -> None:
    if not isinstance(entry["path"], str) or not isinstance(entry["state"], str):
        raise TypeError("entries")
    at = 0
    for position, size, sha256 in entry.get("ranges", []):
        if position != at or not isinstance(size, int) or size <= 0 or not _SHA256.fullmatch(sha256):
            raise ValueError(f"ranges of {entry['path']}")
        at += size
    if not isinstance(entry.get("mtime_ms", 0), int) or not isinstance(entry.get("text", ""), str):
        raise TypeError(f"entry {entry['path']}")


@dataclass(frozen=True, slots=True)
class ChainedManifest:
    """A manifest of a generation. `is_named` where the one after it names its SHA-256; true of the newest."""

    seq: int
    sha256: str
    manifest: Mapping[str, Any]
    is_named: bool


class ManifestChain:
    """The manifests of a replica's newest generation, listed once.

    Each names the SHA-256 of the one before it, and so confirms all of them.
    """

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


class CapturedStorage(Storage):
    """The newest manifest of each replica of a store as a tree of node dirs, read once, when it is first listed.

    `folders` are those of the replicas.
    """

    def __init__(self, store: CaptureStore, location: str, limits: Limits) -> None:
        super().__init__(location, limits=limits)
        self.store = store
        self.folders = replica_folders(store)
        self._has_read_ahead = False
        self._replicas: dict[str, CapturedReplica | CodecError] = {}

    def folder_of(self, path: str) -> str | None:
        """The folder of the replica that a path is, or lies in; None for a folder above replicas."""
        return next((each for each in self.folders if path == each or path.startswith(f"{each}/") or not each), None)

    def list_dir(self, path: str) -> Listing:
        folder = self.folder_of(path)
        if folder is not None:
            return self._list_node_dir(folder, path)
        prefix = f"{path}/" if path else ""
        names = {each[len(prefix) :].partition("/")[0] for each in self.folders if each.startswith(prefix)}
        return Listing(tuple(DirEntry(name, EntryKind.DIRECTORY) for name in sorted(names)))

    def open(self, path: str, planned_size_bytes: int | None = None) -> RandomAccess:
        for folder in self.folders:
            inner = path[len(folder) :].lstrip("/") if path.startswith(f"{folder}/") or not folder else None
            if inner is not None:
                replica = self._replica(folder)
                for entry in replica.entries:
                    if entry["path"] == inner:
                        return _CapturedFile(self.store, replica, entry, path, planned_size_bytes)
        raise CodecError(Reason.CHANGED_DURING_READ, 0, "the manifest has no such file")

    def carry(self) -> None:
        self.store.carry()

    def close(self) -> None:
        self.store.close()

    def medium(self, path: str) -> str:
        return self.store.medium

    def held_end_offset(self, path: str) -> int | None:
        """See Storage: 0 where the manifest does not say that any byte was found again, or synced."""
        folder = self.folder_of(path)
        if folder is None:
            return None
        try:
            held = self._replica(folder).manifest["log"].get("held_end_offset")
        except CodecError:
            return None
        return held if isinstance(held, int) else 0

    def noted_ms(self, path: str) -> int | None:
        """See Storage."""
        folder = self.folder_of(path)
        try:
            return None if folder is None else int(self._replica(folder).manifest["at_ms"])
        except CodecError:
            return None

    def _replica(self, folder: str) -> CapturedReplica:
        if not self._has_read_ahead:
            self._has_read_ahead = True
            self.store.read_ahead(_newest_manifests(self.store, self.folders))
        if folder not in self._replicas:
            try:
                replica = read_replica(self.store, folder)
                missing = replica.missing()
                if missing:
                    raise CodecError(Reason.UNREADABLE, 0, missing_text(missing, replica.seq))
                self._replicas[folder] = replica
            except CodecError as error:
                self._replicas[folder] = error
        replica_or_error = self._replicas[folder]
        if isinstance(replica_or_error, CodecError):
            raise replica_or_error
        return replica_or_error

    def _list_node_dir(self, folder: str, path: str) -> Listing:
        replica = self._replica(folder)
        inner = path[len(folder) :].strip("/")
        entries: dict[str, DirEntry] = {}
        ignored_count = 0
        for entry in replica.entries:
            parent, _, name = entry["path"].rpartition("/")
            if not inner and parent and "/" not in parent:
                entries[parent] = DirEntry(parent, EntryKind.DIRECTORY)
            if parent != inner:
                continue
            if is_hostile(name) or parse_file_name(name) is None or not _is_readable(entry):
                ignored_count += 1
            else:
                entries[name] = DirEntry(name, EntryKind.FILE, _size(entry), entry.get("mtime_ms", 0))
        return Listing(tuple(entries[name] for name in sorted(entries)), ignored_count=ignored_count)


def _is_readable(entry: Mapping[str, Any]) -> bool:
    """Whether the manifest has its bytes, or says that it could not be read: that is not the same as absent."""
    return entry["state"] == "unreadable" or any(key in entry for key in ("ranges", "text", "base64"))


def _size(entry: Mapping[str, Any]) -> int:
    if "ranges" in entry:
        return sum(size for _, size, _ in entry["ranges"])
    if "text" in entry:
        return len(entry["text"].encode())
    return int(entry.get("copied_bytes", entry.get("bytes", 0)))


class _CapturedFile(RandomAccess):
    """A file of a manifest. Objects are checked against their names as they are read; the last one stays in memory."""

    def __init__(
        self,
        store: CaptureStore,
        replica: CapturedReplica,
        entry: Mapping[str, Any],
        path: str,
        planned_size_bytes: int | None,
    ) -> None:
        size_bytes = _size(entry)
        if entry["state"] == "unreadable" and "ranges" not in entry:
            reason = printable(str(entry.get("errno", "")))
            raise CodecError(Reason.UNREADABLE, 0, f"kraft-capture could not read it ({reason})")
        if planned_size_bytes is not None:
            if size_bytes < planned_size_bytes:
                detail = f"{size_bytes} bytes, {planned_size_bytes} were planned"
                raise CodecError(Reason.CHANGED_DURING_READ, size_bytes, detail)
            size_bytes = planned_size_bytes
        super().__init__(path, size_bytes, entry.get("mtime_ms", 0))
        self._store = store
        self._folder = join(join(replica.path, replica.generation), "objects")
        self._ranges: list[tuple[int, int, str]] = [tuple(each) for each in entry.get("ranges", [])]
        self._loaded: tuple[int, bytes] = (-1, b"")
        if not self._ranges:
            self._loaded = (0, _inline(entry))

    def read_into(self, position: int, buffer: Buffer) -> None:
        self.require(position, len(buffer))
        done = 0
        while done < len(buffer):
            start, content = self._object_at(position + done)
            part = content[position + done - start : position + len(buffer) - start]
            buffer[done : done + len(part)] = np.frombuffer(part, np.uint8)
            done += len(part)

    def change(self) -> FileChange:
        return FileChange.NONE

    def close(self) -> None:
        self._loaded = (-1, b"")

    def _object_at(self, position: int) -> tuple[int, bytes]:
        """(where it begins in the file, its bytes) of the object that holds a position."""
        start, content = self._loaded
        if start >= 0 and start <= position < start + len(content):
            return self._loaded
        for start, size, sha256 in self._ranges:
            if start <= position < start + size:
                content = self._store.read(join(self._folder, sha256), OBJECT_BYTES_MAX)
                if len(content) != size or hashlib.sha256(content).hexdigest() != sha256:
                    raise CodecError(Reason.UNREADABLE, start, f"object {sha256} is not what its name says")
                self._loaded = (start, content)
                return self._loaded
        raise CodecError(Reason.CHANGED_DURING_READ, position, "no range of the manifest holds this position")


def _inline(entry: Mapping[str, Any]) -> bytes:
    if "text" in entry:
        return str(entry["text"]).encode()
    try:
        return base64.b64decode(entry.get("base64", ""), validate=True)
    except ValueError:
        raise CodecError(Reason.UNREADABLE, 0, "not base64 in the manifest") from None
