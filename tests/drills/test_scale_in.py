"""A broker and a voter leave a real cluster as `may-i scale-in` prints it; and `format --standalone` against its no."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.builders.commands import Command
from tests.builders.printed_commands import commands_in, echoed, kinds_run_by
from tests.drills.drill import Drill
from tests.drills.real_cluster import RealCluster, wait_for
from tests.drills.releases import KafkaRelease
from tests.drills.test_replaced_voter import ask

pytestmark = [pytest.mark.kafka, pytest.mark.drill]
DRILL = Drill("scale-in", "4.3.1", brokers=3)
BROKER, VOTER = 103, 3


def test_a_broker_and_a_voter_leave_by_what_scale_in_prints(
    kafka_releases: Callable[[str], KafkaRelease], tmp_path: Path, kraft_audit: Command
) -> None:
    release = kafka_releases(DRILL.release)
    cluster = RealCluster(DRILL, tmp_path, release.classpath, release.tools, release.archive)
    asked = [str(BROKER), str(cluster.nodes)]
    try:
        cluster.boot()
        cluster.topic("orders", "--partitions", "6", "--replication-factor", "2")
        cluster.send("orders", "before-")
        wait_for("its replicas in the log", lambda: ask(kraft_audit, ["may-i", "scale-in", *asked])["verdict"] == "no")
        move(cluster, ask(kraft_audit, ["may-i", "scale-in", *asked])["next_steps"])
        answer = wait_for("no partition on it", lambda: allowed(kraft_audit, "scale-in", *asked))
        cluster.brokers[BROKER].kill()
        cluster.run_printed(kafka_commands(answer)[0])
        known = {row[1] for row in cluster.tools.must_ask("state", cluster.server).rows if row[0] == "broker"}
        assert known == {"101", "102"}
        assert set(cluster.acknowledged["orders"]) <= cluster.readable("orders")

        answer = wait_for("a voter to spare", lambda: allowed(kraft_audit, "scale-in", str(VOTER), str(cluster.nodes)))
        node = cluster.controllers[VOTER]
        others = [each for each in cluster.controllers.values() if each is not node]
        cluster.run_printed(kafka_commands(answer)[0])
        wait_for("two voters", lambda: set(cluster.ends("voter", *others)) == {each.node_id for each in others})
        node.kill()
        cluster.topic("after", "--partitions", "1", "--replication-factor", "2")

        # Against its no: the same cluster.id has two leaders then.
        shutil.rmtree(node.log_dir)
        answer = ask(kraft_audit, ["may-i", "format", str(VOTER), str(cluster.nodes), "--standalone"])
        assert (answer["verdict"], "second quorum" in answer["reason"]) == ("no", True)
        node.format(cluster.tools, cluster.cluster_id, "--standalone")
        node.start()
        wait_for("a leader of its own", lambda: cluster.leader(node) == VOTER)
        assert cluster.leader(*others) in {each.node_id for each in others}
        assert kinds_run_by("test_a_broker_and_a_voter_leave_by_what_scale_in_prints") <= cluster.kinds_run
    finally:
        cluster.kill_all()


def allowed(kraft_audit: Command, *words: str) -> Sequence[str] | None:
    """The steps of a yes."""
    answer = ask(kraft_audit, ["may-i", *words])
    steps: list[str] = answer["next_steps"]
    return steps if answer["verdict"] == "yes" else None


def kafka_commands(steps: Sequence[str]) -> list[str]:
    return [each for step in steps for each in commands_in(step) if each.startswith("kafka-")]


def move(cluster: RealCluster, steps: Sequence[str]) -> None:
    """Writes the file that the printed line writes, starts the reassignment, and waits until it is done."""
    line = next(step for step in steps if "echo " in step)
    file = cluster.work / "moved.json"
    file.write_text(echoed(line))
    assert json.loads(file.read_text())["partitions"]
    execute, verify = (each.replace("moved.json", str(file)) for each in kafka_commands(steps)[:2])
    cluster.run_printed(execute)
    wait_for("the reassignment", lambda: "still in progress" not in cluster.run_printed(verify))
