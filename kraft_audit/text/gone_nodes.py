"""The option --gone: which nodes are said to be lost with their disks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from kraft_audit.text.readable import nouns, pasted_ids


def gone_option(ids: Iterable[int]) -> str:
    """The option that says which nodes are lost, with a space before it; empty where none is."""
    pasted = pasted_ids(ids)
    return f" --gone {pasted}" if pasted else ""


def are_lost(nodes: Sequence[int], gone: Collection[int] = ()) -> str:
    """The question that --gone answers."""
    is_one = len(nodes) == 1
    disks = "its disk" if is_one else "their disks"
    away = pasted_ids({*gone, *nodes})
    return f"{'Is' if is_one else 'Are'} {nouns('node', nodes)} lost with {disks}? Then add --gone {away}."
