"""How fast the engine is, and how many seeds each switched-off rule needs: `python -m benchmarks.engine [--switches]`.

Every invariant is on. Targets: 20,000 events a second on one core, 1 GB of fleet logs in under a minute.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from kraft_engine.drafts import Kip642Run, Kip856Run
from kraft_engine.fleet import simulate_fleet
from kraft_engine.hunt import hunt, table
from kraft_engine.kafka_run import KafkaRun
from kraft_engine.schedule import RandomRun
from kraft_engine.simulate import simulate
from kraft_engine.switches import RULES


def events_a_second(kind: type[RandomRun] | type[KafkaRun], seeds: int, events: int) -> tuple[float, int]:
    """Events a second of one core over `seeds` runs, building included, and how many checks the invariants made."""
    started = time.process_time()
    count = checks = 0
    for seed in range(seeds):
        run = kind(seed)
        count += run.run(events)
        checks += run.invariants.check_count
    return count / (time.process_time() - started), checks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--switches", action="store_true", help="also print the table of switched-off rules")
    arguments = parser.parse_args()
    for kind, events in ((RandomRun, 5_000), (KafkaRun, 10_000), (Kip642Run, 5_000), (Kip856Run, 5_000)):
        rate, checks = events_a_second(kind, arguments.seeds, events)
        print(f"{kind.__name__:12} {rate:>10,.0f} events/s   {checks:>10,} checks")
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        fleet = simulate_fleet(Path(folder) / "fleet", clusters=4, partitions=2_000, changes=1_500_000, replicas=1)
        seconds = time.perf_counter() - started
        megabytes = fleet.log_bytes / 1e6
        print(f"{'fleet':12} {megabytes / seconds:>10,.0f} MB/s       {megabytes:>10,.0f} MB")
        started = time.perf_counter()
        simulation = simulate("random", 1, Path(folder) / "random")
        seconds = time.perf_counter() - started
        print(f"{'simulate':12} {seconds:>10.2f} s          {simulation.event_count:>10,} events")
    if arguments.switches:
        print(table([catch for rule in RULES if (catch := hunt(rule)) is not None]))


if __name__ == "__main__":
    main()
