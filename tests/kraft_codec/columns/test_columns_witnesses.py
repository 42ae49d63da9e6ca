"""Every log and snapshot at hand, whole or damaged: the columnar decoder says what the reference says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders.captures import SMALL_CORPUS


def files_below(folder: Path, *, most_bytes: int) -> list[Path]:
    """Logs and snapshots with distinct content."""
    found = {path.read_bytes(): path for kind in ("*.log", "*.checkpoint") for path in sorted(folder.rglob(kind))}
    return [path for content, path in found.items() if len(content) <= most_bytes]


@pytest.mark.slow
@pytest.mark.parametrize("scenario", sorted(path.name for path in SMALL_CORPUS.iterdir() if path.is_dir()))
def test_every_file_of_the_small_corpus(agree, small_corpus: Path, scenario: str) -> None:
    found = [agree(path.read_bytes()) for path in files_below(small_corpus / scenario, most_bytes=4_000_000)]
    assert sum(agreement.records for agreement in found) > 0


@pytest.mark.slow
def test_the_small_corpus_holds_every_kind_of_damage_and_compression(agree, small_corpus: Path) -> None:
    damaged = {
        path.parts[-3]: agree(path.read_bytes()) for path in (small_corpus / "crafted" / "damaged").rglob("*.log")
    }
    assert {found.stop for found in damaged.values()} >= {None, "TORN_TAIL", "ZERO_TAIL"}
    compressed = [agree(path.read_bytes()) for path in (small_corpus / "crafted" / "compressed-batches").rglob("*.log")]
    assert compressed
    assert all(found.quarantined == () and found.records > 0 for found in compressed)


@pytest.mark.ci
def test_every_file_of_the_large_corpus(agree, corpus: Path) -> None:
    found = [agree(path.read_bytes()) for path in files_below(corpus, most_bytes=4_000_000)]
    assert sum(agreement.batches for agreement in found) > 10_000
    assert sum(agreement.records for agreement in found) > 100_000
