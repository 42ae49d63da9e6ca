"""Runs one drill: a cluster lives, loses its majority, is rescued by what is printed, and has to stand."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import Final

from tests.builders.commands import Command
from tests.builders.printed_commands import commands_in
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
    followed = rescue(cluster, kraft_audit, drill.source, "rescued")
    if drill.lost and drill.is_brought_back:
        cluster.wait_for_state(cluster.ended, 30, without_ids)
    if Lost.CREATED in drill.lost:
        is_kept = any(cluster.nodes.glob("broker-*/fresh-*-stray"))
        assert is_kept is not drill.is_brought_back, "kept aside, until it is moved back"
    assert_offsets(cluster)
    use(cluster)
    if drill.users:
        assert_mallory_is_refused(cluster)
    if drill.back is Back.AFTER:
        return_after(cluster, followed)


def rescue(cluster: RealCluster, kraft_audit: Command, source: int, name: str) -> FollowedProcedure:
    """Builds the dir from the copy of this node and follows what is printed, again from a better copy that it finds."""
    drill, out = cluster.drill, cluster.work / name
    words = planned(cluster, kraft_audit, source, out) if drill.is_planned else rescue_arguments(cluster, out)
    ended = kraft_audit(*words)
    assert ended.code == 0, ended
    steps = printed_steps(ended.out)
    followed = FollowedProcedure(cluster, out, kraft_audit)
    better = followed.follow(steps)
    if better is not None:
        cluster.truth = cluster.ended
        return rescue(cluster, kraft_audit, better, f"{name}-again")
    printed = {command for step in steps for command in step.commands}
    assert drill.grows is False or printed == set(followed.executed)
    return followed


def planned(cluster: RealCluster, kraft_audit: Command, source: int, out: Path) -> list[str]:
    """The command that the plan prints, its blanks filled in; it has to go on from this node's copy."""
    asked = ["rescue", "--plan", str(cluster.read), "--gone", ",".join(map(str, cluster.drill.gone))]
    plan = kraft_audit(*asked)
    assert plan.code == 0, plan
    (command,) = [line for line in map(str.strip, plan.out.splitlines()) if " rescue " in line]
    (command,) = commands_in(command)
    blanks = {"NODE": str(MOVED_ID), "HOST:PORT": f"127.0.0.1:{quiet_port()}"}
    words = [blanks.get(word, word) for word in shlex.split(command)[1:]]
    assert words[words.index("--from") + 1] == str(source), plan
    words[words.index("--out") + 1] = str(out)
    return [*words, *config_option(cluster, source)]


def config_option(cluster: RealCluster, source: int) -> list[str]:
    owner = cluster.controllers.get(source) or cluster.controllers[1]
    return [] if cluster.drill.by_hand else ["--config", f"{owner.node_id}={owner.properties}"]


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
    elif drill.cut is Cut.BACKUP:
        cluster.back_up_controllers()
    live_on(cluster)
    cluster.lose_majority()


def rescue_arguments(cluster: RealCluster, out: Path) -> list[str]:
    """The command, as somebody gives it who has read the docs."""
    drill = cluster.drill
    words = ["rescue", str(cluster.read), "--gone", ",".join(map(str, drill.gone))]
    words += ["--from", str(drill.source), "--out", str(out)]
    if drill.moved or drill.from_broker:
        words += ["--node-id", str(MOVED_ID)]
        names = [f"{name}://" for name in ("CONTROLLER", BROKERS)] if drill.users else [""]
        words += [word for name in names for word in ("--endpoint", f"{name}127.0.0.1:{quiet_port()}")]
    words += config_option(cluster, drill.source)
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
