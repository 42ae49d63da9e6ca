"""The history that rules go on with: carried rows up to what is settled, and after them what is new since.

Each plan numbers its captures from 0 and knows the damage that it read, so both are joined to those of before. What a
survey says of epochs and voter sets is added to, as Kafka deletes the records that it came from.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter, itemgetter
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kraft_audit.capture.log_facts import BATCH_COPIES
from kraft_audit.quorum.quorum_tables import epochs_in_order, in_sequence, persisted_leaders, rows_without_records
from kraft_audit.quorum.voter_history import BOOTSTRAP_OFFSET, STATIC
from kraft_audit.rules.carried.carried_rows import (
    FROM_THE_SURVEY,
    OF_CAPTURES,
    CarriedRows,
    normal_rows,
    once_each,
)
from kraft_audit.rules.cluster_history import CONTRACTS, ClusterHistory, SnapshotCheck, TableRow, newest_append_ms
from kraft_audit.rules.columns.batch_copies import last_positions, shifted
from kraft_audit.rules.columns.kept_logs import with_earlier_logs
from kraft_audit.rules.columns.log_batches import CANONICAL_LOG, LOG_BATCHES, canonical_log
from kraft_audit.rules.families.log_files import TAILS
from kraft_audit.tables.bronze import DECODE_ERRORS, TRUNCATED
from kraft_audit.tables.contract import with_column
from kraft_audit.tables.silver import LEADER_EPOCHS, SNAPSHOT, STATE_TABLES, WITHDRAWN, WITHOUT_LEADER


def until(history: ClusterHistory, to_offset: int, waiting_to: int | None = None) -> ClusterHistory:
    """A history without the records from an offset on, as of the log's time there. The captures stay.

    `waiting_to` is up to where records wait for the end of their transaction: its marks are not read again.
    """
    tables = dict(history.tables)
    for name in (*STATE_TABLES, "records"):
        if name in tables:
            table, column = tables[name], "offset" if name == "records" else "from_offset"
            end = to_offset if name != "records" or waiting_to is None else max(to_offset, waiting_to)
            tables[name] = _before(table, pc.less(table[column], end))
    return replace(
        history,
        tables=tables,
        contradictions=history.contradictions
        and tuple(each for each in history.contradictions if each.offset < to_offset),
        as_of_ms=canonical_log(history).time_at(to_offset - 1) if to_offset else None,
        # Their tables stay as they are.
        _shared={name: history.shared[name] for name in (LOG_BATCHES, CANONICAL_LOG) if name in history.shared},
    )


def _before(table: pa.Table, is_before: pa.ChunkedArray) -> pa.Table:
    """The rows of a mask. Rows of changes come in the order of the log: then they are no copy."""
    count = pc.sum(is_before, min_count=0).as_py()
    is_in_order = count == pc.sum(is_before.slice(0, count), min_count=0).as_py()
    return table.slice(0, count) if is_in_order else table.filter(is_before)


def begins_below(history: ClusterHistory, offset: int) -> bool:
    """Whether something changed before an offset."""
    tables = [history.tables[name]["from_offset"] for name in STATE_TABLES if name in history.tables]
    return any(pc.min(rows).as_py() < offset for rows in tables if len(rows))


def ends_at(history: ClusterHistory, to_offset: int) -> bool:
    """Whether a history has nothing from an offset on, so that `until` says the same of it at the same time."""
    tables = [history.tables[name]["from_offset"] for name in STATE_TABLES if name in history.tables]
    last = max((pc.max(offsets).as_py() for offsets in tables if len(offsets)), default=-1)
    last = max([last, *(each.offset for each in history.contradictions or ())])
    return last < to_offset and history.end_ms == _time_at_end(history, to_offset)


def as_until(history: ClusterHistory, to_offset: int, waiting_to: int | None = None) -> ClusterHistory:
    """`until` of a history that ends there: with what was derived from it, as its rows are the same."""
    ended = until(history, to_offset, waiting_to)
    return replace(ended, tables={**history.tables, "records": ended.tables["records"]}, _shared=history.shared)


def _time_at_end(history: ClusterHistory, to_offset: int) -> int | None:
    """The time of the log at which records before an offset are judged."""
    if to_offset and (time_ms := canonical_log(history).time_at(to_offset - 1)) is not None:
        return time_ms
    return history.known("newest append", lambda: newest_append_ms(history.rows("captures")))


_NUMBER: Final = "capture_number"


def history_of(carried: CarriedRows, new: ClusterHistory) -> ClusterHistory:
    """The history that rules go on with: what an earlier judgement left, and the rows that are new since.

    `new` holds the rows of records from `carried.episodes.to_offset` on, of captures that were not judged yet, and all
    of FROM_THE_SURVEY; what is no table is as of now.
    """
    tables = _numbered_after(carried, new.tables)
    if BATCH_COPIES.name in tables:
        tables[BATCH_COPIES.name] = shifted(tables[BATCH_COPIES.name], carried.tables["batches"].num_rows)
    for name, rows in carried.tables.items():
        if name not in FROM_THE_SURVEY:
            known = _without_read_tails(rows, new.tables) if name == DECODE_ERRORS.name else rows
            tables[name] = _joined(name, known, tables.get(name))
    if DECODE_ERRORS.name in tables:
        tables[DECODE_ERRORS.name] = once_each(tables[DECODE_ERRORS.name])
    tables |= _surveyed(carried, tables)
    problems = sorted(
        {*carried.contradictions, *(new.contradictions or ())}, key=attrgetter("offset", "problem", "subject")
    )
    offsets = (carried.undecoded_from, new.undecoded_from)
    return replace(
        new,
        tables=tables,
        carried=carried.episodes,
        contradictions=None if new.contradictions is None else tuple(problems),
        is_complete=carried.is_complete,
        states_from=carried.states_from,
        undecoded_from=min((each for each in offsets if each is not None), default=None),
        gaps=tuple(sorted({*carried.gaps, *new.gaps})),
        snapshot_checks=None
        if new.snapshot_checks is None
        else _distinct(carried.snapshot_checks, new.snapshot_checks),
        is_read=new.is_read or (carried.is_read and _has_records(carried)),
        is_replayed=new.is_replayed or (carried.is_replayed and _has_records(carried)),
        captured_from=_first_number(carried),
        read_disks=with_earlier_logs(new.read_disks, carried.replica_logs, _first_number(carried)),
        _shared={},
    )


def _has_records(carried: CarriedRows) -> bool:
    """Whether a record was judged: of disks that were never started nothing is known once they have logs."""
    return carried.episodes.to_offset > 0


def _distinct(carried: Sequence[SnapshotCheck], new: Sequence[SnapshotCheck]) -> tuple[SnapshotCheck, ...]:
    """Carried comparisons and new ones; what is compared again on the same disks, with the same result, counts once."""
    by_result = {
        (each.end_offset, each.epoch, each.differences, each.path, tuple((h.root, h.path) for h in each.holders)): each
        for each in (*carried, *new)
    }
    return tuple(by_result.values())


def with_earlier_captures(carried: CarriedRows, whole: ClusterHistory, new: Mapping[str, pa.Table]) -> ClusterHistory:
    """A history whose log was replayed from its start, with what captures and surveys showed before.

    `new` are the rows of `batches` and `decode_errors` that earlier captures did not have.
    """
    # Of the new rows each names its disk.
    new = {**new, BATCH_COPIES.name: BATCH_COPIES.schema.empty_table()}
    if carried.is_replayed and _has_records(carried) and not whole.is_replayed:
        return history_of(carried, replace(whole, tables={**whole.tables, **new}))
    of_round = {name: whole.tables[name] for name in ("captures", "watermarks") if name in whole.tables}
    new_tables = _numbered_after(carried, {**of_round, **new})
    tables = {**whole.tables, **{name: _joined(name, carried.tables[name], rows) for name, rows in new_tables.items()}}
    tables |= _surveyed(carried, whole.tables)
    tables[DECODE_ERRORS.name] = once_each(tables[DECODE_ERRORS.name])
    compared = {(each.end_offset, each.epoch) for each in whole.snapshot_checks or ()}
    earlier = [each for each in carried.snapshot_checks if (each.end_offset, each.epoch) not in compared]
    checks = None if whole.snapshot_checks is None else (*earlier, *whole.snapshot_checks)
    return replace(
        whole,
        tables=tables,
        snapshot_checks=checks,
        captured_from=_first_number(carried),
        read_disks=with_earlier_logs(whole.read_disks, carried.replica_logs, _first_number(carried)),
        _shared={},
    )


def _joined(name: str, rows: pa.Table, later: pa.Table | None) -> pa.Table:
    """Carried rows, and after them those of a later history, in the columns of both."""
    later = normal_rows(name, CONTRACTS[name].schema.empty_table() if later is None else later)
    common = [column for column in rows.column_names if column in later.column_names]
    return pa.concat_tables([rows.select(common), later.select(common).cast(rows.select(common).schema)])


def _surveyed(carried: CarriedRows, tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """The rows of a later survey, with those that it does not reach; what it contradicts is not on the log any more."""
    epochs = tables["leader_epochs"].to_pylist()
    runs = [row for row in epochs if row["canonical"] and row["from_offset"] is not None]
    runs.sort(key=itemgetter("from_offset"))
    joined = {}
    for name, key in FROM_THE_SURVEY.items():
        rows, later = carried.tables[name].to_pylist(), tables[name].to_pylist()
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
            rows = _in_one_piece(epochs_in_order(rows), carried.tables[name].to_pylist())
        else:
            rows = in_sequence(rows)
        joined[name] = _joined(name, pa.Table.from_pylist(rows, carried.tables[name].schema), None)
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


def new_survey_rows(carried: CarriedRows, history: ClusterHistory) -> dict[str, list[TableRow]]:
    """Of each table of FROM_THE_SURVEY what a plan adds to a lake that holds the carried rows.

    For a key whose rows have changed, these are the rows as they are now; for a key without rows now, the carried rows,
    withdrawn.
    """
    added = {}
    for name, key in FROM_THE_SURVEY.items():
        known, rows = (_by_key(table, key) for table in (carried.tables[name], history.table(name)))
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


def _numbered_after(carried: CarriedRows, tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """Tables with their captures numbered after all that were judged before: each plan begins at 0."""
    numbered_after, first = dict(tables), _first_number(carried)
    for name in OF_CAPTURES:
        if first and name in tables and _NUMBER in (table := tables[name]).column_names:
            numbers = pc.add(table[_NUMBER], first).cast(table.schema.field(_NUMBER).type)
            numbered_after[name] = with_column(table, _NUMBER, numbers)
    return numbered_after


def _first_number(carried: CarriedRows) -> int:
    """The number that the first capture of a plan gets."""
    known = carried.tables.get("captures")
    return 0 if known is None or not known.num_rows else int(pc.max(known[_NUMBER]).as_py()) + 1


def _without_read_tails(carried: pa.Table, tables: Mapping[str, pa.Table]) -> pa.Table:
    """Damage without torn ends of files that were read on since: a log that is written to may end within a batch."""
    place = ("root", "path", "file_name")
    is_tail = pc.is_in(carried["reason"], pa.array([str(reason) for reason in TAILS])).to_numpy()
    if not is_tail.any() or "batches" not in tables:
        return carried
    read_to = last_positions(tables["batches"], tables[BATCH_COPIES.name])
    for row in tables[DECODE_ERRORS.name].select([*place, "position"]).to_pylist():
        key = row["root"], row["path"], row["file_name"]
        read_to[key] = max(read_to.get(key, -1), row["position"])
    numbers = [
        number
        for number, row in enumerate(carried.select([*place, "position"]).to_pylist())
        if not is_tail[number] or row["position"] > read_to.get((row["root"], row["path"], row["file_name"]), -1)
    ]
    return carried.take(pa.array(numbers, pa.int64()))
