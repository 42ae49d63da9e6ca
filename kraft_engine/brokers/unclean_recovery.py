"""Unclean recovery as KIP-966 describes it, which never shipped: the replica with the most data leads, not a random
one.

A dialect of the controller: LastKnownElr then holds the members that the ELR lost to unclean shutdowns, and a
leaderless partition is recovered by asking its replicas for their logs (GetReplicaLogInfo).
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

from kraft_engine.brokers.broker_messages import GetReplicaLogInfoRequest, GetReplicaLogInfoResponse
from kraft_engine.brokers.image import BROKER, TOPIC
from kraft_engine.brokers.partition import NO_LEADER, RECOVERING, Partition
from kraft_engine.brokers.replicas import TopicPartition
from kraft_engine.world.world import MS

if TYPE_CHECKING:
    from kraft_engine.brokers.controller import Controller

TIMEOUT_US = 5_000 * MS


class Strategy(enum.StrEnum):
    """unclean.recovery.strategy."""

    AGGRESSIVE = "Aggressive"
    BALANCED = "Balanced"
    NONE = "None"


CONFIGS: tuple[tuple[str, dict[str, Strategy]], ...] = (
    ("unclean.recovery.strategy", {str(strategy): strategy for strategy in Strategy}),
    ("unclean.leader.election.enable", {"true": Strategy.AGGRESSIVE, "false": Strategy.BALANCED}),
)


class Recovery:
    """One partition's recovery under way."""

    __slots__ = ("answers", "deadline_us", "leader_epoch", "strategy")

    def __init__(self, strategy: Strategy, leader_epoch: int, deadline_us: int) -> None:
        self.strategy = strategy
        self.leader_epoch = leader_epoch
        self.deadline_us = deadline_us
        self.answers: dict[int, GetReplicaLogInfoResponse] = {}


class RecoveryManager:
    """The controller's unclean recovery manager. Its state is not in the log: a failover starts over."""

    def __init__(self, strategy: Strategy) -> None:
        self.strategy = strategy
        self.under_way: dict[TopicPartition, Recovery] = {}
        self.controller: Controller | None = None

    def check(self, controller: Controller) -> None:
        """Starts recoveries that are due and ends those that can end; the active controller calls it periodically."""
        if controller is not self.controller:
            self.controller = controller
            self.under_way.clear()
        for partition in controller.image.all_partitions():
            key = (partition.topic_id, partition.index)
            if partition.leader != NO_LEADER:
                self.under_way.pop(key, None)
            elif key in self.under_way and self.under_way[key].leader_epoch == partition.leader_epoch:
                self._finish(controller, key, partition)
            elif key in self.under_way:
                # Answers of another leader epoch are stale: ask every replica again.
                self.start(controller, partition, self.under_way[key].strategy)
            elif self.should_recover(controller, partition):
                self.start(controller, partition, self.strategy_of(controller, partition))

    def should_recover(self, controller: Controller, partition: Partition) -> bool:
        """The decision order of the KIP, from "if there are fenced ELR members" on."""
        strategy = self.strategy_of(controller, partition)
        if strategy is Strategy.NONE:
            return False
        if strategy is Strategy.AGGRESSIVE:
            return True
        if partition.elr:
            return False
        known = partition.last_known_elr
        return bool(known) and all(controller.image.is_active(broker) for broker in known)

    def strategy_of(self, controller: Controller, partition: Partition) -> Strategy:
        """unclean.recovery.strategy of the topic or the cluster; unclean.leader.election.enable maps to one: true to
        Aggressive, false to Balanced; else the manager's own.
        """
        image = controller.image
        places = ((TOPIC, image.topics[partition.topic_id]), (BROKER, ""))
        for name, meanings in CONFIGS:
            for kind, resource in places:
                value = image.configs.get((kind, resource, name))
                if value in meanings:
                    return meanings[value]
        return self.strategy

    def elect(self, controller: Controller, partition: Partition, election: str, desired: int = NO_LEADER) -> str:
        """ElectLeaders as an operator asks for it: LONGEST_LOG_AGGRESSIVE, LONGEST_LOG_BALANCED, or DESIGNATION of
        `desired`. Only for a partition without a leader.
        """
        if partition.leader != NO_LEADER:
            return "ELECTION_NOT_NEEDED"
        if election == "DESIGNATION":
            if desired not in partition.replicas or not controller.image.is_active(desired):
                return "ELIGIBLE_LEADERS_NOT_AVAILABLE"
            self.under_way.pop((partition.topic_id, partition.index), None)
            self.designate(controller, partition, desired)
            return ""
        is_aggressive = election == "LONGEST_LOG_AGGRESSIVE"
        self.start(controller, partition, Strategy.AGGRESSIVE if is_aggressive else Strategy.BALANCED)
        return ""

    def start(self, controller: Controller, partition: Partition, strategy: Strategy) -> None:
        """Asks every live replica for its log."""
        key = (partition.topic_id, partition.index)
        node = controller.node
        self.under_way[key] = Recovery(strategy, partition.leader_epoch, node.world.now_us + TIMEOUT_US)
        self._ask(controller, key, partition)

    def _ask(self, controller: Controller, key: TopicPartition, partition: Partition) -> None:
        node = controller.node
        answers = self.under_way[key].answers
        for broker in partition.replicas:
            if broker not in answers and controller.image.is_active(broker):
                slot = node.addresses.slot_of(broker)
                node.network.send(node.slot, slot, 1, GetReplicaLogInfoRequest(broker, key, partition.leader_epoch))

    def answered(self, response: GetReplicaLogInfoResponse) -> None:
        recovery = self.under_way.get(response.key)
        if recovery is not None and response.current_leader_epoch == recovery.leader_epoch:
            recovery.answers[response.broker_id] = response

    def _finish(self, controller: Controller, key: TopicPartition, partition: Partition) -> None:
        """Elects when the strategy has what it waits for: the highest epoch, then the longest log."""
        recovery = self.under_way[key]
        valid = [
            answer for answer in recovery.answers.values()
            if controller.image.is_active(answer.broker_id)
            and controller.image.brokers[answer.broker_id]["brokerEpoch"] == answer.broker_epoch
        ]  # fmt: skip
        late = controller.node.world.now_us >= recovery.deadline_us
        answered = {answer.broker_id for answer in valid}
        if recovery.strategy is Strategy.BALANCED:
            everyone = answered >= set(partition.replicas)
            ready = answered >= set(partition.last_known_elr) and (late or everyone)
        else:
            ready = bool(valid) and (late or answered >= set(partition.replicas))
        if not ready:
            self._ask(controller, key, partition)
            return
        best = max(valid, key=lambda answer: (answer.last_written_epoch, answer.log_end_offset, -answer.broker_id))
        del self.under_way[key]
        self.designate(controller, partition, best.broker_id)

    @staticmethod
    def designate(controller: Controller, partition: Partition, broker_id: int) -> None:
        """ElectLeaders with a designated leader: it leads alone, recovering, and ELR and LastKnownElr are emptied."""
        fields: dict[str, Any] = {
            "partitionId": partition.index,
            "topicId": partition.topic_id,
            "leader": broker_id,
            "isr": [broker_id],
            "leaderRecoveryState": RECOVERING,
        }
        if partition.elr:
            fields["eligibleLeaderReplicas"] = []
        if partition.last_known_elr:
            fields["lastKnownElr"] = []
        controller.write([controller.change(fields)])
