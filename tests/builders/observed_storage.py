"""A storage whose calls a test sees, and may let fail."""

from __future__ import annotations

from collections.abc import Callable

from kraft_codec.storage.random_access import Buffer, Listing, RandomAccess, Storage

Seen = Callable[[str, str, int], None]
"""Called with "list", "open" or "read", the path, and how many bytes are read."""


def unseen(_: str, __: str, ___: int) -> None:
    """Where a test looks at nothing."""


def observed(storage: Storage, before: Seen = unseen, after_read: Seen = unseen) -> Storage:
    """The storage, which calls `before` ahead of each call and `after_read` behind each reading of bytes."""
    list_dir, opened = storage.list_dir, storage.open

    def listed(path: str) -> Listing:
        before("list", path, 0)
        return list_dir(path)

    def open_file(path: str, planned_size_bytes: int | None = None) -> RandomAccess:
        before("open", path, 0)
        file = opened(path, planned_size_bytes)
        read = file.read_into

        def read_into(position: int, buffer: Buffer) -> None:
            before("read", path, len(buffer))
            read(position, buffer)
            after_read("read", path, len(buffer))

        file.read_into = read_into  # type: ignore[method-assign]
        return file

    storage.list_dir, storage.open = listed, open_file  # type: ignore[method-assign]
    return storage
