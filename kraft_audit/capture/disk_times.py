"""When disks were surely still written to: it shows that a copy is not older than something else that happened.

`meta.properties` says when it was formatted. File times say more where copying kept them, which shows where logs were
last written about when their last record was.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Final

from kraft_audit.capture.replica import Replica
from kraft_codec.file_names import FileKind, printable
from kraft_codec.files.properties import written_ms

KEPT_WITHIN_MS: Final = 60_000
"""A follower writes a record soon after the leader stamped it; clocks differ a little."""


def written_times_ms(replicas: Iterable[Replica]) -> dict[tuple[str, str], int]:
    """By root and path of a replica, as in `captures`: the newest time at which something on its disk was written."""
    times: dict[tuple[str, str], int] = {}
    ordered = sorted(replicas, key=_place)
    for _, group in groupby(ordered, key=_place):
        members = list(group)
        are_kept = _are_kept(members)
        for replica in members:
            formatted_ms = None if replica.meta is None else written_ms(replica.meta)
            files_ms = [file.mtime_ms for file in replica.plan.files] if are_kept else []
            known = [time_ms for time_ms in (formatted_ms, *files_ms) if time_ms is not None]
            if known:
                times[printable(replica.plan.root), printable(replica.plan.path)] = max(known)
    return times


def _place(replica: Replica) -> tuple[str, str]:
    return (replica.plan.root, replica.plan.capture)


def _are_kept(replicas: Iterable[Replica]) -> bool:
    """Whether each log that holds records was last written when its newest record was appended."""
    offsets_ms = []
    for replica in replicas:
        segments = replica.files_of(FileKind.SEGMENT)
        if replica.log is not None and replica.log.last_timestamp_ms is not None and segments:
            newest = max(segments, key=lambda file: file.base_offset or 0)
            offsets_ms.append(abs(newest.mtime_ms - replica.log.last_timestamp_ms))
    return bool(offsets_ms) and max(offsets_ms) <= KEPT_WITHIN_MS
