"""What was read of brokers' disks that later judgements need: those disks may not be captured again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from kraft_audit.losses.replica_disks import ReplicaLog, ReplicaLogs
from kraft_audit.rules.cluster_history import ClusterHistory, ReadDisks
from kraft_audit.rules.columns.loss_holders import Grade, losses
from kraft_audit.rules.columns.loss_proofs import doubted_logs


def kept_logs(history: ClusterHistory) -> ReplicaLogs:
    """The logs of partitions whose loss disks may decide, without what newer readings of the same disk say, too."""
    first: dict[tuple[str, int], int] = {}
    for loss in losses(history):
        if loss.grade is not Grade.UNFLUSHED:
            place = loss.event.topic, loss.event.partition
            first[place] = min(loss.event.leader_epoch, first.get(place, loss.event.leader_epoch))
    logs = doubted_logs(history, first)
    return {place: tuple(_needed(logs[place], epoch)) for place, epoch in first.items() if place in logs}


def _needed(logs: Iterable[ReplicaLog], first_epoch: int) -> Iterator[ReplicaLog]:
    """The newest reading of each disk, and each that shows what it held before it followed the elected leader."""
    newest: dict[tuple[int, str | None], ReplicaLog] = {}
    before: dict[ReplicaLog, ReplicaLog] = {}
    for log in sorted(logs, key=lambda each: each.order):
        newest[log.broker_id, log.directory_id] = log
        if not any(epoch >= first_epoch for epoch, _ in log.epochs):
            before[replace(log, capture_number=0, read_not_before_ms=None, path="")] = log
    yield from dict.fromkeys([*before.values(), *newest.values()])


def with_earlier_logs(read_disks: ReadDisks, earlier: ReplicaLogs, first: int) -> ReadDisks:
    """Reads brokers' disks with what was read of them before; a plan's captures are numbered from `first` on."""

    def read(wanted: Collection[tuple[str, int]], times_ms: Mapping[int, int]) -> ReplicaLogs:
        new = read_disks(wanted, {number - first: time_ms for number, time_ms in times_ms.items() if number >= first})
        logs = {place: each for place, each in earlier.items() if place in wanted}
        for place, each in new.items():
            numbered = (replace(log, capture_number=log.capture_number + first) for log in each)
            logs[place] = (*logs.get(place, ()), *numbered)
        return logs

    return read
