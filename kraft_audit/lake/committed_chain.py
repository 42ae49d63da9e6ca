"""The identity chain of the committed batches that a lake has read, compared with the one in an evidence pack.

The table `batches` has each batch of each disk as it was read first. History that was rewritten on the disks since then
has another chain in a pack, and history that was rewritten in the lake has another one than a pack of before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kraft_audit.capture.continuity import run_begins
from kraft_audit.capture.plan import cluster_id_of
from kraft_audit.findings.pack.batch_chain import CommittedBatches, chain_rows
from kraft_audit.lake.closed_plans import ClosedPlans
from kraft_audit.lake.delta import sql_text
from kraft_audit.lake.lake import Lake
from kraft_audit.lake.ledger import Ledger
from kraft_audit.lake.views import newest_batches, query_of
from kraft_audit.tables.bronze import BATCH_KEY, BATCHES
from kraft_audit.tables.silver import LEADER_EPOCHS, REPLAYS, WATERMARKS
from kraft_audit.text.readable import offset_span

_COMMITTED: Final = """
WITH watermark AS (
    SELECT max(low) AS low FROM ({watermarks}) AS every_watermark WHERE cluster_id = {history}
),
canonical AS (
    SELECT epoch, min(from_offset) AS from_offset, max(to_offset) AS to_offset FROM ({epochs}) AS every_epoch
    WHERE cluster_id = {history} AND canonical AND from_offset IS NOT NULL GROUP BY epoch
),
versions AS (
    SELECT base_offset, last_offset, leader_epoch, crc, count(*) AS disks FROM ({held}) AS held
    WHERE cluster_id = {history} GROUP BY base_offset, last_offset, leader_epoch, crc
)
SELECT versions.* FROM versions
JOIN canonical ON versions.leader_epoch = canonical.epoch
    AND versions.base_offset >= canonical.from_offset AND versions.base_offset < canonical.to_offset
CROSS JOIN watermark
WHERE versions.last_offset < watermark.low
ORDER BY base_offset, disks DESC, crc
"""


@dataclass(frozen=True, slots=True)
class ChainComparison:
    """How many blocks of a pack are as in the lake, how many the lake does not have whole, and what contradicts it.

    `to_offset` is the end of the last block that is as in the lake; None where none is.
    """

    equal: int
    not_in_lake: int
    to_offset: int | None
    contradictions: tuple[str, ...]


def compare_chain(lake: Lake, cluster_id: str, rows: Sequence[Mapping[str, Any]]) -> ChainComparison:
    """The rows of a pack's `chain.jsonl` against the histories that a lake has of this cluster id: the one that fits.

    Raises InputError where the lake cannot be read.
    """
    closed = Ledger(lake).status().done
    compared = [
        _compared(lake_batches(lake, history, closed), rows) for history in _histories(lake, cluster_id, closed)
    ]
    nothing = ChainComparison(0, sum("from_offset" in row for row in rows), None, ())
    return max(compared, key=lambda each: (each.equal, -len(each.contradictions)), default=nothing)


def lake_batches(lake: Lake, history: str, closed: ClosedPlans) -> CommittedBatches:
    """The committed batches of a history as closed plans read them; of several versions the one of most disks."""
    tables = (BATCHES.name, LEADER_EPOCHS.name, REPLAYS.name, WATERMARKS.name)
    query = _COMMITTED.format(
        history=sql_text(history),
        watermarks=query_of(WATERMARKS.name, str, closed),
        epochs=query_of(LEADER_EPOCHS.name, str, closed),
        held=newest_batches(query_of(BATCHES.name, str, closed)),
    )
    rows = lake.query(query, *tables)
    columns = [_int64(rows, name) for name in BATCH_KEY]
    is_first = run_begins(columns[0])
    return CommittedBatches(*(column[is_first] for column in columns))


def _int64(table: pa.Table, name: str) -> Any:
    return table[name].to_numpy().astype(np.int64)


def _histories(lake: Lake, cluster_id: str, closed: ClosedPlans) -> list[str]:
    query = f"SELECT DISTINCT cluster_id FROM ({query_of(BATCHES.name, str, closed)}) AS known ORDER BY cluster_id"  # noqa: S608
    return [
        each for each in lake.query(query, BATCHES.name)["cluster_id"].to_pylist() if cluster_id_of(each) == cluster_id
    ]


def _compared(batches: CommittedBatches, rows: Iterable[Mapping[str, Any]]) -> ChainComparison:
    equal, not_in_lake, to_offset = 0, 0, None
    contradictions = []
    for row in rows:
        if "from_offset" not in row:
            continue
        block = _block(batches, row["from_offset"], row["to_offset"])
        if block is None:
            not_in_lake += 1
        elif block == row["identity_block"]:
            equal, to_offset = equal + 1, max(to_offset or 0, row["to_offset"])
        else:
            whose = "the pack" if row["path"] is None else _disk(row)
            span = offset_span(row["from_offset"], row["to_offset"])
            contradictions.append(f"{span}: {whose} has other committed batches than the lake read")
    return ChainComparison(equal, not_in_lake, to_offset, tuple(contradictions))


def _disk(row: Mapping[str, Any]) -> str:
    return f"the replica at {row['path'] or row['root']}" if row["node_id"] is None else f"node {row['node_id']}"


def _block(batches: CommittedBatches, from_offset: int, to_offset: int) -> str | None:
    """The block's value of the identity chain in the lake; None where the lake does not have all of its offsets.

    Empty where the lake's batches begin or end elsewhere: then they are others.
    """
    first = int(np.searchsorted(batches.last_offset, from_offset))
    end = int(np.searchsorted(batches.base_offset, to_offset))
    columns = (batches.base_offset, batches.last_offset, batches.leader_epoch, batches.crc)
    part = CommittedBatches(*(column[first:end] for column in columns))
    is_whole = len(part) > 0 and not (part.base_offset[1:] != part.last_offset[:-1] + 1).any()
    if not is_whole or part.base_offset[0] > from_offset or part.last_offset[-1] < to_offset - 1:
        return None
    if part.base_offset[0] != from_offset or part.last_offset[-1] != to_offset - 1:
        return ""
    values = [row["identity_block"] for row in chain_rows(part)]
    return str(values[0]) if len(values) == 1 else ""
