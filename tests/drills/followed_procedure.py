"""Follows a printed procedure on a real cluster: every step by what it says, every command as it stands there."""

from __future__ import annotations

import re
import shlex
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from tests.builders.commands import Command
from tests.builders.printed_scripts import calls_of
from tests.drills.drill import Back, Drill, Lost
from tests.drills.kafka_node import KafkaNode
from tests.drills.old_logs import OldLogSteps, run_in_bash
from tests.drills.old_majority import return_against
from tests.drills.printed_procedure import PrintedStep
from tests.drills.real_cluster import RealCluster, wait_for

LEADS: Final = re.compile(r"leader ([0-9]+), epoch above ([0-9]+), log end offset above ([0-9]+)")
NOTHING_TO_DO: Final = (
    "What was revoked",
    "ISR and ELR are",
    "Feature levels",
    "Registrations of",
)


class FollowedProcedure:
    """One rescue of one cluster. `executed` are the commands that ran, in order; `rescued` is the new controller."""

    def __init__(self, cluster: RealCluster, out: Path, kraft_audit: Command) -> None:
        self.cluster = cluster
        self.drill: Drill = cluster.drill
        self.out = out
        self.kraft_audit = kraft_audit
        self.executed: list[str] = []
        self.rescued: KafkaNode | None = None
        self.rescued_dir = out
        self.fence = 0
        self.warning = ""
        self._steps: dict[str, Callable[[PrintedStep], None]] = {
            "Power off": self._power_off,
            "Never start a majority": self._warned,
            "Stop all brokers": self._stop_brokers,
            "Reassigned in the lost part": self._run_all,
            "Before node": self._move_old_metadata,
            "Set this in every broker's config": self._configure_brokers,
            "Node ": self._return_combined,
            "Nodes ": self._return_combined,
            "On every broker remove": self._configure_brokers,
            "Before anything is moved": self._run_all,
            "Move ": self._start_rescued,
            "Check it": self._check,
            "Start all brokers": self._start_brokers,
            "Start broker": self._start_last,
            "Broker": self._elect,
            "Bring the lost part back": self._bring_back,
            "Topics that come back empty": self._run_all,
            "Revoked or changed": self._run_all,
            "Back to a majority: for each": self._grow,
            "Back to a majority: stop": self._copy_rescued,
            "Set this in every controller's": self._start_copies,
            "Never rescue twice": self._nothing,
        }
        self._steps["A better copy"] = self._nothing
        self._steps |= dict.fromkeys(NOTHING_TO_DO, self._nothing)

    @property
    def controllers(self) -> list[KafkaNode]:
        """The quorum that goes on."""
        assert self.rescued is not None
        return [self.rescued, *self.cluster.joined.values()]

    def follow(self, steps: list[PrintedStep]) -> None:
        for step in steps:
            (action,) = [action for words, action in self._steps.items() if step.text.startswith(words)]
            before, started = len(self.executed), time.monotonic()
            action(step)
            with (self.cluster.work / "steps.txt").open("a") as log:
                log.write(f"{time.monotonic() - started:6.1f} s  {step.text[:60]}\n")
            ran = set(self.executed[before:])
            assert set(step.commands) <= ran or (not self.drill.grows and action in (self._grow, self._copy_rescued)), (
                step
            )

    # The steps

    def _nothing(self, step: PrintedStep) -> None:
        assert not step.commands
        assert not step.settings

    def _power_off(self, step: PrintedStep) -> None:
        self._nothing(step)
        assert not any(node.is_running for node in self.cluster.controllers.values())

    def _warned(self, step: PrintedStep) -> None:
        self._nothing(step)
        self.warning = step.text

    def _stop_brokers(self, step: PrintedStep) -> None:
        self._nothing(step)
        for broker in self.cluster.brokers.values():
            assert f"{broker.node_id} ({broker.broker_place})" in step.text
            broker.kill()
            shutil.copytree(broker.log_dir, self.cluster.work / "backup" / broker.log_dir.name)

    def _move_old_metadata(self, step: PrintedStep) -> None:
        """Out of the data dirs of each node that was controller and broker, and whose disk is left."""
        assert self.combined
        for node in self.combined:
            for command in step.commands:
                self._run_in_bash(command, DATA_DIR=str(node.log_dir))

    @property
    def combined(self) -> list[KafkaNode]:
        """The old nodes that were controllers and brokers, as far as their disks are left."""
        return [node for node_id, node in self.cluster.brokers.items() if node_id in self.cluster.controllers]

    def _configure_brokers(self, step: PrintedStep) -> None:
        if "process.roles" in step.settings:
            self._brokers_only(step)
        for broker in self.cluster.brokers.values():
            broker.quorum = dict(step.settings)
            for command in step.commands:
                self._run_in_bash(command, BROKER_DIR=str(broker.log_dir))

    def _brokers_only(self, step: PrintedStep) -> None:
        assert step.settings["process.roles"] == "broker"
        for node in self.combined:
            node.role = "broker"

    def _return_combined(self, step: PrintedStep) -> None:
        """Nodes that were controllers and brokers, and not the one that is rescued."""
        if step.settings:
            self._brokers_only(step)
        for node in self.combined:
            for command in step.commands if node is not self.rescued else ():
                node.extra["metadata.log.dir"] = node.log_dir.with_name(f"{node.log_dir.name}-metadata")
                self._run(command, node)

    def _start_rescued(self, step: PrintedStep) -> None:
        moved = self.cluster.work / "moved-here"
        shutil.move(self.out, moved)
        node_id = int(step.settings["node.id"])
        if step.settings["process.roles"] == "controller":
            node = KafkaNode(self.cluster.work, node_id, "controller", self.cluster.classpath, {}, None)
            node.log_dir = moved
            node.port = int(step.settings["listeners"].rpartition(":")[2])
            node.quorum = step.settings
            node.output = self.cluster.work / "rescued.log"
            node.properties = self.cluster.work / "rescued.properties"
        else:
            node = self.cluster.brokers[node_id]
            assert f"{node.place}." in step.text
            node.extra["metadata.log.dir"] = moved
            node.quorum = {name: value for name, value in step.settings.items() if name != "metadata.log.dir"}
        self.rescued = node
        self.rescued_dir = moved
        self.cluster.rescued = node
        node.start()
        wait_for("the rescued node to lead", lambda: self.cluster.leader(node) == node.node_id)

    def _check(self, step: PrintedStep) -> None:
        (command,) = step.commands
        printed = self._run(command)
        leads = LEADS.search(step.text)
        assert leads is not None
        status = dict(re.findall(r"^(\w+):\s+(.*)$", printed, re.MULTILINE))
        assert status["LeaderId"] == leads[1]
        assert int(status["LeaderEpoch"]) > int(leads[2])
        assert int(status["HighWatermark"]) > int(leads[3])
        self.fence = int(leads[2])
        if self.drill.back in (Back.AGAINST, Back.WIPED):
            return_against(self.cluster, self)

    def _start_brokers(self, step: PrintedStep) -> None:
        self._nothing(step)
        last = re.search(r"Start all brokers but ([0-9 ,and]+)\.", step.text)
        ids = set(self.cluster.brokers) - set(map(int, re.findall(r"[0-9]+", last[1]) if last is not None else ()))
        for node_id in ids:
            if self.cluster.brokers[node_id] is not self.rescued:
                self.cluster.brokers[node_id].start()
        self.cluster.wait_for_brokers(ids, are_leading=not self.drill.combined)
        self.cluster.wait_for_state(self.cluster.truth)

    def _start_last(self, step: PrintedStep) -> None:
        """A broker that was away in the lost part, and that the rescued state has in sync."""
        self._nothing(step)
        self.cluster.brokers[int(step.text.split()[2])].start()
        self.cluster.wait_for_brokers(self.cluster.brokers)

    def _elect(self, step: PrintedStep) -> None:
        """Where the brokers' data is lost: what is left leads, as soon as the lost ones are fenced."""
        wait_for("lost brokers to be fenced", self._lost_are_fenced)
        unavailable, _ = [self._run(command) for command in step.commands]
        if not self.cluster.only_brokers:  # else one of these may have stayed in sync
            assert ("Leader: none" in unavailable) == self.drill.elr, unavailable
        self.cluster.wait_for_brokers([node_id for node_id, node in self.cluster.brokers.items() if node.is_running])

    def _lost_are_fenced(self) -> bool:
        rows = self.cluster.tools.must_ask("state", self.cluster.server).rows
        running = {str(node_id) for node_id, node in self.cluster.brokers.items() if node.is_running}
        return all(row[6] in {*running, "-1"} for row in rows if row[0] == "partition")

    def _bring_back(self, step: PrintedStep) -> None:
        (command,) = step.commands
        blanks, script = shlex.split(command)[0], Path(shlex.split(command)[-1])
        name, _, value = blanks.partition("=")
        text = script.read_text()
        for call in calls_of(text, self.cluster.work / "kit", **{name: value}):
            self.cluster.tools.must_run([call.tool, *call.arguments])
        self.executed.append(command)
        if Lost.CREATED in self.drill.lost:
            OldLogSteps(self.cluster, text).follow()

    def _grow(self, step: PrintedStep) -> None:
        if not self.drill.grows:
            return
        assert self.rescued is not None
        returned = [node for node in self.combined if node is not self.rescued and node.role == "combined"]
        ids = self.drill.voter_ids[:2] if self.drill.old_ids else [self.drill.voters + 1, self.drill.voters + 2]
        ids = ids[len(returned) :]
        place = re.search(r"controller\.quorum\.bootstrap\.servers=(\S+?),", step.text)
        assert place is not None
        formatting, adding = step.commands
        for node_id in ids:
            node = self.cluster.new_controller(node_id, {"controller.quorum.bootstrap.servers": place[1]})
            self._run(formatting, node)
            node.start()
            target = int(self.cluster.quorum(self.rescued)["leader"][0][2])
            wait_for(f"controller {node_id} to catch up", partial(self._has_fetched, node_id, target))
            self._run(adding, node)
            if node.role == "combined":
                self.cluster.brokers[node_id] = node
        for node in returned:
            self.cluster.joined[node.node_id] = node
            self._run(adding, node)
        wait_for("three voters", partial(self._has_voters, {node.node_id for node in self.controllers}))

    def _has_voters(self, ids: set[int]) -> bool:
        """Whether these are the voters, and each has fetched something."""
        voters = self.cluster.quorum(*self.controllers).get("voter", ())
        return {int(voter) for voter, end in voters if int(end) > 0} == ids

    # The way back of a static quorum: copies of the rescued disk

    def _copy_rescued(self, step: PrintedStep) -> None:
        if not self.drill.grows:
            return
        assert self.rescued is not None
        for broker in self.cluster.brokers.values():
            broker.stop()
        self.rescued.stop()
        blanks = {"RESCUED_DIR": str(self.rescued_dir)}
        for node_id in sorted(set(map(int, re.findall(r"NEW_DIR_([0-9]+)", " ".join(step.commands))))):
            node = self.cluster.new_controller(node_id, {})
            node.log_dir.parent.mkdir(parents=True)
            new_dir = node.log_dir
            if node.role == "combined":
                new_dir = node.extra["metadata.log.dir"] = node.log_dir.with_name("metadata")
            blanks[f"NEW_DIR_{node_id}"] = str(new_dir)
        for command in step.commands:
            of_brokers = self.cluster.only_brokers.values() if "$BROKER_DIR" in command else ()
            for broker in of_brokers:
                self._run_in_bash(command, BROKER_DIR=str(broker.log_dir))
            if not of_brokers:
                self._run_in_bash(command, **blanks)

    def _start_copies(self, step: PrintedStep) -> None:
        if not self.drill.grows:
            return
        for voter in step.settings["controller.quorum.voters"].split(","):
            node_id, _, place = voter.partition("@")
            (node,) = [each for each in self.controllers if each.node_id == int(node_id)]
            node.port = int(place.rpartition(":")[2])
            node.quorum = dict(step.settings)
            for command in step.commands:
                self._run(command, node)
            node.start()
        for broker in self.cluster.only_brokers.values():
            broker.quorum = {name: value for name, value in step.settings.items() if name != "process.roles"}
            broker.start()
        wait_for("all voters", partial(self._has_voters, {node.node_id for node in self.controllers}))
        self.cluster.wait_for_brokers(self.cluster.brokers)

    def _has_fetched(self, node_id: int, target: int) -> bool:
        assert self.rescued is not None
        found = self.cluster.quorum(self.rescued)
        return any(int(node) == node_id and int(end) >= target for node, end in found.get("observer", ()))

    # Commands

    def _run_all(self, step: PrintedStep) -> None:
        for command in step.commands:
            self._run(command)

    def _run(self, command: str, node: KafkaNode | None = None) -> str:
        """Runs a command as it was printed, and writes it down."""
        words = shlex.split(command)
        if words[0].startswith("kafka-"):
            self.executed.append(command)
            return self.cluster.run_printed(command, node)
        if words[0] == "kraft-audit":
            self.executed.append(command)
            ended = self.kraft_audit(*words[1:])
            assert ended.code == 0, ended
            return ended.out
        return self._run_in_bash(command)

    def _run_in_bash(self, command: str, **blanks: str) -> str:
        self.executed.append(command)
        return run_in_bash(command, **blanks)
