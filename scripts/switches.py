"""`make switches`: turns each safety rule of the engine off and prints how many seeds it took to notice.

Rules may be named on the command line. Ends with 1 where no seed of 500 showed that a rule was off: the invariants do
not cover that rule.
"""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kraft_engine.invariants.switches import RULES
from kraft_engine.runs.hunt import HEADING, SEED_LIMIT, hunt, row

PROCESSES = 2


def main() -> int:
    rules = tuple(sys.argv[1:]) or RULES
    print(HEADING)
    missed = []
    with ProcessPoolExecutor(PROCESSES) as pool:
        for rule, catch in zip(rules, pool.map(hunt, rules), strict=True):
            if catch is None:
                missed.append(rule)
            else:
                print(row(catch), flush=True)
    print(f"{len(rules) - len(missed)} of {len(rules)} rules caught")
    if missed:
        print(f"not within {SEED_LIMIT} seeds: {', '.join(missed)}")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
