"""The language of the drills: what a cluster is, what it loses, how it is rescued, and what comes back afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Cut(StrEnum):
    """Where the rescued state ends, and what lies after it."""

    END = "nothing is lost"
    STALE = "a voter stopped before the lost part"
    OFFSET = "--to an offset before the lost part"
    POISON = "--to the offset before a record that stops every controller"
    BACKUP = "a backup of all controllers from before the lost part"
    TRANSACTION = "a metadata transaction is open at the end of the copy"


class Lost(StrEnum):
    """What is done in the lost part, while brokers go on and see it."""

    CREATED = "topic created"
    DELETED = "topic deleted"
    MADE_AGAIN = "topic made again"
    PARTITIONS = "partitions added"
    INTERNAL = "internal topics made"
    REASSIGNED = "topic reassigned"
    CONFIGURED = "configs changed"
    ACL = "ACLs changed"
    RIGHTS = "credentials and quotas changed"
    REGISTERED = "broker registered"


class Damage(StrEnum):
    """What else happened to the disks that are left."""

    NEWEST_SNAPSHOT = "its newest snapshot is corrupt"
    NO_QUORUM_STATE = "its quorum-state is missing"
    SNAPSHOT_ALONE = "its log is gone, a snapshot is left"
    BATCH = "a batch in the middle of the controller's log is corrupt"


LEAVES_LOGS: Final = frozenset({Lost.CREATED, Lost.MADE_AGAIN, Lost.PARTITIONS, Lost.INTERNAL})
"""What leaves logs that the rescued state does not know."""


class Back(StrEnum):
    """What starts again with an old disk."""

    NONE = "nothing"
    AFTER = "the old majority, after the procedure"
    AGAINST = "the old majority, against the procedure"
    WIPED = "the old majority with wiped disks, against the procedure"


@dataclass(frozen=True, slots=True)
class Drill:
    """One drill. `alone`: only the disk of the copy is read, and brokers run until the procedure says to stop them.

    `source` is the node of the copy. `moved`: the rescued node gets another id and endpoint. `elr`: eligible leader
    replicas. `snapshots`: every node writes its own every few records. `producing`: a producer goes on across all of
    it. `stays_static`: a static quorum is rescued as one by --static. `old_ids`: the quorum grows by the ids that it
    lost, on fresh disks, not by new ones. `combined`: controllers are brokers in the same process; `brokers` are those
    that are none. `by_hand`: no config of an old controller is given, so its blanks are filled in by hand. `users`:
    controllers have a second listener, for brokers, and users log in by SASL. `tls`: all listeners of controllers are
    encrypted besides, and take no one without a login or a certificate. `damage`: to the disk of the controller
    that is left. `adds_brokers`: brokers' disks are not read at first, and then added where the procedure says so.
    `runs_on`: nothing is lost, and brokers run all the while; copies of all disks are read.
    Where `is_planned`, the command of the rescue is the one that `rescue --plan` prints, and it has to choose `source`.
    """

    name: str
    release: str
    voters: int = 3
    is_static: bool = False
    combined: bool = False
    brokers: int = 1
    cut: Cut = Cut.END
    lost: tuple[Lost, ...] = ()
    source: int = 3
    alone: bool = False
    moved: bool = False
    stays_static: bool = False
    elr: bool = False
    snapshots: bool = False
    producing: bool = False
    grows: bool = True
    old_ids: bool = False
    back: Back = Back.NONE
    by_hand: bool = False
    users: bool = False
    tls: bool = False
    damage: tuple[Damage, ...] = ()
    adds_brokers: bool = False
    runs_on: bool = False
    ci: bool = False

    @property
    def voter_ids(self) -> list[int]:
        return list(range(1, self.voters + 1))

    @property
    def broker_ids(self) -> list[int]:
        return [100 + number for number in range(1, self.brokers + 1)]

    @property
    def from_broker(self) -> bool:
        return self.source in self.broker_ids

    @property
    def is_brought_back(self) -> bool:
        """Whether copies show the lost part, brokers' backups at last, so that all of it is back in the end."""
        return not self.alone or bool(LEAVES_LOGS & set(self.lost))

    @property
    def is_planned(self) -> bool:
        return bool(self.damage) or self.cut in (Cut.BACKUP, Cut.TRANSACTION)

    @property
    def gone(self) -> list[int]:
        """The controllers that are lost: all but a minority, or all where a broker's copy is what is left."""
        if self.cut is Cut.BACKUP or (self.from_broker and not self.damage):
            return self.voter_ids
        left = self.voter_ids[-(self.voters // 2) :]
        return [node for node in self.voter_ids if node not in left]

    @property
    def controller_role(self) -> str:
        return "combined" if self.combined else "controller"

    @property
    def story(self) -> str:
        """The drill in words."""
        kind = "static" if self.is_static else "dynamic"
        left = (
            "brokers only"
            if self.from_broker and not self.damage
            else f"{len(self.voter_ids) - len(self.gone)} of {self.voters} left"
        )
        brokers = f"{self.brokers} broker{'s' * (self.brokers > 1)}"
        if self.combined:
            brokers = f"broker and controller in one process{f', {brokers} more' * (self.brokers > 0)}"
        parts = [f"{kind}, {left}, {brokers}"]
        if self.cut is not Cut.END:
            parts.append(self.cut.value)
        parts += self.damage
        if self.lost:
            parts.append("lost: " + ", ".join(self.lost))
        is_added = self.alone and self.is_brought_back and not self.adds_brokers
        flags = {
            "brokers' disks not read": self.alone and not self.is_brought_back,
            "brokers' disks added when they are stopped": self.adds_brokers,
            "brokers' backups added when strays are found": is_added,
            "brokers run on": self.runs_on,
            "other id and endpoint": self.moved,
            "--static": self.stays_static,
            "ELR": self.elr,
            "own snapshots": self.snapshots,
        }
        flags |= {"producer across it": self.producing, "grows by old ids": self.grows and self.old_ids}
        flags |= {
            "config by hand": self.by_hand,
            "a user without rights, two controller listeners": self.users,
            "SASL_SSL and SSL": self.tls,
        }
        parts += [text for text, holds in flags.items() if holds]
        if self.back is not Back.NONE:
            parts.append(f"returns: {self.back}")
        return "; ".join(parts)
