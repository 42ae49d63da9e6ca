"""What whatif and recover-plan print."""

from __future__ import annotations

from kraft_audit.rules.plan_lines import recovery_lines, smallest_line, whatif_lines
from kraft_audit.rules.recovery import ReplicaLog, recover_plan
from kraft_audit.rules.whatif import SmallestLoss, lose, smallest_loss
from kraft_audit.times import when
from tests.kraft_audit.rules.conftest import T0, HistoryBuilder


def test_whatif(build: HistoryBuilder) -> None:
    build.three_nodes().feature("eligible.leader.replicas.version", 1).brokers(11, 12, 13)
    build.partition("t-0", 10, isr=[13], leader=13).partition("t-1", 11)
    history = build.history()
    assert list(whatif_lines(lose(history, [13, 99]), smallest_loss(history))) == [
        "if brokers 13 99 crashed uncleanly now, of 2 partitions",
        "  not registered: 99",
        "  1 lose acknowledged records unless the disks come back whole",
        "  1 go offline",
        "  0 fall under min ISR, 1 more is already: acks=all producers are refused",
        "    t-0   loses data, offline   ISR [13]  ELR [] → ISR []  ELR [13], leader -1",
        "the smallest crash that loses data: broker 13 (1 partition, such as t-0)",
    ]


def test_whatif_tells_what_is_so_already(build: HistoryBuilder) -> None:
    build.three_nodes().feature("eligible.leader.replicas.version", 1).broker(11).broker(12, fenced=True)
    build.broker(13, fenced=True)
    build.partition("t-0", 10, isr=[], elr=[12, 13], leader=-1).partition("t-1", 11, isr=[11], elr=[13], leader=11)
    build.partition("t-2", 12, isr=[11, 12], leader=11).partition("t-3", 13, isr=[], leader=-1, exists=False)
    found = lose(build.history(), [11, 13])
    assert (found.fenced_brokers, found.already_offline_count, found.already_under_min_isr_count) == ((13,), 1, 2)
    assert list(whatif_lines(found, smallest_loss(build.history())))[:5] == [
        "if brokers 11 13 crashed uncleanly now, of 3 partitions",
        "  13 is fenced already",
        "  1 lose acknowledged records unless the disks come back whole",
        "  2 go offline, 1 more is already",
        "  1 fall under min ISR, 2 more are already: acks=all producers are refused",
    ]


def test_the_smallest_crash_of_several() -> None:
    assert smallest_line(SmallestLoss((1, 2), 4, "t-0")).startswith("the smallest crash that loses data: brokers 1 2")
    assert smallest_line(SmallestLoss(None, 0, None)) == "no partition holds acknowledged records"


def test_recovery(build: HistoryBuilder) -> None:
    build.three_nodes().feature("eligible.leader.replicas.version", 1).brokers(12)
    build.partition("t-0", 20, isr=[], leader=-1, last_known_elr=[12])
    logs = {("t", 0): (ReplicaLog(12, 80, 3, high_watermark=90),)}
    assert list(recovery_lines(recover_plan(build.history(), logs))) == [
        "1 partition without a leader; this is a plan, nothing is changed",
        "",
        "t-0   ISR []  ELR []  last known [12]  of replicas [11 12 13], "
        f"since {when(T0 + 20_000)}, unclean election off",
        "  Kafka      elects broker 12, the last known leader, though it came back uncleanly; "
        "loses 10 records that consumers may have read",
        "  Balanced   elects broker 12, the only replica that is up; loses 10 records that consumers may have read",
        "  Aggressive elects broker 12, the only replica that is up; loses 10 records that consumers may have read",
        "  captured   broker 12: its log ends at offset 80, in leader epoch 3, consumers could read up to offset 90, "
        "perhaps more",
    ]


def test_nothing_to_recover(build: HistoryBuilder) -> None:
    assert list(recovery_lines(recover_plan(build.history()))) == ["every partition has a leader"]
