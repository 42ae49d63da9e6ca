"""What the lost part of a log says of the brokers that go on with the rescued state."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from kraft_audit.recovery.lost_quorum.lost_part import dropped_replicas


def state_with(isr: Sequence[int], elr: Sequence[int], replicas: Sequence[int] = (11, 12, 13)) -> Any:
    """A state with one partition."""
    row = {"topic_id": "a", "topic": "t", "partition": 0, "isr": isr, "elr": elr, "replicas": replicas}
    return SimpleNamespace(existing=lambda table: [row] if table == "partition_changes" else [])


@pytest.mark.parametrize(
    ("isr", "elr", "replicas", "dropped"),
    [
        ([11, 12, 13], [], (11, 12, 13), ()),
        ([11], [], (11, 12, 13), (12, 13)),
        ([11], [12], (11, 12, 13), (13,)),
        ([], [12], (11, 12, 13), (11, 13)),
        ([11], [], (11, 13, 14), (13,)),
        ([], [], (11, 12, 13), ()),
    ],
)
def test_a_replica_was_dropped_where_another_one_is_left_in_sync(
    isr: list[int], elr: list[int], replicas: tuple[int, ...], dropped: tuple[int, ...]
) -> None:
    """Where nobody is left in ISR or ELR, none of them is known to lack what another one has."""
    found = dropped_replicas(state_with([11, 12], [13]), state_with(isr, elr, replicas))
    assert found == dict.fromkeys(dropped, ("t-0",))
