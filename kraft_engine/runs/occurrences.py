"""Which kinds of event occur in random runs, and which must: runs prove nothing about an event that never occurs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from kraft_engine.brokers.image import METADATA_VERSION
from kraft_engine.consensus.raft import ROLE_NAMES
from kraft_engine.drafts import Kip642CancelRun, Kip642Run, Kip856Run
from kraft_engine.runs.kafka_run import KafkaRun
from kraft_engine.runs.schedule import RandomRun
from kraft_engine.runs.storms import ElectionStorm
from kraft_engine.runs.upgrades import UpgradeRun
from kraft_engine.runs.wide_run import WIDE_RUN_LEVELS, WideBeyondRun, WideRun
from kraft_engine.world.faults import DAMAGES, WITHIN_MODEL

EVENT_COUNT = 5_000
SCOPES = {2: "topic", 4: "broker", 16: "client metrics", 32: "group"}
RECORDS = {
    "AbortTransactionRecord": 1, "AccessControlEntryRecord": 1, "BeginTransactionRecord": 1,
    "BrokerRegistrationChangeRecord": 3, "ClearElrRecord": 1, "ClientQuotaRecord": 1, "ConfigRecord": 1,
    "DelegationTokenRecord": 1, "EndTransactionRecord": 1, "FeatureLevelRecord": 1, "FenceBrokerRecord": 1,
    "NoOpRecord": 1, "PartitionChangeRecord": 3, "PartitionRecord": 3, "ProducerIdsRecord": 1,
    "RegisterBrokerRecord": 5, "RegisterControllerRecord": 1, "RemoveAccessControlEntryRecord": 1,
    "RemoveDelegationTokenRecord": 1, "RemoveTopicRecord": 1, "RemoveUserScramCredentialRecord": 1, "TopicRecord": 1,
    "UnfenceBrokerRecord": 1, "UnregisterBrokerRecord": 1, "UnregisterControllerRecord": 1,
    "UserScramCredentialRecord": 1, "LEADER_CHANGE": 2, "KRAFT_VERSION": 1, "KRAFT_VOTERS": 1, "ADD_VOTER": 1,
    "REMOVE_VOTER": 1, "VOTER_ASSIGNMENT": 1,
}  # fmt: skip
"""How many versions of each record the engine writes. ZkMigrationStateRecord belongs to migrations, which only the
scenario `every-record-type` has."""
EXPECTED = (
    *ROLE_NAMES,
    *(f"fault: {name}" for name in sorted(set(WITHIN_MODEL))),
    *(f"damage: {name}" for name in DAMAGES),
    *(f"record: {name} v{version}" for name, count in sorted(RECORDS.items()) for version in range(count)),
    *(f"config: {scope}" for scope in (*SCOPES.values(), "cluster")),
    *(f"metadata.version {level}" for level in WIDE_RUN_LEVELS),
    *(f"election: {kind}" for kind in (
        "from the ISR", "from the ELR", "last known leader", "unclean", "preferred", "no replica is left",
    )),
    *(f"reassignment: {step}" for step in ("completed", "cancelled")),
    *(f"broker: {end}" for end in ("controlled shutdown", "power cut", "killed", "log dir offline")),
    *(f"VoterChangeResponse: {error}" for error in (
        "done", "REQUEST_TIMED_OUT", "DUPLICATE_VOTER", "VOTER_NOT_FOUND", "UNSUPPORTED_VERSION", "INVALID_REQUEST",
    )),
    "ReassignResponse: done", "assignment: finished", "assignment: cancelled",
    "fault: disk replaced", "log truncated", "snapshot made", "snapshot installed", "log cleaned", "auto join",
    "recovered", "transaction: aborted at failover",
)  # fmt: skip
RUN_CLASSES: tuple[type[RandomRun] | type[KafkaRun], ...] = (
    RandomRun, KafkaRun, WideRun, WideBeyondRun, ElectionStorm, UpgradeRun, Kip856Run, Kip642Run, Kip642CancelRun,
)  # fmt: skip


def occurrences(run: RandomRun | KafkaRun) -> Counter[str]:
    """How often each kind occurred in a run that has been run."""
    counts = Counter(run.invariants.seen)
    counts.update(run.cluster.answers)
    wanted: list[int] | None = None
    for batch in run.invariants.ledger.batches:
        for name, version, fields in batch.records:
            counts[f"record: {name} v{version}"] += 1
            if name == "ConfigRecord":
                is_cluster = fields["resourceType"] == 4 and not fields["resourceName"]
                counts[f"config: {'cluster' if is_cluster else SCOPES[fields['resourceType']]}"] += 1
            elif name == "FeatureLevelRecord" and fields["name"] == METADATA_VERSION:
                counts[f"metadata.version {fields['featureLevel']}"] += 1
            elif name == "AbortTransactionRecord" and fields["reason"] == "Controller failover":
                counts["transaction: aborted at failover"] += 1
            elif name == "VOTER_ASSIGNMENT":
                target = fields["targetVoters"]
                ids = [voter["voterId"] for voter in fields["currentVoters"]]
                if wanted is not None and target is None:
                    counts[f"assignment: {'finished' if ids == wanted else 'cancelled'}"] += 1
                wanted = None if target is None else [voter["voterId"] for voter in target]
    return counts


def observe(seeds: int, *, until: Collection[str] = ()) -> Counter[str]:
    """What occurs in so many seeds of every kind of run, beyond Raft's model in every fifth; ends once `until` did."""
    counts: Counter[str] = Counter()
    for seed in range(seeds):
        for kind in RUN_CLASSES:
            run = RandomRun(seed, beyond_model=True) if kind is RandomRun and seed % 5 == 4 else kind(seed)
            run.run(EVENT_COUNT * (2 if issubclass(kind, WideRun) else 1))
            counts += occurrences(run)
        if until and all(counts[kind] for kind in until):
            break
    return counts
