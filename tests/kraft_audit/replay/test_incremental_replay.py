"""Silver tables in runs: whatever arrives when, the rows that hold are those of one run over everything.

The histories are simulated ones: elections, uncommitted suffixes, cut logs, snapshots, membership changes, at several
moments. What holds is derived here from the rows of `replays` alone, beside the views of a lake that do it in SQL.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kraft_audit.capture.path_plans import plan_path
from kraft_audit.capture.plan import ClusterPlan, ReplicaPlan, plan_from_json, plan_to_json
from kraft_audit.replay.cluster_replay import REPLAY_TABLES
from kraft_codec.records.redaction import Redactor
from kraft_codec.storage.opener import open_storage
from kraft_engine import simulate
from tests.builders.hourly_disks import position_of
from tests.builders.readings import silver_rows

pytestmark = pytest.mark.slow

KEY = bytes(32)
SCENARIOS = ("random", "random-raft", "random-kip856", "random-kip642")
IDENTITY = {
    "voter_sets": ("from_offset", "from_epoch"),
    "leader_epochs": ("epoch", "from_offset"),
}
Rows = dict[str, list[dict[str, Any]]]


def read(plan: ClusterPlan, *, observed: bool = False) -> Rows:
    """One run's rows by table; `observed`: as the pipeline does, from the earliest record there is."""
    found: Rows = {}
    for name, batch in silver_rows(
        plan_from_json(plan_to_json(plan)), open_storage=open_storage, redactor=Redactor(KEY), is_observed=observed
    ):
        found.setdefault(name, []).extend(batch.to_pylist())
    return found


def in_runs(plan: ClusterPlan, arrivals: Sequence[Sequence[ReplicaPlan]], *, observed: bool = False) -> list[Rows]:
    """The rows of a run after each arrival; what came before is context."""
    position, before, runs = None, list[ReplicaPlan](), list[Rows]()
    for number, arrived in enumerate(arrivals):
        next_plan = replace(plan, number=number, replicas=tuple(arrived), context=tuple(before), silver=position)
        runs.append(read(next_plan, observed=observed))
        position = position_of(runs[-1])
        before += arrived
    return runs


def holding(runs: Sequence[Rows]) -> dict[str, list[str]]:
    """What holds after all runs, as sorted lines."""
    found: dict[str, list[str]] = {}
    for table in REPLAY_TABLES:
        held = []
        for number, rows in enumerate(runs):
            cuts = [row["from_offset"] for later in runs[number + 1 :] for row in later["replays"]]
            held += [row for row in rows.get(table, ()) if all(row["from_offset"] < cut for cut in cuts)]
        found[table] = as_lines(held)
    for table, names in IDENTITY.items():
        newest = {json.dumps([row[name] for name in names]) for row in runs[-1].get(table, ())}
        older = {json.dumps([row[name] for name in names]): row for rows in runs for row in rows.get(table, ())}
        reverted = [row for key, row in older.items() if key not in newest and not row["canonical"]]
        found[table] = as_lines([*runs[-1].get(table, ()), *reverted])
    return found


def as_lines(rows: Iterable[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps({k: v for k, v in row.items() if k != "plan"}, default=str) for row in rows)


def simulated(scenario: str, seed: int, out: Path) -> ClusterPlan:
    simulate(scenario, seed, out)
    plans = plan_path(str(out), open_storage=open_storage, captured_at_ms=0)
    return max(plans, key=lambda plan: len(plan.replicas))


def split(plan: ClusterPlan, chance: random.Random) -> list[list[ReplicaPlan]]:
    """Captures in time, some of them in one run; or replicas in any order."""
    replicas = list(plan.replicas)
    if chance.random() < 0.5:
        chance.shuffle(replicas)
    cuts = sorted(chance.sample(range(1, len(replicas)), min(len(replicas) - 1, chance.randint(1, 3))))
    return [replicas[start:end] for start, end in zip([0, *cuts], [*cuts, len(replicas)], strict=True)]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_any_split_into_runs_gives_the_same_tables(scenario: str, seed: int, tmp_path: Path) -> None:
    plan = simulated(scenario, seed, tmp_path / "run")
    chance = random.Random(seed)  # noqa: S311  # not a secret
    whole = holding([read(plan)])
    for observed in (False, True):
        arrivals = split(plan, chance)
        found = holding(in_runs(plan, arrivals, observed=observed))
        for table, rows in whole.items():
            assert found[table] == rows, (table, observed, [len(arrival) for arrival in arrivals])


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_any_order_of_replicas_gives_the_same_tables(scenario: str, tmp_path: Path) -> None:
    plan = simulated(scenario, 1, tmp_path / "run")
    replicas = list(plan.replicas)
    random.Random(1).shuffle(replicas)  # noqa: S311  # not a secret
    assert holding([read(replace(plan, replicas=tuple(replicas)))]) == holding([read(plan)])
