"""Many seeds of hours, on all processors: `python -m tests.witness.hourly_sweep [SEEDS [FIRST_SEED]]`.

With `--journal FILE` what each seed gave is kept, and a sweep that was interrupted goes on where it was. Each seed is a
chain of hours and a pair of clusters (`tests.builders.hourly_seeds`); a seed that differs ends nothing but itself.
Folders of seeds are made where `TMPDIR` says: in memory they cost half. Ends with 1 where a seed differs, or where so
little could be compared that equal says nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from tests.builders.hourly_seeds import SeedResult, play
from tests.witness.journal import played_in_pool

SEEDS_AT_A_TIME = 4
COUNTED = ("chains_compared", "findings_compared")


def play_in_a_folder(seed: int) -> SeedResult:
    """A seed in a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix=f"hours-{seed}-") as folder:
        return play(seed, Path(folder))


def results(seeds: Sequence[int], journal: Path | None = None) -> Iterator[SeedResult]:
    return played_in_pool(
        seeds,
        journal,
        play_in_a_folder,
        job_of=lambda result: result.seed,
        read=_read,
        written=lambda result: json.dumps(asdict(result)),
        jobs_at_a_time=SEEDS_AT_A_TIME,
    )


def _read(line: str) -> SeedResult:
    fields = json.loads(line)
    return SeedResult(**{**fields, "failures": tuple(fields["failures"])})


def too_little(played: Sequence[SeedResult]) -> list[str]:
    """What was compared so rarely that a sweep without differences would say nothing."""
    compared, findings = (sum(getattr(each, name) for each in played) for name in COUNTED)
    broken = []
    if compared * 2 < len(played):
        broken.append(f"of {len(played):,} chains {compared:,} were compared: too few")
    if not findings:
        broken.append(f"in {len(played):,} pairs no finding was compared")
    return broken


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.witness.hourly_sweep", description="Hours of many clusters.")
    parser.add_argument("seeds", type=int, nargs="?", default=10_000)
    parser.add_argument("first_seed", type=int, nargs="?", default=0)
    parser.add_argument("--journal", type=Path, help="a file that keeps what each seed gave; of one state of the code")
    given = parser.parse_args(arguments)
    played = []
    for result in results(range(given.first_seed, given.first_seed + given.seeds), given.journal):
        played.append(result)
        for text in result.failures:
            print(f"seed {result.seed}: {text}", file=sys.stderr, flush=True)  # noqa: T201
    lines = [f"{name.replace('_', ' '):20}{sum(getattr(each, name) for each in played):>12,}" for name in COUNTED]
    broken, failed = too_little(played), sum(bool(each.failures) for each in played)
    seconds = sum(each.seconds for each in played)
    lines += [*broken, f"{len(played):,} seeds, {failed:,} differ, {seconds:,.0f} s of one processor"]
    print("\n".join(lines))  # noqa: T201
    return int(bool(broken or failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
