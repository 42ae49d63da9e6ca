"""Rules about offsets that a log skips, repeats or begins after."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from kraft_audit.capture.continuity import is_repeated
from kraft_audit.rules.cluster_history import ClusterHistory, TableRow
from kraft_audit.rules.columns.captures import captures_in_order
from kraft_audit.rules.columns.voter_disks import advice_for_lost_records, other_voters
from kraft_audit.rules.families.log_files import damage_case, damage_rows
from kraft_audit.rules.registry import rule, words_for
from kraft_audit.rules.rule_model import Case, Thresholds
from kraft_codec.errors import Reason
from kraft_codec.files.logdir import MISSING_FILES

GAPS: Final = {Reason.GAP, Reason.OVERLAP, Reason.SNAPSHOT_MISSING}
_FILE_NAME: Final = re.compile(r"[0-9]{20}\.log")


@rule("KQ007", control="log_integrity", needs=("captures", "batches", "decode_errors"))
def kq007(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    captures = {(row["root"], row["path"]): row for row in captures_in_order(history)}
    for row in damage_rows(history, GAPS):
        if is_repeated(row["reason"], row["detail"]):
            yield damage_case(row, row["detail"], **words_for("KQ007", "repeated"))
            continue
        capture = captures.get((row["root"], row["path"]))
        advice: dict[str, Any] = {} if capture is None else {"what_to_do": _advice(history, row, capture)}
        yield damage_case(row, row["detail"], **advice)


def _advice(history: ClusterHistory, row: TableRow, capture: TableRow) -> str:
    """By the other voters that hold what is missing: all before the log's start, or before the batch after the gap."""
    to_offset = capture["log_start_offset"] if row["reason"] == Reason.SNAPSHOT_MISSING else row["base_offset"]
    others = other_voters(history, capture["node_id"], int(to_offset or 0))
    _, _, named = row["detail"].partition(MISSING_FILES)
    file = _FILE_NAME.search(named)
    return advice_for_lost_records(history, capture, others, None if file is None else file.group())
