"""Every log and snapshot at hand, whole or damaged: the columnar decoder says what the reference says."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def files_below(folder: Path, *, most_bytes: int) -> list[Path]:
    """Logs and snapshots with distinct content."""
    found = {path.read_bytes(): path for kind in ("*.log", "*.checkpoint") for path in sorted(folder.rglob(kind))}
    return [path for content, path in found.items() if len(content) <= most_bytes]


@pytest.mark.slow
@pytest.mark.parametrize("scenario", sorted(path.name for path in (ROOT / "samples").iterdir() if path.is_dir()))
def test_every_sample(agree, samples: Path, scenario: str) -> None:
    found = [agree(path.read_bytes()) for path in files_below(samples / scenario, most_bytes=4_000_000)]
    assert sum(agreement.records for agreement in found) > 0


@pytest.mark.slow
def test_samples_hold_every_kind_of_damage_and_compression(agree, samples: Path) -> None:
    damaged = {path.parts[-3]: agree(path.read_bytes()) for path in (samples / "crafted" / "damaged").rglob("*.log")}
    assert {found.stop for found in damaged.values()} >= {None, "TORN_TAIL", "ZERO_TAIL"}
    compressed = [agree(path.read_bytes()) for path in (samples / "crafted" / "compressed-batches").rglob("*.log")]
    assert compressed
    assert all(found.quarantined == () and found.records > 0 for found in compressed)


@pytest.mark.ci
def test_every_file_of_the_large_set(agree, corpus: Path) -> None:
    found = [agree(path.read_bytes()) for path in files_below(corpus, most_bytes=4_000_000)]
    assert sum(agreement.batches for agreement in found) > 10_000
    assert sum(agreement.records for agreement in found) > 100_000
