"""A real cluster that loses the majority of its controllers as a drill says, and what was true of it at the cut."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

from kraft_audit.recovery.lost_quorum.rescued_dir import new_directory_id
from kraft_audit.rules.columns.kafka_commands import CONFIG
from tests.builders.printed_commands import EXECUTED_BY, kind_of
from tests.drills.altered_disks import OPEN_TRANSACTION, POISON, append_alike, do_damage, newest_snapshot
from tests.drills.drill import Cut, Damage, Drill, Lost
from tests.drills.kafka_node import KafkaNode
from tests.drills.kafka_scripts import run_script, scripts_of
from tests.drills.tool_jvm import ToolJvm
from tests.drills.users import BROKERS, encrypt, log_in, login_of_drill, make_keys

PATIENCE_S: Final = 90
RECORDS: Final = 60
COMPARED: Final = ("partition", "config", "acl", "quota", "credential", "feature")
INTERNAL: Final = ("__consumer_offsets", "__transaction_state")
"""Topics that clients bring about."""
LEFT_OUT: Final = (*INTERNAL, "kraft.version")
"""And the feature that a rescue raises."""
GROUP: Final = "readers"
Offsets = dict[tuple[str, ...], int]
SNAPSHOT_BYTES: Final = 3_000
SNAPSHOT_INTERVAL_MS: Final = 2_000
_Found = TypeVar("_Found")
State = set[tuple[str, ...]]


def wait_for(what: str, ask: Callable[[], _Found | None], patience_s: float = PATIENCE_S) -> _Found:
    """The first answer that is true; fails with `what` where there is none in time."""
    deadline = time.monotonic() + patience_s
    while True:
        found = ask()
        if found:
            return found
        assert time.monotonic() < deadline, f"in vain: {what}"
        time.sleep(0.25)


class RealCluster:
    """The nodes of a drill; `nodes` is the folder with the disks that are left, `gone` the one of those that are not.

    `truth` is what the cluster's Admin client said at the cut, `cut_offset` where that is, and `ended` what it said in
    the end. `acknowledged` is what producers were promised by topic, `log_ends` where the partitions' logs end, and
    `committed` what the group committed. `kinds_run` are the kinds of printed commands that ran.
    """

    def __init__(self, drill: Drill, work: Path, classpath: str, tools: ToolJvm, archive: Path | None) -> None:
        self.drill = drill
        self.work = work
        self.tools = tools
        self.classpath = classpath
        self.archive = archive
        self.cluster_id = new_directory_id()
        self.nodes, self.gone = work / "nodes", work / "gone"
        self.backup = work / "nightly-backup"
        self.copies = work / "copies"
        self.gone.mkdir(parents=True)
        self.keys = make_keys(work) if drill.tls else None
        self.login = () if self.keys is None else (str(login_of_drill(work, self.keys)),)
        self.controllers = {node: self._node(node, drill.controller_role) for node in drill.voter_ids}
        self.only_brokers = {node: self._node(node, "broker") for node in drill.broker_ids}
        self.brokers = {**(self.controllers if drill.combined else {}), **self.only_brokers}
        self.joined: dict[int, KafkaNode] = {}
        self.rescued: KafkaNode | None = None
        self.truth: State = set()
        self.ended: State = set()
        self.cut_offset = 0
        self.acknowledged: dict[str, list[str]] = {}
        self.log_ends: Offsets = {}
        self.committed: Offsets = {}
        self.kinds_run: set[str] = set()
        self.point_to(self.controllers.values())

    def _node(self, node_id: int, role: str) -> KafkaNode:
        node = KafkaNode(self.work, node_id, role, self.classpath, {}, self.archive)
        if self.drill.runs_on:  # no record comes after those that every disk has
            node.extra["metadata.max.idle.interval.ms"] = 0
        if self.drill.snapshots:
            node.extra["metadata.log.max.record.bytes.between.snapshots"] = SNAPSHOT_BYTES
        if Damage.SNAPSHOT_ALONE in self.drill.damage:
            node.extra["metadata.log.max.snapshot.interval.ms"] = SNAPSHOT_INTERVAL_MS
        if self.drill.combined:
            node.extra["offsets.topic.replication.factor"] = len(self.drill.voter_ids)
        if self.drill.users:
            log_in(node)
        if self.keys is not None:
            encrypt(node, self.keys)
        return node

    def new_controller(self, node_id: int, quorum: dict[str, str], role: str | None = None) -> KafkaNode:
        """A controller on a fresh disk, which another one of this id may have had before."""
        fresh = self.work / f"joined-{node_id}"
        fresh.mkdir()
        node = KafkaNode(fresh, node_id, role or self.drill.controller_role, self.classpath, quorum, self.archive)
        self.joined[node_id] = node
        return node

    def point_to(self, controllers: Collection[KafkaNode]) -> None:
        """Every node's config names these controllers from its next start on."""
        quorum = self._quorum({node.node_id: node.place for node in controllers})
        for node in self.all_nodes:
            node.quorum = dict(quorum)
        if self.drill.users:  # brokers look for controllers at the listener that is theirs
            places = {node.node_id: f"127.0.0.1:{node.more_listeners[BROKERS]}" for node in controllers}
            for broker in self.only_brokers.values():
                broker.quorum = self._quorum(places)

    def _quorum(self, places: Mapping[int, str]) -> dict[str, str]:
        if self.drill.is_static:
            return {"controller.quorum.voters": ",".join(f"{node}@{place}" for node, place in places.items())}
        return {"controller.quorum.bootstrap.servers": ",".join(places.values())}

    @property
    def read(self) -> Path:
        """What the rescue reads."""
        drill = self.drill
        if drill.cut is Cut.BACKUP:
            return self.backup
        if drill.runs_on:
            return self.copies
        return self.nodes / f"{drill.controller_role}-{drill.source}" if self.is_one_disk else self.nodes

    @property
    def is_one_disk(self) -> bool:
        """Whether only the disk of the copy is read, and not a folder of several."""
        return self.drill.alone and self.drill.cut is not Cut.BACKUP

    @property
    def all_nodes(self) -> list[KafkaNode]:
        rescued = [self.rescued] if self.rescued is not None else []
        return [*self.controllers.values(), *self.brokers.values(), *self.joined.values(), *rescued]

    @property
    def quorum_nodes(self) -> dict[int, KafkaNode]:
        """The controllers that ought to vote."""
        first = self.controllers if self.rescued is None else {self.rescued.node_id: self.rescued}
        return {**first, **self.joined}

    def kill_all(self) -> None:
        for node in self.all_nodes:
            node.kill()

    def boot(self, *format_options: str) -> None:
        """Formats and starts all of it, and waits for a leader and the brokers."""
        options = list(format_options)
        if not self.drill.is_static:
            voters = [f"{each.node_id}@{each.place}:{new_directory_id()}" for each in self.controllers.values()]
            options += ["--initial-controllers", ",".join(voters)]
        if self.drill.elr:
            options += ["--feature", "eligible.leader.replicas.version=1"]
        for controller in self.controllers.values():
            controller.format(self.tools, self.cluster_id, *options)
            controller.start()
        for broker in self.only_brokers.values():
            broker.format(self.tools, self.cluster_id)
        # A broker that starts while controllers elect and register was seen not to register within its minute (4.3.1).
        wait_for("every controller to follow", self._is_quorate)
        for broker in self.only_brokers.values():
            broker.start()
        self.wait_for_brokers(self.brokers)

    def _is_quorate(self) -> bool:
        voters = self.quorum(*self.controllers.values()).get("voter", ())
        return len(voters) == len(self.controllers) and all(int(end) > 3 for _, end in voters)

    def run_printed(self, command: str, node: KafkaNode | None = None) -> str:
        """Runs a tool of Kafka's as it was printed; `controller.properties` stands for the path of a node's config."""
        kind = kind_of(command)
        assert kind in EXECUTED_BY, (kind, command)
        self.kinds_run.add(kind)
        folder = self.console(node)
        scripts = scripts_of(self.drill.release)
        if scripts is not None:
            return run_script(scripts, command, folder)
        words = shlex.split(command)
        return self.tools.must_run([str(folder / word) if word.endswith(".properties") else word for word in words])

    def console(self, node: KafkaNode | None) -> Path:
        """The folder in which printed commands run, as on the host of a node."""
        folder = self.work / "console"
        folder.mkdir(exist_ok=True)
        if node is not None:
            shutil.copy(node.write_properties(), folder / CONFIG)
        return folder

    # What can be asked

    @property
    def server(self) -> str:
        return ",".join(node.broker_place for node in self.brokers.values() if node.is_running and not node.is_paused)

    def quorum(self, *controllers: KafkaNode) -> dict[str, list[list[str]]]:
        """The leader, voters and observers that these controllers name; empty where none answers."""
        answer = self.tools.ask("quorum", ",".join(node.place for node in controllers), *self.login)
        found: dict[str, list[list[str]]] = {}
        for kind, *values in answer.rows if answer.code == 0 else ():
            found.setdefault(kind, []).append(values)
        return found

    def ends(self, kind: str, *controllers: KafkaNode) -> dict[int, int]:
        """The end offset of each voter, or observer, as these controllers say.

        A leader names a removed voter for five minutes more, by its old directory id, at the offset where it was
        (LeaderState.OBSERVER_SESSION_TIMEOUT_MS, 4.3.1): of one id the furthest counts.
        """
        found: dict[int, int] = {}
        for node, end in self.quorum(*controllers).get(kind, ()):
            found[int(node)] = max(found.get(int(node), -1), int(end))
        return found

    def leader(self, *controllers: KafkaNode) -> int | None:
        """Whom these controllers name as leader."""
        found = self.quorum(*controllers).get("leader")
        return int(found[0][0]) if found else None

    def state(self) -> State:
        rows = self.tools.must_ask("state", self.server).rows
        return {_comparable(row) for row in rows if row[0] in COMPARED and row[1] not in LEFT_OUT}

    def resting_state(self) -> State | None:
        """The state, once a broker has applied what it fetched: the last thing that was done is in it."""
        before = self.state()
        time.sleep(1)
        after = self.state()
        is_whole = any(row[0] == "acl" and "User:mallory" in row[1] for row in after)
        return after if before == after and is_whole else None

    def wait_for_state(
        self, expected: State, patience_s: float = 20, compared: Callable[[State], State] = lambda state: state
    ) -> None:
        """Until the cluster is as expected: a broker that is just back answers for a moment from what it knew."""
        deadline = time.monotonic() + patience_s
        while compared(found := self.state()) != compared(expected) and time.monotonic() < deadline:
            time.sleep(0.5)
        assert compared(found) == compared(expected), sorted(compared(found) ^ compared(expected))

    def wait_for_brokers(self, ids: Collection[int], *, are_leading: bool = True) -> None:
        """Until these brokers are there, and every partition with a replica on them has a leader."""

        def are_back() -> bool:
            for node in ids:
                assert self.brokers[node].is_running, (node, self.brokers[node].printed)
            answer = self.tools.ask("state", ",".join(self.brokers[node].broker_place for node in ids))
            rows = answer.rows if answer.code == 0 else []
            there = {row[1] for row in rows if row[0] == "broker"}
            led = all(row[6] != "-1" for row in rows if row[0] == "partition")
            return set(map(str, ids)) <= there and (led or not are_leading)

        wait_for(f"brokers {sorted(ids)}", are_back)

    def end_offset(self) -> int:
        """Where the leader's log ends."""
        found = self.quorum(*(node for node in self.controllers.values() if node.is_running))
        return max(int(end) for _, end in found["voter"])

    def wait_for_followers(self, ids: Collection[int]) -> None:
        """Until these nodes hold all that the leader holds now; a broker's own NoOps never end."""
        target = self.end_offset()
        controllers = [node for node in self.controllers.values() if node.is_running]

        def have_it() -> bool:
            ends = self.ends("observer", *controllers) | self.ends("voter", *controllers)
            return all(ends.get(node, -1) >= target for node in ids)

        wait_for(f"nodes {sorted(ids)} at offset {target}", have_it, 30)

    # What happens to it

    def topic(self, name: str, *options: str) -> None:
        self.tools.must_run(["kafka-topics", "--bootstrap-server", self.server, "--create", "--topic", name, *options])

    def send(self, topic: str, prefix: str, count: int = RECORDS) -> None:
        rows = self.tools.must_ask("send", self.server, topic, prefix, str(count)).rows
        self.acknowledged.setdefault(topic, []).extend(row[0] for row in rows)

    def live(self) -> None:
        """What everyone knows: topics with records, configs, an ACL, a quota, a credential."""
        replicas = str(len(self.brokers) if self.drill.combined else min(2, len(self.brokers)))
        self.topic("orders", "--partitions", "2", "--replication-factor", replicas, "--config", "retention.ms=7200000")
        first, last = self.data_brokers
        self.topic("moved", "--replica-assignment", str(first))
        self.topic("doomed", "--replica-assignment", str(last))
        for name in ("orders", "moved", "doomed"):
            self.send(name, f"{name}-")
        self.configs("--entity-type", "topics", "--entity-name", "orders", "--add-config", "max.message.bytes=500000")
        self.configs("--entity-type", "brokers", "--entity-default", "--add-config", "log.retention.ms=86400000")
        self.configs("--entity-type", "users", "--entity-name", "alice", "--add-config", "producer_byte_rate=9000000")
        self.configs(
            *("--entity-type", "users", "--entity-name", "alice"),
            *("--add-config", "SCRAM-SHA-256=[iterations=4096,password=of-alice]"),
        )
        self.acl("--add", "--allow-principal", "User:alice", "--operation", "Read", "--topic", "orders")
        self.acl("--add", "--allow-principal", "User:mallory", "--operation", "Write", "--topic", "orders")
        if Lost.RIGHTS in self.drill.lost:
            for name in ("dave", "erin"):
                self.scram(name, "--add-config", f"SCRAM-SHA-256=[iterations=4096,password=of-{name}]")
                self.scram(name, "--add-config", "producer_byte_rate=1000000")
        if Lost.INTERNAL not in self.drill.lost:
            self.commit("orders", 20)

    def scram(self, user: str, *change: str) -> None:
        """Changes credentials or quotas of a user."""
        self.configs("--entity-type", "users", "--entity-name", user, *change)

    def commit(self, topic: str, offset: int) -> None:
        """The group has read each partition below an offset."""
        self.tools.must_ask("commit", self.server, GROUP, topic, str(offset))

    def configs(self, *options: str) -> None:
        self.tools.must_run(["kafka-configs", "--bootstrap-server", self.server, "--alter", *options])

    def acl(self, *options: str) -> None:
        self.tools.must_run(["kafka-acls", "--bootstrap-server", self.server, "--force", *options])

    def remember(self) -> None:
        """Takes down what is true now: this is the cut."""
        self.wait_for_followers([*self.controllers, *self.brokers])
        self.truth = wait_for("a state that rests", self.resting_state)
        self.cut_offset = self.end_offset()
        self.remember_offsets()
        if Damage.SNAPSHOT_ALONE in self.drill.damage:
            left = next(node for node_id, node in self.controllers.items() if node_id not in self.drill.gone)
            wait_for("a snapshot of all of it", lambda: self._snapshot_end(left) >= self.cut_offset)

    @staticmethod
    def _snapshot_end(node: KafkaNode) -> int:
        snapshot = newest_snapshot(node.log_dir)
        return 0 if snapshot is None else int(snapshot.name[:20])

    def remember_offsets(self) -> None:
        """Takes down where logs end, and what the group committed."""
        self.log_ends, self.committed = self.ends_of_logs(), self.committed_offsets()

    def ends_of_logs(self) -> Offsets:
        rows = self.tools.must_ask("ends", self.server).rows
        return {(topic, number): int(end) for topic, number, end in rows if topic not in INTERNAL}

    def committed_offsets(self) -> Offsets:
        rows = self.tools.must_ask("committed", self.server, GROUP).rows
        return {(topic, number): int(offset) for topic, number, offset in rows}

    @property
    def data_brokers(self) -> tuple[int, int]:
        """The brokers with the topics whose data a drill follows: they outlive the loss."""
        ids = self.only_brokers or [node for node in self.brokers if node not in self.drill.gone]
        return min(ids), max(ids)

    def lose_majority(self) -> None:
        """The lost controllers' disks leave `nodes`; what is left of the controllers stops."""
        if self.drill.cut is Cut.POISON:
            self._poison()
        for node in self.controllers.values():
            node.kill()
        if self.drill.cut is Cut.TRANSACTION:
            append_alike([node.log_dir for node in self.controllers.values()], *OPEN_TRANSACTION)
        if not self.drill.alone and not self.drill.runs_on:  # a disk is not read while a process holds it
            for broker in self.brokers.values():
                broker.kill()
        if self.drill.runs_on:
            self.copy_disks(self.copies)
        for node_id in self.drill.gone:
            node = self.controllers[node_id]
            shutil.move(node.log_dir, self.gone / node.log_dir.name)
            node.log_dir = self.gone / node.log_dir.name
            self.brokers.pop(node_id, None)
        for damage in self.drill.damage:
            for node_id in self.drill.voter_ids:
                if node_id not in self.drill.gone:
                    do_damage(self.controllers[node_id].log_dir, damage)

    def back_up_controllers(self) -> None:
        """Copies their disks while they run, as nightly jobs do."""
        self.backup.mkdir()
        for node in self.controllers.values():
            node.pause()
            shutil.copytree(node.log_dir, self.backup / node.log_dir.name)
            node.go_on()

    def _poison(self) -> None:
        """Every controller gets a record that it cannot apply, and a majority ends of it.

        The last one that is left cannot commit it, so it may go on without a quorum.
        """
        for node in self.controllers.values():
            node.kill()
        nodes = list(self.controllers.values())
        append_alike([node.log_dir for node in nodes], POISON)
        for node in nodes:
            node.start()
        wait_for("a majority to end", lambda: 2 * sum(each.is_running for each in nodes) < len(nodes))

    def stale_survivors_stop(self) -> None:
        for node in self.controllers.values():
            if node.node_id not in self.drill.gone:
                node.kill()

    def copy_disks(self, target: Path, *, has_times: bool = True) -> None:
        """Copies the disks in `nodes` at one moment: what runs is paused meanwhile. `has_times`: files keep theirs."""
        running = [node for node in self.all_nodes if node.is_running and not node.is_paused]
        for node in running:
            node.pause()
        keep = "-a" if has_times else "-r"
        subprocess.run(["cp", keep, "--sparse=always", self.nodes, target], check=True, timeout=60)
        for node in running:
            node.go_on()

    def readable(self, topic: str) -> set[str]:
        return {row[0] for row in self.tools.must_ask("read", self.server, topic).rows}


def _comparable(row: Sequence[str]) -> tuple[str, ...]:
    """Of a partition its topic, id, number and replicas: who leads is what brokers bring about."""
    return tuple(row[:5]) if row[0] == "partition" else tuple(row)
