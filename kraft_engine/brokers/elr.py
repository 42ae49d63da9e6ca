"""One partition's next change: ISR, ELR, leader, as Kafka ships KIP-966 (PartitionChangeBuilder)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kraft_engine.brokers.partition import NO_LEADER, RECOVERING, Partition
from kraft_engine.invariants.switches import ALL_ON, Switches

PREFERRED, ONLINE, UNCLEAN = "PREFERRED", "ONLINE", "UNCLEAN"


# The last metadata.version that each release calls production-ready (MetadataVersion), newest first.
NEWEST_VERSIONS = (
    ((4, 4), 33), ((4, 3), 30), ((4, 2), 29), ((4, 1), 27), ((4, 0), 25), ((3, 9), 21), ((3, 8), 20), ((3, 7), 19),
    ((3, 6), 14), ((3, 5), 11), ((3, 4), 8), ((3, 3), 7),
)  # fmt: skip


class Release:
    """Which of the known bugs a release has (KAFKA-19522 and others), and which metadata.versions it supports."""

    __slots__ = (
        "dead_last_known_leader", "directories_wipe_elr", "elects_among_voters_only", "name", "newest_version",
        "old_last_known_elr", "oldest_version", "pre_vote", "truncation_rewinds_voters", "watermark_waits",
    )  # fmt: skip

    def __init__(self, name: str) -> None:
        self.name = name
        number = tuple(int(part) for part in name.split("."))
        self.dead_last_known_leader = number < (4, 1, 0)
        self.old_last_known_elr = number < (4, 1, 1)
        self.directories_wipe_elr = number <= (4, 2, 0)
        # For min ISR members (KAFKA-15583).
        self.watermark_waits = number >= (3, 7, 0)
        # Until KAFKA-16526, the first part of KIP-853 to be released.
        self.elects_among_voters_only = number < (3, 8)
        # KIP-996.
        self.pre_vote = number >= (4, 0, 0)
        self.truncation_rewinds_voters = number >= (4, 4, 0)
        self.oldest_version = 7 if number >= (4, 0, 0) else 1
        self.newest_version = next((level for first, level in NEWEST_VERSIONS if number >= first), 7)


LATEST = Release("4.3.1")


class ChangeBuilder:
    """Collects the changes of one partition, then builds the record for them."""

    __slots__ = (
        "adding",
        "directories",
        "elr_enabled",
        "isr",
        "metadata_version",
        "min_isr",
        "partition",
        "recovery",
        "release",
        "removing",
        "replicas",
        "switches",
        "unclean_recovery",
        "unclean_shutdown",
        "usable",
    )

    def __init__(
        self,
        partition: Partition,
        *,
        usable: Callable[[int], bool],
        min_isr: int,
        metadata_version: int,
        elr_enabled: bool,
        release: Release = LATEST,
        switches: Switches = ALL_ON,
        unclean_recovery: bool = False,
    ) -> None:
        self.partition = partition
        self.usable = usable
        self.min_isr = min_isr
        self.metadata_version = metadata_version
        self.elr_enabled = elr_enabled
        self.release = release
        self.switches = switches
        self.unclean_recovery = unclean_recovery
        self.isr = list(partition.isr)
        self.replicas = list(partition.replicas)
        self.removing = list(partition.removing)
        self.adding = list(partition.adding)
        self.recovery = partition.recovering
        self.directories: dict[int, bytes] = {}
        self.unclean_shutdown: frozenset[int] = frozenset()

    def build(self, election: str = ONLINE) -> dict[str, Any] | None:
        """A PartitionChangeRecord's fields, None where nothing would change."""
        partition = self.partition
        record: dict[str, Any] = {"partitionId": partition.index, "topicId": partition.topic_id}
        self._complete_reassignment()
        target_elr, target_last_known = self._target_elr()
        leader, is_unclean, from_elr = self._elect(election, target_elr)
        if leader != partition.leader:
            record["leader"] = leader
            if from_elr:
                if self.switches.elr_leader_is_the_isr:
                    self.isr = [leader]
                if self.switches.elr_leader_leaves_elr:
                    target_elr = [broker for broker in target_elr if broker != leader]
            if is_unclean:
                if self.switches.unclean_leader_is_the_isr:
                    record["isr"] = [leader]
                    self.isr = [leader]
                self.recovery = RECOVERING
        elif self._removes_replicas() and self.switches.removed_replica_bumps_leader_epoch:
            record["leader"] = partition.leader
        self._set_elr(record, target_elr, target_last_known, is_unclean=is_unclean)
        if "isr" not in record and (self.isr or self.elr_enabled) and self.isr != partition.isr:
            record["isr"] = self.isr
        shrunk = "isr" in record and len(set(partition.isr) - set(record["isr"])) > 0
        bumps = self.metadata_version < 12 and self.switches.shrink_bumps_leader_epoch_before_3_6
        if shrunk and "leader" not in record and bumps:
            record["leader"] = partition.leader
        self._set_last_known_leader(record)
        self._set_rest(record)
        return record if len(record) > 2 else None

    def _removes_replicas(self) -> bool:
        return any(replica not in self.replicas for replica in self.partition.replicas)

    def _complete_reassignment(self) -> None:
        if not self.removing and not self.adding:
            return
        isr = list(self.isr)
        if self.switches.completed_reassignment_leaves_isr:
            isr = [broker for broker in isr if broker not in self.removing]
        replicas = [broker for broker in self.replicas if broker not in self.removing]
        switches = self.switches
        if not isr:
            return
        if not set(self.adding) <= set(isr) and switches.reassignment_waits_for_adding:
            return
        fewer = len(self.adding) < len(self.removing)
        if fewer and not set(replicas) <= set(isr) and switches.reassignment_to_fewer_waits_for_isr:
            return
        self.isr, self.replicas, self.removing, self.adding = isr, replicas, [], []

    def _target_elr(self) -> tuple[list[int], list[int]]:
        partition = self.partition
        if not self.elr_enabled:
            return [], []
        if len(self.isr) >= self.min_isr and self.switches.elr_only_below_min_isr:
            return [], []
        leaving = partition.isr if self.switches.isr_leavers_join_elr else ()
        candidates = sorted({*partition.elr, *leaving})
        gone = self.unclean_shutdown if self.switches.unclean_shutdown_leaves_elr else frozenset()
        elr = [broker for broker in candidates if broker not in self.isr and broker not in gone]
        known = sorted({*candidates, *partition.last_known_elr})
        return elr, [broker for broker in known if broker not in self.isr and broker not in elr]

    def _elect(self, election: str, target_elr: list[int]) -> tuple[int, bool, bool]:
        """(leader, unclean, chosen from the ELR)."""
        partition = self.partition
        elr = target_elr if self.elr_enabled else partition.elr

        def valid(broker: int) -> bool:
            if not self.usable(broker):
                return False
            if not self.switches.election_prefers_isr:
                return True
            may_be_elr = not self.isr or not self.switches.elr_leads_only_without_isr
            return broker in self.isr or (may_be_elr and broker in elr)

        order = [broker for broker in self.replicas if valid(broker)]
        current = partition.leader
        if election == PREFERRED and self.replicas and valid(self.replicas[0]):
            return self._chosen(self.replicas[0], elr)
        if current != NO_LEADER and valid(current):
            return self._chosen(current, elr)
        if order:
            return self._chosen(order[0], elr)
        last_known = self._last_known_leader(elr)
        if last_known != NO_LEADER:
            return last_known, True, False
        if election == UNCLEAN or not self.switches.unclean_election_needs_permission:
            alive = [broker for broker in self.replicas if self.usable(broker)]
            if alive:
                return alive[0], True, False
        return NO_LEADER, False, False

    def _chosen(self, broker: int, elr: list[int]) -> tuple[int, bool, bool]:
        return broker, False, not self.isr and broker in elr

    def _last_known_leader(self, elr: list[int]) -> int:
        partition = self.partition
        if self.unclean_recovery or not self.elr_enabled or len(partition.last_known_elr) != 1:
            return NO_LEADER
        if (self.isr or elr) and self.switches.last_known_leader_is_last_resort:
            return NO_LEADER
        broker = partition.last_known_elr[0]
        if broker not in partition.replicas:
            # A reassignment took its replica away. Shipped Kafka throws here and the active controller resigns
            # (LeaderAcceptor asks PartitionRegistration.directory, 4.3.1); here the partition stays without a leader.
            return NO_LEADER
        checks = self.switches.last_known_leader_is_active and not self.release.dead_last_known_leader
        if checks and not self.usable(broker):
            return NO_LEADER
        return broker

    def _set_elr(self, record: dict[str, Any], elr: list[int], last_known: list[int], *, is_unclean: bool) -> None:
        if (is_unclean and self.switches.unclean_election_empties_elr) or not self.elr_enabled:
            elr = []
        if elr != self.partition.elr:
            record["eligibleLeaderReplicas"] = elr
        if self.unclean_recovery and self.elr_enabled and last_known != self.partition.last_known_elr:
            # The KIP's own LastKnownElr: what the ELR lost, until the ISR is whole enough.
            record["lastKnownElr"] = last_known

    def _set_last_known_leader(self, record: dict[str, Any]) -> None:
        partition = self.partition
        if not self.elr_enabled or self.unclean_recovery:
            return
        if self.release.old_last_known_elr:
            if record.get("isr") == [] and partition.last_known_elr != [partition.leader]:
                record["lastKnownElr"] = [partition.leader]
            elif record.get("leader", partition.leader) != NO_LEADER and partition.last_known_elr:
                record["lastKnownElr"] = []
        elif record.get("leader") == NO_LEADER and not partition.last_known_elr:
            is_right = self.switches.last_known_leader_is_the_last_leader
            record["lastKnownElr"] = [partition.leader if is_right else partition.replicas[-1]]
        elif (
            record.get("leader", NO_LEADER) >= 0
            and partition.last_known_elr
            and self.switches.elected_leader_clears_last_known
        ):
            record["lastKnownElr"] = []

    def _set_rest(self, record: dict[str, Any]) -> None:
        partition = self.partition
        if self.recovery != partition.recovering:
            record["leaderRecoveryState"] = self.recovery
        if self.replicas != partition.replicas:
            record["replicas"] = self.replicas
        if self.removing != partition.removing:
            record["removingReplicas"] = self.removing
        if self.adding != partition.adding:
            record["addingReplicas"] = self.adding
        if self.metadata_version >= 17 and self.switches.directories_follow_replicas:
            directories = [self.directories.get(broker, partition.directory_of(broker)) for broker in self.replicas]
            if directories != partition.directories:
                record["directories"] = directories
