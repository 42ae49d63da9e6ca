"""What goes from one task to another beside a history's tables is what the history says."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from kraft_audit.capture.altered_batches import AlteredBatches
from kraft_audit.capture.plan import ClusterPlan, ReplicaPlan
from kraft_audit.rules.carried.carried_rows import facts_of, history_from
from kraft_audit.rules.cluster_history import ClusterHistory, Contradiction, OpenEpisodes, OperatorWord, SnapshotCheck
from kraft_audit.rules.columns.partition_parts import PartitionParts
from kraft_audit.tables.kept_parts import KeptPartsError
from kraft_codec.schemas import Dialect

HOLDER = ReplicaPlan("/root", "node-1", "", 0, 7, "c", 1, "d", (), newest_snapshot=(40, 2))
PLAN = ClusterPlan(3, "name", "c", "kip853", (HOLDER,), defaults=(("min.insync.replicas", "2"),), gone=(4,))
NOT_SENT = frozenset({"tables", "carried", "as_of_ms", "parts_to", "is_part", "_shared", "_of_partitions", "parts"})
"""Fields that go elsewhere, or that a history that was just read does not have."""


def history() -> ClusterHistory:
    parts = PartitionParts()
    parts.last_offset = 77
    return ClusterHistory(
        "c",
        {},
        Dialect.KIP853,
        {"min.insync.replicas": "2"},
        (Contradiction(5, "a problem", "broker 1"),),
        (SnapshotCheck(40, 2, ("t-0 differs",), "/root", (HOLDER,), False),),
        is_complete=False,
        states_from=3,
        undecoded_from=9,
        parts=parts,
        gaps=((10, 12), (20, 21)),
        altered=(AlteredBatches(1, 2, 3, ((HOLDER,), (HOLDER, HOLDER)), True, False),),
        operator=OperatorWord(False, frozenset({4})),
        written_ms={("/root", "node-1"): 8},
        snapshot_times_ms={40: 1_000},
        history_id="c",
    )


def test_every_field_arrives() -> None:
    sent = history()
    arrived = history_from(facts_of(sent), PLAN, {})
    for field in fields(ClusterHistory):
        if field.name not in NOT_SENT:
            assert getattr(arrived, field.name) == getattr(sent, field.name), field.name
    assert arrived.parts is not None
    assert arrived.parts.last_offset == 77
    assert list(arrived.parts.tables()) == []


def test_what_was_not_compared_stays_unknown() -> None:
    sent = replace(history(), contradictions=None, snapshot_checks=None, altered=None, parts=None)
    arrived = history_from(facts_of(sent), PLAN, {})
    assert (arrived.contradictions, arrived.snapshot_checks, arrived.altered, arrived.parts) == (None,) * 4


def test_a_history_that_goes_on_is_not_sent() -> None:
    with pytest.raises(ValueError, match="cannot be judged elsewhere"):
        facts_of(replace(history(), carried=OpenEpisodes(1, None, {})))


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", facts_of(history())[:-2]])
def test_other_bytes_are_refused(content: bytes) -> None:
    with pytest.raises(KeptPartsError, match="the facts of a history cannot be read"):
        history_from(content, PLAN, {})
