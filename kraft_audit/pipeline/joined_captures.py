"""A history with what earlier captures of its cluster showed: the rules then judge all captures together.

The whole log was read again, so what is on the disks is known from them. Of what is not there any more, earlier
captures say who held which offsets of which epoch (`log_runs`), and a batch that was cut off a log has its own rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kraft_audit.capture.continuity import run_begins
from kraft_audit.capture.log_facts import BATCH_COPIES, LOG_RUNS, OF_CAPTURE
from kraft_audit.capture.log_parts import uncovered
from kraft_audit.capture.plan import Identity, identity_of
from kraft_audit.pipeline.earlier_captures import KEPT_SCHEMAS, EarlierCaptures
from kraft_audit.pipeline.joined_surveys import joined_surveys
from kraft_audit.rules.cluster_history import ClusterHistory, TableRow
from kraft_audit.rules.columns.kept_logs import with_earlier_logs
from kraft_audit.rules.columns.log_runs import BatchSpans
from kraft_audit.tables.bronze import BATCHES, CAPTURES
from kraft_audit.tables.contract import with_column
from kraft_audit.tables.silver import LEADER_EPOCHS, WATERMARKS

_NUMBER: Final = "capture_number"
_NUMBERED: Final = (CAPTURES.name, WATERMARKS.name, BATCHES.name, BATCH_COPIES.name, LOG_RUNS.name)
_Span = tuple[int, int, int]
"""(epoch, from, to): offsets of a log."""


def with_earlier_captures(earlier: EarlierCaptures, own: ClusterHistory, missed: pa.Table) -> ClusterHistory:
    """The history of a plan's own captures, joined to what earlier ones showed.

    Args:
        earlier: what earlier plans kept.
        own: the history of the disks as they are now.
        missed: rows of `batches` that say what this plan no longer finds on a disk that an earlier plan found there.
    """
    first = earlier.capture_count
    tables = {**own.tables, **{name: _numbered_from(first, own.tables[name]) for name in _NUMBERED}}
    for name in (CAPTURES.name, WATERMARKS.name, LOG_RUNS.name):
        tables[name] = _after(earlier.tables[name], tables[name])
    runs = _runs_by_replica(earlier)
    cut_off = [earlier.tables[BATCHES.name], *_as_held_and_missed(_numbered_from(first, missed), runs)]
    surveys = joined_surveys(earlier.tables, own.tables)
    tables |= _with_replaced(tables | surveys, cut_off, runs, first)
    tables |= surveys
    return replace(
        own,
        tables=tables,
        captured_from=first,
        read_disks=with_earlier_logs(own.read_disks, earlier.replica_logs, first),
        _shared={},
    )


def _numbered_from(first: int, table: pa.Table) -> pa.Table:
    """A table with its captures numbered after all earlier ones: each plan begins at 0."""
    numbers = pc.add(table[_NUMBER], first).cast(table.schema.field(_NUMBER).type)
    return with_column(table, _NUMBER, numbers)


def _after(earlier: pa.Table, table: pa.Table) -> pa.Table:
    """Earlier rows, and after them those of this plan."""
    return pa.concat_tables([earlier, table.select(earlier.column_names).cast(earlier.schema)])


def _runs_by_replica(earlier: EarlierCaptures) -> dict[Identity, list[TableRow]]:
    """What each replica held in earlier captures, the oldest first."""
    runs: dict[Identity, list[TableRow]] = defaultdict(list)
    for row in sorted(earlier.tables[LOG_RUNS.name].to_pylist(), key=lambda row: (row["captured_at_ms"], row[_NUMBER])):
        runs[identity_of(row)].append(row)
    return runs


def _as_held_and_missed(missed: pa.Table, runs: Mapping[Identity, Sequence[TableRow]]) -> Iterator[pa.Table]:
    """Of each missed batch a row as the first capture that shows it held it, and the row that says it is gone."""
    schema = KEPT_SCHEMAS[BATCHES.name]
    rows = missed.filter(pc.and_(pc.equal(missed["source"], "log"), missed["valid"])).select(schema.names).to_pylist()
    held = []
    for row in rows:
        since = next((run for run in runs.get(identity_of(row), ()) if _holds(run, row)), None)
        if since is not None:
            held.append({**row, "status": "present", **{name: since[name] for name in ("captured_at_ms", _NUMBER)}})
    yield pa.Table.from_pylist(held, schema)
    yield pa.Table.from_pylist(rows, schema)


def _holds(run: TableRow, batch: TableRow) -> bool:
    is_within = run["from_offset"] <= batch["base_offset"] and batch["last_offset"] < run["to_offset"]
    return bool(is_within and run["leader_epoch"] == batch["leader_epoch"])


def _with_replaced(
    tables: Mapping[str, pa.Table], cut_off: Sequence[pa.Table], runs: Mapping[Identity, Sequence[TableRow]], first: int
) -> dict[str, pa.Table]:
    """`batches` and `batch_copies` with what is cut off, and with what replicas held that their disks hold no more.

    A disk that is replaced holds nothing more, and a log that began again at a snapshot has other records than before.
    Where another disk holds the same batches, copies of those say so. What no disk holds now is one row for each run.
    """
    batches, copies = tables[BATCHES.name], tables[BATCH_COPIES.name]
    known = pa.concat_tables([table.cast(KEPT_SCHEMAS[BATCHES.name]) for table in cut_off])
    held = _held_now(tables, known, first)
    gone = [run for replica in sorted(runs, key=repr) for run in _not_held(runs[replica], held[replica])]
    more: list[TableRow] = []
    lost: list[TableRow] = []
    if gone:
        spans = BatchSpans.of(batches)
        for run in gone:
            there = spans.rows_of(run)
            more += _copies_of(run, there)
            begin = max(run["from_offset"], spans.first_offset)
            lost += [_part(run, *each) for each in uncovered(begin, run["to_offset"], spans.offsets_of(there))]
    lost = list(map(_lost_run, _at_common_offsets(lost)))
    rows = [table for table in (known, pa.Table.from_pylist(lost, KEPT_SCHEMAS[BATCHES.name])) if table.num_rows]
    if rows:
        plain = batches.cast(KEPT_SCHEMAS[BATCHES.name])
        batches = pa.concat_tables([plain, *rows])
    if more:
        copies = pa.concat_tables([copies, pa.Table.from_pylist(more, BATCH_COPIES.schema)])
    return {BATCHES.name: batches, BATCH_COPIES.name: copies}


def _held_now(tables: Mapping[str, pa.Table], cut_off: pa.Table, first: int) -> dict[Identity, list[_Span]]:
    """What each captured replica holds or has cut off, and the log that Kafka has deleted before what it holds."""
    held: dict[Identity, list[_Span]] = defaultdict(list)
    for row in cut_off.to_pylist():
        held[identity_of(row)].append((row["leader_epoch"], row["base_offset"], row["last_offset"] + 1))
    for row in tables[LOG_RUNS.name].to_pylist():
        if row[_NUMBER] >= first:
            held[identity_of(row)].append((row["leader_epoch"], row["from_offset"], row["to_offset"]))
    log = [row for row in tables[LEADER_EPOCHS.name].to_pylist() if row["canonical"] and row["from_offset"] is not None]
    for row in tables[CAPTURES.name].to_pylist():
        start = row["log_start_offset"]
        if row[_NUMBER] >= first and start is not None:
            ends = ((each, start if each["to_offset"] is None else min(each["to_offset"], start)) for each in log)
            held[identity_of(row)] += [(each["epoch"], each["from_offset"], end) for each, end in ends]
    return held


def _not_held(runs: Sequence[TableRow], held: Sequence[_Span]) -> Iterator[TableRow]:
    """The parts of a replica's runs, the oldest first, that are in none of the spans, each once."""
    spans: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for epoch, from_offset, to_offset in held:
        spans[epoch].append((from_offset, to_offset))
    for run in runs:
        for part in uncovered(run["from_offset"], run["to_offset"], spans[run["leader_epoch"]]):
            spans[run["leader_epoch"]].append(part)
            yield _part(run, *part)


def _part(run: TableRow, from_offset: int, to_offset: int) -> TableRow:
    return {**run, "from_offset": from_offset, "to_offset": to_offset}


def _at_common_offsets(runs: Sequence[TableRow]) -> Iterator[TableRow]:
    """The runs in pieces, of which those of one epoch are equal or have no offset in common, as batches do."""
    cuts: dict[int, set[int]] = defaultdict(set)
    for run in runs:
        cuts[run["leader_epoch"]] |= {run["from_offset"], run["to_offset"]}
    for run in runs:
        offsets = sorted(each for each in cuts[run["leader_epoch"]] if run["from_offset"] <= each <= run["to_offset"])
        yield from (_part(run, *each) for each in pairwise(offsets))


def _copies_of(run: TableRow, rows: np.typing.NDArray[np.int64]) -> Iterator[TableRow]:
    """Copies that say that a replica held these rows in the capture of a run."""
    starts = np.flatnonzero(run_begins(rows - np.arange(len(rows))))
    if not len(rows):
        return
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(rows)], strict=True):
        place = {name: run[name] for name in OF_CAPTURE}
        yield {
            **place,
            "file_name": "",
            "first_row": int(rows[start]),
            "batch_count": end - start,
            "position_shift": 0,
        }


def _lost_run(run: TableRow) -> dict[str, Any]:
    """One row of `batches` for offsets whose batches are on no disk any more."""
    nothing = {"is_control": False, "base_timestamp_ms": -1, "max_timestamp_ms": -1, "size_bytes": 0, "position": 0}
    return {
        **{name: run[name] for name in ("node_id", "directory_id", "root", "path", "captured_at_ms", _NUMBER)},
        **nothing,
        "source": "log",
        "file_name": "",
        "base_offset": run["from_offset"],
        "last_offset": run["to_offset"] - 1,
        "leader_epoch": run["leader_epoch"],
        "crc": 0,
        "record_count": 1,
        "valid": True,
        "status": "present",
    }
