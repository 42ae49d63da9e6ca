"""Scenarios raise the findings that they claim and not what they nearly do; random runs raise only what happened."""

from __future__ import annotations

import pytest

from kraft_audit.rules.registry import rules
from kraft_engine.scenarios.scenario import load
from tests.witness.confusion import DECIDED, confusion_of
from tests.witness.runs import regressions, seed_count
from tests.witness.scenarios import Verdict, names, verdict

FEW = ("healthy", "last-replica-standing", "last-replica-standing-elr", "elr-wiped-by-config", "single-server-bug")


def check_scenario(found: Verdict) -> None:
    assert found.false == frozenset(), f"a near miss was raised in {found.scenario}"
    assert found.missing == frozenset(), f"{found.scenario} claims it"
    assert found.unclaimed == frozenset(), f"{found.scenario} does not claim it"


@pytest.mark.parametrize("rule", sorted(rules()))
def test_every_rule_has_a_scenario_and_a_near_miss(rule: str) -> None:
    scenarios = load().values()
    assert any(rule in scenario.raises for scenario in scenarios)
    assert any(rule in scenario.near_miss_of for scenario in scenarios)


def test_scenarios_name_rules_that_exist() -> None:
    named = {rule for value in load().values() for rule in (*value.raises, *value.near_miss_of, *value.may_raise)}
    assert named <= rules().keys()


@pytest.mark.parametrize("name", FEW)
def test_scenario_raises_what_it_claims(name: str) -> None:
    check_scenario(verdict(name, 1))


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_every_scenario_raises_what_it_claims_whatever_the_seed(name: str) -> None:
    for seed in range(2, 4):
        check_scenario(verdict(name, seed))


def test_random_runs_raise_what_happened() -> None:
    reported = [text for seed in range(seed_count(1)) for text in confusion_of("random", seed).disagreements]
    assert reported == []


def test_every_rule_is_decided_by_truth() -> None:
    assert set(DECIDED) == rules().keys()


@pytest.mark.ci
@pytest.mark.parametrize("row", regressions("finding_seeds"), ids=lambda item: f"{item['scenario']}-{item['seed']}")
def test_what_was_once_a_false_finding_is_none(row: dict[str, object]) -> None:
    assert confusion_of(str(row["scenario"]), int(str(row["seed"]))).disagreements == []
