"""A real cluster with one partition, the ledger of what was acknowledged to its producer, and what happens to it."""

from __future__ import annotations

import base64
import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from kraft_audit import open as open_captures
from kraft_audit.rules.columns.loss_holders import Loss, losses
from tests.drills.drill import Drill
from tests.drills.real_cluster import RealCluster, wait_for
from tests.drills.releases import KafkaRelease

TOPIC: Final = "pay"
SETTINGS: Final = {"broker.session.timeout.ms": 6000, "auto.leader.rebalance.enable": "false"}
"""A busy machine fences nobody who runs, and no election happens that no story asked for."""
DUMPED: Final = re.compile(r"^\|? ?offset: (\d+) .* payload: (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Sent:
    """A record that Kafka acknowledged with acks=all; value and key are text, the timestamp is in ms."""

    value: str
    partition: int
    offset: int
    timestamp_ms: int
    key: str


class LosingCluster:
    """One controller, brokers 101 and up, and the partition pay-0.

    The last broker has no replica of it: it answers while all the others are down. `ledger` is what was acknowledged.
    """

    def __init__(self, drill: Drill, work: Path, release: KafkaRelease, *, data_dirs: int = 1) -> None:
        self.cluster = RealCluster(drill, work, release.classpath, release.tools, release.archive)
        self.tools = release.tools
        self.ledger: list[Sent] = []
        self.replicas: tuple[int, ...] = ()
        self.topic_id = ""
        for node in self.cluster.all_nodes:
            node.extra |= SETTINGS
        if data_dirs > 1:
            for node in self.cluster.only_brokers.values():
                dirs = [f"{node.log_dir}-disk{number}" for number in range(data_dirs)]
                node.extra |= {"log.dirs": ",".join(dirs), "metadata.log.dir": node.log_dir}

    def boot(self) -> None:
        """Formats with the ELR as the drill says, whatever the release has as its default, and starts all."""
        drill = self.cluster.drill
        has_elr = not drill.release.startswith("3.")
        self.cluster.boot(*["--feature", "eligible.leader.replicas.version=0"] * (has_elr and not drill.elr))

    # What happens to it

    def create(self, *replicas: int, min_isr: int, **configs: str) -> None:
        """The partition; the first replica leads."""
        self.replicas = replicas
        named = {"min.insync.replicas": str(min_isr)} | configs
        words = [word for name, value in named.items() for word in ("--config", f"{name}={value}")]
        self.cluster.topic(TOPIC, "--replica-assignment", ":".join(map(str, replicas)), *words)
        self.wait(leader=replicas[0], isr=set(replicas))
        self.topic_id = wait_for("the topic id", lambda: self._described()[2])  # a busy machine may give no answer

    def send(self, count: int) -> None:
        """Sends with acks=all and enters into the ledger what was acknowledged: all of it, or the drill fails."""
        rows = self.tools.must_ask("send", self.cluster.server, TOPIC, f"{len(self.ledger)}-", str(count)).rows
        sent = [Sent(value, int(part), int(offset), int(time), key) for value, part, offset, time, key in rows]
        assert len(sent) == count
        self.ledger += sent

    def kill(self, broker: int) -> None:
        """kill -9: what it wrote stays in the page cache, so its disk lacks nothing."""
        self.cluster.brokers[broker].kill()

    def stop(self, broker: int) -> None:
        self.cluster.brokers[broker].stop()

    def start(self, *brokers: int) -> None:
        """Until they are unfenced; the partition may still be without a leader."""
        for broker in brokers:
            self.cluster.brokers[broker].start()
        self.cluster.wait_for_brokers(brokers, are_leading=False)

    def restart_spare(self) -> None:
        """The broker without a replica comes back, and Kafka looks for a leader wherever there is none.

        It does not when a broker that is unfenced already assigns a directory (seen with 4.0.2 and 4.3.1).
        """
        spare = max(self.cluster.brokers)
        self.stop(spare)
        self.start(spare)

    def pause(self, broker: int) -> None:
        self.cluster.brokers[broker].pause()

    def go_on(self, broker: int) -> None:
        self.cluster.brokers[broker].go_on()
        self.cluster.wait_for_brokers([broker], are_leading=False)

    def elect_uncleanly(self, broker: int) -> None:
        """As an operator does who wants the partition back at any price."""
        words = ["kafka-leader-election", "--bootstrap-server", self.cluster.server, "--election-type", "unclean"]
        self.tools.must_run([*words, "--topic", TOPIC, "--partition", "0"])
        self.wait(leader=broker, isr={broker})

    def reassign(self, *replicas: int) -> None:
        self.tools.must_ask("reassign", self.cluster.server, TOPIC, ",".join(map(str, replicas)))
        self.replicas = replicas
        wait_for("the replicas", lambda: set(replicas) <= _ids(self._described()[4]))

    def configure(self, setting: str) -> None:
        self.cluster.configs("--entity-type", "topics", "--entity-name", TOPIC, "--add-config", setting)

    def lose_tail(self, broker: int) -> None:
        """What a power cut does to a broker that was killed: half of its log was not flushed."""
        (log,) = self._disk(broker).glob(f"**/{TOPIC}-0/*.log")
        with log.open("r+b") as file:
            file.truncate(log.stat().st_size // 2)

    def empty(self, broker: int) -> None:
        """All files are deleted but meta.properties, so the directory keeps its id."""
        for path in self._disk(broker).iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != "meta.properties":
                path.unlink()

    def replace_disk(self, broker: int) -> None:
        """The directory with the partition is lost, and a new one is formatted in its place."""
        shutil.rmtree(self._disk(broker))
        node = self.cluster.brokers[broker]
        node.format(self.tools, self.cluster.cluster_id, "--ignore-formatted")

    def _disk(self, broker: int) -> Path:
        """The log dir with the partition."""
        (found,) = self.cluster.nodes.glob(f"broker-{broker}*/{TOPIC}-0")
        return found.parent

    # What can be asked

    def _described(self) -> list[str]:
        """What Kafka's Admin client says of the partition: its name, topic id, number, replicas, ISR, leader."""
        answer = self.tools.ask("topics", self.cluster.server)
        rows = [row for row in answer.rows if row[:2] == ["partition", TOPIC]] if answer.code == 0 else []
        return rows[0] if rows else [""] * 7

    def wait(self, *, leader: int | None = None, isr: set[int] | None = None) -> None:
        """Until the partition has this leader, -1 for none, and this ISR; None stands for any."""

        def is_so() -> bool:
            row = self._described()
            return leader in (None, int(row[6] or "-2")) and isr in (None, _ids(row[5]))

        wait_for(f"{TOPIC}-0 with leader {leader} and ISR {isr}", is_so)

    def all_back(self) -> None:
        """Every broker runs, and every replica is in sync."""
        brokers = self.cluster.brokers
        for paused in [node for node, broker in brokers.items() if broker.is_paused]:
            self.go_on(paused)
        self.start(*(node for node, broker in brokers.items() if not broker.is_running))
        self.wait(isr=set(self.replicas))

    def lost(self) -> list[Sent]:
        """What is in the ledger and cannot be read any more."""
        readable = self.cluster.readable(TOPIC)
        return [sent for sent in self.ledger if sent.value not in readable]

    def capture(self, name: str) -> Path:
        """Copies every node's disk at one moment.

        The data of brokers is in it, and beside it the ledger, so that what is recovered from a holder's disk can be
        compared with what was sent, byte for byte.
        """
        folder = self.cluster.work / "captures" / name
        folder.mkdir(parents=True)
        self.cluster.copy_disks(folder / "nodes")
        (folder / "ledger.jsonl").write_text("".join(json.dumps(asdict(sent)) + "\n" for sent in self.ledger))
        return folder / "nodes"

    def disks_with(self, lost: Sequence[Sent], capture: Path) -> set[int]:
        """The brokers on whose captured disks Kafka's own dump finds all of these records, at their offsets."""
        wanted = {(sent.offset, sent.value) for sent in lost}
        return {broker for broker in self.cluster.brokers if wanted <= self._dumped(broker, capture)}

    def _dumped(self, broker: int, capture: Path) -> set[tuple[int, str]]:
        files = sorted(map(str, capture.glob(f"broker-{broker}*/{TOPIC}-0/*.log")))
        if not files:
            return set()
        text = self.tools.must_run(["kafka-dump-log", "--print-data-log", "--files", ",".join(files)])
        assert "Log starting offset" in text, text
        return {(int(offset), value) for offset, value in DUMPED.findall(text)}


def announced(capture: Path) -> list[Loss]:
    """The losses that the audit finds in a capture; of grade unflushed, too."""
    with open_captures(str(capture)) as clusters:
        (cluster,) = clusters
        return losses(cluster.history)


def salvaged(capture: Path) -> list[Sent]:
    """What salvage writes from a capture's disks, in the order of its files."""
    from kraft_audit.commands.cli import run_command

    out = capture.parent / "salvaged"
    assert run_command(["salvage", str(capture), "--out", str(out)]) == 0
    lines = [line for file in sorted(out.glob("*/records.jsonl")) for line in file.read_text().splitlines()]
    return [_sent(json.loads(line)) for line in lines]


def _sent(record: dict[str, Any]) -> Sent:
    value, key = (base64.b64decode(record[name]).decode() for name in ("value", "key"))
    return Sent(value, 0, record["offset"], record["timestamp_ms"], key)


def _ids(text: str) -> set[int]:
    return {int(node) for node in text.split(",") if node}
