"""Old software left registrations behind that block an upgrade: `upgrade-check` names the way out, followed as printed.

Broker 102 and controller 4 ran 4.1 and are gone for good; the others run 4.4 at a metadata.version of 4.1.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kraft_audit.rules.columns.kafka_commands import CONFIG
from tests.builders.commands import Command
from tests.builders.printed_commands import kinds_run_by
from tests.drills.drill import Drill
from tests.drills.kafka_node import KafkaNode
from tests.drills.real_cluster import RealCluster, wait_for
from tests.drills.releases import KafkaRelease

pytestmark = [pytest.mark.kafka, pytest.mark.drill]
DRILL = Drill("upgraded-features", "4.4.0")
OLD_RELEASE, OLD_LEVEL, TARGET = "4.1.1", "4.1-IV1", "4.4"
OLD_BROKER, OLD_CONTROLLER = 102, 4


def test_an_upgrade_that_is_blocked_gets_through_by_what_is_printed(
    kafka_releases: Callable[[str], KafkaRelease], tmp_path: Path, kraft_audit: Command
) -> None:
    release, old = kafka_releases(DRILL.release), kafka_releases(OLD_RELEASE)
    cluster = RealCluster(DRILL, tmp_path, release.classpath, release.tools, release.archive)
    left_behind: list[KafkaNode] = []
    try:
        cluster.boot("--release-version", OLD_LEVEL)
        left_behind += [leave_behind(kraft_audit, cluster, old, OLD_BROKER, "broker")]
        left_behind += [leave_behind(kraft_audit, cluster, old, OLD_CONTROLLER, "controller")]
        answer = wait_for("a fenced broker", lambda: blocked_by_both(kraft_audit, cluster))
        commands = [step[step.find("kafka-") :] for step in answer["next_steps"] if "kafka-" in step]
        unregistering, formatting, starting, upgrading, forgetting = commands
        assert cluster.tools.run(*shlex.split(upgrading)).code != 0, "Kafka refuses it, too"
        cluster.run_printed(unregistering)
        replaced = cluster.new_controller(OLD_CONTROLLER, dict(cluster.controllers[1].quorum))
        cluster.run_printed(formatting, replaced)
        assert starting == f"kafka-server-start -daemon {CONFIG}"
        replaced.start()
        wait_for("nothing to block", lambda: ask(kraft_audit, cluster)["verdict"] == "allowed")
        replaced.stop()
        cluster.run_printed(upgrading)
        described = cluster.tools.must_run(["kafka-features", "--bootstrap-server", cluster.server, "describe"])
        (line,) = [line for line in described.splitlines() if line.startswith("Feature: metadata.version")]
        assert "FinalizedVersionLevel: 4.4-IV2" in line
        cluster.run_printed(forgetting)
        wait_for("no ghost", lambda: not is_registered(kraft_audit, cluster, OLD_CONTROLLER))
        wait_for("nothing left to do", lambda: not changes(ask(kraft_audit, cluster)))
        assert kinds_run_by("test_an_upgrade_that_is_blocked_gets_through_by_what_is_printed") <= cluster.kinds_run
    finally:
        for node in left_behind:
            node.kill()
        cluster.kill_all()


def leave_behind(kraft_audit: Command, cluster: RealCluster, old: KafkaRelease, node_id: int, role: str) -> KafkaNode:
    """A node of the old release registers, and its machine is lost."""
    folder = cluster.work / f"old-{node_id}"
    folder.mkdir()
    node = KafkaNode(folder, node_id, role, old.classpath, dict(cluster.controllers[1].quorum), old.archive)
    node.format(old.tools, cluster.cluster_id, *(["--no-initial-controllers"] if role == "controller" else []))
    node.start()
    if role == "broker":
        cluster.brokers[node_id] = node
        cluster.wait_for_brokers([node_id])
        del cluster.brokers[node_id]
    else:
        wait_for("its registration", lambda: is_registered(kraft_audit, cluster, node_id))
    node.kill()
    return node


def is_registered(kraft_audit: Command, cluster: RealCluster, controller: int) -> bool:
    ended = kraft_audit("state", str(cluster.nodes), "--only", "controllers", "-o", "json")
    return any(row["controller_id"] == controller for row in json.loads(ended.out)["controllers"])


def ask(kraft_audit: Command, cluster: RealCluster) -> dict[str, Any]:
    ended = kraft_audit("upgrade-check", str(cluster.nodes), "--to", TARGET, "-o", "json")
    answer: dict[str, Any] = json.loads(ended.out)
    return answer


def blocked_by_both(kraft_audit: Command, cluster: RealCluster) -> dict[str, Any] | None:
    answer = ask(kraft_audit, cluster)
    return answer if answer["verdict"] == "blocked" and "Unregister" in " ".join(answer["next_steps"]) else None


def changes(answer: dict[str, Any]) -> list[dict[str, Any]]:
    return [feature for feature in answer["features"] if feature["finalized_level"] != feature["new_level"]]
