"""Brokers start as a procedure says: all at once, or in an order, each once the one before is there."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from tests.drills.kafka_node import KafkaNode
from tests.drills.printed_procedure import PrintedStep
from tests.drills.real_cluster import RealCluster

ALL_BUT: Final = re.compile(r"Start all brokers but ([0-9 ,and]+)[. ]")
ORDER: Final = re.compile(r"before is unfenced: ([0-9]+(?:, then [0-9]+)*)")


def start_brokers(cluster: RealCluster, step: PrintedStep, run: Callable[[str], object]) -> None:
    """Starts those that the step names, and waits for them and for what the cluster knew at the cut."""
    assert not step.settings
    last, order = ALL_BUT.search(step.text), ORDER.search(step.text)
    ids = set(cluster.brokers) - set(map(int, re.findall(r"[0-9]+", last[1]) if last is not None else ()))
    first = [int(broker) for broker in order[1].split(", then ")] if order is not None else []
    assert set(first) <= ids
    for broker in first:
        _start(cluster, cluster.brokers[broker], step)
        cluster.wait_for_brokers([broker], are_leading=False)
        for command in step.commands:
            run(command)
    for broker in sorted(ids - {*first}):
        _start(cluster, cluster.brokers[broker], step)
    cluster.wait_for_brokers(ids, are_leading=not cluster.drill.combined)
    cluster.wait_for_state(cluster.truth)


def _start(cluster: RealCluster, broker: KafkaNode, step: PrintedStep) -> None:
    """Starts it, or restarts it where it may run, unless it is in the process of the rescued controller."""
    if broker is cluster.rescued:
        return
    if broker.is_running:
        assert "restart one by one those that still run" in step.text
        broker.stop()
    broker.start()
    if cluster.drill.runs_on:
        cluster.wait_for_brokers([broker.node_id], are_leading=False)
