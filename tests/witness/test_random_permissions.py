"""What `may-i` says of random quorums: no yes loses a record, each election that a no names does, little is undecided.

Static and dynamic quorums of one to five voters, configurations that agree, differ or are unknown, disks that were
wiped or not read, an earlier capture or none.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.witness.random_permissions import NEEDLESS_MAX, asked


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(200), marks=pytest.mark.slow),
        pytest.param(range(200, 2_000), marks=pytest.mark.long),
    ],
    ids=["200", "2000"],
)
def test_every_answer_about_a_random_quorum_holds(seeds: range) -> None:
    counts: Counter[str] = Counter()
    assert [text for seed in seeds for text in asked(seed, counts)] == []
    assert counts["yes played"] >= len(seeds) // 2, counts
    assert min(counts["no played"], counts["different voters"], counts["outages"]) >= len(seeds) // 10, counts
    assert counts["all read"] >= len(seeds) // 2, counts
    assert min(counts[f"{action} yes"] for action in ("format", "scale-in", "roll")) >= len(seeds) // 20, counts
    assert counts["needless"] <= NEEDLESS_MAX * counts["all read"], counts
    assert counts["needless, static"] == 0, counts
