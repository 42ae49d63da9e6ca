"""Asks an object store once: a request costs 50 ms and money, and a log dir is many small files.

Folders are listed once. In a folder that was listed an object is opened once; one of at most 64 KiB is fetched whole
and stays in memory. Of larger ones small reads fetch a block, large reads ranges of 8 MiB, the next one while this one
is used. All of it was read after the listing: as long as objects are as they were listed, quorum-state is as good as
read last. Where one is not, what is known of its folder is forgotten, and asked again each time. pyarrow asks for an
object's size before it reads it: that request cannot be saved.
"""

from __future__ import annotations

import base64
import contextlib
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, Final, Self

import pyarrow as pa
from pyarrow import fs

SMALL_BYTES: Final = 64 << 10
RANGE_BYTES: Final = 8 << 20
SMALL_BYTES_KEPT: Final = 32 << 20
AHEAD_BYTES: Final = 64 << 20
"""Of all open objects together; readers of more fetch what they ask for, one request after the other."""
HANDLES_KEPT: Final = 1_000
CARRIED_BYTES: Final = SMALL_BYTES
"""Of one object; larger ones are asked for again."""
CARRIED_BYTES_OF_ALL: Final = 64 << 20
IN_FLIGHT: Final = 16
STORE_ERRORS: Final = (OSError, ValueError, pa.ArrowException)
"""What pyarrow's file systems raise."""
Carried = Mapping[str, Any]
"""`folders`: rows of `_row` by folder; `small`: content in base64 by place."""
NOTHING: Final[Carried] = {"folders": {}, "small": {}}
_CARRIED: Final[dict[str, tuple[int, Carried]]] = {}


class RememberedObjects:
    """A pyarrow file system, as far as reading asks one. What was carried of the `address` is not asked again."""

    def __init__(self, store: Any, address: str) -> None:
        self.plain = store
        self._address = address
        _, carried = _CARRIED.get(address, (0, NOTHING))
        # Of what is remembered: threads that read ahead may forget the same folder at one time
        self._lock = threading.RLock()
        self._listings: dict[str, list[Any]] = {}
        self._infos: dict[str, Any] = {}
        self._handles: OrderedDict[str, Any] = OrderedDict()
        self._small: OrderedDict[str, bytes] = OrderedDict()
        self._small_bytes = 0
        self.ahead_bytes = 0
        self._pool: ThreadPoolExecutor | None = None
        for folder, rows in carried["folders"].items():
            self._keep_listing(folder, [_info(*row) for row in rows])
        for place, content in carried["small"].items():
            self._keep_small(place, base64.b64decode(content))

    @property
    def type_name(self) -> str:
        return str(self.plain.type_name)

    @property
    def pool(self) -> ThreadPoolExecutor:
        """Threads that wait for the store."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(IN_FLIGHT, "object-store")
        return self._pool

    def get_file_info(self, asked: Any) -> Any:
        """The names in a folder, asked once; of one place always what the store says now."""
        if isinstance(asked, str):
            return self._fresh(asked)
        if asked.recursive:
            return self.plain.get_file_info(asked)
        folder = asked.base_dir
        if folder not in self._listings:
            self._keep_listing(folder, list(self.plain.get_file_info(asked)))
        return self._listings[folder]

    def open_input_file(self, place: str) -> Any:
        """An object to read; no more is asked of the store than is needed."""
        with self._lock:
            if place in self._small:
                return _SmallObject(self._small[place], self._infos[place])
        file, info = self._opened(place)
        if info is None:
            return file
        if info.size > SMALL_BYTES:
            return _LargeObject(self, place, info, file)
        content = bytes(file.read_at(info.size, 0)) if info.size else b""
        if len(content) != info.size:
            return file
        with self._lock:
            if place in self._infos:
                self._keep_small(place, content)
        return _SmallObject(content, info)

    def list_ahead(self, folders: Iterable[str], inner: str) -> None:
        """Lists folders together, and in each of them the one named `inner` where there is one.

        What fails is asked again when it is wanted.
        """

        def list_both(folder: str) -> None:
            with contextlib.suppress(*STORE_ERRORS):
                names = {each.base_name for each in self.get_file_info(fs.FileSelector(folder))}
                if inner in names:
                    self.get_file_info(fs.FileSelector(f"{folder}/{inner}"))

        self._together(list_both, [folder for folder in folders if folder not in self._listings])

    def list_trees(self, folders: Iterable[str]) -> None:
        """Lists folders with all that lies below them: a request for each thousand names, and none for a folder."""

        def list_tree(folder: str) -> None:
            with contextlib.suppress(*STORE_ERRORS):
                tree = self.plain.get_file_info(fs.FileSelector(folder, recursive=True))
                inside: dict[str, list[Any]] = {folder: []}
                for info in tree:
                    inside.setdefault(info.path.rpartition("/")[0], []).append(info)
                    if info.type == fs.FileType.Directory:
                        inside.setdefault(info.path, [])
                for path, infos in inside.items():
                    self._keep_listing(path, infos)

        self._together(list_tree, [folder for folder in folders if folder not in self._listings])

    def read_ahead(self, places: Iterable[str]) -> None:
        """Fetches small objects together, which are wanted next. What fails is asked again when it is read."""

        def fetch(place: str) -> None:
            with contextlib.suppress(*STORE_ERRORS), self.open_input_file(place):
                pass

        self._together(fetch, [place for place in dict.fromkeys(places) if place not in self._small])

    def carry(self) -> None:
        """Keeps listings and the smallest objects for the processes that read what was planned from them."""
        small = {
            place: base64.b64encode(content).decode()
            for place, content in self._small.items()
            if len(content) <= CARRIED_BYTES
        }
        size_bytes = sum(map(len, small.values()))
        if size_bytes + sum(held_bytes for held_bytes, _ in _CARRIED.values()) <= CARRIED_BYTES_OF_ALL:
            folders = {folder: [_row(info) for info in infos] for folder, infos in self._listings.items()}
            _CARRIED[self._address] = (size_bytes, {"folders": folders, "small": small})

    def close(self) -> None:
        """Lets go of threads and of what is remembered."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None
        for held in (self._listings, self._infos, self._handles, self._small):
            held.clear()

    def _together(self, ask: Any, places: list[str]) -> None:
        if len(places) == 1:
            ask(places[0])
        elif places:
            list(self.pool.map(ask, places))

    def _opened(self, place: str) -> tuple[Any, Any]:
        """pyarrow's file of an object, and what opening it said of size and time; None where that was nothing."""
        with self._lock:
            file = self._handles.get(place)
            if file is not None:
                return file, self._infos[place]
        file = self.plain.open_input_file(place)
        info = info_of(file, place)
        with self._lock:
            listed = self._infos.get(place)
            if info is not None and listed is not None:
                if _is_same(listed, info):
                    self._handles[place] = file
                    if len(self._handles) > HANDLES_KEPT:
                        self._handles.popitem(last=False)
                else:
                    self._forget(place.rpartition("/")[0])
        return file, info

    def _fresh(self, place: str) -> Any:
        now, known = self.plain.get_file_info(place), self._infos.get(place)
        if known is not None and not _is_same(known, now):
            self._forget(place.rpartition("/")[0])
        return now

    def _forget(self, folder: str) -> None:
        with self._lock:
            self._listings.pop(folder, None)
            for near in [each for each in self._infos if each.rpartition("/")[0] == folder]:
                del self._infos[near]
                self._handles.pop(near, None)
                self._small_bytes -= len(self._small.pop(near, b""))

    def _keep_listing(self, folder: str, infos: list[Any]) -> None:
        with self._lock:
            self._listings[folder] = infos
            for info in infos:
                self._infos[info.path] = info

    def _keep_small(self, place: str, content: bytes) -> None:
        with self._lock:
            self._small_bytes += len(content) - len(self._small.pop(place, b""))
            self._small[place] = content
            while self._small_bytes > SMALL_BYTES_KEPT:
                self._small_bytes -= len(self._small.popitem(last=False)[1])


class _OpenObject:
    """An object as pyarrow's files are read, from a position on."""

    def __init__(self, info: Any) -> None:
        self._info = info
        self._position = 0

    def size(self) -> int:
        return int(self._info.size)

    def metadata(self) -> dict[str, bytes]:
        time = datetime.fromtimestamp(self._info.mtime_ns // 1_000_000_000, UTC)
        return {"Last-Modified": time.strftime("%Y-%m-%dT%H:%M:%SZ").encode()}

    def seek(self, position: int) -> None:
        self._position = position

    def close(self) -> None:
        """Nothing is held open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _SmallObject(_OpenObject):
    """An object in memory. It came in one answer, so that nothing changed meanwhile."""

    is_whole: Final = True

    def __init__(self, content: bytes, info: Any) -> None:
        super().__init__(info)
        self._content = content

    def readinto(self, view: Any) -> int:
        part = self._content[self._position : self._position + len(view)]
        view[: len(part)] = part
        self._position += len(part)
        return len(part)

    def read(self) -> bytes:
        part = self._content[self._position :]
        self._position = len(self._content)
        return part


class _LargeObject(_OpenObject):
    """An object read by ranges; `_ranges` are those fetched or being fetched, by where they begin."""

    def __init__(self, store: RememberedObjects, place: str, info: Any, file: Any) -> None:
        super().__init__(info)
        self._store = store
        self._place = place
        self._file = file
        self._ranges: dict[int, tuple[int, Future[bytes] | bytes]] = {}

    def readinto(self, view: Any) -> int:
        """As many bytes as one range has of those that are wanted; 0 at the end."""
        at, wanted = self._position, len(view)
        if at >= self.size() or not wanted:
            return 0
        start, content = self._range_at(at, wanted)
        part = content[at - start : at - start + wanted]
        view[: len(part)] = part
        self._position += len(part)
        return len(part)

    def read(self) -> bytes:
        buffer = bytearray(self.size() - self._position)
        view, done = memoryview(buffer), 0
        while done < len(buffer) and (count := self.readinto(view[done:])):
            done += count
        return bytes(buffer[:done])

    def close(self) -> None:
        for start in list(self._ranges):
            self._drop(start)

    def _range_at(self, position: int, wanted: int) -> tuple[int, bytes]:
        """(start, bytes) of the range that holds a position; ranges before it are let go, the next one is begun."""
        held = next((start for start, (size, _) in self._ranges.items() if start <= position < start + size), None)
        if held is None:
            for start in list(self._ranges):
                self._drop(start)
            held = position
            self._begin(position, RANGE_BYTES if wanted >= SMALL_BYTES else SMALL_BYTES, is_next=False)
        size, content = self._ranges[held]
        following = held + size
        if size >= RANGE_BYTES and following < self.size() and following not in self._ranges:
            self._begin(following, RANGE_BYTES, is_next=True)
        for start in [each for each in self._ranges if each < held]:
            self._drop(start)
        if isinstance(content, Future):
            content = content.result()
            self._ranges[held] = (size, content)
        return held, content

    def _begin(self, start: int, length: int, *, is_next: bool) -> None:
        size = min(length, self.size() - start)
        if is_next:
            if self._store.ahead_bytes + size > AHEAD_BYTES:
                return
            self._ranges[start] = (size, self._store.pool.submit(self._fetch, start, size))
        else:
            self._ranges[start] = (size, self._fetch(start, size))
        self._store.ahead_bytes += size

    def _drop(self, start: int) -> None:
        size, content = self._ranges.pop(start)
        self._store.ahead_bytes -= size
        if isinstance(content, Future):
            content.cancel()

    def _fetch(self, start: int, size: int) -> bytes:
        try:
            return bytes(self._file.read_at(size, start))
        except STORE_ERRORS:
            now = self._store.get_file_info(self._place)
            if now.type != fs.FileType.File:
                raise FileNotFoundError(self._place) from None
            if now.size < start + size:
                return b""
            raise


def accept_carried(given: Mapping[str, Carried]) -> None:
    """Takes over what the process that planned has carried, as JSON has it, and nothing else."""
    _CARRIED.clear()
    _CARRIED.update((address, (0, carried)) for address, carried in given.items())


def take_carried(addresses: Iterable[str]) -> dict[str, Carried]:
    """What was carried of these addresses, for JSON; it is kept no longer."""
    return {address: _CARRIED.pop(address)[1] for address in set(addresses) if address in _CARRIED}


def info_of(file: Any, place: str) -> Any:
    """What opening an object said of it, which saves a request each time; None where a store says less than S3."""
    modified = (file.metadata() or {}).get("Last-Modified", b"")
    try:
        time = datetime.strptime(modified.decode(), "%Y-%m-%dT%H:%M:%S%z")
    except ValueError:
        return None
    mtime_ns = int(time.timestamp()) * 1_000_000_000
    return fs.FileInfo(place, fs.FileType.File, size=file.size(), mtime_ns=mtime_ns)


def _is_same(known: Any, now: Any) -> bool:
    return bool((known.type, known.size) == (now.type, now.size)) and known.mtime_ns == now.mtime_ns


def _row(info: Any) -> tuple[str, bool, int | None, int | None]:
    return info.path, info.type == fs.FileType.Directory, info.size, info.mtime_ns


def _info(path: str, is_folder: bool, size: int | None, mtime_ns: int | None) -> Any:  # a row of JSON
    if is_folder:
        return fs.FileInfo(path, fs.FileType.Directory)
    return fs.FileInfo(path, fs.FileType.File, size=size, mtime_ns=mtime_ns)
