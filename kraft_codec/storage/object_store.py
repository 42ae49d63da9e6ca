"""Log dirs in an object store (S3, Google Cloud Storage, Azure), through pyarrow's file systems.

Credentials come from where each store's own tools look for them (environment, profile, instance), never from the
address.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, BinaryIO, Final, cast

from pyarrow import fs

from kraft_codec.errors import CodecError, InputError, Reason
from kraft_codec.file_names import METADATA_LOG_DIR, is_hostile, parse_file_name, printable
from kraft_codec.storage.archives import ARCHIVE_SUFFIXES, ArchiveMounts, ArchiveStorage
from kraft_codec.storage.capture_stores import BucketCaptures, is_capture_store
from kraft_codec.storage.captured import CapturedStorage
from kraft_codec.storage.random_access import (
    Buffer,
    DamageList,
    DirEntry,
    EntryKind,
    FileChange,
    Limits,
    Listing,
    RandomAccess,
    Storage,
    join,
    path_names,
)
from kraft_codec.storage.remembered_objects import STORE_ERRORS, RememberedObjects, info_of

SCHEMES: Final = frozenset({"s3", "gs", "gcs", "abfs", "abfss"})

GCS_RETRY_SECONDS: Final = 30
"""pyarrow asks Google's services again for a quarter of an hour: too long for a person who mistyped a bucket."""
ADDRESS: Final = re.compile(r"([a-z][a-z0-9+.-]*)://([^/?]*)(.*)", re.IGNORECASE | re.DOTALL)
"""Scheme, bucket, and all that follows."""


class _ObjectFile(RandomAccess):
    """An object, opened for reading at any position."""

    def __init__(self, store: Any, place: str, path: str, planned_size_bytes: int | None) -> None:
        self._store = store
        self._place = place
        with _as_codec_error():
            self._file = store.open_input_file(place)
            size_bytes = self._file.size()
            self._info = info_of(self._file, place) or store.get_file_info(place)
            if self._info.type != fs.FileType.File:
                self._file.close()
                raise CodecError(Reason.CHANGED_DURING_READ, 0, "it is no longer there")
        if planned_size_bytes is not None:
            if size_bytes < planned_size_bytes:
                self._file.close()
                detail = f"{size_bytes} bytes, {planned_size_bytes} were planned"
                raise CodecError(Reason.CHANGED_DURING_READ, size_bytes, detail)
            size_bytes = planned_size_bytes
        super().__init__(path, size_bytes, _mtime_ms(self._info))

    def read_into(self, position: int, buffer: Buffer) -> None:
        self.require(position, len(buffer))
        view = buffer.data
        with _as_codec_error(position):
            self._file.seek(position)
            while view:
                count = self._file.readinto(view)
                if not count:
                    raise CodecError(Reason.CHANGED_DURING_READ, position, "the object ends here")
                position += count
                view = view[count:]

    def change(self) -> FileChange:
        if getattr(self._file, "is_whole", False):
            return FileChange.NONE
        try:
            now = self._store.get_file_info(self._place)
        except STORE_ERRORS:
            return FileChange.VANISHED
        if now.type != fs.FileType.File:
            return FileChange.VANISHED
        if now.size != self._info.size:
            return FileChange.GREW if now.size > self._info.size else FileChange.SHRANK
        return FileChange.NONE if now.mtime_ns == self._info.mtime_ns else FileChange.REWRITTEN

    def close(self) -> None:
        self._file.close()


class ObjectStorage(Storage):
    """What lies below a prefix of a bucket; `root` is the path in its store."""

    def __init__(self, store: RememberedObjects, root: str, location: str, *, limits: Limits | None = None) -> None:
        super().__init__(location, limits=limits or Limits())
        self._store = store
        self._base = root.rstrip("/")
        self._archives = ArchiveMounts(self.limits, self._is_dir, self._open_archive)

    def list_ahead(self, paths: Sequence[str]) -> None:
        self._store.list_ahead([self._place(path) for path in paths], METADATA_LOG_DIR)

    def read_ahead(self, paths: Sequence[str]) -> None:
        plain = [path for path in paths if self._archives.find(path_names(path))[0] is None]
        self._store.read_ahead([self._place(path) for path in plain])

    def carry(self) -> None:
        self._store.carry()

    def list_dir(self, path: str) -> Listing:
        names = path_names(path)
        archive, inner = self._archives.find(names)
        if archive is not None:
            return archive.list_dir(inner)
        with _as_codec_error():
            infos = _listed(self._store, self._place(path))
        damages = DamageList(self.limits.damage_count)
        entries: list[DirEntry] = []
        if len(infos) > self.limits.entry_count:
            damages.add(path, Reason.LIMIT, f"more than {self.limits.entry_count} names in one directory")
        for info in sorted(infos, key=lambda info: str(info.base_name))[: self.limits.entry_count]:
            name = info.base_name
            if is_hostile(name):
                damages.add(join(path, name), Reason.HOSTILE_NAME, "a name with characters that no Kafka directory has")
            elif info.type == fs.FileType.Directory:
                entries.append(DirEntry(name, EntryKind.DIRECTORY))
            elif info.type == fs.FileType.File and parse_file_name(name) is not None:
                entries.append(DirEntry(name, EntryKind.FILE, info.size, _mtime_ms(info)))
            elif info.type == fs.FileType.File and name.lower().endswith(ARCHIVE_SUFFIXES):
                entries.append(DirEntry(name, EntryKind.ARCHIVE))
        ignored_count = len(infos) - len(entries) - len(damages.entries) - damages.beyond_count
        return Listing(tuple(entries), tuple(damages.entries), damages.beyond_count, ignored_count)

    def open(self, path: str, planned_size_bytes: int | None = None) -> RandomAccess:
        names = path_names(path)
        archive, inner = self._archives.find(names)
        if archive is not None:
            return archive.open(inner, planned_size_bytes)
        return _ObjectFile(self._store, self._place(path), path, planned_size_bytes)

    def medium(self, path: str) -> str:
        return "object_store" if self._archives.find(path_names(path))[0] is None else "archive"

    def close(self) -> None:
        self._archives.close()
        self._store.close()

    def _place(self, path: str) -> str:
        return join(self._base, path) if path else self._base

    def _is_dir(self, names: Sequence[str]) -> bool:
        return is_folder(self._store, self._place("/".join(names)))

    def _open_archive(self, names: Sequence[str]) -> AbstractContextManager[BinaryIO]:
        with _as_codec_error():
            return cast(
                AbstractContextManager[BinaryIO], self._store.plain.open_input_file(self._place("/".join(names)))
            )


def connect(address: str) -> tuple[Any, str, str]:
    """(pyarrow file system, the path in it, the address as it may be shown) of an address in an object store.

    Raises InputError, which never repeats an address's secrets. Nothing need lie there.
    """
    match = ADDRESS.fullmatch(address)
    if match is None:
        raise InputError(printable(address), "not an address of the form scheme://bucket/path")
    scheme, authority, rest = match.groups()
    userinfo, at, host = authority.rpartition("@")
    if at and _is_login(scheme.lower(), userinfo):
        shown = printable(f"{scheme}://…@{host}{rest.partition('?')[0]}")
        raise InputError(shown, "an address that holds credentials is refused: leave them to the environment")
    shown = printable(address.partition("?")[0])
    if is_hostile(address):
        raise InputError(shown, "an address with control characters")
    if not authority:
        raise InputError(shown, "an address without a bucket")
    try:
        store, root = fs.FileSystem.from_uri(_with_retry_limit(scheme.lower(), address))
    except STORE_ERRORS as error:
        raise InputError(shown, _first_line(error)) from None
    return store, root, shown


def open_object_storage(address: str, limits: Limits) -> Storage:
    """Opens a prefix or an archive in an object store; raises InputError, which never repeats an address's secrets."""
    store, root, shown = connect(address)
    remembered = RememberedObjects(store, address)
    try:
        if not _is_listed(remembered, root.rstrip("/")):
            info = store.get_file_info(root)
            if info.type == fs.FileType.File:
                with store.open_input_file(root) as file:
                    return ArchiveStorage(cast(BinaryIO, file), shown, limits=limits)
            if info.type == fs.FileType.NotFound:
                raise InputError(shown, "no such object or prefix")
    except STORE_ERRORS as error:
        raise InputError(shown, _first_line(error)) from None
    if _has_folders(store):  # without them a listing has no delimiter
        captures = BucketCaptures(remembered, root)
        try:
            if is_capture_store(captures):
                return CapturedStorage(captures, shown, limits)
        except CodecError as error:
            raise InputError(shown, error.detail) from None
    return ObjectStorage(remembered, root, shown, limits=limits)


def _is_listed(store: RememberedObjects, place: str) -> bool:
    """Whether a listing finds names, so that it need not be asked whether the prefix exists.

    An archive is an object, and may be all that one is allowed to read.
    """
    if not _has_folders(store) or place.lower().endswith(ARCHIVE_SUFFIXES):
        return False
    try:
        return bool(_listed(store, place, allow_not_found=True))
    except STORE_ERRORS:
        return False


def read_object(address: str, limit_bytes: int) -> bytes:
    """The whole of a small object; raises InputError."""
    store, root, shown = connect(address)
    try:
        with store.open_input_file(root) as file:
            if file.size() > limit_bytes:
                raise InputError(shown, f"{file.size()} bytes, expected at most {limit_bytes}")
            return bytes(file.read())
    except STORE_ERRORS as error:
        raise InputError(shown, _first_line(error)) from None


def is_folder(store: Any, place: str) -> bool:
    """Whether anything lies below a place. Raises CodecError."""
    with _as_codec_error():
        return bool(store.get_file_info(place).type == fs.FileType.Directory)


def names_in(store: Any, place: str) -> list[tuple[str, bool]]:
    """(name, whether it is a folder) of all that lies directly at a place, by name; nothing where nothing does.

    Raises CodecError.
    """
    with _as_codec_error():
        infos = _listed(store, place, allow_not_found=True)
    return sorted((str(info.base_name), info.type == fs.FileType.Directory) for info in infos)


def _has_folders(store: Any) -> bool:
    """Google's store knows folders by marker objects alone, and what was uploaded file by file has none."""
    return bool(store.type_name != "gcs")


def _listed(store: Any, place: str, *, allow_not_found: bool = False) -> list[Any]:
    has_folders = _has_folders(store)
    infos = store.get_file_info(fs.FileSelector(place, recursive=not has_folders, allow_not_found=allow_not_found))
    return list(infos) if has_folders else _folded(infos, place)


def _folded(infos: Sequence[Any], place: str) -> list[Any]:
    """The names directly in a folder, out of all that lies below it."""
    info_by_name: dict[str, Any] = {}
    for info in infos:
        name, slash, _ = info.path[len(place) :].lstrip("/").partition("/")
        if slash:
            info_by_name[name] = fs.FileInfo(f"{place}/{name}", fs.FileType.Directory)
        elif name:
            info_by_name.setdefault(name, info)
    return list(info_by_name.values())


def _is_login(scheme: str, userinfo: str) -> bool:
    """Whether what stands before the host of an address is a credential; a container of Azure and nothing are none."""
    if ":" in userinfo:
        return True
    return scheme not in ("abfs", "abfss") and not (scheme in ("gs", "gcs") and userinfo == "anonymous")


def _with_retry_limit(scheme: str, address: str) -> str:
    if scheme not in ("gs", "gcs") or "retry_limit_seconds=" in address:
        return address
    return f"{address}{'&' if '?' in address else '?'}retry_limit_seconds={GCS_RETRY_SECONDS}"


@contextmanager
def _as_codec_error(position: int = 0) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise CodecError(Reason.CHANGED_DURING_READ, position, "it is no longer there") from None
    except STORE_ERRORS as error:
        raise CodecError(Reason.UNREADABLE, position, _first_line(error)) from None


def _first_line(error: BaseException) -> str:
    return printable((str(error).splitlines() or [type(error).__name__])[0])


def _mtime_ms(info: Any) -> int:
    return int(info.mtime_ns) // 1_000_000 if info.mtime_ns is not None else 0
