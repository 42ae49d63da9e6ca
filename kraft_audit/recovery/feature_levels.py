"""The level of every feature, the level it would get with a release, who blocks that, and what a downgrade would drop.

Kafka's active controller decides it by registrations alone (FeatureControlManager.reasonNotSupported, 3.9 to 4.4): each
broker that is registered, fenced or not, and from metadata.version 3.7-IV0 on each controller, has to support the new
level of each feature that changes. All changes are made together, or none. A migration from ZooKeeper, which Kafka 3.4
to 3.9 could do, has to be finished first.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import pyarrow as pa

from kraft_audit.capture.plan import Selection
from kraft_audit.rules.cluster_history import ClusterHistory, TableRow, feature_level
from kraft_audit.rules.columns.nodes import is_ghost_controller, registrations, supported_levels, supported_since
from kraft_audit.rules.columns.quorum_standing import QuorumStanding, quorum_standing
from kraft_audit.rules.columns.voter_sets import current_set, voter_ids
from kraft_audit.text.readable import and_more, listed, nouns
from kraft_codec.schemas.releases import (
    ELR_FEATURE,
    FEATURE_DEFAULTS,
    FIRST_LEVEL_THAT_UPGRADES_KRAFT_VERSION,
    FIRST_LEVEL_WITH_CONTROLLER_REGISTRATIONS,
    KRAFT_VERSION_FEATURE,
    METADATA_CHANGES,
    METADATA_VERSION_FEATURE,
    METADATA_VERSIONS,
    feature_default,
    version_text,
)

UNSUPPORTED: Final = (0, 0)
"""The levels of a feature that a registration does not name (QuorumFeatures.DISABLED)."""
NODES_NAMED: Final = 8
"""So many nodes are named in a sentence; the list of what blocks names them all."""
LOST_WITH_A_FEATURE: Final[Mapping[str, str]] = {
    ELR_FEATURE: "eligible leader replicas (KIP-966)",
    "group.version": "consumer groups of the new protocol (KIP-848)",
    "share.version": "share groups (KIP-932)",
    "streams.version": "streams groups (KIP-1071)",
    "transaction.version": "an epoch for each transaction (KIP-890)",
}


class UpgradeVerdict(enum.StrEnum):
    """The answer; the worst of several is the one that counts."""

    ALLOWED = "allowed"
    UNDECIDED = "undecided"
    BLOCKED = "blocked"

    @property
    def rank(self) -> int:
        return list(UpgradeVerdict).index(self)


class RegistrationState(enum.StrEnum):
    """What the log and the captured disks say of a registered node, or of a voter that is not registered."""

    ACTIVE = "active"
    SHUTTING_DOWN = "in controlled shutdown"
    FENCED = "fenced"
    VOTER = "voter"
    OBSERVER = "observer"
    GHOST = "ghost"
    NOT_REGISTERED = "not registered"


@dataclass(frozen=True, slots=True)
class Blocker:
    """A node whose registration does not support a level; `kind` is broker or controller.

    `since_offset` and `since_ms` are of the first registration that shows these levels; all four are None where a
    voter has none. `is_ghost`: it may be gone for good: a fenced broker, or a controller that is no voter and whose
    disk was not captured.
    """

    kind: str
    node_id: int
    lowest_level: int | None
    highest_level: int | None
    since_offset: int | None
    since_ms: int | None
    standing: RegistrationState

    @property
    def is_ghost(self) -> bool:
        return self.standing in (RegistrationState.FENCED, RegistrationState.GHOST)

    @property
    def name(self) -> str:
        return f"{self.kind} {self.node_id}"


@dataclass(frozen=True, slots=True)
class FeatureCheck:
    """One feature: its finalized level, the level of the release, the level it would get, and who blocks that.

    `release_level` is None for a feature that no release known here has. `drops` is what a downgrade loses.
    """

    name: str
    finalized_level: int
    release_level: int | None
    new_level: int
    verdict: UpgradeVerdict
    reason: str
    blockers: tuple[Blocker, ...] = ()
    drops: tuple[str, ...] = ()

    @property
    def is_changed(self) -> bool:
        return self.new_level != self.finalized_level


class FeatureLevels:
    """The levels that a cluster's features have and would get, and the registrations that decide it."""

    def __init__(self, history: ClusterHistory, release_level: int) -> None:
        self.history = history
        self.release_level = release_level
        self.metadata_version = feature_level(history, METADATA_VERSION_FEATURE)
        self.kraft_version = feature_level(history, KRAFT_VERSION_FEATURE) or 0
        self.is_downgrade = self.metadata_version is not None and release_level < self.metadata_version

    @cached_property
    def standing(self) -> QuorumStanding:
        return quorum_standing(self.history)

    @property
    def controllers_register(self) -> bool:
        """Whether controllers register at this metadata.version, and block what they do not support."""
        return (self.metadata_version or 0) >= FIRST_LEVEL_WITH_CONTROLLER_REGISTRATIONS

    def checks(self) -> Iterator[FeatureCheck]:
        """metadata.version first, then every feature that a release or a registration knows, by name."""
        named = {
            supported["name"] for rows in registrations(self.history).values() for supported in rows[-1]["features"]
        }
        finalized = {row["name"] for row in self.history.rows("feature_changes")}
        yield self._check(METADATA_VERSION_FEATURE)
        for name in sorted({*FEATURE_DEFAULTS, *named, *finalized} - {METADATA_VERSION_FEATURE}):
            yield self._check(name)

    def _check(self, name: str) -> FeatureCheck:
        finalized = feature_level(self.history, name) or 0
        release = self._release_level(name)
        new = self._new_level(name, finalized, release)
        if new == finalized:
            return FeatureCheck(name, finalized, release, new, UpgradeVerdict.ALLOWED, "nothing changes")
        blockers = tuple(self._blockers(name, new))
        drops = tuple(self._drops(name, finalized, new))
        refused = name == METADATA_VERSION_FEATURE and bool(drops)
        if blockers or refused:
            names = f"not supported by {node_names(blockers)}" if blockers else ""
            refusal = "Kafka refuses a downgrade that drops what the log may hold" if refused else ""
            reason = "; ".join(filter(None, (names, refusal)))
            return FeatureCheck(name, finalized, release, new, UpgradeVerdict.BLOCKED, reason, blockers, drops)
        verdict, reason = self._of_unregistered_controllers()
        return FeatureCheck(name, finalized, release, new, verdict, reason, (), drops)

    def _release_level(self, name: str) -> int | None:
        if name == METADATA_VERSION_FEATURE:
            return self.release_level
        return feature_default(name, self.release_level) if name in FEATURE_DEFAULTS else None

    def _new_level(self, name: str, finalized: int, release: int | None) -> int:
        """The level to ask for: kafka-features upgrade raises features only, and downgrade lowers them only."""
        if release is None:
            return finalized
        if name == METADATA_VERSION_FEATURE:
            return release
        if name == KRAFT_VERSION_FEATURE:  # never goes down, and software before 4.1 cannot raise it
            is_raised = self.release_level >= FIRST_LEVEL_THAT_UPGRADES_KRAFT_VERSION and not self.is_downgrade
            return max(finalized, release) if is_raised else finalized
        return min(finalized, release) if self.is_downgrade else max(finalized, release)

    def _blockers(self, feature: str, level: int) -> Iterator[Blocker]:
        registered = registrations(self.history)
        for (kind, node_id), rows in sorted(registered.items()):
            if kind == "controller" and not self.controllers_register:
                continue
            lowest, highest = supported_levels(rows[-1], feature) or UNSUPPORTED
            if not lowest <= level <= highest:
                since = supported_since(rows, feature)
                standing = self._standing(kind, node_id, rows[-1])
                times = since["from_offset"], since["timestamp_ms"]
                yield Blocker(kind, node_id, lowest, highest, *times, standing)
        if self.controllers_register and self.kraft_version == 0:
            for node_id in self.standing.voters:
                if ("controller", node_id) not in registered:
                    yield Blocker("controller", node_id, None, None, None, None, RegistrationState.NOT_REGISTERED)

    def _standing(self, kind: str, node_id: int, row: TableRow) -> RegistrationState:
        if kind == "broker":
            if row["fenced"]:
                return RegistrationState.FENCED
            return RegistrationState.SHUTTING_DOWN if row["in_controlled_shutdown"] else RegistrationState.ACTIVE
        if is_ghost_controller(self.history, node_id):
            return RegistrationState.GHOST
        is_voter = node_id in voter_ids(current_set(self.history))
        return RegistrationState.VOTER if is_voter else RegistrationState.OBSERVER

    def _drops(self, name: str, finalized: int, new: int) -> Iterator[str]:
        if name == METADATA_VERSION_FEATURE:
            for level in range(finalized, new, -1):
                if level in METADATA_CHANGES:
                    yield f"{METADATA_CHANGES[level]} ({METADATA_VERSIONS[level]})"
        elif new == 0 and name in LOST_WITH_A_FEATURE:
            yield LOST_WITH_A_FEATURE[name]
        elif new < finalized:
            yield f"what {name} {finalized} brought"

    def _of_unregistered_controllers(self) -> tuple[UpgradeVerdict, str]:
        """The active controller also asks its own software, which the log shows only where it registered: from 3.7-IV0
        on, or as the broker that it is too."""
        leader = self.standing.leader_id
        if (
            self.controllers_register
            and leader is not None
            and ("controller", leader) not in registrations(self.history)
        ):
            reason = (
                f"every registration supports it, but node {leader}, which leads, has not registered as a controller"
            )
            return UpgradeVerdict.UNDECIDED, reason
        if self.controllers_register:
            return UpgradeVerdict.ALLOWED, "every registered broker and controller supports it"
        brokers = {node_id for kind, node_id in registrations(self.history) if kind == "broker"}
        alone = sorted(set(self.standing.voters) - brokers)
        if self.standing.voters and not alone:
            return UpgradeVerdict.ALLOWED, "every registered broker supports it, and each controller is one of them"
        who = f"controllers {listed(alone)} run" if alone else "the controllers run"
        reason = f"every registered broker supports it; the log does not say which release {who}"
        return UpgradeVerdict.UNDECIDED, reason


def unknown_reason(levels: FeatureLevels) -> str | None:
    """Why the log does not decide it, whatever it shows; None where it does."""
    history = levels.history
    if not history.is_replayed or not history.is_read:
        return "no log could be replayed"
    if levels.metadata_version is None:
        return "no record that was read sets metadata.version"
    if history.unknown_from is not None:
        return f"records from offset {history.unknown_from} on are missing or could not be decoded"
    return None


def incomplete_reason(levels: FeatureLevels) -> str | None:
    """Why a log without a blocker does not prove that there is none."""
    history, standing = levels.history, levels.standing
    if not history.is_complete:
        return "the log begins after offset 0 without a snapshot, so registrations may be missing"
    if not registrations(history):
        return "the log holds no registration of a broker or controller"
    if standing.voters and len(standing.captured) < standing.majority:
        return (
            f"{len(standing.captured)} of {len(standing.voters)} voters were captured, so the log may go on elsewhere"
        )
    return None


def level_text(feature: str, level: int) -> str:
    """A level as people read it: that of metadata.version with its name."""
    return version_text(level) if feature == METADATA_VERSION_FEATURE else str(level)


def node_names(blockers: Sequence[Blocker]) -> str:
    """Nodes in words: brokers 11 and 12, controller 1."""
    parts = []
    for kind in ("broker", "controller"):
        ids = [blocker.node_id for blocker in blockers if blocker.kind == kind]
        if len(ids) > NODES_NAMED:
            parts.append(f"{kind}s {', '.join(map(str, ids[:NODES_NAMED]))}{and_more(len(ids) - NODES_NAMED)}")
        elif ids:
            parts.append(nouns(kind, ids))
    return ", ".join(parts)


MIGRATION_RECORD: Final = "ZK_MIGRATION_STATE_RECORD"
LEVELS_THAT_MIGRATE: Final = range(8, 22)
"""metadata.version 3.4-IV0 to 3.9-IV0: no other release writes or obeys the record."""
UNFINISHED_MIGRATION: Final = (1, 2)
"""PRE_MIGRATION and MIGRATION (ZkMigrationState.inProgress, Kafka 3.9)."""


def is_migrating(read_records: Callable[[Selection], pa.Table]) -> bool:
    """Whether the last state that the log or a snapshot holds is unfinished, by rows of the table `records`."""
    rows = read_records(Selection(record_types=(MIGRATION_RECORD,))).to_pylist()
    states = {_place(row): json.loads(row["record"]) for row in rows if row["record"] is not None}
    return bool(states) and states[max(states)]["zkMigrationState"] in UNFINISHED_MIGRATION


def _place(row: Mapping[str, Any]) -> tuple[int, int]:
    """Where in the log a record stands: the records of a snapshot before its end."""
    if row["source"] == "log":
        return row["leader_epoch"], row["offset"]
    end_offset, _, epoch = row["source"].partition("-")
    return (int(epoch), int(end_offset) - 1) if end_offset.isdigit() else (-1, -1)
