"""The bytes that seeds of the engine give, as hashes: equal on every platform and version of Python.

`python scripts/pin_trees.py` plays what tests/kraft_engine/runs/pinned_trees.txt names and prints what differs; with
`--write` it renews the file. That is right where a change of the engine is meant to change what it writes, and its
commit says so. A difference that is not meant is a bug.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kraft_engine.runs.simulate import simulate, tree_hash

FILE = Path(__file__).resolve().parents[1] / "tests" / "kraft_engine" / "runs" / "pinned_trees.txt"


def pinned() -> dict[tuple[str, int], str]:
    """The hash of each (scenario, seed) in the file."""
    rows = [line.split() for line in FILE.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return {(scenario, int(seed)): sha256 for scenario, seed, sha256 in rows}


def played(scenario: str, seed: int) -> str:
    """The hash of all files that the engine writes."""
    with tempfile.TemporaryDirectory() as folder:
        simulate(scenario, seed, Path(folder) / "run")
        return tree_hash(Path(folder) / "run")


def main(arguments: list[str]) -> int:
    before = pinned()
    now = {(scenario, seed): played(scenario, seed) for scenario, seed in before}
    for (scenario, seed), sha256 in now.items():
        if sha256 != before[scenario, seed]:
            print(f"{scenario}, seed {seed}: {sha256}, pinned is {before[scenario, seed]}")
    if arguments == ["--write"]:
        head = [line for line in FILE.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
        rows = [f"{scenario} {seed} {sha256}" for (scenario, seed), sha256 in now.items()]
        FILE.write_text("\n".join([*head, *rows]) + "\n", encoding="utf-8")
        return 0
    return int(now != before)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
