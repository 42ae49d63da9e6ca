"""A random run with everything that the comparisons ask of it: what happened, what was read, who surely held what."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import pyarrow.compute as pc

from kraft_audit.replay.cluster_replay import REPLAY_TABLES
from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_engine.consensus.log_batches import Batch
from kraft_engine.runs.kafka_run import KafkaRun
from kraft_engine.runs.schedule import RandomRun
from kraft_engine.runs.simulate import random_run, record_run
from tests.builders.sure_holders import SureHolders
from tests.witness.audited import Audited
from tests.witness.comparison import agreed_end
from tests.witness.truth import Truth


@dataclass(frozen=True)
class Played:
    """One random run: its truth, what the audit read of its captures, and the batches that were committed."""

    event_count: int
    truth: Truth
    audited: Audited
    batches: list[Batch]

    @cached_property
    def committed_end(self) -> int:
        """Up to where what was captured is what was committed."""
        return agreed_end(self.truth, self.audited)

    @cached_property
    def reached(self) -> int:
        """Up to where that was captured."""
        return min(self.audited.canonical_end, self.committed_end)

    @cached_property
    def history(self) -> ClusterHistory:
        """The audit's history without the states above the truth's last commit, which may or may not have happened."""
        history = self.audited.history
        cut = {
            name: table.filter(pc.less(table["from_offset"], self.committed_end))
            for name, table in history.tables.items()
            if name in REPLAY_TABLES
        }
        return replace(history, tables={**history.tables, **cut}, _shared={})

    @cached_property
    def holders(self) -> SureHolders:
        """Who surely held everything, of what was captured without a gap."""
        return SureHolders(self.audited.replay_start).read(self.batches, to_offset=self.reached)


def play(
    scenario: str, seed: int, out: Path, *, run: KafkaRun | RandomRun | None = None, is_judged: bool = False
) -> Played:
    """Plays one seed of a random kind, every invariant on, or a run of that kind that was built otherwise."""
    run = random_run(scenario, seed) if run is None else run
    played = record_run(run, scenario, seed, out)
    truth = Truth.of(out)
    audited = Audited.of(out, is_judged=is_judged)
    return Played(played.event_count, truth, audited, run.invariants.ledger.batches)
