"""How to start real Kafka controllers on what a simulation wrote: their settings, and the commands.

The controllers of a simulated cluster live at controller-<id>:9093. A hosts file that only these JVMs read gives each
its own loopback address, so that no name, port or dir has to be changed.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PORT = 9093


@dataclass(frozen=True, slots=True)
class BootPlan:
    """What was written below `folder`: one properties file and one copied log dir a controller, and `hosts`."""

    folder: Path
    node_ids: tuple[int, ...]
    is_static: bool
    cluster_id: str
    committed_offset: int

    def commands(self) -> list[str]:
        """What to type, in order; KAFKA is the folder of a Kafka release."""
        lines = [f"export KAFKA_OPTS=-Djdk.net.hosts.file={self.folder / 'hosts'}"]
        lines += [f"$KAFKA/bin/kafka-server-start.sh -daemon {self.properties(node_id)}" for node_id in self.node_ids]
        first = self.node_ids[0]
        lines.append(
            f"$KAFKA/bin/kafka-metadata-quorum.sh --bootstrap-controller controller-{first}:{PORT} describe --status"
        )
        return lines

    def properties(self, node_id: int) -> Path:
        return self.folder / f"node-{node_id}.properties"


def prepare(out: Path, folder: Path, capture: str | None = None) -> BootPlan:
    """Copies a capture's controllers (the last capture's where None) to `folder` and writes their settings.

    Raises ValueError where the capture lacks so many voters that no majority can start.
    """
    truth = [json.loads(line) for line in (out / "truth.jsonl").read_text(encoding="utf-8").splitlines()]
    run = truth[0]
    name = capture or run["captures"][-1]
    version = max((line["version"] for line in truth if line["kind"] == "kraft_version"), default=0)
    voters = _voters(truth)
    present = tuple(node_id for node_id in voters if (out / name / f"node-{node_id}").is_dir())
    if 2 * len(present) <= len(voters):
        raise ValueError(f"{out / name} has {len(present)} of {len(voters)} voters: no majority can start")
    folder.mkdir(parents=True, exist_ok=True)
    hosts = [f"127.0.0.{number} controller-{node_id}" for number, node_id in enumerate(present, start=2)]
    (folder / "hosts").write_text("\n".join(["127.0.0.1 localhost", *hosts]) + "\n", encoding="utf-8")
    for node_id in present:
        shutil.copytree(out / name / f"node-{node_id}", folder / f"node-{node_id}")
        text = _properties(node_id, folder / f"node-{node_id}", voters, is_static=not version)
        (folder / f"node-{node_id}.properties").write_text(text, encoding="utf-8")
    committed = next(
        line["committed_offset"] for line in truth if line["kind"] == "capture" and line["capture"] == name
    )
    return BootPlan(folder, present, not version, run["cluster_id"], committed)


def _voters(truth: list[dict[str, Any]]) -> tuple[int, ...]:
    """The ids of the last voter set: of the newest committed record, else of the last election."""
    records = [line for line in truth if line["kind"] == "voter_record" and "voters" in line]
    if records:
        return tuple(voter["voterId"] for voter in records[-1]["voters"])
    elected = [line for line in truth if line["kind"] == "elected"]
    if not elected:
        raise ValueError("no leader was elected in this run: there is nothing to start")
    return tuple(key[0] for key in elected[-1]["voters"])


def _properties(node_id: int, log_dir: Path, voters: tuple[int, ...], *, is_static: bool) -> str:
    places = [f"controller-{voter}:{PORT}" for voter in voters]
    if is_static:
        joined = ",".join(f"{voter}@{place}" for voter, place in zip(voters, places, strict=True))
        quorum = f"controller.quorum.voters={joined}"
    else:
        quorum = f"controller.quorum.bootstrap.servers={','.join(places)}"
    return (
        "process.roles=controller\n"
        f"node.id={node_id}\n"
        f"listeners=CONTROLLER://controller-{node_id}:{PORT}\n"
        "controller.listener.names=CONTROLLER\n"
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\n"
        f"{quorum}\n"
        f"log.dirs={log_dir}\n"
    )
