"""What `may-i` and `upgrade-check` print about a quorum that runs works on a real one, each command as it stands."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builders.commands import Command
from tests.builders.printed_commands import commands_in, kinds_run_by
from tests.drills.drill import Drill
from tests.drills.real_cluster import RealCluster, wait_for
from tests.drills.releases import KafkaRelease
from tests.drills.test_replaced_voter import ask
from tests.drills.test_scale_in import move

pytestmark = [pytest.mark.kafka, pytest.mark.drill]

RELEASE = "4.3.1"
LAGGING, LOST_BROKER = 3, 102
RECORDS = 1_100
"""More than a voter may lag (controller_permission.NEAR_RECORDS)."""
MakeCluster = Callable[[Drill], RealCluster]


@pytest.fixture
def make_cluster(kafka_releases: Callable[[str], KafkaRelease], tmp_path: Path) -> MakeCluster:
    def make(drill: Drill) -> RealCluster:
        release = kafka_releases(drill.release)
        return RealCluster(drill, tmp_path, release.classpath, release.tools, release.archive)

    return make


def test_every_command_about_a_live_quorum_works_as_printed(make_cluster: MakeCluster, kraft_audit: Command) -> None:
    """A static quorum becomes dynamic, goes down a release, has a voter that lags, and loses a broker for good."""
    cluster = make_cluster(Drill("quorum-commands", RELEASE, brokers=2, is_static=True))
    try:
        cluster.boot("--release-version", "4.2-IV1")
        cluster.topic("orders", "--partitions", "1", "--replication-factor", "2", "--config", "min.insync.replicas=2")
        cluster.run_printed(printed(kraft_audit, cluster, "may-i", "scale-in", "1"))
        wait_for("a dynamic quorum", lambda: level(cluster, "kraft.version") == "1")
        cluster.run_printed(printed(kraft_audit, cluster, "upgrade-check", "--to", "4.1"))
        wait_for("the older levels", lambda: level(cluster, "metadata.version") == "4.1-IV1")
        assert "orders" not in cluster.run_printed(printed(kraft_audit, cluster, "may-i", "restart", "101"))
        # A voter stays away while the others write more than it can catch up with at once.
        cluster.controllers[LAGGING].kill()
        topics = [word for number in range(RECORDS) for word in ("--topic", f"t{number}")]
        cluster.acl("--add", "--allow-principal", "User:many", "--operation", "Read", *topics)
        lags = cluster.run_printed(printed(kraft_audit, cluster, "may-i", "restart", "1"))
        assert f"\n{LAGGING}" in lags
        cluster.brokers[LOST_BROKER].kill()
        words = ["may-i", "scale-in", str(LOST_BROKER), str(cluster.nodes)]
        assert "wait until it is fenced" in kraft_audit(*words).out
        wait_for("it to be fenced", lambda: "wait until it is fenced" not in kraft_audit(*words).out)
        move(cluster, ask(kraft_audit, words)["next_steps"])
        wait_for("no partition on it", lambda: kraft_audit(*words).code == 0)
        cluster.run_printed(printed(kraft_audit, cluster, *words[:3]))
        known = {row[1] for row in cluster.tools.must_ask("state", cluster.server).rows if row[0] == "broker"}
        assert known == {"101"}
        assert kinds_run_by("test_every_command_about_a_live_quorum_works_as_printed") <= cluster.kinds_run
    finally:
        cluster.kill_all()


@pytest.mark.ci
def test_commands_through_a_broker_work_as_printed(make_cluster: MakeCluster, kraft_audit: Command) -> None:
    """Before metadata.version 3.7-IV0 no controller registers and none takes commands."""
    cluster = make_cluster(Drill("through-a-broker", RELEASE, voters=1, is_static=True))
    try:
        for node in (*cluster.controllers.values(), *cluster.brokers.values()):
            node.format(cluster.tools, cluster.cluster_id, "--release-version", "3.6-IV0")
            node.start()
        cluster.wait_for_brokers(cluster.brokers)
        assert "LeaderId:" in cluster.run_printed(printed(kraft_audit, cluster, "may-i", "start", "1"))
        cluster.run_printed(printed(kraft_audit, cluster, "upgrade-check", "--to", "3.5"))
        wait_for("the older level", lambda: level(cluster, "metadata.version") == "3.5-IV2")
        cluster.run_printed(printed(kraft_audit, cluster, "may-i", "scale-in", "1"))
        wait_for("a dynamic quorum", lambda: level(cluster, "kraft.version") == "1")
        cluster.run_printed(printed(kraft_audit, cluster, "upgrade-check", "--to", "4.3"))
        wait_for("the newest level", lambda: level(cluster, "metadata.version") == "4.3-IV0")
        assert kinds_run_by("test_commands_through_a_broker_work_as_printed") <= cluster.kinds_run
    finally:
        cluster.kill_all()


@pytest.mark.ci
def test_unclean_election_goes_off_through_a_controller_as_printed(
    make_cluster: MakeCluster, kraft_audit: Command
) -> None:
    """Both brokers are killed: whichever starts first would be elected uncleanly until the topic says otherwise."""
    cluster = make_cluster(Drill("unclean-off", RELEASE, voters=1, brokers=2, is_static=True))
    try:
        cluster.boot()
        on = ("--config", "unclean.leader.election.enable=true", "--config", "min.insync.replicas=2")
        cluster.topic("orders", "--partitions", "1", "--replication-factor", "2", *on)
        for broker in cluster.brokers.values():
            broker.kill()
        words = ["may-i", "start", "101", str(cluster.nodes)]
        wait_for("no leader", lambda: "Turn unclean election off for orders" in kraft_audit(*words).out)
        cluster.run_printed(printed(kraft_audit, cluster, *words[:3]))
        wait_for("unclean election off", lambda: "nclean election" not in kraft_audit(*words).out)
        assert "Start no broker yet" not in kraft_audit("recover-plan", str(cluster.nodes)).out
        assert kinds_run_by("test_unclean_election_goes_off_through_a_controller_as_printed") <= cluster.kinds_run
    finally:
        cluster.kill_all()


def printed(kraft_audit: Command, cluster: RealCluster, *words: str) -> str:
    """The one command of Kafka's that an answer holds; of two the first is run first."""
    ended = kraft_audit(*words, str(cluster.nodes))
    found = [each for line in ended.out.splitlines() for each in commands_in(line) if each.startswith("kafka-")]
    assert found, ended
    return found[0]


def level(cluster: RealCluster, feature: str) -> str:
    """The finalized level of a feature, as kafka-features names it."""
    described = cluster.tools.must_run(["kafka-features", "--bootstrap-server", cluster.server, "describe"])
    found = re.search(rf"^Feature: {re.escape(feature)} .*FinalizedVersionLevel: (\S+)", described, re.MULTILINE)
    return found[1] if found is not None else ""
