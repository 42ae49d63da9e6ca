"""What surveys say of leader epochs and voter sets, joined: earlier rows, and those of the disks as they are now.

Kafka deletes the records that these rows came from, so a later survey may not reach them any more.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kraft_audit.quorum.quorum_tables import epochs_in_order, in_sequence, persisted_leaders, rows_without_records
from kraft_audit.quorum.voter_history import BOOTSTRAP_OFFSET, STATIC
from kraft_audit.rules.cluster_history import TableRow
from kraft_audit.tables.bronze import TRUNCATED
from kraft_audit.tables.silver import LEADER_EPOCHS, SNAPSHOT, VOTER_SETS, WITHDRAWN, WITHOUT_LEADER

SURVEY_KEYS: Final = {VOTER_SETS.name: ("from_offset", "from_epoch"), LEADER_EPOCHS.name: ("from_offset", "epoch")}
"""What makes a row's key. Rows that a later survey does not have are added to it."""


def joined_surveys(earlier: Mapping[str, pa.Table], tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """The rows of a later survey, with those that it does not reach; what it contradicts is not on the log any more."""
    epochs = tables["leader_epochs"].to_pylist()
    runs = [row for row in epochs if row["canonical"] and row["from_offset"] is not None]
    runs.sort(key=itemgetter("from_offset"))
    joined = {}
    for name, key in SURVEY_KEYS.items():
        rows, later = earlier[name].to_pylist(), tables[name].to_pylist()
        if name == LEADER_EPOCHS.name:
            rows = [row for row in rows if not _is_before_log(row, runs)]
            led = _led_beyond(rows, runs)
            later = [row for row in later if row["ended_by"] != WITHOUT_LEADER or row["epoch"] not in led]
        if runs:
            rows = _on_log(rows, later, key, runs)
        else:
            # Without a canonical log a survey says nothing of what is on it.
            known = {tuple(row[column] for column in key) for row in rows}
            rows += [row for row in later if tuple(row[column] for column in key) not in known]
            if name == LEADER_EPOCHS.name:
                rows = _with_persisted(rows, tables["captures"])
        if name == LEADER_EPOCHS.name:
            rows = _in_one_piece(epochs_in_order(rows), earlier[name].to_pylist())
        else:
            rows = in_sequence(rows)
        joined[name] = pa.Table.from_pylist(rows, earlier[name].schema)
    return joined


def _with_persisted(known: Sequence[TableRow], captures: pa.Table) -> list[TableRow]:
    """Epochs of a known log, with what quorum-state files say: who led those without a record, and which came later."""
    states = captures.filter(pc.and_(captures["accepted"], pc.is_valid(captures["leader_epoch"])))
    persisted = persisted_leaders(
        zip(*(states[name].to_pylist() for name in ("leader_epoch", "leader_id")), strict=True)
    )
    rows = []
    for row in known:
        leader_id = persisted.get(row["epoch"], -1)
        is_named = row["ended_by"] == WITHOUT_LEADER and row["leader_id"] is None and leader_id >= 0
        rows.append({**row, "leader_id": leader_id} if is_named else row)
    of_log = [row for row in known if row["canonical"]]
    if of_log:
        of_cluster = {name: of_log[0].get(name) for name in ("cluster_id", "plan")}
        rows += [{**of_cluster, **row} for row in rows_without_records({row["epoch"] for row in of_log}, persisted)]
    return rows


def new_survey_rows(earlier: Mapping[str, pa.Table], joined: Mapping[str, pa.Table]) -> dict[str, list[TableRow]]:
    """Of each table of SURVEY_KEYS what a plan adds to a lake that holds the earlier rows.

    For a key whose rows have changed, these are the rows as they are now; for a key without rows now, the earlier rows,
    withdrawn.
    """
    added = {}
    for name, key in SURVEY_KEYS.items():
        known, rows = (_by_key(table, key) for table in (earlier[name], joined[name]))
        changed = [row for each, group in rows.items() if known.get(each) != group for row in group]
        gone = [row for each, group in known.items() if each not in rows for row in group]
        added[name] = changed + [{**row, "ended_by": WITHDRAWN} for row in gone]
    return added


def _by_key(table: pa.Table, key: Sequence[str]) -> dict[tuple[Any, ...], list[TableRow]]:
    """The rows of a lake by their keys, without the plan. First voter sets of other quorums are in no lake."""
    groups: dict[tuple[Any, ...], list[TableRow]] = defaultdict(list)
    for row in table.drop_columns("plan").to_pylist():
        if row["canonical"] or row["from_offset"] != BOOTSTRAP_OFFSET:
            groups[tuple(row[column] for column in key)].append(row)
    return groups


def _on_log(
    known: Sequence[TableRow], later: Sequence[TableRow], key: Sequence[str], runs: Sequence[TableRow]
) -> list[TableRow]:
    """Later rows, and known ones as the later log, of epochs `runs`, shows them: what is in no disk stays as it was."""
    keys = {tuple(row[column] for column in key) for row in later}
    led = {row["epoch"]: row for row in later if "epoch" in row}
    rows, replaced = [], set()
    for row in known:
        offset, same = row["from_offset"], led.get(row.get("epoch"))
        if tuple(row[column] for column in key) in keys or (same is not None and _is_within(offset, same)):
            continue
        if offset is not None and _is_contradicted(offset, row[key[1]], runs):
            row = {**row, "canonical": False, "ended_by": TRUNCATED}
        elif same is not None and same["from_offset"] == runs[0]["from_offset"] and row["canonical"]:
            # The log that is left begins within this epoch.
            row = {**row, "to_offset": same["to_offset"], "ended_by": same["ended_by"]}
            replaced.add((same["from_offset"], row["epoch"]))
        rows.append(row)
    before = {tuple(row[column] for column in (*key, "canonical")): row for row in known}
    for row in later:
        if (row["from_offset"], row.get("epoch")) not in replaced:
            earlier = before.get(tuple(row[column] for column in (*key, "canonical")))
            is_first = row.get("source") == STATIC and row["from_offset"] == BOOTSTRAP_OFFSET
            if is_first and earlier is not None and runs[0]["from_offset"]:
                # Of a log without its beginning, those tell the first voters who were seen soonest after it.
                row = {**earlier, "ended_by": row["ended_by"]}
            rows.append(_filled(row, earlier))
    return rows


def _in_one_piece(rows: Sequence[TableRow], known: Sequence[TableRow]) -> list[TableRow]:
    """Rows in order, where the log was whole without a gap: disks that stopped may begin it, and others end it."""
    whole = {row["epoch"]: row for row in known if row["canonical"] and row["from_offset"] is not None}
    joined: list[TableRow] = []
    last: int | None = None
    for row in rows:
        if not row["canonical"] or row["from_offset"] is None:
            joined.append(row)
            continue
        if last is not None:
            before = joined[last]
            known_to = _known_to(before, whole.get(before["epoch"]), row["from_offset"])
            if before["epoch"] == row["epoch"] and known_to == row["from_offset"]:
                joined[last] = {**before, "to_offset": row["to_offset"], "ended_by": row["ended_by"]}
                continue
            joined[last] = {**before, "to_offset": known_to}
        last = len(joined)
        joined.append(row)
    return joined


def _known_to(piece: TableRow, epoch: TableRow | None, next_offset: int) -> int | None:
    """Up to where an epoch is known that a later survey has a piece of: where another piece begins, or before it."""
    end: int | None = piece["to_offset"]
    if epoch is None or end is None or epoch["from_offset"] > end:
        return end
    if end >= next_offset:
        return next_offset
    known: int = next_offset if epoch["to_offset"] is None else min(epoch["to_offset"], next_offset)
    return max(known, end)


def _filled(row: TableRow, before: TableRow | None) -> TableRow:
    """A row with what only an earlier survey knew.

    A file names the leader of an epoch, or the time of a set, until it is deleted or written for the next one; a
    snapshot that ends with the record of a set says less than the record.
    """
    if before is None or row.get("voters") != before["voters"]:
        return row
    if row.get("source") == SNAPSHOT:
        return {**before, "ended_by": row["ended_by"]}
    return {name: before[name] if value is None else value for name, value in row.items()}


def _is_before_log(row: TableRow, runs: Sequence[TableRow]) -> bool:
    """Whether an epoch without a record came before the first one of a log that begins at 0: it was of another log."""
    begins = bool(runs) and runs[0]["from_offset"] == 0
    return begins and row["ended_by"] == WITHOUT_LEADER and row["epoch"] < runs[0]["epoch"]


def _led_beyond(known: Sequence[TableRow], runs: Sequence[TableRow]) -> set[int]:
    """The epochs that went on where a later log ends: the disk that held their LeaderChange is gone.

    Of an epoch on a branch that parted a survey says that the log has no record of it, and so it stays. A branch may
    part within an epoch.
    """
    unrecorded = {row["epoch"] for row in known if row["ended_by"] == WITHOUT_LEADER}
    led = [row for row in known if row["from_offset"] is not None and row["epoch"] not in unrecorded]
    end = runs[-1]["to_offset"] if runs else None
    if end is None or all(row["from_offset"] < end for row in led):
        return set()
    starts = [run["from_offset"] for run in runs]
    parted = []
    for row in led:
        to_offset = end if row["to_offset"] is None else min(row["to_offset"], end)
        within = starts[bisect_right(starts, row["from_offset"]) : bisect_left(starts, to_offset)]
        offsets = (offset for offset in (row["from_offset"], *within) if offset < end)
        parted += [offset for offset in offsets if _is_contradicted(offset, row["epoch"], runs)]
    return {row["epoch"] for row in led if end <= row["from_offset"] < min(parted, default=row["from_offset"] + 1)}


def _is_contradicted(offset: int, epoch: int, runs: Sequence[TableRow]) -> bool:
    """Whether a log of these epochs has another one at an offset, or ends before it."""
    end = runs[-1]["to_offset"]
    if offset >= runs[0]["from_offset"] and end is not None and offset >= end:
        return True
    covering = [run for run in runs if run["from_offset"] <= offset and (run["to_offset"] or offset + 1) > offset]
    return bool(covering) and all(run["epoch"] != epoch for run in covering)


def _is_within(offset: int | None, epoch: TableRow) -> bool:
    """Whether the row of an epoch says more than one that begins at an offset, or nowhere."""
    if offset is None or epoch["from_offset"] is None:
        return offset is None
    return bool(epoch["from_offset"] <= offset and (epoch["to_offset"] is None or offset < epoch["to_offset"]))
