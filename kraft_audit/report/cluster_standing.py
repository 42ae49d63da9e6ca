"""What the pages say first of one cluster: its standing, one sentence that names its trouble, and since when.

The fleet's page and the cluster's own page begin with the same sentence.
"""

from __future__ import annotations

import enum

from kraft_audit.findings.situation import said_and_command
from kraft_audit.report.cluster_page import ClusterView
from kraft_audit.report.control_state import ControlStatus
from kraft_audit.text.readable import capitalized, plural


class Footing(enum.StrEnum):
    """Whether somebody has to act on a cluster, the worst first. A sound cluster meets every control."""

    ACTION = "needs action"
    UNREAD = "not read"
    UNDECIDED = "undecided"
    WEAKENED = "weakened"
    SOUND = "sound"


def standing_of(view: ClusterView) -> Footing:
    """The standing of one cluster."""
    if view.action is not None:
        return Footing.ACTION
    if not view.is_read:
        return Footing.UNREAD
    statuses = {control.status for control in view.controls}
    if view.undecided_total or not statuses <= {ControlStatus.MET, ControlStatus.WEAKENED}:
        return Footing.UNDECIDED
    return Footing.WEAKENED if ControlStatus.WEAKENED in statuses else Footing.SOUND


def state_in_words(view: ClusterView) -> str:
    """One sentence: what needs action, else what is not known, else what weakens it, else what its quorum does."""
    standing = standing_of(view)
    if view.action is not None:
        return capitalized(view.action.what)
    if standing is Footing.UNREAD:
        return "Nothing of its log could be read, so nothing is known about it."
    if standing is Footing.UNDECIDED:
        reason = next((row["reason"] for group in view.undecided for row in group.findings if row["reason"]), None)
        cases = f"{plural(view.undecided_total, 'case')} could not be decided" if view.undecided else "Not judged"
        return f"{cases}: {reason}" if reason else f"{cases}."
    if standing is Footing.WEAKENED and view.weakness is not None:
        weakness = capitalized(view.weakness.what)
        return f"Stopped in order. {weakness}" if view.is_at_rest else weakness
    return "Every control is met." if view.headline is None else view.headline.text


def since_of(view: ClusterView) -> int | None:
    """When that began; None where no time is known, or where nothing is wrong."""
    if view.action is not None:
        return view.action.since_ms
    return view.weakness.since_ms if standing_of(view) is Footing.WEAKENED and view.weakness is not None else None


def advice_of(view: ClusterView) -> str:
    """What to do, in words: by the answer of `check`, else by the worst finding; empty where nothing is to be done."""
    if view.next_line is not None:
        return said_and_command(view.next_line.text)[0]
    if view.action is not None:
        return view.action.advice
    return view.weakness.advice if standing_of(view) is Footing.WEAKENED and view.weakness is not None else ""
