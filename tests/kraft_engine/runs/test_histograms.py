"""What a random run writes is of the kinds and sizes that real controllers write: within a factor of two."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from kraft_codec.records.batch import Batch, read_batches
from kraft_codec.records.record import decode_records
from kraft_engine.runs.lifelike_run import LifelikeRun
from kraft_engine.runs.surroundings import written_bytes

REFERENCE = json.loads(
    (Path(__file__).resolve().parents[2] / "data/engine/histograms.json").read_text(encoding="utf-8")
)
HISTOGRAMS = ("types", "counts", "bytes")
COMMON = 0.05
"""Rarer kinds and sizes come down to a handful of batches: they are counted together."""
RARE_MAX = 0.25


def power_of_two(number: int) -> str:
    return str(1 << (number.bit_length() - 1))


def written(run: LifelikeRun) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {name: Counter() for name in HISTOGRAMS}
    for batch in run.invariants.ledger.batches:
        if not batch.is_control:
            found["types"].update(name for name, _, _ in batch.records)
            found["counts"][power_of_two(len(batch.records))] += 1
            found["bytes"][power_of_two(written_bytes(batch))] += 1
    return found


def captured(folder: Path) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {name: Counter() for name in HISTOGRAMS}
    octets = next(folder.glob("*.log")).read_bytes()
    for batch in read_batches(octets):
        if isinstance(batch, Batch) and not batch.header.is_control:
            names = [record.message.name for record in decode_records(octets, batch.header) if record.message]
            found["types"].update(names)
            found["counts"][power_of_two(len(names))] += 1
            found["bytes"][power_of_two(batch.header.size_bytes)] += 1
    return found


def shares(histogram: Mapping[str, int]) -> dict[str, float]:
    return {kind: count / sum(histogram.values()) for kind, count in histogram.items()}


@pytest.mark.slow
@pytest.mark.parametrize(("capture", "seed"), [("elr", 4), ("elr", 6), ("crash", 1)])
def test_a_random_run_writes_what_real_controllers_write(capture: str, seed: int) -> None:
    run = LifelikeRun(seed)
    run.run(60_000)
    found = written(run)
    for name in HISTOGRAMS:
        wanted, ours = shares(REFERENCE[capture][name]), shares(found[name])
        common = {kind: share for kind, share in wanted.items() if share >= COMMON}
        ratios = {kind: ours.get(kind, 0.0) / share for kind, share in common.items()}
        assert all(0.5 <= ratio <= 2.0 for ratio in ratios.values()), (name, ratios)
        assert sum(share for kind, share in ours.items() if kind not in common) <= RARE_MAX, (name, ours)


@pytest.mark.parametrize("capture", ["elr", "crash"])
def test_the_reference_is_what_the_capture_holds(captured_logs: Path, capture: str) -> None:
    """Recounted from the capture; `how_counted` in the file says how."""
    about = REFERENCE[capture]
    (folder,) = captured_logs.glob(f"{capture}/**/{about['capture']}/{about['node']}/__cluster_metadata-0")
    assert {name: dict(counts) for name, counts in captured(folder).items()} == {
        name: about[name] for name in HISTOGRAMS
    }
