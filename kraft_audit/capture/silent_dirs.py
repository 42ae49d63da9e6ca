"""Which history the node dirs without a batch belong to: copies without `*.log`, emptied logs, copies over time.

Such a dir is neither wiped nor a stranger's by itself. Its directory id says whose it is. Where that is not known, the
node dirs beside it do, and last the cluster.id alone, unless the node stands there with another directory.
"""

from __future__ import annotations

from collections.abc import Sequence

from kraft_audit.capture.found_log import FoundLog


def with_silent_dirs(groups: Sequence[list[FoundLog]], silent: Sequence[FoundLog]) -> list[list[FoundLog]]:
    """The groups of logs, each with the silent dirs that belong to it; dirs that fit none are groups of their own.

    A dir as formatting leaves it is left out: it says nothing of a log.
    """
    homes = [list(group) for group in groups]
    own: list[list[FoundLog]] = []
    for unit in _units([log for log in silent if log.is_started or log.has_testimony]):
        home = _home_of_unit(unit, groups)
        if home is None:
            own.append(unit)
        else:
            homes[home] += unit
    return [*homes, *own]


def _units(silent: Sequence[FoundLog]) -> list[list[FoundLog]]:
    """Silent dirs that belong together: copies of one directory, and node dirs that lie side by side."""
    units: list[list[FoundLog]] = []
    for log in silent:
        same = [unit for unit in units if any(_is_same_disk(log, other) or _is_beside(log, other) for other in unit)]
        units = [unit for unit in units if all(unit is not each for each in same)]
        units.append([*(other for unit in same for other in unit), log])
    return units


def _home_of_unit(unit: Sequence[FoundLog], groups: Sequence[list[FoundLog]]) -> int | None:
    """The position of the group that a unit belongs to; None where none is shown to be its own."""
    pairs = [[(mine, theirs) for mine in unit for theirs in group] for group in groups]
    for number, group in enumerate(groups):
        named = {key for log in group for key in log.voters if key[1] is not None}
        if any(_is_same_disk(*pair) for pair in pairs[number]) or named & {_key_of(log) for log in unit}:
            return number
    for number, _ in enumerate(groups):
        if any(_is_beside(*pair) for pair in pairs[number]):
            return number
    fitting = [number for number, group in enumerate(groups) if not _is_contradicted(unit, group)]
    return fitting[0] if len(fitting) == 1 else None


def _is_contradicted(unit: Sequence[FoundLog], group: Sequence[FoundLog]) -> bool:
    """Whether a node of the unit stands in the group with another disk, or both name other configured voters."""
    if {log.plan.node_id for log in unit} & {log.plan.node_id for log in group}:
        return True
    sets = [{log.configured for log in logs if log.configured} for logs in (unit, group)]
    return bool(sets[0] and sets[1]) and not sets[0] & sets[1]


def _is_same_disk(first: FoundLog, second: FoundLog) -> bool:
    return first.plan.directory_id is not None and _key_of(first) == _key_of(second)


def _is_beside(first: FoundLog, second: FoundLog) -> bool:
    """Whether two nodes' dirs lie in one folder of one capture."""
    return first.plan.folder == second.plan.folder and first.plan.node_id != second.plan.node_id


def _key_of(log: FoundLog) -> tuple[int | None, str | None]:
    return log.plan.node_id, log.plan.directory_id
