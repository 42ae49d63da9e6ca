"""What raises each rule about partitions, brokers and configs, and its near miss: the smallest history of each."""

from __future__ import annotations

import json
from typing import Any

from kraft_audit.rules.cluster_history import Contradiction
from tests.builders.histories import T0, HistoryBuilder, Story

RACKS = {11: "a", 12: "a", 13: "b"}


def state(**changes: Any) -> Story:
    """Three brokers; partition t-0 is created whole and changes at offset 20."""

    def story(b: HistoryBuilder) -> None:
        b.three_nodes().brokers(11, 12, 13).partition("t-0", 10, "created").partition("t-0", 20, **changes)

    return story


def then(first: dict[str, Any], second: dict[str, Any]) -> Story:
    def story(b: HistoryBuilder) -> None:
        state(**first)(b)
        b.partition("t-0", 30, **second)

    return story


def racks(isr: list[int]) -> Story:
    def story(b: HistoryBuilder) -> None:
        b.three_nodes()
        for broker, rack in RACKS.items():
            b.broker(broker, rack=rack)
        b.partition("t-0", 10, "created").partition("t-0", 20, isr=isr)

    return story


def config(*values: str | None) -> Story:
    def story(b: HistoryBuilder) -> None:
        for number, value in enumerate(values):
            b.config("TOPIC", "t", "unclean.leader.election.enable", value, 10 + number)

    return story


def flapping(seconds: int) -> Story:
    def story(b: HistoryBuilder) -> None:
        b.partition("t-0", 0, "created")
        for number in range(1, 15):
            isr = [11, 12] if number % 2 else [11, 12, 13]
            b.partition("t-0", number * seconds, isr=isr)

    return story


def moving(hours: int) -> Story:
    def story(b: HistoryBuilder) -> None:
        state(adding_replicas=[14])(b)
        b.rows["captures"][0]["last_timestamp_ms"] = T0 + 20_000 + hours * 3_600_000

    return story


def fenced(isr_leaves: bool) -> Story:
    """Broker 13 is fenced at 25, in the batch [20, 30); with `isr_leaves` the ISR loses it at 24, in the same batch."""

    def story(b: HistoryBuilder) -> None:
        b.three_nodes().brokers(11, 12, 13).partition("t-0", 10, "created")
        if isr_leaves:
            b.partition("t-0", 27, "fenced", isr=[11, 12])
        b.broker(13, at=25, fenced=True)

    return story


def unregistered(broker: int) -> Story:
    """A partition on 11, 12 and 13, and a broker that is unregistered afterwards."""

    def story(b: HistoryBuilder) -> None:
        b.three_nodes().brokers(11, 12, 13, 14).partition("t-0", 10, "created")
        b.broker(broker, at=20, fenced=True).partition("t-0", 21, isr=[11, 12])
        b.broker(broker, at=25, fenced=True, exists=False)

    return story


def elected_while(fenced: bool) -> Story:
    def story(b: HistoryBuilder) -> None:
        then({"isr": [], "leader": -1, "last_known_elr": [11]}, {"isr": [11], "leader": 11, "election": "last_known"})(
            b
        )
        b.broker(11, at=22, fenced=fenced)

    return story


def elected_after_lagging(leader: int) -> Story:
    """13 falls out of sync, 11 and 12 are lost, and one of the others leads."""

    def story(b: HistoryBuilder) -> None:
        then({"isr": [11, 12], "leader_epoch": 1}, {"isr": [], "leader": -1, "elr": [11, 12], "leader_epoch": 2})(b)
        b.feature("metadata.version", 30)
        state = "RECOVERING" if leader == 13 else "RECOVERED"
        elected = {"isr": [leader], "leader": leader, "elr": [], "leader_epoch": 3, "leader_recovery_state": state}
        b.partition("t-0", 35, "unclean_election" if leader == 13 else "unfenced", **elected)

    return story


def contradiction(problem: str | None) -> Story:
    def story(b: HistoryBuilder) -> None:
        state()(b)
        b.contradictions = () if problem is None else (Contradiction(33, problem),)

    return story


def turns(count: int) -> Story:
    def story(b: HistoryBuilder) -> None:
        b.broker(11, at=0)
        for number in range(count):
            b.broker(11, at=10 * (number + 1), fenced=number % 2 == 0)

    return story


def protocol(number: int, host: str = "b11.example") -> Story:
    listener = {"name": "CLIENT", "host": host, "port": 9092, "security_protocol": number}
    return lambda b: b.broker(11, end_points=[listener])


def at_level(level: int, *, since: int = 2) -> Story:
    """Node 1 supports metadata.version 33; the cluster is at `level`."""
    range_ = {"name": "metadata.version", "min_supported_version": 7, "max_supported_version": 33}
    return lambda b: b.three_nodes().controller(1, features=[range_]).feature("metadata.version", level, at=since)


def log_dirs(*dirs: str) -> Story:
    """Broker 11 registered two log dirs and reports these later."""

    def story(b: HistoryBuilder) -> None:
        b.broker(11, log_dirs=["first", "second"]).broker(11, at=20, log_dirs=list(dirs))

    return story


def acl(**changes: Any) -> Story:
    state = {
        "resourceType": 2,
        "resourceName": "*",
        "patternType": 3,
        "principal": "User:*",
        "host": "*",
        "operation": 2,
        "permissionType": 3,
        **changes,
    }
    return lambda b: b.add(
        "security_changes", kind="ACL", subject="id-1", exists=True, state=json.dumps(state), from_offset=10
    )


def min_isr(resource: str) -> Story:
    def story(b: HistoryBuilder) -> None:
        b.feature("eligible.leader.replicas.version", 1).config("BROKER", "", "min.insync.replicas", "2", 3)
        b.config("BROKER", resource, "min.insync.replicas", "2", 9)

    return story


def fallen(cause: str) -> Story:
    """With the ELR on, 11 alone is left of ISR and ELR though two are wanted."""

    def story(b: HistoryBuilder) -> None:
        state(isr=[11], elr=[], cause=cause)(b)
        b.feature("eligible.leader.replicas.version", 1)

    return story


PARTITION_STORIES: dict[str, tuple[Story, Story]] = {
    "KP001": (state(isr=[13]), state(isr=[13], elr=[12])),
    "KP002": (state(isr=[], leader=-1, elr=[12, 13]), state(isr=[12], leader=12)),
    "KP020": (elected_after_lagging(13), elected_after_lagging(12)),
    "KP005": (state(isr=[11]), state(isr=[11, 12])),
    "KP006": (state(isr=[11], elr=[12], expected_elr=[12, 13]), state(isr=[11], elr=[12], expected_elr=[12])),
    "KP007": (
        then({"isr": [11], "elr": [12]}, {"elr": [], "cause": "elr_cleared"}),
        then({}, {"cause": "elr_cleared"}),
    ),
    "KP008": (
        state(isr=[11, 12], cause="unclean_shutdown", cause_broker_id=13),
        state(isr=[11, 12], cause="fenced", cause_broker_id=13),
    ),
    "KP009": (racks([11, 12]), racks([11, 13])),
    "KP010": (state(effective_min_isr=1), state()),
    "KP011": (config("true"), config("false")),
    "KP012": (flapping(60), flapping(600)),
    "KP013": (contradiction("unknown_topic"), contradiction(None)),
    "KP014": (
        state(isr=[11], replicas=[11, 12], cause="reassignment_completed"),
        state(replicas=[11, 12], isr=[11, 12], cause="reassignment_completed"),
    ),
    "KP015": (moving(25), moving(23)),
    "KP016": (fenced(False), fenced(True)),
    "KP017": (elected_while(True), elected_while(False)),
    "KP019": (fallen("fenced"), fallen("unclean_shutdown")),
    "KP021": (unregistered(13), unregistered(14)),
    "KP018": (
        lambda b: b.feature("metadata.version", 25),
        lambda b: b.feature("metadata.version", 25).feature("eligible.leader.replicas.version", 1),
    ),
    "KB001": (turns(8), turns(6)),
    "KB002": (at_level(25, since=-40_000_000), at_level(33, since=-40_000_000)),
    "KB003": (protocol(0), protocol(1)),
    "KB004": (acl(), acl(principal="User:alice")),
    "KB005": (min_isr("11"), min_isr("")),
    "KB007": (lambda b: b.broker(11), lambda b: b.broker(11).feature("metadata.version", 7)),
    "KB010": (log_dirs("first"), log_dirs("first", "second")),
}
