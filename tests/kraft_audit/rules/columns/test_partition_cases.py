"""The evidence of many cases is put into words together, whichever is asked for first."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import kraft_audit
from kraft_audit.rules.columns import partition_cases as module
from kraft_audit.rules.columns.partition_cases import partition_cases
from kraft_audit.rules.columns.partition_states import Episode, PartitionStates, partition_states

pytestmark = pytest.mark.unit


def test_evidence_is_made_once_in_any_order(samples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Findings are sorted by severity and subject: neighbours in a list are none among the rows."""
    with kraft_audit.open(str(samples / "elr-06-kill-13-last-replica.tgz")) as (cluster,):
        states = partition_states(cluster.history)
    rows = [row for row in range(len(states)) if not states.is_last[row]]
    episodes = [Episode(row, row + 1 if row % 3 else None) for row in rows]
    asked: list[int] = []
    descriptions = PartitionStates.descriptions

    def counted(self: PartitionStates, wanted: module.Rows) -> list[str]:
        asked.extend(wanted.tolist())
        return descriptions(self, wanted)

    monkeypatch.setattr(module, "CASES_AT_ONCE", 4)
    monkeypatch.setattr(PartitionStates, "descriptions", counted)
    cases = list(partition_cases(states, episodes, [("a summary", None)] * len(episodes)))
    assert asked == []
    for place in random.Random(1).sample(range(len(cases)), len(cases)):  # noqa: S311
        first, *ending = cases[place].evidence
        row, end = episodes[place]
        state = states.describe(row)
        assert (first.text, first.after) == (state, f"{state} ({states.cause(row)})")
        assert first.before == (None if states.is_first[row] else states.describe(row - 1))
        assert (first.offset, first.epoch) == (states.from_offset[row], states.leader_epoch[row])
        if end is None:
            assert ending == []
        else:
            was = states.describe(end) if states.exists[end] else "the topic was removed"
            assert [fact.text for fact in ending] == [f"resolved: {was} ({states.cause(end)})"]
    befores = sum(not states.is_first[row] for row in rows)
    assert len(asked) == len(rows) + befores + sum(end is not None for _, end in episodes)
