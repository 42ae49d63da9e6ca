"""Two evidence packs of one cluster, made at different times: whether history was rewritten between them.

What is committed never changes. So a block of committed batches that both packs have is the same in both: the same
identities (offsets, epochs, CRCs), and on each disk the same bytes. Bytes that differ under the same identities were
altered so that their CRC still fits, be it on all disks alike.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kraft_audit.rules.columns.captures import replica_name
from kraft_audit.text.readable import offset_span

Row = Mapping[str, Any]
Span = tuple[int, int]
Chains = Sequence[tuple[str, list[dict[str, Any]]]]


@dataclass(frozen=True, slots=True)
class PackComparison:
    """How many blocks of the earlier pack of a cluster are as they were, how many the later one does not have as such.

    `to_offset` is the end of the last block that is as it was; None where none is.
    """

    cluster_id: str
    equal: int
    not_compared: int
    to_offset: int | None
    contradictions: tuple[str, ...]


def block_ends(chains: Chains, cluster_id: str) -> set[int]:
    """The offsets at which the blocks of a pack's clusters of this id end: a later pack ends blocks there, too."""
    return {row["to_offset"] for found, rows in chains if found == cluster_id for row in rows if "to_offset" in row}


def compare_packs(earlier: Chains, later: Chains) -> list[PackComparison]:
    """Each cluster of the later pack against the chain of that id in the earlier one: of several the one that fits."""
    compared = []
    for cluster_id, rows in later:
        each = [_compared(cluster_id, before, rows) for found, before in earlier if found == cluster_id]
        nothing = PackComparison(cluster_id, 0, 0, None, ())
        compared.append(max(each, key=lambda fit: (fit.equal, -len(fit.contradictions)), default=nothing))
    return compared


def _compared(cluster_id: str, before: Sequence[Row], after: Sequence[Row]) -> PackComparison:
    """Block by block of the earlier pack. A disk that is new in the later one may hold what any disk held before."""
    later, committed = _by_span(after), _committed(before)
    held: dict[Span, set[str]] = defaultdict(set)
    own: dict[tuple[Any, ...], str] = {}
    for span, rows in _by_span(before).items():
        for row in rows:
            if row["bytes_block"] is not None:
                held[span].add(row["bytes_block"])
                own[_disk(row), span] = row["bytes_block"]
    equal, to_offset = 0, None
    contradictions = []
    for span, identity in sorted(committed.items()):
        problems = []
        for row in later.get(span, ()):
            found = row["bytes_block"]
            if row["identity_block"] != identity:
                problems.append(f"{_holder(row)} has other committed batches than before")
            elif found is not None and held[span] and found not in {own.get((_disk(row), span), found)} & held[span]:
                problems.append(f"{_holder(row)} has other bytes than before, under the same CRCs")
        contradictions += [f"{offset_span(*span)}: {problem}" for problem in problems]
        if span in later and not problems:
            equal, to_offset = equal + 1, span[1]
    return PackComparison(
        cluster_id, equal, sum(span not in later for span in committed), to_offset, tuple(contradictions)
    )


def _by_span(rows: Iterable[Row]) -> dict[Span, list[Row]]:
    found: dict[Span, list[Row]] = defaultdict(list)
    for row in rows:
        if "from_offset" in row:
            found[row["from_offset"], row["to_offset"]].append(row)
    return found


def _committed(rows: Iterable[Row]) -> dict[Span, str]:
    """The identities that were committed, by span. A disk's blocks have others where its log begins later."""
    whole: dict[Span, str] = {}
    of_disks: dict[Span, str] = {}
    for row in rows:
        if "from_offset" in row:
            span = (row["from_offset"], row["to_offset"])
            (whole if row["path"] is None else of_disks).setdefault(span, row["identity_block"])
    return {**of_disks, **whole}


def _disk(row: Row) -> tuple[Any, ...]:
    return (row["node_id"], row["directory_id"])


def _holder(row: Row) -> str:
    return "the cluster" if row["path"] is None else replica_name(row)
