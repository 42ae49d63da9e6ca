"""A voter's disk is wiped on a real quorum, and comes back by the commands that `may-i` prints, each as it stands."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kraft_audit.rules.columns.kafka_commands import CONFIG
from tests.builders.commands import Command
from tests.builders.printed_commands import kind_of, kinds_run_by
from tests.drills.drill import Drill
from tests.drills.real_cluster import RealCluster, wait_for
from tests.drills.releases import KafkaRelease

pytestmark = [pytest.mark.kafka, pytest.mark.drill]
DRILL = Drill("replaced-voter", "4.3.1")
WIPED = 3


def test_a_wiped_voter_comes_back_by_what_may_i_prints(
    kafka_releases: Callable[[str], KafkaRelease], tmp_path: Path, kraft_audit: Command
) -> None:
    release = kafka_releases(DRILL.release)
    cluster = RealCluster(DRILL, tmp_path, release.classpath, release.tools, release.archive)
    try:
        cluster.boot()
        cluster.topic("orders", "--partitions", "2", "--replication-factor", "1")
        cluster.send("orders", "before-")
        node = cluster.controllers[WIPED]
        others = [each for each in cluster.controllers.values() if each is not node]
        node.kill()
        wait_for("a leader among the others", lambda: cluster.leader(*others) in {each.node_id for each in others})
        # With its old id and directory the empty disk might vote again, as nothing shows a later epoch: the way printed
        # gives it another directory id, with which it is no voter until it is added.
        answer = ask(kraft_audit, ["may-i", "wipe", str(WIPED), str(cluster.nodes)])
        assert answer["verdict"] in ("yes", "undecided"), answer
        shutil.rmtree(node.log_dir)
        removing, formatting, starting, adding = [step[step.find("kafka-") :] for step in answer["next_steps"]]
        cluster.run_printed(removing, node)
        assert set(cluster.ends("voter", *others)) == {each.node_id for each in others}
        cluster.run_printed(formatting, node)
        assert starting == f"kafka-server-start -daemon {CONFIG}"
        node.start()  # the class that this script runs (kafka_scripts)
        end = max(cluster.ends("voter", *others).values())
        wait_for("the new disk to catch up", lambda: cluster.ends("observer", *others).get(WIPED, -1) >= end)
        cluster.run_printed(adding, node)
        wait_for("three voters", lambda: set(cluster.ends("voter", *others, node)) == set(cluster.controllers))
        cluster.send("orders", "after-")
        assert set(cluster.acknowledged["orders"]) <= cluster.readable("orders")
        ended = kraft_audit("may-i", "restart", str(WIPED), str(cluster.nodes), "-o", "json")
        assert json.loads(ended.out)["verdict"] == "yes", ended
        started = {kind_of(starting)}
        assert kinds_run_by("test_a_wiped_voter_comes_back_by_what_may_i_prints") <= cluster.kinds_run | started
    finally:
        cluster.kill_all()


def ask(kraft_audit: Command, words: list[str]) -> dict[str, Any]:
    ended = kraft_audit(*words, "-o", "json")
    answer: dict[str, Any] = json.loads(ended.out)
    assert ended.code == {"yes": 0, "no": 1, "undecided": 4}[answer["verdict"]], ended
    return answer
