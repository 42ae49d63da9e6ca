"""Every system call of a reading fails once: a typed error or a named damage, and no descriptor stays open."""

from __future__ import annotations

import errno
import gc
import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kraft_codec.errors import CodecError, InputError, Reason
from kraft_codec.storage import local
from kraft_codec.storage.local import LocalStorage, reason_text
from kraft_codec.storage.random_access import EntryKind, Limits

WRAPPED = ("open", "stat", "fstat", "preadv", "lseek", "dup")
ERRORS = (errno.EIO, errno.EACCES, errno.ESTALE, errno.ENOENT, errno.ELOOP, errno.ENOTDIR)


class FailingCalls:
    """The module `os`, whose n-th call fails; the calls of a directory's entries are counted with it."""

    def __init__(self, nth: int, error: int) -> None:
        self.nth, self.error, self.count = nth, error, 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(os, name)
        if name not in WRAPPED:
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            self.meet()
            return found(*arguments, **named)

        return call

    def meet(self) -> None:
        self.count += 1
        if self.count == self.nth:
            raise OSError(self.error, os.strerror(self.error))

    def scandir(self, descriptor: int) -> Any:
        self.meet()
        return _Entries(os.scandir(descriptor), self)


class _Entries:
    def __init__(self, found: Any, calls: FailingCalls) -> None:
        self._found, self._calls = found, calls

    def __enter__(self) -> Iterator[Any]:
        return (_entry(entry, self._calls) for entry in self._found)

    def __exit__(self, *_: object) -> None:
        self._found.close()


def _entry(entry: os.DirEntry[str], calls: FailingCalls) -> SimpleNamespace:
    def met(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(**named: Any) -> Any:
            calls.meet()
            return method(**named)

        return call

    methods = {name: met(getattr(entry, name)) for name in ("is_symlink", "is_dir", "is_file", "stat")}
    return SimpleNamespace(name=entry.name, **methods)


def read_all(root: Path, reported: list[Reason]) -> dict[str, bytes]:
    """Every file that the listing names; what could not be listed or read goes to `reported`."""
    found = {}
    try:
        storage = LocalStorage(str(root))
    except InputError:
        reported.append(Reason.UNREADABLE)
        return {}
    with closing(storage):
        folders = [""]
        while folders:
            folder = folders.pop()
            try:
                listing = storage.list_dir(folder)
            except CodecError as error:
                reported.append(error.reason)
                continue
            reported += [damage.reason for damage in listing.damages]
            for entry in listing.entries:
                path = f"{folder}/{entry.name}" if folder else entry.name
                if entry.kind is not EntryKind.FILE:
                    folders.append(path)
                    continue
                try:
                    with storage.open(path) as file:
                        file.next_data(0)
                        found[path] = bytes(file.read_at(0, file.size_bytes))
                        file.change()
                    file.close()
                except CodecError as error:
                    reported.append(error.reason)
    return found


def open_descriptors() -> int:
    gc.collect()  # what other tests dropped is closed by then
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("error", ERRORS, ids=errno.errorcode.get)
def test_each_call_fails_once(small_corpus: Path, monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    """What was read is what is there; what is missing was reported. A failed O_NOATIME is tried again without."""
    root = small_corpus / "torn-write" / "10-short-write-follower" / "node-1"
    whole = read_all(root, [])
    assert len(whole) > 3
    before = open_descriptors()
    nth, met = 0, 0
    while True:
        nth += 1
        calls = FailingCalls(nth, error)
        monkeypatch.setattr(local, "os", calls)
        reported: list[Reason] = []
        found = read_all(root, reported)
        assert len(list(Path("/proc/self/fd").iterdir())) <= before, f"call {nth} left a descriptor open"
        assert found.items() <= whole.items()
        assert found == whole or reported, f"call {nth}: something is missing and nothing says so"
        assert set(reported) <= {Reason.UNREADABLE, Reason.CHANGED_DURING_READ, Reason.HOSTILE_NAME}
        met += bool(reported)
        if calls.count < nth:
            break
    assert met > nth // 3


def test_a_name_that_is_gone_when_it_is_asked_what_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file where a directory was: asked whether it is a link, it is not there any more."""
    (tmp_path / "node").write_text("no directory")
    storage = LocalStorage(str(tmp_path))

    def gone(*_: Any, **__: Any) -> Any:
        raise FileNotFoundError(errno.ENOENT, "gone")

    monkeypatch.setattr(local, "os", SimpleNamespace(**{**vars(os), "stat": gone}))
    with pytest.raises(CodecError) as problem:
        storage.list_dir("node")
    assert problem.value.reason is Reason.CHANGED_DURING_READ
    monkeypatch.undo()
    storage.close()
    storage.close()


def test_a_file_that_becomes_a_device_between_two_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "meta.properties").write_text("version=1\n")
    before = open_descriptors()
    device = Path("/dev/null").stat()
    with closing(LocalStorage(str(tmp_path))) as storage:
        monkeypatch.setattr(local, "os", SimpleNamespace(**{**vars(os), "fstat": lambda _: device}))
        with pytest.raises(CodecError, match="not a regular file"):
            storage.open("meta.properties")
        monkeypatch.undo()
        with pytest.raises(CodecError, match="a directory, not a file"):
            storage.open("")
    assert open_descriptors() == before


def test_more_names_than_are_listed(tmp_path: Path) -> None:
    for number in range(12):
        (tmp_path / f"{number:020}.log").touch()
    with closing(LocalStorage(str(tmp_path), limits=Limits(entry_count=10))) as storage:
        listing = storage.list_dir("")
    assert len(listing.entries) == 10
    assert [str(damage.reason) for damage in listing.damages] == ["LIMIT"]


@pytest.mark.slow
def test_an_archive_whose_system_calls_fail(samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read whole, or the error says which call the system refused."""
    (tmp_path / "bundle.tgz").write_bytes((samples / "elr-06-kill-13-last-replica.tgz").read_bytes())
    whole = _names_of_bundle(tmp_path)
    assert whole
    found = []
    for nth in range(1, 12):
        monkeypatch.setattr(local, "os", FailingCalls(nth, errno.EIO))
        found.append(_names_of_bundle(tmp_path))
        monkeypatch.undo()
    assert {str(error) for error in found} == {str(whole), reason_text(OSError(errno.EIO, "Input/output error"))}


def _names_of_bundle(folder: Path) -> list[str] | str:
    try:
        with closing(LocalStorage(str(folder))) as storage:
            return [entry.name for entry in storage.list_dir("bundle.tgz").entries]
    except (CodecError, InputError) as problem:
        return problem.detail
