"""Segments in any order and under any name, missing, doubled: the same tables, or just what is missing or doubled."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

STARTS = (0, 4, 8, 12, 16)
"""Where five segments of the usual log begin; its batches hold one record each, twenty in all."""


@pytest.fixture
def parts(usual_log: Any) -> list[bytes]:
    assert len(usual_log.batches) == usual_log.next_offset == 20
    return [b"".join(usual_log.batches[start : start + 4]) for start in STARTS]


@pytest.mark.slow
def test_segments_in_every_order_of_names(tmp_path: Path, reading: Any, node: Any, parts: list[bytes]) -> None:
    """All 120 orders: the first batches give the right one. Every segment with a wrong name is reported, no other."""
    right = reading.of(node(tmp_path / "right", 1, dict(zip(STARTS, parts, strict=True))))
    assert right["decode_errors"] == []
    for number, order in enumerate(itertools.permutations(range(5))):
        segments = {start: parts[part] for start, part in zip(STARTS, order, strict=True)}
        found = reading.of(node(tmp_path / str(number), 1, segments))
        assert found["records"] == right["records"], order
        misnamed = [start for place, start in enumerate(STARTS) if order[place] != place]
        assert reported(found) == sorted((("BAD_FILE", start) for start in misnamed), key=str), order
        assert [row["valid"] for row in found["batches"]] == [True] * 20


@pytest.mark.slow
def test_segments_missing_and_doubled(tmp_path: Path, reading: Any, node: Any, parts: list[bytes]) -> None:
    """Each of five segments not there, there, or there twice: 242 logs, of which each says exactly what it lacks."""
    right = reading.of(node(tmp_path / "right", 1, dict(zip(STARTS, parts, strict=True))))["records"]
    cases = [counts for counts in itertools.product(range(3), repeat=5) if any(counts)]
    assert len(cases) >= 200
    for number, counts in enumerate(cases):
        held = [place for place in range(5) if counts[place]]
        doubled = [STARTS[place] for place in held if counts[place] == 2]
        segments = {STARTS[place]: parts[place] for place in held}
        segments |= {start + 1: parts[STARTS.index(start)] for start in doubled}
        found = reading.of(node(tmp_path / str(number), 1, segments))
        gaps = [STARTS[after] for before, after in itertools.pairwise(held) if after != before + 1]
        expected = [("BAD_FILE", start + 1) for start in doubled]
        expected += [("GAP", start) for start in gaps] + [("OVERLAP", start) for start in doubled]
        expected += [("SNAPSHOT_MISSING", None)] if held[0] else []
        assert reported(found) == sorted(expected, key=str), counts
        assert found["records"] == [row for row in right if row["offset"] // 4 in held], counts
        assert sum(not row["valid"] for row in found["batches"]) == 4 * len(doubled), counts


def reported(tables: dict[str, Any]) -> list[tuple[str, int | None]]:
    """(reason, offset): of a file in the wrong name the one that it bears, of other damage the one where it shows."""
    rows = tables["decode_errors"]
    found = [(row["reason"], named(row) if row["reason"] == "BAD_FILE" else row["base_offset"]) for row in rows]
    return sorted(found, key=str)


def named(row: dict[str, Any]) -> int:
    return int(row["file_name"].rpartition("/")[2].removesuffix(".log"))
