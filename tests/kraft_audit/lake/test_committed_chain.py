"""The committed batches of a lake end where the log is proven committed."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

import kraft_audit
from kraft_audit.lake.committed_chain import lake_batches
from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.ledger import Ledger
from tests.builders.lakes import write_fleet


@pytest.mark.slow
def test_a_batch_at_the_committed_end_is_not_committed(
    small_corpus: Path, tmp_path: Path, without_spark: ModuleType
) -> None:
    """The last record of the log, alone in its batch, is on too few disks."""
    disks = small_corpus / "dynamic-quorum" / "13-final-stopped"
    fleet = write_fleet(tmp_path, {"one": [disks]})
    without_spark.run(fleet)
    with kraft_audit.open(str(disks)) as (cluster,):
        low, ends = cluster.committed_low, [row["log_end_offset"] for row in cluster.history.rows("captures")]
        lake = DeltaLake(fleet.lake)
        found = lake_batches(lake, cluster.cluster_id, Ledger(lake).status().done)
    assert max(ends) == low + 1
    assert int(found.last_offset.max()) == low - 1
