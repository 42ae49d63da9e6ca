"""What happens in the part of the metadata log that is lost, while brokers go on and see it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from tests.drills.drill import Cut, Lost
from tests.drills.real_cluster import RealCluster, wait_for

DELETED_S: Final = 6
"""A deleted or moved log leaves its broker's disk (file.delete.delay.ms)."""
TRANSACTIONS: Final = "payments"


def live_on(cluster: RealCluster) -> None:
    """The part that is lost, of which brokers know."""
    for lost, event in EVENTS.items():
        if lost in cluster.drill.lost:
            event(cluster)
    if cluster.drill.cut is not Cut.END:
        cluster.send("orders", "later-")
        cluster.wait_for_followers([node_id for node_id, node in cluster.brokers.items() if node.is_running])
        time.sleep(DELETED_S)
        cluster.ended = cluster.state()
        cluster.remember_offsets()


def _register_again(cluster: RealCluster) -> None:
    node = cluster.brokers[cluster.data_brokers[1]]
    node.stop()
    node.start()
    cluster.wait_for_brokers(cluster.brokers)


def _create(cluster: RealCluster) -> None:
    first, last = cluster.data_brokers
    cluster.topic("fresh", "--replica-assignment", f"{first},{last}" if first != last else str(first))
    cluster.send("fresh", "fresh-")


def _delete(cluster: RealCluster) -> None:
    cluster.tools.must_run(["kafka-topics", "--bootstrap-server", cluster.server, "--delete", "--topic", "doomed"])


def _make_again(cluster: RealCluster) -> None:
    """Records of the topic that was deleted are gone, and nobody wants them back."""
    _delete(cluster)
    time.sleep(DELETED_S)
    del cluster.acknowledged["doomed"]
    cluster.topic("doomed", "--replica-assignment", str(cluster.data_brokers[1]))
    cluster.send("doomed", "again-")


def _add_partitions(cluster: RealCluster) -> None:
    words = ["kafka-topics", "--bootstrap-server", cluster.server, "--alter", "--topic", "orders", "--partitions", "4"]
    cluster.tools.must_run(words)
    wait_for("leaders", lambda: len(cluster.ends_of_logs()) > len(cluster.log_ends))
    cluster.send("orders", "added-")


def _reassign(cluster: RealCluster) -> None:
    target = cluster.data_brokers[1]
    plan = cluster.work / "reassignment.json"
    plan.write_text(f'{{"version": 1, "partitions": [{{"topic": "moved", "partition": 0, "replicas": [{target}]}}]}}')
    words = ["kafka-reassign-partitions", "--bootstrap-server", cluster.server, "--reassignment-json-file", str(plan)]
    cluster.tools.must_run([*words, "--execute"])

    def is_moved() -> bool:
        rows = cluster.tools.must_ask("topics", cluster.server).rows
        return any(row[1] == "moved" and row[4] == str(target) for row in rows)

    wait_for(f"moved on {target}", is_moved)
    cluster.send("moved", "after-move-")


def _use_internal_topics(cluster: RealCluster) -> None:
    """The first group that commits, and the first transaction."""
    cluster.commit("orders", 25)
    rows = cluster.tools.must_ask("transact", cluster.server, TRANSACTIONS, "orders", "paid-", "10").rows
    cluster.acknowledged["orders"] += [row[0] for row in rows]


def _configure(cluster: RealCluster) -> None:
    cluster.configs("--entity-type", "topics", "--entity-name", "orders", "--add-config", "retention.ms=3600000")


def _change_acls(cluster: RealCluster) -> None:
    cluster.acl("--remove", "--allow-principal", "User:mallory", "--operation", "Write", "--topic", "orders")
    cluster.acl("--add", "--allow-principal", "User:carol", "--operation", "Read", "--topic", "orders")


def _change_rights(cluster: RealCluster) -> None:
    """A password and a quota are changed, others are new, and those of dave and erin are taken away."""
    cluster.scram("alice", "--add-config", "SCRAM-SHA-256=[iterations=8192,password=of-alice-again]")
    cluster.scram("alice", "--add-config", "producer_byte_rate=8000000")
    cluster.scram("bob", "--add-config", "SCRAM-SHA-512=[iterations=4096,password=of-bob]")
    cluster.scram("bob", "--add-config", "consumer_byte_rate=7000000")
    for name in ("dave", "erin"):
        cluster.scram(name, "--delete-config", "SCRAM-SHA-256")
        cluster.scram(name, "--delete-config", "producer_byte_rate")


EVENTS: Final[dict[Lost, Callable[[RealCluster], None]]] = {
    Lost.REGISTERED: _register_again,
    Lost.CREATED: _create,
    Lost.DELETED: _delete,
    Lost.MADE_AGAIN: _make_again,
    Lost.PARTITIONS: _add_partitions,
    Lost.REASSIGNED: _reassign,
    Lost.INTERNAL: _use_internal_topics,
    Lost.CONFIGURED: _configure,
    Lost.ACL: _change_acls,
    Lost.RIGHTS: _change_rights,
}
"""In the order in which they happen."""
