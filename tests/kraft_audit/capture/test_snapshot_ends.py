"""Exactly where a snapshot above its own log is borne out by another disk's log."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from kraft_audit.capture.borne_snapshots import doubt_unborne_snapshots

SNAPSHOT = (100, 2)


def disk(node: int, end: int, *, snapshots: Sequence[tuple[int, int]] = (), began: int = 40) -> Any:
    """A replica whose log begins with epoch 1 and goes on with epoch 2 at `began`."""
    log = SimpleNamespace(end_offset=end, last_epoch=2, epoch_starts=((1, 0), (2, began)))
    plan = SimpleNamespace(identity=(node, "", ""))
    return SimpleNamespace(plan=plan, log=log, snapshots=list(snapshots), doubt=None, claimed_end=None)


@pytest.mark.parametrize(
    ("own_end", "other", "is_doubted"),
    [
        (101, disk(2, 50), False),
        (100, disk(2, 50), False),
        (99, disk(2, 50), True),
        (99, disk(2, 99), True),
        (99, disk(2, 100), False),
        (99, disk(2, 101), False),
        (99, disk(2, 101, began=99), False),
        (99, disk(2, 101, began=100), True),
        (99, disk(2, 50, snapshots=[SNAPSHOT]), False),
        (99, disk(2, 50, snapshots=[(100, 1)]), True),
        (99, disk(1, 101), False),
    ],
)
def test_what_bears_out_a_snapshot(own_end: int, other: Any, is_doubted: bool) -> None:
    """The last case is a second copy of the same disk: there is no other one to ask."""
    own = disk(1, own_end, snapshots=[SNAPSHOT])
    doubt_unborne_snapshots([own, other])
    assert (own.doubt is not None) is is_doubted
    assert own.snapshots == ([] if is_doubted else [SNAPSHOT])
    assert own.claimed_end == ((2, 100) if is_doubted else None)
