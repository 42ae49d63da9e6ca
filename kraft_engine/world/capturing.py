"""Captures: copies of nodes' dirs, taken at one moment or node by node, while they run or after they stopped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from kraft_codec.schemas import Dialect
from kraft_engine.brokers.broker import Broker
from kraft_engine.consensus.log_batches import Record
from kraft_engine.invariants.run_invariants import RaftInvariants
from kraft_engine.runs.truth import moment, write_truth
from kraft_engine.world.log_dirs import NodeDir
from kraft_engine.world.processes import Cluster


class Recorder:
    """Writes `<out>/<capture>/node-<id>/…` as often as it is asked to, and `<out>/truth.jsonl` once.

    `brokers` gives the broker in a slot whose data dirs are to be copied too; random runs leave them out.
    """

    def __init__(
        self,
        out: Path,
        cluster: Cluster,
        invariants: RaftInvariants,
        *,
        dialect: Dialect = Dialect.KIP853,
        bootstrap_records: list[Record] | None = None,
        preallocated: bool = False,
        brokers: Callable[[int], Broker | None] = lambda slot: None,
    ) -> None:
        self.out = out
        self.cluster = cluster
        self.invariants = invariants
        self.dialect = dialect
        self.bootstrap_records = bootstrap_records or []
        self.preallocated = preallocated
        self.brokers = brokers
        self.captures: list[str] = []
        # Copies keep the times of files; else they are those of the run itself.
        self.keeps_times = False

    def capture(self, name: str, node_ids: tuple[int, ...] | None = None) -> Path:
        """Copies the named nodes (all where None) as they are now; asking again for a name adds to that capture."""
        folder = self.out / name
        chosen = [process for process in self.cluster.processes if node_ids is None or process.id in node_ids]
        torn = {}
        for process in chosen:
            node_dir = NodeDir(
                folder / f"node-{process.id}",
                self.dialect,
                self.cluster.settings.cluster_id,
                bootstrap_records=self.bootstrap_records,
                preallocated=self.preallocated,
            )
            torn[process.id] = node_dir.write(process)
            if self.keeps_times:
                node_dir.keep_times(process)
            broker = self.brokers(process.slot)
            if broker is not None:
                node_dir.write_data(process, broker)
        if name not in self.captures:
            self.captures.append(name)
        self.invariants.record(
            "capture",
            capture=name,
            captured=[process.id for process in chosen],
            torn=[{"node_id": node_id, **asdict(tail)} for node_id, tail in torn.items() if tail is not None],
            **moment(self.cluster, self.invariants),
        )
        return folder

    def finish(self, scenario: str, *, raises: tuple[str, ...] = (), story: str = "") -> None:
        head = {
            "scenario": scenario,
            "seed": self.cluster.world.seed,
            "dialect": str(self.dialect),
            "cluster_id": self.cluster.settings.cluster_id,
            "captures": list(self.captures),
            "raises": list(raises),
            "story": story,
        }
        write_truth(self.out / "truth.jsonl", head, self.cluster, self.invariants)
