"""What `may-i` says of random incidents of a quorum, against what the engine then does to the log.

After yes no committed record is ever missing in a leader's log, whatever happens. After no the election that is printed
is played, and loses the record that it names. Anything else is undecided, which is rare where all disks are at rest.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.witness.recovery_seeds import broken_ceilings, play, play_all
from tests.witness.runs import regressions, seed_count

pytestmark = pytest.mark.slow

ACTIONS = ("start", "restart", "wipe", "scale-in", "delete-volume")


def test_yes_loses_nothing_and_no_names_an_election_that_loses() -> None:
    found = play_all(range(seed_count(200)))
    assert found.disagreements == ()
    counts = found.counts
    assert list(broken_ceilings(counts)) == []
    seeds = counts["seeds"]
    assert min(counts["at rest"], counts["asked at rest"] // 4, counts["schedules played"] * 2) >= seeds // 4, counts
    assert sum(counts[f"{action} allowed, played"] for action in ACTIONS) >= seeds // 2, counts
    for action in ACTIONS:
        assert counts[f"{action} yes"], counts
        assert counts[f"{action} no"], counts
        assert counts[f"{action} allowed, played"], counts
    assert counts["start yes"] >= counts["start undecided"], counts


@pytest.mark.parametrize("row", regressions("recovery_seeds"), ids=lambda row: str(row["seed"]))
def test_a_seed_that_disagreed_once(row: dict[str, Any]) -> None:
    assert play(row["seed"]).disagreements == ()
