"""How far a captured disk counts, by what was read of it."""

from __future__ import annotations

import pytest

from kraft_audit.capture.disk_trust import DiskTrust, trust_of


@pytest.mark.parametrize(
    ("doubt", "end_offset", "snapshot_end", "bytes_unread", "expected"),
    [
        (None, 40, None, 0, DiskTrust.READ),
        (None, None, 40, 0, DiskTrust.READ),
        (None, 40, None, 9, DiskTrust.READ),
        (None, 0, None, 0, DiskTrust.EMPTY),
        (None, None, None, 0, DiskTrust.EMPTY),
        (None, None, 40, 9, DiskTrust.UNREAD),
        ("the log ends with epoch 5", 40, 40, 0, DiskTrust.SUSPECT),
        ("the log ends with epoch 5", None, None, 9, DiskTrust.SUSPECT),
    ],
)
def test_trust(
    doubt: str | None, end_offset: int | None, snapshot_end: int | None, bytes_unread: int, expected: DiskTrust
) -> None:
    assert trust_of(doubt, end_offset, snapshot_end, bytes_unread) is expected


def test_what_counts() -> None:
    assert [trust for trust in DiskTrust if trust.counts] == [DiskTrust.READ, DiskTrust.EMPTY]
