"""How fast the engine is: events a second with every invariant on, fleet logs a second, one simulation.

Floors: 20,000 events a second on one core, 1 GB of fleet logs in under a minute. Ends with 1 where one is missed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.figures import Figure, print_figures
from kraft_engine.drafts import Kip642Run, Kip856Run
from kraft_engine.runs.fleet_logs import simulate_fleet
from kraft_engine.runs.kafka_run import KafkaRun
from kraft_engine.runs.schedule import RandomRun
from kraft_engine.runs.simulate import simulate

FLOOR_EVENTS = 20_000
FLOOR_FLEET_MB = 1_000 / 60


def events_a_second(kind: type[RandomRun] | type[KafkaRun], seeds: int, events: int) -> tuple[float, int]:
    """Events a second of one core over `seeds` runs, building included, and how many checks the invariants made."""
    started = time.process_time()
    count = checks = 0
    for seed in range(seeds):
        run = kind(seed)
        count += run.run(events)
        checks += run.invariants.check_count
    return count / (time.process_time() - started), checks


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    arguments = parser.parse_args()
    figures = []
    for kind, events in ((RandomRun, 5_000), (KafkaRun, 10_000), (Kip642Run, 5_000), (Kip856Run, 5_000)):
        rate, checks = events_a_second(kind, arguments.seeds, events)
        ours = f"{rate:,.0f} events/s, {checks:,} checks"
        figures.append(Figure(f"{kind.__name__}, every invariant on", rate / FLOOR_EVENTS, 1, ours, "20,000 events/s"))
    with tempfile.TemporaryDirectory() as folder:
        started = time.process_time()
        fleet = simulate_fleet(Path(folder) / "fleet", clusters=4, partitions=2_000, changes=1_500_000, replicas=1)
        rate = fleet.log_bytes / 1e6 / (time.process_time() - started)
        ours = f"{rate:,.0f} MB/s, {fleet.log_bytes / 1e6:,.0f} MB"
        figures.append(Figure("simulate fleet", rate / FLOOR_FLEET_MB, 1, ours, "1 GB a minute"))
        started = time.process_time()
        simulation = simulate("random", 1, Path(folder) / "random")
        seconds = time.process_time() - started
        print(f"one random simulation: {seconds:.2f} s, {simulation.event_count:,} events")
    print_figures(figures)
    return int(any(figure.ratio < figure.asked for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
