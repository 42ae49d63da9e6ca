"""Transactions and unfinished operations: what waits, what never was, whatever the windows."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft_audit.replay.cluster_replay import MAX_WAITING_CHANGES, Settler

TYPES = {
    "c": "PartitionChangeRecord",
    "n": "ConfigRecord",
    "B": "BeginTransactionRecord",
    "E": "EndTransactionRecord",
    "A": "AbortTransactionRecord",
    "V": "VotersRecord",
}


def columns(text: str, first_offset: int = 0) -> dict[str, pa.RecordBatch]:
    """One record a letter, all in one batch; a dot is an offset without a record that the replay reads."""
    offsets: dict[str, list[int]] = {}
    for at, letter in enumerate(text):
        if letter != ".":
            offsets.setdefault(TYPES[letter], []).append(first_offset + at)
    return {name: batch_of(record_offsets) for name, record_offsets in offsets.items()}


def batch_of(offsets: Iterable[int]) -> pa.RecordBatch:
    column = pa.array(offsets, pa.int64())
    return pa.RecordBatch.from_pydict(
        {
            "offset": column,
            "base_offset": pa.nulls(len(column), pa.int64()).fill_null(0),
            "timestamp_ms": pa.nulls(len(column), pa.int64()).fill_null(5),
        }
    )


def offsets_of(records: Any) -> dict[str, list[int]]:
    return {name: batch.column("offset").to_pylist() for name, batch in records.items() if batch.num_rows}


def merge(parts: list[dict[str, list[int]]]) -> dict[str, list[int]]:
    merged: dict[str, list[int]] = {}
    for part in parts:
        for name, offsets in part.items():
            merged.setdefault(name, []).extend(offsets)
    return merged


@pytest.mark.parametrize(
    ("text", "settled", "given_back"),
    [
        ("nBnnE", 5, {"ConfigRecord": [0, 2, 3], "BeginTransactionRecord": [1], "EndTransactionRecord": [4]}),
        ("nBnnA.", 6, {"ConfigRecord": [0]}),
        ("nBn", 1, {"ConfigRecord": [0]}),
        ("nccc", 1, {"ConfigRecord": [0]}),
        ("ncccn", 5, {"ConfigRecord": [0, 4], "PartitionChangeRecord": [1, 2, 3]}),
        ("c.c", 2, {"PartitionChangeRecord": [0]}),
        ("cc.", 3, {"PartitionChangeRecord": [0, 1]}),
        ("BnVA.", 5, {"VotersRecord": [2]}),  # voter changes between them did take effect
    ],
)
def test_settled(text: str, settled: int, given_back: dict[str, list[int]]) -> None:
    settler = Settler()
    assert offsets_of(settler.feed(columns(text), len(text))) == given_back
    assert settler.settled_offset == settled


def test_rest_gives_an_unfinished_operation_but_no_open_transaction() -> None:
    settler = Settler()
    settler.feed(columns("ncc"), 3)
    assert offsets_of(settler.rest()) == {"PartitionChangeRecord": [1, 2]}
    assert settler.settled_offset == 3
    settler = Settler()
    settler.feed(columns("nBnc"), 4)
    assert offsets_of(settler.rest()) == {}
    assert settler.settled_offset == 1


def test_batch_that_crosses_the_end_of_its_window_counts_whole() -> None:
    settler = Settler()
    assert offsets_of(settler.feed(columns("nnnn"), 2)) == {"ConfigRecord": [0, 1, 2, 3]}
    assert settler.settled_offset == 4
    assert offsets_of(settler.feed(columns("n", 4), 5)) == {"ConfigRecord": [4]}


def test_endless_run_of_changes_is_not_held_back() -> None:
    settler = Settler()
    size = MAX_WAITING_CHANGES + 1
    batch = {"PartitionChangeRecord": batch_of(range(size))}
    assert settler.feed(batch, size)["PartitionChangeRecord"].num_rows == size


@given(st.text(alphabet="cnBEAV.", max_size=30), st.lists(st.integers(0, 30), max_size=6))
def test_windows_do_not_matter(text: str, cuts: list[int]) -> None:
    whole, parts = Settler(), Settler()
    expected = merge([offsets_of(whole.feed(columns(text), len(text))), offsets_of(whole.rest())])
    edges = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    found = []
    for start, end in pairwise(edges):
        found.append(offsets_of(parts.feed(columns(text[start:end], start), end)))
    found.append(offsets_of(parts.rest()))
    assert merge(found) == expected
    assert parts.settled_offset == whole.settled_offset
