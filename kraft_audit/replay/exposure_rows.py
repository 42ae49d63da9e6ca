"""The rows of `exposure_changes`: of the rows of `partition_changes` those of exposed partitions, narrow.

Few partitions are ever exposed. What asks only for these need not read every change of every partition.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kraft_audit.replay.kernels import layout
from kraft_audit.replay.tables import EXPOSURE_CHANGES, PARTITION_CHANGES
from kraft_codec.tables import build_batch

_FLAGS: Final = {
    "is_last_replica": layout.LAST_REPLICA,
    "is_offline": layout.OFFLINE,
    "is_under_min_isr": layout.UNDER_MIN_ISR,
}
_COPIED: Final = [name for name in EXPOSURE_CHANGES.column_names if name in PARTITION_CHANGES.column_names]

Cells = npt.NDArray[np.int32]


def exposure_rows(changes: pa.RecordBatch, output: Cells, arena: Cells, *, is_every: bool) -> pa.RecordBatch:
    """The changes after or before which a partition is exposed, or `is_every` change, as a batch of the table.

    `output` are the kernel's rows that `changes` were made of, (rows, OUTPUT_CELLS), with their lists in `arena`.
    """
    chosen = np.arange(len(output)) if is_every else np.flatnonzero(output[:, layout.EXPOSURE])
    kept = changes.select(_COPIED).take(pa.array(chosen))
    columns: dict[str, Any] = {name: kept.column(name) for name in _COPIED}
    exposure = output[chosen, layout.EXPOSURE]
    for name, flag in _FLAGS.items():
        columns[name] = pa.array((exposure & flag) != 0)
    keepers = _keepers(output[chosen], arena)
    columns["keeper_id"] = pa.array(keepers, pa.int32(), mask=keepers < 0)
    return build_batch(EXPOSURE_CHANGES, columns, len(chosen))


def _keepers(output: Cells, arena: Cells) -> Cells:
    """The leader, else the first of the ISR, else of the ELR; negative where there is none."""
    keepers = output[:, layout.LEADER].copy()
    for number in (layout.ISR, layout.ELR):
        cells = output[:, layout.LISTS + 2 * number : layout.LISTS + 2 * number + 2]
        lacking = np.flatnonzero((keepers < 0) & (cells[:, 1] > 0))
        keepers[lacking] = arena[cells[lacking, 0]]
    return keepers
