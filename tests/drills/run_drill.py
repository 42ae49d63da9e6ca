"""Runs one drill: a cluster lives, loses its majority, is rescued by what is printed, and has to stand."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from tests.builders.commands import Command
from tests.drills.drill import Back, Cut, Lost
from tests.drills.followed_procedure import FollowedProcedure
from tests.drills.kafka_node import quiet_port
from tests.drills.lost_part_events import live_on
from tests.drills.old_majority import assert_all_readable, return_after
from tests.drills.printed_procedure import printed_steps
from tests.drills.real_cluster import RealCluster, State, wait_for
from tests.drills.users import BROKERS, assert_mallory_is_refused

MOVED_ID: Final = 9


def run_drill(cluster: RealCluster, kraft_audit: Command) -> None:
    """Fails where the printed procedure does not lead to what it promises."""
    drill = cluster.drill
    lose(cluster)
    out = cluster.work / "rescued"
    ended = kraft_audit(*rescue_arguments(cluster, out))
    assert ended.code == 0, ended
    steps = printed_steps(ended.out)
    followed = FollowedProcedure(cluster, out, kraft_audit)
    followed.follow(steps)
    printed = {command for step in steps for command in step.commands}
    assert drill.grows is False or printed == set(followed.executed)
    if drill.lost and not drill.alone:
        cluster.wait_for_state(cluster.ended, 30, without_ids)
    if Lost.CREATED in drill.lost:
        assert any(cluster.nodes.glob("broker-*/fresh-*-stray")) == drill.alone, "kept aside, until it is moved back"
    assert_offsets(cluster)
    use(cluster)
    if drill.users:
        assert_mallory_is_refused(cluster)
    if drill.back is Back.AFTER:
        return_after(cluster, followed)


def lose(cluster: RealCluster) -> None:
    """All that happens before the rescue."""
    drill = cluster.drill
    cluster.boot()
    cluster.live()
    if drill.users:
        assert_mallory_is_refused(cluster)
    if drill.producing:
        cluster.tools.must_ask("begin", "across-", cluster.server, "orders")
        time.sleep(2)
    cluster.remember()
    if drill.cut is Cut.STALE:
        cluster.stale_survivors_stop()
    live_on(cluster)
    cluster.lose_majority()


def rescue_arguments(cluster: RealCluster, out: Path) -> list[str]:
    """The command, as somebody gives it who has read the docs."""
    drill = cluster.drill
    path = cluster.nodes / f"{drill.controller_role}-{drill.source}" if drill.alone else cluster.nodes
    words = ["rescue", str(path), "--gone", ",".join(map(str, drill.gone))]
    words += ["--from", str(drill.source), "--out", str(out)]
    if drill.moved or drill.from_broker:
        words += ["--node-id", str(MOVED_ID)]
        names = [f"{name}://" for name in ("CONTROLLER", BROKERS)] if drill.users else [""]
        words += [word for name in names for word in ("--endpoint", f"{name}127.0.0.1:{quiet_port()}")]
    if not drill.by_hand:
        owner = cluster.controllers.get(drill.source) or cluster.controllers[drill.voter_ids[0]]
        words += ["--config", f"{owner.node_id}={owner.properties}"]
    if drill.cut in (Cut.OFFSET, Cut.POISON):
        words += ["--to", str(cluster.cut_offset - 1)]
    if drill.stays_static:
        words.append("--static")
    return words


def without_ids(state: State) -> State:
    """A topic that was created again has another id."""
    return {(row[0], row[1], *row[3:]) if row[0] == "partition" else row for row in state}


def assert_offsets(cluster: RealCluster) -> None:
    """Logs end where they ended, and the group goes on where it was. A topic whose log is not back ends at 0."""
    drill = cluster.drill
    if drill.producing:
        return
    ends = cluster.ends_of_logs()
    came_back = {place: end for place, end in ends.items() if end or place not in cluster.log_ends}
    assert came_back.items() <= cluster.log_ends.items(), (ends, cluster.log_ends)
    if drill.is_brought_back:
        assert ends == cluster.log_ends
    wait_for("the group's offsets", lambda: cluster.committed_offsets() == cluster.committed)


def use(cluster: RealCluster) -> None:
    """New producers, and the one that went across it: what was acknowledged after the rescue is there."""
    cluster.wait_for_brokers(cluster.brokers)
    topics = ["orders", "moved", "doomed"]
    there = {row[1] for row in cluster.tools.must_ask("topics", cluster.server).rows}
    for topic in topics:
        if topic in there:
            cluster.send(topic, f"{topic}-afterwards-")
    if cluster.drill.producing:
        rows = cluster.tools.must_ask("end", "across-").rows
        assert rows
        cluster.acknowledged.setdefault("orders", []).extend(row[1] for row in rows)
    assert_all_readable(cluster)
