"""Every command that recovery prints is run by a test as it was printed.

This tool's own run here. Those of Kafka are of a kind that `EXECUTED_BY` names a test for, which starts a real Kafka.
"""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

import kraft_audit as audit
from kraft_audit.cluster import Cluster
from kraft_audit.recovery.may_i.permission import Action, Question
from kraft_audit.rules.rule_model import Status
from tests.builders.captures import SMALL_CORPUS
from tests.builders.commands import Command
from tests.builders.feature_logs import random_feature_log
from tests.builders.printed_commands import EXECUTED_BY, commands_in, kind_of

pytestmark = pytest.mark.slow

LEVELS = (19, 25, 27, 30, 33)
RULES = ("KQ020", "KQ021", "KQ022", "KQ023", "KQ024", "KQ025", "KB008")
SEEDS = 12


def printed(cluster: Cluster) -> Iterator[str]:
    """Every line of advice about a cluster: what may be done, upgrades, a lost majority, and the rules about it."""
    voters = cluster.standing().voters
    nodes = {*voters, *(row.node_id for row in cluster.permissions().rows)}
    for node, action in itertools.product(sorted(nodes), Action):
        for stopped in (frozenset[int](), frozenset(voters[:1])):
            yield from cluster.may_i(Question(action, node, cluster.root, stopped=stopped)).next_steps
    for level in LEVELS:
        yield from cluster.upgrade_check(level).next_steps
    for count in range(len(voters) + 1):
        yield from cluster.rescue_plan(voters[:count]).next_steps
    for finding in cluster.check(only=RULES):
        yield finding.what_to_do if finding.status is Status.RAISED else ""


def captures() -> list[Path]:
    found = (path for path in Path(SMALL_CORPUS).glob("*/*") if any(path.glob("*/**/meta.properties")))
    return sorted(path for path in found if path.is_dir())


def test_each_printed_command_is_run_as_printed(
    kraft_audit: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(SEEDS):
        random_feature_log(Random(seed)).write(tmp_path / f"features-{seed}")  # noqa: S311
    own, kinds = set[str](), dict[str, str]()
    for place in [*captures(), *sorted(tmp_path.glob("features-*"))]:
        with audit.open(str(place)) as clusters:
            for cluster in clusters:
                for line in printed(cluster):
                    for command in commands_in(line):
                        if command.startswith("kraft-audit "):
                            own.add(command)
                        else:
                            kinds.setdefault(kind_of(command), command)
    unknown = {kind: command for kind, command in kinds.items() if kind not in EXECUTED_BY}
    assert not unknown, "\n".join(unknown.values())
    monkeypatch.chdir(tmp_path)
    one_of_each = {}
    for command in sorted(own):
        _, verb, action, *_ = shlex.split(command)
        one_of_each[verb, action if verb == "may-i" or action == "--plan" else ""] = command
    for command in one_of_each.values():
        ended = kraft_audit(*shlex.split(command)[1:])
        assert ended.code in ((2,) if "HOST:PORT" in command else (0, 1, 4)), (command, ended)
    assert {verb for verb, _ in one_of_each} >= {"may-i", "rescue", "recover-plan", "upgrade-check"}
    assert {("rescue", "--plan"), ("rescue", "")} <= one_of_each.keys()


def test_each_named_test_is_there(project_root: Path) -> None:
    for runner in set(EXECUTED_BY.values()):
        path, _, name = runner.partition("::")
        assert f"def {name}(" in (project_root / path).read_text(), runner
