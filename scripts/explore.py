"""`make explore`: small quorums and partitions, explored completely, within EXPLORE_MINUTES (60).

First the engine's own code (kraft_engine.models), then the Promela models of KIP-853 and KIP-966 under spin. `--short`
is what CI has time for. *complete* is printed only where nothing was left to explore. Ends with 1 where an invariant
breaks with every rule on, or a checker does not find a bug that was switched on.
"""

from __future__ import annotations

import os
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kraft_engine.models import spin
from kraft_engine.models.explore import Bounds, Explored, Explorer

Rules = tuple[str, ...]
SHORT: tuple[tuple[Bounds, Rules], ...] = (
    (Bounds(voters=1, elections=2, records=2, restarts=1), ()),
    (Bounds(voters=2), ()),
    (Bounds(elections=1, epochs=0, records=0), ("commit_needs_majority",)),
    (Bounds(voters=2, records=0, changes=1), ("change_waits_for_epoch_commit",)),
)
LONG: tuple[tuple[Bounds, Rules], ...] = (
    *SHORT,
    (Bounds(voters=2, restarts=1), ()),
    (Bounds(voters=2, disks=1, records=0), ()),
    (Bounds(voters=2, spares=1, elections=1, epochs=0, records=0, changes=1), ()),
    (Bounds(voters=2, static=True), ()),
    (Bounds(voters=2, pre_vote=True), ()),
    (Bounds(voters=2, static=True, dialect="kip856"), ()),
    (Bounds(voters=2, static=True, dialect="kip642"), ()),
    (Bounds(voters=2, elections=3, epochs=2, records=3), ()),
    (Bounds(elections=1, epochs=0, records=0), ()),
    (Bounds(elections=1, epochs=0, records=0, pre_vote=True), ()),
    (Bounds(elections=1, epochs=0, records=0, static=True, dialect="kip856"), ()),
    (Bounds(elections=1, epochs=0, records=0, static=True, dialect="kip642"), ()),
    (Bounds(elections=1, epochs=0), ()),
    (Bounds(elections=1, epochs=0, static=True), ()),
    (Bounds(elections=1, epochs=0, records=2), ()),
    (Bounds(elections=1, epochs=0, records=0, restarts=1), ()),
    (Bounds(elections=1, epochs=0, records=0, disks=1), ()),
    (Bounds(elections=1, epochs=0, records=0, changes=1), ()),
    (Bounds(elections=1, epochs=0, disks=1), ()),
    (Bounds(elections=1, epochs=0, restarts=1), ()),
    (Bounds(elections=1, epochs=0, changes=1), ()),
    (Bounds(spares=1, elections=1, epochs=0, records=0, changes=1), ()),
    (Bounds(elections=2, epochs=1, records=0), ()),
)
BUGS = ("BUG_MAJORITY", "BUG_NO_ELR", "BUG_UNCLEAN_STAYS", "BUG_MIN", "BUG_EPOCH")
SPIN_SHORT: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("kip853", ("N=3", "EPOCHS=2", "LEN=3", "CHANGES=1")),
    ("kip853", ("N=3", "EPOCHS=2", "LEN=3", "CHANGES=1", "BUG_MAJORITY")),
    ("kip966", ()),
    ("kip966", ("BUG_NO_ELR",)),
    ("kip966", ("BUG_UNCLEAN_STAYS",)),
    ("kip966", ("BUG_MIN",)),
)
SPIN_LONG: tuple[tuple[str, tuple[str, ...]], ...] = (
    *SPIN_SHORT,
    ("kip853", ("N=4", "EPOCHS=2", "LEN=3", "CHANGES=1")),
    ("kip853", ("N=4", "FIRST=15", "EPOCHS=3", "LEN=3", "CHANGES=2", "BEGIN_LED", "BUG_EPOCH")),
    ("kip966", ("N=4", "MIN=3")),
)


def explore(bounds: Bounds, without: Rules, seconds: float) -> Explored:
    return Explorer(bounds, without, breadth_first=bool(without)).run(seconds=seconds)


def main() -> int:
    is_short = "--short" in sys.argv
    models, checks = (SHORT, SPIN_SHORT) if is_short else (LONG, SPIN_LONG)
    seconds = 60.0 * (1 if is_short else int(os.environ.get("EXPLORE_MINUTES", "60")))
    failed = False
    with ProcessPoolExecutor(1 if is_short else 2) as pool:
        share = seconds / 2
        waiting = [(rules, pool.submit(explore, bounds, rules, share)) for bounds, rules in models]
        for rules, future in waiting:
            result = future.result()
            print(("without " + ", ".join(rules) + ": " if rules else "") + result.text(), flush=True)
            if result.trace is not None:
                print(result.trace.text(), flush=True)
            failed |= bool(result.violation) != bool(rules)
    if absent := spin.missing():
        print(f"{', '.join(absent)} not here: the Promela models are left out (apt-get install {' '.join(absent)})")
        return int(failed)
    with tempfile.TemporaryDirectory() as folder:
        for number, (model, defines) in enumerate(checks):
            is_bug = any(define in BUGS for define in defines)
            checked = spin.check(model, defines, Path(folder) / str(number), seconds=int(seconds / 4),
                                 breadth_first="BUG_EPOCH" in defines)  # fmt: skip
            print(checked.text(), flush=True)
            failed |= bool(checked.broken) != is_bug
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
