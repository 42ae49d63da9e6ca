"""Finds every copy of a metadata log below a path: a log dir, a node dir, directories and archives of either."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kraft_codec.errors import CodecError, Damage, Reason
from kraft_codec.file_names import METADATA_LOG_DIR, NODE_KINDS, FileKind, is_partition_dir, parse_file_name
from kraft_codec.files.properties import MAX_PROPERTIES_BYTES, MetaProperties, parse_meta_properties
from kraft_codec.storage.random_access import DamageList, DirEntry, EntryKind, Listing, Storage, damage_of, join

_LOG_CONTENT: Final = frozenset({FileKind.SEGMENT, FileKind.SNAPSHOT, FileKind.QUORUM_STATE})
_CONFIGURATION: Final = FileKind.CONFIGURATION
_Identity = tuple[str | None, int] | None
"""(cluster id, node id) as meta.properties has them; None where it does not say."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file of a replica. `path` is what `Storage.open` takes; `base_offset` and `epoch` are what its name says."""

    name: str
    path: str
    kind: FileKind
    base_offset: int | None
    epoch: int | None
    size_bytes: int
    mtime_ms: int


@dataclass(frozen=True, slots=True)
class ReplicaDir:
    """One copy of a metadata log as it lies in a storage.

    `capture` is the folder that holds the node dirs of one moment ("" where there is only one), `node_dir` the folder
    with meta.properties, `path` the log dir. `files` are those of both, by path. `configurations` are the files of this
    kind in the node dir and in the folders above it, up to where the storage starts, the nearest first.
    `further_directory_ids` are those of the node's other log dirs that lie beside the node dir, ascending.
    """

    capture: str
    node_dir: str
    path: str
    files: tuple[FileEntry, ...]
    configurations: tuple[FileEntry, ...] = ()
    further_directory_ids: tuple[str, ...] = ()

    def of_kind(self, *kinds: FileKind) -> tuple[FileEntry, ...]:
        """The files of these kinds, by path."""
        return tuple(file for file in self.files if file.kind in kinds)


@dataclass(frozen=True, slots=True)
class Discovery:
    """What lies below a path.

    A node dir that was formatted and never started, or emptied, is a replica without files of a log. `further_log_dirs`
    have a meta.properties and no metadata log because another dir of their node has it. `configurations` are the files
    of this kind that lie in no node dir, by path. `ignored_count` is how many files have no name of Kafka's.
    """

    replicas: tuple[ReplicaDir, ...]
    further_log_dirs: tuple[str, ...]
    damages: tuple[Damage, ...]
    configurations: tuple[FileEntry, ...] = ()
    ignored_count: int = 0


def discover(storage: Storage) -> Discovery:
    """Every replica below the storage's start, in the order of their paths, the same for the same tree.

    Other partitions of a broker are ignored. What cannot be listed becomes damage and stops nothing else.
    """
    walk = _Walk(storage)
    walk.visit()
    further = walk.take_unstarted()
    captures = _name_captures({path: node_dir for path, node_dir, _ in walk.replicas}, walk.identities)
    replicas = tuple(
        ReplicaDir(
            captures[path],
            node_dir,
            path,
            files,
            walk.configurations_of(node_dir, files),
            walk.directory_ids_beside(path, node_dir),
        )
        for path, node_dir, files in sorted(walk.replicas, key=lambda replica: replica[0])
    )
    node_dirs = {*further, *(replica.node_dir for replica in replicas)}
    configurations = _by_path(walk.configurations_outside(node_dirs))
    return Discovery(replicas, further, walk.damages.all(storage.start), configurations, walk.ignored_count)


class _Walk:
    """A bounded walk over directories; `replicas` holds (log dir, node dir, files)."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.damages = DamageList(storage.limits.damage_count)
        self.replicas: list[tuple[str, str, tuple[FileEntry, ...]]] = []
        self.unstarted: list[tuple[str, Listing]] = []
        self._node_dir: tuple[str, Listing] | None = None
        self.ignored_count = 0
        self._archive_count = 0
        self._configurations: dict[str, list[FileEntry]] = {}
        """Those that lie in a folder, of each folder that was visited and has any."""
        self._known: dict[str, _Identity] = {}
        self._further: dict[tuple[str, _Identity], set[str]] = {}
        """Directory ids of log dirs without the log, by the folder that they lie in and their node."""

    def visit(self) -> None:
        limits = self.storage.limits
        pending = [(start, 0) for start in reversed(self.storage.starts)]
        visited_count = 0
        while pending:
            path, depth = pending.pop()
            listing = self._list(path)
            if listing is None:
                continue
            visited_count += 1
            if visited_count > limits.directory_count:
                detail = f"more than {limits.directory_count} directories: the rest is unread"
                self.damages.add(path, Reason.LIMIT, detail)
                return
            if found := [each for each in _files(path, listing, in_node_dir=True) if each.kind is _CONFIGURATION]:
                self._configurations[path] = found
            if self._take_log_dir(path, listing):
                continue
            inner = self._inner_dirs(path, listing)
            if inner and depth >= limits.depth_count:
                detail = f"more than {limits.depth_count} directories deep: {len(inner)} are unread"
                self.damages.add(path, Reason.LIMIT, detail)
                continue
            self.storage.list_ahead([join(path, name) for name in inner])
            pending.extend((join(path, name), depth + 1) for name in reversed(inner))

    def take_unstarted(self) -> tuple[str, ...]:
        """Takes node dirs without a log of nodes that have none; returns those of nodes whose log lies elsewhere."""
        if not self.unstarted:
            return ()
        self._known = known = self.identities()
        with_log = {(_parent(node_dir), known.get(path)) for path, node_dir, _ in self.replicas}
        further = []
        for node_dir, listing in sorted(self.unstarted, key=lambda each: each[0]):
            files = _by_path(_files(node_dir, listing, in_node_dir=True))
            meta = self._meta(node_dir)
            identity = _identity_in(meta)
            # A folder that is no partition's may be the log under another name; what is unreadable is not absent.
            may_hold_log = any(
                entry.kind is EntryKind.DIRECTORY and not is_partition_dir(entry.name) for entry in listing.entries
            )
            if identity is None or may_hold_log or listing.damages or (_parent(node_dir), identity) in with_log:
                further.append(node_dir)
                if meta is not None and meta.directory_id is not None and identity is not None:
                    self._further.setdefault((_parent(node_dir), identity), set()).add(meta.directory_id)
                continue
            with_log.add((_parent(node_dir), identity))
            self.replicas.append((join(node_dir, METADATA_LOG_DIR), node_dir, files))
        return tuple(further)

    def configurations_of(self, node_dir: str, files: Iterable[FileEntry]) -> tuple[FileEntry, ...]:
        """The configurations in a node dir, whose files are given, then those in each folder above it that was visited.

        A folder above several node dirs may hold the configuration of any of them, or of none: its node.id says that.
        """
        found = [file for file in files if file.kind is _CONFIGURATION]
        folder = node_dir
        while folder and folder not in self.storage.starts:
            folder = _parent(folder)
            found += self._configurations.get(folder, ())
        return tuple(found)

    def configurations_outside(self, node_dirs: set[str]) -> list[FileEntry]:
        """The configurations in folders that are no node dirs."""
        return [file for folder, files in self._configurations.items() if folder not in node_dirs for file in files]

    def directory_ids_beside(self, path: str, node_dir: str) -> tuple[str, ...]:
        """The directory ids of the other log dirs of a log dir's node, where they lie beside its node dir."""
        return tuple(sorted(self._further.get((_parent(node_dir), self._known.get(path)), ())))

    def identities(self) -> dict[str, _Identity]:
        """(cluster id, node id) of each log dir by its meta.properties; None where they do not say.

        A log dir without any file is left out: nothing lies in it that could be some node's.
        """
        identity_of: dict[str, _Identity] = {}
        for path, node_dir, files in self.replicas:
            if not files:
                continue
            identity_of[path] = None
            if any(file.kind is FileKind.META_PROPERTIES for file in files):
                identity_of[path] = self._identity(node_dir)
        return identity_of

    def _identity(self, node_dir: str) -> _Identity:
        """(cluster id, node id) by its meta.properties; None where it cannot be read: whoever reads it reports that."""
        return _identity_in(self._meta(node_dir))

    def _meta(self, node_dir: str) -> MetaProperties | None:
        try:
            meta_path = join(node_dir, "meta.properties")
            return parse_meta_properties(self.storage.read_small(meta_path, MAX_PROPERTIES_BYTES))
        except CodecError:
            return None

    def _list(self, path: str) -> Listing | None:
        try:
            listing = self.storage.list_dir(path)
        except CodecError as error:
            damage = damage_of(path, error)
            self.damages.add(path, damage.reason, damage.detail)
            return None
        for damage in listing.damages:
            self.damages.add(damage.path, damage.reason, damage.detail, position=damage.position)
        self.damages.beyond_count += listing.unlisted_damage_count
        self.ignored_count += listing.ignored_count
        return listing

    def _take_log_dir(self, path: str, listing: Listing) -> bool:
        """Notes the replica if `path` is a metadata log dir."""
        kinds = {kind for entry in listing.entries if (kind := _kind(entry)) is not None}
        parent, _, name = path.rpartition("/")
        if name == METADATA_LOG_DIR:
            files = _files(path, listing, in_node_dir=False) + _files(parent, self._outer(parent), in_node_dir=True)
            self.replicas.append((path, parent, _by_path(files)))
            return True
        is_root = path in self.storage.starts
        if is_root and any(entry.name == METADATA_LOG_DIR for entry in listing.entries):
            return False
        holds_log = bool(kinds & _LOG_CONTENT) if is_root else FileKind.QUORUM_STATE in kinds
        holds_log |= is_root and kinds - {_CONFIGURATION} == {FileKind.BOOTSTRAP_SNAPSHOT}
        if not holds_log:
            return False
        # A log dir that was copied under another name, perhaps with meta.properties beside its segments. The name may
        # look like a partition's: `my-cluster-controller-3` is a pod. Partitions of topics have no quorum-state.
        files = _files(path, listing, in_node_dir=False) + _files(path, listing, in_node_dir=True)
        self.replicas.append((path, path, _by_path(files)))
        return True

    def _outer(self, node_dir: str) -> Listing:
        """The node dir of the log dir being visited: known from the way there, or outside what was given."""
        if self._node_dir is not None and self._node_dir[0] == node_dir:
            return self._node_dir[1]
        try:
            return self.storage.list_dir(node_dir)
        except CodecError:
            return Listing(())  # no gap: it was not asked for

    def _inner_dirs(self, path: str, listing: Listing) -> list[str]:
        """The names below which a log dir may lie; those of a node dir's other partitions are left aside."""
        names = [entry.name for entry in listing.entries if entry.kind is EntryKind.DIRECTORY]
        if METADATA_LOG_DIR in names:
            self._node_dir = (path, listing)
            return [METADATA_LOG_DIR]
        if any(_kind(entry) is FileKind.META_PROPERTIES for entry in listing.entries):
            self.unstarted.append((path, listing))
            names = [name for name in names if not is_partition_dir(name)]
        return sorted(names + self._archives(path, listing))

    def _archives(self, path: str, listing: Listing) -> list[str]:
        names = [entry.name for entry in listing.entries if entry.kind is EntryKind.ARCHIVE]
        room = max(self.storage.limits.archive_count - self._archive_count, 0)
        if len(names) > room:
            detail = f"more than {self.storage.limits.archive_count} archives: {len(names) - room} are unread"
            self.damages.add(path, Reason.LIMIT, detail)
        self._archive_count += len(names[:room])
        return names[:room]


def _identity_in(meta: MetaProperties | None) -> _Identity:
    return None if meta is None or meta.node_id is None else (meta.cluster_id, meta.node_id)


def _kind(entry: DirEntry) -> FileKind | None:
    parsed = parse_file_name(entry.name) if entry.kind is EntryKind.FILE else None
    return parsed.kind if parsed else None


def _files(directory: str, listing: Listing, *, in_node_dir: bool) -> list[FileEntry]:
    files: list[FileEntry] = []
    for entry in listing.entries:
        parsed = parse_file_name(entry.name) if entry.kind is EntryKind.FILE else None
        if parsed is not None and (parsed.kind in NODE_KINDS) == in_node_dir:
            place = join(directory, entry.name)
            files.append(
                FileEntry(
                    entry.name, place, parsed.kind, parsed.base_offset, parsed.epoch, entry.size_bytes, entry.mtime_ms
                )
            )
    return files


def _by_path(files: list[FileEntry]) -> tuple[FileEntry, ...]:
    return tuple(sorted(files, key=lambda file: file.path))


def _name_captures(node_dirs: Mapping[str, str], identities: Callable[[], Mapping[str, _Identity]]) -> dict[str, str]:
    """The capture of each log dir: the folder of its node dir, without what all of them begin with.

    Where every folder holds just one node (`host-1/data/…`, `host-2/data/…`), the folders are several hosts at one
    moment, not one host at several: they are joined as long as no node comes twice. An empty log dir, as of a disk that
    was wiped, parts none of the others.
    """
    folders = {path: _parent(node_dir) for path, node_dir in node_dirs.items()}
    while any(folders.values()) and len(set(folders.values())) == len(folders) > 1:
        outer = {path: _parent(folder) for path, folder in folders.items()}
        if not _is_one_moment(outer, identities()):
            break
        folders = outer
    common = _common_folder(folders.values())
    return {path: folder[len(common) :].lstrip("/") for path, folder in folders.items()}


def _is_one_moment(folders: Mapping[str, str], identities: Mapping[str, _Identity]) -> bool:
    """Whether the log dirs that hold anything, two at least, are of known nodes, each once in its folder."""
    seen: set[tuple[str, str | None, int]] = set()
    for path, folder in folders.items():
        if path not in identities:
            continue
        identity = identities[path]
        if identity is None or (folder, *identity) in seen:
            return False
        seen.add((folder, *identity))
    return len(seen) > 1


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _common_folder(folders: Iterable[str]) -> str:
    """The longest path of whole names that all folders begin with."""
    common: list[str] | None = None
    for folder in folders:
        names = folder.split("/") if folder else []
        if common is None:
            common = names
        else:
            same = [left == right for left, right in zip(common, names, strict=False)]
            common = common[: same.index(False) if False in same else len(same)]
    return "/".join(common or [])
