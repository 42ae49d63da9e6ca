"""The fuzzer's own share in every run of the tests; the release's share is `make soak`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.fuzz.decoder import fuzz, sample_batches

EXECUTIONS = int(os.environ.get("KRAFT_AUDIT_FUZZ_EXECUTIONS", "3000000"))
COMPARED = EXECUTIONS // 40
SEEDS = 8
AT_ONCE = 4_000 if "NUMBA_DISABLE_JIT" in os.environ else 40_000
"""Kernels as plain Python, for coverage, take ten times as long."""


@pytest.fixture(scope="session")
def every_type(small_corpus: Path) -> list[bytes]:
    return sample_batches(small_corpus)


@pytest.mark.slow
def test_mutated_batches(every_type: list[bytes]) -> None:
    done = fuzz(every_type, 1, executions=AT_ONCE, compared=AT_ONCE // 10)
    assert done.executions >= AT_ONCE
    assert done.compared >= AT_ONCE // 10
    assert 0 < done.quarantined < done.executions, "some mutants are broken, some are not"
    assert done.values > done.compared // 2, "most copies are sound, and of those every value is compared"
    assert done.guards > 100 * len(every_type), "whatever a kernel fills is guarded"


@pytest.mark.ci
@pytest.mark.parametrize("seed", range(100, 100 + SEEDS))
def test_millions_of_mutated_batches(every_type: list[bytes], seed: int) -> None:
    done = fuzz(every_type, seed, executions=EXECUTIONS // SEEDS, compared=COMPARED // SEEDS)
    assert done.executions >= EXECUTIONS // SEEDS
    assert done.values > done.compared // 2
