"""Voters, voter sets, and the history of sets that a replica has appended (VoterSet, VoterSetHistory)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import Any

NO_DIRECTORY = bytes(16)
ReplicaKey = tuple[int, bytes]
"""(id, directory id); the directory id is NO_DIRECTORY in a static quorum."""
Endpoint = tuple[str, str, int]
"""(listener, host, port)."""


class Voter:
    """One member of a voter set, with the endpoints and the kraft.version range that a VotersRecord stores."""

    __slots__ = ("directory", "further", "host", "id", "key", "listener", "max_version", "min_version", "port")

    def __init__(
        self,
        id: int,  # noqa: A002 - Kafka's noun
        directory: bytes = NO_DIRECTORY,
        host: str = "localhost",
        port: int = 9093,
        listener: str = "CONTROLLER",
        min_version: int = 0,
        max_version: int = 1,
        further: tuple[Endpoint, ...] = (),
    ) -> None:
        self.id = id
        self.directory = directory
        self.key: ReplicaKey = (id, directory)
        self.host = host
        self.port = port
        self.listener = listener
        self.min_version = min_version
        self.max_version = max_version
        # Where controllers listen more than once: the endpoints after the first, which is the default listener's.
        self.further = further

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        return ((self.listener, self.host, self.port), *self.further)

    def same_entry(self, voter: Voter) -> bool:
        return (
            self.key == voter.key
            and self.endpoints == voter.endpoints
            and (self.min_version, self.max_version) == (voter.min_version, voter.max_version)
        )

    def fields(self) -> dict[str, Any]:
        return {
            "voterId": self.id,
            "voterDirectoryId": self.directory,
            "endpoints": [{"name": name, "host": host, "port": port} for name, host, port in self.endpoints],
            "kRaftVersionFeature": {
                "minSupportedVersion": self.min_version,
                "maxSupportedVersion": self.max_version,
            },
        }

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Voter:
        endpoint, *further = fields["endpoints"]
        versions = fields["kRaftVersionFeature"]
        return cls(
            fields["voterId"],
            fields["voterDirectoryId"],
            endpoint["host"],
            endpoint["port"],
            endpoint["name"],
            versions["minSupportedVersion"],
            versions["maxSupportedVersion"],
            tuple((entry["name"], entry["host"], entry["port"]) for entry in further),
        )


class VoterSet:
    """An immutable set of voters, in ascending order of (id, directory id)."""

    __slots__ = ("ids", "keys", "majority", "target", "voters")

    def __init__(self, voters: Iterable[Voter], target: frozenset[int] | None = None) -> None:
        self.voters = tuple(sorted(voters, key=lambda voter: voter.key))
        self.ids = tuple(voter.id for voter in self.voters)
        self.keys = tuple(voter.key for voter in self.voters)
        self.majority = len(self.voters) // 2 + 1
        # KIP-642's TargetVoters, null where no reassignment is under way.
        self.target = target

    def __len__(self) -> int:
        return len(self.voters)

    def __iter__(self) -> Iterator[Voter]:
        return iter(self.voters)

    def contains(self, key: ReplicaKey) -> bool:
        """Membership by (id, directory); an entry without a directory id (static quorum) matches on id alone."""
        if key in self.keys:
            return True
        return any(voter.id == key[0] and voter.directory == NO_DIRECTORY for voter in self.voters)

    def voter(self, id: int) -> Voter | None:  # noqa: A002 - Kafka's noun
        for voter in self.voters:
            if voter.id == id:
                return voter
        return None

    def adding(self, voter: Voter) -> VoterSet:
        return VoterSet((*self.voters, voter), self.target)

    def removing(self, key: ReplicaKey) -> VoterSet:
        return VoterSet((voter for voter in self.voters if voter.key != key), self.target)

    def replacing(self, voter: Voter) -> VoterSet:
        return VoterSet((voter if old.key == voter.key else old for old in self.voters), self.target)

    def same(self, voters: VoterSet) -> bool:
        return (
            self.keys == voters.keys
            and self.target == voters.target
            and all(mine.same_entry(theirs) for mine, theirs in zip(self.voters, voters.voters, strict=True))
        )

    def fields(self) -> dict[str, Any]:
        """A VotersRecord's fields."""
        return {"version": 0, "voters": [voter.fields() for voter in self.voters]}

    def __repr__(self) -> str:
        return "VoterSet(" + ",".join(f"{id}:{directory.hex()[:6]}" for id, directory in self.keys) + ")"  # noqa: A001


def disjoint_majorities(old: VoterSet, new: VoterSet) -> tuple[tuple[ReplicaKey, ...], tuple[ReplicaKey, ...]] | None:
    """A majority of each set with no voter in common, by trial of all of them; None where every two meet."""
    for first in combinations(old.keys, old.majority):
        chosen = set(first)
        rest = [key for key in new.keys if key not in chosen]
        if len(rest) >= new.majority:
            return first, tuple(rest[: new.majority])
    return None


class VoterHistory:
    """The voter sets and kraft.versions that a replica has appended, by offset; the static set stands before them.

    Entries from a snapshot S lie at S.offset - 1, those of the bootstrap snapshot 0-0 at -1.
    """

    __slots__ = ("_offsets", "_sets", "_version_offsets", "_versions", "static")

    def __init__(self, static: VoterSet | None = None) -> None:
        self.static = static
        self._offsets: list[int] = []
        self._sets: list[VoterSet] = []
        self._version_offsets: list[int] = []
        self._versions: list[int] = []

    @property
    def last(self) -> VoterSet | None:
        return self._sets[-1] if self._sets else self.static

    @property
    def last_offset(self) -> int | None:
        """The offset of the newest VotersRecord; None where only the static set is known."""
        return self._offsets[-1] if self._offsets else None

    @property
    def version(self) -> int:
        return self._versions[-1] if self._versions else 0

    def add(self, offset: int, voters: VoterSet) -> None:
        if self._offsets and offset <= self._offsets[-1]:
            raise ValueError(f"a voter set at offset {offset} does not follow the one at {self._offsets[-1]}")
        self._offsets.append(offset)
        self._sets.append(voters)

    def add_version(self, offset: int, version: int) -> None:
        self._version_offsets.append(offset)
        self._versions.append(version)

    def truncate(self, end_offset: int) -> bool:
        """Drops what stands at or above `end_offset`; true where a voter set was dropped."""
        keep = bisect_left(self._offsets, end_offset)
        dropped = keep < len(self._offsets)
        del self._offsets[keep:], self._sets[keep:]
        keep = bisect_left(self._version_offsets, end_offset)
        del self._version_offsets[keep:], self._versions[keep:]
        return dropped

    def truncate_before(self, offset: int) -> None:
        """Keeps the newest entry at or below `offset` and those above it (a snapshot was made there)."""
        first = max(bisect_left(self._offsets, offset + 1) - 1, 0)
        del self._offsets[:first], self._sets[:first]
        first = max(bisect_left(self._version_offsets, offset + 1) - 1, 0)
        del self._version_offsets[:first], self._versions[:first]

    def at(self, offset: int) -> VoterSet | None:
        """The set in effect at `offset`: the newest entry at or below it."""
        index = bisect_left(self._offsets, offset + 1) - 1
        return self._sets[index] if index >= 0 else self.static

    def version_at(self, offset: int) -> int:
        index = bisect_left(self._version_offsets, offset + 1) - 1
        return self._versions[index] if index >= 0 else 0

    def clear(self) -> None:
        del self._offsets[:], self._sets[:], self._version_offsets[:], self._versions[:]

    def entries(self) -> list[tuple[int, VoterSet]]:
        return list(zip(self._offsets, self._sets, strict=True))
