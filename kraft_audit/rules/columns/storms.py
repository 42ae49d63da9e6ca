"""Storms: more changes of one subject within an hour than a rule allows."""

from __future__ import annotations

from typing import Final

import numpy as np

from kraft_audit.capture.continuity import run_begins
from kraft_audit.tables.number_arrays import Rows
from kraft_audit.text.readable import HOUR_MS

TIME_MAX_MS: Final = 1 << 61


def storms(times_ms: Rows, group: Rows, limit: int) -> list[tuple[int, int]]:
    """Storms among changes, each by the places of its first and last one: more than `limit` of a group within an hour.

    The changes of each `group` stand together, in the order of the log. A storm goes on while the changes of an excess
    are among those of the one before.
    """
    # Records may claim any time that 64 bits hold: the time between two of them must fit as well.
    times_ms = times_ms.clip(-TIME_MAX_MS, TIME_MAX_MS)
    # A change and the one `limit` changes before it, where both are of one group.
    later, earlier = slice(limit, None), slice(max(len(times_ms) - limit, 0))
    hits = np.flatnonzero((group[later] == group[earlier]) & (times_ms[later] - times_ms[earlier] <= HOUR_MS))
    is_new = run_begins(group[hits])
    is_new[1:] |= np.diff(hits) > limit
    starts = np.flatnonzero(is_new)
    ends = np.append(starts[1:], len(hits))[: len(starts)] - 1
    return list(zip(hits[starts].tolist(), (hits[ends] + limit).tolist(), strict=True))
