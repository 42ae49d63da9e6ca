"""A scenario's own claim, which findings it must raise and which it nearly raises, against what the rules say."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from kraft_audit.rules.cluster_history import OperatorWord
from kraft_audit.rules.judging import check
from kraft_audit.rules.rule_model import Status
from kraft_engine import simulate
from kraft_engine.scenarios.scenario import load
from tests.builders.captured_histories import shared_ids
from tests.witness.audited import Audited
from tests.witness.truth import Truth

EVERYWHERE = frozenset({"KB003"})
"""Listeners are plaintext unless a scenario is about them."""
ASKED = {"KB006": {"since_year": 2000}}
"""What is reported on request only."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Rules by what became of them. `missing` were claimed and not raised, `false` are near misses that were raised,
    `unclaimed` were raised and the scenario does not say so."""

    scenario: str
    claimed: frozenset[str]
    raised: frozenset[str]
    undecided: frozenset[str]
    missing: frozenset[str]
    false: frozenset[str]
    unclaimed: frozenset[str]


def names() -> list[str]:
    return sorted(load())


def verdict(name: str, seed: int) -> Verdict:
    """Plays a scenario, reads all of its captures as one cluster, and runs every rule."""
    scenario = load()[name]
    with tempfile.TemporaryDirectory(prefix="kraft-witness-") as folder:
        out = Path(folder) / "run"
        simulate(name, seed, out)
        history = Audited.said_to_be_one(out, Truth.of(out).run).history
        said = replace(history, operator=OperatorWord(gone=frozenset(scenario.gone)))
        findings = list(check(said, ASKED))
        assert not shared_ids(findings), "two findings share an id"
    raised = frozenset(finding.rule for finding in findings if finding.status is Status.RAISED)
    undecided = frozenset(finding.rule for finding in findings if finding.status is Status.UNDECIDED)
    claimed = frozenset(scenario.raises)
    near = frozenset(scenario.near_miss_of)
    expected = claimed | frozenset(scenario.may_raise) | (EVERYWHERE - near)
    return Verdict(name, claimed, raised, undecided, claimed - raised, near & raised, raised - expected)
