"""From log dirs to histories and findings, and the state of a very large cluster, on logs of a simulated fleet.

The rate that is asked is absolute (200 MB/s of log on one core), so its ratio is to that rate. It was asked for a
machine where aiokafka splits the same log into records at 850 MB/s: the same figure is also shown as a share of that,
measured here in the same run. The others are ratios to work measured in the same run.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks.decode_peers import PeerError, aiokafka_framing
from benchmarks.figures import Figure, Skipped, paired, print_figures, rate
from benchmarks.pipeline import write_nodes
from benchmarks.reading import plan_of
from benchmarks.synthetic_log import synthetic_log
from kraft_audit.capture.plan import ClusterPlan
from kraft_audit.pipeline.history_collector import read_history
from kraft_audit.quorum.ordered_reading import OrderedReading
from kraft_audit.quorum.rounds import proven_rounds
from kraft_audit.reading import ClusterReading, ReadingSettings
from kraft_audit.replay.cluster_replay import ClusterReplay
from kraft_audit.replay.cluster_state import state_at
from kraft_audit.replay.driver import BranchLog
from kraft_audit.rules import judging
from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_codec.records.redaction import Redactor
from kraft_codec.storage.opener import open_storage
from kraft_engine.runs.fleet_logs import simulate_fleet

ASKED_BYTES_A_SECOND = 200e6
ASKED_OF_FRAMING = 200 / 850
STATE_SECONDS = 5.0
STATE_MIB = 2048
AT_AN_OFFSET_SECONDS = 2.0
RULES_SECONDS = 30.0


def reading_of(plan: ClusterPlan) -> ClusterReading:
    return ClusterReading(plan, ReadingSettings(open_storage, Redactor(bytes(32))))


def canonical_branch(reading: ClusterReading) -> int:
    """The branch that is replayed."""
    canonical = proven_rounds(reading.survey, reading.plan)[-1].interval.canonical
    assert canonical is not None
    return canonical.number


def canonical_path(plan: ClusterPlan) -> list[int]:
    with reading_of(plan) as reading:
        return reading.survey.path(canonical_branch(reading))


def decode(plan: ClusterPlan, path: list[int]) -> int:
    """The floor: the same windows read, decoded into the same typed columns, and dropped."""
    with reading_of(plan) as reading:
        return sum(window.to_offset - window.from_offset for window in reading.windows(path))


def replay(plan: ClusterPlan, path: list[int]) -> int:
    """Every row of every `*_changes` table; how many."""
    histories = ClusterReplay(cluster_id=plan.cluster_id)
    rows = 0
    with reading_of(plan) as reading:
        for window in reading.windows(path):
            rows += sum(batch.num_rows for _, batch in histories.replay(window.records, window.to_offset))
    return rows + sum(batch.num_rows for _, batch in histories.finish())


def audit(plan: ClusterPlan) -> int:
    """All three as one, as `check` does it: files are surveyed, decoded, replayed, their history kept and judged.

    How many findings, clear ones too.
    """
    return len(list(judging.check(history_of(plan), {})))


def history_of(plan: ClusterPlan) -> ClusterHistory:
    with OrderedReading(plan, ReadingSettings(open_storage, Redactor(bytes(32)))) as ordered:
        return read_history(ordered)


def middle_state_seconds(plan: ClusterPlan) -> float:
    """How long the state at the middle of a log takes, reading it included."""
    started = time.perf_counter()
    with reading_of(plan) as reading:
        branch = canonical_branch(reading)
        state_at(BranchLog(reading, branch), offset=reading.survey.epochs_to(branch)[-1].to_offset // 2)
    return time.perf_counter() - started


def judge(history: ClusterHistory) -> int:
    """All rules over a history that was read, nothing kept from an earlier time; how many findings."""
    return len(list(judging.check(replace(history, _shared={}), {})))


def log_bytes(plan: ClusterPlan) -> int:
    return sum(file.size_bytes for replica in plan.replicas for file in replica.files if file.name.endswith(".log"))


def in_own_process(work: Callable[[str], tuple[float, float]], folder: Path) -> tuple[float, float]:
    """(seconds, peak MiB) of work in a process that did nothing before."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, (str(folder),))


def state_of(folder: str) -> tuple[float, float]:
    """A cluster's state at its end, from the snapshot; kernels warm, as `paired` leaves them elsewhere."""
    plan = plan_of(Path(folder))
    started = time.perf_counter()
    with reading_of(plan) as reading:
        found = state_at(BranchLog(reading, canonical_branch(reading)))
    took = time.perf_counter() - started
    assert found.tables["partition_changes"].num_rows
    return took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def rules_of(folder: str) -> tuple[float, float]:
    """The rules alone over a history that is there, and the peak of everything before."""
    history = history_of(plan_of(Path(folder)))
    started = time.perf_counter()
    list(judging.check(history, {}))
    return time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def mixed_of(folder: Path, mib: int, pairs: int) -> list[Figure | Skipped]:
    """The mix that the rate is asked for: every partition created and changed four times, and found fault with."""
    log = synthetic_log(mib << 20, connected=True)
    plan = plan_of(write_nodes(folder, log, 1))
    path = canonical_path(plan)
    framed = log.tobytes()
    print(f"   findings of the mix of {log_bytes(plan) / 1e6:.0f} MB, clear ones too: {audit(plan):,}")
    figures: list[Figure | Skipped] = []
    for name, work in (("replay", lambda: replay(plan, path)), ("replay + rules", lambda: audit(plan))):
        figures += against_decoding(f"the mix: decode + {name}", work, plan, path, pairs)
        figures.append(of_framing(f"the mix: decode + {name}", work, framed, pairs))
    return figures


def against_decoding(
    name: str, work: Callable[[], int], plan: ClusterPlan, path: list[int], pairs: int
) -> Iterator[Figure]:
    """Of decoding the same alone, and of the rate that is asked."""
    size = log_bytes(plan)
    ratio, ours, floor = paired(work, lambda: decode(plan, path), pairs)
    our_rate = rate(size, 0, ours)
    yield Figure(f"{name}, of decoding alone", ratio, 0.3, our_rate, f"decoding the same alone {rate(size, 0, floor)}")
    yield Figure(name, size / ours / ASKED_BYTES_A_SECOND, 1, our_rate, "200 MB/s")


def of_framing(name: str, work: Callable[[], int], log: bytes, pairs: int) -> Figure | Skipped:
    """The rate that is asked, on a machine of any speed."""
    name = f"{name}, of aiokafka's framing alone"
    try:
        peer = aiokafka_framing(log)
    except PeerError as reason:
        return Skipped(name, str(reason))
    ratio, ours, floor = paired(work, peer, pairs)
    return Figure(name, ratio, ASKED_OF_FRAMING, rate(len(log), 0, ours), f"framing {rate(len(log), 0, floor)}")


def histories_of(folder: Path, pairs: int) -> list[Figure]:
    """Decode, replay and rules over one cluster's log."""
    plan = plan_of(folder)
    size = log_bytes(plan)
    path = canonical_path(plan)
    figures = list(against_decoding("decode + replay", lambda: replay(plan, path), plan, path, pairs))
    figures += against_decoding("decode + replay + rules", lambda: audit(plan), plan, path, pairs)
    print(f"   findings of {size / 1e6:.0f} MB, clear ones too: {audit(plan):,}")
    history = history_of(plan)
    ratio, alone, replayed = paired(lambda: judge(history), lambda: replay(plan, path), pairs)
    figures.append(Figure("rules, of the replay before them", ratio, 1, f"{alone:.2f} s", f"replay {replayed:.2f} s"))
    took = [middle_state_seconds(plan) for _ in range(2)][-1]
    name = f"state at the middle of {size / 1e6:.0f} MB"
    figures.append(Figure(name, AT_AN_OFFSET_SECONDS / took, 1, f"{took:.2f} s", "2 s"))
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=64, help="of the mixed log that is replayed")
    parser.add_argument("--changes", type=int, default=1_500_000, help="of the log that is replayed")
    parser.add_argument("--partitions", type=int, default=2_000_000, help="of the large cluster")
    parser.add_argument("--pairs", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        busy, large = Path(scratch) / "busy", Path(scratch) / "large"
        simulate_fleet(busy, clusters=1, partitions=10_000, changes=options.changes, replicas=1)
        figures = mixed_of(Path(scratch) / "mixed", options.mib, options.pairs)
        figures += histories_of(busy, options.pairs)
        simulate_fleet(large, clusters=1, partitions=options.partitions, changes=0, replicas=1)
        took, mib = in_own_process(state_of, large)
        figures.append(Figure(f"{options.partitions:,} partitions", STATE_SECONDS / took, 1, f"{took:.1f} s", "5 s"))
        figures.append(Figure("their memory", STATE_MIB / mib, 1, f"{mib:,.0f} MiB", "2,048 MiB"))
        took, _ = in_own_process(rules_of, large)
        figures.append(Figure("rules over them", RULES_SECONDS / took, 1, f"{took:.1f} s", "30 s"))
    print_figures(figures)


if __name__ == "__main__":
    main()
