"""Refuses disks that a broker of this machine runs on: it truncates and deletes while they are read."""

from __future__ import annotations

from collections.abc import Sequence

from kraft_audit.recovery.lost_quorum.own_log import lock_holder
from kraft_audit.recovery.salvage.held_logs import SalvageableLoss
from kraft_codec.errors import InputError
from kraft_codec.storage.opener import JoinedStorage, file_path
from kraft_codec.storage.random_access import Storage, join


class LiveDiskError(InputError):
    """A log dir that a process holds: nothing is read of it."""


def refuse_live(storage: Storage, root: str, found: Sequence[SalvageableLoss]) -> None:
    """Raises LiveDiskError for the first log dir to be read whose `.lock` a process of this machine holds."""
    for folder in dict.fromkeys(held.log.path.rpartition("/")[0] for each in found for held in each.logs):
        shown = storage.path_as_given(folder) if isinstance(storage, JoinedStorage) else join(root, folder)
        local = file_path(shown) or shown
        holder = lock_holder(local)
        if holder is not None:
            raise LiveDiskError(local, f"process {holder} holds its .lock: stop the broker, or copy the log dir first")
