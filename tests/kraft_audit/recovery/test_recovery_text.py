"""What whatif and recover-plan print."""

from __future__ import annotations

from kraft_audit.losses.replica_disks import ReplicaLog
from kraft_audit.recovery.crash_forecast import SmallestLoss, lose, smallest_loss
from kraft_audit.recovery.leaderless_partitions import recovery_plans
from kraft_audit.recovery.recovery_text import recovery_lines, smallest_line, whatif_lines
from kraft_audit.text.readable import when
from tests.builders.facts import facts, stands_before
from tests.builders.histories import T0, HistoryBuilder


def test_whatif(build: HistoryBuilder) -> None:
    build.three_nodes().feature("eligible.leader.replicas.version", 1).brokers(11, 12, 13)
    build.partition("t-0", 10, isr=[13], leader=13).partition("t-1", 11)
    history = build.history()
    head, unknown, loss, offline, under_min_isr, partition, smallest = whatif_lines(
        lose(history, [13, 99]), smallest_loss(history)
    )
    assert facts(head) == {"13", "99", "2"}
    assert facts(unknown) == {"99"}
    assert [facts(line) for line in (loss, offline)] == [{"1"}, {"1"}]
    assert facts(under_min_isr) == {"0", "1"}
    assert "acks=all" in under_min_isr
    before, after = partition.split("→")
    assert before.split()[0] == "t-0"
    assert facts(before) == {"t-0", "[13]", "[]"}
    assert facts(after) == {"[]", "[13]", "-1"}
    assert facts(smallest) == {"13", "1", "t-0"}


def test_whatif_says_what_is_so_already(build: HistoryBuilder) -> None:
    build.three_nodes().feature("eligible.leader.replicas.version", 1).broker(11).broker(12, fenced=True)
    build.broker(13, fenced=True)
    build.partition("t-0", 10, isr=[], elr=[12, 13], leader=-1).partition("t-1", 11, isr=[11], elr=[13], leader=11)
    build.partition("t-2", 12, isr=[11, 12], leader=11).partition("t-3", 13, isr=[], leader=-1, exists=False)
    found = lose(build.history(), [11, 13])
    assert (found.fenced_brokers, found.already_offline_count, found.already_under_min_isr_count) == ((13,), 1, 2)
    head, fenced, loss, offline, under_min_isr, *_ = whatif_lines(found, smallest_loss(build.history()))
    assert facts(head) == {"11", "13", "3"}
    assert facts(fenced) == {"13"}
    assert facts(loss) == {"1"}
    assert stands_before(offline, "2", "1"), "by the crash, then already"
    assert facts(offline) == {"1", "2"}
    assert stands_before(under_min_isr, "1", "2")
    assert facts(under_min_isr) == {"1", "2"}


def test_the_smallest_crash_of_several() -> None:
    assert facts(smallest_line(SmallestLoss((1, 2), 4, "t-0"))) == {"1", "2", "4", "t-0"}
    assert facts(smallest_line(SmallestLoss(None, 0, None))) == set()


def test_recovery(build: HistoryBuilder) -> None:
    build.three_nodes().feature("eligible.leader.replicas.version", 1).brokers(12)
    build.partition("t-0", 20, isr=[], leader=-1, last_known_elr=[12])
    logs = {("t", 0): (ReplicaLog(12, 80, 3, high_watermark=90),)}
    head, empty, partition, kafka, captured = recovery_lines(recovery_plans(build.history(), logs))
    assert facts(head) == {"1"}
    assert empty == ""
    assert partition.split()[0] == "t-0"
    assert when(T0 + 20_000) in partition
    assert facts(partition) == {"t-0", "[]", "[12]", "[11 12 13]", *facts(when(T0 + 20_000))}
    assert kafka.split()[0] == "Kafka"
    assert facts(kafka) == {"12", "10"}
    assert "last known leader" in kafka
    assert captured.split()[0] == "captured"
    assert facts(captured) == {"12", "80", "3", "90"}


def test_nothing_to_recover(build: HistoryBuilder) -> None:
    (line,) = recovery_lines(recovery_plans(build.history()))
    assert facts(line) == set()
