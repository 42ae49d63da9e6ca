"""Controllers that were lost start again with the disks that they had, or with wiped ones."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING, Final

from tests.drills.drill import Back
from tests.drills.real_cluster import RealCluster, wait_for

if TYPE_CHECKING:
    from tests.drills.followed_procedure import FollowedProcedure

STANDS_S: Final = 8
"""Some election timeouts, in which an old majority could do what it can do."""


def return_after(cluster: RealCluster, followed: FollowedProcedure) -> None:
    """The old majority returns with its old disks: the quorum that goes on must stand, with its leader or without."""
    old = [cluster.controllers[node] for node in cluster.drill.gone]
    before, high = cluster.state(), int(cluster.quorum(*followed.controllers)["leader"][0][2])
    for node in old:
        node.start()
    time.sleep(STANDS_S)
    assert_stands(cluster, followed, high)
    leader = cluster.leader(*followed.controllers)
    if followed.controllers[1:]:
        (leading,) = [node for node in followed.controllers if node.node_id == leader]
        leading.kill()
        rest = [node for node in followed.controllers if node is not leading]
        ids = {node.node_id for node in rest}
        wait_for("another leader", lambda: cluster.leader(*rest) in ids)
        time.sleep(2)
        leading.start()
        wait_for("a leader after all", lambda: cluster.leader(*followed.controllers) is not None)
        time.sleep(2)
        assert_stands(cluster, followed, high)
    cluster.wait_for_brokers(cluster.brokers)
    cluster.wait_for_state(before)
    cluster.send("orders", "orders-in-the-end-")
    assert_all_readable(cluster)


def assert_stands(cluster: RealCluster, followed: FollowedProcedure, high: int) -> None:
    """One leader, of the quorum that goes on, above the fence; its log only grew."""
    (leader,) = wait_for("the quorum", lambda: cluster.quorum(*followed.controllers).get("leader"))
    assert int(leader[0]) in {node.node_id for node in followed.controllers}
    assert int(leader[1]) > followed.fence
    assert int(leader[2]) >= high


def return_against(cluster: RealCluster, followed: FollowedProcedure) -> None:
    """The old majority starts before brokers do, though the procedure says never to: what it warned of happens.

    The rescued node is down meanwhile where it kept its endpoint: then only does the old majority not find it. Once the
    old majority is off again, the rescued node goes on.
    """
    drill, rescued = cluster.drill, followed.rescued
    assert rescued is not None
    before = int(cluster.quorum(rescued)["leader"][0][2])
    if not drill.moved:
        rescued.kill()
    old = [cluster.controllers[node] for node in drill.gone]
    for node in old:
        if drill.back is Back.WIPED:
            shutil.rmtree(node.log_dir)
            node.format(cluster.tools, cluster.cluster_id)
        node.start()
    wait_for("the old majority to elect one of itself", lambda: cluster.leader(*old) in drill.gone)
    assert "a majority of them elects itself" in followed.warning
    if not drill.moved:
        rescued.start()
    wait_for("the rescued node to lead", lambda: cluster.leader(rescued) == rescued.node_id)
    time.sleep(STANDS_S)
    assert_stands(cluster, followed, before)
    seen = cluster.leader(*old)
    if drill.moved:
        assert "second cluster" in followed.warning
        assert seen in drill.gone, "two clusters"
    else:
        assert seen == rescued.node_id, "they follow the rescued node once they find it"
    for node in old:
        node.kill()


def assert_all_readable(cluster: RealCluster) -> None:
    """Every acknowledged send, from before the loss too: only controllers were lost."""
    there = {row[1] for row in cluster.tools.must_ask("topics", cluster.server).rows}
    for topic, sent in cluster.acknowledged.items():
        if topic in there:
            found = cluster.readable(topic)
            missing = [value for value in sent if value not in found]
            assert not missing, (topic, len(missing), len(sent), missing[:5])
