"""A quorum of the engine that lost its majority, the dir that `rescue` wrote of what was left, and how it goes on."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import kraft_audit
from kraft_audit.cluster import Cluster
from kraft_audit.quorum.voter_history import Endpoint
from kraft_audit.recovery.lost_quorum.rescue import Rescue
from kraft_audit.recovery.lost_quorum.rescue_request import RescueRequest
from kraft_audit.rules.rule_model import Finding, Status
from kraft_codec.file_names import METADATA_LOG_DIR, RESCUE_DECLARATION_NAME, segment_name
from kraft_codec.files.state_files import (
    EpochEntry,
    QuorumState,
    format_leader_epoch_checkpoint,
    format_quorum_state,
)
from kraft_engine.runs.scenario_stage import Stage
from tests.builders.captures import SMALL_CORPUS
from tests.builders.logs import Log

LATE_TOPIC = "late"
"""Created after `cut`: what a rescue to that offset loses."""


AFTER_ELECTION = f"{SMALL_CORPUS}/divergence/12-after-truncation"
"""A capture of controllers 1, 2 and 3 and broker 11."""


def three_controllers(out: Path) -> Path:
    """The controllers of that capture alone."""
    for node in (1, 2, 3):
        shutil.copytree(f"{AFTER_ELECTION}/node-{node}", out / f"node-{node}")
    return out


@pytest.fixture
def one_left(tmp_path: Path) -> Path:
    """Controller 3 of that capture alone."""
    folder = tmp_path / "left"
    shutil.copytree(f"{AFTER_ELECTION}/node-3", folder / "node-3")
    return folder


class LostAndRescued:
    """Controllers 1, 2 and 3 as they ended (`old`), and node 3's disk rescued (`rescued`), cut at `cut`."""

    def __init__(self, out: Path, *, static: bool = False) -> None:
        self.out = out
        self.stage = Stage(9, out / "engine")
        self.stage.controllers(1, 2, 3, static=static)
        self.stage.brokers(11, 12)
        self.stage.topic("orders", [11, 12], [12, 11])
        self.stage.settle()
        self.cut = self.stage.disk(3).log.end_offset
        self.stage.topic(LATE_TOPIC, [12, 11])
        self.stage.settle()
        for node in (1, 2, 3):
            self.stage.stop(node)
        self.stage.capture("old", 1, 2, 3)
        self.found = self.rescue(3, "rescued")

    @property
    def old(self) -> Path:
        return self.out / "engine" / "old"

    @property
    def rescued(self) -> Path:
        return self.out / "rescued"

    def copied_to(self, out: Path) -> LostAndRescued:
        """The same in another folder."""
        shutil.copytree(self.out, out, dirs_exist_ok=True)
        same = copy.copy(self)
        same.out = out
        return same

    def rescue(self, node: int, name: str) -> Rescue:
        """Writes `name` from the disk of one node, the two others gone."""
        self.place(f"left-{node}", {f"node-{node}": self.old / f"node-{node}"})
        gone = sorted({1, 2, 3} - {node})
        with kraft_audit.open(str(self.out / f"left-{node}")) as clusters:
            (cluster,) = clusters
            endpoints = (Endpoint("", "127.0.0.1", 9093),)
            request = RescueRequest(node, self.out / name, endpoints=endpoints, to_offset=self.cut - 1)
            return cluster.rescue(request, gone)

    def going_on(
        self, name: str, topics: Sequence[str] = ("after",), *, epochs: int = 1, source: str = "rescued"
    ) -> Path:
        """The rescued dir after its node led it, `epochs` epochs after the one of the rescue, and created topics."""
        found, target = self.found, self.out / name
        shutil.copytree(self.out / source, target)
        log = Log(next_offset=found.offset, timestamp_ms=self.written_ms + 1_000 * epochs)
        voters, epoch = [{"voterId": found.node.node_id}], found.epoch + epochs
        fields = {"version": 0, "leaderId": found.node.node_id, "voters": voters, "grantingVoters": voters}
        log.control("LEADER_CHANGE", fields, epoch=epoch)
        for topic in topics:
            log.topic(topic)
        log.noop()
        folder = target / METADATA_LOG_DIR
        (folder / segment_name(found.offset)).write_bytes(log.content)
        (folder / "quorum-state").write_bytes(format_quorum_state(QuorumState(1, found.node.node_id, epoch, -1)))
        entries = (EpochEntry(epoch, found.offset),)
        (folder / "leader-epoch-checkpoint").write_bytes(format_leader_epoch_checkpoint(entries))
        return target

    def place(self, name: str, dirs: dict[str, Path]) -> Path:
        """A folder with copies of node dirs."""
        for place, source in dirs.items():
            shutil.copytree(source, self.out / name / place)
        return self.out / name

    def beside(self, name: str, rescued: Path, *nodes: int) -> Path:
        """A rescued dir in one folder with the old disks of some nodes."""
        return self.place(name, {f"old-{node}": self.old / f"node-{node}" for node in nodes} | {"rescued": rescued})

    @property
    def written_ms(self) -> int:
        return int(json.loads((self.rescued / RESCUE_DECLARATION_NAME).read_text())["written_ms"])


def edit_declaration(node_dir: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Changes the rescue.json of a node dir."""
    file = node_dir / RESCUE_DECLARATION_NAME
    document = json.loads(file.read_text())
    edit(document)
    file.write_text(json.dumps(document))


def without_declaration(folder: Path) -> Path:
    """A copy of a folder in which no dir declares a rescue."""
    target = folder.with_name("undeclared")
    shutil.copytree(folder, target)
    for file in target.rglob(RESCUE_DECLARATION_NAME):
        file.unlink()
    return target


def newest_history(path: Path) -> Cluster:
    """The newest history below a path, read to the end."""
    with kraft_audit.open(str(path)) as clusters:
        cluster = next(iter(clusters))
        cluster.check()
        return cluster


def raised(cluster: Cluster) -> list[Finding]:
    return [finding for finding in cluster.check() if finding.status is Status.RAISED]
