"""What raises each rule about the quorum and the log, and its near miss: the smallest history of each."""

from __future__ import annotations

from typing import Any

from kraft_audit.capture.altered_batches import AlteredBatches
from kraft_audit.capture.plan import ReplicaPlan
from kraft_audit.rules.cluster_history import SnapshotCheck
from tests.builders.histories import CLUSTER_ID, T0, HistoryBuilder, Story, directory


def damage(reason: str, **more: Any) -> Story:
    return lambda b: b.three_nodes().damage(2, reason, **more)


def healthy(b: HistoryBuilder) -> None:
    b.three_nodes()


def divergent(b: HistoryBuilder) -> None:
    """Node 1 led epoch 1 and wrote [30, 40) alone; 2 and 3 went on in epoch 2."""
    b.voters(1, 2, 3).leader_epoch(1, 1, 0).leader_epoch(2, 2, 30)
    b.log(1, 2, 3, to=30).batch(1, 30, 39, 1).batch(2, 30, 39, 2).batch(3, 30, 39, 2)
    b.capture(1, 40, leader_id=1).capture(2, 40, epoch=2, leader_id=2).capture(3, 40, epoch=2)
    b.watermark(40, 40, end=40, epoch=2)


def behind(b: HistoryBuilder) -> None:
    b.voters(1, 2, 3).leader_epoch(1, 1, 0).log(1, 2, to=40).log(3, to=20)
    b.capture(1, 40).capture(2, 40).capture(3, 20).watermark(40, 40, end=40)


def low_of_other_epoch(epoch: int) -> Story:
    """Offset 29 was committed in `epoch` by an earlier capture; the canonical log has epoch 1 there."""
    return lambda b: b.three_nodes().watermark(30, 30, end=30, when=-90_000, epoch=epoch)


def of_epoch(number: int = 2, **more: Any) -> Story:
    """Three nodes whose records from offset 20 on are of an epoch."""

    def story(b: HistoryBuilder) -> None:
        b.three_nodes().leader_epoch(number, 2, 20, **more)
        for row in b.rows["batches"]:
            if row["base_offset"] >= 20:
                row["leader_epoch"] = number

    return story


def votes(*votes: tuple[int, int]) -> Story:
    """(epoch, voted id) in successive captures of node 1."""

    def story(b: HistoryBuilder) -> None:
        for number, (epoch, voted_id) in enumerate(votes):
            b.capture(1, 40, when=number * 60_000, epoch=epoch, voted_id=voted_id)

    return story


def lows(later_high: int) -> Story:
    return lambda b: b.watermark(40, 40, end=40).watermark(20, later_high, end=40, when=60_000)


def storm(seconds: int) -> Story:
    def story(b: HistoryBuilder) -> None:
        for epoch in range(1, 15):
            b.leader_epoch(epoch, 1, epoch * 10, timestamp_ms=T0 + epoch * seconds * 1000)

    return story


def transaction(*types: str) -> Story:
    def story(b: HistoryBuilder) -> None:
        b.three_nodes()
        for number, type_ in enumerate(types):
            record = '{"name":"Bootstrap records"}' if type_.startswith("BEGIN") else "{}"
            b.add("records", source="log", offset=2 + number, leader_epoch=1, record_type=type_, record=record)

    return story


def snapshot(end: int, **more: Any) -> Story:
    def story(b: HistoryBuilder) -> None:
        b.voters(1, 2, 3).log(1, to=40).capture(1, 40, snapshot_end_offset=end, snapshot_epoch=1, **more)
        b.watermark(40, 40, end=40).watermark(40, 40, end=40, capture_number=1)

    return story


def altered(count: int) -> Story:
    """`count` of three nodes hold other bytes at offset 30."""

    def story(b: HistoryBuilder) -> None:
        b.three_nodes(40)
        versions = (_disks(1, 2, 3)[count:], _disks(1, 2, 3)[:count])
        runs = (AlteredBatches(30, 31, 1, versions, False, True),)
        b.altered = runs if count else ()

    return story


def _disks(*node_ids: int) -> tuple[ReplicaPlan, ...]:
    return tuple(
        ReplicaPlan("logs", f"node-{node_id}", "", 0, T0, CLUSTER_ID, node_id, directory(node_id), ())
        for node_id in node_ids
    )


def went_back(later_end: int, generation: int = 0) -> Story:
    def story(b: HistoryBuilder) -> None:
        b.three_nodes(40)
        b.capture(1, later_end, when=60_000, path="later/node-1", directory_id=directory(1, generation))

    return story


def emptied(epoch: int) -> Story:
    """Node 3 led epoch 1 for forty seconds; its log is empty, and its quorum-state names `epoch`."""

    def story(b: HistoryBuilder) -> None:
        b.voters(1, 2, 3).leader_epoch(1, 3, 0, to_offset=40, granting_voters=[2, 3]).log(1, 2, to=40)
        b.watermark(40, 40, end=40).capture(1, 40).capture(2, 40)
        b.capture(3, 0, epoch=epoch, last_epoch=None, voted_id=3 if epoch == 1 else -1)

    return story


def checkpoint(*entries: tuple[int, int]) -> Story:
    def story(b: HistoryBuilder) -> None:
        b.log(1, to=20).batch(1, 20, 29, 2).watermark(30, 30, end=30, epoch=2)
        reported = [{"epoch": epoch, "start_offset": offset} for epoch, offset in entries]
        b.capture(1, 30, epoch=2, leader_epoch_checkpoint=reported)

    return story


def producer_state(offset: int, **more: Any) -> Story:
    """A log that ends at offset 30, and a `.snapshot` named after this one."""

    def story(b: HistoryBuilder) -> None:
        b.log(1, to=30).watermark(30, 30, end=30).capture(1, 30, producer_state_offset=offset, **more)

    return story


def state_check(*differences: str) -> Story:
    def story(b: HistoryBuilder) -> None:
        b.three_nodes()
        b.snapshot_checks = (SnapshotCheck(30, 1, differences),)

    return story


def running(minutes: int, *, off_after: int = 0) -> Story:
    """A batch a minute by nodes of 4.3, without a snapshot; the first `off_after` minutes before a week without any."""

    def story(b: HistoryBuilder) -> None:
        supported = {"name": "metadata.version", "min_supported_version": 7, "max_supported_version": 30}
        b.voters(1, 2, 3).controller(1, features=[supported])
        for minute in range(minutes):
            time_ms = T0 + 60_000 * minute + (7 * 86_400_000 if off_after and minute >= off_after else 0)
            b.batch(1, minute, minute, max_timestamp_ms=time_ms, base_timestamp_ms=time_ms)
        b.capture(1, minutes, last_timestamp_ms=time_ms).watermark(minutes, minutes, end=minutes)

    return story


def leaderless(b: HistoryBuilder) -> None:
    """Voters 1, 2 and 3 persisted epoch 2, of which no disk names a leader."""
    b.voters(1, 2, 3).leader_epoch(1, 1, 0).log(1, 2, 3, to=40).watermark(40, 40, end=40).brokers(11)
    for node_id in (1, 2, 3):
        b.capture(node_id, 40, epoch=2, last_epoch=1, voted_id=node_id)


def alone(b: HistoryBuilder) -> None:
    """Voters 1 and 2 name node 1 as the leader of epoch 1, voter 3 stands in epoch 7."""
    b.voters(1, 2, 3).leader_epoch(1, 1, 0).log(1, 2, 3, to=40).watermark(40, 40, end=40).brokers(11)
    for node_id in (1, 2):
        b.capture(node_id, 40, leader_id=1)
    b.capture(3, 40, epoch=7, last_epoch=1, voted_id=3)


def joined(b: HistoryBuilder) -> None:
    """The same, but a disk holds a record of the later epoch: the others' copies are older."""
    alone(b)
    b.leader_epoch(7, 3, 40).batch(3, 40, 49, 7)
    b.rows["captures"][-1].update(log_end_offset=50, last_epoch=7)


def stopped_in_order(b: HistoryBuilder) -> None:
    leaderless(b)
    b.broker(11, 39, in_controlled_shutdown=True)


def stalled(second_end: int) -> Story:
    """Two rounds: node 1 leads and wrote [20, 40) before the first; in the second, 2 and 3 end at `second_end`."""

    def story(b: HistoryBuilder) -> None:
        b.voters(1, 2, 3).leader_epoch(1, 1, 0, ended_by="open").log(1, to=60).log(2, 3, to=second_end).brokers(11)
        b.watermark(20, 20, end=40).watermark(second_end, second_end, end=60, when=60_000, capture_number=1)
        for node_id, end in ((1, 40), (2, 20), (3, 20)):
            b.capture(node_id, end, leader_id=1)
        for node_id, end in ((1, 60), (2, second_end), (3, second_end)):
            b.capture(node_id, end, when=60_000, capture_number=1, leader_id=1)

    return story


def gone(*node_ids: int) -> Story:
    def story(b: HistoryBuilder) -> None:
        b.three_nodes()
        b.gone = frozenset(node_ids)

    return story


LOG_STORIES: dict[str, tuple[Story, Story]] = {
    "KQ001": (divergent, behind),
    "KQ002": (low_of_other_epoch(2), low_of_other_epoch(1)),
    "KQ003": (of_epoch(1), of_epoch(2)),
    "KQ004": (damage("EPOCH_WENT_BACK"), healthy),
    "KQ005": (of_epoch(leader_change_offset=None), of_epoch()),
    "KQ006": (of_epoch(granting_voters=[2]), of_epoch(granting_voters=[2, 3])),
    "KQ023": (leaderless, stopped_in_order),
    "KQ024": (stalled(20), stalled(60)),
    "KQ025": (gone(1, 2), gone(1)),
    "KQ026": (alone, joined),
    "KQ007": (damage("GAP"), damage("TORN_TAIL")),
    "KQ008": (damage("BAD_CRC"), damage("BAD_CRC", file_name="__cluster_metadata-0/0-0.checkpoint")),
    "KQ009": (damage("ZERO_TAIL"), damage("BAD_CRC")),
    "KQ010": (
        lambda b: b.three_nodes().capture(9, 10, accepted=False, meta_cluster_id="other-cluster-id-22-ch"),
        lambda b: b.three_nodes().capture(9, 10, meta_cluster_id=CLUSTER_ID),
    ),
    "KQ011": (state_check("topic t: 2 partitions, replayed 3"), state_check()),
    "KQ012": (snapshot(45), snapshot(40)),
    "KQ013": (checkpoint((1, 0), (2, 25)), checkpoint((1, 0), (2, 20), (3, 30))),
    "KQ014": (votes((2, 2), (2, 3)), votes((2, 2), (2, -1), (3, 3))),
    "KQ015": (lows(30), lows(40)),
    "KQ016": (storm(60), storm(600)),
    "KQ017": (
        transaction("BEGIN_TRANSACTION_RECORD"),
        transaction("BEGIN_TRANSACTION_RECORD", "END_TRANSACTION_RECORD"),
    ),
    "KQ018": (damage("UNKNOWN_RECORD_TYPE"), damage("BAD_RECORD")),
    "KQ019": (running(25 * 60), running(25 * 60, off_after=12 * 60)),
    "KQ022": (altered(2), altered(0)),
    "KQ020": (went_back(10), went_back(10, generation=1)),
    "KQ021": (emptied(2), emptied(1)),
}
