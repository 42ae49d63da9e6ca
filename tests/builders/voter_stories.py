"""What raises each rule about voters, and its near miss: the smallest history of each."""

from __future__ import annotations

from typing import Any

from kraft_audit.capture.plan import HistoryOf, HistorySummary, ReplicaPlan
from kraft_codec.schemas import Dialect
from tests.builders.histories import CLUSTER_ID, T0, HistoryBuilder, Story, directory


def change(*ids: int, **more: object) -> Story:
    return lambda b: b.three_nodes().voters(*ids, at=20, **more)  # type: ignore[arg-type]


def static_voters(first: tuple[int, ...], others: tuple[int, ...]) -> Story:
    """Three voters of a static quorum, with what node 1 and the others read in their configurations."""

    def story(b: HistoryBuilder) -> None:
        b.voters(1, 2, 3, kraft_version=0, source="static").log(1, 2, 3, to=30).watermark(30, 30, end=30)
        for node_id in (1, 2, 3):
            b.capture(node_id, 30, current_voters=list(first if node_id == 1 else others))

    return story


def several_histories(b: HistoryBuilder) -> None:
    """Node 1 was formatted again after a day."""
    b.three_nodes()
    b.history_of = HistoryOf(0, (_history("tuesday", 1, T0 + 86_400_000), _history("monday", 0, T0)))


def _history(capture: str, generation: int, from_ms: int) -> HistorySummary:
    replica = ReplicaPlan("logs", f"{capture}/node-1", capture, 0, from_ms, CLUSTER_ID, 1, directory(1, generation), ())
    return HistorySummary((replica,), from_ms, from_ms + 3_600_000, 40)


def kv003(metadata_between: bool) -> Story:
    def story(b: HistoryBuilder) -> None:
        b.voters(1, 2, 3).leader_epoch(1, 1, 0).leader_epoch(2, 2, 20)
        b.log(1, 2, 3, to=20).batch(1, 20, 20, 2, is_control=True)
        if metadata_between:
            b.batch(1, 21, 21, 2).batch(1, 22, 22, 2, is_control=True)
        else:
            b.batch(1, 21, 21, 2, is_control=True).batch(1, 22, 22, 2)
        b.voters(1, 2, 3, 4, at=22 if metadata_between else 21, epoch=2)
        b.capture(1, 23, epoch=2).watermark(20, 20, end=23, epoch=2)

    return story


def kv004(third: tuple[int, ...]) -> Story:
    return lambda b: b.three_nodes().voters(1, 2, 3, 4, at=20).voters(*third, at=30)


def kv005(high: int) -> Story:
    def story(b: HistoryBuilder) -> None:
        b.voters(1, 2, 3).leader_epoch(1, 1, 0).log(1, to=40).voters(1, 2, 3, 4, at=25)
        b.capture(1, 40).watermark(min(high, 20) if high < 26 else high, high, end=40)

    return story


def kv008(generation: int) -> Story:
    return lambda b: b.voters(1, 2, 3).capture(1, 40, directory_id=directory(1, generation)).capture(2, 40)


def endpoint_of(host: str, port: int = 9093) -> list[dict[str, object]]:
    return [{"name": "CONTROLLER", "host": host, "port": port}]


def kv009(port: int) -> Story:
    def story(b: HistoryBuilder) -> None:
        b.voters(1, 2, endpoints={1: endpoint_of("c1.example"), 2: endpoint_of("c2.example")})
        for node, host in ((1, "c1.example"), (2, "c2.example")):
            endpoint = {**endpoint_of(host, port if node == 2 else 9093)[0], "security_protocol": 1}
            b.controller(node, end_points=[endpoint])

    return story


def kv010(last_second: int) -> Story:
    def story(b: HistoryBuilder) -> None:
        b.voters(1, 2, 3).leader_epoch(1, 1, 0).log(1, 2, 3, to=20).voters(2, 3, at=15)
        b.capture(1, 20).watermark(20, 20, end=20)
        b.batch(1, 20, 20).batch(1, 21, last_second).capture(1, last_second + 1, capture_number=1)
        b.watermark(last_second + 1, last_second + 1, end=last_second + 1, capture_number=1)

    return story


def kv013(end: int) -> Story:
    def story(b: HistoryBuilder) -> None:
        b.voters(1, 2, 3).watermark(5000, 5000, end=5000)
        for node_id, node_end in ((1, 5000), (2, 5000), (3, end)):
            b.capture(node_id, node_end, leader_id=1)

    return story


def kv015(generation: tuple[int, ...]) -> Story:
    return lambda b: b.three_nodes().voters(1, 2, at=20).voters(1, 2, 3, at=30, replaced=generation)


def kip856(*steps: tuple[int, tuple[int, ...]], low: int, high: int | None = None, data_at: int = 2) -> Story:
    """A kip856 history: the first set at offset 1, metadata from `data_at`, the steps; captured at offset 20."""

    def story(b: HistoryBuilder) -> None:
        b.dialect = Dialect.KIP856
        b.voters(1, 2, 3, at=1)
        b.batch(1, 0, 1, is_control=True)
        for offset in range(2, 20):
            is_change = offset in {at for at, _ in steps}
            b.batch(1, offset, offset, is_control=is_change or offset < data_at)
        for at, ids in steps:
            b.voters(*ids, at=at)
        captured_twice(b, low, high, 20)

    return story


def kip642(*steps: tuple[int, tuple[int, ...], list[int]], high: int | None) -> Story:
    def story(b: HistoryBuilder) -> None:
        b.dialect = Dialect.KIP642
        b.voters(1, 2, 3, at=1, target_voters=[1, 2, 3])
        for at, ids, target in steps:
            b.voters(*ids, at=at, target_voters=target)
        captured_twice(b, 0, high, 40)

    return story


def captured_twice(b: HistoryBuilder, low: int, high: int | None, end: int) -> None:
    """Disks of one round may be of different moments: a second round shows that nothing moved."""
    for number in (0, 1):
        b.capture(1, end, capture_number=number).watermark(low, high, end=end, capture_number=number)


def supports(level: int) -> list[dict[str, Any]]:
    return [{"name": "metadata.version", "min_supported_version": 7, "max_supported_version": level}]


def started(*controllers: int) -> Story:
    """Controllers registered in this order, each time as another process; no broker ever did."""

    def story(b: HistoryBuilder) -> None:
        b.three_nodes()
        for number, controller_id in enumerate(controllers):
            b.controller(controller_id, at=10 * number + 1, incarnation_id=f"process{number}".ljust(22, "x"))

    return story


VOTER_STORIES: dict[str, tuple[Story, Story]] = {
    "KV001": (change(1, 2, 4), change(1, 2, 3, 4)),
    "KV002": (change(1, 2, 3, 4, 5), change(1, 2)),
    "KV003": (kv003(False), kv003(True)),
    "KV004": (kv004((1, 2, 3, 5)), kv004((1, 2, 3))),
    "KV005": (kv005(25), kv005(40)),
    "KV006": (change(1, 2, 3, 4, canonical=False), change(1, 2, 3, 4)),
    "KV007": (lambda b: b.voters(1, 2), lambda b: b.voters(1, 2, 3)),
    "KV008": (kv008(1), kv008(0)),
    "KV009": (kv009(9094), kv009(9093)),
    "KV010": (kv010(100), kv010(45)),
    "KV011": (lambda b: b.voters(1, 2, 3, kraft_version=0, source="static"), lambda b: b.voters(1, 2, 3)),
    "KV012": (
        lambda b: b.voters(1).voters(2, canonical=False, source="bootstrap"),
        lambda b: b.voters(1).voters(1, canonical=False, source="bootstrap"),
    ),
    "KB009": (several_histories, lambda b: b.three_nodes()),
    "KV013": (kv013(3999), kv013(4000)),
    "KV014": (kv013(3999), kv013(4000)),
    "KV017": (static_voters((1,), (1, 2, 3)), static_voters((1, 2, 3), (1, 2, 3))),
    "KV018": (
        lambda b: b.three_nodes().capture(4, 40, directory_id=directory(3)),
        lambda b: b.three_nodes().capture(4, 40),
    ),
    "KV015": (kv015(()), kv015((3,))),
    "KB008": (
        lambda b: b.three_nodes().controller(1, features=supports(33)).controller(9, features=supports(30)),
        lambda b: b.three_nodes().controller(9, features=supports(30)).controller(9, at=20, exists=False),
    ),
    "KB011": (started(1, 1, 1), started(1, 2, 3)),
    "KV601": (
        kip642((10, (1, 2, 3, 4), [1, 2, 3, 4, 5]), (20, (1, 2, 3, 4), [1, 2, 4]), high=10),
        kip642((10, (1, 2, 3, 4), [1, 2, 3, 4, 5]), (20, (1, 2, 3, 4, 5), [1, 2, 3, 4, 5]), high=10),
    ),
    "KV602": (
        kip642((10, (1, 2, 4), [1, 2, 4]), high=40),
        kip642((10, (1, 2, 3, 4), [1, 2, 4]), high=40),
    ),
    "KV801": (
        kip856((10, (1, 2, 3, 4)), (12, (1, 2, 3, 4, 5)), low=8, high=10),
        kip856((10, (1, 2, 3, 4)), low=20, high=20),
    ),
    "KV802": (
        kip856((10, (1, 2, 3, 4)), (12, (1, 2, 3)), low=8, high=10),
        kip856((10, (1, 2, 3, 4)), (12, (1, 2, 4)), low=8, high=10),
    ),
    "KV803": (
        kip856((2, (1, 2, 3, 4)), low=8, high=10, data_at=5),
        kip856((6, (1, 2, 3, 4)), low=8, high=10, data_at=5),
    ),
}
