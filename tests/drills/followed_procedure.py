"""Follows a printed procedure on a real cluster: every step by what it says, every command as it stands there."""

from __future__ import annotations

import re
import shlex
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from kraft_audit.recovery.lost_quorum.controller_config import blank
from tests.builders.commands import Command
from tests.builders.printed_scripts import calls_of
from tests.drills.back_to_majority import BackToMajority
from tests.drills.broker_starts import start_brokers
from tests.drills.drill import LEAVES_LOGS, Back, Drill
from tests.drills.kafka_node import KafkaNode, change_lines, lines_of
from tests.drills.old_logs import OldLogSteps, run_in_bash
from tests.drills.old_majority import return_against
from tests.drills.printed_procedure import PrintedStep
from tests.drills.real_cluster import RealCluster, wait_for

LEADS: Final = re.compile(
    r"LeaderId is ([0-9]+), LeaderEpoch above ([0-9]+), HighWatermark above ([0-9]+), "
    r"CurrentVoters node ([0-9]+) alone;"
)
VOTER_IDS: Final = re.compile(r'"id": ?([0-9]+)|\[([0-9]+)\]')
"""In CurrentVoters; before 3.9 it is a list of ids."""
PASSWORDS: Final = re.compile(r"PASSWORD_OF_(\w+)")
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
        self.config = out
        self.better: int | None = None
        self._backup = cluster.work / "backup"
        self._majority = BackToMajority(self)
        self._steps: dict[str, Callable[[PrintedStep], object]] = {
            "Power off": self._power_off,
            "If the metadata log of node": self._compare_copies,
            "If the copies are from before": self.nothing,
            "Leave the brokers that run": self._leave_brokers,
            "Stop all brokers": self._stop_brokers,
            "Reassigned in the lost part": self._run_all,
            "Before node": self._move_old_metadata,
            "Set this in every broker's config": self._configure_brokers,
            "Set this in the config of every broker": self._configure_brokers,
            "Node ": self._return_combined,
            "Nodes ": self._return_combined,
            "On every broker remove": self._configure_brokers,
            "Before anything is moved": self._run_all,
            "If the server.properties of": self.nothing,
            "The controller's config is": self._take_config,
            "Otherwise write controller.properties": self._write_config,
            "Start only one rescued dir": self.nothing,
            "Copy what is in ": self._copy_rescued,
            "Take ": self._start_rescued,
            "Format nothing": self._start_rescued,
            "Check it": self._check,
            "The brokers are stopped": self._add_brokers,
            "Before any broker starts": self._run_all,
            "Start all brokers": self._start_brokers,
            "Never remove a folder": self.nothing,
            "Keep clients away": self._list_strays,
            "Start broker": self._start_last,
            "Broker": self._elect,
            "If there are any": self._look_for_lost_part,
            "Bring the lost part back": self._bring_back,
            "Topics that come back empty": self._run_all,
            "Revoked or changed": self._run_all,
            "For each new controller": self._majority.choose_new,
            "Give it the config of node": self._majority.configure_new,
            "Format it on its host": self._majority.start_new,
            "Wait until it has caught up": self._majority.wait_for_new,
            "Only then add it": self._majority.add_new,
            "See that CurrentVoters lists it": self._majority.see_new,
            "Stop node": self._majority.copy_rescued,
            "Set this in every controller's": self._majority.configure_copies,
            "Start all controllers": self._majority.start_copies,
        }
        self._steps["A better copy"] = self.nothing
        self._steps |= dict.fromkeys(NOTHING_TO_DO, self.nothing)

    @property
    def controllers(self) -> list[KafkaNode]:
        """The quorum that goes on."""
        assert self.rescued is not None
        return [self.rescued, *self.cluster.joined.values()]

    def follow(self, steps: list[PrintedStep]) -> int | None:
        """Follows the steps in order. Ends where a better copy is found, with the id of the node that has it."""
        for step in steps:
            (action,) = [action for words, action in self._steps.items() if step.text.startswith(words)]
            before, started = len(self.executed), time.monotonic()
            action(step)
            with (self.cluster.work / "steps.txt").open("a") as log:
                log.write(f"{time.monotonic() - started:6.1f} s  {step.text[:60]}\n")
            ran = set(self.executed[before:])
            assert set(step.commands) <= ran or (not self.drill.grows and action in self._majority.left_out), step
            if self.better is not None:
                return self.better
        return None

    # The steps

    def nothing(self, step: PrintedStep) -> None:
        assert not step.commands
        assert not step.settings

    def _power_off(self, step: PrintedStep) -> None:
        self.nothing(step)
        assert not any(node.is_running for node in self.cluster.controllers.values())
        self.warning = step.text

    def _compare_copies(self, step: PrintedStep) -> None:
        """Disks that are left, and no other, can have changed after they were copied."""
        self.nothing(step)
        (ids,) = re.findall(r"of node ([0-9, or]+) changed", step.text)
        assert not set(map(int, re.findall(r"[0-9]+", ids))) & set(self.drill.gone)

    def _leave_brokers(self, step: PrintedStep) -> None:
        """Where nothing is lost: those that run go on across the rescue."""
        self.nothing(step)
        for broker in self.cluster.brokers.values():
            assert f"{broker.node_id} ({broker.broker_place})" in step.text
            assert broker.is_running is self.drill.runs_on

    def _stop_brokers(self, step: PrintedStep) -> None:
        self.nothing(step)
        for broker in self.cluster.brokers.values():
            assert f"{broker.node_id} ({broker.broker_place})" in step.text
            assert not self.drill.runs_on
            broker.kill()
            shutil.copytree(broker.log_dir, self._backup / broker.log_dir.name, dirs_exist_ok=True)

    def _add_brokers(self, step: PrintedStep) -> None:
        """Asks again, with the brokers' dirs where a drill has them: then one of these is the better copy."""
        if self.drill.adds_brokers:
            self._copy_brokers()
        (command,) = step.commands
        plan = self.run(command, OLD_DISKS=str(self.cluster.read))
        named = re.search(r"Go on from node ([0-9]+)", plan)
        assert named is not None, plan
        if self.drill.adds_brokers:
            assert "No broker has seen anything after these copies" in plan, plan
            self.better = int(named[1])

    def _copy_brokers(self) -> None:
        for broker in self.cluster.brokers.values():
            shutil.copytree(broker.log_dir, self.cluster.backup / broker.log_dir.name)

    def _move_old_metadata(self, step: PrintedStep) -> None:
        """Out of the data dirs of each node that was controller and broker, and whose disk is left."""
        assert self.combined
        for node in self.combined:
            for command in step.commands:
                self.run_in_bash(command, DATA_DIR=str(node.log_dir))

    @property
    def combined(self) -> list[KafkaNode]:
        """The old nodes that were controllers and brokers, as far as their disks are left."""
        return [node for node_id, node in self.cluster.brokers.items() if node_id in self.cluster.controllers]

    def _configure_brokers(self, step: PrintedStep) -> None:
        if "process.roles" in step.settings:
            self._brokers_only(step)
        listener = re.search(r"controller\.listener\.names begins with (\S+?)[, ]", step.text)
        for broker in self.cluster.brokers.values():
            names = str(broker.settings()["controller.listener.names"])
            if listener is not None and names.split(",")[0] != listener[1]:
                continue
            broker.quorum = dict(step.settings)
            for command in step.commands:
                self.run_in_bash(command, BROKER_DIR=str(broker.log_dir))

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
                self.run(command, node)

    def _take_config(self, step: PrintedStep) -> None:
        """The config of the rescued controller: the file that was written, or a combined node's own."""
        self.config = self.cluster.work / "rescued.properties"
        written = re.match(r"The controller's config is (\S+): ", step.text)
        if written is not None:
            assert Path(written[1]).stat().st_mode & 0o777 == 0o600
            shutil.copy(written[1], self.config)
            assert step.settings.items() <= lines_of(self.config).items()
            return
        without = re.search(r"and without ([a-z.]+)\.", step.text)
        assert without is not None
        shutil.copy(self._owner.properties, self.config)
        change_lines(self.config, step.settings, [without[1]])

    @property
    def _owner(self) -> KafkaNode:
        return self.cluster.controllers.get(self.drill.source) or self.cluster.controllers[1]

    def _write_config(self, step: PrintedStep) -> None:
        """What is put together by hand."""
        self.config = self.cluster.work / "rescued.properties"
        self._assert_it_does_not_start(step)
        families = re.search(r"begins with (.+?)\. Without", step.text)
        assert families is not None
        starts = tuple(re.split(", | or ", families[1]))
        old = lines_of(self._owner.properties)
        lines = {key: old.get(key, "") if value == blank(key) else value for key, value in step.settings.items()}
        lines = {key: value for key, value in lines.items() if value}
        change_lines(self.config, {key: value for key, value in old.items() if key.startswith(starts)} | lines)

    def _assert_it_does_not_start(self, step: PrintedStep) -> None:
        """With its blanks not filled in, a config does not start open: it does not start."""
        self.config.write_text("".join(f"{name}={value}\n" for name, value in step.settings.items()))
        copied = self.cluster.work / "not-started"
        shutil.copytree(self.out, copied)
        change_lines(self.config, {"log.dirs": copied})
        node = self._rescued_controller()
        node.output = self.cluster.work / "not-started.log"
        node.start()
        wait_for("a controller without a whole config to end", lambda: not node.is_running, 30)
        self.config.write_text("")

    def _rescued_controller(self) -> KafkaNode:
        """A node that starts with the config, in a process of its own."""
        lines = lines_of(self.config)
        node = KafkaNode(self.cluster.work, int(lines["node.id"]), "controller", self.cluster.classpath, {}, None)
        first = lines["controller.listener.names"].split(",")[0]
        place = re.search(rf"{first}://[^,]*:([0-9]+)", lines["listeners"])
        assert place is not None
        node.port = int(place[1])
        node.take_config(self.config)
        return node

    def _copy_rescued(self, step: PrintedStep) -> None:
        self.nothing(step)
        self.rescued_dir = self.cluster.work / "copied-here"
        said = re.search(
            r"what is in (\S+) to a new empty folder on host 127\.0\.0\.1[, ].* set (\S+) in .+ to that", step.text
        )
        assert said is not None
        assert said[1] == str(self.out)
        shutil.copytree(self.out, self.rescued_dir)
        assert lines_of(self.config)[said[2]] == str(self.out)
        change_lines(self.config, {said[2]: self.rescued_dir})

    def _start_rescued(self, step: PrintedStep) -> None:
        self.nothing(step)
        if lines_of(self.config)["process.roles"] == "controller":
            node = self._rescued_controller()
            node.log_dir = self.rescued_dir
            node.output = self.cluster.work / "rescued.log"
        else:
            node = self.cluster.brokers[int(lines_of(self.config)["node.id"])]
            node.take_config(self.config)
        self.rescued = node
        self.cluster.rescued = node
        node.start()
        wait_for("the rescued node to lead", lambda: self.cluster.leader(node) == node.node_id)

    def _check(self, step: PrintedStep) -> None:
        (command,) = step.commands
        printed = self.run(command)
        leads = LEADS.search(step.text)
        assert leads is not None
        status = dict(re.findall(r"^(\w+):\s+(.*)$", printed, re.MULTILINE))
        assert status["LeaderId"] == leads[1]
        assert int(status["LeaderEpoch"]) > int(leads[2])
        assert int(status["HighWatermark"]) > int(leads[3])
        assert ["".join(found) for found in VOTER_IDS.findall(status["CurrentVoters"])] == [leads[4]]
        self.fence = int(leads[2])
        if self.drill.back in (Back.AGAINST, Back.WIPED):
            return_against(self.cluster, self)

    def _start_brokers(self, step: PrintedStep) -> None:
        start_brokers(self.cluster, step, self.run)

    def _list_strays(self, step: PrintedStep) -> None:
        """Brokers name what they do not know: no step removes it."""
        (command,) = step.commands
        for broker in self.cluster.brokers.values():
            self.run_in_bash(command, DATA_DIR=str(broker.log_dir))

    def _start_last(self, step: PrintedStep) -> None:
        """A broker that was away in the lost part, and that the rescued state has in sync."""
        self.nothing(step)
        self.cluster.brokers[int(step.text.split()[2])].start()
        self.cluster.wait_for_brokers(self.cluster.brokers)

    def _elect(self, step: PrintedStep) -> None:
        """Where the brokers' data is lost: what is left leads, as soon as the lost ones are fenced."""
        wait_for("lost brokers to be fenced", self._lost_are_fenced)
        unavailable, _ = [self.run(command) for command in step.commands]
        # With ELR the last known leader is elected at once where its session ended after those of the lost ones.
        assert "Leader: none" not in unavailable or self.drill.elr, unavailable
        self.cluster.wait_for_brokers([node_id for node_id, node in self.cluster.brokers.items() if node.is_running])

    def _lost_are_fenced(self) -> bool:
        rows = self.cluster.tools.must_ask("state", self.cluster.server).rows
        running = {str(node_id) for node_id, node in self.cluster.brokers.items() if node.is_running}
        return all(row[6] in {*running, "-1"} for row in rows if row[0] == "partition")

    def _look_for_lost_part(self, step: PrintedStep) -> None:
        """Where strays are there that no copy names, the brokers' backups do."""
        if not any(self.cluster.nodes.glob("broker-*/*-stray")):
            self.executed += step.commands  # there is no occasion for them
            return
        old_disks, read = self.cluster.work / "old-disks", self.cluster.read
        for disk in (*([read] if self.cluster.is_one_disk else read.iterdir()), *self._backup.iterdir()):
            shutil.copytree(disk, old_disks / disk.name)
        writing, _ = step.commands
        self.run(writing, RESCUED_DIR=str(self.rescued_dir), OLD_DISKS=str(old_disks))
        script = self._bring_back(step, old_disks)
        for command in re.findall(r"^#   (kafka-\S+ .*(?:--remove|--delete-config) .*)$", script, re.MULTILINE):
            self.cluster.run_printed(command.replace('"$BOOTSTRAP_SERVER"', self.cluster.server))

    def _bring_back(self, step: PrintedStep, read: Path | None = None) -> str:
        """Runs the script, and does what its end says of old logs."""
        command = step.commands[-1]
        blanks, script = shlex.split(command)[0], Path(shlex.split(command)[-1])
        name, _, value = blanks.partition("=")
        text = script.read_text()
        passwords = {found[0]: f"of-{found[1]}" for found in PASSWORDS.finditer(text)}
        for call in calls_of(text, self.cluster.work / "kit", **{name: value}, **passwords):
            self.cluster.tools.must_run([call.tool, *call.arguments])
        self.executed.append(command)
        if LEAVES_LOGS & set(self.drill.lost):
            OldLogSteps(self.cluster, text.replace(f"{read or self.cluster.read}/", f"{self.cluster.nodes}/")).follow()
        return text

    # Commands

    def _run_all(self, step: PrintedStep) -> None:
        for command in step.commands:
            self.run(command)

    def run(self, command: str, node: KafkaNode | None = None, **blanks: str) -> str:
        """Runs a command as it was printed, its blanks filled in, and writes it down."""
        words = [blanks.get(word.removeprefix("$"), word) for word in shlex.split(command)]
        if words[0].startswith("kafka-"):
            self.executed.append(command)
            return self.cluster.run_printed(command, node)
        if words[0] == "kraft-audit":
            self.executed.append(command)
            ended = self.kraft_audit(*words[1:])
            assert ended.code == 0, ended
            return ended.out
        self.executed.append(command)
        return run_in_bash(command, self.cluster.console(node), **blanks)

    def run_in_bash(self, command: str, **blanks: str) -> str:
        self.executed.append(command)
        return run_in_bash(command, **blanks)
