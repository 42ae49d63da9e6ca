"""Causes that `check` states, and the rivals that leave the same records, each played on a real cluster.

What happened is the truth, Kafka's own tools say when it had; what the disks hold is all that the audit gets.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

import kraft_audit
from kraft_audit.incidents.incident import Incident, IncidentKind
from kraft_audit.rules.columns.broker_stops import LAST_WORD_MS, Stop, broker_stops
from tests.builders.cut_network import Relay
from tests.drills.drill import Drill
from tests.drills.real_cluster import RealCluster, wait_for
from tests.drills.releases import KafkaRelease

pytestmark = [pytest.mark.kafka, pytest.mark.drill]

RELEASE: Final = "4.3.1"
LEADS, NEXT, IDLE = 101, 102, 103
"""101 leads the only partition, 102 after it, and 103 leads nothing."""
Boot = Callable[[str], "Played"]


class Played:
    """A static quorum of one, and three brokers; what the controller hears of 103 goes through a relay."""

    def __init__(self, name: str, work: Path, release: KafkaRelease) -> None:
        drill = Drill(name, RELEASE, voters=1, is_static=True, brokers=3)
        self.cluster = RealCluster(drill, work, release.classpath, release.tools, release.archive)
        self.relay = Relay(self.cluster.controllers[1].port)
        self.cluster.brokers[IDLE].quorum = {"controller.quorum.voters": f"1@127.0.0.1:{self.relay.port}"}

    def boot(self) -> None:
        self.cluster.boot()
        self.cluster.topic("orders", "--replica-assignment", f"{LEADS}:{NEXT}:{IDLE}")
        self.cluster.send("orders", "first")

    def close(self) -> None:
        self.cluster.kill_all()
        self.relay.close()

    def ask(self, but: int) -> list[list[str]]:
        """What the brokers but one say of the cluster."""
        others = (node for broker, node in self.cluster.brokers.items() if broker != but and node.is_running)
        answer = self.cluster.tools.ask("state", ",".join(node.broker_place for node in others))
        return answer.rows if answer.code == 0 else []

    def until(self, broker: int, *, there: bool) -> None:
        """Until Kafka's Admin client names it, or does not: it names no fenced broker."""

        def is_so() -> bool:
            named = {row[1] for row in self.ask(broker) if row[0] == "broker"}
            return bool(named) and (str(broker) in named) is there

        wait_for(f"broker {broker} {'back' if there else 'fenced'}", is_so)

    def told(self, label: str) -> tuple[list[Incident], list[tuple[int, Stop]]]:
        """The incidents that the copied disks show, oldest first, and how each broker left."""
        copy = self.cluster.work / label
        shutil.copytree(self.cluster.nodes, copy, ignore=shutil.ignore_patterns(".lock"))
        with kraft_audit.open(str(copy)) as clusters:
            (cluster,) = clusters
            incidents = sorted(cluster.incidents(cluster.check()).incidents, key=lambda each: each.from_offset or 0)
            return incidents, [(each.absence.broker_id, each.stop) for each in broker_stops(cluster.history)]


@pytest.fixture
def boot(kafka_releases: Callable[[str], KafkaRelease], tmp_path: Path) -> Iterator[Boot]:
    played: list[Played] = []

    def start(name: str) -> Played:
        played.append(Played(name, tmp_path, kafka_releases(RELEASE)))
        played[-1].boot()
        return played[-1]

    yield start
    for each in played:
        each.close()


def test_a_paused_process_and_a_cut_network_leave_the_same_records(boot: Boot) -> None:
    """The log does not tell them apart, so both are said."""
    played = boot("freeze")
    node = played.cluster.brokers[IDLE]
    for begin, end in ((node.pause, node.go_on), (played.relay.cut, played.relay.mend)):
        begin()
        played.until(IDLE, there=False)
        end()
        played.until(IDLE, there=True)
    incidents, stops = played.told("both")
    assert stops == [(IDLE, Stop.FROZEN)] * 2
    assert {each.kind for each in incidents} == {IncidentKind.BROKER_FREEZE}
    assert {each.headline for each in incidents} == {
        f"Broker {IDLE} was fenced and came back as the same process: frozen, or cut off from the controller"
    }


def test_a_broker_that_leads_nothing_is_stopped_and_killed(boot: Boot) -> None:
    """Both are a plain fence; its own copy of the metadata log holds that of the stop alone."""
    played = boot("idle")
    node = played.cluster.brokers[IDLE]
    for end, stop, kind in (
        (node.stop, Stop.IDLE, IncidentKind.BROKER_STOP),
        (node.kill, Stop.LOST, IncidentKind.BROKER_LOSS),
    ):
        end()
        played.until(IDLE, there=False)
        time.sleep(LAST_WORD_MS / 1000 + 2)
        incidents, stops = played.told(kind.value)
        assert stops[-1] == (IDLE, stop)
        assert (incidents[-1].kind, incidents[-1].is_open) == (kind, True)
        node.start()
        played.until(IDLE, there=True)
