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
        self.fence = 0
        self.warning = ""
        self._steps: dict[str, Callable[[PrintedStep], None]] = {
            "Power off": self._power_off,
            "Never start a majority": self._warned,
            "Stop all brokers": self._stop_brokers,
            "Reassigned in the lost part": self._run_all,
            "Set this in every broker's config": self._configure_brokers,
            "On every broker remove": self._configure_brokers,
            "Before the dir is moved": self._run_all,
            "Move ": self._start_rescued,
            "Check it": self._check,
            "Start all brokers": self._start_brokers,
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
            assert f"{broker.node_id} ({broker.place})" in step.text
            broker.kill()
            shutil.copytree(broker.log_dir, self.cluster.work / "backup" / broker.log_dir.name)

    def _configure_brokers(self, step: PrintedStep) -> None:
        for broker in self.cluster.brokers.values():
            broker.quorum = dict(step.settings)
            for command in step.commands:
                self._run_in_bash(command, BROKER_DIR=str(broker.log_dir))

    def _start_rescued(self, step: PrintedStep) -> None:
        node = KafkaNode(
            self.cluster.work, int(step.settings["node.id"]), "controller", self.cluster.classpath, {}, None
        )
        node.log_dir = self.cluster.work / "moved-here"
        shutil.move(self.out, node.log_dir)
        node.port = int(step.settings["listeners"].rpartition(":")[2])
        node.quorum = step.settings
        node.output = self.cluster.work / "rescued.log"
        node.properties = self.cluster.work / "rescued.properties"
        self.rescued = node
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
        for broker in self.cluster.brokers.values():
            broker.start()
        self.cluster.wait_for_brokers(self.cluster.brokers)
        self.cluster.wait_for_state(self.cluster.truth)

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
        ids = self.drill.voter_ids[:2] if self.drill.old_ids else [self.drill.voters + 1, self.drill.voters + 2]
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

        wait_for("three voters", partial(self._has_voters, {*ids, self.rescued.node_id}))

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
        blanks = {"RESCUED_DIR": str(self.rescued.log_dir)}
        for node_id in sorted(set(map(int, re.findall(r"NEW_DIR_([0-9]+)", " ".join(step.commands))))):
            node = self.cluster.new_controller(node_id, {})
            node.log_dir.parent.mkdir(parents=True)
            blanks[f"NEW_DIR_{node_id}"] = str(node.log_dir)
        for command in step.commands:
            of_brokers = self.cluster.brokers.values() if "$BROKER_DIR" in command else ()
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
            node.start()
        for broker in self.cluster.brokers.values():
            broker.quorum = dict(step.settings)
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
