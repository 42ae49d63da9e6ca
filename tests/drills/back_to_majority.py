"""From one controller back to a majority, by what is printed: new ones join, or get copies of the rescued disk."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.drills.kafka_node import KafkaNode, change_lines, lines_of, quiet_port
from tests.drills.printed_procedure import PrintedStep
from tests.drills.real_cluster import wait_for

if TYPE_CHECKING:
    from tests.drills.followed_procedure import FollowedProcedure

FEW_RECORDS: Final = 5


class BackToMajority:
    """The last steps of a procedure. A drill that does not grow leaves them out (`left_out`)."""

    def __init__(self, followed: FollowedProcedure) -> None:
        self._followed = followed
        self._cluster, self._drill = followed.cluster, followed.drill
        self._new_ids: list[int] = []
        self._returned: list[KafkaNode] = []
        self._formatting = self._asking = self._seeing = ""
        self._adding: PrintedStep | None = None
        self._end_above = 0

    @property
    def left_out(self) -> tuple[Callable[[PrintedStep], None], ...]:
        new = (self.start_new, self.wait_for_new, self.add_new, self.see_new)
        return (*new, self.copy_rescued, self.configure_copies)

    def _give_config(self, node: KafkaNode, source: Path) -> None:
        """Gives a new controller the config of another with node.id, listeners and log dirs of its own."""
        own = node.settings()
        values = {key: own[key] for key in ("node.id", "log.dirs")}
        names = [each.partition("://")[0] for each in lines_of(source)["listeners"].split(",")]
        places = {"CONTROLLER": node.place, "PLAINTEXT": node.broker_place}
        values["listeners"] = ",".join(f"{n}://{places.get(n) or f'127.0.0.1:{quiet_port()}'}" for n in names)
        if "metadata.log.dir" in node.extra:
            values["metadata.log.dir"] = node.extra["metadata.log.dir"]
        target = node.properties.with_name(f"own-{node.node_id}.properties")
        shutil.copy(source, target)
        change_lines(target, values, ["metadata.log.dir"])
        node.take_config(target)

    def choose_new(self, step: PrintedStep) -> None:
        """Ids that no broker has, new ones or those of old controllers."""
        self._followed.nothing(step)
        if not self._drill.grows:
            return
        named = re.search(r"that of an old controller \(([0-9 ,or]+)\)", step.text)
        old_ids = set(map(int, re.findall(r"[0-9]+", named[1]))) if named is not None else set()
        self._returned = [
            node for node in self._followed.combined if node is not self._followed.rescued and node.role == "combined"
        ]
        ids = self._drill.voter_ids[:2] if self._drill.old_ids else [self._drill.voters + 1, self._drill.voters + 2]
        self._new_ids = ids[len(self._returned) :]
        assert not self._drill.old_ids or set(self._new_ids) <= old_ids

    def configure_new(self, step: PrintedStep) -> None:
        assert not step.commands
        assert step.settings.items() <= lines_of(self._followed.config).items()

    def start_new(self, step: PrintedStep) -> None:
        assert not step.settings
        if self._drill.grows:
            (self._formatting,) = step.commands
            self._start_next()

    def _start_next(self) -> None:
        roles = lines_of(self._followed.config)["process.roles"]
        node = self._cluster.new_controller(self._new_ids.pop(0), {}, "controller" if roles == "controller" else None)
        self._give_config(node, self._followed.config)
        self._followed.run(self._formatting, node)
        node.start()
        self._newest = node
        if node.role == "combined":
            self._cluster.brokers[node.node_id] = node

    def wait_for_new(self, step: PrintedStep) -> None:
        if self._drill.grows:
            (self._asking,) = step.commands
            above = re.search(r"LogEndOffset is then above ([0-9]+)\.", step.text)
            assert above is not None
            self._end_above = int(above[1])
            self._wait_until_caught_up()

    def _wait_until_caught_up(self) -> None:
        node_id = str(self._newest.node_id)

        def is_caught_up() -> bool:
            head, *lines = (line.split() for line in self._followed.run(self._asking).splitlines() if line.strip())
            rows = {line[0]: dict(zip(head, line, strict=False)) | {"Status": line[-1]} for line in lines}
            row = rows.get(node_id)
            if row is None or int(row["LogEndOffset"]) <= self._end_above or int(row["Lag"]) > FEW_RECORDS:
                return False
            assert row["Status"] == "Observer"
            return True

        wait_for(f"controller {node_id} to catch up", is_caught_up)

    def add_new(self, step: PrintedStep) -> None:
        if not self._drill.grows:
            return
        self._adding = step
        self._add()

    def see_new(self, step: PrintedStep) -> None:
        """Whether the new one is a voter; only then the next one begins."""
        assert not step.settings
        if not self._drill.grows:
            return
        (self._seeing,) = step.commands
        self._wait_until_listed()
        while self._new_ids:
            self._start_next()
            self._add_next()
        for node in self._returned:
            self._cluster.joined[node.node_id] = self._newest = node
            self._add_next()
        wait_for("three voters", partial(self._has_voters, {node.node_id for node in self._followed.controllers}))

    def _add_next(self) -> None:
        self._wait_until_caught_up()
        self._add()
        self._wait_until_listed()

    def _add(self) -> None:
        assert self._adding is not None
        for command in self._adding.commands:
            self._followed.run(command, self._newest)

    def _wait_until_listed(self) -> None:
        listed = re.compile(rf'^CurrentVoters:.*"id": ?{self._newest.node_id}\b', re.MULTILINE)
        wait_for("the new voter", lambda: listed.search(self._followed.run(self._seeing)))

    def _has_voters(self, ids: set[int]) -> bool:
        """Whether these are the voters, and each has fetched something."""
        voters = self._cluster.quorum(*self._followed.controllers).get("voter", ())
        return {int(voter) for voter, end in voters if int(end) > 0} == ids

    # The way back of a static quorum: copies of the rescued disk

    def copy_rescued(self, step: PrintedStep) -> None:
        if not self._drill.grows:
            return
        assert self._followed.rescued is not None
        for broker in self._cluster.brokers.values():
            broker.stop()
        self._followed.rescued.stop()
        blanks = {"RESCUED_DIR": str(self._followed.rescued_dir)}
        for node_id in sorted(set(map(int, re.findall(r"NEW_DIR_([0-9]+)", " ".join(step.commands))))):
            node = self._cluster.new_controller(node_id, {})
            node.log_dir.parent.mkdir(parents=True)
            new_dir = node.log_dir
            if node.role == "combined":
                new_dir = node.extra["metadata.log.dir"] = node.log_dir.with_name("metadata")
            blanks[f"NEW_DIR_{node_id}"] = str(new_dir)
        for command in step.commands:
            of_brokers = self._cluster.only_brokers.values() if "$BROKER_DIR" in command else ()
            for broker in of_brokers:
                self._followed.run_in_bash(command, BROKER_DIR=str(broker.log_dir))
            if not of_brokers:
                self._followed.run_in_bash(command, **blanks)

    def configure_copies(self, step: PrintedStep) -> None:
        if not self._drill.grows:
            return
        for voter in step.settings["controller.quorum.voters"].split(","):
            node_id, _, place = voter.partition("@")
            (node,) = [each for each in self._followed.controllers if each.node_id == int(node_id)]
            if node is not self._followed.rescued:
                node.port = int(place.rpartition(":")[2])
                is_own = "Keep the rest of their own files" in step.text
                self._give_config(
                    node, self._cluster.controllers[node.node_id].properties if is_own else self._followed.config
                )
            change_lines(node.properties, step.settings)
            for command in step.commands:
                self._followed.run(command, node)
        for broker in self._cluster.only_brokers.values():
            broker.quorum = {name: value for name, value in step.settings.items() if name != "process.roles"}

    def start_copies(self, step: PrintedStep) -> None:
        self._followed.nothing(step)
        if not self._drill.grows:
            return
        for node in (*self._followed.controllers, *self._cluster.only_brokers.values()):
            node.start()
        wait_for("all voters", partial(self._has_voters, {node.node_id for node in self._followed.controllers}))
        self._cluster.wait_for_brokers(self._cluster.brokers)
