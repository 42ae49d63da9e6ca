"""Prints how often each kind of event occurs in random runs of the engine: `python scripts/occurrences.py [SEEDS]`.

SEEDS (50) of every kind of run. Ends with 1 where something that must occur never did.
"""

from __future__ import annotations

import sys

from kraft_engine.runs.occurrences import EXPECTED, RUN_CLASSES, observe


def main() -> int:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    counts = observe(seeds)
    for kind in sorted({*EXPECTED, *counts}):
        print(f"{counts[kind]:>9,}  {kind}{'' if counts[kind] else '  NEVER'}")
    missing = [kind for kind in EXPECTED if not counts[kind]]
    print(f"{seeds * len(RUN_CLASSES)} runs; {len(EXPECTED) - len(missing)} of {len(EXPECTED)} kinds occurred")
    return int(bool(missing))


if __name__ == "__main__":
    sys.exit(main())
