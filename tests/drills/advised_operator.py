"""An operator who asks `kraft-audit` about copied disks, and does to a real cluster what the answers say, no more."""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.builders.commands import Command
from tests.builders.printed_commands import commands_in
from tests.drills.followed_procedure import FollowedProcedure
from tests.drills.kafka_node import KafkaNode, quiet_port
from tests.drills.old_majority import assert_all_readable
from tests.drills.printed_procedure import printed_steps
from tests.drills.real_cluster import RealCluster, wait_for

RESCUED_ID: Final = 9
YES, NO, UNDECIDED = "YES", "NO", "UNDECIDED"
ASSUMED: Final = re.compile(r"Assumed to run: (.*)\.")
LEADER: Final = re.compile(r"^LeaderId: +[0-9]+$", re.MULTILINE)
TOPIC_NAME: Final = re.compile(r'"type":"TOPIC_RECORD".*?"name":"([^"]+)"')


@dataclass(frozen=True, slots=True)
class Said:
    """An answer: the command's words without the program, its exit code, what it printed."""

    words: tuple[str, ...]
    code: int
    text: str

    @property
    def verdict(self) -> str:
        """Of `may-i`; the exit code has to agree."""
        first = self.text.splitlines()[1].split(" ", 1)[0]
        assert self.code == {YES: 0, NO: 1, UNDECIDED: 4}[first], self
        return first

    @property
    def node_id(self) -> int:
        """The node that `may-i` was asked about."""
        assert self.words[0] == "may-i", self
        return int(self.words[2])

    @property
    def assumed(self) -> set[int]:
        """The nodes that run if it is done as asked."""
        (found,) = ASSUMED.findall(self.text)
        return set(map(int, re.findall(r"[0-9]+", found)))

    @property
    def commands(self) -> list[str]:
        """The commands that it prints, in order."""
        return [command for line in self.text.splitlines() for command in commands_in(line)]

    def __str__(self) -> str:
        return f"$ kraft-audit {shlex.join(self.words)}\n{self.text}-> {self.code}\n"


class Operator:
    """Asks about `copy`, a copy of all disks. `has_times`: copying keeps the times of files.

    `stays_down` is a voter that an answer says to keep stopped.
    """

    def __init__(self, cluster: RealCluster, kraft_audit: Command) -> None:
        self.cluster = cluster
        self.kraft_audit = kraft_audit
        self.copy = cluster.work / "copy"
        self.has_times = True
        self.stays_down: int | None = None
        self._asked: list[tuple[str, ...]] = []
        self._log = cluster.work / "said.txt"

    @property
    def nodes(self) -> dict[int, KafkaNode]:
        return {**self.cluster.brokers, **self.cluster.quorum_nodes}

    # Questions

    def copy_disks(self) -> None:
        """Copies all disks; what was copied before goes. Earlier questions may be asked again of the new copy."""
        shutil.rmtree(self.copy, ignore_errors=True)
        self.cluster.copy_disks(self.copy, has_times=self.has_times)
        self._asked.clear()

    def ask(self, *words: str | int | Path) -> Said:
        """An answer; the same question of the same copy is a circle."""
        asked = tuple(map(str, words))
        assert asked not in self._asked, f"in a circle: {asked}"
        self._asked.append(asked)
        with contextlib.chdir(self.cluster.work):
            ended = self.kraft_audit(*asked)
        said = Said(asked, ended.code, ended.out)
        with self._log.open("a") as log:
            log.write(f"{said}\n")
        assert not ended.err, ended
        return said

    def check(self, *options: str) -> Said:
        return self.ask("check", self.copy, *options)

    def may_i(self, action: str, *nodes: int) -> Said:
        """Asks about a node, with others beside it, while all that is down now is stopped."""
        down = [str(node) for node, each in self.nodes.items() if not each.is_running and node not in nodes]
        return self.ask("may-i", action, nodes[0], self.copy, *(["--stopped", ",".join(down)] if down else []))

    def take(self, said: Said, beginning: str) -> Said:
        """Runs the one command of this kind that an answer prints."""
        (command,) = [each for each in said.commands if each.startswith(f"kraft-audit {beginning}")]
        return self.ask(*shlex.split(command)[1:])

    # What is done

    def follow(self, said: Said) -> None:
        """Asks on as each answer says until one is yes, does it, and goes on with what that one says next."""
        while True:
            while said.verdict != YES:
                following = self._not_asked(said)
                assert following, f"no way on: {said}"
                said = self.ask(*following[0])
            self._do(said)
            following = self._not_asked(said)
            if not following:
                break
            said = self.ask(*following[0])
        for command in said.commands:
            wait_for(f"an answer to {command}", lambda command=command: self._is_led(said, command))

    def _not_asked(self, said: Said) -> list[list[str]]:
        """The questions that an answer prints and that nobody asked yet of this copy."""
        printed = [shlex.split(command)[1:] for command in said.commands if "kraft-audit may-i" in command]
        return [words for words in printed if tuple(words) not in self._asked]

    def _is_led(self, said: Said, command: str) -> bool:
        """Whether a printed command names a leader; it is run again where the answer says that it fails at first."""
        try:
            return bool(LEADER.search(self.cluster.run_printed(command)))
        except AssertionError:
            assert "until a node does, this fails" in said.text
            return False

    def _do(self, said: Said) -> None:
        """Starts, or restarts, the node of a yes, if what it assumes about the others is true."""
        node = self.nodes[said.node_id]
        if said.node_id in self.cluster.quorum_nodes:
            running = {node_id for node_id, each in self.cluster.quorum_nodes.items() if each.is_running}
            assert said.assumed == running | {said.node_id}, (said, running)
        assert said.verdict == YES, said
        assert said.words[1] in ("start", "restart"), said
        if said.words[1] == "restart":
            node.stop()
        node.start()

    def start_the_rest(self) -> None:
        """Asks about each node that is down still, controllers first, and starts it by what is said."""
        for node_id in (*self.cluster.quorum_nodes, *self.cluster.brokers):
            if not self.nodes[node_id].is_running and node_id != self.stays_down:
                self.copy_disks()
                self.follow(self.may_i("start", node_id))

    def rescue(self, plan: Said) -> None:
        """Builds the node dir by the command that a plan prints, its blanks filled in, and follows the procedure."""
        (command,) = [command for command in plan.commands if re.match("kraft-audit rescue (?!--plan)", command)]
        blanks = {"NODE": str(RESCUED_ID), "HOST:PORT": f"127.0.0.1:{quiet_port()}"}
        words = [blanks.get(word, word) for word in shlex.split(command)[1:]]
        said = self.ask(*words)
        assert said.code == 0, said
        out = self.cluster.work / words[words.index("--out") + 1]
        with contextlib.chdir(self.cluster.work):
            FollowedProcedure(self.cluster, out, self.kraft_audit).follow(printed_steps(said.text))

    @contextlib.contextmanager
    def against(self, said: Said) -> Iterator[None]:
        """What is done in here is no yes: all nodes are down before it, and get their disks back after."""
        assert said.verdict != YES, said
        cluster, kept = self.cluster, self.cluster.work / "kept"
        assert not any(node.is_running for node in cluster.all_nodes)
        subprocess.run(["cp", "-a", "--sparse=always", cluster.nodes, kept], check=True, timeout=60)
        yield
        cluster.kill_all()
        shutil.rmtree(cluster.nodes)
        kept.rename(cluster.nodes)

    # What is true

    def leads(self, *among: int) -> int:
        """The leader, once one of these leads."""
        nodes = [self.cluster.quorum_nodes[node] for node in among]

        def leader() -> int | None:
            found = self.cluster.leader(*nodes)
            return found if found in among else None

        return wait_for(f"one of {among} to lead", leader)

    def lacks(self, node: KafkaNode, *topics: str) -> bool:
        """Whether a node's metadata log has none of these topics, by Kafka's own dump."""
        files = sorted(map(str, node.log_dir.glob("__cluster_metadata-0/*.log")))
        answer = self.cluster.tools.run("kafka-dump-log", "--cluster-metadata-decoder", "--files", ",".join(files))
        if answer.code != 0:  # the log was truncated meanwhile
            return False
        assert "Log starting offset: 0" in answer.text
        return not set(topics) & set(TOPIC_NAME.findall(answer.text))

    def fetched(self, node: KafkaNode) -> int:
        """How many bytes its metadata log has."""
        return sum(log.stat().st_size for log in node.log_dir.glob("__cluster_metadata-0/*.log"))

    def nothing_is_lost(self) -> None:
        """All voters vote, the state is that of the cut, acknowledged records are there, and more can be sent."""
        cluster = self.cluster
        voters = cluster.quorum_nodes.keys() - {self.stays_down}
        asked = [cluster.quorum_nodes[node] for node in voters]
        end = max(cluster.ends("voter", *asked).values())

        def have_caught_up() -> bool:
            ends = cluster.ends("voter", *asked)
            return ends.keys() == cluster.quorum_nodes.keys() and min(ends[node] for node in voters) >= end

        wait_for("all voters to catch up", have_caught_up)
        cluster.wait_for_brokers(cluster.brokers)
        cluster.wait_for_state(cluster.truth)
        cluster.send("orders", "orders-afterwards-")
        assert_all_readable(cluster)
