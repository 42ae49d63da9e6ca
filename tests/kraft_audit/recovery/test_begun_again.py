"""Which logs of nodes that are gone are left out of a rescue: those that share no batch with any other."""

from __future__ import annotations

from pathlib import Path

import kraft_audit
from kraft_audit.recovery.lost_quorum.begun_again import without_new_logs


def test_a_log_that_shares_batches_stays_a_copy(small_corpus: Path) -> None:
    """A node that is gone and was captured before may hold the best copy."""
    folder = small_corpus / "divergence" / "10-uncommitted-suffix-live"
    with kraft_audit.open(str(folder)) as clusters:
        (cluster,) = clusters
        for gone in ((), (1,), (1, 2), (1, 2, 3)):
            assert without_new_logs(cluster.survey, cluster.plan, gone) is None
